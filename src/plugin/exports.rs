//! The data symbols that NCCL looks up, newest first; it takes the first that it knows.
//!
//! Nothing else may be exported: a tuner, profiler, GIN or RMA symbol in the same library would
//! become active by its mere presence.

#![allow(non_upper_case_globals)] // The names are NCCL's.

use super::net::{v8, v9, v10, v11, v12};
use r2ccl_abi::{ncclNet_v8_t, ncclNet_v9_t, ncclNet_v10_t, ncclNet_v11_t, ncclNet_v12_t};

/// A table of function pointers in read-only data.
#[repr(transparent)]
pub struct Exported<T>(T);

// SAFETY: a table holds pointers to functions and to a static string, and nobody writes to it.
unsafe impl<T> Sync for Exported<T> {}

/// Table of version 8, NCCL 2.20 and later.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v8: Exported<ncclNet_v8_t> = Exported(v8::TABLE);

/// Table of version 9, NCCL 2.24 and later.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v9: Exported<ncclNet_v9_t> = Exported(v9::TABLE);

/// Table of version 10, NCCL 2.26 and later.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v10: Exported<ncclNet_v10_t> = Exported(v10::TABLE);

/// Table of version 11, NCCL 2.28 and later.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v11: Exported<ncclNet_v11_t> = Exported(v11::TABLE);

/// Table of version 12, NCCL 2.30 and later.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v12: Exported<ncclNet_v12_t> = Exported(v12::TABLE);
