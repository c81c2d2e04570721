//! What goes in and out of the receiver.

use crate::ids::{Generation, PathId, RegionId, Seq, WorkId};
use crate::limits::{COUNTER_BYTES, CREDIT_BYTES, CREDIT_LINES_MAX, PATHS_MAX};
use crate::paths::PathSnapshot;
use crate::time::Time;

/// Settings of a [`crate::Receiver`]; none so far.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ReceiverConfig {}

/// Where one message may land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// Region that holds the buffer.
    pub region: RegionId,
    /// Its address in this process.
    pub address: u64,
    /// Its room in bytes; what exceeds the largest message counts as that.
    pub capacity: u64,
    /// Tag that the send must carry.
    pub tag: i32,
}

/// A message that came ahead of its credit and has found its receive: copy the first `bytes` of
/// its payload to `address`, in ascending order and aligned words whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EagerCopy {
    /// Path in whose slots it lies.
    pub path: PathId,
    /// Its slot.
    pub slot: usize,
    /// The message.
    pub seq: Seq,
    /// Region of the buffer.
    pub region: RegionId,
    /// Address of the buffer in this process.
    pub address: u64,
    /// Bytes that came: where the payload begins in its slot.
    pub payload: u32,
    /// Bytes to copy.
    pub bytes: u32,
}

/// What a segment did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A part of the message; more are missing.
    Segment(Seq),
    /// The last part: the message is complete.
    Delivered(Seq),
    /// Seen before; counted and otherwise ignored.
    Duplicate(Seq),
    /// Of a generation that is over; counted and otherwise ignored.
    Stale,
}

/// What a write of the receiver carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverBody {
    /// `count` lines for the slots from `slot` on of the path's credit ring.
    Credits {
        /// First slot, so that the lines go to byte `slot * 32` of the ring.
        slot: usize,
        /// Message of the first line.
        first: Seq,
        /// Lines, 1 to [`CREDIT_LINES_MAX`].
        count: u8,
        /// The lines; zeros behind the last.
        lines: [u8; CREDIT_BYTES * CREDIT_LINES_MAX],
    },
    /// The new value of the path's counter word.
    Counter {
        /// Messages delivered without a gap.
        value: u64,
    },
}

/// One RDMA write without immediate into the sender's memory, small enough to be inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverWrite {
    /// Comes back in the completion.
    pub work: WorkId,
    /// Path to post on.
    pub path: PathId,
    /// Generation of the path that it belongs to, and to no other.
    pub generation: Generation,
    /// Whether its success must yield a completion.
    pub signaled: bool,
    /// What to write.
    pub body: ReceiverBody,
}

impl ReceiverWrite {
    /// The bytes to write, zero padded, and how many of them count.
    pub fn payload(&self) -> ([u8; CREDIT_BYTES * CREDIT_LINES_MAX], usize) {
        match self.body {
            ReceiverBody::Credits { count, lines, .. } => {
                (lines, usize::from(count) * CREDIT_BYTES)
            }
            ReceiverBody::Counter { value } => {
                let mut bytes = [0; CREDIT_BYTES * CREDIT_LINES_MAX];
                bytes[..COUNTER_BYTES].copy_from_slice(&value.to_le_bytes());
                (bytes, COUNTER_BYTES)
            }
        }
    }
}

/// What the receiver dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStatistics {
    /// Arrivals from generations that are over.
    pub stale_arrivals: u64,
    /// Segments seen before.
    pub duplicates: u64,
    /// Completions from generations that are over.
    pub stale_completions: u64,
    /// Messages that came ahead of their credit.
    pub eager_receives: u64,
}

/// State of a [`crate::Receiver`]: everything below a mark is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverSnapshot {
    /// Released.
    pub oldest: Seq,
    /// Delivered.
    pub delivered: Seq,
    /// Confirmed by a counter that was handed out; 0 when that may not have been said.
    pub confirmed: Seq,
    /// Permitted by a credit that was handed out.
    pub credited: Seq,
    /// Opened.
    pub opened: Seq,
    /// When the oldest undelivered receive was opened, if there is one.
    pub waiting_since: Option<Time>,
    /// Paths by index.
    pub paths: [Option<PathSnapshot>; PATHS_MAX],
    /// What was dropped.
    pub statistics: ReceiverStatistics,
}
