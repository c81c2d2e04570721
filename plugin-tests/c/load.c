/* Loads the plugin as NCCL does and walks through the tables of all versions: a C program that knows
 * nothing but nccl-headers. Usage: load PATH-OF-SO. Exit status 0 when everything holds. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_net.h"

static int warnings;

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                   const char *format, ...) {
  (void)flags, (void)file, (void)line, (void)format;
  if (level == NCCL_LOG_WARN) warnings++;
}

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

static const void *table(void *library, const char *symbol) {
  const void *address = dlsym(library, symbol);
  if (!address) {
    fprintf(stderr, "%s is missing: %s\n", symbol, dlerror());
    exit(1);
  }
  return address;
}

/* What holds in every version: the name, the slots that must be there and those that must not. */
#define CHECK_TABLE(net)                                                                \
  do {                                                                                  \
    CHECK(strcmp((net)->name, "R2CCL") == 0);                                           \
    CHECK((net)->init && (net)->devices && (net)->getProperties && (net)->listen);      \
    CHECK((net)->connect && (net)->accept && (net)->regMr && (net)->deregMr);           \
    CHECK((net)->isend && (net)->irecv && (net)->iflush && (net)->test);                \
    CHECK((net)->closeSend && (net)->closeRecv && (net)->closeListen);                  \
    CHECK(!(net)->getDeviceMr && !(net)->irecvConsumed);                                \
  } while (0)

/* Devices and the properties of the first one; every byte of the structure is poisoned before. */
#define CHECK_DEVICES(net, props_type)                                                  \
  do {                                                                                  \
    int count = -7;                                                                     \
    CHECK((net)->devices(&count) == ncclSuccess);                                       \
    CHECK(count >= 1);                                                                  \
    props_type props;                                                                   \
    memset(&props, 0xAA, sizeof(props));                                                \
    CHECK((net)->getProperties(0, &props) == ncclSuccess);                              \
    CHECK(props.name && strlen(props.name) > 0);                                        \
    CHECK(props.ptrSupport & NCCL_PTR_HOST);                                            \
    CHECK(props.speed > 0 && props.maxComms > 0 && props.maxRecvs == 8);                \
    CHECK(props.latency == 0 && props.regIsGlobal == 0);                                \
    CHECK(props.netDeviceType == NCCL_NET_DEVICE_HOST && props.netDeviceVersion == 0);  \
    memset(&props, 0xAA, sizeof(props));                                                \
    CHECK((net)->getProperties(count, &props) == ncclInvalidArgument);                  \
    CHECK(props.name == NULL && props.maxRecvs == 0);                                   \
  } while (0)

#define CHECK_LIMITS(net, props_type)                                                   \
  do {                                                                                  \
    props_type props;                                                                   \
    memset(&props, 0xAA, sizeof(props));                                                \
    CHECK((net)->getProperties(0, &props) == ncclSuccess);                              \
    CHECK(props.vProps.ndevs == 1 && props.vProps.devs[0] == 0 && !props.forceFlush);   \
    CHECK(props.maxP2pBytes > 0 && props.maxP2pBytes <= (size_t)NCCL_MAX_NET_SIZE_BYTES);   \
    CHECK(props.maxCollBytes > 0 && props.maxCollBytes <= (size_t)NCCL_MAX_NET_SIZE_BYTES); \
    CHECK(!(net)->makeVDevice);                                                         \
  } while (0)

int main(int argc, char **argv) {
  CHECK(argc == 2);
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }

  const ncclNet_v8_t *v8 = table(library, "ncclNetPlugin_v8");
  CHECK_TABLE(v8);
  CHECK(v8->init(logger) == ncclSuccess);
  CHECK_DEVICES(v8, ncclNetProperties_v8_t);

  const ncclNet_v9_t *v9 = table(library, "ncclNetPlugin_v9");
  CHECK_TABLE(v9);
  CHECK(v9->init(logger) == ncclSuccess);
  CHECK_DEVICES(v9, ncclNetProperties_v9_t);
  CHECK_LIMITS(v9, ncclNetProperties_v9_t);

  const ncclNet_v10_t *v10 = table(library, "ncclNetPlugin_v10");
  CHECK_TABLE(v10);
  CHECK(v10->init(logger, NULL) == ncclSuccess);
  CHECK_DEVICES(v10, ncclNetProperties_v10_t);
  CHECK_LIMITS(v10, ncclNetProperties_v10_t);

  void *ctx = &library;
  ncclNetCommConfig_v11_t config = {.trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF};
  const ncclNet_v11_t *v11 = table(library, "ncclNetPlugin_v11");
  CHECK_TABLE(v11);
  CHECK(v11->finalize);
  CHECK(v11->finalize(NULL) == ncclSuccess);
  CHECK(v11->init(&ctx, 1, &config, logger, NULL) == ncclSuccess);
  CHECK(ctx != &library);
  CHECK_DEVICES(v11, ncclNetProperties_v11_t);
  CHECK_LIMITS(v11, ncclNetProperties_v11_t);
  CHECK(v11->finalize(ctx) == ncclSuccess);

  ctx = &library;
  const ncclNet_v12_t *v12 = table(library, "ncclNetPlugin_v12");
  CHECK_TABLE(v12);
  CHECK(v12->finalize);
  CHECK(v12->init(&ctx, 2, NULL, logger, NULL) == ncclSuccess);
  CHECK(ctx != &library);
  CHECK_DEVICES(v12, ncclNetProperties_v12_t);
  CHECK_LIMITS(v12, ncclNetProperties_v12_t);
  ncclNetProperties_v12_t props;
  memset(&props, 0xAA, sizeof(props));
  CHECK(v12->getProperties(0, &props) == ncclSuccess);
  CHECK(props.railId == NCCL_NET_ID_UNDEF && props.planeId == NCCL_NET_ID_UNDEF);
  CHECK(props.maxMultiRequestSize == 1);
  CHECK(v12->finalize(ctx) == ncclSuccess);

  /* The refused devices above each gave a warning, fewer once the rate limit bites. */
  CHECK(warnings >= 1);

  /* NCCL unloads the library; it stays mapped, so its tables do not change. */
  CHECK(dlclose(library) == 0);
  CHECK(strcmp(v12->name, "R2CCL") == 0);
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  CHECK(library && table(library, "ncclNetPlugin_v12") == v12);
  printf("tables v8 to v12 hold\n");
  return 0;
}
