//! How a fabric knows queue pairs: by the number that each has on its NIC, which is given anew when
//! its queue pair is gone, and by numbers on packets.

use crate::fabric::{Fabric, NicId};
use crate::nic::{Effect, Nics, Packet, Qp, QpId};

/// Packet numbers have 24 bits.
const SEQUENCE_MASK: u64 = (1 << 24) - 1;

/// Packet numbers from which a queue pair may begin.
pub const STARTS: u64 = SEQUENCE_MASK + 1;

/// Packet numbers that queue pairs have for themselves in [`start_apart`]: more than one uses.
const STRETCH: u64 = 1 << 14;

/// Where queue pair `qp` begins to count. Numbers that are drawn hardly ever meet those of others
/// that are under way; in a million worlds some would.
pub fn start_apart(qp: QpId, drawn: u64) -> u64 {
    (qp as u64 * STRETCH + drawn % (STRETCH / 2)) & SEQUENCE_MASK
}

/// The packet number of the work request at `ordinal`.
fn sequence(of: &Qp, ordinal: u64) -> u64 {
    (of.start + ordinal) & SEQUENCE_MASK
}

/// Which queue pair has which number, by NIC. The lowest number that is free is given next: the
/// worst that a device may do.
#[derive(Debug, Default)]
pub struct Numbers {
    taken: Vec<Vec<Option<QpId>>>,
}

impl Numbers {
    /// A number for a new queue pair.
    pub fn take(&mut self, nic: NicId, qp: QpId) -> usize {
        if self.taken.len() <= nic {
            self.taken.resize_with(nic + 1, Vec::new);
        }
        let taken = &mut self.taken[nic];
        let free = taken.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            taken.push(None);
            taken.len() - 1
        });
        taken[number] = Some(qp);
        number
    }

    /// A queue pair is destroyed.
    pub fn release(&mut self, entry: &Qp, qp: QpId) {
        let taken = &mut self.taken[entry.nic][entry.number];
        *taken = taken.filter(|&holder| holder != qp);
    }

    /// The queue pair of a number.
    pub fn holder(&self, (nic, number): (NicId, usize)) -> Option<QpId> {
        self.taken.get(nic)?.get(number).copied().flatten()
    }
}

impl Nics {
    /// A queue pair is gone, and its number free.
    pub fn release(&mut self, qp: QpId) {
        self.numbers.release(&self.qps[qp], qp);
    }

    /// The queue pair that a packet comes to. If that is another than it was sent to, it drops the
    /// packet, unless it comes from the right NIC with the number that is expected next: then it
    /// takes it for its own, and that is an error.
    pub(crate) fn target(&self, packet: &Packet) -> Result<Option<QpId>, String> {
        let Some(holder) = self.numbers.holder(packet.to) else {
            return Ok(None);
        };
        let entry = &self.qps[holder];
        let Some(peer) = entry.peer else {
            return Ok(None);
        };
        if peer == packet.from {
            return Ok(Some(holder));
        }
        let (peer, source) = (&self.qps[peer], &self.qps[packet.from]);
        let is_next = sequence(source, packet.ordinal) == sequence(peer, entry.expected.0)
            && packet.part == entry.expected.1;
        if peer.nic == source.nic && is_next && entry.is_ready() {
            return Err(format!(
                "queue pair {holder} took a packet of queue pair {} for its own",
                packet.from
            ));
        }
        Ok(None)
    }

    /// Whether a queue pair still has its number.
    pub(crate) fn is_holder(&self, qp: QpId) -> bool {
        self.numbers.holder(self.qps[qp].address()) == Some(qp)
    }

    /// An acknowledgement of what queue pair `gone` had posted before `ordinal` comes to the one
    /// that has its number now. That drops it, unless it comes from the right NIC and names one of
    /// its own packets that are under way: then it takes it for its own, and that is an error.
    pub(crate) fn stray(&self, gone: QpId, ordinal: u64) -> Effect {
        let gone = &self.qps[gone];
        let Some(holder) = self.numbers.holder(gone.address()) else {
            return Effect::None;
        };
        let entry = &self.qps[holder];
        let nic = |peer: Option<QpId>| peer.map(|peer| self.qps[peer].nic);
        let Some(&(first, _)) = entry.sends.front() else {
            return Effect::None;
        };
        let named = sequence(gone, ordinal).wrapping_sub(1 + sequence(entry, first));
        let is_own = (named & SEQUENCE_MASK) < entry.departed as u64;
        if is_own && entry.is_ready() && nic(entry.peer) == nic(gone.peer) {
            let text = format!("queue pair {holder} took an acknowledgement for its own");
            return Effect::Mistaken(text);
        }
        Effect::None
    }

    /// Whether what a queue pair sends finds its way: the ports at both ends have the addresses
    /// that it knows.
    pub(crate) fn is_addressed(&self, qp: QpId, fabric: &Fabric) -> bool {
        let entry = &self.qps[qp];
        let address = |qp: QpId| fabric.nics[self.qps[qp].nic].address;
        let is_there = |peer| address(peer) == entry.peer_port;
        address(qp) == entry.port && entry.peer.is_some_and(is_there)
    }
}
