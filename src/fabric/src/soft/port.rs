//! Link and address state of the host, and the netlink socket that tells of changes.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

/// Whether `address` is there, on `interface` if one is named, and its link is up.
pub(super) fn is_active(address: IpAddr, interface: Option<&str>) -> bool {
    let Ok(entries) = getifaddrs() else {
        return false;
    };
    entries
        .filter(|entry| interface.is_none_or(|name| base_name(&entry.interface_name) == name))
        .any(|entry| is_up(&entry) && carries(&entry, address))
}

/// Name of the interface that carries `address`.
pub(super) fn interface_of(address: IpAddr) -> Option<String> {
    getifaddrs()
        .ok()?
        .find(|entry| carries(entry, address))
        .map(|entry| base_name(&entry.interface_name).to_owned())
}

/// An address with a label, such as `lo:2`, shows under the label.
fn base_name(label: &str) -> &str {
    label.split(':').next().unwrap_or(label)
}

fn is_up(entry: &InterfaceAddress) -> bool {
    entry
        .flags
        .contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING)
}

fn carries(entry: &InterfaceAddress, address: IpAddr) -> bool {
    let Some(own) = &entry.address else {
        return false;
    };
    match address {
        IpAddr::V4(address) => {
            let Some(own) = own.as_sockaddr_in() else {
                return false;
            };
            if own.ip() == address {
                return true;
            }
            // The loopback interface answers for its whole network.
            let mask = entry
                .netmask
                .as_ref()
                .and_then(|mask| mask.as_sockaddr_in());
            let mask = mask.map_or(Ipv4Addr::BROADCAST, |mask| mask.ip());
            entry.flags.contains(InterfaceFlags::IFF_LOOPBACK)
                && own.ip().to_bits() & mask.to_bits() == address.to_bits() & mask.to_bits()
        }
        IpAddr::V6(address) => own.as_sockaddr_in6().is_some_and(|own| own.ip() == address),
    }
}

/// Opens a netlink socket that becomes readable when a link or an address changes.
pub(super) fn watch() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let descriptor = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            libc::NETLINK_ROUTE,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // SAFETY: an all-zero sockaddr_nl is valid.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups =
        (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
    // SAFETY: pointer and length describe the structure.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_nl>() as libc::socklen_t,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(socket)
    }
}

/// Empties the netlink socket. What the messages say does not matter: they, or their loss, only
/// make us look.
pub(super) fn drain(socket: &OwnedFd) {
    let mut buffer = [0u8; 8192];
    loop {
        // SAFETY: pointer and length describe the buffer.
        let received = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT,
            )
        };
        // An overrun (ENOBUFS) is reported once, then messages follow.
        let overrun = || io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS);
        if received <= 0 && !overrun() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_answers_for_its_network_and_foreign_addresses_are_absent() {
        let loopback = |last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        assert!(is_active(loopback(1), None));
        assert!(is_active(loopback(77), Some("lo")));
        assert!(!is_active(loopback(1), Some("no-such-interface")));
        let foreign = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        assert!(!is_active(foreign, None));
        assert_eq!(interface_of(loopback(5)).as_deref(), Some("lo"));
        assert_eq!(interface_of(foreign), None);
    }
}
