//! What goes in and out of the sender.

use crate::ids::{Generation, PathId, RegionId, Seq, WorkId};
use crate::limits::{EAGER_HEAD_BYTES, PATHS_MAX, SEGMENT_BYTES_MAX};
use crate::paths::PathSnapshot;
use crate::time::Time;

/// Settings of a [`crate::Sender`].
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Largest payload of one work request in bytes: a multiple of 128 from 64 KiB to 16 MiB.
    pub segment_bytes_max: u32,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            segment_bytes_max: SEGMENT_BYTES_MAX,
        }
    }
}

/// The receive that a send would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The message.
    pub seq: Seq,
    /// Region of the buffer at the receiver.
    pub region: RegionId,
    /// Room there, in bytes.
    pub capacity: u32,
}

/// One RDMA write with immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentWrite {
    /// Comes back in the completion.
    pub work: WorkId,
    /// Path to post on.
    pub path: PathId,
    /// Generation of the path that it belongs to, and to no other.
    pub generation: Generation,
    /// The message.
    pub seq: Seq,
    /// Region of the source.
    pub local_region: RegionId,
    /// Where the source begins, counted as the caller of `submit_send` counted.
    pub local_offset: u64,
    /// Region of the target, in the receiver's numbering.
    pub remote_region: RegionId,
    /// Address of the target in the receiver's process.
    pub remote_address: u64,
    /// Payload; may be 0.
    pub bytes: u32,
    /// Immediate to send with it.
    pub immediate: u32,
    /// Whether its success must yield a completion.
    pub signaled: bool,
}

/// One RDMA write without immediate into a slot of the receiver: a copy of a small message, padded
/// to 8 bytes, and its head behind it ([`crate::wire::eager`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EagerWrite {
    /// Comes back in the completion.
    pub work: WorkId,
    /// Path to post on.
    pub path: PathId,
    /// Generation of the path that it belongs to, and to no other.
    pub generation: Generation,
    /// Slot that it takes, which names the send until it is released.
    pub slot: usize,
    /// Payload; may be 0.
    pub bytes: u32,
    /// What follows the payload, at the end of the slot.
    pub head: [u8; EAGER_HEAD_BYTES],
    /// Whether its success must yield a completion.
    pub signaled: bool,
}

/// How a send stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// Not confirmed by the receiver.
    Pending,
    /// The receiver's software has all of it.
    Delivered {
        /// Bytes that went over.
        bytes: u32,
    },
    /// Never submitted, or released.
    Unknown,
}

/// A send that was larger than its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The message.
    pub seq: Seq,
    /// Bytes that the send had.
    pub asked: u64,
    /// Bytes that go over.
    pub given: u32,
    /// Sends that were cut down after it, before anyone asked.
    pub others: u32,
}

/// What the sender dropped or bent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStatistics {
    /// Credit lines offered from generations that are over.
    pub stale_credits: u64,
    /// Counter words offered from generations that are over.
    pub stale_counters: u64,
    /// Completions from generations that are over.
    pub stale_completions: u64,
    /// Sends that were cut down to their receive.
    pub truncated: u64,
    /// Segments posted again because an answer lacked them.
    pub replayed_segments: u64,
    /// Their bytes.
    pub replayed_bytes: u64,
    /// Segments that went over another path than they were cut for before they were posted.
    pub moved_segments: u64,
    /// Answers that said nothing new.
    pub stale_answers: u64,
    /// Sends that went ahead of their credit.
    pub eager_sends: u64,
    /// Of those, lost with their path, so that they went once more, in the ordinary way.
    pub eager_lost: u64,
}

/// State of a [`crate::Sender`]: everything below a mark is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderSnapshot {
    /// Released.
    pub oldest: Seq,
    /// Delivered.
    pub delivered: Seq,
    /// Posted with all segments.
    pub posted: Seq,
    /// In groups whose sends are all matched.
    pub filled: Seq,
    /// With a known credit.
    pub credited: Seq,
    /// Sends matched in the group that begins at `filled`.
    pub matched: u8,
    /// When the oldest undelivered send was submitted, if there is one.
    pub waiting_since: Option<Time>,
    /// Paths with a generation that is over and not fenced, one bit each.
    pub unfenced: u16,
    /// Paths by index.
    pub paths: [Option<PathSnapshot>; PATHS_MAX],
    /// What was dropped or bent.
    pub statistics: SenderStatistics,
}
