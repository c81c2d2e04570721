//! Which NICs this host has: what NCCL's own transport would list, in its order.

use std::sync::Arc;

use ibverbs_sys as sys;
use once_cell::sync::OnceCell;
use sys::ibv_port_state::IBV_PORT_ACTIVE;

use super::VerbsConfig;
use super::address::ETHERNET;
use super::context::{Context, DeviceList};
use super::device::{NO_GID, Port, VerbsDevice, choose_gid};
use super::gid::GidPolicy;
use super::library::Library;
use crate::{DeviceError, NicInfo, WriteSource};

/// Ports that a device may have, for the question whether any of them is wanted.
const PORTS_MAX: u32 = 8;
/// InfiniBand, as `IBV_LINK_LAYER_INFINIBAND` has it.
const INFINIBAND: u8 = 1;
/// Mbit/s of one lane, for each bit of `active_speed`.
const LANE_MBPS: [u32; 8] = [
    2_500, 5_000, 10_000, 10_000, 14_000, 25_000, 50_000, 100_000,
];
/// Lanes, for each bit of `active_width`.
const LANES: [u32; 5] = [1, 4, 8, 12, 2];

/// A port that can be used.
pub struct FoundPort {
    /// The NIC.
    pub device: Arc<VerbsDevice>,
    /// Whether its link was up. NCCL's own transport lists no other ones.
    pub is_up: bool,
}

/// What the search has found.
#[derive(Default)]
pub struct Found {
    /// In NCCL's order, with those whose link is down in between; none if all are.
    pub ports: Vec<FoundPort>,
    /// What is not as the user may expect, and what to do; full sentences.
    pub notes: Vec<String>,
}

/// A port before its number among ports of equal PCI device is known.
struct Candidate {
    port: Port,
    pci: Option<String>,
    is_up: bool,
}

/// Opens the ports that `allows`, by name of the device and number of the port.
///
/// # Errors
/// libibverbs is absent or finds no list of devices.
pub fn open_all(
    config: &VerbsConfig,
    allows: &dyn Fn(&str, u32) -> bool,
) -> Result<Found, DeviceError> {
    let library = Library::get(config.library.as_deref())?;
    let list = DeviceList::get(library)?;
    let mut found = Found::default();
    let mut candidates = Vec::new();
    let mut names = Vec::new();
    let mut closed = Closed::default();
    for device in list.iter() {
        let name = list.name(device)?;
        names.push(name.clone());
        // A device that is left out is not even opened: it may be broken.
        if !(1..=PORTS_MAX).any(|port| allows(&name, port)) {
            continue;
        }
        match Context::open(library, device, name, &config.sysfs) {
            Ok(context) => {
                let ports = 1..=u32::from(context.attributes.phys_port_cnt);
                for port in ports.filter(|port| allows(&context.name, *port)) {
                    match Candidate::new(&context, port, config, &mut found.notes) {
                        Ok(candidate) => candidates.push(candidate),
                        Err(reason) => found.notes.push(reason.to_string()),
                    }
                }
            }
            Err(error) => closed.add(error.to_string(), names.last()),
        }
    }
    found.notes.extend(closed.notes());
    if !candidates.iter().any(|candidate| candidate.is_up) {
        candidates.clear();
        found.notes.push(match names.len() {
            0 => "no RDMA device found: load the drivers (rdma-core), or give the container \
                  /dev/infiniband and /sys/class/infiniband"
                .into(),
            _ => format!(
                "no RDMA port can be used; devices of this host: {}; NCCL_IB_HCA chooses among \
                 them",
                names.join(", ")
            ),
        });
    }
    found.ports = arrange(candidates, config.is_in_pci_order);
    Ok(found)
}

/// Devices that cannot be opened, by reason: a container without rights would tell the same of all.
#[derive(Default)]
struct Closed(Vec<(String, Vec<String>)>);

impl Closed {
    fn add(&mut self, reason: String, name: Option<&String>) {
        let known = self.0.iter().position(|(known, _)| *known == reason);
        let index = known.unwrap_or_else(|| {
            self.0.push((reason, Vec::new()));
            self.0.len() - 1
        });
        self.0[index].1.extend(name.cloned());
    }

    fn notes(&self) -> impl Iterator<Item = String> + '_ {
        let note =
            |(reason, names): &(String, Vec<String>)| format!("{} {reason}", names.join(", "));
        self.0.iter().map(note)
    }
}

impl Candidate {
    fn new(
        context: &Arc<Context>,
        number: u32,
        config: &VerbsConfig,
        notes: &mut Vec<String>,
    ) -> Result<Self, DeviceError> {
        let name = port_name(&context.name, number);
        let error = |text: &str| DeviceError(format!("{name} is left out: {text}"));
        let port = context.query_port(number)?;
        let is_up = port.state == IBV_PORT_ACTIVE;
        if port.link_layer != ETHERNET && port.link_layer != INFINIBAND {
            return Err(error("it is neither InfiniBand nor Ethernet"));
        }
        let is_ethernet = port.link_layer == ETHERNET;
        let table = context.gid_table(number, port.gid_tbl_len.max(0) as u32);
        let gid = choose_gid(table, config, is_ethernet);
        // A port that is down may get its address when it comes up.
        if gid.is_none() && is_up {
            return Err(error(NO_GID));
        }
        if !is_up {
            notes.push(error("its link is down; it stands by from when it is up").to_string());
        }
        let is_met = gid.is_some_and(|gid| config.gid.is_met_by(&gid));
        if let Some(gid) = gid.filter(|_| is_up && is_ethernet && !is_met) {
            let GidPolicy {
                roce_version,
                family,
                ..
            } = config.gid;
            notes.push(format!(
                "{name}: no address of the wanted kind (RoCE version {roce_version}, IP version \
                 {family}); {} is used, which may not reach other subnets. Give its interface such \
                 an address, or see NCCL_IB_GID_INDEX, NCCL_IB_ROCE_VERSION_NUM, \
                 NCCL_IB_ADDR_FAMILY and NCCL_IB_ADDR_RANGE",
                gid.gid
            ));
        }
        let pci = std::fs::canonicalize(context.folder.join("device")).ok();
        let pci = pci.and_then(|path| path.into_os_string().into_string().ok());
        let rate = std::fs::read_to_string(context.folder.join(format!("ports/{number}/rate")));
        let speed = rate.ok().and_then(|rate| rate_mbps(&rate));
        let info = NicInfo {
            name,
            guid: u64::from_be(context.attributes.sys_image_guid),
            port: number,
            speed_mbps: speed.unwrap_or_else(|| lanes_mbps(port.active_speed, port.active_width)),
            pci_path: pci
                .as_deref()
                .map(|path| merged_pci_path(path, config.merges_functions)),
            address: gid.map_or_else(String::new, |gid| gid.gid.to_string()),
            queue_pairs_max: context.attributes.max_qp.max(0) as u32,
            message_bytes_max: u64::from(port.max_msg_sz),
            inline_bytes_max: WriteSource::INLINE_BYTES_MAX,
            needs_program: false,
        };
        let port = Port {
            context: context.clone(),
            number,
            config: config.clone(),
            info,
            is_ethernet,
            home: gid.filter(|_| is_up || is_met),
            prober: OnceCell::new(),
        };
        Ok(Self { port, pci, is_up })
    }
}

/// The devices in NCCL's order: by PCI address, those without one last.
fn arrange(mut candidates: Vec<Candidate>, is_in_pci_order: bool) -> Vec<FoundPort> {
    if is_in_pci_order {
        candidates.sort_by_key(|candidate| pci_order(candidate.pci.as_deref()));
    }
    let listed = candidates.iter_mut().filter(|it| it.is_up);
    number(listed.map(|it| &mut it.port.info));
    let open = |candidate: Candidate| FoundPort {
        is_up: candidate.is_up,
        device: VerbsDevice::new(candidate.port),
    };
    candidates.into_iter().map(open).collect()
}

/// NCCL tells ports of one PCI path apart by a number that counts those before it.
fn number<'a>(infos: impl Iterator<Item = &'a mut NicInfo>) {
    let mut seen: Vec<String> = Vec::new();
    for info in infos {
        if let Some(path) = &info.pci_path {
            info.port += seen.iter().filter(|other| *other == path).count() as u32;
            seen.push(path.clone());
        }
    }
}

fn port_name(device: &str, port: u32) -> String {
    match port {
        1 => device.to_owned(),
        _ => format!("{device}:{port}"),
    }
}

/// The path of the adapter as NCCL writes it: all ports of one adapter have the same, and so have
/// its virtual functions if they are to be merged.
fn merged_pci_path(path: &str, merges_functions: bool) -> String {
    let mut bytes = path.as_bytes().to_vec();
    let length = bytes.len();
    // `…/0000:3b:01.2` becomes `…/0000:3b:00.0`, or else `…/0000:3b:01.0`.
    let zeroed: &[usize] = if merges_functions { &[1, 3, 4] } else { &[1] };
    for &from_end in zeroed {
        if let Some(byte) = length
            .checked_sub(from_end)
            .and_then(|at| bytes.get_mut(at))
        {
            *byte = b'0';
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| path.to_owned())
}

/// Sorts by the PCI address that ends the path.
fn pci_order(path: Option<&str>) -> u64 {
    let address = path
        .and_then(|path| path.rsplit('/').next())
        .unwrap_or_default();
    let digits: String = address.chars().filter(char::is_ascii_hexdigit).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(u64::MAX)
}

/// `100 Gb/sec (4X EDR)` in Mbit/s.
fn rate_mbps(rate: &str) -> Option<u32> {
    let (number, unit) = rate.trim().split_once(' ')?;
    let number: f64 = number.parse().ok()?;
    let is_sound = unit.starts_with("Gb/sec") && (0.001..=1e6).contains(&number);
    is_sound.then_some((number * 1000.0) as u32)
}

fn lanes_mbps(speed: u8, width: u8) -> u32 {
    let pick = |table: &[u32], bits: u8| {
        let bit = bits.trailing_zeros() as usize;
        table.get(bit).or(table.last()).copied().unwrap_or(1)
    };
    pick(&LANE_MBPS, speed) * pick(&LANES, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        assert_eq!(rate_mbps("100 Gb/sec (4X EDR)\n"), Some(100_000));
        assert_eq!(rate_mbps("2.5 Gb/sec (1X SDR)\n"), Some(2_500));
        for text in ["", "fast", "-1 Gb/sec", "1 Mb/sec", "inf Gb/sec"] {
            assert_eq!(rate_mbps(text), None, "{text:?}");
        }
        assert_eq!(lanes_mbps(32, 2), 100_000);
        assert_eq!(lanes_mbps(8, 1), 10_000);
        assert_eq!(lanes_mbps(0, 0), 200_000);
    }

    #[test]
    fn ports_and_functions_of_an_adapter_have_one_path() {
        let path = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:01.2";
        assert_eq!(
            merged_pci_path(path, true),
            "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"
        );
        assert_eq!(
            merged_pci_path(path, false),
            "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:01.0"
        );
        assert_eq!(merged_pci_path("ab", true), "a0");
    }

    /// A card with two ports, and one that shows each of its ports as a function: each port of
    /// either is a NIC of its own for NCCL, which goes by path and number.
    #[test]
    fn ports_of_one_path_have_numbers_of_their_own() {
        let info = |path: Option<&str>, port| NicInfo {
            name: String::new(),
            guid: 1,
            port,
            speed_mbps: 1,
            pci_path: path.map(|path| merged_pci_path(path, true)),
            address: String::new(),
            queue_pairs_max: 1,
            message_bytes_max: 1,
            inline_bytes_max: 1,
            needs_program: false,
        };
        let mut infos = [
            info(Some("/sys/0000:3b:00.0"), 1),
            info(Some("/sys/0000:3b:00.1"), 1),
            info(Some("/sys/0000:5e:00.0"), 1),
            info(Some("/sys/0000:5e:00.0"), 2),
            info(None, 1),
            info(None, 1),
        ];
        number(infos.iter_mut());
        let numbers: Vec<_> = infos
            .iter()
            .map(|info| (info.pci_path.as_deref(), info.port))
            .collect();
        let (two_functions, two_ports) = (Some("/sys/0000:3b:00.0"), Some("/sys/0000:5e:00.0"));
        assert_eq!(
            numbers,
            [
                (two_functions, 1),
                (two_functions, 2),
                (two_ports, 1),
                (two_ports, 3),
                (None, 1),
                (None, 1),
            ]
        );
    }

    #[test]
    fn the_order_is_that_of_pci_addresses() {
        let paths = [
            Some("/sys/devices/pci0000:3a/0000:3b:00.0"),
            Some("/sys/devices/pci0000:3a/0000:3b:00.1"),
            Some("/sys/devices/pci0000:10/0000:d0:00.0"),
            Some("/sys/devices/pci0001:00/0001:01:00.0"),
            None,
        ];
        assert!(paths.map(pci_order).is_sorted());
        assert_eq!(pci_order(None), u64::MAX);
    }

    #[test]
    fn devices_with_one_reason_share_a_note() {
        let mut closed = Closed::default();
        for (reason, name) in [("is locked", "a"), ("is broken", "b"), ("is locked", "c")] {
            closed.add(reason.into(), Some(&name.into()));
        }
        let notes: Vec<_> = closed.notes().collect();
        assert_eq!(notes, ["a, c is locked", "b is broken"]);
    }
}
