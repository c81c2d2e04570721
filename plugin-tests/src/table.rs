//! The tables of all versions behind one trait, so that a test is written once.
//!
//! Sizes are `i64` here: each version squeezes them into its own type, as a caller in C would.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::plugin::Plugin;
use r2ccl_abi::*;

/// Opaque pointer, as C has it.
pub type Opaque = *mut c_void;

/// The calls of one table. All are as unsafe as the function pointers behind them.
#[allow(clippy::too_many_arguments)] // The slots' own.
#[allow(clippy::missing_safety_doc)] // Said for all above.
pub trait Table {
    /// Number of the version.
    fn version(&self) -> u32;
    /// Bytes of its properties.
    fn properties_bytes(&self) -> usize;
    /// `ctx` is not touched by versions before 11.
    unsafe fn init(&self, ctx: *mut Opaque, logger: ncclDebugLogger_t) -> ncclResult_t;
    /// Slot `devices`.
    unsafe fn devices(&self, ndev: *mut c_int) -> ncclResult_t;
    /// Slot `getProperties`; `props` has the type of the version.
    unsafe fn get_properties(&self, dev: c_int, props: Opaque) -> ncclResult_t;
    /// Slot `listen`, with a NULL context from version 11 on.
    unsafe fn listen(&self, dev: c_int, handle: Opaque, comm: *mut Opaque) -> ncclResult_t;
    /// Slot `connect`, with NULL for context and configuration.
    unsafe fn connect(
        &self,
        dev: c_int,
        handle: Opaque,
        comm: *mut Opaque,
        device_side: *mut *mut ncclNetDeviceHandle_v7_t,
    ) -> ncclResult_t;
    /// Slot `accept`.
    unsafe fn accept(
        &self,
        listen: Opaque,
        comm: *mut Opaque,
        device_side: *mut *mut ncclNetDeviceHandle_v7_t,
    ) -> ncclResult_t;
    /// Slot `regMr`.
    unsafe fn reg_mr(
        &self,
        comm: Opaque,
        data: Opaque,
        size: usize,
        kind: c_int,
        mhandle: *mut Opaque,
    ) -> ncclResult_t;
    /// Slot `deregMr`.
    unsafe fn dereg_mr(&self, comm: Opaque, mhandle: Opaque) -> ncclResult_t;
    /// Slot `isend`, with a NULL profiler handle.
    unsafe fn isend(
        &self,
        comm: Opaque,
        data: Opaque,
        size: i64,
        tag: c_int,
        mhandle: Opaque,
        request: *mut Opaque,
    ) -> ncclResult_t;
    /// Slot `irecv`, with a NULL array of profiler handles. `sizes` may be missing.
    unsafe fn irecv(
        &self,
        comm: Opaque,
        n: c_int,
        data: *mut Opaque,
        sizes: Option<&[i64]>,
        tags: *mut c_int,
        mhandles: *mut Opaque,
        request: *mut Opaque,
    ) -> ncclResult_t;
    /// Slot `iflush`.
    unsafe fn iflush(
        &self,
        comm: Opaque,
        n: c_int,
        data: *mut Opaque,
        sizes: *mut c_int,
        mhandles: *mut Opaque,
        request: *mut Opaque,
    ) -> ncclResult_t;
    /// Slot `test`.
    unsafe fn test(&self, request: Opaque, done: *mut c_int, sizes: *mut c_int) -> ncclResult_t;
    /// Slot `closeSend`.
    unsafe fn close_send(&self, comm: Opaque) -> ncclResult_t;
    /// Slot `closeRecv`.
    unsafe fn close_recv(&self, comm: Opaque) -> ncclResult_t;
    /// Slot `closeListen`.
    unsafe fn close_listen(&self, comm: Opaque) -> ncclResult_t;
    /// Slot `finalize`, if the version has it.
    fn finalize(&self) -> Option<unsafe extern "C" fn(Opaque) -> ncclResult_t>;
}

/// The tables of a plugin, oldest first.
pub fn all(plugin: &'static Plugin) -> [&'static dyn Table; 5] {
    [plugin.v8, plugin.v9, plugin.v10, plugin.v11, plugin.v12]
}

/// Calls a slot that must be there.
macro_rules! call {
    ($table:expr, $slot:ident($($argument:expr),*)) => {
        // SAFETY: the caller of the trait's function vouches for the arguments.
        unsafe { $table.$slot.expect(stringify!($slot))($($argument),*) }
    };
}

/// Implements the trait for a table: what all have in common here, what differs by argument.
/// `size` is the type of a message's size, `profile` the profiler's arguments if there are any,
/// `before` the arguments of listen and connect in front of dev, `config` what connect has behind.
macro_rules! table {
    (
        $table:ty, version $version:literal, properties $properties:ty, size $size:ty,
        init |$this:ident, $ctx:ident, $logger:ident| $init:expr,
        before [$($before:expr),*], config [$($config:expr),*],
        handle [$($handle:expr),*], handles [$($handles:expr),*],
        finalize |$that:ident| $finalize:expr
    ) => {
        impl Table for $table {
            fn version(&self) -> u32 {
                $version
            }
            fn properties_bytes(&self) -> usize {
                size_of::<$properties>()
            }
            unsafe fn init(&self, $ctx: *mut Opaque, $logger: ncclDebugLogger_t) -> ncclResult_t {
                let $this = self;
                $init
            }
            unsafe fn devices(&self, ndev: *mut c_int) -> ncclResult_t {
                call!(self, devices(ndev))
            }
            unsafe fn get_properties(&self, dev: c_int, props: Opaque) -> ncclResult_t {
                call!(self, getProperties(dev, props.cast::<$properties>()))
            }
            unsafe fn listen(&self, dev: c_int, handle: Opaque, comm: *mut Opaque) -> ncclResult_t {
                call!(self, listen($($before,)* dev, handle, comm))
            }
            unsafe fn connect(
                &self,
                dev: c_int,
                handle: Opaque,
                comm: *mut Opaque,
                device_side: *mut *mut ncclNetDeviceHandle_v7_t,
            ) -> ncclResult_t {
                call!(self, connect($($before,)* dev, $($config,)* handle, comm, device_side))
            }
            unsafe fn accept(
                &self,
                listen: Opaque,
                comm: *mut Opaque,
                device_side: *mut *mut ncclNetDeviceHandle_v7_t,
            ) -> ncclResult_t {
                call!(self, accept(listen, comm, device_side))
            }
            unsafe fn reg_mr(
                &self,
                comm: Opaque,
                data: Opaque,
                size: usize,
                kind: c_int,
                mhandle: *mut Opaque,
            ) -> ncclResult_t {
                call!(self, regMr(comm, data, size, kind, mhandle))
            }
            unsafe fn dereg_mr(&self, comm: Opaque, mhandle: Opaque) -> ncclResult_t {
                call!(self, deregMr(comm, mhandle))
            }
            unsafe fn isend(
                &self,
                comm: Opaque,
                data: Opaque,
                size: i64,
                tag: c_int,
                mhandle: Opaque,
                request: *mut Opaque,
            ) -> ncclResult_t {
                call!(self, isend(comm, data, size as $size, tag, mhandle, $($handle,)* request))
            }
            unsafe fn irecv(
                &self,
                comm: Opaque,
                n: c_int,
                data: *mut Opaque,
                sizes: Option<&[i64]>,
                tags: *mut c_int,
                mhandles: *mut Opaque,
                request: *mut Opaque,
            ) -> ncclResult_t {
                let mut own: Vec<$size> =
                    sizes.unwrap_or(&[]).iter().map(|size| *size as $size).collect();
                let sizes = if sizes.is_some() { own.as_mut_ptr() } else { null_mut() };
                call!(self, irecv(comm, n, data, sizes, tags, mhandles, $($handles,)* request))
            }
            unsafe fn iflush(
                &self,
                comm: Opaque,
                n: c_int,
                data: *mut Opaque,
                sizes: *mut c_int,
                mhandles: *mut Opaque,
                request: *mut Opaque,
            ) -> ncclResult_t {
                call!(self, iflush(comm, n, data, sizes, mhandles, request))
            }
            unsafe fn test(
                &self,
                request: Opaque,
                done: *mut c_int,
                sizes: *mut c_int,
            ) -> ncclResult_t {
                call!(self, test(request, done, sizes))
            }
            unsafe fn close_send(&self, comm: Opaque) -> ncclResult_t {
                call!(self, closeSend(comm))
            }
            unsafe fn close_recv(&self, comm: Opaque) -> ncclResult_t {
                call!(self, closeRecv(comm))
            }
            unsafe fn close_listen(&self, comm: Opaque) -> ncclResult_t {
                call!(self, closeListen(comm))
            }
            fn finalize(&self) -> Option<unsafe extern "C" fn(Opaque) -> ncclResult_t> {
                let $that = self;
                $finalize
            }
        }
    };
}

table!(ncclNet_v8_t, version 8, properties ncclNetProperties_v8_t, size c_int,
    init |this, _ctx, logger| call!(this, init(logger)),
    before [], config [], handle [], handles [], finalize |_this| None);
table!(ncclNet_v9_t, version 9, properties ncclNetProperties_v9_t, size usize,
    init |this, _ctx, logger| call!(this, init(logger)),
    before [], config [], handle [], handles [], finalize |_this| None);
table!(ncclNet_v10_t, version 10, properties ncclNetProperties_v10_t, size usize,
    init |this, _ctx, logger| call!(this, init(logger, None)),
    before [], config [null_mut()], handle [null_mut()], handles [null_mut()],
    finalize |_this| None);
table!(ncclNet_v11_t, version 11, properties ncclNetProperties_v11_t, size usize,
    init |this, ctx, logger| call!(this, init(ctx, 11, null_mut(), logger, None)),
    before [null_mut()], config [], handle [null_mut()], handles [null_mut()],
    finalize |this| this.finalize);
table!(ncclNet_v12_t, version 12, properties ncclNetProperties_v12_t, size usize,
    init |this, ctx, logger| call!(this, init(ctx, 12, null_mut(), logger, None)),
    before [null_mut()], config [], handle [null_mut()], handles [null_mut()],
    finalize |this| this.finalize);
