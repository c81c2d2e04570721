//! A link: everything that this process and one peer process say to each other, in order and once,
//! over whichever TCP connection stands at the moment (PROTOCOL R29).

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use r2ccl_core::wire::frame::Frame;
use r2ccl_core::wire::handle::Handle;

use super::auth::{self, Secret};
use super::{Command, Shared};
use crate::runtime::error::{Error, Result};

/// Frames that a link holds until the peer has acknowledged them, at the most.
pub const QUEUED_FRAMES_MAX: usize = 65_536;
/// Frames in front of one that may be left out: about what one or two mails hold (PROTOCOL R29).
const WAITING_MAX: usize = 32;

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Instance id of the process.
    pub instance: u64,
    /// Process id.
    pub pid: u32,
    /// Host name; may be cut to 16 bytes until the peer has greeted.
    pub host: String,
}

impl fmt::Display for PeerInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {} on {}", self.pid, self.host)
    }
}

/// Why a link is down for good. The messages name both ends and the evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer process is no more.
    #[error("{0}")]
    PeerDead(String),
    /// The peer could not be reached for the give-up time, or gave this link up itself.
    #[error("{0}")]
    Lost(String),
    /// Versions or settings of the two sides differ.
    #[error("{0}")]
    Mismatch(String),
    /// This process ended its control plane.
    #[error("{0}")]
    Stopped(String),
}

impl From<LinkError> for Error {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::PeerDead(text) | LinkError::Lost(text) => Self::Remote(text),
            LinkError::Mismatch(text) => Self::Usage(text),
            LinkError::Stopped(text) => Self::Internal(text),
        }
    }
}

/// A frame on its way: kind and body as they stand on the wire.
#[derive(Clone)]
pub(super) struct Queued {
    pub(super) kind: u8,
    pub(super) body: Arc<[u8]>,
}

/// What a link has to say and has heard. Guarded by one lock that is held for moments only.
pub(super) struct LinkState {
    pub(super) peer: PeerInfo,
    /// Secret of the peer, if one of its handles came by.
    pub(super) peer_secret: Option<Secret>,
    /// Where the peer's control plane listens.
    pub(super) addresses: Vec<SocketAddr>,
    /// Frames not yet acknowledged; the front one has sequence `acknowledged + 1`.
    pub(super) queue: VecDeque<Queued>,
    /// Highest of our sequences that the peer has.
    pub(super) acknowledged: u64,
    /// Highest sequence of the peer's that was handed on.
    pub(super) received: u64,
    pub(super) error: Option<LinkError>,
}

/// See the module's page. Shared by all connections between two processes.
pub struct Link {
    pub(super) instance: u64,
    /// This side's number of the link; the peer's greeting names it when it knows it.
    pub(super) number: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) state: Mutex<LinkState>,
    /// Signalled when frames are acknowledged and when the link ends.
    pub(super) changed: Condvar,
    pub(super) up: AtomicBool,
    /// Set while the steward has been told that there is something to send.
    pub(super) noted: AtomicBool,
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Link({:016x})", self.instance)
    }
}

impl Link {
    /// A link to the process that made `handle`.
    pub(super) fn to_handle(shared: &Arc<Shared>, handle: &Handle) -> Result<Arc<Self>> {
        let peer = PeerInfo {
            instance: handle.instance,
            pid: handle.pid,
            host: handle.host.clone(),
        };
        let secret = Some(Secret(handle.secret));
        Self::new(shared, peer, secret, handle.addresses.clone())
    }

    /// A link to a process that may be known only by what it said itself.
    pub(super) fn new(
        shared: &Arc<Shared>,
        peer: PeerInfo,
        peer_secret: Option<Secret>,
        addresses: Vec<SocketAddr>,
    ) -> Result<Arc<Self>> {
        let is_to_self = peer.instance == shared.instance;
        Ok(Arc::new(Self {
            instance: peer.instance,
            number: auth::random_id()?,
            shared: Arc::clone(shared),
            state: Mutex::new(LinkState {
                peer,
                peer_secret,
                addresses,
                queue: VecDeque::new(),
                acknowledged: 0,
                received: 0,
                error: None,
            }),
            changed: Condvar::new(),
            up: AtomicBool::new(is_to_self),
            noted: AtomicBool::new(false),
        }))
    }

    /// Takes over what another handle of the same process tells.
    pub(super) fn learn(&self, handle: &Handle) {
        let mut state = self.state.lock();
        state.peer_secret = Some(Secret(handle.secret));
        if state.addresses.is_empty() {
            state.addresses = handle.addresses.clone();
        }
    }

    /// Queues a frame; it arrives once and in order, or the link ends with an error. Never blocks,
    /// from any thread. `Remote` or `Usage`: the link is down for good, or the peer has not taken
    /// [`QUEUED_FRAMES_MAX`] frames; `Internal`: the frame exceeds its limits.
    pub fn send(self: &Arc<Self>, frame: Frame) -> Result<()> {
        if frame.is_internal() {
            return Err(Error::Internal(
                "greetings and acknowledgements are not sent by hand".into(),
            ));
        }
        let body = frame
            .encode()
            .map_err(|error| Error::Internal(error.to_string()))?;
        {
            let mut state = self.state.lock();
            if let Some(error) = &state.error {
                return Err(error.clone().into());
            }
            if state.queue.len() >= QUEUED_FRAMES_MAX {
                return Err(Error::Remote(format!(
                    "{} has not taken {QUEUED_FRAMES_MAX} control frames: it hangs or is cut off",
                    state.peer
                )));
            }
            state.queue.push_back(Queued {
                kind: frame.kind(),
                body: body.into(),
            });
        }
        self.note();
        Ok(())
    }

    /// Tells the steward that there is something to send.
    fn note(self: &Arc<Self>) {
        if !self.noted.swap(true, Ordering::AcqRel) {
            self.shared.command(Command::Send(Arc::clone(self)));
        }
    }

    /// Sends a frame that may as well be lost, unless the control connection is cut or many wait:
    /// what matters must not stand behind it.
    pub fn send_if_idle(self: &Arc<Self>, frame: Frame) {
        let has_room = self.state.lock().queue.len() < WAITING_MAX;
        if has_room && self.is_up() {
            // A link that is down has ended the connection; its news says so.
            let _ = self.send(frame);
        }
    }

    /// Whether a connection to the peer stands at this moment. Frames may be sent either way.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Instance id of the peer process.
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Who is at the other end.
    pub fn peer(&self) -> PeerInfo {
        self.state.lock().peer.clone()
    }

    /// Why the link is down for good, if it is.
    pub fn error(&self) -> Option<LinkError> {
        self.state.lock().error.clone()
    }

    /// The peer has everything up to `sequence`; `false` if so much was never sent.
    pub(super) fn acknowledge(&self, sequence: u64) -> bool {
        let mut state = self.state.lock();
        let count = sequence.saturating_sub(state.acknowledged);
        if count > state.queue.len() as u64 {
            return false;
        }
        if count > 0 {
            state.queue.drain(..count as usize);
            state.acknowledged = sequence;
            self.changed.notify_all();
        }
        true
    }

    /// Ends the link, if it has not ended: the first reason stands. Answers whether it was this.
    pub(super) fn fail(&self, error: LinkError) -> bool {
        let mut state = self.state.lock();
        if state.error.is_some() {
            return false;
        }
        state.error = Some(error);
        state.queue = VecDeque::new();
        self.up.store(false, Ordering::Release);
        self.changed.notify_all();
        true
    }

    /// Waits until the peer has acknowledged everything sent so far, for close. `false`: `deadline`
    /// came first, the link ended, or the process has used up its lingering (one second in any
    /// ten, all links together). Answers at once when there is nothing to wait for; on the steward
    /// thread (in a handler) it never waits.
    pub fn flush(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        let last = state.acknowledged + state.queue.len() as u64;
        if state.error.is_some() || state.queue.is_empty() {
            return state.error.is_none();
        }
        if self.shared.is_steward() {
            return false;
        }
        let linger = self.shared.linger.begin(deadline);
        while state.acknowledged < last && state.error.is_none() {
            if self
                .changed
                .wait_until(&mut state, linger.until)
                .timed_out()
            {
                break;
            }
        }
        state.acknowledged >= last
    }
}
