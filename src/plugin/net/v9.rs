//! Version 9: sizes of messages are `size_t`, properties tell of virtual devices and limits.

use std::ffi::c_int;

use super::neutral::{self, Opaque, OpaqueOut};
use super::v8;
use crate::runtime::nic::Properties;
use r2ccl_abi::{
    ncclNet_v8_t, ncclNet_v9_t, ncclNetProperties_v9_t, ncclNetVDeviceProps_v9_t, ncclResult_t,
};

/// A slot whose signature did not change keeps its wrapper.
const OLDER: ncclNet_v8_t = v8::TABLE;

/// Slots of version 9.
pub const TABLE: ncclNet_v9_t = ncclNet_v9_t {
    name: OLDER.name,
    init: OLDER.init,
    devices: OLDER.devices,
    getProperties: Some(get_properties),
    listen: OLDER.listen,
    connect: OLDER.connect,
    accept: OLDER.accept,
    regMr: OLDER.regMr,
    regMrDmaBuf: OLDER.regMrDmaBuf,
    deregMr: OLDER.deregMr,
    isend: Some(neutral::isend),
    irecv: Some(irecv),
    iflush: OLDER.iflush,
    test: OLDER.test,
    closeSend: OLDER.closeSend,
    closeRecv: OLDER.closeRecv,
    closeListen: OLDER.closeListen,
    getDeviceMr: OLDER.getDeviceMr,
    irecvConsumed: OLDER.irecvConsumed,
    // Each physical NIC is shown as it is: NCCL is not to fuse any.
    makeVDevice: None,
};

unsafe extern "C" fn get_properties(
    dev: c_int,
    props: *mut ncclNetProperties_v9_t,
) -> ncclResult_t {
    // SAFETY: NCCL keeps the contract of `neutral`, here and below.
    unsafe { neutral::get_properties(dev, props, fill) }
}

/// The fields of version 8 and those that came with 9.
pub fn fill(dev: c_int, device: &'static Properties) -> ncclNetProperties_v9_t {
    let base = v8::fill(dev, device);
    ncclNetProperties_v9_t {
        name: base.name,
        pciPath: base.pciPath,
        guid: base.guid,
        ptrSupport: base.ptrSupport,
        regIsGlobal: base.regIsGlobal,
        forceFlush: 0,
        speed: base.speed,
        port: base.port,
        latency: base.latency,
        maxComms: base.maxComms,
        maxRecvs: base.maxRecvs,
        netDeviceType: base.netDeviceType,
        netDeviceVersion: base.netDeviceVersion,
        // A physical device consists of itself.
        vProps: ncclNetVDeviceProps_v9_t {
            ndevs: 1,
            devs: [dev, 0, 0, 0],
        },
        maxP2pBytes: device.max_p2p_bytes,
        maxCollBytes: device.max_p2p_bytes,
    }
}

unsafe extern "C" fn irecv(
    recv_comm: Opaque,
    n: c_int,
    data: *mut Opaque,
    sizes: *mut usize,
    tags: *mut c_int,
    mhandles: *mut Opaque,
    request: OpaqueOut,
) -> ncclResult_t {
    // SAFETY: see get_properties.
    unsafe { neutral::irecv(recv_comm, n, data, sizes, tags, mhandles, request) }
}
