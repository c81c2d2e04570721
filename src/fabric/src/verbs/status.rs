//! What a completion's status of libibverbs means to us: one table.

use ibverbs_sys::ibv_wc_status::{self as code, Type};

use crate::Status;

/// The status of each code that we tell apart; any other is [`Status::Other`].
const TABLE: [(Type, Status); 11] = [
    (code::IBV_WC_SUCCESS, Status::Success),
    (code::IBV_WC_LOC_LEN_ERR, Status::LocalLength),
    (code::IBV_WC_LOC_QP_OP_ERR, Status::LocalQueuePair),
    (code::IBV_WC_LOC_PROT_ERR, Status::LocalProtection),
    (code::IBV_WC_WR_FLUSH_ERR, Status::Flushed),
    (code::IBV_WC_REM_INV_REQ_ERR, Status::RemoteInvalidRequest),
    (code::IBV_WC_REM_ACCESS_ERR, Status::RemoteAccess),
    (code::IBV_WC_REM_OP_ERR, Status::RemoteOperation),
    (code::IBV_WC_RETRY_EXC_ERR, Status::RetryExceeded),
    (code::IBV_WC_RNR_RETRY_EXC_ERR, Status::ReceiverNotReady),
    (code::IBV_WC_FATAL_ERR, Status::Fatal),
];

/// What `status` of a work completion means.
pub(super) fn of(status: Type) -> Status {
    let found = TABLE.iter().find(|(known, _)| *known == status);
    found.map_or(Status::Other(status), |(_, meaning)| *meaning)
}

/// What `status` of a receive's completion means. The words of a requester say there what was wrong
/// with the peer's request, which the peer is told; for this end the receive is lost with the queue
/// pair. Soft-RoCE has them, NICs flush.
pub(super) fn of_receive(status: Type) -> Status {
    match of(status) {
        Status::RemoteAccess | Status::RemoteInvalidRequest | Status::RemoteOperation => {
            Status::Flushed
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code of libibverbs, by its number in the interface of the kernel.
    #[test]
    fn every_status_has_its_meaning() {
        let expected = [
            Status::Success,
            Status::LocalLength,
            Status::LocalQueuePair,
            Status::Other(3), // IBV_WC_LOC_EEC_OP_ERR
            Status::LocalProtection,
            Status::Flushed,
            Status::Other(6), // IBV_WC_MW_BIND_ERR
            Status::Other(7), // IBV_WC_BAD_RESP_ERR
            Status::Other(8), // IBV_WC_LOC_ACCESS_ERR
            Status::RemoteInvalidRequest,
            Status::RemoteAccess,
            Status::RemoteOperation,
            Status::RetryExceeded,
            Status::ReceiverNotReady,
            Status::Other(14), // IBV_WC_LOC_RDD_VIOL_ERR
            Status::Other(15), // IBV_WC_REM_INV_RD_REQ_ERR
            Status::Other(16), // IBV_WC_REM_ABORT_ERR
            Status::Other(17), // IBV_WC_INV_EECN_ERR
            Status::Other(18), // IBV_WC_INV_EEC_STATE_ERR
            Status::Fatal,
            Status::Other(20), // IBV_WC_RESP_TIMEOUT_ERR
            Status::Other(21), // IBV_WC_GENERAL_ERR
            Status::Other(22), // IBV_WC_TM_ERR
            Status::Other(23), // IBV_WC_TM_RNDV_INCOMPLETE
            Status::Other(24), // not known yet
        ];
        for (status, meaning) in (0..).zip(expected) {
            assert_eq!(of(status), meaning, "status {status}");
            let of_peer = [9, 10, 11].contains(&status);
            let expected = if of_peer { Status::Flushed } else { meaning };
            assert_eq!(of_receive(status), expected, "status {status} of a receive");
        }
    }
}
