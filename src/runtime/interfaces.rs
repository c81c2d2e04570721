//! Network interfaces: which ones this process uses, and what software NICs stand on them.
//!
//! The choice is NCCL's (`NCCL_SOCKET_IFNAME`, `NCCL_SOCKET_FAMILY`, or automatic), with two
//! differences that only spare surprises: an exclusion such as `^docker` does not put loopback on
//! the list while anything else is left, and of several addresses of one interface an IPv6
//! link-local one is the last to be taken.

use std::net::IpAddr;
use std::path::Path;

use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::SockaddrStorage;

use super::error::{Error, Result};
use crate::config::{
    InterfaceRule, SOFT_NICS_MAX, Settings, SocketFamily, SoftNicPlace, SoftNicRequest,
};

/// Addresses that fit into a connection handle.
pub const CONTROL_ADDRESSES_MAX: usize = 3;
/// Speed of an interface that does not say how fast it is, in Mbit/s.
const SPEED_UNKNOWN_MBPS: u32 = 10_000;
/// Fastest speed that is believed, in Mbit/s; some drivers say nonsense when the link is down.
const SPEED_BELIEVED_MBPS: u32 = 10_000_000;
/// NCCL's order when the user says nothing; the first rule that finds something wins.
const AUTOMATIC_RULES: [&str; 5] = ["ib", "^docker,lo,virbr", "docker", "lo", "virbr"];
/// Interfaces that an error message lists at the most.
const LISTED_MAX: usize = 16;

/// A network interface that may be used, with the address to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name without alias part.
    pub name: String,
    /// The address to bind to and to tell peers.
    pub address: IpAddr,
    /// The kernel's number of it; the scope of a link-local address.
    pub index: u32,
    /// Nominal speed in Mbit/s, where the system knows it.
    pub speed_mbps: Option<u32>,
    /// Whether it leads to this host only.
    pub is_loopback: bool,
}

/// One software NIC to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftNicSpec {
    /// `soft0`, `soft1`, … in NCCL's order of devices.
    pub name: String,
    /// Interface that it stands on.
    pub interface: String,
    /// Address of that interface that it binds to.
    pub address: IpAddr,
    /// Speed to be told to NCCL, in Mbit/s.
    pub speed_mbps: u32,
    /// Most bytes a second in each direction, if the user limits it.
    pub rate_limit_bytes_per_s: Option<u64>,
}

/// One address of one interface, or an interface without address.
#[derive(Clone, Debug)]
struct LocalAddress {
    name: String,
    index: u32,
    address: Option<IpAddr>,
    is_up: bool,
    has_carrier: bool,
    is_loopback: bool,
}

impl LocalAddress {
    /// The address, if the family is wanted.
    fn wanted(&self, family: SocketFamily) -> Option<IpAddr> {
        self.address.filter(|address| match family {
            SocketFamily::Any => true,
            SocketFamily::V4 => address.is_ipv4(),
            SocketFamily::V6 => address.is_ipv6(),
        })
    }
}

/// The interfaces for control connections and software NICs: up, with carrier, with an address of
/// the wanted family, in the order of the kernel's numbers; never empty.
///
/// # Errors
/// No interface is allowed by `NCCL_SOCKET_IFNAME` (usage) or usable at all (system).
pub fn select(settings: &Settings) -> Result<Vec<Interface>> {
    let all = local_addresses()?;
    let chosen = choose(
        &all,
        settings.socket_interfaces.as_ref(),
        settings.socket_family,
    );
    if chosen.is_empty() {
        return Err(nothing_chosen(&all, settings));
    }
    let with_speed = |(local, address): (&LocalAddress, IpAddr)| Interface {
        name: local.name.clone(),
        address,
        index: local.index,
        speed_mbps: speed_mbps(&settings.sysfs, &local.name),
        is_loopback: local.is_loopback,
    };
    Ok(chosen.into_iter().map(with_speed).collect())
}

/// Addresses under which peers find this process, best first: up to [`CONTROL_ADDRESSES_MAX`].
///
/// # Errors
/// As [`select`].
pub fn control_addresses(settings: &Settings) -> Result<Vec<IpAddr>> {
    let interfaces = select(settings)?;
    let addresses = interfaces.iter().map(|interface| interface.address);
    Ok(addresses.take(CONTROL_ADDRESSES_MAX).collect())
}

/// The software NICs that the settings ask for, in NCCL's order; never empty.
///
/// # Errors
/// `R2CCL_SOFT_NICS` names an interface or address that is not there (usage), or as [`select`].
pub fn soft_nics(settings: &Settings) -> Result<Vec<SoftNicSpec>> {
    if settings.soft_nics.is_empty() {
        let interfaces = select(settings)?;
        if interfaces.len() > SOFT_NICS_MAX {
            tracing::warn!(
                "{} interfaces are allowed, the first {SOFT_NICS_MAX} become software NICs; \
                 NCCL_SOCKET_IFNAME or R2CCL_SOFT_NICS choose others",
                interfaces.len()
            );
        }
        let nics = interfaces.into_iter().take(SOFT_NICS_MAX).enumerate();
        let make = |(number, interface): (usize, Interface)| SoftNicSpec {
            name: format!("soft{number}"),
            interface: interface.name,
            address: interface.address,
            speed_mbps: interface.speed_mbps.unwrap_or(SPEED_UNKNOWN_MBPS),
            rate_limit_bytes_per_s: None,
        };
        return Ok(nics.map(make).collect());
    }
    let all = local_addresses()?;
    let mut nics = Vec::new();
    for request in &settings.soft_nics {
        let (local, address) = place(&all, &request.place, settings.socket_family)?;
        let speed = speed_mbps(&settings.sysfs, &local.name);
        for _ in 0..request.count {
            nics.push(soft_nic(nics.len(), request, local, address, speed));
        }
    }
    Ok(nics)
}

fn soft_nic(
    number: usize,
    request: &SoftNicRequest,
    local: &LocalAddress,
    address: IpAddr,
    speed: Option<u32>,
) -> SoftNicSpec {
    let limit_mbps = request.rate_bits_per_s.map(|rate| rate / 1_000_000);
    let limit_mbps = limit_mbps.and_then(|limit| u32::try_from(limit).ok());
    SoftNicSpec {
        name: format!("soft{number}"),
        interface: local.name.clone(),
        address,
        speed_mbps: limit_mbps.or(speed).unwrap_or(SPEED_UNKNOWN_MBPS),
        rate_limit_bytes_per_s: request.rate_bits_per_s.map(|rate| rate / 8),
    }
}

/// The usable addresses that a rule, or NCCL's automatic order, chooses: one for each interface.
fn choose<'a>(
    all: &'a [LocalAddress],
    rule: Option<&InterfaceRule>,
    family: SocketFamily,
) -> Vec<(&'a LocalAddress, IpAddr)> {
    let usable = all.iter().filter(|local| local.is_up && local.has_carrier);
    let usable: Vec<_> = usable
        .filter_map(|local| Some((local, local.wanted(family)?)))
        .collect();
    let rules = match rule {
        Some(rule) => vec![rule.clone()],
        None => AUTOMATIC_RULES
            .iter()
            .map(|text| InterfaceRule::new(text))
            .collect(),
    };
    for may_be_link_local in [false, true] {
        for rule in &rules {
            let allowed = usable.iter().filter(|(local, address)| {
                rule.allows(&local.name) && (may_be_link_local || !is_link_local(*address))
            });
            let mut allowed: Vec<_> = allowed.copied().collect();
            if rule.is_exclusion() && allowed.iter().any(|(local, _)| !local.is_loopback) {
                allowed.retain(|(local, _)| !local.is_loopback);
            }
            if !allowed.is_empty() {
                return one_each(allowed);
            }
        }
    }
    Vec::new()
}

/// The best address of each interface, interfaces in the kernel's order.
fn one_each(mut found: Vec<(&LocalAddress, IpAddr)>) -> Vec<(&LocalAddress, IpAddr)> {
    found.sort_by_key(|(local, address)| (local.index, rank(*address)));
    found.dedup_by_key(|(local, _)| local.index);
    found
}

/// IPv4 before IPv6 before link-local IPv6.
fn rank(address: IpAddr) -> u8 {
    u8::from(address.is_ipv6()) + u8::from(is_link_local(address))
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Finds the address that an entry of `R2CCL_SOFT_NICS` means. No carrier is needed: whoever names
/// a NIC wants to keep its number while its cable is out.
fn place<'a>(
    all: &'a [LocalAddress],
    place: &SoftNicPlace,
    family: SocketFamily,
) -> Result<(&'a LocalAddress, IpAddr)> {
    let up = all.iter().filter(|local| local.is_up);
    match place {
        SoftNicPlace::Interface(name) => {
            let named = up.filter(|local| local.name == *name);
            let found: Vec<_> = named
                .filter_map(|local| Some((local, local.wanted(family)?)))
                .collect();
            one_each(found)
                .first()
                .copied()
                .ok_or_else(|| interface_missing(all, name))
        }
        SoftNicPlace::Address(address) => {
            // All of 127.0.0.0/8 leads to this host though only one address of it is listed.
            let is_loopback = address.is_ipv4() && address.is_loopback();
            let is_here = |local: &&LocalAddress| {
                local.address == Some(*address) || is_loopback && local.is_loopback
            };
            let found = up.clone().find(|local| local.address == Some(*address));
            let found = found.or_else(|| up.clone().find(is_here));
            found.map(|local| (local, *address)).ok_or_else(|| {
                Error::Usage(format!(
                    "R2CCL_SOFT_NICS: {address} is not an address of this host, or its interface \
                     is down; there are {}; name one of these",
                    list(all)
                ))
            })
        }
    }
}

fn interface_missing(all: &[LocalAddress], name: &str) -> Error {
    let mut named = all.iter().filter(|local| local.name == name).peekable();
    let (problem, remedy) = match named.peek() {
        None => ("is no interface of this host", "name one of these"),
        Some(local) if !local.is_up => {
            ("is down", "set it up (`ip link set … up`) or name another")
        }
        Some(_) => (
            "has no address of the wanted family",
            "give it one, set NCCL_SOCKET_FAMILY accordingly, or name another",
        ),
    };
    let list = list(all);
    Error::Usage(format!(
        "R2CCL_SOFT_NICS: {name} {problem}; there are {list}; {remedy}"
    ))
}

fn nothing_chosen(all: &[LocalAddress], settings: &Settings) -> Error {
    let list = list(all);
    let family = match settings.socket_family {
        SocketFamily::Any => "",
        SocketFamily::V4 => " of family AF_INET (NCCL_SOCKET_FAMILY)",
        SocketFamily::V6 => " of family AF_INET6 (NCCL_SOCKET_FAMILY)",
    };
    match &settings.socket_interfaces {
        Some(rule) => Error::Usage(format!(
            "NCCL_SOCKET_IFNAME={rule} allows no interface that is up, has carrier and an \
             address{family}; there are {list}; allow one of these or unset it"
        )),
        None => Error::System(format!(
            "no network interface is up, with carrier and an address{family}; there are {list}; \
             set one up (`ip link set lo up` is enough for a single host)"
        )),
    }
}

/// The host's interfaces for an error message: `eth0 (192.0.2.2), eth1 (down)`.
fn list(all: &[LocalAddress]) -> String {
    let mut items: Vec<(u32, &str, String)> = Vec::new();
    for local in all {
        let state = match (local.address, local.is_up, local.has_carrier) {
            (_, false, _) => "down".to_owned(),
            (_, _, false) => "no carrier".to_owned(),
            (None, ..) => "no address".to_owned(),
            (Some(address), ..) => address.to_string(),
        };
        match items.iter_mut().find(|(index, ..)| *index == local.index) {
            // The packet-level entry comes first and knows of no address.
            Some((_, _, known)) if known == "no address" => *known = state,
            Some(_) => {}
            None => items.push((local.index, &local.name, state)),
        }
    }
    if items.is_empty() {
        return "no interfaces".to_owned();
    }
    let shown = items.iter().take(LISTED_MAX);
    let shown: Vec<String> = shown
        .map(|(_, name, state)| format!("{name} ({state})"))
        .collect();
    let more = items.len().saturating_sub(LISTED_MAX);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    shown.join(", ") + &more
}

/// All interfaces and addresses of the host.
fn local_addresses() -> Result<Vec<LocalAddress>> {
    let entries = nix::ifaddrs::getifaddrs().map_err(|errno| {
        Error::System(format!(
            "cannot list the network interfaces (getifaddrs): {errno}{}",
            super::control::remedy(&errno.into())
        ))
    })?;
    let read = |entry: nix::ifaddrs::InterfaceAddress| {
        let name = entry
            .interface_name
            .split(':')
            .next()
            .unwrap_or_default()
            .to_owned();
        // An interface that vanished since has no number, and cannot be used either.
        let index = if_nametoindex(name.as_str()).ok()?;
        Some(LocalAddress {
            index,
            address: entry.address.as_ref().and_then(ip_address),
            is_up: entry.flags.contains(InterfaceFlags::IFF_UP),
            has_carrier: entry.flags.contains(InterfaceFlags::IFF_RUNNING),
            is_loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            name,
        })
    };
    Ok(entries.filter_map(read).collect())
}

fn ip_address(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|address| IpAddr::V6(address.ip()))
    })
}

/// Speed in Mbit/s as the driver says it; it says nothing for loopback, -1 without link.
fn speed_mbps(sysfs: &Path, interface: &str) -> Option<u32> {
    let text = std::fs::read_to_string(sysfs.join("class/net").join(interface).join("speed"));
    let speed = text.ok()?.trim().parse().ok()?;
    (1..=SPEED_BELIEVED_MBPS).contains(&speed).then_some(speed)
}

#[cfg(test)]
mod tests;
