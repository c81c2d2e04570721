//! The function tables, one enum over their versions.

use std::ffi::{c_char, c_void};

use r2ccl_abi as abi;

/// A plugin's function table. It lives in the never unloaded library.
pub(super) enum Table {
    /// `ncclNetPlugin_v8`
    V8(&'static abi::ncclNet_v8_t),
    /// `ncclNetPlugin_v9`
    V9(&'static abi::ncclNet_v9_t),
    /// `ncclNetPlugin_v10`
    V10(&'static abi::ncclNet_v10_t),
    /// `ncclNetPlugin_v11`
    V11(&'static abi::ncclNet_v11_t),
    /// `ncclNetPlugin_v12`
    V12(&'static abi::ncclNet_v12_t),
}

/// Reads a member that every table version has with the same type.
macro_rules! member {
    ($table:expr, $name:ident) => {
        match $table {
            $crate::net::table::Table::V8(table) => table.$name,
            $crate::net::table::Table::V9(table) => table.$name,
            $crate::net::table::Table::V10(table) => table.$name,
            $crate::net::table::Table::V11(table) => table.$name,
            $crate::net::table::Table::V12(table) => table.$name,
        }
    };
}
pub(super) use member;

/// First slot of the list that is NULL in one table.
macro_rules! first_null {
    ($table:expr; $($name:ident),+) => {{
        $( if $table.$name.is_none() { return Some(stringify!($name)); } )+
        None
    }};
}

/// [`first_null`] over the slots that NCCL calls unconditionally, and those named besides.
macro_rules! first_missing {
    ($table:expr $(, $extra:ident)*) => {
        first_null!(
            $table; init, devices, getProperties, listen, connect, accept, regMr, deregMr, isend,
            irecv, iflush, test, closeSend, closeRecv, closeListen $(, $extra)*
        )
    };
}

impl Table {
    /// The table of `version` (8 to 12; anything above counts as 12) at `address`.
    ///
    /// # Safety
    /// A table of that version lies at `address` for the rest of the process.
    pub(super) unsafe fn at(version: u32, address: *const c_void) -> Self {
        // SAFETY: promised by the caller.
        unsafe {
            match version {
                8 => Table::V8(&*address.cast()),
                9 => Table::V9(&*address.cast()),
                10 => Table::V10(&*address.cast()),
                11 => Table::V11(&*address.cast()),
                _ => Table::V12(&*address.cast()),
            }
        }
    }

    pub(super) fn version(&self) -> u32 {
        match self {
            Table::V8(_) => 8,
            Table::V9(_) => 9,
            Table::V10(_) => 10,
            Table::V11(_) => 11,
            Table::V12(_) => 12,
        }
    }

    pub(super) fn name(&self) -> *const c_char {
        member!(self, name)
    }

    /// The first slot that is NULL though NCCL calls it without looking.
    pub(super) fn missing_slot(&self) -> Option<&'static str> {
        match self {
            Table::V8(table) => first_missing!(table),
            Table::V9(table) => first_missing!(table),
            Table::V10(table) => first_missing!(table),
            Table::V11(table) => first_missing!(table, finalize),
            Table::V12(table) => first_missing!(table, finalize),
        }
    }
}
