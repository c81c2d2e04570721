/* All versions of the network plugin interface that R2CCL serves. */
#ifndef R2CCL_NCCL_NET_H
#define R2CCL_NCCL_NET_H

#include "net_v8.h"
#include "net_v9.h"
#include "net_v10.h"
#include "net_v11.h"
#include "net_v12.h"

#endif
