//! What the two ends tell each other about a generation that is over.

use crate::ids::{Generation, PathId, Seq};
use crate::limits::{EAGER_SLOTS, WINDOW};
use crate::wire::eager::eager_slot;

/// What became of the attempt to silence a queue pair: to move it to the error state and to see
/// all its work come back. An empty poll is not drained; only a marker behind all work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceOutcome {
    /// In the error state and drained: the NIC accepts and sends nothing more on it, and what it
    /// had accepted has landed.
    Drained,
    /// The device is gone. Its queue pairs send nothing more, but nobody knows what is still on
    /// its way into memory: good for a source, not for a target.
    DeviceLost,
    /// The deadline passed, or the device gave no clear answer. A better outcome may follow.
    Unknown,
}

/// The receiver's answer to a fence: what had arrived when it closed a generation for good. From
/// then on every completion of that generation is dropped there, so that the answer stays true
/// for what was posted in it, however often and late it is given (PROTOCOL R52).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The path.
    pub path: PathId,
    /// The generation that is over.
    pub generation: Generation,
    /// Whether the receiver's own queue pair is in the error state and drained. An answer that
    /// says no may be followed by one that says yes.
    pub is_fenced: bool,
    /// Messages ahead of their credit that the receiver has matched; it matches no more of this
    /// generation.
    pub eager: EagerReport,
    /// Oldest message that is not complete at the receiver.
    pub first: Seq,
    /// How many entries of `arrived` count; messages behind them have no segment there.
    pub count: u16,
    /// Segments that have arrived of message `first` + index, one bit each.
    pub arrived: [u64; WINDOW],
}

/// Which messages of a generation that came ahead of their credit have been matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EagerReport {
    /// How many the receiver has seen: all up to this number.
    pub seen: u64,
    /// Of the last of these, one a slot: whether it was matched.
    pub matched: u8,
}

const _: () = assert!(EAGER_SLOTS == u8::BITS as usize);

impl EagerReport {
    /// Whether number `number` was matched, which is not released by the sender.
    pub fn is_matched(&self, number: u64) -> bool {
        number <= self.seen && self.matched >> eager_slot(number) & 1 == 1
    }
}

impl Answer {
    /// Segments of `seq` that have arrived: all of those before `first`.
    pub fn arrived(&self, seq: Seq) -> u64 {
        if seq < self.first {
            return u64::MAX;
        }
        let index = seq.since(self.first);
        if index < u64::from(self.count) {
            self.arrived[(index as usize).min(WINDOW - 1)]
        } else {
            0
        }
    }
}

impl core::fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let count = usize::from(self.count).min(WINDOW);
        formatter
            .debug_struct("Answer")
            .field("path", &self.path)
            .field("generation", &self.generation)
            .field("is_fenced", &self.is_fenced)
            .field("eager", &self.eager)
            .field("first", &self.first)
            .field("arrived", &&self.arrived[..count])
            .finish()
    }
}
