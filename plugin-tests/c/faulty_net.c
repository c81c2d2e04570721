/* A net plugin inside one process, whose mistakes are ordered by the variable FAULT: what shows
 * that the driver's checks can fail. Both ends of a connection live in the same host. */
#include <stdlib.h>
#include <string.h>

#include "net_v8.h"

enum { CONNECTIONS = 16, REQUESTS = 64, VICTIM = 11 };

struct request {
  struct connection *connection;
  char *data;
  int size; /* of a send, or the room of a receive, then what came */
  int is_send;
  int is_done;
};

struct connection {
  struct request sends[REQUESTS], receives[REQUESTS];
  unsigned long sent, received, matched;
  int is_used;
  char *late; /* a byte to change once the receive was reported done */
};

static struct connection connections[CONNECTIONS];

static int fault(const char *name) {
  const char *chosen = getenv("FAULT");
  return chosen && strcmp(chosen, name) == 0;
}

/* Copies the messages for which both sides are there. */
static void match(struct connection *c) {
  while (c->matched < c->sent && c->matched < c->received) {
    unsigned long index = c->matched;
    struct request *from = &c->sends[index % REQUESTS], *to = &c->receives[index % REQUESTS];
    int is_victim = index == VICTIM, room = to->size;
    if (fault("hang") && index >= VICTIM)
      return;
    if (is_victim && fault("stale"))
      from = &c->sends[(index - 1) % REQUESTS];
    memcpy(to->data, from->data, from->size);
    to->size = from->size;
    if (is_victim && fault("wrong"))
      to->data[from->size / 2] ^= 1;
    if (is_victim && fault("short"))
      to->size--;
    if (is_victim && fault("tail"))
      to->data[from->size] ^= 1;
    if (is_victim && fault("outside"))
      to->data[room] ^= 1;
    to->is_done = c->sends[index % REQUESTS].is_done = 1;
    c->matched++;
  }
}

static ncclResult_t initialise(ncclDebugLogger_t logger) {
  (void)logger;
  return ncclSuccess;
}

static ncclResult_t devices(int *count) {
  *count = 1;
  return ncclSuccess;
}

static ncclResult_t properties(int dev, ncclNetProperties_v8_t *p) {
  memset(p, 0, sizeof *p);
  p->name = "memory";
  p->guid = dev;
  p->ptrSupport = NCCL_PTR_HOST;
  p->maxRecvs = 1;
  return ncclSuccess;
}

static ncclResult_t listen_on(int dev, void *handle, void **comm) {
  (void)dev;
  for (int i = 0; i < CONNECTIONS; i++) {
    if (connections[i].is_used)
      continue;
    memset(&connections[i], 0, sizeof connections[i]);
    connections[i].is_used = 1;
    memset(handle, 0, NCCL_NET_HANDLE_MAXSIZE);
    memcpy(handle, &i, sizeof i);
    *comm = &connections[i];
    return ncclSuccess;
  }
  return ncclSystemError;
}

static ncclResult_t connect_to(int dev, void *handle, void **comm,
                               ncclNetDeviceHandle_v8_t **device) {
  int index;
  (void)dev;
  memcpy(&index, handle, sizeof index);
  *comm = &connections[index];
  *device = NULL;
  return ncclSuccess;
}

static ncclResult_t accept_from(void *listener, void **comm, ncclNetDeviceHandle_v8_t **device) {
  *comm = listener;
  *device = NULL;
  return ncclSuccess;
}

static ncclResult_t enroll(void *comm, void *data, size_t size, int type, void **mhandle) {
  (void)data, (void)size, (void)type;
  *mhandle = comm;
  return ncclSuccess;
}

static ncclResult_t withdraw(void *comm, void *mhandle) {
  (void)comm, (void)mhandle;
  return ncclSuccess;
}

static ncclResult_t post_send(void *comm, void *data, int size, int tag, void *mhandle,
                              void **request) {
  struct connection *c = comm;
  struct request *r = &c->sends[c->sent % REQUESTS];
  (void)tag, (void)mhandle;
  if (c->sent == VICTIM && fault("no-request"))
    return ncclSuccess;
  *r = (struct request){.connection = c, .data = data, .size = size, .is_send = 1};
  *request = r;
  c->sent++;
  /* Done before anything was read. */
  if (fault("early"))
    r->is_done = 1;
  else
    match(c);
  return ncclSuccess;
}

static ncclResult_t post_receive(void *comm, int n, void **data, int *sizes, int *tags,
                                 void **mhandles, void **request) {
  struct connection *c = comm;
  struct request *r = &c->receives[c->received % REQUESTS];
  (void)n, (void)tags, (void)mhandles;
  *r = (struct request){.connection = c, .data = data[0], .size = sizes[0]};
  *request = r;
  c->received++;
  if (!fault("early"))
    match(c);
  return ncclSuccess;
}

static ncclResult_t flush(void *comm, int n, void **data, int *sizes, void **mhandles,
                          void **request) {
  (void)comm, (void)n, (void)data, (void)sizes, (void)mhandles;
  *request = NULL;
  return ncclSuccess;
}

static ncclResult_t test(void *request, int *done, int *sizes) {
  struct request *r = request;
  struct connection *c = r->connection;
  if (c->late && !r->is_send && r->data != c->late) {
    *c->late ^= 1;
    c->late = NULL;
  }
  if (c->matched >= VICTIM && fault("no-done"))
    return ncclSuccess;
  if (c->matched >= VICTIM && fault("error"))
    return ncclSystemError;
  if (fault("early") && !r->is_send)
    match(c);
  *done = r->is_done;
  if (r->is_done && r == &c->receives[VICTIM] && fault("late"))
    c->late = r->data;
  if (r->is_done && !r->is_send && !(c->matched >= VICTIM && fault("no-size")))
    sizes[0] = r->size;
  return ncclSuccess;
}

static ncclResult_t close_end(void *comm) {
  ((struct connection *)comm)->is_used = 0;
  return ncclSuccess;
}

static ncclResult_t close_listener(void *comm) {
  (void)comm;
  return ncclSuccess;
}

const ncclNet_v8_t ncclNetPlugin_v8 = {
    .name = "Faulty",
    .init = initialise,
    .devices = devices,
    .getProperties = properties,
    .listen = listen_on,
    .connect = connect_to,
    .accept = accept_from,
    .regMr = enroll,
    .deregMr = withdraw,
    .isend = post_send,
    .irecv = post_receive,
    .iflush = flush,
    .test = test,
    .closeSend = close_end,
    .closeRecv = close_end,
    .closeListen = close_listener,
};
