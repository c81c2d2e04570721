//! Faults that a software NIC is told to have. In health they cost a load of a word that nobody
//! writes.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::Fault;

const CUTS_SENDING: u32 = 1;
const CUTS_RECEIVING: u32 = 1 << 1;
const LINK_IS_LOST: u32 = 1 << 2;

/// Which faults are in force.
#[derive(Default)]
pub(super) struct Faults(AtomicU32);

impl Faults {
    pub(super) fn set(&self, fault: Fault) {
        let bits = match fault {
            Fault::Kill => CUTS_SENDING | CUTS_RECEIVING | LINK_IS_LOST,
            Fault::CutSend => CUTS_SENDING,
            Fault::CutReceive => CUTS_RECEIVING,
            Fault::BlackHole => CUTS_SENDING | CUTS_RECEIVING,
            Fault::Restore | Fault::Slow { .. } => 0,
        };
        self.0.store(bits, Ordering::Relaxed);
    }

    fn has(&self, bits: u32) -> bool {
        self.0.load(Ordering::Relaxed) & bits != 0
    }

    /// Nothing leaves the NIC.
    pub(super) fn cuts_sending(&self) -> bool {
        self.has(CUTS_SENDING)
    }

    /// Nothing reaches it.
    pub(super) fn cuts_receiving(&self) -> bool {
        self.has(CUTS_RECEIVING)
    }

    /// Either: no connection can be made.
    pub(super) fn is_cut(&self) -> bool {
        self.has(CUTS_SENDING | CUTS_RECEIVING)
    }

    /// The port has no link.
    pub(super) fn link_is_lost(&self) -> bool {
        self.has(LINK_IS_LOST)
    }
}
