//! How two queue pairs find out that both are connected, before any work goes.
//!
//! A packet to a queue pair that is not ready to receive is lost, and is only sent again when the
//! timer of reliable connections ends: 4 s by default. So each end sends a greeting, an empty write
//! with immediate, ahead of all work, and holds work until the peer's has come. Who has told its
//! address before it knew the peer's greets as soon as it is connected; the other may have to wait
//! long for its peer, and the number of retries is limited: it greets when it has been greeted.
//!
//! A greeting may still come too early. Then something is sent behind it now and then: a peer that
//! has become ready misses what came before, and has it sent again at once.

use std::time::{Duration, Instant};

use crate::SendWork;

/// Knocks of one end at the most; each has a place in the send queue of its own.
pub(super) const KNOCKS_MAX: u32 = 10;
/// Time to the first knock; it doubles with each.
const KNOCK_FIRST: Duration = Duration::from_millis(2);

/// Where the greetings of a queue pair stand.
#[derive(Default)]
pub(super) struct Greeting {
    /// This end told its address before it connected.
    pub(super) goes_first: bool,
    /// The peer's has come.
    pub(super) has_come: bool,
    /// The peer has acknowledged this end's.
    pub(super) is_acknowledged: bool,
    is_sent: bool,
    knocks: u32,
    next_knock: Option<Instant>,
}

/// What is to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The greeting itself.
    Greeting,
    /// Something behind it.
    Knock,
}

impl Greeting {
    /// Nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.has_come && self.is_acknowledged
    }

    /// Whether the peer may wait for what only calls of this end send.
    pub(super) fn needs_polls(&self) -> bool {
        self.goes_first && !self.is_acknowledged
    }

    /// What the end should send at `now`, being connected; taken for sent.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Due> {
        if !self.is_sent {
            if !self.goes_first && !self.has_come {
                return None;
            }
            self.is_sent = true;
            self.next_knock = Some(now + KNOCK_FIRST);
            return Some(Due::Greeting);
        }
        let is_due = self.next_knock.is_some_and(|due| now >= due);
        if self.is_acknowledged || !is_due || self.knocks == KNOCKS_MAX {
            return None;
        }
        self.knocks += 1;
        self.next_knock = Some(now + KNOCK_FIRST * (1 << self.knocks));
        Some(Due::Knock)
    }

    /// The peer's has come: the peer is ready.
    pub(super) fn come(&mut self, now: Instant) {
        self.has_come = true;
        self.next_knock = self.next_knock.map(|_| now);
    }
}

/// The work that stands for a greeting or a knock.
pub(super) fn work(due: Due) -> SendWork {
    SendWork {
        immediate: (due == Due::Greeting).then_some(0),
        signaled: due == Due::Greeting,
        ..SendWork::empty(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_waits_for_the_first() {
        let now = Instant::now();
        let mut first = Greeting {
            goes_first: true,
            ..Greeting::default()
        };
        let mut second = Greeting::default();
        assert_eq!(second.poll(now), None);
        assert_eq!(first.poll(now), Some(Due::Greeting));
        assert_eq!(first.poll(now), None);
        second.come(now);
        assert_eq!(second.poll(now), Some(Due::Greeting));
        first.is_acknowledged = true;
        first.come(now);
        assert!(first.is_over() && !second.is_over());
        assert_eq!(first.poll(now + Duration::from_secs(1)), None);
    }

    #[test]
    fn knocks_follow_until_there_is_an_answer() {
        let start = Instant::now();
        let mut greeting = Greeting {
            goes_first: true,
            ..Greeting::default()
        };
        assert_eq!(greeting.poll(start), Some(Due::Greeting));
        assert_eq!(greeting.poll(start), None);
        // The peer is ready: it misses what was sent before.
        greeting.come(start);
        assert_eq!(greeting.poll(start), Some(Due::Knock));
        let mut knocks = 1;
        for millisecond in 0..10_000 {
            let now = start + Duration::from_millis(millisecond);
            knocks += u32::from(greeting.poll(now) == Some(Due::Knock));
        }
        assert_eq!(knocks, KNOCKS_MAX);
    }
}
