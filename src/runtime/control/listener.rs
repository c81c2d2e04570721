//! Listening sockets.

use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use super::system;
use crate::runtime::error::{Error, Result};

/// Most addresses that a control plane listens on: as many as a handle carries.
pub(super) const ADDRESSES_MAX: usize = 3;
/// Connections that the kernel keeps for us; it cuts this to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A listening socket.
pub(super) struct Listener {
    /// Where it listens, port as bound.
    pub(super) address: SocketAddr,
    pub(super) socket: TcpListener,
}

/// Listens on each address.
pub(super) fn bind(addresses: &[SocketAddr]) -> Result<Vec<Listener>> {
    if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
        return Err(Error::Internal(format!(
            "the control plane listens on 1 to {ADDRESSES_MAX} addresses, not {}",
            addresses.len()
        )));
    }
    addresses.iter().copied().map(bind_one).collect()
}

fn bind_one(address: SocketAddr) -> Result<Listener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )
    .map_err(|error| system("a socket", error))?;
    let bound = (|| {
        socket.set_nonblocking(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if address.port() != 0 {
            // A restarted job may take its fixed port while old connections linger.
            socket.set_reuse_address(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let socket = TcpListener::from(socket);
        Ok(Listener {
            address: socket.local_addr()?,
            socket,
        })
    })();
    bound.map_err(|error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Error::Usage(format!(
            "port {} of {} is in use by another process: set R2CCL_CONTROL_PORT to a free port, \
             or to 0 for any",
            address.port(),
            address.ip()
        )),
        std::io::ErrorKind::AddrNotAvailable => Error::Usage(format!(
            "this host has no address {}: the control plane cannot listen on it",
            address.ip()
        )),
        _ => Error::System(format!(
            "the control plane cannot listen on {address}: {error}"
        )),
    })
}
