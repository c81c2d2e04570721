//! When credits and counters that have been collected go out.

/// Up to this size a message costs about as much as a doorbell.
const SMALL_BYTES: u32 = 8 << 10;
/// Polls that credits and counters may wait for to share a doorbell. On two H200s one poll of NCCL
/// takes about a microsecond.
const PATIENCE: u32 = 8;

/// Between small messages each doorbell is a good part of the latency of the next one, so what the
/// sender can do without yet waits for a few polls: counters, and credits while it has others.
#[derive(Debug)]
pub struct Batch {
    /// The sender is out of credits but for those that have been collected.
    is_urgent: bool,
    /// Polls that what has been collected waits for at the most, and has waited for.
    patience: u32,
    waited: u32,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            is_urgent: false,
            patience: PATIENCE,
            waited: 0,
        }
    }
}

impl Batch {
    /// A message, or a part of one, of `bytes` has come.
    pub fn note_arrival(&mut self, bytes: u32) {
        self.patience = if bytes <= SMALL_BYTES { PATIENCE } else { 0 };
    }

    /// Credits for `count` messages from `first` on have been collected; all before `delivered`
    /// are here already. The sender waits for them if it has no others.
    pub fn note_credits(&mut self, first: u64, count: u8, delivered: u64) {
        self.is_urgent |= first <= delivered && delivered < first + u64::from(count);
    }

    /// Counts one poll. True: what has been collected goes out now.
    pub fn is_due(&mut self) -> bool {
        self.waited += 1;
        self.is_urgent || self.waited > self.patience
    }

    /// Everything has gone out.
    pub fn clear(&mut self) {
        self.is_urgent = false;
        self.waited = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Batch, PATIENCE, SMALL_BYTES};

    /// Polls until what was collected goes out.
    fn polls(batch: &mut Batch) -> u32 {
        (1..=PATIENCE + 2)
            .find(|_| batch.is_due())
            .expect("goes out some day")
    }

    #[test]
    fn the_only_credit_goes_at_once() {
        for (first, count, delivered) in [(0, 1, 0), (3, 1, 3), (2, 2, 3)] {
            let mut batch = Batch::default();
            batch.note_credits(first, count, delivered);
            assert_eq!(polls(&mut batch), 1);
        }
    }

    #[test]
    fn what_the_sender_can_do_without_waits() {
        // Credits beyond others that are open, and of a message that came ahead of its own.
        for (first, count, delivered) in [(4, 1, 3), (3, 1, 4)] {
            let mut batch = Batch::default();
            batch.note_credits(first, count, delivered);
            assert_eq!(polls(&mut batch), PATIENCE + 1);
            batch.clear();
            assert_eq!(polls(&mut batch), PATIENCE + 1);
        }
    }

    #[test]
    fn nothing_waits_between_large_messages() {
        let mut batch = Batch::default();
        batch.note_arrival(SMALL_BYTES + 1);
        assert_eq!(polls(&mut batch), 1);
        batch.clear();
        batch.note_arrival(SMALL_BYTES);
        assert_eq!(polls(&mut batch), PATIENCE + 1);
    }
}
