//! Size, alignment and offset of every field, against numbers measured on NCCL's own releases
//! (2.20 to 2.30, x86-64). `bindings.rs` asserts what the headers say; this file asserts that the
//! headers say the right thing, so a slip in `nccl-headers` cannot pass.

use crate::bindings::*;
use core::mem::{align_of, offset_of, size_of};

/// Asserts the layout of one struct at compile time. All fields must be named.
macro_rules! layout {
    ($name:ident, size $size:literal, align $align:literal, $($field:ident @ $offset:literal)*) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            assert!(align_of::<$name>() == $align);
            $(assert!(offset_of!($name, $field) == $offset);)*
        };
        const _: fn($name) = |$name { $($field: _),* }| ();
    };
}

/// Asserts the layout of one table: the slots of version 8, then those that are appended.
macro_rules! table {
    ($name:ident, size $size:literal, $($appended:ident @ $offset:literal)*) => {
        layout!($name, size $size, align 8,
            name @ 0 init @ 8 devices @ 16 getProperties @ 24 listen @ 32 connect @ 40 accept @ 48
            regMr @ 56 regMrDmaBuf @ 64 deregMr @ 72 isend @ 80 irecv @ 88 iflush @ 96 test @ 104
            closeSend @ 112 closeRecv @ 120 closeListen @ 128 getDeviceMr @ 136
            irecvConsumed @ 144 $($appended @ $offset)*);
    };
}

table!(ncclNet_v8_t, size 152,);
table!(ncclNet_v9_t, size 160, makeVDevice @ 152);
table!(ncclNet_v10_t, size 160, makeVDevice @ 152);
table!(ncclNet_v11_t, size 176, makeVDevice @ 152 finalize @ 160 setNetAttr @ 168);
table!(ncclNet_v12_t, size 176, makeVDevice @ 152 finalize @ 160 setNetAttr @ 168);

layout!(ncclNetProperties_v8_t, size 64, align 8,
    name @ 0 pciPath @ 8 guid @ 16 ptrSupport @ 24 regIsGlobal @ 28 speed @ 32 port @ 36
    latency @ 40 maxComms @ 44 maxRecvs @ 48 netDeviceType @ 52 netDeviceVersion @ 56);
layout!(ncclNetProperties_v9_t, size 104, align 8,
    name @ 0 pciPath @ 8 guid @ 16 ptrSupport @ 24 regIsGlobal @ 28 forceFlush @ 32 speed @ 36
    port @ 40 latency @ 44 maxComms @ 48 maxRecvs @ 52 netDeviceType @ 56 netDeviceVersion @ 60
    vProps @ 64 maxP2pBytes @ 88 maxCollBytes @ 96);
layout!(ncclNetProperties_v10_t, size 104, align 8,
    name @ 0 pciPath @ 8 guid @ 16 ptrSupport @ 24 regIsGlobal @ 28 forceFlush @ 32 speed @ 36
    port @ 40 latency @ 44 maxComms @ 48 maxRecvs @ 52 netDeviceType @ 56 netDeviceVersion @ 60
    vProps @ 64 maxP2pBytes @ 88 maxCollBytes @ 96);
layout!(ncclNetProperties_v11_t, size 112, align 8,
    name @ 0 pciPath @ 8 guid @ 16 ptrSupport @ 24 regIsGlobal @ 28 forceFlush @ 32 speed @ 36
    port @ 40 latency @ 44 maxComms @ 48 maxRecvs @ 52 netDeviceType @ 56 netDeviceVersion @ 60
    vProps @ 64 maxP2pBytes @ 88 maxCollBytes @ 96 maxMultiRequestSize @ 104);
layout!(ncclNetProperties_v12_t, size 128, align 8,
    name @ 0 pciPath @ 8 guid @ 16 ptrSupport @ 24 regIsGlobal @ 28 forceFlush @ 32 speed @ 36
    port @ 40 latency @ 44 maxComms @ 48 maxRecvs @ 52 netDeviceType @ 56 netDeviceVersion @ 60
    vProps @ 64 maxP2pBytes @ 104 maxCollBytes @ 112 maxMultiRequestSize @ 120 railId @ 124
    planeId @ 126);

layout!(ncclNetDeviceHandle_v7_t, size 32, align 8,
    netDeviceType @ 0 netDeviceVersion @ 4 handle @ 8 size @ 16 needsProxyProgress @ 24);

layout!(ncclNetVDeviceProps_v9_t, size 20, align 4, ndevs @ 0 devs @ 4);
layout!(ncclNetVDeviceProps_v10_t, size 20, align 4, ndevs @ 0 devs @ 4);
layout!(ncclNetVDeviceProps_v11_t, size 20, align 4, ndevs @ 0 devs @ 4);
layout!(ncclNetVDeviceProps_v12_t, size 36, align 4, ndevs @ 0 devs @ 4);

layout!(ncclNetCommConfig_v10_t, size 4, align 4, trafficClass @ 0);
layout!(ncclNetCommConfig_v11_t, size 4, align 4, trafficClass @ 0);
layout!(ncclNetCommConfig_v12_t, size 4, align 4, trafficClass @ 0);

layout!(ncclNetCommAttr_v11_t, size 16, align 4,
    maxConcurrentPeers @ 0 minConcurrentPeers @ 4 maxFlowsPerPeer @ 8 minFlowsPerPeer @ 12);
layout!(ncclNetCommAttr_v12_t, size 16, align 4,
    maxConcurrentPeers @ 0 minConcurrentPeers @ 4 maxFlowsPerPeer @ 8 minFlowsPerPeer @ 12);
layout!(ncclNetAttr_v11_t, size 44, align 4,
    sendCommAttr @ 0 recvCommAttr @ 16 op @ 32 algo @ 36 proto @ 40);
layout!(ncclNetAttr_v12_t, size 44, align 4,
    sendCommAttr @ 0 recvCommAttr @ 16 op @ 32 algo @ 36 proto @ 40);

// Values that cross the boundary as plain integers.
const _: () = {
    assert!(ncclSuccess == 0 && ncclUnhandledCudaError == 1 && ncclSystemError == 2);
    assert!(ncclInternalError == 3 && ncclInvalidArgument == 4 && ncclInvalidUsage == 5);
    assert!(ncclRemoteError == 6 && ncclInProgress == 7 && size_of::<ncclResult_t>() == 4);
    assert!(NCCL_LOG_WARN == 2 && NCCL_LOG_INFO == 3 && NCCL_LOG_ABORT == 4 && NCCL_LOG_TRACE == 5);
    assert!(NCCL_INIT == 0x1 && NCCL_NET == 0x10 && size_of::<ncclDebugLogLevel>() == 4);
    assert!(NCCL_PTR_HOST == 1 && NCCL_PTR_CUDA == 2 && NCCL_PTR_DMABUF == 4);
    assert!(NCCL_NET_HANDLE_MAXSIZE == 128 && NCCL_NET_MAX_REQUESTS == 32);
    assert!(NCCL_NET_OPTIONAL_RECV_COMPLETION == 1 && NCCL_NET_DEVICE_HOST == 0);
    assert!(MAX_NET_SIZE == 1 << 30 && NCCL_MAX_NET_SIZE_BYTES == 1 << 40);
    assert!(NCCL_NET_TRAFFIC_CLASS_UNDEF == -1 && NCCL_NET_ID_UNDEF == -1);
};
