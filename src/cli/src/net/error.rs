//! What a plugin can do wrong.

use std::path::PathBuf;

/// A plugin file that cannot be used.
#[derive(Debug)]
pub enum LoadError {
    /// `dlopen` refused the file; the loader's words are included.
    Open(PathBuf, String),
    /// No table of a version that this driver knows.
    NoTable(PathBuf),
    /// The table version that was asked for is not exported.
    NoVersion(PathBuf, u32, Vec<u32>),
    /// A slot that NCCL calls unconditionally is NULL.
    MissingSlot(PathBuf, &'static str),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Open(path, why) => {
                write!(f, "cannot load {}: {why}", path.display())
            }
            LoadError::NoTable(path) => write!(
                f,
                "{} is no usable net plugin: it exports none of ncclNetPlugin_v8 to _v12",
                path.display()
            ),
            LoadError::NoVersion(path, wanted, found) => {
                let found: Vec<String> = found.iter().map(|v| format!("v{v}")).collect();
                write!(
                    f,
                    "{} exports no ncclNetPlugin_v{wanted}; it has {}",
                    path.display(),
                    found.join(", ")
                )
            }
            LoadError::MissingSlot(path, slot) => write!(
                f,
                "{}: the slot {slot} of its table is NULL, and NCCL calls it unconditionally",
                path.display()
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// A call into the plugin that failed or broke the contract.
#[derive(Clone, Debug)]
pub enum NetError {
    /// The call returned a code other than success. NCCL ends the communicator on it.
    Returned {
        /// Slot that was called.
        call: &'static str,
        /// The `ncclResult_t`.
        code: u32,
    },
    /// The call returned success but broke what NCCL relies on.
    Contract {
        /// Slot that was called.
        call: &'static str,
        /// What was wrong.
        fault: String,
    },
}

impl NetError {
    /// A broken promise of the slot `call`.
    pub fn contract(call: &'static str, fault: impl Into<String>) -> Self {
        NetError::Contract {
            call,
            fault: fault.into(),
        }
    }
}

impl std::fmt::Display for NetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NetError::Returned { call, code } => {
                write!(f, "{call} returned {code} ({})", result_name(*code))
            }
            NetError::Contract { call, fault } => {
                write!(f, "{call} broke the plugin contract: {fault}")
            }
        }
    }
}

impl std::error::Error for NetError {}

/// NCCL's name of a result code.
fn result_name(code: u32) -> &'static str {
    match code {
        0 => "ncclSuccess",
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        7 => "ncclInProgress, which a plugin must never return",
        8 => "ncclTimeout",
        _ => "not an ncclResult_t",
    }
}
