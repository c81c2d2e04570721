//! When credits and counters that have been collected go out.

use r2ccl_core::limits::{EAGER_BYTES_MAX, EAGER_SLOTS};

/// Up to this size a message costs about as much as a doorbell.
const SMALL_BYTES: u32 = 8 << 10;
/// Polls that what has been collected waits for between small messages. On two H200s one poll of
/// NCCL takes about a microsecond.
const PATIENCE: u32 = 8;
/// The same between messages that need no credit: about as long as a whole all-reduce of a few
/// bytes, so that its control writes go out together behind it.
const LONG_PATIENCE: u32 = 48;
/// Receives up to this size may be for such messages: NCCL offers 64 KiB for each step of its LL
/// protocol (`NCCL_LL_LINES_PER_THREAD` × 512 threads × 16 bytes) and much more for all others.
const ROOM_BYTES: u64 = 64 << 10;
/// Messages at the most whose counter waits: the sender has as many slots again.
const UNCONFIRMED_MAX: u32 = EAGER_SLOTS as u32 / 2;

/// Between small messages each doorbell is a good part of the latency of the next one, so what the
/// sender can do without yet waits for a few polls: counters, and credits while it has others or
/// does not need them.
#[derive(Debug)]
pub struct Batch {
    /// The sender cannot go on without what has been collected.
    is_urgent: bool,
    /// Something has been collected.
    is_waiting: bool,
    /// Polls that it has waited for.
    waited: u32,
    /// Size of the last message, or part of one, that has come.
    last_bytes: u32,
    /// Messages that have come since.
    unconfirmed: u32,
    /// Receives beyond [`ROOM_BYTES`] are among those opened.
    has_large: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            is_urgent: false,
            is_waiting: false,
            waited: 0,
            last_bytes: u32::MAX,
            unconfirmed: 0,
            has_large: false,
        }
    }
}

impl Batch {
    /// A receive with room for `bytes` is opened.
    pub fn note_receive(&mut self, bytes: u64) {
        self.has_large |= bytes > ROOM_BYTES;
    }

    /// A message, or a part of one, of `bytes` has come.
    pub fn note_arrival(&mut self, bytes: u32) {
        self.last_bytes = bytes;
        self.unconfirmed += 1;
    }

    /// A counter has been collected.
    pub fn note_counter(&mut self) {
        self.is_waiting = true;
    }

    /// Credits for `count` messages from `first` on have been collected; all before `delivered`
    /// are here already. The sender waits for them if it has no others and needs one.
    pub fn note_credits(&mut self, first: u64, count: u8, delivered: u64) {
        let is_starved = first <= delivered && delivered < first + u64::from(count);
        let needs_credit = self.last_bytes > EAGER_BYTES_MAX as u32 || self.has_large;
        self.is_urgent |= is_starved && needs_credit;
        self.is_waiting = true;
    }

    /// Counts one poll. True: what has been collected goes out now.
    pub fn is_due(&mut self) -> bool {
        if !self.is_waiting {
            return false;
        }
        self.waited += 1;
        let patience = if self.last_bytes > SMALL_BYTES || self.has_large {
            0
        } else if self.last_bytes > EAGER_BYTES_MAX as u32 {
            PATIENCE
        } else {
            LONG_PATIENCE
        };
        self.is_urgent || self.waited > patience || self.unconfirmed >= UNCONFIRMED_MAX
    }

    /// Everything has gone out.
    pub fn clear(&mut self) {
        self.is_urgent = false;
        self.is_waiting = false;
        self.waited = 0;
        self.unconfirmed = 0;
        self.has_large = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls until what was collected goes out.
    fn polls(batch: &mut Batch) -> Option<u32> {
        (1..=LONG_PATIENCE + 1).find(|_| batch.is_due())
    }

    fn after(bytes: u32) -> Batch {
        let mut batch = Batch::default();
        batch.note_arrival(bytes);
        batch.clear();
        batch
    }

    const EAGER: u32 = EAGER_BYTES_MAX as u32;

    #[test]
    fn the_only_credit_goes_at_once() {
        for (first, count, delivered) in [(0, 1, 0), (3, 1, 3), (2, 2, 3)] {
            for mut batch in [Batch::default(), after(EAGER + 1), after(1 << 20)] {
                batch.note_credits(first, count, delivered);
                assert_eq!(polls(&mut batch), Some(1));
            }
        }
    }

    #[test]
    fn a_credit_that_the_sender_does_not_need_waits() {
        let mut batch = after(EAGER);
        batch.note_receive(ROOM_BYTES);
        batch.note_credits(3, 1, 3);
        assert_eq!(polls(&mut batch), Some(LONG_PATIENCE + 1));
        batch.clear();
        batch.note_receive(ROOM_BYTES + 1);
        batch.note_credits(3, 1, 3);
        assert_eq!(polls(&mut batch), Some(1), "the next one is a large one");
    }

    #[test]
    fn what_the_sender_can_do_without_waits() {
        // Credits beyond others that are open, and of a message that came ahead of its own.
        for (first, count, delivered) in [(4, 1, 3), (3, 1, 4)] {
            let mut batch = after(SMALL_BYTES);
            assert_eq!(polls(&mut batch), None, "nothing was collected");
            batch.note_credits(first, count, delivered);
            assert_eq!(polls(&mut batch), Some(PATIENCE + 1));
            batch.clear();
            batch.note_counter();
            assert_eq!(polls(&mut batch), Some(PATIENCE + 1));
        }
        let mut batch = after(SMALL_BYTES + 1);
        batch.note_counter();
        assert_eq!(
            polls(&mut batch),
            Some(1),
            "nothing waits between large messages"
        );
    }

    #[test]
    fn a_sender_never_runs_out_of_slots() {
        let mut batch = after(EAGER);
        for _ in 0..UNCONFIRMED_MAX {
            assert!(!batch.is_due());
            batch.note_arrival(EAGER);
            batch.note_counter();
        }
        assert_eq!(polls(&mut batch), Some(1));
    }
}
