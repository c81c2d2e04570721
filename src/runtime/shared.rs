//! What the threads of a process share about one connection, and how it comes to its verdict.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use r2ccl_core::RegionId;
use r2ccl_core::wire::frame::Accept;
use r2ccl_fabric::Status;

use super::control::Link;
use super::error::{Error, Result};
use super::group::Group;
use super::memory::{MemoryCache, Regions};
use super::path::is_request_error;
use super::steward::Steward;

/// Shared part of a connection, either side.
pub struct Shared {
    /// Names this end in control frames of the peer.
    pub connection: u64,
    /// Names the other end in our control frames; the sender learns it with the answer.
    pub peer_connection: u64,
    /// Control connection to the peer's process.
    pub link: Arc<Link>,
    /// Connections that stop together.
    pub group: Arc<Group>,
    /// Registrations on the connection's device.
    pub cache: Arc<MemoryCache>,
    /// Buffers that NCCL has registered on this connection.
    pub regions: Regions,
    /// What the control plane has to say.
    pub inbox: Arc<Inbox>,
    /// The path in words, for messages: `h0/soft0 -> h1/soft1`.
    pub label: String,
    /// Counts the calls that drove the connection; the steward sees from it who is not polled.
    pub polls: AtomicU32,
    /// Who drives the connection when NCCL does not.
    pub watch: Watch,
}

/// Whether a connection has work that only polling pushes out, and whether the steward knows.
pub struct Watch {
    /// Id of the connection.
    pub id: u64,
    /// The steward of this process.
    pub steward: Arc<Steward>,
    backlog: AtomicBool,
    watched: AtomicBool,
}

impl Watch {
    /// Nothing to push out yet.
    pub fn new(id: u64, steward: Arc<Steward>) -> Self {
        Self {
            id,
            steward,
            backlog: AtomicBool::new(false),
            watched: AtomicBool::new(false),
        }
    }
}

/// News for a connection from the control plane, in the order of arrival.
#[derive(Debug)]
pub enum News {
    /// The receiver has registered a region; the key is for its NIC.
    RegionKey(RegionId, u32),
    /// The peer has closed its end; a receiver says how many messages it has delivered.
    Goodbye(u64),
    /// The peer's process is gone or out of reach.
    LinkDown(String),
    /// The listening side agrees to the connection; news for one that is being made.
    Accepted(Accept),
    /// The listening side declines, with a reason.
    Refused(String),
}

/// Queue from the control plane to a connection's owner.
#[derive(Default)]
pub struct Inbox {
    filled: AtomicBool,
    news: Mutex<Vec<News>>,
}

impl Inbox {
    /// Adds a piece of news.
    pub fn put(&self, news: News) {
        self.news.lock().push(news);
        self.filled.store(true, Ordering::Release);
    }

    /// Puts news back in front of what has come meanwhile.
    pub fn put_back(&self, mut earlier: Vec<News>) {
        let mut news = self.news.lock();
        earlier.append(&mut news);
        *news = earlier;
        self.filled.store(!news.is_empty(), Ordering::Release);
    }

    /// Takes everything; one load and no lock when there is nothing.
    pub fn take(&self) -> Vec<News> {
        if !self.filled.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut news = self.news.lock();
        self.filled.store(false, Ordering::Release);
        std::mem::take(&mut *news)
    }
}

/// How long a dead path waits for the control plane to say whether the peer's process died, before
/// the path itself is blamed.
const VERDICT_WAIT: Duration = Duration::from_millis(500);

/// What is known about the end of a connection.
#[derive(Default)]
pub struct Fate {
    path_failed: Option<(Instant, Status)>,
    peer_closed: bool,
    link_down: Option<String>,
    verdict: Option<Error>,
}

impl Fate {
    /// The peer said goodbye.
    pub fn on_goodbye(&mut self) {
        self.peer_closed = true;
    }

    /// The peer's process is gone.
    pub fn on_link_down(&mut self, reason: String) {
        self.link_down.get_or_insert(reason);
    }

    /// The peer, or this library, broke the protocol.
    pub fn on_protocol_error(&mut self, label: &str, error: impl std::fmt::Display) {
        self.verdict.get_or_insert_with(|| {
            Error::Internal(format!(
                "{label}: the two ends disagree about the protocol: {error}"
            ))
        });
    }

    /// The only path has failed.
    pub fn on_path_failure(&mut self, status: Status) {
        self.path_failed
            .get_or_insert_with(|| (Instant::now(), status));
    }

    /// The error that ends the connection, its own or another one's of the communicator; one look
    /// in health. The first one of its own stops the communicator.
    pub fn check(&mut self, shared: &Shared) -> Result<()> {
        if let Some(error) = shared.group.failure() {
            return Err(error.clone());
        }
        if self.is_quiet() {
            return Ok(());
        }
        match self.verdict(shared) {
            None => Ok(()),
            Some(error) => {
                shared.group.fail(&error);
                Err(error)
            }
        }
    }

    /// Whether nothing speaks against the connection or its communicator.
    pub fn is_well(&self, shared: &Shared) -> bool {
        self.is_quiet() && shared.group.failure().is_none()
    }

    fn is_quiet(&self) -> bool {
        self.path_failed.is_none()
            && !self.peer_closed
            && self.link_down.is_none()
            && self.verdict.is_none()
    }

    /// The error that ends the connection, once the evidence suffices. A path that failed is held
    /// against the peer's process if that has died or has closed, else against the path.
    pub fn verdict(&mut self, shared: &Shared) -> Option<Error> {
        if self.verdict.is_none() {
            self.verdict = self.judge(shared);
        }
        self.verdict.clone()
    }

    fn judge(&self, shared: &Shared) -> Option<Error> {
        let label = &shared.label;
        if let Some((_, status)) = self
            .path_failed
            .filter(|(_, status)| is_request_error(*status))
        {
            return Some(Error::Internal(format!(
                "{label}: {status:?}: a NIC refused a buffer or key of this connection; \
                 this is a defect or memory that was unmapped while in use, not a network fault"
            )));
        }
        if let Some(reason) = &self.link_down {
            return Some(Error::Remote(format!("{label}: {reason}")));
        }
        if self.peer_closed {
            return Some(Error::Remote(format!(
                "{label}: the peer closed its end while requests were open; \
                 look for the first error on its host"
            )));
        }
        match self.path_failed {
            Some((since, status)) if since.elapsed() > VERDICT_WAIT => {
                Some(Error::Remote(format!(
                    "{label}: the only path has failed ({status:?}); \
                     check both NICs and the way between"
                )))
            }
            _ => None,
        }
    }
}

impl Shared {
    /// Marks that somebody has driven the connection.
    pub fn note_poll(&self) {
        self.polls.store(
            self.polls.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// Says at the end of a call whether work is left that only polling pushes out. NCCL may never
    /// call again (PROTOCOL R26), so the steward then watches the connection.
    pub fn note_backlog(&self, backlog: bool) {
        let watch = &self.watch;
        if watch.backlog.load(Ordering::Relaxed) != backlog {
            watch.backlog.store(backlog, Ordering::SeqCst);
        }
        if backlog && !watch.watched.swap(true, Ordering::SeqCst) {
            watch.steward.watch(watch.id);
        }
    }

    /// The steward's question whether the connection still has a backlog.
    pub fn keep_watching(&self) -> bool {
        let watch = &self.watch;
        if watch.backlog.load(Ordering::SeqCst) {
            return true;
        }
        // In this order: an owner that gets a backlog now either sees the cleared mark and asks
        // for the steward anew, or its backlog is seen here.
        watch.watched.store(false, Ordering::SeqCst);
        watch.backlog.load(Ordering::SeqCst) && !watch.watched.swap(true, Ordering::SeqCst)
    }
}
