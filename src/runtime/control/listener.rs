//! Listening sockets and what comes through them before it has proven itself.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::dial::Evidence;
use super::session::{Phase, Session};
use super::steward::{Steward, Timer};
use super::strangers::PROOF_TIME;
use super::{remedy, system};
use crate::runtime::error::{Error, Result};
use crate::runtime::fork::ClosedInChildren;

/// Most addresses that a control plane listens on: as many as a handle carries.
pub(super) const ADDRESSES_MAX: usize = 3;
/// Connections that the kernel keeps for us; it cuts this to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A listening socket.
pub(super) struct Listener {
    /// Before the socket, so that it goes first.
    _closed_in_children: ClosedInChildren,
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
        let address = socket.local_addr()?;
        let closed = ClosedInChildren::new(&socket);
        Ok(Listener {
            _closed_in_children: closed,
            address,
            socket,
        })
    })();
    bound.map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => Error::Usage(format!(
            "port {} of {} is in use by another process: set R2CCL_CONTROL_PORT to a free port, \
             or to 0 for any",
            address.port(),
            address.ip()
        )),
        io::ErrorKind::AddrNotAvailable => Error::Usage(format!(
            "this host has no address {}: the control plane cannot listen on it",
            address.ip()
        )),
        _ => Error::System(format!(
            "the control plane cannot listen on {address}: {error}"
        )),
    })
}

/// Listeners rest for this time when descriptors are short.
const REST: Duration = Duration::from_millis(100);
/// Connections accepted before others get their turn.
const ACCEPTED_AT_ONCE: usize = 32;

impl Steward {
    /// Takes waiting connections.
    pub(super) fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(listener) = self.listeners.get(index) else {
                return;
            };
            match listener.socket.accept() {
                Ok((stream, address)) => self.on_accepted(stream, address),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        return self.rest(&error);
                    }
                    // The connection was gone before it was taken.
                    _ => continue,
                },
            }
        }
    }

    fn on_accepted(&mut self, stream: TcpStream, address: SocketAddr) {
        let token =
            Session::accepted(stream, address).and_then(|session| self.adopt_socket(session));
        let Ok(token) = token else { return };
        self.set_timer(Instant::now() + PROOF_TIME, Timer::Proof(token));
        if let Some(oldest) = self.fresh.push(token) {
            self.drop_stranger(oldest, "too many connections at once");
        }
    }

    /// Leaves connections in the kernel until descriptors are there again.
    fn rest(&mut self, error: &io::Error) {
        if let Some(oldest) = self.fresh.pop() {
            self.drop_stranger(oldest, "descriptors are short");
        }
        for listener in &self.listeners {
            // A listener that is not watched is what is wanted.
            let _ = self.epoll.delete(&listener.socket);
        }
        self.listening = false;
        self.set_timer(Instant::now() + REST, Timer::Listen);
        let remedy = remedy(error);
        tracing::warn!("the control plane cannot accept a connection now: {error}{remedy}");
    }

    /// Watches the listeners again, or rests on.
    pub(super) fn listen_again(&mut self) {
        if let Err(error) = self.listen() {
            self.rest(&error);
        }
    }

    /// Drops a connection that must make room.
    pub(super) fn drop_stranger(&mut self, token: u64, why: &str) {
        if let Some(session) = self.sessions.remove(&token) {
            self.stranger_ended(token, session, &Evidence::Failed(why.to_owned()));
        }
    }

    /// A connection that was accepted has ended without standing for a link.
    pub(super) fn stranger_ended(&mut self, token: u64, session: Session, evidence: &Evidence) {
        let was_proven = matches!(session.phase, Phase::Closing | Phase::Up);
        self.fresh.remove(token);
        self.halfway.remove(token);
        // A peer that says a right hello may end, or think better of it, before it greets.
        let was_peer = session.withdrawn && matches!(session.phase, Phase::Greeting);
        if was_proven || was_peer {
            return;
        }
        let (Evidence::Other(why) | Evidence::Failed(why)) = evidence else {
            return;
        };
        self.shared.counts.strangers.fetch_add(1, Ordering::Relaxed);
        if let Some(count) = self.stranger_log.count(Instant::now()) {
            tracing::warn!(
                "dropped {count} connection(s) on the control port that are not from an R2CCL \
                 process of this job, the last from {} ({why}); nothing was harmed",
                session.address
            );
        }
    }
}
