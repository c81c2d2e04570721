/* Types and constants that all versions of NCCL's network plugin interface share.
 *
 * These headers are R2CCL's own declarations of a binary interface: the layout is what NCCL 2.20 to
 * 2.30 reads on x86-64 and aarch64 Linux, the words are ours. plugin-tests/c/layout.c and
 * src/abi/src/layout.rs assert the size and the offset of every field.
 */
#ifndef R2CCL_NCCL_COMMON_H
#define R2CCL_NCCL_COMMON_H

#include <stddef.h>
#include <stdint.h>

/** What every call of a plugin returns. Anything but success from the data path ends the
 *  communicator; ncclInProgress must never come from a plugin. Values from 8 on mean different
 *  things in different releases and are left out. */
typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
} ncclResult_t;

/** Severity of a log line. */
typedef enum {
  NCCL_LOG_NONE = 0,
  NCCL_LOG_VERSION = 1,
  NCCL_LOG_WARN = 2,
  NCCL_LOG_INFO = 3,
  NCCL_LOG_ABORT = 4,
  NCCL_LOG_TRACE = 5,
} ncclDebugLogLevel;

/* Subsystem bits of a log line. NCCL shows INIT, BOOTSTRAP and ENV unless told otherwise, so a
 * start-up line carries INIT as well as NET. */
#define NCCL_INIT 0x1
#define NCCL_NET 0x10
#define NCCL_GRAPH 0x20
#define NCCL_TUNING 0x40
#define NCCL_ENV 0x80
#define NCCL_PROXY 0x400
#define NCCL_BOOTSTRAP 0x1000
#define NCCL_REG 0x2000

/** NCCL's log function (printf format). `file` is printed as the name of a function. Filters by
 *  level and subsystem itself, may be called from any thread, keeps about 1 KiB of a line. */
typedef void (*ncclDebugLogger_t)(ncclDebugLogLevel level, unsigned long flags, const char *file,
                                  int line, const char *format, ...);

/** NCCL's profiler callback, from version 10 on. Starting an event with a NULL parent crashes. */
typedef ncclResult_t (*ncclProfilerCallback_t)(void **event, int type, void *parent,
                                               int64_t plugin_id, void *data);

/** Bytes of the connection handle that travels from listen to connect. */
#define NCCL_NET_HANDLE_MAXSIZE 128
/** Requests of one communicator that NCCL keeps open, for each receive of a group. */
#define NCCL_NET_MAX_REQUESTS 32

/* Kinds of memory: `ptrSupport` is a set of them, `type` of regMr is HOST or CUDA. */
#define NCCL_PTR_HOST 0x1
#define NCCL_PTR_CUDA 0x2
#define NCCL_PTR_DMABUF 0x4

/** What irecv may find in `*request`: this receive's completion is of no interest. */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION 0x1

/** Ceiling of the properties maxP2pBytes and maxCollBytes. */
#define NCCL_MAX_NET_SIZE_BYTES (1LL << 40)
/** Bytes of the largest single send that NCCL itself makes. */
#define MAX_NET_SIZE (1LL << 30)

/* Values that say "not set". */
#define NCCL_NET_TRAFFIC_CLASS_UNDEF (-1)
#define NCCL_NET_ID_UNDEF (-1)
#define NCCL_NET_ATTR_UNDEF (-1)

/** Who drives the transport: the CPU, or a kind of GPU code that needs a device handle. */
typedef enum {
  NCCL_NET_DEVICE_HOST = 0,
  NCCL_NET_DEVICE_UNPACK = 1,
  NCCL_NET_DEVICE_GIN_PROXY = 2,
  NCCL_NET_DEVICE_GIN_GDAKI = 3,
  NCCL_NET_DEVICE_GIN_GPI = 4,
} ncclNetDeviceType;

/** netDeviceVersion of a transport that the CPU drives. */
#define NCCL_NET_DEVICE_INVALID_VERSION 0

/** Device side of a communicator; unchanged since version 7. */
typedef struct {
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  void *handle;
  size_t size;
  int needsProxyProgress;
} ncclNetDeviceHandle_v7_t;

#endif
