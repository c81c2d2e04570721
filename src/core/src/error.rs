//! What can go wrong in the protocol.

use crate::ids::{PathId, Seq};
use crate::wire::credit::CreditError;

/// Why an operation was refused. Those that [`ProtocolError::is_peer_fault`] names come from what
/// the peer sent; the connection cannot be trusted after one (PROTOCOL R18). The others are
/// mistakes of the caller. Neither changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The path was never added to this connection.
    #[error("path {} does not belong to this connection", .0.index())]
    UnknownPath(PathId),
    /// The path has a generation that was not retired yet.
    #[error("path {} still has a generation in use", .0.index())]
    PathInUse(PathId),
    /// A path comes back only under a generation that it never had.
    #[error("path {} was offered a generation that is not newer than its last", .0.index())]
    GenerationNotNewer(PathId),
    /// No route was set before the first send.
    #[error("the connection has no route")]
    NoRoute,
    /// A route needs one to eight different paths and a weight above 0.
    #[error("a route needs 1 to 8 different paths, weights of at most 2^20, and one above 0")]
    BadRoute,
    /// The connection was configured with a segment size that no device may have.
    #[error("{0} bytes is not a usable segment size")]
    BadSegmentSize(u32),
    /// More bytes than one message may have.
    #[error("{0} bytes exceed the largest message of this connection")]
    MessageTooLarge(u64),
    /// A request has no receive, or more than a group holds.
    #[error("{0} receives do not make a group of 1 to 8")]
    BadGroupSize(usize),
    /// A buffer ends beyond the address space.
    #[error("a buffer reaches beyond the end of the address space")]
    AddressOverflow,
    /// The message is not delivered (or not open), so that it cannot be released.
    #[error("message {} is not delivered", .0.0)]
    NotDelivered(Seq),
    /// Only the newest write of a path can be handed back.
    #[error("a write was handed back out of order")]
    ReturnOutOfOrder,

    /// A credit line for the expected message makes no sense.
    #[error("peer sent a malformed credit: {0}")]
    BadCredit(#[from] CreditError),
    /// The peer confirmed messages that were never posted.
    #[error("peer confirmed {confirmed} messages, but only {posted} were posted")]
    CounterBeyondPosted {
        /// The counter's value.
        confirmed: u64,
        /// Messages posted without a gap.
        posted: u64,
    },
    /// An immediate names a segment that lies beyond its own count.
    #[error("peer named segment {index} of {count}")]
    SegmentBeyondCount {
        /// Index of the segment.
        index: u8,
        /// Segments of the message.
        count: u8,
    },
    /// Two segments of one message disagree about how many there are.
    #[error("peer cut message {} into {first} segments, then into {now}", .seq.0)]
    SegmentCountChanged {
        /// The message.
        seq: Seq,
        /// What the first segment said.
        first: u8,
        /// What this one says.
        now: u8,
    },
    /// A segment belongs to no open message.
    #[error("peer sent a segment outside the window (low bits {0})")]
    OutsideWindow(u16),
    /// The segments of a message hold more than its buffer.
    #[error("peer sent more bytes than message {} has room for", .0.0)]
    Overrun(Seq),
    /// An answer names segments that were never posted.
    #[error("peer says that segments of message {} have arrived which were never posted", .0.0)]
    SegmentNeverPosted(Seq),
    /// A message that came ahead of its credit makes no sense.
    #[error("peer sent a malformed message ahead of its credit")]
    BadEager,
    /// One segment holds more than any may.
    #[error("peer sent a segment of {0} bytes")]
    SegmentTooLarge(u32),
}

impl ProtocolError {
    /// Whether the peer broke the protocol, as opposed to the caller.
    pub const fn is_peer_fault(&self) -> bool {
        matches!(
            self,
            Self::BadCredit(_)
                | Self::CounterBeyondPosted { .. }
                | Self::SegmentBeyondCount { .. }
                | Self::SegmentCountChanged { .. }
                | Self::OutsideWindow(_)
                | Self::Overrun(_)
                | Self::SegmentNeverPosted(_)
                | Self::SegmentTooLarge(_)
                | Self::BadEager
        )
    }
}
