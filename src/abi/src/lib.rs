//! Declarations of NCCL's network plugin ABI, versions 8 to 12, as bindgen reads them from
//! `nccl-headers`. Declarations only: no function of this crate does anything.
//!
//! Names are NCCL's. The tables are [`ncclNet_v8_t`] to [`ncclNet_v12_t`]; their slots are
//! `Option<unsafe extern "C" fn(…)>`, `None` being NULL. Properties are `ncclNetProperties_vN_t`,
//! result codes and device kinds plain `u32`, the logger [`ncclDebugLogger_t`] (a nullable C
//! variadic function pointer), the profiler's callback [`ncclProfilerCallback_t`].
//!
//! The bindings are committed, so that no build needs libclang. With the feature `bindgen` they are
//! made anew at build time, and a test compares the two.

#![no_std]

#[cfg(not(feature = "bindgen"))]
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all
)]
mod bindings;

#[cfg(feature = "bindgen")]
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

mod layout;

pub use bindings::*;

/// [`ncclDebugLogger_t`] without the NULL: what `telemetry::install` takes inside an `Option`.
/// Arguments: level (`NCCL_LOG_*`), set of subsystems (`NCCL_INIT | NCCL_NET`), name of a function,
/// line, printf format (always `"%s"` from us), its arguments.
pub type NcclLogger = unsafe extern "C" fn(
    level: ncclDebugLogLevel,
    subsystems: core::ffi::c_ulong,
    function: *const core::ffi::c_char,
    line: core::ffi::c_int,
    format: *const core::ffi::c_char,
    ...
);

// The two names are one type, so that a table's argument goes to the log layer as it is.
const _: fn(ncclDebugLogger_t) -> Option<NcclLogger> = |logger| logger;

/// Symbol names of the tables, oldest first, as `dlsym` takes them.
pub const NET_SYMBOLS: [&core::ffi::CStr; 5] = [
    c"ncclNetPlugin_v8",
    c"ncclNetPlugin_v9",
    c"ncclNetPlugin_v10",
    c"ncclNetPlugin_v11",
    c"ncclNetPlugin_v12",
];

/// Bytes of a connection handle, as a length for Rust arrays.
pub const HANDLE_BYTES: usize = NCCL_NET_HANDLE_MAXSIZE as usize;
