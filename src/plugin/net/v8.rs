//! Version 8, the base: sizes of messages are `int`, no context, no configuration.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use super::neutral::{self, ByteCount, Opaque, OpaqueOut};
use crate::runtime::nic::Properties;
use r2ccl_abi::{
    NCCL_NET_DEVICE_HOST, NCCL_NET_DEVICE_INVALID_VERSION, ncclDebugLogger_t, ncclNet_v8_t,
    ncclNetProperties_v8_t, ncclResult_t,
};

/// Slots of version 8.
pub const TABLE: ncclNet_v8_t = ncclNet_v8_t {
    name: neutral::NAME.as_ptr(),
    init: Some(init),
    devices: Some(neutral::devices),
    getProperties: Some(get_properties),
    listen: Some(neutral::listen),
    connect: Some(neutral::connect),
    accept: Some(neutral::accept),
    regMr: Some(neutral::reg_mr),
    // No device takes DMA-BUF descriptors yet; NCCL uses regMr then.
    regMrDmaBuf: None,
    deregMr: Some(neutral::dereg_mr),
    isend: Some(isend),
    irecv: Some(irecv),
    iflush: Some(neutral::iflush),
    test: Some(neutral::test),
    closeSend: Some(neutral::close_send),
    closeRecv: Some(neutral::close_recv),
    closeListen: Some(neutral::close_listen),
    // Asked for only by transports with a device side.
    getDeviceMr: None,
    // If it were there, NCCL would call it for every receive and take an error as fatal.
    irecvConsumed: None,
};

unsafe extern "C" fn init(logger: ncclDebugLogger_t) -> ncclResult_t {
    // SAFETY: NCCL keeps the contract of `neutral`, here and below.
    unsafe { neutral::init(null_mut(), None, null(), logger) }
}

unsafe extern "C" fn get_properties(
    dev: c_int,
    props: *mut ncclNetProperties_v8_t,
) -> ncclResult_t {
    // SAFETY: see init.
    unsafe { neutral::get_properties(dev, props, fill) }
}

/// The fields that all versions have.
pub fn fill(_dev: c_int, device: &'static Properties) -> ncclNetProperties_v8_t {
    ncclNetProperties_v8_t {
        name: device.name.as_ptr().cast_mut(),
        pciPath: device
            .pci_path
            .map_or(null(), |path| path.as_ptr())
            .cast_mut(),
        guid: device.guid,
        ptrSupport: device.ptr_support,
        regIsGlobal: 0,
        speed: device.speed_mbps,
        port: device.port,
        latency: 0.0,
        maxComms: device.max_comms,
        maxRecvs: device.max_recvs,
        netDeviceType: NCCL_NET_DEVICE_HOST,
        netDeviceVersion: NCCL_NET_DEVICE_INVALID_VERSION,
    }
}

unsafe extern "C" fn isend(
    send_comm: Opaque,
    data: Opaque,
    size: c_int,
    tag: c_int,
    mhandle: Opaque,
    request: OpaqueOut,
) -> ncclResult_t {
    // SAFETY: see init.
    unsafe { neutral::isend(send_comm, data, size.bytes(), tag, mhandle, request) }
}

unsafe extern "C" fn irecv(
    recv_comm: Opaque,
    n: c_int,
    data: *mut Opaque,
    sizes: *mut c_int,
    tags: *mut c_int,
    mhandles: *mut Opaque,
    request: OpaqueOut,
) -> ncclResult_t {
    // SAFETY: see init.
    unsafe { neutral::irecv(recv_comm, n, data, sizes, tags, mhandles, request) }
}
