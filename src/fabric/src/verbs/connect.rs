//! Bringing a queue pair to the state in which it sends and receives. Looks for the peer's hardware
//! address, which may take a second: only on helper threads.

use std::io;
use std::sync::Arc;

use ibverbs_sys as sys;
use sys::ibv_qp_attr_mask as mask;
use sys::ibv_qp_state as state;

use super::address::{Address, ETHERNET};
use super::endpoint::{Endpoint, Stage};
use crate::helpers;
use crate::{DeviceError, Traffic};

/// Tries to find the peer's hardware address, of a second each.
const RESOLVE_TRIES: usize = 3;
/// 0.64 ms between a receiver that is not ready and the next try, as NCCL has it.
const RECEIVER_NOT_READY_TIMER: u8 = 12;
/// A receiver that is not ready is asked again without end.
const RECEIVER_NOT_READY_RETRIES: u8 = 7;
const HOPS_MAX: u8 = 255;

/// Has a helper connect the queue pair to `remote`; its stage tells how it went.
pub(super) fn start(endpoint: &Arc<Endpoint>, remote: Address) -> Result<(), DeviceError> {
    endpoint.set_stage(Stage::Connecting);
    let endpoint = endpoint.clone();
    helpers::submit(Box::new(move || {
        let stage = match bring_up(&endpoint, &remote) {
            Ok(()) => Stage::Ready,
            Err(error) => {
                if !endpoint.is_closed() {
                    tracing::warn!("{error}");
                }
                Stage::Failed
            }
        };
        endpoint.set_stage(stage);
    }))
}

/// Brings the queue pair up; blocks.
pub(super) fn bring_up(endpoint: &Endpoint, remote: &Address) -> Result<(), DeviceError> {
    let failed = |error: io::Error| {
        endpoint.port.error(&format!(
            "no connection from {} to {}: {error}; see that both ports are up, that this host has \
             a route to that address through the device, and that no firewall drops UDP port 4791",
            endpoint.address.gid, remote.gid
        ))
    };
    let mut tries = RESOLVE_TRIES;
    loop {
        let mut attributes = ready_to_receive(endpoint, remote)?;
        let what = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        match endpoint.modify(&mut attributes, what) {
            Ok(()) => {
                endpoint.introduce(attributes.ah_attr, remote);
                break;
            }
            Err(error) => {
                tries -= 1;
                let is_silence = error.raw_os_error() == Some(libc::ETIMEDOUT);
                if !is_silence || tries == 0 || endpoint.is_closed() {
                    return Err(failed(error));
                }
            }
        }
    }
    let config = &endpoint.port.config;
    let mut attributes = sys::ibv_qp_attr {
        qp_state: state::IBV_QPS_RTS,
        sq_psn: endpoint.address.first_packet,
        timeout: config.timeout,
        retry_cnt: config.retry_count,
        rnr_retry: RECEIVER_NOT_READY_RETRIES,
        max_rd_atomic: 1,
        ..Default::default()
    };
    let what = mask::IBV_QP_STATE
        | mask::IBV_QP_SQ_PSN
        | mask::IBV_QP_TIMEOUT
        | mask::IBV_QP_RETRY_CNT
        | mask::IBV_QP_RNR_RETRY
        | mask::IBV_QP_MAX_QP_RD_ATOMIC;
    endpoint.modify(&mut attributes, what).map_err(failed)
}

/// What to set for the change to ready-to-receive. The index of the GID is looked up here, at the
/// last moment.
fn ready_to_receive(
    endpoint: &Endpoint,
    remote: &Address,
) -> Result<sys::ibv_qp_attr, DeviceError> {
    let own = &endpoint.address;
    let config = &endpoint.port.config;
    let mut attributes = sys::ibv_qp_attr {
        qp_state: state::IBV_QPS_RTR,
        path_mtu: own.mtu.min(remote.mtu).into(),
        dest_qp_num: remote.number,
        rq_psn: remote.first_packet,
        max_dest_rd_atomic: 1,
        min_rnr_timer: RECEIVER_NOT_READY_TIMER,
        ..Default::default()
    };
    let way = &mut attributes.ah_attr;
    way.sl = config.service_level;
    way.port_num = endpoint.port.number as u8;
    way.dlid = remote.lid;
    let is_routed = own.link_layer == ETHERNET || own.gid.subnet() != remote.gid.subnet();
    if is_routed {
        way.is_global = 1;
        way.grh.dgid.raw = remote.gid.0;
        way.grh.sgid_index = endpoint.port.find_gid(own.gid)?;
        way.grh.hop_limit = HOPS_MAX;
        way.grh.traffic_class = match endpoint.traffic {
            Traffic::Data => config.traffic_class,
            Traffic::Control => config.control_traffic_class,
        };
    }
    Ok(attributes)
}
