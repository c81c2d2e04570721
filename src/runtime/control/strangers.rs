//! What keeps strangers cheap (PROTOCOL R32): few of them at a time, not for long, and one line of
//! log.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Connections of one stage that may be open at once.
pub(super) const UNPROVEN_MAX: usize = 64;
/// Time that a connection has to prove itself.
pub(super) const PROOF_TIME: Duration = Duration::from_secs(2);
/// At most one line of log in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Connections of one stage of the handshake, oldest first.
#[derive(Default)]
pub(super) struct Unproven(VecDeque<u64>);

impl Unproven {
    /// Adds one; the answer is the oldest, which must go, if there are too many.
    #[must_use]
    pub(super) fn push(&mut self, token: u64) -> Option<u64> {
        self.0.push_back(token);
        if self.0.len() > UNPROVEN_MAX {
            self.0.pop_front()
        } else {
            None
        }
    }

    /// Removes one.
    pub(super) fn remove(&mut self, token: u64) {
        self.0.retain(|&other| other != token);
    }

    /// Takes out the oldest.
    pub(super) fn pop(&mut self) -> Option<u64> {
        self.0.pop_front()
    }
}

/// Says now and then how many strangers were turned away.
#[derive(Default)]
pub(super) struct StrangerLog {
    dropped: u64,
    written: Option<Instant>,
}

impl StrangerLog {
    /// Counts one; the answer is how many a line should tell of, if one is due.
    pub(super) fn count(&mut self, now: Instant) -> Option<u64> {
        self.dropped += 1;
        if self
            .written
            .is_some_and(|written| now < written + LOG_INTERVAL)
        {
            return None;
        }
        self.written = Some(now);
        Some(std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first() {
        let mut unproven = Unproven::default();
        for token in 0..UNPROVEN_MAX as u64 {
            assert_eq!(unproven.push(token), None);
        }
        assert_eq!(unproven.push(1000), Some(0));
        unproven.remove(1);
        assert_eq!(unproven.push(1001), None);
        assert_eq!(unproven.push(1002), Some(2));
        assert_eq!(unproven.pop(), Some(3));
    }

    #[test]
    fn one_line_tells_of_many() {
        let mut log = StrangerLog::default();
        let now = Instant::now();
        assert_eq!(log.count(now), Some(1));
        assert_eq!(log.count(now), None);
        assert_eq!(log.count(now), None);
        assert_eq!(log.count(now + LOG_INTERVAL), Some(3));
    }
}
