//! Which GID a port uses: chosen by content, as NCCL's own transport chooses it.
//!
//! The index of a GID is only good for the moment: it moves when addresses come and go. So the
//! table is read at every use, and a queue pair remembers its GID, not the index.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

/// A global identifier: the address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Gid(pub [u8; 16]);

/// Address family of a GID of an Ethernet port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    /// IP version 4.
    V4,
    /// IP version 6.
    V6,
}

/// What of a GID's address counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// First address, or any other in the range.
    pub address: IpAddr,
    /// Leading bits that must be equal.
    pub prefix_bits: u8,
}

/// How the GID of an Ethernet port is chosen. InfiniBand ports use their first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidPolicy {
    /// This index and no other.
    pub index: Option<u32>,
    /// RoCE version, 1 or 2.
    pub roce_version: u8,
    /// Wanted family.
    pub family: AddressFamily,
    /// Wanted range; counts only if it is of the wanted family.
    pub range: Option<AddressRange>,
}

impl Default for GidPolicy {
    /// NCCL's own default.
    fn default() -> Self {
        Self {
            index: None,
            roce_version: 2,
            family: AddressFamily::V4,
            range: None,
        }
    }
}

/// An entry of a port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) index: u32,
    pub(super) gid: Gid,
    /// RoCE version; `None` for InfiniBand or if it is not known.
    pub(super) version: Option<u8>,
}

impl Gid {
    fn address(self) -> Ipv6Addr {
        Ipv6Addr::from(self.0)
    }

    fn family(self) -> AddressFamily {
        // NCCL counts multicast addresses of the mapped form, too.
        let mapped = self.0[2..10] == [0; 8] && self.0[10..12] == [0xff; 2];
        let unicast = self.0[..2] == [0, 0];
        let multicast = self.0[..2] == [0xff, 0x0e];
        if mapped && (unicast || multicast) {
            AddressFamily::V4
        } else {
            AddressFamily::V6
        }
    }

    fn is_configured(self) -> bool {
        self.0 != [0; 16]
    }

    fn is_link_local(self) -> bool {
        self.0[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0]
    }

    fn is_usable(self) -> bool {
        self.is_configured() && !self.is_link_local()
    }

    /// The part that ports of one InfiniBand subnet share.
    pub(super) fn subnet(self) -> [u8; 8] {
        let mut subnet = [0; 8];
        subnet.copy_from_slice(&self.0[..8]);
        subnet
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address().to_ipv4_mapped() {
            Some(address) => address.fmt(out),
            None => self.address().fmt(out),
        }
    }
}

impl fmt::Display for AddressFamily {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::V4 => "4",
            Self::V6 => "6",
        })
    }
}

impl AddressRange {
    fn holds(self, gid: Gid) -> bool {
        let (own, other) = match self.address {
            IpAddr::V4(address) => {
                let last = u32::from_be_bytes([gid.0[12], gid.0[13], gid.0[14], gid.0[15]]);
                let shift = |word: u32| u128::from(word) << 96;
                (shift(address.to_bits()), shift(last))
            }
            IpAddr::V6(address) => (address.to_bits(), u128::from_be_bytes(gid.0)),
        };
        let bits = u32::from(self.prefix_bits).min(128);
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        own & mask == other & mask
    }
}

impl GidPolicy {
    fn range_holds(&self, gid: Gid) -> bool {
        let is_v4 = self.family == AddressFamily::V4;
        let range = self.range.filter(|range| range.address.is_ipv4() == is_v4);
        range.is_none_or(|range| range.holds(gid))
    }

    /// Whether an entry is all that is asked for.
    pub(super) fn is_met_by(&self, entry: &Entry) -> bool {
        self.index.is_some()
            || entry.gid.family() == self.family
                && entry.gid.is_usable()
                && entry.version == Some(self.roce_version)
                && self.range_holds(entry.gid)
    }

    /// The entry of an Ethernet port's table that NCCL would take; `None`: none that has an
    /// address. NCCL begins with index 0 and goes on to a better one: of the wanted family and
    /// range, then of the wanted version. What it ends with may be less than
    /// [`GidPolicy::is_met_by`] asks for.
    pub(super) fn choose(&self, table: &[Entry]) -> Option<Entry> {
        if let Some(index) = self.index {
            let found = table.iter().find(|entry| entry.index == index);
            return found.filter(|entry| entry.gid.is_configured()).copied();
        }
        let unset = Entry {
            index: 0,
            gid: Gid::default(),
            version: None,
        };
        let first = table.iter().find(|entry| entry.index == 0);
        let mut chosen = first.copied().unwrap_or(unset);
        for entry in table.iter().filter(|entry| entry.index != 0) {
            if entry.gid.family() != self.family || !self.range_holds(entry.gid) {
                continue;
            }
            let is_first_of_family = chosen.gid.family() != self.family;
            let is_better = (chosen.version != entry.version || !chosen.gid.is_usable())
                && entry.version == Some(self.roce_version)
                && entry.gid.is_usable();
            if is_first_of_family || is_better {
                chosen = *entry;
            }
        }
        Some(chosen).filter(|entry| entry.gid.is_configured())
    }
}

/// The table of a port as sysfs shows it, for libraries that are too old to be asked.
pub(super) fn read_table(port_folder: &Path, length: u32) -> Vec<Entry> {
    let text = |file: String| std::fs::read_to_string(port_folder.join(file)).ok();
    let entry = |index| {
        let gid: Ipv6Addr = text(format!("gids/{index}"))?.trim().parse().ok()?;
        let kind = text(format!("gid_attrs/types/{index}"));
        let version = kind.and_then(|kind| match kind.trim() {
            "IB/RoCE v1" | "RoCE v1" => Some(1),
            "RoCE v2" => Some(2),
            _ => None,
        });
        let gid = Gid(gid.octets());
        Some(Entry {
            index,
            gid,
            version,
        })
    };
    let entries = (0..length).filter_map(entry);
    entries.filter(|entry| entry.gid.is_configured()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, address: &str, version: u8) -> Entry {
        let address: Ipv6Addr = address.parse().expect("an address");
        Entry {
            index,
            gid: Gid(address.octets()),
            version: Some(version),
        }
    }

    fn chosen(policy: GidPolicy, table: &[Entry]) -> Option<u32> {
        policy.choose(table).map(|entry| entry.index)
    }

    /// A port with two addresses, as mlx5 lists it: each GID once for each version of RoCE.
    fn usual() -> Vec<Entry> {
        vec![
            entry(0, "fe80::1", 1),
            entry(1, "fe80::1", 2),
            entry(2, "::ffff:10.1.0.7", 1),
            entry(3, "::ffff:10.1.0.7", 2),
            entry(4, "fd00::7", 1),
            entry(5, "fd00::7", 2),
            entry(6, "::ffff:10.2.0.7", 1),
            entry(7, "::ffff:10.2.0.7", 2),
        ]
    }

    #[test]
    fn version_4_over_roce_2_is_the_default() {
        let policy = GidPolicy::default();
        assert_eq!(chosen(policy, &usual()), Some(3));
        assert!(policy.is_met_by(&usual()[3]));
        for index in [0, 1, 2, 4, 5] {
            assert!(!policy.is_met_by(&usual()[index]), "{index}");
        }
        assert_eq!(
            policy.choose(&usual()).expect("one").gid.to_string(),
            "10.1.0.7"
        );
    }

    #[test]
    fn each_wish_is_honoured() {
        let range = |text: &str, prefix_bits| {
            let address = text.parse().expect("an address");
            Some(AddressRange {
                address,
                prefix_bits,
            })
        };
        let default = GidPolicy::default();
        let v6 = AddressFamily::V6;
        let cases = [
            (
                GidPolicy {
                    roce_version: 1,
                    ..default
                },
                Some(2),
            ),
            (
                GidPolicy {
                    family: v6,
                    ..default
                },
                Some(5),
            ),
            (
                GidPolicy {
                    family: v6,
                    roce_version: 1,
                    ..default
                },
                Some(4),
            ),
            (
                GidPolicy {
                    range: range("10.2.0.0", 16),
                    ..default
                },
                Some(7),
            ),
            (
                GidPolicy {
                    range: range("10.2.0.0", 8),
                    ..default
                },
                Some(3),
            ),
            (
                GidPolicy {
                    range: range("10.2.0.0", 0),
                    ..default
                },
                Some(3),
            ),
            (
                GidPolicy {
                    range: range("10.2.0.7", 32),
                    ..default
                },
                Some(7),
            ),
            // Of the other family: it does not count.
            (
                GidPolicy {
                    range: range("fd00::", 8),
                    ..default
                },
                Some(3),
            ),
            (
                GidPolicy {
                    family: v6,
                    range: range("fd00::", 8),
                    ..default
                },
                Some(5),
            ),
            (
                GidPolicy {
                    index: Some(1),
                    ..default
                },
                Some(1),
            ),
            (
                GidPolicy {
                    index: Some(9),
                    ..default
                },
                None,
            ),
        ];
        for (policy, expected) in cases {
            assert_eq!(chosen(policy, &usual()), expected, "{policy:?}");
        }
    }

    #[test]
    fn without_a_match_nccl_stays_with_what_it_has() {
        let bare = [entry(0, "fe80::1", 1), entry(1, "fe80::1", 2)];
        let policy = GidPolicy::default();
        assert_eq!(chosen(policy, &bare), Some(0));
        assert!(!policy.is_met_by(&bare[0]));
        assert_eq!(chosen(policy, &[]), None);
        let only_v1 = [entry(0, "fe80::1", 1), entry(2, "::ffff:10.1.0.7", 1)];
        assert_eq!(chosen(policy, &only_v1), Some(2));
        assert!(!policy.is_met_by(&only_v1[1]));
    }

    #[test]
    fn tables_with_holes_are_read() {
        let folder = std::env::temp_dir().join(format!("r2ccl-gids-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let file = folder.join(name);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            std::fs::write(file, text).expect("a file");
        };
        write("gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n");
        write("gid_attrs/types/0", "IB/RoCE v1\n");
        write("gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
        write("gids/3", "0000:0000:0000:0000:0000:ffff:0a01:0007\n");
        write("gid_attrs/types/3", "RoCE v2\n");
        write("gids/4", "0000:0000:0000:0000:0000:ffff:0a01:0008\n");
        let table = read_table(&folder, 8);
        std::fs::remove_dir_all(&folder).expect("removed");
        let unknown = Entry {
            version: None,
            ..entry(4, "::ffff:10.1.0.8", 0)
        };
        let expected = [
            entry(0, "fe80::1", 1),
            entry(3, "::ffff:10.1.0.7", 2),
            unknown,
        ];
        assert_eq!(table, expected);
    }
}
