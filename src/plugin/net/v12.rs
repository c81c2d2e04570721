//! Version 12: a virtual device may have 8 members, which moves the properties behind `vProps`, and
//! a device has a rail and a plane.

use std::ffi::c_int;

use super::{neutral, v11};
use crate::runtime::nic::Properties;
use r2ccl_abi::{
    NCCL_NET_ID_UNDEF, ncclNet_v11_t, ncclNet_v12_t, ncclNetProperties_v12_t,
    ncclNetVDeviceProps_v12_t, ncclResult_t,
};

/// A slot whose signature did not change keeps its wrapper.
const OLDER: ncclNet_v11_t = v11::TABLE;

/// Slots of version 12.
pub const TABLE: ncclNet_v12_t = ncclNet_v12_t {
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
    isend: OLDER.isend,
    irecv: OLDER.irecv,
    iflush: OLDER.iflush,
    test: OLDER.test,
    closeSend: OLDER.closeSend,
    closeRecv: OLDER.closeRecv,
    closeListen: OLDER.closeListen,
    getDeviceMr: OLDER.getDeviceMr,
    irecvConsumed: OLDER.irecvConsumed,
    // Its argument changed; see version 9.
    makeVDevice: None,
    finalize: OLDER.finalize,
    setNetAttr: OLDER.setNetAttr,
};

unsafe extern "C" fn get_properties(
    dev: c_int,
    props: *mut ncclNetProperties_v12_t,
) -> ncclResult_t {
    // SAFETY: NCCL keeps the contract of `neutral`, here and below.
    unsafe { neutral::get_properties(dev, props, fill) }
}

fn fill(dev: c_int, device: &'static Properties) -> ncclNetProperties_v12_t {
    let base = v11::fill(dev, device);
    ncclNetProperties_v12_t {
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
        vProps: ncclNetVDeviceProps_v12_t {
            ndevs: 1,
            devs: [dev, 0, 0, 0, 0, 0, 0, 0],
        },
        maxP2pBytes: base.maxP2pBytes,
        maxCollBytes: base.maxCollBytes,
        maxMultiRequestSize: base.maxMultiRequestSize,
        // Known to the fabric's planner only, so far; NCCL takes -1 as "not known".
        railId: NCCL_NET_ID_UNDEF as i16,
        planeId: NCCL_NET_ID_UNDEF as i16,
    }
}
