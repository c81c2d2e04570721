//! Work, completions, states and errors: the vocabulary that all devices share.

use std::fmt;

/// What the other side may do with a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Local source or destination only.
    Local,
    /// The peer may also write, and this process polls what it writes: the bytes of a write land
    /// in ascending order.
    RemoteWrite,
    /// The peer may also write; whoever reads it waits for a completion first.
    RemoteData,
}

impl Access {
    /// Whether the peer may write.
    pub const fn is_remote(self) -> bool {
        !matches!(self, Self::Local)
    }
}

/// A registered region on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Names the region in local work.
    pub lkey: u32,
    /// Names the region in the peer's work; zero where the access is local.
    pub rkey: u32,
}

/// Source bytes of an RDMA write.
#[derive(Clone, Copy)]
pub enum WriteSource {
    /// Copied into the work request when it is posted; the first `len` bytes count.
    Inline {
        /// Bytes, zero padded.
        bytes: [u8; WriteSource::INLINE_BYTES_MAX],
        /// How many of them are sent.
        len: u8,
    },
    /// `len` bytes at `address` inside the region of `lkey`.
    Registered {
        /// Virtual address in this process.
        address: u64,
        /// Bytes; may be 0.
        len: u32,
        /// Key of the region; ignored when `len` is 0.
        lkey: u32,
    },
}

impl WriteSource {
    /// Room for inline bytes: one credit line or counter with space to spare.
    pub const INLINE_BYTES_MAX: usize = 64;

    /// Bytes that the write carries.
    pub fn len(&self) -> u32 {
        match *self {
            Self::Inline { len, .. } => u32::from(len),
            Self::Registered { len, .. } => len,
        }
    }

    /// Whether the write carries no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One RDMA write, with or without immediate.
#[derive(Clone, Copy)]
pub struct SendWork {
    /// Comes back in the completion.
    pub id: u64,
    /// Bytes to send.
    pub source: WriteSource,
    /// Virtual address in the peer's process; ignored for an empty write.
    pub remote_address: u64,
    /// Key of the peer's region; ignored for an empty write.
    pub rkey: u32,
    /// With an immediate the write consumes a receive at the peer and completes there.
    pub immediate: Option<u32>,
    /// Whether a success yields a completion; failures always do.
    pub signaled: bool,
}

impl SendWork {
    /// A signalled write of no bytes, which needs neither memory nor keys.
    pub const fn empty(id: u64) -> Self {
        Self {
            id,
            source: WriteSource::Registered {
                address: 0,
                len: 0,
                lkey: 0,
            },
            remote_address: 0,
            rkey: 0,
            immediate: None,
            signaled: true,
        }
    }
}

/// What completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// Own posted write.
    Write,
    /// A receive consumed by the peer's write with immediate.
    ReceiveImmediate,
    /// The answer to [`crate::QueuePair::probe_nics`].
    NicProbe,
}

/// How it ended. The names are those of the InfiniBand verbs (`ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done; for a write: the peer's NIC has acknowledged it.
    Success,
    /// Local length error.
    LocalLength,
    /// Local queue-pair operation error.
    LocalQueuePair,
    /// Local protection error: bad key or bounds on this side.
    LocalProtection,
    /// Flushed, since the queue pair is in error.
    Flushed,
    /// The peer found the request malformed.
    RemoteInvalidRequest,
    /// The peer found key, bounds or rights wrong.
    RemoteAccess,
    /// The peer could not complete the request.
    RemoteOperation,
    /// No acknowledgement: the peer or the way to it is gone.
    RetryExceeded,
    /// The peer had no receive posted for too long.
    ReceiverNotReady,
    /// The device itself failed.
    Fatal,
    /// Any other code of a real device.
    Other(u32),
}

/// One entry of a completion queue. On failure only `id` and `status` mean anything.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Id of the work request; 0 for receives.
    pub id: u64,
    /// Outcome.
    pub status: Status,
    /// Which queue it belongs to.
    pub opcode: Opcode,
    /// Payload bytes of a [`Opcode::ReceiveImmediate`].
    pub byte_len: u32,
    /// Immediate of a [`Opcode::ReceiveImmediate`].
    pub immediate: u32,
}

impl Completion {
    /// Filler for buffers that [`crate::QueuePair::poll`] writes to.
    pub const EMPTY: Self = Self {
        id: 0,
        status: Status::Success,
        opcode: Opcode::Write,
        byte_len: 0,
        immediate: 0,
    };
}

/// State of a NIC's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// Link and address are there.
    Active,
    /// Link or address is missing.
    Down,
}

/// Asynchronous event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The port may have gone down.
    PortDown,
    /// The port may have come up.
    PortUp,
    /// The device has failed for good.
    Fatal,
}

/// How a NIC is to behave, for rehearsals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// As if its link were lost: the port goes down, nothing passes, no queue pair can be made.
    Kill,
    /// Well again, whatever was wrong.
    Restore,
    /// As slow as that.
    Slow {
        /// Payload in each direction, as the NIC's own rate limit.
        bytes_per_second: u64,
    },
    /// What it sends is lost, and nobody is told.
    CutSend,
    /// What is sent to it is lost, and nobody is told.
    CutReceive,
    /// Both.
    BlackHole,
}

/// Why a device refused something. The message names the NIC, the cause and a remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

/// Why a chain was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue pair is in error; outstanding work completes as flushed.
    InError,
    /// A work request is malformed: inline data or message too large for the device.
    Malformed,
}

impl fmt::Display for PostError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::InError => "the queue pair is in error",
            Self::Malformed => "the work request is larger than the device allows",
        })
    }
}

impl std::error::Error for PostError {}
