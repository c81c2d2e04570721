//! Settings of NCCL's own RDMA transport that have no effect here, and why.

/// Name and reason.
pub(super) static UNUSED: &[(&str, &str)] = &[
    (
        "NCCL_IB_QPS_PER_CONNECTION",
        "a path has one queue pair; a message is spread over paths when its own is lost",
    ),
    ("NCCL_IB_SPLIT_DATA_ON_QPS", "a path has one queue pair"),
    (
        "NCCL_IB_ADAPTIVE_ROUTING",
        "not built yet: the bytes always travel in a write with immediate, which fabrics keep on \
         one route",
    ),
    ("NCCL_IB_AR_THRESHOLD", "see NCCL_IB_ADAPTIVE_ROUTING"),
    (
        "NCCL_IB_ECE_ENABLE",
        "not built yet: both ends tell their addresses before either has connected, and the \
         agreement on enhancements takes a round more",
    ),
    (
        "NCCL_IB_USE_INLINE",
        "credits and counters are posted inline wherever the device takes them so",
    ),
    (
        "NCCL_IB_MERGE_NICS",
        "each port is shown to NCCL as it is, and never as a part of a virtual device",
    ),
    (
        "NCCL_IB_RETURN_ASYNC_EVENTS",
        "a device's fatal event ends its paths, not the connection: others take over",
    ),
    (
        "NCCL_IB_QUERY_PORT_SPEED",
        "the speed is what the kernel says in sysfs (`rate`)",
    ),
    (
        "NCCL_IB_ROUTABLE_FLID_GID_INDEX",
        "InfiniBand ports use GID 0; ways between subnets by FLID are not built",
    ),
    (
        "NCCL_IB_DATA_DIRECT",
        "memory of GPUs is not registered by this build",
    ),
    (
        "NCCL_DMABUF_ENABLE",
        "memory of GPUs is not registered by this build",
    ),
    (
        "NCCL_GDR_FLUSH_DISABLE",
        "memory of GPUs is not registered by this build, and that of hosts needs no flush",
    ),
    ("NCCL_IB_OOO_RQ", "an extension of one vendor"),
    (
        "NCCL_IB_SUBNET_AWARE_ROUTING",
        "paths pair NICs by their order on both hosts",
    ),
    (
        "NCCL_IB_SUBNET_PREFIX_LEN",
        "see NCCL_IB_SUBNET_AWARE_ROUTING",
    ),
    ("NCCL_IB_WARN_RAIL_LOCAL", "rails are not known here"),
    (
        "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS",
        "receives are always posted before the peer may write",
    ),
    (
        "NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME",
        "inside of NCCL's own transport",
    ),
    (
        "NCCL_IB_MQP_RETRY_ALL",
        "a queue pair that cannot be connected is made anew, with growing pauses",
    ),
    ("NCCL_IB_MQP_RETRY_CNT", "see NCCL_IB_MQP_RETRY_ALL"),
    ("NCCL_IB_MQP_RETRY_SLEEP_MSEC", "see NCCL_IB_MQP_RETRY_ALL"),
    (
        "NCCL_IB_RESILIENCY_PORT_FAILOVER",
        "failover is always on; see R2CCL_ROUTING_ALGO",
    ),
    (
        "NCCL_IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS",
        "failover is tried as long as R2CCL_GIVEUP allows",
    ),
    (
        "NCCL_IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY",
        "probes go at once",
    ),
    (
        "NCCL_IB_RESILIENCY_PORT_RECOVERY",
        "paths that work again are always taken back; see R2CCL_HOLD_DOWN",
    ),
];

/// The entry of a name. All numbers of NCCL's recovery count as that.
pub(super) fn find(name: &str) -> Option<(&'static str, &'static str)> {
    const RECOVERY: &str = "NCCL_IB_RESILIENCY_PORT_RECOVERY";
    let listed = if name.starts_with(RECOVERY) {
        RECOVERY
    } else {
        name
    };
    UNUSED.iter().find(|(known, _)| *known == listed).copied()
}
