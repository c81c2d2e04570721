/* Size, alignment and offset of every field of nccl-headers as a C compiler sees them, against the
 * numbers measured on NCCL's releases (x86-64). Compiling this file is the test. */
#include <stdalign.h>

#include "net_v10.h"
#include "net_v11.h"
#include "net_v12.h"
#include "net_v8.h"
#include "net_v9.h"

#define TYPE(type, size, align)                                                    \
  _Static_assert(sizeof(type) == (size), "size of " #type);                        \
  _Static_assert(alignof(type) == (align), "alignment of " #type)
#define AT(type, field, offset)                                                    \
  _Static_assert(offsetof(type, field) == (offset), "offset of " #type "." #field)

/* The slots that all tables have. */
#define TABLE(type, size)       \
  TYPE(type, size, 8);          \
  AT(type, name, 0);            \
  AT(type, init, 8);            \
  AT(type, devices, 16);        \
  AT(type, getProperties, 24);  \
  AT(type, listen, 32);         \
  AT(type, connect, 40);        \
  AT(type, accept, 48);         \
  AT(type, regMr, 56);          \
  AT(type, regMrDmaBuf, 64);    \
  AT(type, deregMr, 72);        \
  AT(type, isend, 80);          \
  AT(type, irecv, 88);          \
  AT(type, iflush, 96);         \
  AT(type, test, 104);          \
  AT(type, closeSend, 112);     \
  AT(type, closeRecv, 120);     \
  AT(type, closeListen, 128);   \
  AT(type, getDeviceMr, 136);   \
  AT(type, irecvConsumed, 144)

TABLE(ncclNet_v8_t, 152);
TABLE(ncclNet_v9_t, 160);
AT(ncclNet_v9_t, makeVDevice, 152);
TABLE(ncclNet_v10_t, 160);
AT(ncclNet_v10_t, makeVDevice, 152);
TABLE(ncclNet_v11_t, 176);
AT(ncclNet_v11_t, makeVDevice, 152);
AT(ncclNet_v11_t, finalize, 160);
AT(ncclNet_v11_t, setNetAttr, 168);
TABLE(ncclNet_v12_t, 176);
AT(ncclNet_v12_t, makeVDevice, 152);
AT(ncclNet_v12_t, finalize, 160);
AT(ncclNet_v12_t, setNetAttr, 168);

TYPE(ncclNetProperties_v8_t, 64, 8);
AT(ncclNetProperties_v8_t, name, 0);
AT(ncclNetProperties_v8_t, pciPath, 8);
AT(ncclNetProperties_v8_t, guid, 16);
AT(ncclNetProperties_v8_t, ptrSupport, 24);
AT(ncclNetProperties_v8_t, regIsGlobal, 28);
AT(ncclNetProperties_v8_t, speed, 32);
AT(ncclNetProperties_v8_t, port, 36);
AT(ncclNetProperties_v8_t, latency, 40);
AT(ncclNetProperties_v8_t, maxComms, 44);
AT(ncclNetProperties_v8_t, maxRecvs, 48);
AT(ncclNetProperties_v8_t, netDeviceType, 52);
AT(ncclNetProperties_v8_t, netDeviceVersion, 56);

TYPE(ncclNetProperties_v9_t, 104, 8);
AT(ncclNetProperties_v9_t, name, 0);
AT(ncclNetProperties_v9_t, pciPath, 8);
AT(ncclNetProperties_v9_t, guid, 16);
AT(ncclNetProperties_v9_t, ptrSupport, 24);
AT(ncclNetProperties_v9_t, regIsGlobal, 28);
AT(ncclNetProperties_v9_t, forceFlush, 32);
AT(ncclNetProperties_v9_t, speed, 36);
AT(ncclNetProperties_v9_t, port, 40);
AT(ncclNetProperties_v9_t, latency, 44);
AT(ncclNetProperties_v9_t, maxComms, 48);
AT(ncclNetProperties_v9_t, maxRecvs, 52);
AT(ncclNetProperties_v9_t, netDeviceType, 56);
AT(ncclNetProperties_v9_t, netDeviceVersion, 60);
AT(ncclNetProperties_v9_t, vProps, 64);
AT(ncclNetProperties_v9_t, maxP2pBytes, 88);
AT(ncclNetProperties_v9_t, maxCollBytes, 96);

TYPE(ncclNetProperties_v10_t, 104, 8);
AT(ncclNetProperties_v10_t, name, 0);
AT(ncclNetProperties_v10_t, pciPath, 8);
AT(ncclNetProperties_v10_t, guid, 16);
AT(ncclNetProperties_v10_t, ptrSupport, 24);
AT(ncclNetProperties_v10_t, regIsGlobal, 28);
AT(ncclNetProperties_v10_t, forceFlush, 32);
AT(ncclNetProperties_v10_t, speed, 36);
AT(ncclNetProperties_v10_t, port, 40);
AT(ncclNetProperties_v10_t, latency, 44);
AT(ncclNetProperties_v10_t, maxComms, 48);
AT(ncclNetProperties_v10_t, maxRecvs, 52);
AT(ncclNetProperties_v10_t, netDeviceType, 56);
AT(ncclNetProperties_v10_t, netDeviceVersion, 60);
AT(ncclNetProperties_v10_t, vProps, 64);
AT(ncclNetProperties_v10_t, maxP2pBytes, 88);
AT(ncclNetProperties_v10_t, maxCollBytes, 96);

TYPE(ncclNetProperties_v11_t, 112, 8);
AT(ncclNetProperties_v11_t, name, 0);
AT(ncclNetProperties_v11_t, pciPath, 8);
AT(ncclNetProperties_v11_t, guid, 16);
AT(ncclNetProperties_v11_t, ptrSupport, 24);
AT(ncclNetProperties_v11_t, regIsGlobal, 28);
AT(ncclNetProperties_v11_t, forceFlush, 32);
AT(ncclNetProperties_v11_t, speed, 36);
AT(ncclNetProperties_v11_t, port, 40);
AT(ncclNetProperties_v11_t, latency, 44);
AT(ncclNetProperties_v11_t, maxComms, 48);
AT(ncclNetProperties_v11_t, maxRecvs, 52);
AT(ncclNetProperties_v11_t, netDeviceType, 56);
AT(ncclNetProperties_v11_t, netDeviceVersion, 60);
AT(ncclNetProperties_v11_t, vProps, 64);
AT(ncclNetProperties_v11_t, maxP2pBytes, 88);
AT(ncclNetProperties_v11_t, maxCollBytes, 96);
AT(ncclNetProperties_v11_t, maxMultiRequestSize, 104);

TYPE(ncclNetProperties_v12_t, 128, 8);
AT(ncclNetProperties_v12_t, name, 0);
AT(ncclNetProperties_v12_t, pciPath, 8);
AT(ncclNetProperties_v12_t, guid, 16);
AT(ncclNetProperties_v12_t, ptrSupport, 24);
AT(ncclNetProperties_v12_t, regIsGlobal, 28);
AT(ncclNetProperties_v12_t, forceFlush, 32);
AT(ncclNetProperties_v12_t, speed, 36);
AT(ncclNetProperties_v12_t, port, 40);
AT(ncclNetProperties_v12_t, latency, 44);
AT(ncclNetProperties_v12_t, maxComms, 48);
AT(ncclNetProperties_v12_t, maxRecvs, 52);
AT(ncclNetProperties_v12_t, netDeviceType, 56);
AT(ncclNetProperties_v12_t, netDeviceVersion, 60);
AT(ncclNetProperties_v12_t, vProps, 64);
AT(ncclNetProperties_v12_t, maxP2pBytes, 104);
AT(ncclNetProperties_v12_t, maxCollBytes, 112);
AT(ncclNetProperties_v12_t, maxMultiRequestSize, 120);
AT(ncclNetProperties_v12_t, railId, 124);
AT(ncclNetProperties_v12_t, planeId, 126);

TYPE(ncclNetDeviceHandle_v7_t, 32, 8);
AT(ncclNetDeviceHandle_v7_t, netDeviceType, 0);
AT(ncclNetDeviceHandle_v7_t, netDeviceVersion, 4);
AT(ncclNetDeviceHandle_v7_t, handle, 8);
AT(ncclNetDeviceHandle_v7_t, size, 16);
AT(ncclNetDeviceHandle_v7_t, needsProxyProgress, 24);

TYPE(ncclNetVDeviceProps_v9_t, 20, 4);
AT(ncclNetVDeviceProps_v9_t, ndevs, 0);
AT(ncclNetVDeviceProps_v9_t, devs, 4);

TYPE(ncclNetVDeviceProps_v10_t, 20, 4);
AT(ncclNetVDeviceProps_v10_t, ndevs, 0);
AT(ncclNetVDeviceProps_v10_t, devs, 4);

TYPE(ncclNetVDeviceProps_v11_t, 20, 4);
AT(ncclNetVDeviceProps_v11_t, ndevs, 0);
AT(ncclNetVDeviceProps_v11_t, devs, 4);

TYPE(ncclNetVDeviceProps_v12_t, 36, 4);
AT(ncclNetVDeviceProps_v12_t, ndevs, 0);
AT(ncclNetVDeviceProps_v12_t, devs, 4);

TYPE(ncclNetCommConfig_v10_t, 4, 4);
AT(ncclNetCommConfig_v10_t, trafficClass, 0);

TYPE(ncclNetCommConfig_v11_t, 4, 4);
AT(ncclNetCommConfig_v11_t, trafficClass, 0);

TYPE(ncclNetCommConfig_v12_t, 4, 4);
AT(ncclNetCommConfig_v12_t, trafficClass, 0);

TYPE(ncclNetCommAttr_v11_t, 16, 4);
AT(ncclNetCommAttr_v11_t, maxConcurrentPeers, 0);
AT(ncclNetCommAttr_v11_t, minConcurrentPeers, 4);
AT(ncclNetCommAttr_v11_t, maxFlowsPerPeer, 8);
AT(ncclNetCommAttr_v11_t, minFlowsPerPeer, 12);

TYPE(ncclNetCommAttr_v12_t, 16, 4);
AT(ncclNetCommAttr_v12_t, maxConcurrentPeers, 0);
AT(ncclNetCommAttr_v12_t, minConcurrentPeers, 4);
AT(ncclNetCommAttr_v12_t, maxFlowsPerPeer, 8);
AT(ncclNetCommAttr_v12_t, minFlowsPerPeer, 12);

TYPE(ncclNetAttr_v11_t, 44, 4);
AT(ncclNetAttr_v11_t, sendCommAttr, 0);
AT(ncclNetAttr_v11_t, recvCommAttr, 16);
AT(ncclNetAttr_v11_t, op, 32);
AT(ncclNetAttr_v11_t, algo, 36);
AT(ncclNetAttr_v11_t, proto, 40);

TYPE(ncclNetAttr_v12_t, 44, 4);
AT(ncclNetAttr_v12_t, sendCommAttr, 0);
AT(ncclNetAttr_v12_t, recvCommAttr, 16);
AT(ncclNetAttr_v12_t, op, 32);
AT(ncclNetAttr_v12_t, algo, 36);
AT(ncclNetAttr_v12_t, proto, 40);

_Static_assert(sizeof(ncclResult_t) == 4 && sizeof(ncclNetDeviceType) == 4, "enums are int");
_Static_assert(sizeof(ncclDebugLogLevel) == 4 && NCCL_LOG_WARN == 2, "levels");
_Static_assert(ncclInvalidArgument == 4 && ncclRemoteError == 6, "result codes");
_Static_assert(NCCL_NET_HANDLE_MAXSIZE == 128 && NCCL_NET_MAX_REQUESTS == 32, "limits");
_Static_assert(NCCL_PTR_HOST == 1 && NCCL_PTR_CUDA == 2 && NCCL_PTR_DMABUF == 4, "memory kinds");
