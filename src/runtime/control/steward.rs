//! The steward thread: sleeps in epoll until a socket, a timer or another thread wants something.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;

use super::dial::Peer;
use super::link::{Link, LinkError};
use super::listener::Listener;
use super::session::{Phase, Session};
use super::strangers::{StrangerLog, Unproven};
use super::{Command, ControlHandler, Shared, system};
use crate::runtime::error::Result;

/// Token of the event descriptor; listeners follow, then sessions.
const EVENT_TOKEN: u64 = 0;
const FIRST_SESSION_TOKEN: u64 = 16;
/// Events taken from the kernel at a time.
const EVENTS_MAX: usize = 64;
/// Below this a timeout is waited for with `ppoll`, whose clock has no milliseconds' grain.
const FINE_TIMEOUT: Duration = Duration::from_millis(10);

/// What a point in time is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The session must have proven itself.
    Proof(u64),
    /// The peer may be dialled again.
    Dial(u64),
    /// A link may have to use NICs.
    Mail(u64),
    /// Listeners rest no longer.
    Listen,
    /// The handler wants to be called.
    Tick,
}

/// See the module's page. Lives on its thread alone.
pub(super) struct Steward {
    pub(super) shared: Arc<Shared>,
    pub(super) epoll: Epoll,
    pub(super) listeners: Vec<Listener>,
    pub(super) listening: bool,
    pub(super) sessions: HashMap<u64, Session>,
    pub(super) peers: HashMap<u64, Peer>,
    /// Accepted, no right hello yet.
    pub(super) fresh: Unproven,
    /// Accepted, hello right, no greeting yet: a hello may be a recording.
    pub(super) halfway: Unproven,
    pub(super) stranger_log: StrangerLog,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    tick_at: Option<Instant>,
    next_token: u64,
    stopped: bool,
}

impl Steward {
    pub(super) fn new(shared: Arc<Shared>, listeners: Vec<Listener>) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|error| system("an epoll descriptor", error.into()))?;
        epoll
            .add(
                &shared.event,
                EpollEvent::new(EpollFlags::EPOLLIN, EVENT_TOKEN),
            )
            .map_err(|error| system("an event descriptor", error.into()))?;
        let mut steward = Self {
            shared,
            epoll,
            listeners,
            listening: false,
            sessions: HashMap::new(),
            peers: HashMap::new(),
            fresh: Unproven::default(),
            halfway: Unproven::default(),
            stranger_log: StrangerLog::default(),
            timers: BinaryHeap::new(),
            tick_at: None,
            next_token: FIRST_SESSION_TOKEN,
            stopped: false,
        };
        steward
            .listen()
            .map_err(|error| system("its listeners watched", error))?;
        Ok(steward)
    }

    /// Watches the listeners.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, EVENT_TOKEN + 1 + index as u64);
            self.epoll.add(&listener.socket, event)?;
        }
        self.listening = true;
        Ok(())
    }

    /// Runs until [`Command::Stop`].
    pub(super) fn run(mut self) {
        let _ = self.shared.steward.set(std::thread::current().id());
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        while !self.stopped {
            let count = self.wait(&mut events);
            for event in &events[..count] {
                self.on_event(event.data(), event.events());
            }
            // Cleared after the event descriptor was read, or a wake in between would be read away
            // with the mark left standing, and nobody would wake us again; and before commands are
            // taken: one that comes later wakes.
            self.shared.notified.store(false, Ordering::Release);
            self.run_commands();
            self.run_timers();
        }
        self.end_all();
    }

    fn wait(&mut self, events: &mut [EpollEvent]) -> usize {
        let now = Instant::now();
        let next = self
            .timers
            .peek()
            .map(|Reverse((at, _))| at.saturating_duration_since(now));
        let timeout = match next {
            None => EpollTimeout::NONE,
            Some(left) if left < FINE_TIMEOUT => {
                let mut descriptors = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
                // Interrupted or not: what is there is taken next.
                let _ = ppoll(&mut descriptors, Some(TimeSpec::from_duration(left)), None);
                EpollTimeout::ZERO
            }
            Some(left) => {
                EpollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(EpollTimeout::MAX)
            }
        };
        self.epoll.wait(events, timeout).unwrap_or(0)
    }

    fn on_event(&mut self, token: u64, flags: EpollFlags) {
        if token == EVENT_TOKEN {
            // Empty if somebody else's wake was taken along; that is no error.
            let _ = self.shared.event.read();
        } else if token < FIRST_SESSION_TOKEN {
            self.accept((token - EVENT_TOKEN - 1) as usize);
        } else {
            self.on_session_event(token, flags);
        }
    }

    fn run_commands(&mut self) {
        let commands = std::mem::take(&mut *self.shared.commands.lock());
        for command in commands {
            match command {
                Command::Send(link) => self.on_send(&link),
                Command::Mail(link, mail) => self.on_mail(&link, &mail),
                Command::Stop => self.stopped = true,
            }
        }
        if self.shared.tick.swap(false, Ordering::AcqRel) {
            self.tick();
        }
    }

    fn run_timers(&mut self) {
        let now = Instant::now();
        let is_due = |&&Reverse((at, _)): &&Reverse<(Instant, Timer)>| at <= now;
        while let Some(&Reverse((at, timer))) = self.timers.peek().filter(is_due) {
            self.timers.pop();
            match timer {
                Timer::Proof(token) => self.on_proof_time(token),
                Timer::Dial(instance) => self.on_dial_time(instance, at),
                Timer::Mail(instance) => self.on_mail_time(instance, at),
                Timer::Listen if !self.listening => self.listen_again(),
                Timer::Tick if self.tick_at == Some(at) => self.tick(),
                Timer::Listen | Timer::Tick => {}
            }
        }
    }

    fn tick(&mut self) {
        self.tick_at = None;
        let handler = Arc::clone(&self.shared.handler);
        if let Some(Some(after)) = guarded(|| handler.on_tick()) {
            let at = Instant::now() + after;
            self.tick_at = Some(at);
            self.set_timer(at, Timer::Tick);
        }
    }

    /// Sets a timer; there is no taking back, whoever it wakes looks whether it still matters.
    pub(super) fn set_timer(&mut self, at: Instant, timer: Timer) {
        self.timers.push(Reverse((at, timer)));
    }

    /// Watches a new session and gives it a token.
    pub(super) fn adopt_socket(&mut self, session: Session) -> io::Result<u64> {
        let token = self.next_token;
        let interest = match session.phase {
            Phase::Connecting => EpollFlags::EPOLLOUT,
            _ => EpollFlags::EPOLLIN,
        };
        self.epoll.add(&session, EpollEvent::new(interest, token))?;
        self.next_token += 1;
        self.sessions.insert(token, session);
        Ok(token)
    }

    /// Watches a session for input, and for room to write if `room`.
    pub(super) fn watch(&self, token: u64, session: &mut Session, room: bool) {
        let mut interest = EpollFlags::EPOLLIN;
        interest.set(EpollFlags::EPOLLOUT, room);
        // It fails only for a descriptor that is not watched; such a session times out.
        let _ = self
            .epoll
            .modify(&*session, &mut EpollEvent::new(interest, token));
        session.watched_for_room = room;
    }

    /// Ends a link for good and tells everybody who waits for it.
    pub(super) fn fail(&mut self, link: &Arc<Link>, error: LinkError) {
        if !link.fail(error.clone()) {
            return;
        }
        let current = self.peers.get(&link.instance);
        if current.is_some_and(|peer| Arc::ptr_eq(&peer.link, link)) {
            let peer = self.peers.remove(&link.instance);
            let tokens = peer.map(|peer| [peer.current, peer.dialling]);
            for token in tokens.into_iter().flatten().flatten() {
                self.sessions.remove(&token);
            }
        }
        self.call(|handler| handler.on_link_down(link, &error));
    }

    /// Calls the handler. A panic in it is a defect, but must not end the steward: every
    /// connection of the process would hang.
    pub(super) fn call(&self, call: impl FnOnce(&dyn ControlHandler)) {
        guarded(|| call(&*self.shared.handler));
    }

    fn end_all(&mut self) {
        self.sessions.clear();
        self.listeners.clear();
        let links: Vec<_> = self
            .shared
            .links
            .lock()
            .drain()
            .map(|(_, link)| link)
            .collect();
        for link in links {
            link.fail(LinkError::Stopped(
                "this process has ended its control plane".into(),
            ));
        }
    }
}

fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(call));
    if result.is_err() {
        tracing::error!("a handler of control frames panicked: this is a defect of R2CCL");
    }
    result.ok()
}
