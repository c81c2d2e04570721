// Made by scripts/regen-bindings.sh from nccl-headers; do not edit.

pub const NCCL_INIT: ::core::ffi::c_ulong = 1;
pub const NCCL_NET: ::core::ffi::c_ulong = 16;
pub const NCCL_GRAPH: ::core::ffi::c_ulong = 32;
pub const NCCL_TUNING: ::core::ffi::c_ulong = 64;
pub const NCCL_ENV: ::core::ffi::c_ulong = 128;
pub const NCCL_PROXY: ::core::ffi::c_ulong = 1024;
pub const NCCL_BOOTSTRAP: ::core::ffi::c_ulong = 4096;
pub const NCCL_REG: ::core::ffi::c_ulong = 8192;
pub const NCCL_NET_HANDLE_MAXSIZE: i32 = 128;
pub const NCCL_NET_MAX_REQUESTS: i32 = 32;
pub const NCCL_PTR_HOST: i32 = 1;
pub const NCCL_PTR_CUDA: i32 = 2;
pub const NCCL_PTR_DMABUF: i32 = 4;
pub const NCCL_NET_OPTIONAL_RECV_COMPLETION: i32 = 1;
pub const NCCL_MAX_NET_SIZE_BYTES: u64 = 1099511627776;
pub const MAX_NET_SIZE: u64 = 1073741824;
pub const NCCL_NET_TRAFFIC_CLASS_UNDEF: i32 = -1;
pub const NCCL_NET_ID_UNDEF: i32 = -1;
pub const NCCL_NET_ATTR_UNDEF: i32 = -1;
pub const NCCL_NET_DEVICE_INVALID_VERSION: i32 = 0;
pub const NCCL_NET_MAX_DEVS_PER_NIC_V9: i32 = 4;
pub const NCCL_NET_MAX_DEVS_PER_NIC_V12: i32 = 8;
pub const ncclSuccess: ncclResult_t = 0;
pub const ncclUnhandledCudaError: ncclResult_t = 1;
pub const ncclSystemError: ncclResult_t = 2;
pub const ncclInternalError: ncclResult_t = 3;
pub const ncclInvalidArgument: ncclResult_t = 4;
pub const ncclInvalidUsage: ncclResult_t = 5;
pub const ncclRemoteError: ncclResult_t = 6;
pub const ncclInProgress: ncclResult_t = 7;
#[doc = " What every call of a plugin returns. Anything but success from the data path ends the\n  communicator; ncclInProgress must never come from a plugin. Values from 8 on mean different\n  things in different releases and are left out."]
pub type ncclResult_t = ::core::ffi::c_uint;
pub const NCCL_LOG_NONE: ncclDebugLogLevel = 0;
pub const NCCL_LOG_VERSION: ncclDebugLogLevel = 1;
pub const NCCL_LOG_WARN: ncclDebugLogLevel = 2;
pub const NCCL_LOG_INFO: ncclDebugLogLevel = 3;
pub const NCCL_LOG_ABORT: ncclDebugLogLevel = 4;
pub const NCCL_LOG_TRACE: ncclDebugLogLevel = 5;
#[doc = " Severity of a log line."]
pub type ncclDebugLogLevel = ::core::ffi::c_uint;
#[doc = " NCCL's log function (printf format). `file` is printed as the name of a function. Filters by\n  level and subsystem itself, may be called from any thread, keeps about 1 KiB of a line."]
pub type ncclDebugLogger_t = ::core::option::Option<
    unsafe extern "C" fn(
        level: ncclDebugLogLevel,
        flags: ::core::ffi::c_ulong,
        file: *const ::core::ffi::c_char,
        line: ::core::ffi::c_int,
        format: *const ::core::ffi::c_char,
        ...
    ),
>;
#[doc = " NCCL's profiler callback, from version 10 on. Starting an event with a NULL parent crashes."]
pub type ncclProfilerCallback_t = ::core::option::Option<
    unsafe extern "C" fn(
        event: *mut *mut ::core::ffi::c_void,
        type_: ::core::ffi::c_int,
        parent: *mut ::core::ffi::c_void,
        plugin_id: i64,
        data: *mut ::core::ffi::c_void,
    ) -> ncclResult_t,
>;
pub const NCCL_NET_DEVICE_HOST: ncclNetDeviceType = 0;
pub const NCCL_NET_DEVICE_UNPACK: ncclNetDeviceType = 1;
pub const NCCL_NET_DEVICE_GIN_PROXY: ncclNetDeviceType = 2;
pub const NCCL_NET_DEVICE_GIN_GDAKI: ncclNetDeviceType = 3;
pub const NCCL_NET_DEVICE_GIN_GPI: ncclNetDeviceType = 4;
#[doc = " Who drives the transport: the CPU, or a kind of GPU code that needs a device handle."]
pub type ncclNetDeviceType = ::core::ffi::c_uint;
#[doc = " Device side of a communicator; unchanged since version 7."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNetDeviceHandle_v7_t {
    pub netDeviceType: ncclNetDeviceType,
    pub netDeviceVersion: ::core::ffi::c_int,
    pub handle: *mut ::core::ffi::c_void,
    pub size: usize,
    pub needsProxyProgress: ::core::ffi::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNetDeviceHandle_v7_t"]
        [::core::mem::size_of::<ncclNetDeviceHandle_v7_t>() - 32usize];
    ["Alignment of ncclNetDeviceHandle_v7_t"]
        [::core::mem::align_of::<ncclNetDeviceHandle_v7_t>() - 8usize];
    ["Offset of field: ncclNetDeviceHandle_v7_t::netDeviceType"]
        [::core::mem::offset_of!(ncclNetDeviceHandle_v7_t, netDeviceType) - 0usize];
    ["Offset of field: ncclNetDeviceHandle_v7_t::netDeviceVersion"]
        [::core::mem::offset_of!(ncclNetDeviceHandle_v7_t, netDeviceVersion) - 4usize];
    ["Offset of field: ncclNetDeviceHandle_v7_t::handle"]
        [::core::mem::offset_of!(ncclNetDeviceHandle_v7_t, handle) - 8usize];
    ["Offset of field: ncclNetDeviceHandle_v7_t::size"]
        [::core::mem::offset_of!(ncclNetDeviceHandle_v7_t, size) - 16usize];
    ["Offset of field: ncclNetDeviceHandle_v7_t::needsProxyProgress"]
        [::core::mem::offset_of!(ncclNetDeviceHandle_v7_t, needsProxyProgress) - 24usize];
};
#[doc = " Device side of a communicator; unchanged since version 7."]
pub type ncclNetDeviceHandle_v8_t = ncclNetDeviceHandle_v7_t;
#[doc = " What NCCL asks about a device; every field is uninitialised memory until the plugin writes it."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNetProperties_v8_t {
    pub name: *mut ::core::ffi::c_char,
    pub pciPath: *mut ::core::ffi::c_char,
    pub guid: u64,
    pub ptrSupport: ::core::ffi::c_int,
    pub regIsGlobal: ::core::ffi::c_int,
    pub speed: ::core::ffi::c_int,
    pub port: ::core::ffi::c_int,
    pub latency: f32,
    pub maxComms: ::core::ffi::c_int,
    pub maxRecvs: ::core::ffi::c_int,
    pub netDeviceType: ncclNetDeviceType,
    pub netDeviceVersion: ::core::ffi::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNetProperties_v8_t"][::core::mem::size_of::<ncclNetProperties_v8_t>() - 64usize];
    ["Alignment of ncclNetProperties_v8_t"]
        [::core::mem::align_of::<ncclNetProperties_v8_t>() - 8usize];
    ["Offset of field: ncclNetProperties_v8_t::name"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, name) - 0usize];
    ["Offset of field: ncclNetProperties_v8_t::pciPath"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, pciPath) - 8usize];
    ["Offset of field: ncclNetProperties_v8_t::guid"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, guid) - 16usize];
    ["Offset of field: ncclNetProperties_v8_t::ptrSupport"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, ptrSupport) - 24usize];
    ["Offset of field: ncclNetProperties_v8_t::regIsGlobal"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, regIsGlobal) - 28usize];
    ["Offset of field: ncclNetProperties_v8_t::speed"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, speed) - 32usize];
    ["Offset of field: ncclNetProperties_v8_t::port"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, port) - 36usize];
    ["Offset of field: ncclNetProperties_v8_t::latency"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, latency) - 40usize];
    ["Offset of field: ncclNetProperties_v8_t::maxComms"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, maxComms) - 44usize];
    ["Offset of field: ncclNetProperties_v8_t::maxRecvs"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, maxRecvs) - 48usize];
    ["Offset of field: ncclNetProperties_v8_t::netDeviceType"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, netDeviceType) - 52usize];
    ["Offset of field: ncclNetProperties_v8_t::netDeviceVersion"]
        [::core::mem::offset_of!(ncclNetProperties_v8_t, netDeviceVersion) - 56usize];
};
#[doc = " The table that NCCL looks up as ncclNetPlugin_v8 and never writes to."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNet_v8_t {
    pub name: *const ::core::ffi::c_char,
    pub init:
        ::core::option::Option<unsafe extern "C" fn(logger: ncclDebugLogger_t) -> ncclResult_t>,
    pub devices:
        ::core::option::Option<unsafe extern "C" fn(ndev: *mut ::core::ffi::c_int) -> ncclResult_t>,
    pub getProperties: ::core::option::Option<
        unsafe extern "C" fn(
            dev: ::core::ffi::c_int,
            props: *mut ncclNetProperties_v8_t,
        ) -> ncclResult_t,
    >,
    pub listen: ::core::option::Option<
        unsafe extern "C" fn(
            dev: ::core::ffi::c_int,
            handle: *mut ::core::ffi::c_void,
            listenComm: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub connect: ::core::option::Option<
        unsafe extern "C" fn(
            dev: ::core::ffi::c_int,
            handle: *mut ::core::ffi::c_void,
            sendComm: *mut *mut ::core::ffi::c_void,
            sendDevComm: *mut *mut ncclNetDeviceHandle_v8_t,
        ) -> ncclResult_t,
    >,
    pub accept: ::core::option::Option<
        unsafe extern "C" fn(
            listenComm: *mut ::core::ffi::c_void,
            recvComm: *mut *mut ::core::ffi::c_void,
            recvDevComm: *mut *mut ncclNetDeviceHandle_v8_t,
        ) -> ncclResult_t,
    >,
    pub regMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            type_: ::core::ffi::c_int,
            mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub regMrDmaBuf: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            type_: ::core::ffi::c_int,
            offset: u64,
            fd: ::core::ffi::c_int,
            mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub deregMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            mhandle: *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub isend: ::core::option::Option<
        unsafe extern "C" fn(
            sendComm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: ::core::ffi::c_int,
            tag: ::core::ffi::c_int,
            mhandle: *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub irecv: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            data: *mut *mut ::core::ffi::c_void,
            sizes: *mut ::core::ffi::c_int,
            tags: *mut ::core::ffi::c_int,
            mhandles: *mut *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub iflush: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            data: *mut *mut ::core::ffi::c_void,
            sizes: *mut ::core::ffi::c_int,
            mhandles: *mut *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub test: ::core::option::Option<
        unsafe extern "C" fn(
            request: *mut ::core::ffi::c_void,
            done: *mut ::core::ffi::c_int,
            sizes: *mut ::core::ffi::c_int,
        ) -> ncclResult_t,
    >,
    pub closeSend: ::core::option::Option<
        unsafe extern "C" fn(sendComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub closeRecv: ::core::option::Option<
        unsafe extern "C" fn(recvComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub closeListen: ::core::option::Option<
        unsafe extern "C" fn(listenComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub getDeviceMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            mhandle: *mut ::core::ffi::c_void,
            device_mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub irecvConsumed: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            request: *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNet_v8_t"][::core::mem::size_of::<ncclNet_v8_t>() - 152usize];
    ["Alignment of ncclNet_v8_t"][::core::mem::align_of::<ncclNet_v8_t>() - 8usize];
    ["Offset of field: ncclNet_v8_t::name"][::core::mem::offset_of!(ncclNet_v8_t, name) - 0usize];
    ["Offset of field: ncclNet_v8_t::init"][::core::mem::offset_of!(ncclNet_v8_t, init) - 8usize];
    ["Offset of field: ncclNet_v8_t::devices"]
        [::core::mem::offset_of!(ncclNet_v8_t, devices) - 16usize];
    ["Offset of field: ncclNet_v8_t::getProperties"]
        [::core::mem::offset_of!(ncclNet_v8_t, getProperties) - 24usize];
    ["Offset of field: ncclNet_v8_t::listen"]
        [::core::mem::offset_of!(ncclNet_v8_t, listen) - 32usize];
    ["Offset of field: ncclNet_v8_t::connect"]
        [::core::mem::offset_of!(ncclNet_v8_t, connect) - 40usize];
    ["Offset of field: ncclNet_v8_t::accept"]
        [::core::mem::offset_of!(ncclNet_v8_t, accept) - 48usize];
    ["Offset of field: ncclNet_v8_t::regMr"]
        [::core::mem::offset_of!(ncclNet_v8_t, regMr) - 56usize];
    ["Offset of field: ncclNet_v8_t::regMrDmaBuf"]
        [::core::mem::offset_of!(ncclNet_v8_t, regMrDmaBuf) - 64usize];
    ["Offset of field: ncclNet_v8_t::deregMr"]
        [::core::mem::offset_of!(ncclNet_v8_t, deregMr) - 72usize];
    ["Offset of field: ncclNet_v8_t::isend"]
        [::core::mem::offset_of!(ncclNet_v8_t, isend) - 80usize];
    ["Offset of field: ncclNet_v8_t::irecv"]
        [::core::mem::offset_of!(ncclNet_v8_t, irecv) - 88usize];
    ["Offset of field: ncclNet_v8_t::iflush"]
        [::core::mem::offset_of!(ncclNet_v8_t, iflush) - 96usize];
    ["Offset of field: ncclNet_v8_t::test"][::core::mem::offset_of!(ncclNet_v8_t, test) - 104usize];
    ["Offset of field: ncclNet_v8_t::closeSend"]
        [::core::mem::offset_of!(ncclNet_v8_t, closeSend) - 112usize];
    ["Offset of field: ncclNet_v8_t::closeRecv"]
        [::core::mem::offset_of!(ncclNet_v8_t, closeRecv) - 120usize];
    ["Offset of field: ncclNet_v8_t::closeListen"]
        [::core::mem::offset_of!(ncclNet_v8_t, closeListen) - 128usize];
    ["Offset of field: ncclNet_v8_t::getDeviceMr"]
        [::core::mem::offset_of!(ncclNet_v8_t, getDeviceMr) - 136usize];
    ["Offset of field: ncclNet_v8_t::irecvConsumed"]
        [::core::mem::offset_of!(ncclNet_v8_t, irecvConsumed) - 144usize];
};
#[doc = " Device side of a communicator; unchanged since version 7."]
pub type ncclNetDeviceHandle_v9_t = ncclNetDeviceHandle_v7_t;
#[doc = " The devices that one (perhaps virtual) device stands for."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNetVDeviceProps_v9_t {
    pub ndevs: ::core::ffi::c_int,
    pub devs: [::core::ffi::c_int; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNetVDeviceProps_v9_t"]
        [::core::mem::size_of::<ncclNetVDeviceProps_v9_t>() - 20usize];
    ["Alignment of ncclNetVDeviceProps_v9_t"]
        [::core::mem::align_of::<ncclNetVDeviceProps_v9_t>() - 4usize];
    ["Offset of field: ncclNetVDeviceProps_v9_t::ndevs"]
        [::core::mem::offset_of!(ncclNetVDeviceProps_v9_t, ndevs) - 0usize];
    ["Offset of field: ncclNetVDeviceProps_v9_t::devs"]
        [::core::mem::offset_of!(ncclNetVDeviceProps_v9_t, devs) - 4usize];
};
#[doc = " What NCCL asks about a device; every field is uninitialised memory until the plugin writes it."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNetProperties_v9_t {
    pub name: *mut ::core::ffi::c_char,
    pub pciPath: *mut ::core::ffi::c_char,
    pub guid: u64,
    pub ptrSupport: ::core::ffi::c_int,
    pub regIsGlobal: ::core::ffi::c_int,
    pub forceFlush: ::core::ffi::c_int,
    pub speed: ::core::ffi::c_int,
    pub port: ::core::ffi::c_int,
    pub latency: f32,
    pub maxComms: ::core::ffi::c_int,
    pub maxRecvs: ::core::ffi::c_int,
    pub netDeviceType: ncclNetDeviceType,
    pub netDeviceVersion: ::core::ffi::c_int,
    pub vProps: ncclNetVDeviceProps_v9_t,
    pub maxP2pBytes: usize,
    pub maxCollBytes: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNetProperties_v9_t"][::core::mem::size_of::<ncclNetProperties_v9_t>() - 104usize];
    ["Alignment of ncclNetProperties_v9_t"]
        [::core::mem::align_of::<ncclNetProperties_v9_t>() - 8usize];
    ["Offset of field: ncclNetProperties_v9_t::name"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, name) - 0usize];
    ["Offset of field: ncclNetProperties_v9_t::pciPath"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, pciPath) - 8usize];
    ["Offset of field: ncclNetProperties_v9_t::guid"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, guid) - 16usize];
    ["Offset of field: ncclNetProperties_v9_t::ptrSupport"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, ptrSupport) - 24usize];
    ["Offset of field: ncclNetProperties_v9_t::regIsGlobal"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, regIsGlobal) - 28usize];
    ["Offset of field: ncclNetProperties_v9_t::forceFlush"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, forceFlush) - 32usize];
    ["Offset of field: ncclNetProperties_v9_t::speed"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, speed) - 36usize];
    ["Offset of field: ncclNetProperties_v9_t::port"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, port) - 40usize];
    ["Offset of field: ncclNetProperties_v9_t::latency"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, latency) - 44usize];
    ["Offset of field: ncclNetProperties_v9_t::maxComms"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, maxComms) - 48usize];
    ["Offset of field: ncclNetProperties_v9_t::maxRecvs"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, maxRecvs) - 52usize];
    ["Offset of field: ncclNetProperties_v9_t::netDeviceType"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, netDeviceType) - 56usize];
    ["Offset of field: ncclNetProperties_v9_t::netDeviceVersion"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, netDeviceVersion) - 60usize];
    ["Offset of field: ncclNetProperties_v9_t::vProps"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, vProps) - 64usize];
    ["Offset of field: ncclNetProperties_v9_t::maxP2pBytes"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, maxP2pBytes) - 88usize];
    ["Offset of field: ncclNetProperties_v9_t::maxCollBytes"]
        [::core::mem::offset_of!(ncclNetProperties_v9_t, maxCollBytes) - 96usize];
};
#[doc = " The table that NCCL looks up as ncclNetPlugin_v9 and never writes to."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNet_v9_t {
    pub name: *const ::core::ffi::c_char,
    pub init:
        ::core::option::Option<unsafe extern "C" fn(logger: ncclDebugLogger_t) -> ncclResult_t>,
    pub devices:
        ::core::option::Option<unsafe extern "C" fn(ndev: *mut ::core::ffi::c_int) -> ncclResult_t>,
    pub getProperties: ::core::option::Option<
        unsafe extern "C" fn(
            dev: ::core::ffi::c_int,
            props: *mut ncclNetProperties_v9_t,
        ) -> ncclResult_t,
    >,
    pub listen: ::core::option::Option<
        unsafe extern "C" fn(
            dev: ::core::ffi::c_int,
            handle: *mut ::core::ffi::c_void,
            listenComm: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub connect: ::core::option::Option<
        unsafe extern "C" fn(
            dev: ::core::ffi::c_int,
            handle: *mut ::core::ffi::c_void,
            sendComm: *mut *mut ::core::ffi::c_void,
            sendDevComm: *mut *mut ncclNetDeviceHandle_v9_t,
        ) -> ncclResult_t,
    >,
    pub accept: ::core::option::Option<
        unsafe extern "C" fn(
            listenComm: *mut ::core::ffi::c_void,
            recvComm: *mut *mut ::core::ffi::c_void,
            recvDevComm: *mut *mut ncclNetDeviceHandle_v9_t,
        ) -> ncclResult_t,
    >,
    pub regMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            type_: ::core::ffi::c_int,
            mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub regMrDmaBuf: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            type_: ::core::ffi::c_int,
            offset: u64,
            fd: ::core::ffi::c_int,
            mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub deregMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            mhandle: *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub isend: ::core::option::Option<
        unsafe extern "C" fn(
            sendComm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            tag: ::core::ffi::c_int,
            mhandle: *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub irecv: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            data: *mut *mut ::core::ffi::c_void,
            sizes: *mut usize,
            tags: *mut ::core::ffi::c_int,
            mhandles: *mut *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub iflush: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            data: *mut *mut ::core::ffi::c_void,
            sizes: *mut ::core::ffi::c_int,
            mhandles: *mut *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub test: ::core::option::Option<
        unsafe extern "C" fn(
            request: *mut ::core::ffi::c_void,
            done: *mut ::core::ffi::c_int,
            sizes: *mut ::core::ffi::c_int,
        ) -> ncclResult_t,
    >,
    pub closeSend: ::core::option::Option<
        unsafe extern "C" fn(sendComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub closeRecv: ::core::option::Option<
        unsafe extern "C" fn(recvComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub closeListen: ::core::option::Option<
        unsafe extern "C" fn(listenComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub getDeviceMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            mhandle: *mut ::core::ffi::c_void,
            device_mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub irecvConsumed: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            request: *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub makeVDevice: ::core::option::Option<
        unsafe extern "C" fn(
            dev: *mut ::core::ffi::c_int,
            props: *mut ncclNetVDeviceProps_v9_t,
        ) -> ncclResult_t,
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNet_v9_t"][::core::mem::size_of::<ncclNet_v9_t>() - 160usize];
    ["Alignment of ncclNet_v9_t"][::core::mem::align_of::<ncclNet_v9_t>() - 8usize];
    ["Offset of field: ncclNet_v9_t::name"][::core::mem::offset_of!(ncclNet_v9_t, name) - 0usize];
    ["Offset of field: ncclNet_v9_t::init"][::core::mem::offset_of!(ncclNet_v9_t, init) - 8usize];
    ["Offset of field: ncclNet_v9_t::devices"]
        [::core::mem::offset_of!(ncclNet_v9_t, devices) - 16usize];
    ["Offset of field: ncclNet_v9_t::getProperties"]
        [::core::mem::offset_of!(ncclNet_v9_t, getProperties) - 24usize];
    ["Offset of field: ncclNet_v9_t::listen"]
        [::core::mem::offset_of!(ncclNet_v9_t, listen) - 32usize];
    ["Offset of field: ncclNet_v9_t::connect"]
        [::core::mem::offset_of!(ncclNet_v9_t, connect) - 40usize];
    ["Offset of field: ncclNet_v9_t::accept"]
        [::core::mem::offset_of!(ncclNet_v9_t, accept) - 48usize];
    ["Offset of field: ncclNet_v9_t::regMr"]
        [::core::mem::offset_of!(ncclNet_v9_t, regMr) - 56usize];
    ["Offset of field: ncclNet_v9_t::regMrDmaBuf"]
        [::core::mem::offset_of!(ncclNet_v9_t, regMrDmaBuf) - 64usize];
    ["Offset of field: ncclNet_v9_t::deregMr"]
        [::core::mem::offset_of!(ncclNet_v9_t, deregMr) - 72usize];
    ["Offset of field: ncclNet_v9_t::isend"]
        [::core::mem::offset_of!(ncclNet_v9_t, isend) - 80usize];
    ["Offset of field: ncclNet_v9_t::irecv"]
        [::core::mem::offset_of!(ncclNet_v9_t, irecv) - 88usize];
    ["Offset of field: ncclNet_v9_t::iflush"]
        [::core::mem::offset_of!(ncclNet_v9_t, iflush) - 96usize];
    ["Offset of field: ncclNet_v9_t::test"][::core::mem::offset_of!(ncclNet_v9_t, test) - 104usize];
    ["Offset of field: ncclNet_v9_t::closeSend"]
        [::core::mem::offset_of!(ncclNet_v9_t, closeSend) - 112usize];
    ["Offset of field: ncclNet_v9_t::closeRecv"]
        [::core::mem::offset_of!(ncclNet_v9_t, closeRecv) - 120usize];
    ["Offset of field: ncclNet_v9_t::closeListen"]
        [::core::mem::offset_of!(ncclNet_v9_t, closeListen) - 128usize];
    ["Offset of field: ncclNet_v9_t::getDeviceMr"]
        [::core::mem::offset_of!(ncclNet_v9_t, getDeviceMr) - 136usize];
    ["Offset of field: ncclNet_v9_t::irecvConsumed"]
        [::core::mem::offset_of!(ncclNet_v9_t, irecvConsumed) - 144usize];
    ["Offset of field: ncclNet_v9_t::makeVDevice"]
        [::core::mem::offset_of!(ncclNet_v9_t, makeVDevice) - 152usize];
};
#[doc = " Device side of a communicator; unchanged since version 7."]
pub type ncclNetDeviceHandle_v10_t = ncclNetDeviceHandle_v7_t;
#[doc = " The devices that one (perhaps virtual) device stands for."]
pub type ncclNetVDeviceProps_v10_t = ncclNetVDeviceProps_v9_t;
#[doc = " What NCCL asks about a device; every field is uninitialised memory until the plugin writes it."]
pub type ncclNetProperties_v10_t = ncclNetProperties_v9_t;
#[doc = " Configuration of a communicator, an argument of connect (the pointer may be NULL)\n  and from version 11 on of init (the pointer leads to NCCL's stack)."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNetCommConfig_v10_t {
    pub trafficClass: ::core::ffi::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNetCommConfig_v10_t"][::core::mem::size_of::<ncclNetCommConfig_v10_t>() - 4usize];
    ["Alignment of ncclNetCommConfig_v10_t"]
        [::core::mem::align_of::<ncclNetCommConfig_v10_t>() - 4usize];
    ["Offset of field: ncclNetCommConfig_v10_t::trafficClass"]
        [::core::mem::offset_of!(ncclNetCommConfig_v10_t, trafficClass) - 0usize];
};
#[doc = " The table that NCCL looks up as ncclNetPlugin_v10 and never writes to."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNet_v10_t {
    pub name: *const ::core::ffi::c_char,
    pub init: ::core::option::Option<
        unsafe extern "C" fn(
            logger: ncclDebugLogger_t,
            profiler: ncclProfilerCallback_t,
        ) -> ncclResult_t,
    >,
    pub devices:
        ::core::option::Option<unsafe extern "C" fn(ndev: *mut ::core::ffi::c_int) -> ncclResult_t>,
    pub getProperties: ::core::option::Option<
        unsafe extern "C" fn(
            dev: ::core::ffi::c_int,
            props: *mut ncclNetProperties_v10_t,
        ) -> ncclResult_t,
    >,
    pub listen: ::core::option::Option<
        unsafe extern "C" fn(
            dev: ::core::ffi::c_int,
            handle: *mut ::core::ffi::c_void,
            listenComm: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub connect: ::core::option::Option<
        unsafe extern "C" fn(
            dev: ::core::ffi::c_int,
            config: *mut ncclNetCommConfig_v10_t,
            handle: *mut ::core::ffi::c_void,
            sendComm: *mut *mut ::core::ffi::c_void,
            sendDevComm: *mut *mut ncclNetDeviceHandle_v10_t,
        ) -> ncclResult_t,
    >,
    pub accept: ::core::option::Option<
        unsafe extern "C" fn(
            listenComm: *mut ::core::ffi::c_void,
            recvComm: *mut *mut ::core::ffi::c_void,
            recvDevComm: *mut *mut ncclNetDeviceHandle_v10_t,
        ) -> ncclResult_t,
    >,
    pub regMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            type_: ::core::ffi::c_int,
            mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub regMrDmaBuf: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            type_: ::core::ffi::c_int,
            offset: u64,
            fd: ::core::ffi::c_int,
            mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub deregMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            mhandle: *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub isend: ::core::option::Option<
        unsafe extern "C" fn(
            sendComm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            tag: ::core::ffi::c_int,
            mhandle: *mut ::core::ffi::c_void,
            phandle: *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub irecv: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            data: *mut *mut ::core::ffi::c_void,
            sizes: *mut usize,
            tags: *mut ::core::ffi::c_int,
            mhandles: *mut *mut ::core::ffi::c_void,
            phandles: *mut *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub iflush: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            data: *mut *mut ::core::ffi::c_void,
            sizes: *mut ::core::ffi::c_int,
            mhandles: *mut *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub test: ::core::option::Option<
        unsafe extern "C" fn(
            request: *mut ::core::ffi::c_void,
            done: *mut ::core::ffi::c_int,
            sizes: *mut ::core::ffi::c_int,
        ) -> ncclResult_t,
    >,
    pub closeSend: ::core::option::Option<
        unsafe extern "C" fn(sendComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub closeRecv: ::core::option::Option<
        unsafe extern "C" fn(recvComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub closeListen: ::core::option::Option<
        unsafe extern "C" fn(listenComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub getDeviceMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            mhandle: *mut ::core::ffi::c_void,
            device_mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub irecvConsumed: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            request: *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub makeVDevice: ::core::option::Option<
        unsafe extern "C" fn(
            dev: *mut ::core::ffi::c_int,
            props: *mut ncclNetVDeviceProps_v10_t,
        ) -> ncclResult_t,
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNet_v10_t"][::core::mem::size_of::<ncclNet_v10_t>() - 160usize];
    ["Alignment of ncclNet_v10_t"][::core::mem::align_of::<ncclNet_v10_t>() - 8usize];
    ["Offset of field: ncclNet_v10_t::name"][::core::mem::offset_of!(ncclNet_v10_t, name) - 0usize];
    ["Offset of field: ncclNet_v10_t::init"][::core::mem::offset_of!(ncclNet_v10_t, init) - 8usize];
    ["Offset of field: ncclNet_v10_t::devices"]
        [::core::mem::offset_of!(ncclNet_v10_t, devices) - 16usize];
    ["Offset of field: ncclNet_v10_t::getProperties"]
        [::core::mem::offset_of!(ncclNet_v10_t, getProperties) - 24usize];
    ["Offset of field: ncclNet_v10_t::listen"]
        [::core::mem::offset_of!(ncclNet_v10_t, listen) - 32usize];
    ["Offset of field: ncclNet_v10_t::connect"]
        [::core::mem::offset_of!(ncclNet_v10_t, connect) - 40usize];
    ["Offset of field: ncclNet_v10_t::accept"]
        [::core::mem::offset_of!(ncclNet_v10_t, accept) - 48usize];
    ["Offset of field: ncclNet_v10_t::regMr"]
        [::core::mem::offset_of!(ncclNet_v10_t, regMr) - 56usize];
    ["Offset of field: ncclNet_v10_t::regMrDmaBuf"]
        [::core::mem::offset_of!(ncclNet_v10_t, regMrDmaBuf) - 64usize];
    ["Offset of field: ncclNet_v10_t::deregMr"]
        [::core::mem::offset_of!(ncclNet_v10_t, deregMr) - 72usize];
    ["Offset of field: ncclNet_v10_t::isend"]
        [::core::mem::offset_of!(ncclNet_v10_t, isend) - 80usize];
    ["Offset of field: ncclNet_v10_t::irecv"]
        [::core::mem::offset_of!(ncclNet_v10_t, irecv) - 88usize];
    ["Offset of field: ncclNet_v10_t::iflush"]
        [::core::mem::offset_of!(ncclNet_v10_t, iflush) - 96usize];
    ["Offset of field: ncclNet_v10_t::test"]
        [::core::mem::offset_of!(ncclNet_v10_t, test) - 104usize];
    ["Offset of field: ncclNet_v10_t::closeSend"]
        [::core::mem::offset_of!(ncclNet_v10_t, closeSend) - 112usize];
    ["Offset of field: ncclNet_v10_t::closeRecv"]
        [::core::mem::offset_of!(ncclNet_v10_t, closeRecv) - 120usize];
    ["Offset of field: ncclNet_v10_t::closeListen"]
        [::core::mem::offset_of!(ncclNet_v10_t, closeListen) - 128usize];
    ["Offset of field: ncclNet_v10_t::getDeviceMr"]
        [::core::mem::offset_of!(ncclNet_v10_t, getDeviceMr) - 136usize];
    ["Offset of field: ncclNet_v10_t::irecvConsumed"]
        [::core::mem::offset_of!(ncclNet_v10_t, irecvConsumed) - 144usize];
    ["Offset of field: ncclNet_v10_t::makeVDevice"]
        [::core::mem::offset_of!(ncclNet_v10_t, makeVDevice) - 152usize];
};
#[doc = " Device side of a communicator; unchanged since version 7."]
pub type ncclNetDeviceHandle_v11_t = ncclNetDeviceHandle_v7_t;
#[doc = " The devices that one (perhaps virtual) device stands for."]
pub type ncclNetVDeviceProps_v11_t = ncclNetVDeviceProps_v10_t;
#[doc = " What NCCL asks about a device; every field is uninitialised memory until the plugin writes it."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNetProperties_v11_t {
    pub name: *mut ::core::ffi::c_char,
    pub pciPath: *mut ::core::ffi::c_char,
    pub guid: u64,
    pub ptrSupport: ::core::ffi::c_int,
    pub regIsGlobal: ::core::ffi::c_int,
    pub forceFlush: ::core::ffi::c_int,
    pub speed: ::core::ffi::c_int,
    pub port: ::core::ffi::c_int,
    pub latency: f32,
    pub maxComms: ::core::ffi::c_int,
    pub maxRecvs: ::core::ffi::c_int,
    pub netDeviceType: ncclNetDeviceType,
    pub netDeviceVersion: ::core::ffi::c_int,
    pub vProps: ncclNetVDeviceProps_v11_t,
    pub maxP2pBytes: usize,
    pub maxCollBytes: usize,
    pub maxMultiRequestSize: ::core::ffi::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNetProperties_v11_t"]
        [::core::mem::size_of::<ncclNetProperties_v11_t>() - 112usize];
    ["Alignment of ncclNetProperties_v11_t"]
        [::core::mem::align_of::<ncclNetProperties_v11_t>() - 8usize];
    ["Offset of field: ncclNetProperties_v11_t::name"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, name) - 0usize];
    ["Offset of field: ncclNetProperties_v11_t::pciPath"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, pciPath) - 8usize];
    ["Offset of field: ncclNetProperties_v11_t::guid"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, guid) - 16usize];
    ["Offset of field: ncclNetProperties_v11_t::ptrSupport"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, ptrSupport) - 24usize];
    ["Offset of field: ncclNetProperties_v11_t::regIsGlobal"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, regIsGlobal) - 28usize];
    ["Offset of field: ncclNetProperties_v11_t::forceFlush"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, forceFlush) - 32usize];
    ["Offset of field: ncclNetProperties_v11_t::speed"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, speed) - 36usize];
    ["Offset of field: ncclNetProperties_v11_t::port"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, port) - 40usize];
    ["Offset of field: ncclNetProperties_v11_t::latency"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, latency) - 44usize];
    ["Offset of field: ncclNetProperties_v11_t::maxComms"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, maxComms) - 48usize];
    ["Offset of field: ncclNetProperties_v11_t::maxRecvs"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, maxRecvs) - 52usize];
    ["Offset of field: ncclNetProperties_v11_t::netDeviceType"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, netDeviceType) - 56usize];
    ["Offset of field: ncclNetProperties_v11_t::netDeviceVersion"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, netDeviceVersion) - 60usize];
    ["Offset of field: ncclNetProperties_v11_t::vProps"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, vProps) - 64usize];
    ["Offset of field: ncclNetProperties_v11_t::maxP2pBytes"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, maxP2pBytes) - 88usize];
    ["Offset of field: ncclNetProperties_v11_t::maxCollBytes"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, maxCollBytes) - 96usize];
    ["Offset of field: ncclNetProperties_v11_t::maxMultiRequestSize"]
        [::core::mem::offset_of!(ncclNetProperties_v11_t, maxMultiRequestSize) - 104usize];
};
#[doc = " Configuration of a communicator, an argument of connect (the pointer may be NULL)\n  and from version 11 on of init (the pointer leads to NCCL's stack)."]
pub type ncclNetCommConfig_v11_t = ncclNetCommConfig_v10_t;
#[doc = " How many peers and flows one direction will have, as a hint."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNetCommAttr_v11_t {
    pub maxConcurrentPeers: i32,
    pub minConcurrentPeers: i32,
    pub maxFlowsPerPeer: i32,
    pub minFlowsPerPeer: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNetCommAttr_v11_t"][::core::mem::size_of::<ncclNetCommAttr_v11_t>() - 16usize];
    ["Alignment of ncclNetCommAttr_v11_t"]
        [::core::mem::align_of::<ncclNetCommAttr_v11_t>() - 4usize];
    ["Offset of field: ncclNetCommAttr_v11_t::maxConcurrentPeers"]
        [::core::mem::offset_of!(ncclNetCommAttr_v11_t, maxConcurrentPeers) - 0usize];
    ["Offset of field: ncclNetCommAttr_v11_t::minConcurrentPeers"]
        [::core::mem::offset_of!(ncclNetCommAttr_v11_t, minConcurrentPeers) - 4usize];
    ["Offset of field: ncclNetCommAttr_v11_t::maxFlowsPerPeer"]
        [::core::mem::offset_of!(ncclNetCommAttr_v11_t, maxFlowsPerPeer) - 8usize];
    ["Offset of field: ncclNetCommAttr_v11_t::minFlowsPerPeer"]
        [::core::mem::offset_of!(ncclNetCommAttr_v11_t, minFlowsPerPeer) - 12usize];
};
#[doc = " Hints of setNetAttr; op, algo and proto are sets of bits, all ones for \"not known\"."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNetAttr_v11_t {
    pub sendCommAttr: ncclNetCommAttr_v11_t,
    pub recvCommAttr: ncclNetCommAttr_v11_t,
    pub op: u32,
    pub algo: u32,
    pub proto: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNetAttr_v11_t"][::core::mem::size_of::<ncclNetAttr_v11_t>() - 44usize];
    ["Alignment of ncclNetAttr_v11_t"][::core::mem::align_of::<ncclNetAttr_v11_t>() - 4usize];
    ["Offset of field: ncclNetAttr_v11_t::sendCommAttr"]
        [::core::mem::offset_of!(ncclNetAttr_v11_t, sendCommAttr) - 0usize];
    ["Offset of field: ncclNetAttr_v11_t::recvCommAttr"]
        [::core::mem::offset_of!(ncclNetAttr_v11_t, recvCommAttr) - 16usize];
    ["Offset of field: ncclNetAttr_v11_t::op"]
        [::core::mem::offset_of!(ncclNetAttr_v11_t, op) - 32usize];
    ["Offset of field: ncclNetAttr_v11_t::algo"]
        [::core::mem::offset_of!(ncclNetAttr_v11_t, algo) - 36usize];
    ["Offset of field: ncclNetAttr_v11_t::proto"]
        [::core::mem::offset_of!(ncclNetAttr_v11_t, proto) - 40usize];
};
#[doc = " The table that NCCL looks up as ncclNetPlugin_v11 and never writes to."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNet_v11_t {
    pub name: *const ::core::ffi::c_char,
    pub init: ::core::option::Option<
        unsafe extern "C" fn(
            ctx: *mut *mut ::core::ffi::c_void,
            commId: u64,
            config: *mut ncclNetCommConfig_v11_t,
            logger: ncclDebugLogger_t,
            profiler: ncclProfilerCallback_t,
        ) -> ncclResult_t,
    >,
    pub devices:
        ::core::option::Option<unsafe extern "C" fn(ndev: *mut ::core::ffi::c_int) -> ncclResult_t>,
    pub getProperties: ::core::option::Option<
        unsafe extern "C" fn(
            dev: ::core::ffi::c_int,
            props: *mut ncclNetProperties_v11_t,
        ) -> ncclResult_t,
    >,
    pub listen: ::core::option::Option<
        unsafe extern "C" fn(
            ctx: *mut ::core::ffi::c_void,
            dev: ::core::ffi::c_int,
            handle: *mut ::core::ffi::c_void,
            listenComm: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub connect: ::core::option::Option<
        unsafe extern "C" fn(
            ctx: *mut ::core::ffi::c_void,
            dev: ::core::ffi::c_int,
            handle: *mut ::core::ffi::c_void,
            sendComm: *mut *mut ::core::ffi::c_void,
            sendDevComm: *mut *mut ncclNetDeviceHandle_v11_t,
        ) -> ncclResult_t,
    >,
    pub accept: ::core::option::Option<
        unsafe extern "C" fn(
            listenComm: *mut ::core::ffi::c_void,
            recvComm: *mut *mut ::core::ffi::c_void,
            recvDevComm: *mut *mut ncclNetDeviceHandle_v11_t,
        ) -> ncclResult_t,
    >,
    pub regMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            type_: ::core::ffi::c_int,
            mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub regMrDmaBuf: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            type_: ::core::ffi::c_int,
            offset: u64,
            fd: ::core::ffi::c_int,
            mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub deregMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            mhandle: *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub isend: ::core::option::Option<
        unsafe extern "C" fn(
            sendComm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            tag: ::core::ffi::c_int,
            mhandle: *mut ::core::ffi::c_void,
            phandle: *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub irecv: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            data: *mut *mut ::core::ffi::c_void,
            sizes: *mut usize,
            tags: *mut ::core::ffi::c_int,
            mhandles: *mut *mut ::core::ffi::c_void,
            phandles: *mut *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub iflush: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            data: *mut *mut ::core::ffi::c_void,
            sizes: *mut ::core::ffi::c_int,
            mhandles: *mut *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub test: ::core::option::Option<
        unsafe extern "C" fn(
            request: *mut ::core::ffi::c_void,
            done: *mut ::core::ffi::c_int,
            sizes: *mut ::core::ffi::c_int,
        ) -> ncclResult_t,
    >,
    pub closeSend: ::core::option::Option<
        unsafe extern "C" fn(sendComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub closeRecv: ::core::option::Option<
        unsafe extern "C" fn(recvComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub closeListen: ::core::option::Option<
        unsafe extern "C" fn(listenComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub getDeviceMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            mhandle: *mut ::core::ffi::c_void,
            device_mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub irecvConsumed: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            request: *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub makeVDevice: ::core::option::Option<
        unsafe extern "C" fn(
            dev: *mut ::core::ffi::c_int,
            props: *mut ncclNetVDeviceProps_v11_t,
        ) -> ncclResult_t,
    >,
    pub finalize:
        ::core::option::Option<unsafe extern "C" fn(ctx: *mut ::core::ffi::c_void) -> ncclResult_t>,
    pub setNetAttr: ::core::option::Option<
        unsafe extern "C" fn(
            ctx: *mut ::core::ffi::c_void,
            attr: *mut ncclNetAttr_v11_t,
        ) -> ncclResult_t,
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNet_v11_t"][::core::mem::size_of::<ncclNet_v11_t>() - 176usize];
    ["Alignment of ncclNet_v11_t"][::core::mem::align_of::<ncclNet_v11_t>() - 8usize];
    ["Offset of field: ncclNet_v11_t::name"][::core::mem::offset_of!(ncclNet_v11_t, name) - 0usize];
    ["Offset of field: ncclNet_v11_t::init"][::core::mem::offset_of!(ncclNet_v11_t, init) - 8usize];
    ["Offset of field: ncclNet_v11_t::devices"]
        [::core::mem::offset_of!(ncclNet_v11_t, devices) - 16usize];
    ["Offset of field: ncclNet_v11_t::getProperties"]
        [::core::mem::offset_of!(ncclNet_v11_t, getProperties) - 24usize];
    ["Offset of field: ncclNet_v11_t::listen"]
        [::core::mem::offset_of!(ncclNet_v11_t, listen) - 32usize];
    ["Offset of field: ncclNet_v11_t::connect"]
        [::core::mem::offset_of!(ncclNet_v11_t, connect) - 40usize];
    ["Offset of field: ncclNet_v11_t::accept"]
        [::core::mem::offset_of!(ncclNet_v11_t, accept) - 48usize];
    ["Offset of field: ncclNet_v11_t::regMr"]
        [::core::mem::offset_of!(ncclNet_v11_t, regMr) - 56usize];
    ["Offset of field: ncclNet_v11_t::regMrDmaBuf"]
        [::core::mem::offset_of!(ncclNet_v11_t, regMrDmaBuf) - 64usize];
    ["Offset of field: ncclNet_v11_t::deregMr"]
        [::core::mem::offset_of!(ncclNet_v11_t, deregMr) - 72usize];
    ["Offset of field: ncclNet_v11_t::isend"]
        [::core::mem::offset_of!(ncclNet_v11_t, isend) - 80usize];
    ["Offset of field: ncclNet_v11_t::irecv"]
        [::core::mem::offset_of!(ncclNet_v11_t, irecv) - 88usize];
    ["Offset of field: ncclNet_v11_t::iflush"]
        [::core::mem::offset_of!(ncclNet_v11_t, iflush) - 96usize];
    ["Offset of field: ncclNet_v11_t::test"]
        [::core::mem::offset_of!(ncclNet_v11_t, test) - 104usize];
    ["Offset of field: ncclNet_v11_t::closeSend"]
        [::core::mem::offset_of!(ncclNet_v11_t, closeSend) - 112usize];
    ["Offset of field: ncclNet_v11_t::closeRecv"]
        [::core::mem::offset_of!(ncclNet_v11_t, closeRecv) - 120usize];
    ["Offset of field: ncclNet_v11_t::closeListen"]
        [::core::mem::offset_of!(ncclNet_v11_t, closeListen) - 128usize];
    ["Offset of field: ncclNet_v11_t::getDeviceMr"]
        [::core::mem::offset_of!(ncclNet_v11_t, getDeviceMr) - 136usize];
    ["Offset of field: ncclNet_v11_t::irecvConsumed"]
        [::core::mem::offset_of!(ncclNet_v11_t, irecvConsumed) - 144usize];
    ["Offset of field: ncclNet_v11_t::makeVDevice"]
        [::core::mem::offset_of!(ncclNet_v11_t, makeVDevice) - 152usize];
    ["Offset of field: ncclNet_v11_t::finalize"]
        [::core::mem::offset_of!(ncclNet_v11_t, finalize) - 160usize];
    ["Offset of field: ncclNet_v11_t::setNetAttr"]
        [::core::mem::offset_of!(ncclNet_v11_t, setNetAttr) - 168usize];
};
#[doc = " Device side of a communicator; unchanged since version 7."]
pub type ncclNetDeviceHandle_v12_t = ncclNetDeviceHandle_v7_t;
#[doc = " The devices that one (perhaps virtual) device stands for."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNetVDeviceProps_v12_t {
    pub ndevs: ::core::ffi::c_int,
    pub devs: [::core::ffi::c_int; 8usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNetVDeviceProps_v12_t"]
        [::core::mem::size_of::<ncclNetVDeviceProps_v12_t>() - 36usize];
    ["Alignment of ncclNetVDeviceProps_v12_t"]
        [::core::mem::align_of::<ncclNetVDeviceProps_v12_t>() - 4usize];
    ["Offset of field: ncclNetVDeviceProps_v12_t::ndevs"]
        [::core::mem::offset_of!(ncclNetVDeviceProps_v12_t, ndevs) - 0usize];
    ["Offset of field: ncclNetVDeviceProps_v12_t::devs"]
        [::core::mem::offset_of!(ncclNetVDeviceProps_v12_t, devs) - 4usize];
};
#[doc = " What NCCL asks about a device; every field is uninitialised memory until the plugin writes it."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNetProperties_v12_t {
    pub name: *mut ::core::ffi::c_char,
    pub pciPath: *mut ::core::ffi::c_char,
    pub guid: u64,
    pub ptrSupport: ::core::ffi::c_int,
    pub regIsGlobal: ::core::ffi::c_int,
    pub forceFlush: ::core::ffi::c_int,
    pub speed: ::core::ffi::c_int,
    pub port: ::core::ffi::c_int,
    pub latency: f32,
    pub maxComms: ::core::ffi::c_int,
    pub maxRecvs: ::core::ffi::c_int,
    pub netDeviceType: ncclNetDeviceType,
    pub netDeviceVersion: ::core::ffi::c_int,
    pub vProps: ncclNetVDeviceProps_v12_t,
    pub maxP2pBytes: usize,
    pub maxCollBytes: usize,
    pub maxMultiRequestSize: ::core::ffi::c_int,
    pub railId: i16,
    pub planeId: i16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNetProperties_v12_t"]
        [::core::mem::size_of::<ncclNetProperties_v12_t>() - 128usize];
    ["Alignment of ncclNetProperties_v12_t"]
        [::core::mem::align_of::<ncclNetProperties_v12_t>() - 8usize];
    ["Offset of field: ncclNetProperties_v12_t::name"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, name) - 0usize];
    ["Offset of field: ncclNetProperties_v12_t::pciPath"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, pciPath) - 8usize];
    ["Offset of field: ncclNetProperties_v12_t::guid"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, guid) - 16usize];
    ["Offset of field: ncclNetProperties_v12_t::ptrSupport"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, ptrSupport) - 24usize];
    ["Offset of field: ncclNetProperties_v12_t::regIsGlobal"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, regIsGlobal) - 28usize];
    ["Offset of field: ncclNetProperties_v12_t::forceFlush"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, forceFlush) - 32usize];
    ["Offset of field: ncclNetProperties_v12_t::speed"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, speed) - 36usize];
    ["Offset of field: ncclNetProperties_v12_t::port"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, port) - 40usize];
    ["Offset of field: ncclNetProperties_v12_t::latency"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, latency) - 44usize];
    ["Offset of field: ncclNetProperties_v12_t::maxComms"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, maxComms) - 48usize];
    ["Offset of field: ncclNetProperties_v12_t::maxRecvs"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, maxRecvs) - 52usize];
    ["Offset of field: ncclNetProperties_v12_t::netDeviceType"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, netDeviceType) - 56usize];
    ["Offset of field: ncclNetProperties_v12_t::netDeviceVersion"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, netDeviceVersion) - 60usize];
    ["Offset of field: ncclNetProperties_v12_t::vProps"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, vProps) - 64usize];
    ["Offset of field: ncclNetProperties_v12_t::maxP2pBytes"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, maxP2pBytes) - 104usize];
    ["Offset of field: ncclNetProperties_v12_t::maxCollBytes"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, maxCollBytes) - 112usize];
    ["Offset of field: ncclNetProperties_v12_t::maxMultiRequestSize"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, maxMultiRequestSize) - 120usize];
    ["Offset of field: ncclNetProperties_v12_t::railId"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, railId) - 124usize];
    ["Offset of field: ncclNetProperties_v12_t::planeId"]
        [::core::mem::offset_of!(ncclNetProperties_v12_t, planeId) - 126usize];
};
#[doc = " Configuration of a communicator, an argument of connect (the pointer may be NULL)\n  and from version 11 on of init (the pointer leads to NCCL's stack)."]
pub type ncclNetCommConfig_v12_t = ncclNetCommConfig_v11_t;
#[doc = " How many peers and flows one direction will have, as a hint."]
pub type ncclNetCommAttr_v12_t = ncclNetCommAttr_v11_t;
#[doc = " Hints of setNetAttr; op, algo and proto are sets of bits, all ones for \"not known\"."]
pub type ncclNetAttr_v12_t = ncclNetAttr_v11_t;
#[doc = " The table that NCCL looks up as ncclNetPlugin_v12 and never writes to."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclNet_v12_t {
    pub name: *const ::core::ffi::c_char,
    pub init: ::core::option::Option<
        unsafe extern "C" fn(
            ctx: *mut *mut ::core::ffi::c_void,
            commId: u64,
            config: *mut ncclNetCommConfig_v12_t,
            logger: ncclDebugLogger_t,
            profiler: ncclProfilerCallback_t,
        ) -> ncclResult_t,
    >,
    pub devices:
        ::core::option::Option<unsafe extern "C" fn(ndev: *mut ::core::ffi::c_int) -> ncclResult_t>,
    pub getProperties: ::core::option::Option<
        unsafe extern "C" fn(
            dev: ::core::ffi::c_int,
            props: *mut ncclNetProperties_v12_t,
        ) -> ncclResult_t,
    >,
    pub listen: ::core::option::Option<
        unsafe extern "C" fn(
            ctx: *mut ::core::ffi::c_void,
            dev: ::core::ffi::c_int,
            handle: *mut ::core::ffi::c_void,
            listenComm: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub connect: ::core::option::Option<
        unsafe extern "C" fn(
            ctx: *mut ::core::ffi::c_void,
            dev: ::core::ffi::c_int,
            handle: *mut ::core::ffi::c_void,
            sendComm: *mut *mut ::core::ffi::c_void,
            sendDevComm: *mut *mut ncclNetDeviceHandle_v12_t,
        ) -> ncclResult_t,
    >,
    pub accept: ::core::option::Option<
        unsafe extern "C" fn(
            listenComm: *mut ::core::ffi::c_void,
            recvComm: *mut *mut ::core::ffi::c_void,
            recvDevComm: *mut *mut ncclNetDeviceHandle_v12_t,
        ) -> ncclResult_t,
    >,
    pub regMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            type_: ::core::ffi::c_int,
            mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub regMrDmaBuf: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            type_: ::core::ffi::c_int,
            offset: u64,
            fd: ::core::ffi::c_int,
            mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub deregMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            mhandle: *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub isend: ::core::option::Option<
        unsafe extern "C" fn(
            sendComm: *mut ::core::ffi::c_void,
            data: *mut ::core::ffi::c_void,
            size: usize,
            tag: ::core::ffi::c_int,
            mhandle: *mut ::core::ffi::c_void,
            phandle: *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub irecv: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            data: *mut *mut ::core::ffi::c_void,
            sizes: *mut usize,
            tags: *mut ::core::ffi::c_int,
            mhandles: *mut *mut ::core::ffi::c_void,
            phandles: *mut *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub iflush: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            data: *mut *mut ::core::ffi::c_void,
            sizes: *mut ::core::ffi::c_int,
            mhandles: *mut *mut ::core::ffi::c_void,
            request: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub test: ::core::option::Option<
        unsafe extern "C" fn(
            request: *mut ::core::ffi::c_void,
            done: *mut ::core::ffi::c_int,
            sizes: *mut ::core::ffi::c_int,
        ) -> ncclResult_t,
    >,
    pub closeSend: ::core::option::Option<
        unsafe extern "C" fn(sendComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub closeRecv: ::core::option::Option<
        unsafe extern "C" fn(recvComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub closeListen: ::core::option::Option<
        unsafe extern "C" fn(listenComm: *mut ::core::ffi::c_void) -> ncclResult_t,
    >,
    pub getDeviceMr: ::core::option::Option<
        unsafe extern "C" fn(
            comm: *mut ::core::ffi::c_void,
            mhandle: *mut ::core::ffi::c_void,
            device_mhandle: *mut *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub irecvConsumed: ::core::option::Option<
        unsafe extern "C" fn(
            recvComm: *mut ::core::ffi::c_void,
            n: ::core::ffi::c_int,
            request: *mut ::core::ffi::c_void,
        ) -> ncclResult_t,
    >,
    pub makeVDevice: ::core::option::Option<
        unsafe extern "C" fn(
            dev: *mut ::core::ffi::c_int,
            props: *mut ncclNetVDeviceProps_v12_t,
        ) -> ncclResult_t,
    >,
    pub finalize:
        ::core::option::Option<unsafe extern "C" fn(ctx: *mut ::core::ffi::c_void) -> ncclResult_t>,
    pub setNetAttr: ::core::option::Option<
        unsafe extern "C" fn(
            ctx: *mut ::core::ffi::c_void,
            attr: *mut ncclNetAttr_v12_t,
        ) -> ncclResult_t,
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclNet_v12_t"][::core::mem::size_of::<ncclNet_v12_t>() - 176usize];
    ["Alignment of ncclNet_v12_t"][::core::mem::align_of::<ncclNet_v12_t>() - 8usize];
    ["Offset of field: ncclNet_v12_t::name"][::core::mem::offset_of!(ncclNet_v12_t, name) - 0usize];
    ["Offset of field: ncclNet_v12_t::init"][::core::mem::offset_of!(ncclNet_v12_t, init) - 8usize];
    ["Offset of field: ncclNet_v12_t::devices"]
        [::core::mem::offset_of!(ncclNet_v12_t, devices) - 16usize];
    ["Offset of field: ncclNet_v12_t::getProperties"]
        [::core::mem::offset_of!(ncclNet_v12_t, getProperties) - 24usize];
    ["Offset of field: ncclNet_v12_t::listen"]
        [::core::mem::offset_of!(ncclNet_v12_t, listen) - 32usize];
    ["Offset of field: ncclNet_v12_t::connect"]
        [::core::mem::offset_of!(ncclNet_v12_t, connect) - 40usize];
    ["Offset of field: ncclNet_v12_t::accept"]
        [::core::mem::offset_of!(ncclNet_v12_t, accept) - 48usize];
    ["Offset of field: ncclNet_v12_t::regMr"]
        [::core::mem::offset_of!(ncclNet_v12_t, regMr) - 56usize];
    ["Offset of field: ncclNet_v12_t::regMrDmaBuf"]
        [::core::mem::offset_of!(ncclNet_v12_t, regMrDmaBuf) - 64usize];
    ["Offset of field: ncclNet_v12_t::deregMr"]
        [::core::mem::offset_of!(ncclNet_v12_t, deregMr) - 72usize];
    ["Offset of field: ncclNet_v12_t::isend"]
        [::core::mem::offset_of!(ncclNet_v12_t, isend) - 80usize];
    ["Offset of field: ncclNet_v12_t::irecv"]
        [::core::mem::offset_of!(ncclNet_v12_t, irecv) - 88usize];
    ["Offset of field: ncclNet_v12_t::iflush"]
        [::core::mem::offset_of!(ncclNet_v12_t, iflush) - 96usize];
    ["Offset of field: ncclNet_v12_t::test"]
        [::core::mem::offset_of!(ncclNet_v12_t, test) - 104usize];
    ["Offset of field: ncclNet_v12_t::closeSend"]
        [::core::mem::offset_of!(ncclNet_v12_t, closeSend) - 112usize];
    ["Offset of field: ncclNet_v12_t::closeRecv"]
        [::core::mem::offset_of!(ncclNet_v12_t, closeRecv) - 120usize];
    ["Offset of field: ncclNet_v12_t::closeListen"]
        [::core::mem::offset_of!(ncclNet_v12_t, closeListen) - 128usize];
    ["Offset of field: ncclNet_v12_t::getDeviceMr"]
        [::core::mem::offset_of!(ncclNet_v12_t, getDeviceMr) - 136usize];
    ["Offset of field: ncclNet_v12_t::irecvConsumed"]
        [::core::mem::offset_of!(ncclNet_v12_t, irecvConsumed) - 144usize];
    ["Offset of field: ncclNet_v12_t::makeVDevice"]
        [::core::mem::offset_of!(ncclNet_v12_t, makeVDevice) - 152usize];
    ["Offset of field: ncclNet_v12_t::finalize"]
        [::core::mem::offset_of!(ncclNet_v12_t, finalize) - 160usize];
    ["Offset of field: ncclNet_v12_t::setNetAttr"]
        [::core::mem::offset_of!(ncclNet_v12_t, setNetAttr) - 168usize];
};
