//! What can go wrong in a call, sorted by who has to act.

/// Error of a runtime call. The message names the thing and the remedy; `plugin::result` turns the
/// class into NCCL's code and prints the message as a warning. Back-pressure is never an error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The caller passed something that can never work: bad handle, bad size, unregistered memory.
    #[error("{0}")]
    Argument(String),
    /// Settings or versions that do not fit: this side's or the two sides' together.
    #[error("{0}")]
    Usage(String),
    /// This host refused: descriptors, threads, memory, sockets, devices.
    #[error("{0}")]
    System(String),
    /// The peer or the network failed.
    #[error("{0}")]
    Remote(String),
    /// A defect of this library or a peer that breaks the protocol.
    #[error("{0}")]
    Internal(String),
}

/// Result of a runtime call.
pub type Result<T> = std::result::Result<T, Error>;
