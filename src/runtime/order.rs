//! Which NICs the paths of a connection have, at both ends.
//!
//! Path 0 has the two that NCCL chose. The sending side orders the others by how near they are to
//! its own, and both ends count as far on from theirs: NICs of one rail stay together when NCCL has
//! chosen one rail, also where the hosts are not alike.

use std::cmp::Reverse;

use r2ccl_core::PathId;

use super::nic::Nic;

/// Where a NIC sits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Identifies the adapter; ports of one have the same.
    pub guid: u64,
    /// Path of its PCI device in sysfs; empty for a NIC without one.
    pub pci_path: String,
    /// Its NUMA node, if the system says.
    pub numa_node: Option<u32>,
}

impl Place {
    /// Of a NIC of this process.
    fn of(nic: &Nic) -> Self {
        let info = nic.device.info();
        Self {
            guid: info.guid,
            pci_path: info.pci_path.clone().unwrap_or_default(),
            numa_node: nic.numa_node,
        }
    }

    /// The less the nearer. A port of the same adapter is the last choice: it dies with it.
    fn distance(&self, other: &Self) -> impl Ord + use<> {
        let is_same_adapter = self.guid == other.guid;
        let is_far = self.numa_node != other.numa_node;
        let ways = self.pci_path.split('/').zip(other.pci_path.split('/'));
        let common = ways.take_while(|(one, two)| one == two).count();
        (is_same_adapter, is_far, Reverse(common))
    }
}

/// The NICs of this end by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Number of the NIC of path 0.
    pub first: i32,
    /// NICs of this end.
    count: usize,
    /// By how much the number of each path's NIC is above that of path 0's, at both ends.
    pub steps: Vec<u8>,
}

impl Order {
    /// That of a connection which NCCL makes at the sending side on NIC `first` of these.
    pub fn near(nics: &[Nic], first: i32) -> Self {
        let places: Vec<_> = nics.iter().map(Place::of).collect();
        Self::by_place(&places, first)
    }

    fn by_place(places: &[Place], first: i32) -> Self {
        let (count, own) = (places.len(), usize::try_from(first).unwrap_or(0));
        let mut steps: Vec<_> = (1..count).collect();
        if let Some(place) = places.get(own) {
            // Stable: the next in number comes first where nothing else decides.
            steps.sort_by_key(|step| place.distance(&places[(own + step) % count]));
        }
        let steps = std::iter::once(0).chain(steps);
        Self {
            first,
            count,
            steps: steps.map(|step| step as u8).collect(),
        }
    }

    /// At the receiving side, where NCCL has chosen NIC `first`, the one that the sending side has
    /// said. There are no rails between hosts with `theirs` and `ours` NICs, if that is not equal,
    /// and their steps around fewer NICs might lead back to the same one.
    pub fn said(steps: &[u8], first: i32, (theirs, ours): (u8, u8)) -> Self {
        let steps = if theirs == ours { steps } else { &[] };
        Self {
            first,
            count: ours.into(),
            steps: steps.to_vec(),
        }
    }

    /// Number of this end's NIC of `path`. What no step is said for follows in the order of the
    /// numbers.
    pub fn nic(&self, path: PathId) -> i32 {
        let step = self.steps.get(path.index());
        let step = step.map_or(path.index(), |step| (*step).into());
        let first = usize::try_from(self.first).unwrap_or(0);
        ((first + step) % self.count.max(1)) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(guid: u64, numa_node: u32, pci_path: &str) -> Place {
        Place {
            guid,
            pci_path: format!("/sys/devices/{pci_path}"),
            numa_node: Some(numa_node),
        }
    }

    /// Two adapters of two ports behind one switch, one behind another, one at the other socket.
    fn places() -> Vec<Place> {
        vec![
            place(1, 0, "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0"),
            place(1, 0, "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.1"),
            place(2, 0, "pci0000:40/0000:40:01.0/0000:41:00.0"),
            place(3, 0, "pci0000:16/0000:16:01.0/0000:17:01.0/0000:19:00.0"),
            place(4, 1, "pci0000:96/0000:96:01.0/0000:97:00.0"),
        ]
    }

    fn nics(order: &Order, paths: u8) -> Vec<i32> {
        let paths = (0..paths).filter_map(PathId::new);
        paths.map(|path| order.nic(path)).collect()
    }

    #[test]
    fn near_ones_come_first_and_ports_of_the_same_adapter_last() {
        let order = |first| nics(&Order::by_place(&places(), first), 5);
        assert_eq!(order(0), [0, 3, 2, 4, 1]);
        assert_eq!(order(1), [1, 3, 2, 4, 0]);
        assert_eq!(order(2), [2, 3, 0, 1, 4]);
        assert_eq!(order(4), [4, 0, 1, 2, 3]);
    }

    #[test]
    fn without_places_the_numbers_decide_and_rails_stay_together() {
        let alike: Vec<_> = (0..4)
            .map(|guid| Place {
                guid,
                ..Place::default()
            })
            .collect();
        assert_eq!(Order::by_place(&alike, 2).steps, [0, 1, 2, 3]);
        let steps = Order::by_place(&places(), 0).steps;
        // The same rails at the other end; where there are none, the backup has another NIC.
        assert_eq!(nics(&Order::said(&steps, 0, (5, 5)), 5), [0, 3, 2, 4, 1]);
        assert_eq!(nics(&Order::said(&steps, 1, (5, 2)), 5), [1, 0, 1, 0, 1]);
        assert_eq!(nics(&Order::said(&steps, 0, (5, 0)), 1), [0]);
    }
}
