//! A net plugin as NCCL sees it: loaded by `dlopen`, used through its function table only.
//!
//! [`Net`] hides which of the table versions 8 to 12 is in use and checks on every call what the
//! contract demands of a plugin: each output written, no code outside `ncclResult_t`. It stays
//! inside NCCL's own habits: outputs are poisoned before a call, since NCCL passes uninitialised
//! memory there.

mod calls;
mod error;
mod library;
mod logger;
mod table;

pub use error::{LoadError, NetError};
pub use library::load;

use std::ffi::{CStr, c_char, c_void};

use table::Table;

/// The 128 bytes that travel from the listening side to the connecting side.
pub type Handle = [u8; r2ccl_abi::HANDLE_BYTES];

/// Most buffers that one receive may group.
pub const GROUP_MAX: usize = 8;

/// A listening communicator of the plugin.
#[derive(Clone, Copy, Debug)]
pub struct ListenComm(*mut c_void);

/// A connected communicator of the plugin, of either direction.
#[derive(Clone, Copy, Debug)]
pub struct Comm(*mut c_void);

/// A registered piece of memory, valid on the communicator it was made for.
#[derive(Clone, Copy, Debug)]
pub struct Memory(*mut c_void);

/// An accepted operation that has not been reported done yet.
#[derive(Clone, Copy, Debug)]
pub struct Request(*mut c_void);

/// What a device says of itself, reduced to what every table version has.
#[derive(Clone, Debug)]
pub struct Properties {
    /// Name of the device, unique within the plugin.
    pub name: String,
    /// Speed in Mbit/s.
    pub speed_mbps: i32,
    /// Most buffers in one grouped receive.
    pub max_recvs: i32,
}

/// One buffer of a receive.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveBuffer {
    /// Where the bytes go.
    pub address: *mut u8,
    /// Room in bytes.
    pub bytes: usize,
    /// Tag that a send must carry to land here, when several buffers are grouped.
    pub tag: i32,
    /// Registration that covers the buffer.
    pub memory: Memory,
}

/// Sizes that a completed request reported: one entry a buffer.
pub type Sizes = [usize; GROUP_MAX];

/// A loaded plugin and its context. Never unloaded: NCCL 2.26 and later keep plugins too, and code
/// that a plugin's own threads still run must not vanish.
pub struct Net {
    table: Table,
    context: *mut c_void,
    strict: bool,
}

impl Net {
    fn new(table: Table) -> Self {
        Net {
            table,
            context: std::ptr::null_mut(),
            strict: false,
        }
    }

    /// Whether the sizes of `test` are poisoned too. NCCL zeroes that array, so this is stricter
    /// than NCCL; it finds a plugin that reports a receive done without saying how much came.
    pub fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
    }

    /// Table version in use, 8 to 12.
    pub fn abi(&self) -> u32 {
        self.table.version()
    }

    /// The name by which NCCL knows this network (`NCCL_NET`).
    pub fn name(&self) -> String {
        // SAFETY: a table's name is a C string that lives as long as the library.
        unsafe { text(self.table.name()) }
    }
}

/// Copies a C string of the plugin; NULL gives an empty one.
///
/// # Safety
/// `pointer` is NULL or points to a NUL-terminated string.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: promised by the caller.
    unsafe { CStr::from_ptr(pointer) }
        .to_string_lossy()
        .into_owned()
}
