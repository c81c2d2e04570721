//! Version 11: a context for each communicator, which brings its configuration to init.
//!
//! There is nothing behind a context, and listen and connect do not look at it: NCCL 2.28.3 goes on
//! using one that was finalized already.

use std::ffi::c_int;

use super::neutral::{self, DeviceSideOut, Opaque, OpaqueOut};
use super::{v9, v10};
use crate::runtime::nic::Properties;
use r2ccl_abi::{
    ncclDebugLogger_t, ncclNet_v10_t, ncclNet_v11_t, ncclNetCommConfig_v11_t,
    ncclNetProperties_v11_t, ncclProfilerCallback_t, ncclResult_t,
};

/// A slot whose signature did not change keeps its wrapper.
const OLDER: ncclNet_v10_t = v10::TABLE;

/// Slots of version 11.
pub const TABLE: ncclNet_v11_t = ncclNet_v11_t {
    name: OLDER.name,
    init: Some(init),
    devices: OLDER.devices,
    getProperties: Some(get_properties),
    listen: Some(listen),
    connect: Some(connect),
    accept: OLDER.accept,
    regMr: OLDER.regMr,
    regMrDmaBuf: OLDER.regMrDmaBuf,
    deregMr: OLDER.deregMr,
    isend: OLDER.isend,
    irecv: OLDER.irecv,
    iflush: OLDER.iflush,
    test: OLDER.test,
    closeSend: OLDER.closeSend,
    closeRecv: OLDER.closeRecv,
    closeListen: OLDER.closeListen,
    getDeviceMr: OLDER.getDeviceMr,
    irecvConsumed: OLDER.irecvConsumed,
    makeVDevice: OLDER.makeVDevice,
    // Called unconditionally, so never NULL.
    finalize: Some(neutral::finalize),
    // Hints that nothing here would use.
    setNetAttr: None,
};

unsafe extern "C" fn get_properties(
    dev: c_int,
    props: *mut ncclNetProperties_v11_t,
) -> ncclResult_t {
    // SAFETY: NCCL keeps the contract of `neutral`, here and below.
    unsafe { neutral::get_properties(dev, props, fill) }
}

/// The fields of version 9 and the one that came with 11.
pub fn fill(dev: c_int, device: &'static Properties) -> ncclNetProperties_v11_t {
    let base = v9::fill(dev, device);
    ncclNetProperties_v11_t {
        name: base.name,
        pciPath: base.pciPath,
        guid: base.guid,
        ptrSupport: base.ptrSupport,
        regIsGlobal: base.regIsGlobal,
        forceFlush: base.forceFlush,
        speed: base.speed,
        port: base.port,
        latency: base.latency,
        maxComms: base.maxComms,
        maxRecvs: base.maxRecvs,
        netDeviceType: base.netDeviceType,
        netDeviceVersion: base.netDeviceVersion,
        vProps: base.vProps,
        maxP2pBytes: base.maxP2pBytes,
        maxCollBytes: base.maxCollBytes,
        maxMultiRequestSize: 1,
    }
}

unsafe extern "C" fn init(
    ctx: OpaqueOut,
    comm_id: u64,
    config: *mut ncclNetCommConfig_v11_t,
    logger: ncclDebugLogger_t,
    _profiler: ncclProfilerCallback_t,
) -> ncclResult_t {
    // SAFETY: see get_properties.
    unsafe { neutral::init(ctx, Some(comm_id), config, logger) }
}

unsafe extern "C" fn listen(
    _ctx: Opaque,
    dev: c_int,
    handle: Opaque,
    listen_comm: OpaqueOut,
) -> ncclResult_t {
    // SAFETY: see get_properties.
    unsafe { neutral::listen(dev, handle, listen_comm) }
}

unsafe extern "C" fn connect(
    _ctx: Opaque,
    dev: c_int,
    handle: Opaque,
    send_comm: OpaqueOut,
    send_dev_comm: DeviceSideOut,
) -> ncclResult_t {
    // SAFETY: see get_properties.
    unsafe { neutral::connect(dev, handle, send_comm, send_dev_comm) }
}
