//! What the threads of a process share about one connection, and how it comes to its verdict.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use r2ccl_core::Failure;
use r2ccl_core::wire::frame::{Accept, Frame};
use r2ccl_core::wire::path_frame::PathFrame;
use r2ccl_fabric::{SharedDevice, Status};

use super::control::Link;
use super::error::{Error, Result};
use super::group::Group;
use super::memory::{MemoryCache, RegionKey, Regions};
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
    /// This end's NIC of each path.
    pub nics: Box<[PathNic]>,
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
    /// Which of its paths are in service or have failed, for people.
    pub paths: PathMarks,
}

/// This end's NIC of a path.
#[derive(Clone)]
pub struct PathNic {
    /// Its number among the NICs of this process.
    pub dev: usize,
    /// The device.
    pub device: SharedDevice,
    /// Its registrations.
    pub cache: Arc<MemoryCache>,
    /// What paths over it have been through.
    pub tally: Arc<Tally>,
}

/// What the paths over a NIC of this process have been through.
#[derive(Default)]
pub struct Tally {
    /// How often one has failed.
    pub failovers: AtomicU64,
    /// How often one that had failed has come back.
    pub failbacks: AtomicU64,
    /// Queue pairs that there are on it.
    queue_pairs: AtomicU32,
}

impl Tally {
    /// Counts a queue pair on it, as long as what this returns lives.
    pub fn count(self: &Arc<Self>) -> Counted {
        self.queue_pairs.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    /// Queue pairs of this process on it.
    pub fn queue_pairs(&self) -> u32 {
        self.queue_pairs.load(Ordering::Relaxed)
    }
}

/// One queue pair on a NIC.
pub struct Counted(Arc<Tally>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.queue_pairs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How paths stand, a bit for each. The owner writes.
#[derive(Default)]
pub struct PathMarks {
    /// In service in the low half, failed in the high half.
    health: AtomicU32,
    /// Drained and out of use at both ends, in the low 16 bits; above, the round of news of drains
    /// that the owner has taken.
    out: AtomicU64,
}

impl PathMarks {
    /// Notes how the paths stand.
    pub fn set(&self, serving: u16, failed: u16) {
        let marks = u32::from(failed) << 16 | u32::from(serving);
        self.health.store(marks, Ordering::Relaxed);
    }

    /// Notes which drained paths are out of use, as of this round of news.
    pub fn set_out(&self, round: u32, out: u16) {
        let marks = u64::from(round) << 16 | u64::from(out);
        self.out.store(marks, Ordering::Relaxed);
    }

    /// Drained paths that are out of use; none before the owner has taken the news of `round`.
    pub fn out(&self, round: u32) -> u16 {
        let marks = self.out.load(Ordering::Relaxed);
        if marks >> 16 == u64::from(round) {
            marks as u16
        } else {
            0
        }
    }

    /// Paths in service, and those that have failed.
    pub fn get(&self) -> (u16, u16) {
        let marks = self.health.load(Ordering::Relaxed);
        (marks as u16, (marks >> 16) as u16)
    }
}

/// Whether a connection has work that only polling pushes out or that is due at a time, and whether
/// the steward knows.
pub struct Watch {
    /// Id of the connection.
    pub id: u64,
    /// The steward of this process.
    pub steward: Arc<Steward>,
    backlog: AtomicBool,
    /// Somebody has put something into its inboxes.
    has_news: AtomicBool,
    /// Nanoseconds of the runtime's clock; `u64::MAX` is never.
    due: AtomicU64,
    watched: AtomicBool,
}

impl Watch {
    /// Nothing to push out yet.
    pub fn new(id: u64, steward: Arc<Steward>) -> Self {
        Self {
            id,
            steward,
            backlog: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
            due: AtomicU64::new(u64::MAX),
            watched: AtomicBool::new(false),
        }
    }
}

impl Watch {
    fn is_wanted(&self) -> bool {
        self.backlog.load(Ordering::SeqCst) || self.has_news.load(Ordering::SeqCst)
    }
}

/// News for a connection from the control plane, in the order of arrival.
#[derive(Debug)]
pub enum News {
    /// The receiver has registered a region.
    RegionKey(RegionKey),
    /// The other end has something to say about a path.
    Path(Box<PathFrame>),
    /// The port of a NIC of this process, by its number, has come up or gone down.
    Port(usize, PortChange),
    /// The link has something to say that the control connection may not carry.
    Mail {
        /// Whether the peer is to answer.
        is_asking: bool,
    },
    /// New messages are to keep off a NIC of this process, or may use it again.
    Drain(DrainNews),
    /// The peer has closed its end; a receiver says how many messages it has delivered.
    Goodbye(u64),
    /// The peer's process is gone or out of reach.
    LinkDown(String),
    /// The listening side agrees to the connection; news for one that is being made.
    Accepted(Accept),
    /// The listening side declines, with a reason. Another path may do if it says how many NICs it
    /// has.
    Refused(String, u8),
}

/// A NIC of this process, by its number, is drained or is not any more.
#[derive(Clone, Copy, Debug)]
pub struct DrainNews {
    /// Which.
    pub dev: usize,
    /// Whether it is.
    pub is_drained: bool,
    /// Counts such news.
    pub round: u32,
}

/// What has become of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChange {
    /// It has a link.
    Up,
    /// It has none.
    Down,
    /// Its device is gone for good.
    Gone,
}

/// Queue to a connection's owner: [`News`] from the control plane, results from helpers.
pub struct Inbox<T = News> {
    filled: AtomicBool,
    news: Mutex<Vec<T>>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self {
            filled: AtomicBool::new(false),
            news: Mutex::default(),
        }
    }
}

impl<T> Inbox<T> {
    /// Adds a piece of news.
    pub fn put(&self, news: T) {
        self.news.lock().push(news);
        self.filled.store(true, Ordering::Release);
    }

    /// Puts news back in front of what has come meanwhile.
    pub fn put_back(&self, mut earlier: Vec<T>) {
        let mut news = self.news.lock();
        earlier.append(&mut news);
        *news = earlier;
        self.filled.store(!news.is_empty(), Ordering::Release);
    }

    /// Takes everything; one load and no lock when there is nothing.
    pub fn take(&self) -> Vec<T> {
        if !self.filled.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut news = self.news.lock();
        self.filled.store(false, Ordering::Release);
        std::mem::take(&mut *news)
    }
}

/// What is known about the end of a connection.
#[derive(Default)]
pub struct Fate {
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

    /// A NIC refused a request itself, not its way (PROTOCOL R22): a bad key, length or bound would
    /// fail on every other path as well.
    pub fn on_refusal(&mut self, label: &str, status: Status) {
        self.verdict.get_or_insert_with(|| {
            Error::Internal(format!(
                "{label}: {status:?}: a NIC refused a buffer or key of this connection; \
                 this is a defect or memory that was unmapped while in use, not a network fault"
            ))
        });
    }

    /// Memory was deregistered under a transfer, which had to be stopped (PROTOCOL R24).
    pub fn on_stop(&mut self, label: &str) {
        self.verdict.get_or_insert_with(|| {
            Error::Usage(format!(
                "{label}: a buffer was deregistered with requests open on it; the connection is \
                 stopped"
            ))
        });
    }

    /// All that the core could try is tried (PROTOCOL R62); `causes` says what is known of each
    /// NIC.
    pub fn on_failure(&mut self, label: &str, failure: Failure, causes: &str) {
        self.verdict.get_or_insert_with(|| {
            let what = match failure {
                Failure::NoPath => "no path has come back in time",
                Failure::NoFence(_) => "a path that failed could not be fenced at either end",
            };
            Error::Remote(format!(
                "{label}: {what} (R2CCL_GIVEUP); check the NICs of both hosts and the way between: \
                 {causes}"
            ))
        });
    }

    /// The error that ends the connection, its own or another one's of the communicator; one look
    /// in health. The first one of its own stops the communicator.
    pub fn check(&mut self, shared: &Shared) -> Result<()> {
        if let Some(error) = shared.group.failure() {
            return Err(error.clone());
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

    /// Whether nothing speaks against the connection.
    pub fn is_quiet(&self) -> bool {
        !self.peer_closed && self.link_down.is_none() && self.verdict.is_none()
    }

    /// The error that ends the connection, if there is one.
    pub fn verdict(&mut self, shared: &Shared) -> Option<Error> {
        if !self.is_quiet() && self.verdict.is_none() {
            self.verdict = self.judge(&shared.label);
        }
        self.verdict.clone()
    }

    fn judge(&self, label: &str) -> Option<Error> {
        if let Some(reason) = &self.link_down {
            return Some(Error::Remote(format!("{label}: {reason}")));
        }
        self.peer_closed.then(|| {
            Error::Remote(format!(
                "{label}: the peer closed its end while requests were open; \
                 look for the first error on its host"
            ))
        })
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
            watch.steward.watch(Some(watch.id));
        }
    }

    /// Has the connection driven soon, whoever does it: there is news for it that cannot wait.
    pub fn urge(&self) {
        let watch = &self.watch;
        watch.has_news.store(true, Ordering::SeqCst);
        if !watch.watched.swap(true, Ordering::SeqCst) {
            watch.steward.watch(Some(watch.id));
        }
    }

    /// The owner is about to look into the inboxes. True: somebody has put something into one.
    pub fn note_news_taken(&self) -> bool {
        let has_news = self.watch.has_news.load(Ordering::Relaxed);
        if has_news {
            self.watch.has_news.store(false, Ordering::SeqCst);
        }
        has_news
    }

    /// Says at the end of a call when the connection wants to be looked at although nobody calls:
    /// `None` as long as nothing is under way but requests, whose user calls often enough.
    pub fn note_due(&self, due_ns: Option<u64>) {
        let watch = &self.watch;
        let due_ns = due_ns.unwrap_or(u64::MAX);
        let before = watch.due.swap(due_ns, Ordering::SeqCst);
        let is_new = due_ns != u64::MAX && !watch.watched.swap(true, Ordering::SeqCst);
        if is_new || due_ns < before {
            watch.steward.watch(is_new.then_some(watch.id));
        }
    }

    /// Whether there is something to do now.
    pub fn is_due(&self) -> bool {
        let due_ns = self.watch.due.load(Ordering::SeqCst);
        self.watch.is_wanted() || due_ns <= super::now().nanoseconds()
    }

    /// When the steward should look again: `Some(0)` soon, since there is a backlog. `None`: not at
    /// all, and it must ask to be told anew.
    pub fn keep_watching(&self) -> Option<u64> {
        let watch = &self.watch;
        let wanted = || {
            let due_ns = watch.due.load(Ordering::SeqCst);
            if watch.is_wanted() {
                Some(0)
            } else {
                (due_ns != u64::MAX).then_some(due_ns)
            }
        };
        wanted().or_else(|| {
            // In this order: an owner that gets something to do now either sees the cleared mark
            // and asks for the steward anew, or is seen here.
            watch.watched.store(false, Ordering::SeqCst);
            wanted().filter(|_| !watch.watched.swap(true, Ordering::SeqCst))
        })
    }

    /// Tells the peer keys of regions.
    pub fn announce(&self, keys: &[RegionKey]) {
        for key in keys {
            // A link that is down has ended the connection; the data path says so.
            let _ = self.link.send(Frame::RegionKey {
                to: self.peer_connection,
                region: key.region.0,
                path: key.path.index() as u8,
                rkey: key.rkey,
            });
        }
    }
}
