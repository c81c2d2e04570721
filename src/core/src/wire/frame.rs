//! Frames of the control connection: what two processes tell each other besides data.
//!
//! On the wire a frame is a record, little endian, at most [`RECORD_BYTES_MAX`] bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length of the whole record, MAC included |
//! | 4 | 1 | kind |
//! | 5 | 3 | zero |
//! | 8 | 8 | sequence, from 1; 0 for frames that are not resent |
//! | 16 | 8 | highest sequence received in order from the other side |
//! | 24 | … | body |
//! | last 16 | 16 | MAC over all that stands before it |
//!
//! This file knows the layout only. Keys and MACs, sequences and resending belong to the control
//! plane of the runtime.
//!
//! Connections are named by ids that each process gives out itself, never 0. `to` is always an id
//! of the *receiver* of the frame, so that a process can talk to itself: whichever end a frame is
//! meant for is told by `to` alone.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::bytes::Reader;
use super::greeting::Greeting;
use super::path_frame::{PATH_FRAME_BYTES_MAX, PathFrame};

/// Largest record.
pub const RECORD_BYTES_MAX: usize = 4096;
/// Bytes of the fixed head of a record.
pub const HEADER_BYTES: usize = 24;
/// Bytes of the MAC at the end of a record.
pub const MAC_BYTES: usize = 16;
/// Largest body.
pub const BODY_BYTES_MAX: usize = RECORD_BYTES_MAX - HEADER_BYTES - MAC_BYTES;
/// Most paths in one [`Open`] or [`Accept`].
pub const PATHS_MAX: usize = 32;
/// Bytes of a queue pair's address, opaque to everybody but the device.
pub const QUEUE_PAIR_ADDRESS_BYTES: usize = 64;
/// Most bytes of a reason.
pub const REASON_BYTES_MAX: usize = 1024;
/// Most bytes of a name of a host or NIC.
pub const NAME_BYTES_MAX: usize = 64;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Who speaks and with which settings; first frame of each side. The control plane's own.
    Greeting(Greeting),
    /// Nothing but the acknowledgement in the header. The control plane's own.
    Ack,
    /// The sender of this frame does not know the link that the greeting named, and says why. The
    /// control plane's own.
    Reset {
        /// Why it is gone.
        reason: String,
    },
    /// The sending side asks the listening side for a connection.
    Open(Open),
    /// The listening side agrees.
    Accept(Accept),
    /// The listening side declines.
    Refuse {
        /// Connection id of the opener.
        to: u64,
        /// Why, for the log of the other side.
        reason: String,
        /// How many NICs this side has, if another path may do; else 0.
        nics: u8,
    },
    /// The receiving side's key of a memory region on the NIC of one path.
    RegionKey {
        /// Connection id of the sending side.
        to: u64,
        /// Region as credits name it.
        region: u32,
        /// The path whose NIC at the receiving side this is for.
        path: u8,
        /// Remote key of the region on that NIC.
        rkey: u32,
    },
    /// This end closes.
    Goodbye {
        /// Connection id of the other end.
        to: u64,
        /// Messages sent (from the sending side) or delivered (from the receiving side).
        count: u64,
    },
    /// What the two ends of a connection tell each other about a path.
    Path {
        /// Connection id of the other end.
        to: u64,
        /// The word itself; its kind is that of the frame.
        frame: Box<PathFrame>,
    },
}

// The id and the largest word fit into a record.
const _: () = assert!(8 + PATH_FRAME_BYTES_MAX <= BODY_BYTES_MAX);

/// Request for a connection: the sending side's ends of the paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Nonce of the handle: names the listen.
    pub listen_nonce: u64,
    /// Connection id of the sending side.
    pub connection: u64,
    /// Name of the sending side's NIC, for messages.
    pub nic: String,
    /// How many NICs the sending side has.
    pub nics: u8,
    /// For each path, by how much the numbers of its NICs are above those of path 0's, at both
    /// ends; at most [`PATHS_MAX`].
    pub steps: Vec<u8>,
    /// One entry a path, at most [`PATHS_MAX`].
    pub paths: Vec<PathEnd>,
}

/// One side's end of one generation of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathEnd {
    /// Path.
    pub path: u16,
    /// Generation.
    pub generation: u16,
    /// Index of this side's NIC.
    pub nic: u8,
    /// Address of its queue pair.
    pub queue_pair: [u8; QUEUE_PAIR_ADDRESS_BYTES],
    /// Address of the memory of this generation that the other side writes to: credit ring and
    /// counter word at the sending side, the eager slot at the receiving side.
    pub memory_address: u64,
    /// Its remote key.
    pub memory_rkey: u32,
}

/// Consent to a connection: the receiving side's ends of the paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept {
    /// Connection id of the opener.
    pub to: u64,
    /// Connection id of the receiving side.
    pub connection: u64,
    /// Name of the receiving side's NIC, for messages.
    pub nic: String,
    /// How many NICs the receiving side has.
    pub nics: u8,
    /// One entry a path, at most [`PATHS_MAX`].
    pub paths: Vec<PathEnd>,
}

/// Why a frame cannot be encoded or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame exceeds [`RECORD_BYTES_MAX`] or [`PATHS_MAX`].
    #[error("a control frame of {0} bytes exceeds the limit")]
    TooLarge(usize),
    /// No such kind.
    #[error("control frame of unknown kind {0}")]
    UnknownKind(u8),
    /// The body does not have the layout of its kind.
    #[error("malformed control frame of kind {0}")]
    Malformed(u8),
}

/// Head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole record.
    pub length: u32,
    /// Kind of the frame.
    pub kind: u8,
    /// Sequence, 0 for frames that are not resent.
    pub sequence: u64,
    /// Highest sequence received in order.
    pub acknowledged: u64,
}

impl Header {
    /// The head as bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&self.length.to_le_bytes());
        out[4] = self.kind;
        out[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..24].copy_from_slice(&self.acknowledged.to_le_bytes());
        out
    }

    /// Reads a head. `None` if its length cannot be that of a record or its padding is not zero.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let length = reader.u32()?;
        let kind = reader.u8()?;
        let padding = reader.array::<3>()?;
        let sequence = reader.u64()?;
        let acknowledged = reader.u64()?;
        let bounds = HEADER_BYTES + MAC_BYTES..=RECORD_BYTES_MAX;
        let fits = bounds.contains(&usize::try_from(length).ok()?) && padding == [0; 3];
        fits.then_some(Self {
            length,
            kind,
            sequence,
            acknowledged,
        })
    }
}
