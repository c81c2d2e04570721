//! Version 10: a profiler callback in init, profiler handles with messages, a configuration in
//! connect.
//!
//! The profiler's callback and handles are not used (the handles may be NULL, and starting an event
//! with a NULL parent crashes). The configuration, which may be NULL too, holds a traffic class.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use super::neutral::{self, DeviceSideOut, Opaque, OpaqueOut};
use super::v9;
use r2ccl_abi::{
    ncclDebugLogger_t, ncclNet_v9_t, ncclNet_v10_t, ncclNetCommConfig_v10_t,
    ncclProfilerCallback_t, ncclResult_t,
};

/// A slot whose signature did not change keeps its wrapper.
const OLDER: ncclNet_v9_t = v9::TABLE;

/// Slots of version 10.
pub const TABLE: ncclNet_v10_t = ncclNet_v10_t {
    name: OLDER.name,
    init: Some(init),
    devices: OLDER.devices,
    getProperties: OLDER.getProperties,
    listen: OLDER.listen,
    connect: Some(connect),
    accept: OLDER.accept,
    regMr: OLDER.regMr,
    regMrDmaBuf: OLDER.regMrDmaBuf,
    deregMr: OLDER.deregMr,
    isend: Some(isend),
    irecv: Some(irecv),
    iflush: OLDER.iflush,
    test: OLDER.test,
    closeSend: OLDER.closeSend,
    closeRecv: OLDER.closeRecv,
    closeListen: OLDER.closeListen,
    getDeviceMr: OLDER.getDeviceMr,
    irecvConsumed: OLDER.irecvConsumed,
    makeVDevice: OLDER.makeVDevice,
};

unsafe extern "C" fn init(
    logger: ncclDebugLogger_t,
    _profiler: ncclProfilerCallback_t,
) -> ncclResult_t {
    // SAFETY: NCCL keeps the contract of `neutral`, here and below.
    unsafe { neutral::init(null_mut(), None, null(), logger) }
}

unsafe extern "C" fn connect(
    dev: c_int,
    _config: *mut ncclNetCommConfig_v10_t,
    handle: Opaque,
    send_comm: OpaqueOut,
    send_dev_comm: DeviceSideOut,
) -> ncclResult_t {
    // SAFETY: see init.
    unsafe { neutral::connect(dev, handle, send_comm, send_dev_comm) }
}

unsafe extern "C" fn isend(
    send_comm: Opaque,
    data: Opaque,
    size: usize,
    tag: c_int,
    mhandle: Opaque,
    _phandle: Opaque,
    request: OpaqueOut,
) -> ncclResult_t {
    // SAFETY: see init.
    unsafe { neutral::isend(send_comm, data, size, tag, mhandle, request) }
}

unsafe extern "C" fn irecv(
    recv_comm: Opaque,
    n: c_int,
    data: *mut Opaque,
    sizes: *mut usize,
    tags: *mut c_int,
    mhandles: *mut Opaque,
    _phandles: *mut Opaque,
    request: OpaqueOut,
) -> ncclResult_t {
    // SAFETY: see init.
    unsafe { neutral::irecv(recv_comm, n, data, sizes, tags, mhandles, request) }
}
