/* Version 10 of the network plugin interface, NCCL 2.26 and later. New: a profiler callback in init,
 * profiler handles in isend and irecv, a configuration in connect. */
#ifndef R2CCL_NCCL_NET_V10_H
#define R2CCL_NCCL_NET_V10_H

#include "net_v9.h"

typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v10_t;

typedef ncclNetVDeviceProps_v9_t ncclNetVDeviceProps_v10_t;

typedef ncclNetProperties_v9_t ncclNetProperties_v10_t;

/** Configuration of a communicator, an argument of connect (the pointer may be NULL)
 *  and from version 11 on of init (the pointer leads to NCCL's stack). */
typedef struct {
  int trafficClass;
} ncclNetCommConfig_v10_t;

/** The table that NCCL looks up as ncclNetPlugin_v10 and never writes to. */
typedef struct {
  const char *name;
  ncclResult_t (*init)(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v10_t *props);
  ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
  ncclResult_t (*connect)(int dev, ncclNetCommConfig_v10_t *config, void *handle, void **sendComm,
                          ncclNetDeviceHandle_v10_t **sendDevComm);
  ncclResult_t (*accept)(void *listenComm, void **recvComm,
                         ncclNetDeviceHandle_v10_t **recvDevComm);
  ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
                              int fd, void **mhandle);
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                        void *phandle, void **request);
  ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                        void **mhandles, void **phandles, void **request);
  ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                         void **request);
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **device_mhandle);
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
  ncclResult_t (*makeVDevice)(int *dev, ncclNetVDeviceProps_v10_t *props);
} ncclNet_v10_t;

#endif
