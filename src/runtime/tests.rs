//! Both ends of a connection in this process, on one software NIC: rules about endings, ownership
//! and memory that no outsider can break on purpose.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use r2ccl_core::limits::{EAGER_BYTES_MAX, EAGER_SLOTS, SEGMENT_BYTES_MAX};
use r2ccl_core::wire::handle::PROTOCOL_VERSION;
use r2ccl_core::{
    End, EndConfig, Evidence, Generation, Health, PathId, Receiver, ReceiverConfig, Sender,
    SenderConfig,
};
use r2ccl_fabric::soft::{SoftConfig, SoftDevice};
use r2ccl_fabric::{
    Access, Completion, DeviceError, PostError, QueuePair, QueuePairAddress, SendWork,
    SharedDevice, Status,
};

use super::control::{Config, ControlPlane, Link};
use super::driver::{Driver, DriverConfig, Role, make_path};
use super::error::Error;
use super::fork;
use super::group::Group;
use super::memory::{MemoryCache, Regions};
use super::net::{self, MemoryKind, ReceiveBuffer};
use super::path::Path;
use super::receive::ReceiveConnection;
use super::ring::{PathMemory, Ring};
use super::send::SendConnection;
use super::shared::{Fate, Inbox, News, PathMarks, PathNic, Shared, Watch};
use super::steward::{Driven, Steward};
use super::table::Miss;
use super::{RECEIVES, Runtime, SENDS, now};

const PATIENCE: Duration = Duration::from_secs(20);
const BYTES: usize = EAGER_BYTES_MAX;
const LIFE: Generation = Generation(1);
/// Budget of a NIC in these tests.
const QUEUE_PAIRS_MAX: u32 = 8;

/// Repeats a call until it gives something.
#[track_caller]
fn until<T>(mut call: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = call() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::yield_now();
    }
}

/// What connections hang on.
struct World {
    nics: Box<[PathNic]>,
    steward: Arc<Steward>,
    link: Arc<Link>,
    plane: Arc<ControlPlane>,
}

impl World {
    fn new() -> Self {
        Self::with_nics(1)
    }

    fn with_nics(count: u8) -> Self {
        let nic = |index: u8| {
            let address = Ipv4Addr::new(127, 0, 0, index + 1).into();
            let device: SharedDevice = SoftDevice::open(SoftConfig {
                lanes: Some(0),
                ..SoftConfig::new(format!("soft{index}"), address, 10_000)
            })
            .expect("a device");
            let (dev, cache) = (usize::from(index), MemoryCache::new(device.clone()));
            PathNic {
                dev,
                device,
                cache,
                tally: Arc::default(),
            }
        };
        let address = Ipv4Addr::LOCALHOST.into();
        let steward = Arc::<Steward>::default();
        let config = Config {
            addresses: vec![SocketAddr::new(address, 0)],
            host: "h0".into(),
            host_id: 7,
            settings: Vec::new(),
            giveup: Duration::from_secs(60),
            instance: None,
            version: PROTOCOL_VERSION,
        };
        let plane = ControlPlane::start(config, steward.clone()).expect("a control plane");
        steward.set_control(plane.clone());
        let link = plane.link(&plane.handle_for(1)).expect("a link");
        Self {
            nics: (0..count).map(nic).collect(),
            steward,
            link,
            plane,
        }
    }

    /// One end of the primary path.
    fn path<H: Role>(&self) -> Path<H::Memory> {
        let made = make_path::<H>(&self.nics[0], (PathId::PRIMARY, LIFE));
        made.expect("a path")
    }

    fn shared(&self, id: u64, (own, peer): (u64, u64), access: Access) -> Arc<Shared> {
        let (connection, peer_connection) = (own, peer);
        let inbox = Arc::<Inbox>::default();
        self.steward.add_connection(connection, &self.link, &inbox);
        Arc::new(Shared {
            connection,
            peer_connection,
            link: self.link.clone(),
            group: Group::current(),
            regions: Regions::new(access, self.nics[0].cache.clone()),
            nics: self.nics.clone(),
            inbox,
            label: "h0/soft0 -> h0/soft0".into(),
            polls: AtomicU32::new(0),
            watch: Watch::new(id, self.steward.clone()),
            paths: PathMarks::default(),
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.plane.stop();
    }
}

/// A connection whose two ends have a buffer each.
struct Ends {
    send: u64,
    receive: u64,
    source: Box<[u8]>,
    sink: Box<[u8]>,
    source_mr: u64,
    sink_mr: u64,
}

impl Ends {
    fn new(world: &World) -> Self {
        Self::with_sender(world, world.path::<Sender>())
    }

    fn with_sender(world: &World, mut at_sender: Path<Ring>) -> Self {
        static NAMES: AtomicU64 = AtomicU64::new(1);
        let names = NAMES.fetch_add(2, Ordering::Relaxed);
        let mut at_receiver = world.path::<Receiver>();
        at_receiver
            .connect(&at_sender.endpoint())
            .expect("connects");
        at_sender
            .connect(&at_receiver.endpoint())
            .expect("connects");
        let sender = Sender::new(SenderConfig {
            segment_bytes_max: SEGMENT_BYTES_MAX,
        });
        let receiver = Receiver::new(ReceiverConfig::default());
        let send = SENDS.insert(|id| {
            let shared = world.shared(id, (names, names + 1), Access::Local);
            let driver = driver(&shared, sender.expect("a sender"), at_sender);
            (SendConnection::new(driver), shared)
        });
        let receive = RECEIVES.insert(|id| {
            let shared = world.shared(id, (names + 1, names), Access::RemoteWrite);
            let driver = driver(&shared, receiver, at_receiver);
            (ReceiveConnection::new(driver), shared)
        });
        for (name, id) in [(names, &send), (names + 1, &receive)] {
            world.steward.set_owner(name, *id.as_ref().expect("made"));
        }
        let mut ends = Self {
            send: send.expect("a sender"),
            receive: receive.expect("a receiver"),
            source: vec![7; BYTES].into(),
            sink: vec![0; BYTES].into(),
            source_mr: 0,
            sink_mr: 0,
        };
        ends.source_mr = register(ends.send, &mut ends.source);
        ends.sink_mr = register(ends.receive, &mut ends.sink);
        ends
    }

    /// `None` also while the steward drives the connection.
    fn try_send(&self) -> super::error::Result<Option<u64>> {
        net::isend(self.send, self.source.as_ptr(), BYTES, 0, self.source_mr)
    }

    fn send(&self) -> u64 {
        until(|| self.try_send().expect("no error"))
    }

    fn try_post(&mut self) -> super::error::Result<Option<u64>> {
        let buffer = ReceiveBuffer {
            address: self.sink.as_mut_ptr(),
            bytes: BYTES,
            tag: 0,
            mr: self.sink_mr,
        };
        net::irecv(self.receive, &[buffer])
    }

    fn post(&mut self) -> u64 {
        until(|| self.try_post().expect("no error"))
    }

    /// A receive and a send that is under way to it.
    fn message(&mut self) -> (u64, u64) {
        let receive = self.post();
        let sent = until(|| {
            // As NCCL does while a receive is open: its credit may wait for this.
            RECEIVES.own(self.receive).expect("open").progress();
            self.try_send().expect("sent")
        });
        (receive, sent)
    }

    /// The sender's primary path has failed.
    fn fail_primary(&self) {
        let mut send = SENDS.own(self.send).expect("open");
        let driver = send.driver();
        driver
            .end
            .handle_evidence(now(), PathId::PRIMARY, LIFE, Evidence::Error);
        driver.stir();
    }

    fn tell_sender(&self, news: News) {
        SENDS.shared(self.send).expect("open").inbox.put(news);
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // A test may have closed them.
        let _ = (net::close_send(self.send), net::close_receive(self.receive));
    }
}

fn driver<H: Role>(shared: &Arc<Shared>, half: H, path: Path<H::Memory>) -> Driver<H> {
    let config = EndConfig {
        hold_down_ns: 50_000_000,
        ..EndConfig::default()
    };
    let mut end = End::new(config, half);
    end.add_path(now(), PathId::PRIMARY, LIFE, (1, 1))
        .expect("a path");
    let config = DriverConfig {
        routing: config.routing,
        quarantine: Duration::from_nanos(config.quarantine_ns),
        queue_pairs_max: QUEUE_PAIRS_MAX,
    };
    Driver::new(shared.clone(), end, path, config)
}

fn register(comm: u64, buffer: &mut [u8]) -> u64 {
    // SAFETY: the buffers of `Ends` live longer than its connections.
    let mr = unsafe { net::register(comm, buffer.as_mut_ptr(), buffer.len(), MemoryKind::Host) };
    mr.expect("registered")
}

/// PROTOCOL R27.
#[test]
fn what_the_receiver_confirmed_is_done_although_it_is_gone() {
    let world = World::new();
    let mut ends = Ends::new(&world);
    ends.post();
    let (_, confirmed) = ends.message();
    // Without another call on the receiver: its counter stays where it is.
    let open = ends.send();
    ends.tell_sender(News::Goodbye(1));
    ends.tell_sender(News::LinkDown("the process is gone".into()));
    let done = until(|| net::test(confirmed).expect("done"));
    assert_eq!(done.bytes[0], BYTES);
    assert!(matches!(until(|| net::test(open).err()), Error::Remote(_)));
}

/// PROTOCOL R60: while the other end's program rests nothing answers a probe on a software NIC. It
/// is roused, and no queue pair is made anew for that.
#[test]
fn a_program_that_rests_is_roused() {
    let world = World::new();
    let mut ends = Ends::new(&world);
    for _ in 0..5 {
        for _ in 0..40 {
            let (receive, sent) = ends.message();
            until(|| net::test(receive).expect("no error"));
            until(|| net::test(sent).expect("no error"));
        }
        let receive = ends.post();
        let pause = Instant::now() + Duration::from_millis(100);
        while Instant::now() < pause {
            assert!(net::test(receive).expect("no error").is_none());
            std::thread::yield_now();
        }
        let mut owned = RECEIVES.own(ends.receive).expect("open");
        let statistics = owned.driver().end.snapshot().statistics;
        drop(owned);
        assert_eq!(statistics.queue_pair_faults, 0, "{statistics:?}");
        assert!(
            statistics.transients > 0,
            "nobody was asked: {statistics:?}"
        );
        let sent = ends.send();
        until(|| net::test(receive).expect("no error"));
        until(|| net::test(sent).expect("no error"));
    }
}

/// PROTOCOL R40, R41: sends start without a credit, as many as there are slots, and their receives
/// are done at once; done still means delivered (PROTOCOL R2).
#[test]
fn small_sends_do_not_wait_for_their_credits() {
    let world = World::new();
    let mut ends = Ends::new(&world);
    for _ in 0..3 {
        let early: Vec<_> = (0..EAGER_SLOTS).map(|_| ends.send()).collect();
        for _ in 0..100 {
            assert!(
                ends.try_send().expect("no error").is_none(),
                "all slots are in use"
            );
            let done = early
                .iter()
                .map(|&request| net::test(request).expect("no error"));
            assert!(done.flatten().next().is_none(), "not delivered");
        }
        for &request in &early {
            ends.sink.fill(0);
            let receive = ends.post();
            let done = until(|| net::test(receive).expect("no error"));
            assert_eq!((done.bytes[0], &ends.sink), (BYTES, &ends.source));
            let sent = until(|| net::test(request).expect("no error"));
            assert_eq!((sent.bytes[0], sent.is_receive), (BYTES, false));
            assert!(net::test(request).is_err(), "it was reported");
        }
    }
    // And in the other order.
    let (receive, send) = ends.message();
    until(|| net::test(receive).expect("no error"));
    until(|| net::test(send).expect("no error"));
}

/// PROTOCOL R40, R24: a send that waits for its receive has a copy on its way, and its buffer may
/// be needed again.
#[test]
fn the_buffer_of_an_early_send_is_in_use_until_it_is_delivered() {
    let world = World::new();
    let ends = Ends::new(&world);
    let early = ends.send();
    net::deregister(ends.send, ends.source_mr).expect("deregistered");
    until(|| net::test(early).err());
}

/// PROTOCOL R27, R43: the receiver's last count stands for the credit that never came.
#[test]
fn an_early_send_that_a_closed_receiver_counted_is_done() {
    let world = World::new();
    let ends = Ends::new(&world);
    let early = ends.send();
    ends.tell_sender(News::Goodbye(1));
    ends.tell_sender(News::LinkDown("the process is gone".into()));
    let done = until(|| net::test(early).expect("done"));
    assert_eq!(done.bytes[0], BYTES);
}

/// PROTOCOL R21.
#[test]
fn no_connection_of_a_communicator_outlives_the_error_of_another() {
    let world = World::new();
    let (first, mut second) = (Ends::new(&world), Ends::new(&world));
    let (arrives, _) = second.message();
    first.tell_sender(News::LinkDown("the process is gone".into()));
    // Refused at the first call that is not told "not now".
    let refused = |call: super::error::Result<Option<u64>>| match call {
        Ok(started) => started.map(|_| panic!("the connection goes on")),
        Err(_) => Some(()),
    };
    until(|| refused(first.try_send()));
    until(|| refused(second.try_send()));
    until(|| refused(second.try_post()));
    assert!(until(|| net::test(arrives).ok()).is_none_or(|done| done.is_receive));
    let another_rank = std::thread::scope(|scope| scope.spawn(|| Ends::new(&world).post()).join());
    assert!(another_rank.is_ok());
}

/// PROTOCOL R22.
#[test]
fn a_refused_key_is_final_at_once_whatever_is_heard_later() {
    let world = World::new();
    let ends = Ends::new(&world);
    let shared = SENDS.shared(ends.send).expect("open");
    let mut fate = Fate::default();
    assert!(fate.check(&shared).is_ok());
    fate.on_refusal(&shared.label, Status::RemoteAccess);
    fate.on_link_down("the process is gone".into());
    assert!(matches!(fate.verdict(&shared), Some(Error::Internal(_))));
    let mut fate = Fate::default();
    fate.on_link_down("the process is gone".into());
    let verdict = fate.verdict(&shared).map(|error| error.to_string());
    assert!(verdict.is_some_and(|text| text.contains("the process is gone")));
}

/// PROTOCOL R24.
#[test]
fn nothing_lands_in_a_buffer_that_was_deregistered_under_a_transfer() {
    let world = World::new();
    let mut ends = Ends::new(&world);
    let (receive, send) = ends.message();
    net::deregister(ends.receive, ends.sink_mr).expect("deregistered");
    // The steward may have been quicker.
    let before = ends.sink.clone();
    until(|| net::test(receive).err());
    until(|| net::test(send).err());
    assert_eq!(before, ends.sink, "a byte has landed");
    assert!(net::deregister(ends.receive, ends.sink_mr).is_err());
}

/// PROTOCOL R24.
#[test]
fn an_idle_registration_ends_without_harm() {
    let world = World::new();
    let mut ends = Ends::new(&world);
    let mut other = vec![0; BYTES].into_boxed_slice();
    let mr = register(ends.receive, &mut other);
    let (receive, send) = ends.message();
    net::deregister(ends.receive, mr).expect("deregistered");
    until(|| net::test(receive).expect("no error"));
    until(|| net::test(send).expect("no error"));
    assert_eq!(ends.sink, ends.source);
}

/// PROTOCOL R25.
#[test]
fn a_receiver_that_has_closed_has_told_its_count() {
    let world = World::new();
    let mut ends = Ends::new(&world);
    let (receive, _) = ends.message();
    until(|| net::test(receive).expect("no error"));
    let sender = SENDS.shared(ends.send).expect("open");
    net::close_receive(ends.receive).expect("closed");
    let news = until(|| sender.inbox.take().pop());
    assert!(matches!(news, News::Goodbye(1)), "{news:?}");
}

/// PROTOCOL R26.
#[test]
fn a_connection_with_a_backlog_is_driven_although_nobody_polls() {
    let world = World::new();
    let ends = Ends::new(&world);
    let shared = RECEIVES.shared(ends.receive).expect("open");
    let before = shared.polls.load(Ordering::Relaxed);
    until(|| {
        // A drive that was under way already finds that there is none.
        shared.note_backlog(true);
        (shared.polls.load(Ordering::Relaxed) != before).then_some(())
    });
    // It had nothing to push out after all: the steward lets go of it.
    until(|| shared.keep_watching().is_none().then_some(()));
}

/// PROTOCOL R28.
#[test]
fn a_call_that_did_not_return_ends_its_connection_and_no_other() {
    let world = World::new();
    let (mut broken, mut whole) = (Ends::new(&world), Ends::new(&world));
    *SENDS.own(broken.send).expect("open").in_call() = true;
    let error = until(|| broken.try_send().err());
    assert!(matches!(error, Error::Internal(_)));
    // The other end learns of it by its queue pair.
    broken.post();
    let (receive, send) = whole.message();
    until(|| net::test(receive).expect("no error"));
    until(|| net::test(send).expect("no error"));
}

/// PROTOCOL R34.
#[test]
fn a_forked_child_finds_nothing_of_its_parent() {
    let world = World::new();
    let ends = Ends::new(&world);
    fork::watch();
    // SAFETY: the child takes no lock that another thread could hold, and ends without cleaning up.
    match unsafe { nix::unistd::fork() }.expect("forked") {
        nix::unistd::ForkResult::Child => {
            let is_outside = matches!(SENDS.try_own(ends.send), Err(Miss::Unknown))
                && net::close_receive(ends.receive).is_err()
                && Runtime::get().is_err();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!is_outside)) };
        }
        nix::unistd::ForkResult::Parent { child } => {
            let status = nix::sys::wait::waitpid(child, None).expect("the child ends");
            assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0));
        }
    }
    // The steward may be driving it at this moment.
    assert!(SENDS.own(ends.send).is_some(), "the parent goes on");
}

/// Sends messages of `bytes` until `is_enough` says so, each with its own pattern.
fn stream(ends: &mut Ends, mut is_enough: impl FnMut(u8) -> bool) {
    for number in 0..=u8::MAX {
        ends.source.fill(number);
        ends.sink.fill(!number);
        let (receive, send) = ends.message();
        if is_enough(number) {
            // Under way: this one has to go again.
            let mut send = SENDS.own(ends.send).expect("open");
            let primary = send.driver().paths.get_mut(PathId::PRIMARY);
            primary.expect("made").fence();
        }
        until(|| net::test(receive).expect("no error"));
        until(|| net::test(send).expect("no error"));
        assert!(ends.sink.iter().all(|&byte| byte == number), "{number}");
    }
}

fn is_active(ends: &Ends, index: u8) -> bool {
    let path = PathId::new(index).expect("in range");
    let send = SENDS
        .own(ends.send)
        .expect("open")
        .driver()
        .end
        .health(path);
    let receive = RECEIVES
        .own(ends.receive)
        .expect("open")
        .driver()
        .end
        .health(path);
    [send, receive] == [Some(Health::Active); 2]
}

/// PROTOCOL R50 to R59: the backup is made in the background, takes over what was under way when
/// the primary path fails, and the primary path comes back.
#[test]
fn messages_go_another_way_when_their_path_fails_and_it_comes_back() {
    let world = World::with_nics(2);
    let mut ends = Ends::new(&world);
    until(|| is_active(&ends, 1).then_some(()));
    for _ in 0..3 {
        stream(&mut ends, |number| number == 100);
        until(|| (is_active(&ends, 0) && is_active(&ends, 1)).then_some(()));
    }
    let mut send = SENDS.own(ends.send).expect("open");
    let statistics = send.driver().end.snapshot().statistics;
    assert!(
        statistics.closed >= 3 && statistics.returns >= 4,
        "{statistics:?}"
    );
}

/// A queue pair whose device does not answer when it is to be stopped, as long as the gate is held.
struct Hanging {
    inner: Box<dyn QueuePair>,
    gate: Arc<Mutex<()>>,
}

impl QueuePair for Hanging {
    fn address(&self) -> QueuePairAddress {
        self.inner.address()
    }

    fn connect(&mut self, remote: &QueuePairAddress) -> Result<(), DeviceError> {
        self.inner.connect(remote)
    }

    unsafe fn post_send(&mut self, chain: &[SendWork]) -> Result<usize, PostError> {
        // SAFETY: passed on.
        unsafe { self.inner.post_send(chain) }
    }

    fn post_receives(&mut self, count: u32) -> Result<(), PostError> {
        self.inner.post_receives(count)
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        self.inner.poll(completions)
    }

    fn set_error(&mut self) {
        drop(self.gate.lock());
        self.inner.set_error();
    }

    fn is_error(&self) -> bool {
        self.inner.is_error()
    }

    fn has_backlog(&self) -> bool {
        self.inner.has_backlog()
    }
}

/// A NIC that has its share of queue pairs gets a backup only when that is needed.
#[test]
fn backups_beyond_the_budget_are_made_on_demand() {
    let world = World::with_nics(2);
    let others: Vec<_> = (0..QUEUE_PAIRS_MAX)
        .map(|_| world.nics[1].tally.count())
        .collect();
    let mut ends = Ends::new(&world);
    let backup = |ends: &Ends| {
        let mut send = SENDS.own(ends.send).expect("open");
        send.progress();
        send.driver().end.health(PathId::new(1).expect("in range"))
    };
    for _ in 0..10 {
        let (receive, send) = ends.message();
        until(|| net::test(receive).expect("no error"));
        until(|| net::test(send).expect("no error"));
        assert_eq!(backup(&ends), None);
    }
    ends.fail_primary();
    let (receive, send) = ends.message();
    until(|| net::test(receive).expect("no error"));
    until(|| net::test(send).expect("no error"));
    assert!(backup(&ends).is_some());
    assert!(world.nics[1].tally.queue_pairs() > QUEUE_PAIRS_MAX);
    drop((others, ends));
    // Ends on a helper, after the quarantine.
    until(|| (world.nics[1].tally.queue_pairs() == 0).then_some(()));
}

/// PROTOCOL R26, R53: no call waits for a device that hangs, and messages go another way; only the
/// end of the connection waits for it, for a while.
#[test]
fn a_device_that_hangs_holds_nobody() {
    let world = World::with_nics(2);
    let (nic, gate) = (&world.nics[0], Arc::default());
    let made = nic.device.create_queue_pair(Sender::QUEUE_PAIR);
    let hanging = Hanging {
        inner: made.expect("a queue pair"),
        gate: Arc::clone(&gate),
    };
    let memory = Ring::new(&nic.cache).expect("memory");
    let memory = (memory, nic.tally.count());
    let path = Path::new(PathId::PRIMARY, LIFE, Box::new(hanging), memory);
    let mut ends = Ends::with_sender(&world, path);
    until(|| is_active(&ends, 1).then_some(()));
    let hangs = gate.lock();
    let (receive, send) = ends.message();
    ends.fail_primary();
    until(|| net::test(receive).expect("no error"));
    until(|| net::test(send).expect("no error"));
    assert_eq!(ends.sink, ends.source);
    let is_lent = |send: &mut SendConnection| {
        let path = send.driver().paths.find_any(PathId::PRIMARY, LIFE);
        path.is_some_and(|path| path.is_lent())
    };
    assert!(is_lent(&mut SENDS.own(ends.send).expect("open")));
    let start = Instant::now();
    net::close_send(ends.send).expect("closed");
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    drop(hangs);
}
