//! Planes with handlers that remember, waiting with a deadline, and a knife for connections.

use std::collections::HashSet;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use r2ccl_core::wire::frame::Frame;
use r2ccl_core::wire::handle::PROTOCOL_VERSION;

use super::super::{Config, ControlHandler, ControlPlane, Link, LinkError};

/// Longest wait of a test for anything that must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A handler that remembers everything.
#[derive(Default)]
pub(super) struct Recorder {
    events: Mutex<Events>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct Events {
    /// Frames with the instance of their sender.
    pub(super) frames: Vec<(u64, Frame)>,
    /// Links that went down.
    pub(super) downs: Vec<(Arc<Link>, LinkError)>,
    /// Links on which frames came.
    pub(super) links: Vec<Arc<Link>>,
    /// Links whose mail was due, and whether it asks.
    pub(super) mails: Vec<(Arc<Link>, bool)>,
    /// Calls of `on_tick`.
    pub(super) ticks: usize,
    /// What `on_tick` answers, last first.
    pub(super) pauses: Vec<Duration>,
}

impl ControlHandler for Recorder {
    fn on_frame(&self, link: &Arc<Link>, frame: Frame) {
        if frame == PANIC {
            // Without the hook, whose backtrace can take seconds.
            std::panic::resume_unwind(Box::new("the test asked for a panic"));
        }
        let mut events = self.events.lock();
        events.frames.push((link.instance(), frame));
        if !events.links.iter().any(|other| Arc::ptr_eq(other, link)) {
            events.links.push(Arc::clone(link));
        }
        self.changed.notify_all();
    }

    fn on_link_down(&self, link: &Arc<Link>, reason: &LinkError) {
        self.events
            .lock()
            .downs
            .push((Arc::clone(link), reason.clone()));
        self.changed.notify_all();
    }

    fn on_mail_due(&self, link: &Arc<Link>, is_asking: bool) {
        let mut events = self.events.lock();
        events.mails.push((Arc::clone(link), is_asking));
        self.changed.notify_all();
    }

    fn on_tick(&self) -> Option<Duration> {
        let mut events = self.events.lock();
        events.ticks += 1;
        self.changed.notify_all();
        events.pauses.pop()
    }
}

impl Recorder {
    /// Waits until `found` finds something.
    #[track_caller]
    pub(super) fn wait<T>(&self, mut found: impl FnMut(&mut Events) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut events = self.events.lock();
        loop {
            if let Some(value) = found(&mut events) {
                return value;
            }
            let late = self.changed.wait_until(&mut events, deadline).timed_out();
            assert!(
                !late,
                "waited in vain; {} frames are here",
                events.frames.len()
            );
        }
    }

    /// Numbers of the frames made with [`numbered`] that came so far.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let number = |(_, frame): &(u64, Frame)| match frame {
            Frame::Goodbye { to: 0, count } => Some(*count),
            _ => None,
        };
        self.events
            .lock()
            .frames
            .iter()
            .filter_map(number)
            .collect()
    }

    /// Waits for that many frames.
    #[track_caller]
    pub(super) fn wait_frames(&self, count: usize) {
        self.wait(|events| (events.frames.len() >= count).then_some(()));
    }

    /// Waits for the first link to go down.
    #[track_caller]
    pub(super) fn wait_down(&self) -> LinkError {
        self.wait(|events| events.downs.first().map(|(_, error)| error.clone()))
    }
}

/// A frame that makes the recorder panic.
pub(super) const PANIC: Frame = Frame::Goodbye {
    to: u64::MAX,
    count: 0xdead,
};

/// A frame with a number.
pub(super) fn numbered(number: u64) -> Frame {
    Frame::Goodbye {
        to: 0,
        count: number,
    }
}

/// A plane with its handler.
pub(super) struct Node {
    pub(super) plane: Arc<ControlPlane>,
    pub(super) recorder: Arc<Recorder>,
}

/// Settings of a node that listens on one loopback address of its own.
pub(super) fn config(host: &str) -> Config {
    static NEXT: AtomicU64 = AtomicU64::new(2);
    let last = 2 + NEXT.fetch_add(1, Ordering::Relaxed) % 200;
    Config {
        addresses: vec![SocketAddr::from(([127, 0, 0, last as u8], 0))],
        host: host.to_owned(),
        host_id: 7,
        settings: vec![("R2CCL_ACK".into(), "delivered".into())],
        giveup: Duration::from_secs(60),
        instance: None,
        version: PROTOCOL_VERSION,
    }
}

impl Node {
    pub(super) fn new(host: &str) -> Self {
        Self::with(config(host))
    }

    pub(super) fn with(config: Config) -> Self {
        let recorder = Arc::new(Recorder::default());
        let plane = ControlPlane::start(config, recorder.clone()).expect("the plane starts");
        Self { plane, recorder }
    }

    /// The link to another node.
    pub(super) fn link(&self, other: &Node) -> Arc<Link> {
        self.plane.link(&other.plane.handle_for(1)).expect("a link")
    }

    /// A link to the other node by an address that takes connections and never answers.
    pub(super) fn silent_link(&self, other: &Node) -> (TcpListener, Arc<Link>) {
        let silent = TcpListener::bind((other.address().ip(), 0)).expect("a port");
        let mut handle = other.plane.handle_for(1);
        handle.addresses = vec![silent.local_addr().expect("an address")];
        (silent, self.plane.link(&handle).expect("a link"))
    }

    /// Address of the only listener.
    pub(super) fn address(&self) -> SocketAddr {
        self.plane.addresses()[0]
    }
}

/// Waits for a condition that nobody signals.
#[track_caller]
pub(super) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Ends in this process of connections to the listener at `address`, as descriptors of their own.
pub(super) fn connections(address: SocketAddr) -> Vec<TcpStream> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("descriptors are listed");
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // All numbers first, and each pair of ends once: the duplicates made below may take numbers
    // of the list.
    let numbers: Vec<i32> = numbers.collect();
    let mut seen = HashSet::new();
    numbers
        .into_iter()
        .filter(|&number: &i32| number >= 0)
        .filter_map(|number| {
            // SAFETY: the descriptor may be closed or another one by now; it is only duplicated,
            // which fails or yields whatever it is, and the duplicate is looked at below.
            let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
            let stream = TcpStream::from(borrowed.try_clone_to_owned().ok()?);
            let ends = [stream.local_addr().ok()?, stream.peer_addr().ok()?];
            (ends.contains(&address) && seen.insert(ends)).then_some(stream)
        })
        .collect()
}

/// Cuts every connection to the listener at `address`; answers how many ends there were.
pub(super) fn cut(address: SocketAddr) -> usize {
    let streams = connections(address);
    // One that is closed already is as good as cut.
    streams
        .iter()
        .for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    streams.len()
}

impl ControlPlane {
    /// Whether no process is known.
    pub(super) fn links_are_empty(&self) -> bool {
        self.shared.links.lock().is_empty()
    }
}
