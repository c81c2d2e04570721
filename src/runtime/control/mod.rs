//! The control plane: one authenticated TCP connection to every process that we have connections
//! with, and the steward thread that drives them.
//!
//! [`ControlPlane::handle_for`] makes what `listen` hands to NCCL, [`ControlPlane::link`] turns a
//! handle into a [`Link`]. Links carry frames in order and once, whatever happens to TCP
//! connections below: a connection that ends is dialled again; only a refused dial or another
//! process at the address means that the peer is dead. What TCP does not carry goes over NICs that
//! connect the two processes ([`mail`]).
//!
//! Read in this order: this file, [`link`], `steward` (the thread), `session` (one TCP
//! connection), `handshake`, `traffic`, `mail`, `dial`, `listener` and `strangers`, `auth`.

mod auth;
mod dial;
mod handshake;
mod linger;
pub mod link;
mod listener;
mod mail;
mod session;
mod settings;
mod steward;
mod strangers;
mod traffic;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;
use r2ccl_core::wire::frame::Frame;
use r2ccl_core::wire::handle::Handle;

pub use link::{Link, LinkError, PeerInfo};
pub use mail::MAIL_BYTES_MAX;

use self::auth::Secret;
use self::linger::Linger;
use crate::runtime::error::{Error, Result};

/// What the control plane is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to listen on, one an interface, at most three; port 0 lets the system choose.
    pub addresses: Vec<SocketAddr>,
    /// Host name for messages.
    pub host: String,
    /// Hash of the host's identity.
    pub host_id: u64,
    /// Settings that both ends must share, as (name, value).
    pub settings: Vec<(String, String)>,
    /// How long an unreachable peer is dialled before the link is given up.
    pub giveup: Duration,
    /// Instance id; `None` makes a random one, as everybody but tests wants it.
    pub instance: Option<u64>,
    /// Protocol version to greet with: `PROTOCOL_VERSION`, but for tests.
    pub version: u16,
}

/// What the runtime does with frames. All calls come from the steward thread, one at a time, with
/// no lock held; they must not block. They may send on any link.
pub trait ControlHandler: Send + Sync {
    /// A frame has arrived; each frame once, in the order sent.
    fn on_frame(&self, link: &Arc<Link>, frame: Frame);

    /// The link is down for good; called once a link.
    fn on_link_down(&self, link: &Arc<Link>, reason: &LinkError);

    /// Frames wait for their acknowledgement, the control connection is cut, or the peer wants an
    /// answer: a connection over the link is to carry [`Link::write_mail`] over a NIC, and its peer
    /// to give it to [`Link::take_mail`]. With `is_asking` the peer is to answer.
    fn on_mail_due(&self, link: &Arc<Link>, is_asking: bool);

    /// Called after [`ControlPlane::wake`] and when the time that it returned last has passed.
    /// `None`: not until somebody wakes.
    fn on_tick(&self) -> Option<Duration>;
}

/// What happened that nobody asked for; monotone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections dropped before they proved that they belong here.
    pub strangers: u64,
    /// Proven connections dropped for a record with a wrong MAC or layout.
    pub forged: u64,
    /// Frames that came a second time after a reconnection.
    pub duplicates: u64,
    /// Connections to peers that ended and were made again.
    pub reconnects: u64,
}

/// Sources of [`Counters`].
#[derive(Default)]
struct Counts {
    strangers: AtomicU64,
    forged: AtomicU64,
    duplicates: AtomicU64,
    reconnects: AtomicU64,
}

/// What other threads ask of the steward.
enum Command {
    /// The link has something to send, or is new and wants to be dialled.
    Send(Arc<Link>),
    /// A mail has come for the link.
    Mail(Arc<Link>, Vec<u8>),
    /// End.
    Stop,
}

/// What the steward, the links and the callers share.
struct Shared {
    config: Config,
    instance: u64,
    secret: Secret,
    addresses: Vec<SocketAddr>,
    handler: Arc<dyn ControlHandler>,
    commands: Mutex<Vec<Command>>,
    /// Wakes the steward.
    event: EventFd,
    /// Set while the steward has been woken and has not looked yet.
    notified: AtomicBool,
    /// Set while [`ControlHandler::on_tick`] is owed.
    tick: AtomicBool,
    links: Mutex<HashMap<u64, Arc<Link>>>,
    linger: Linger,
    counts: Counts,
    steward: OnceLock<ThreadId>,
}

impl Shared {
    /// Hands a command to the steward.
    fn command(&self, command: Command) {
        self.commands.lock().push(command);
        self.notify();
    }

    fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            // It can fail only when its counter is full, and then it is readable.
            let _ = self.event.write(1);
        }
    }

    /// Whether the caller is the steward.
    fn is_steward(&self) -> bool {
        self.steward.get() == Some(&std::thread::current().id())
    }
}

/// The control plane of a process.
pub struct ControlPlane {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pid: u32,
}

impl ControlPlane {
    /// Binds the listeners and starts the steward thread. `Usage`: an address cannot be listened
    /// on; `System`: descriptors, threads or random numbers are refused.
    pub fn start(config: Config, handler: Arc<dyn ControlHandler>) -> Result<Arc<Self>> {
        settings::check(&config.settings)?;
        let listeners = listener::bind(&config.addresses)?;
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|error| system("an event descriptor", error.into()))?;
        let shared = Arc::new(Shared {
            instance: match config.instance {
                Some(instance) => instance,
                None => auth::random_id()?,
            },
            secret: Secret(auth::random()?),
            addresses: listeners.iter().map(|listener| listener.address).collect(),
            config,
            handler,
            commands: Mutex::new(Vec::new()),
            event,
            notified: AtomicBool::new(false),
            tick: AtomicBool::new(false),
            links: Mutex::new(HashMap::new()),
            linger: Linger::default(),
            counts: Counts::default(),
            steward: OnceLock::new(),
        });
        let steward = steward::Steward::new(Arc::clone(&shared), listeners)?;
        let thread = std::thread::Builder::new()
            .name("r2ccl-steward".into())
            .spawn(move || steward.run())
            .map_err(|error| system("a thread", error))?;
        let thread = Mutex::new(Some(thread));
        Ok(Arc::new(Self {
            shared,
            thread,
            pid: std::process::id(),
        }))
    }

    /// The link to the process that made `handle`: the one that exists, or a new one that is being
    /// dialled. Never blocks. An error if the peer is known to be dead or does not fit; a link that
    /// was merely lost is begun anew.
    pub fn link(&self, handle: &Handle) -> Result<Arc<Link>> {
        let link = {
            let mut links = self.shared.links.lock();
            let existing = links.get(&handle.instance).cloned();
            match existing.map(|link| (link.error(), link)) {
                Some((None, link)) => {
                    link.learn(handle);
                    return Ok(link);
                }
                Some((Some(LinkError::Lost(_)), _)) | None => {
                    let link = Link::to_handle(&self.shared, handle)?;
                    links.insert(handle.instance, Arc::clone(&link));
                    link
                }
                Some((Some(error), _)) => return Err(error.into()),
            }
        };
        self.shared.command(Command::Send(Arc::clone(&link)));
        Ok(link)
    }

    /// Where the control plane listens, ports as bound.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// The handle of the listen that `nonce` names.
    pub fn handle_for(&self, nonce: u64) -> Handle {
        Handle {
            nonce,
            secret: self.shared.secret.0,
            host_id: self.shared.config.host_id,
            instance: self.shared.instance,
            pid: std::process::id(),
            host: self.shared.config.host.clone(),
            addresses: self.shared.addresses.clone(),
        }
    }

    /// Random number of this process; peers know it by this.
    pub fn instance(&self) -> u64 {
        self.shared.instance
    }

    /// Has the steward call [`ControlHandler::on_tick`] soon. One atomic while that is owed anyway.
    pub fn wake(&self) {
        if !self.shared.tick.swap(true, Ordering::AcqRel) {
            self.shared.notify();
        }
    }

    /// Counters of the plane.
    pub fn counters(&self) -> Counters {
        let counts = &self.shared.counts;
        Counters {
            strangers: counts.strangers.load(Ordering::Relaxed),
            forged: counts.forged.load(Ordering::Relaxed),
            duplicates: counts.duplicates.load(Ordering::Relaxed),
            reconnects: counts.reconnects.load(Ordering::Relaxed),
        }
    }

    /// Closes everything and ends the steward. Peers see what they would see if this process died.
    pub fn stop(&self) {
        self.shared.command(Command::Stop);
        let thread = self.thread.lock().take();
        if self.pid != std::process::id() || self.shared.is_steward() {
            return;
        }
        if let Some(thread) = thread {
            // The steward catches panics of handlers; there is nothing to learn from the join.
            let _ = thread.join();
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            self.stop();
        }
    }
}

/// An error of the system that says what could not be had, and which limit to raise.
fn system(what: &str, error: std::io::Error) -> Error {
    let remedy = remedy(&error);
    Error::System(format!(
        "the control plane cannot get {what}: {error}{remedy}"
    ))
}

/// Which limit to raise, if the error is that of one.
pub fn remedy(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "; raise the limit on open files (`ulimit -n`)",
        // What starting a thread answers at the limit of the user or of a control group.
        Some(libc::EAGAIN) => "; raise the limit on threads (`ulimit -u`, pids of the container)",
        _ => "",
    }
}
