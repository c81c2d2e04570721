//! When credits and counters that have been collected go out.

use r2ccl_core::limits::{EAGER_BYTES_MAX, EAGER_SLOTS};

/// Up to this size a message costs about as much as a doorbell.
const SMALL_BYTES: u32 = 8 << 10;
/// From this size on a few credits keep a sender busy while others wait: four messages take a NIC
/// of 400 Gb/s 20 µs.
const LARGE_BYTES: u32 = 256 << 10;
/// Credits that are enough for a sender of those, so that several messages share a doorbell back:
/// half of what NCCL gives for a connection (`NCCL_STEPS`).
const SPARE_CREDITS: u64 = EAGER_SLOTS as u64 / 2;
/// Polls that what has been collected waits for between small messages. On two H200s one poll of
/// NCCL takes about a microsecond.
const PATIENCE: u32 = 8;
/// The same between messages whose sender lacks nothing: about as long as a whole all-reduce of a
/// few bytes, so that its control writes go out together behind it. With the last open receive
/// everything goes out.
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
    /// Polls since there is something to send.
    waited: u32,
    /// Size of the last message, or part of one, that has come.
    last_bytes: u32,
    /// Messages that have come since something was sent.
    unconfirmed: u32,
    /// One has come since the last poll with something to send.
    has_come: bool,
    /// Receives beyond [`ROOM_BYTES`] were opened since.
    has_large: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            waited: 0,
            last_bytes: SMALL_BYTES + 1,
            unconfirmed: 0,
            has_come: false,
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
        self.has_come = true;
    }

    /// Counts one poll with something to send, while the sender has `spare` credits. True: it goes
    /// out now.
    pub fn is_due(&mut self, spare: u64) -> bool {
        self.waited += 1;
        let needs_credit = self.last_bytes > EAGER_BYTES_MAX as u32 || self.has_large;
        let is_large = self.last_bytes > SMALL_BYTES || self.has_large;
        let is_ahead = self.last_bytes >= LARGE_BYTES && spare >= SPARE_CREDITS;
        if std::mem::take(&mut self.has_come) && is_ahead {
            // Its receiver is about to open the next one, whose credit goes along.
            return false;
        }
        let (patience, unconfirmed_max) = if is_ahead || !needs_credit {
            (LONG_PATIENCE, UNCONFIRMED_MAX)
        } else if is_large {
            (0, 1)
        } else {
            (PATIENCE, UNCONFIRMED_MAX)
        };
        spare == 0 && needs_credit || self.waited > patience || self.unconfirmed >= unconfirmed_max
    }

    /// Everything has gone out.
    pub fn clear(&mut self) {
        self.waited = 0;
        self.unconfirmed = 0;
        self.has_large = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls until something goes out.
    fn polls(batch: &mut Batch, spare: u64) -> u32 {
        (1..=LONG_PATIENCE + 1)
            .find(|_| batch.is_due(spare))
            .expect("goes out some day")
    }

    fn after(bytes: u32) -> Batch {
        let mut batch = Batch::default();
        batch.note_arrival(bytes);
        batch.clear();
        batch
    }

    const EAGER: u32 = EAGER_BYTES_MAX as u32;

    #[test]
    fn a_credit_that_the_sender_needs_goes_at_once() {
        for mut batch in [Batch::default(), after(EAGER + 1), after(1 << 20)] {
            assert_eq!(polls(&mut batch, 0), 1);
        }
        let mut batch = after(EAGER);
        batch.note_receive(ROOM_BYTES + 1);
        assert_eq!(polls(&mut batch, 0), 1, "the next one may be a large one");
    }

    #[test]
    fn what_the_sender_can_do_without_waits() {
        let mut batch = after(EAGER);
        batch.note_receive(ROOM_BYTES);
        assert_eq!(polls(&mut batch, 0), LONG_PATIENCE + 1);
        batch.clear();
        assert_eq!(polls(&mut batch, 1), LONG_PATIENCE + 1);
        assert_eq!(polls(&mut after(SMALL_BYTES), 1), PATIENCE + 1);
    }

    #[test]
    fn behind_large_messages_several_share_a_doorbell() {
        assert_eq!(polls(&mut after(LARGE_BYTES - 1), SPARE_CREDITS), 1);
        let large = || after(LARGE_BYTES);
        assert_eq!(polls(&mut large(), SPARE_CREDITS - 1), 1);
        assert_eq!(polls(&mut large(), SPARE_CREDITS), LONG_PATIENCE + 1);
        let mut batch = large();
        for _ in 1..UNCONFIRMED_MAX {
            batch.note_arrival(LARGE_BYTES);
            assert!(!batch.is_due(SPARE_CREDITS));
            assert!(!batch.is_due(SPARE_CREDITS));
        }
        batch.note_arrival(LARGE_BYTES);
        assert!(!batch.is_due(SPARE_CREDITS), "the next receive is to come");
        assert!(batch.is_due(SPARE_CREDITS));
    }

    #[test]
    fn a_sender_never_runs_out_of_slots() {
        let mut batch = after(EAGER);
        for _ in 0..UNCONFIRMED_MAX {
            assert!(!batch.is_due(0));
            batch.note_arrival(EAGER);
        }
        assert_eq!(polls(&mut batch, 0), 1);
    }
}
