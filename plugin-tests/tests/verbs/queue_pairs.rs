//! Queue pairs between two hosts: late peers, cut wires, lost addresses, peers that are not there.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use r2ccl_fabric::verbs::{VerbsConfig, VerbsDevice};
use r2ccl_fabric::{
    Completion, Device, DeviceEvent, Opcode, PortState, QueuePair, QueuePairAddress,
    QueuePairConfig, SendWork, Status, Traffic,
};

use super::{config, open};

const PATIENCE: Duration = Duration::from_secs(40);
const DEPTHS: QueuePairConfig = QueuePairConfig {
    send_depth: 32,
    receive_depth: 32,
    traffic: Traffic::Data,
};

/// Runs a command of the lab, which must succeed.
pub fn lab(command: &str) {
    let mut words = command.split_whitespace();
    let program = words.next().expect("a command");
    let status = Command::new(program).args(words).status();
    assert!(status.expect("a command of the lab").success(), "{command}");
}

/// Heals a NIC, of everything or of one way behind its name, whatever becomes of the test.
pub struct Healed<'a>(pub &'a str);

impl Drop for Healed<'_> {
    fn drop(&mut self) {
        lab(&format!("lab-heal {}", self.0));
    }
}

fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn post(queue_pair: &mut dyn QueuePair, work: SendWork) {
    // SAFETY: the work has no buffer.
    assert_eq!(unsafe { queue_pair.post_send(&[work]) }, Ok(1));
}

/// Polls until there are `count` completions; those of sends with their ids.
fn completions(queue_pair: &mut dyn QueuePair, count: usize) -> Vec<(u64, Opcode, Status)> {
    let mut done = Vec::new();
    wait("completions", || {
        let mut entries = [Completion::EMPTY; 64];
        let polled = queue_pair.poll(&mut entries);
        let seen = entries[..polled].iter();
        done.extend(seen.map(|entry| (entry.id, entry.opcode, entry.status)));
        done.len() >= count
    });
    assert_eq!(done.len(), count, "{done:?}");
    done
}

type Pair = (Box<dyn QueuePair>, Box<dyn QueuePair>);

fn pair(one: &VerbsDevice, other: &VerbsDevice) -> Pair {
    let mut a = one.create_queue_pair(DEPTHS).expect("a queue pair");
    let mut b = other.create_queue_pair(DEPTHS).expect("a queue pair");
    a.connect(&b.address()).expect("connects");
    b.connect(&a.address()).expect("connects");
    (a, b)
}

/// An empty write from one to the other, and how it ends.
fn try_out((a, b): &mut Pair) -> Status {
    post(a.as_mut(), SendWork::empty(1));
    let mut entry = [Completion::EMPTY];
    wait("a write", || {
        b.poll(&mut [Completion::EMPTY; 4]);
        a.poll(&mut entry) == 1
    });
    entry[0].status
}

/// PROTOCOL R60. The NICs say whether they can talk, though a queue pair between them cannot.
#[test]
#[ignore = "needs the kernel lab"]
fn nics_answer_for_a_queue_pair_that_does_not() {
    let (one, other) = (open("rxe_a0", &config()), open("rxe_b0", &config()));
    let mut pair = pair(&one, &other);
    assert_eq!(try_out(&mut pair), Status::Success);
    let (mut a, mut b) = pair;
    let answers = |queue_pair: &mut dyn QueuePair, id: u64, patience: Duration| {
        queue_pair.probe_nics(id);
        let start = Instant::now();
        let mut entry = [Completion::EMPTY];
        while queue_pair.poll(&mut entry) == 0 && start.elapsed() < patience {
            std::thread::yield_now();
        }
        (entry[0].opcode, entry[0].id) == (Opcode::NicProbe, id)
    };
    assert!(answers(a.as_mut(), 7, PATIENCE));
    b.set_error();
    assert!(answers(a.as_mut(), 8, PATIENCE), "its peer has ended");
    let healed = Healed("b0");
    lab("lab-cut b0 deaf");
    let silence = Duration::from_millis(200);
    assert!(!answers(a.as_mut(), 9, silence), "nothing gets there");
    drop(healed);
    assert!(answers(a.as_mut(), 10, PATIENCE));
    drop(b);
    assert!(!answers(a.as_mut(), 11, silence), "nobody knows the asker");
}

/// New queue pairs until one works: a port that is up again may still lose packets for a moment.
fn await_a_working_pair(one: &Arc<VerbsDevice>, other: &Arc<VerbsDevice>) {
    let works = || try_out(&mut pair(one, other)) == Status::Success;
    wait("a queue pair that works", works);
}

/// Work that nobody wants to hear of does not fill the send queue for good.
#[test]
#[ignore = "needs the kernel lab"]
fn unsignaled_work_alone_makes_room_for_more() {
    let (one, other) = (open("rxe_a0", &config()), open("rxe_b0", &config()));
    let (mut a, mut b) = pair(&one, &other);
    let silent = SendWork {
        signaled: false,
        ..SendWork::empty(1)
    };
    let mut taken = 0;
    wait("200 writes", || {
        b.poll(&mut [Completion::EMPTY; 4]);
        assert_eq!(a.poll(&mut [Completion::EMPTY; 4]), 0);
        // SAFETY: the work has no buffer.
        taken += unsafe { a.post_send(&[silent; 8]) }.expect("posted");
        taken >= 200
    });
}

/// PROTOCOL R38. When `set_error` has returned, the device is done with the queue pair: every
/// completion is there at once.
#[test]
#[ignore = "needs the kernel lab"]
fn set_error_returns_when_all_is_flushed() {
    let (one, other) = (open("rxe_a0", &config()), open("rxe_b0", &config()));
    for _ in 0..20 {
        let mut pair = pair(&one, &other);
        assert_eq!(try_out(&mut pair), Status::Success);
        let (mut a, b) = pair;
        a.post_receives(5).expect("receives");
        for id in 1..=20 {
            // Nothing takes them at the target.
            let immediate = Some(1);
            post(
                a.as_mut(),
                SendWork {
                    immediate,
                    ..SendWork::empty(id)
                },
            );
        }
        a.set_error();
        let mut entries = [Completion::EMPTY; 64];
        assert_eq!(a.poll(&mut entries), 25);
        assert!(
            entries[..25]
                .iter()
                .all(|entry| entry.status == Status::Flushed)
        );
        drop(b);
    }
}

#[test]
#[ignore = "needs the kernel lab"]
fn a_silent_cut_ends_the_work_and_new_queue_pairs_work_after_it() {
    let (one, other) = (open("rxe_a1", &config()), open("rxe_b1", &config()));
    let mut cut = pair(&one, &other);
    assert_eq!(try_out(&mut cut), Status::Success);
    let healed = Healed("b1");
    lab("lab-cut b1 deaf");
    for id in 2..=4 {
        post(cut.0.as_mut(), SendWork::empty(id));
    }
    let ended = completions(cut.0.as_mut(), 3);
    let write = Opcode::Write;
    assert_eq!(ended[0], (2, write, Status::RetryExceeded));
    assert_eq!(ended[1..], [3, 4].map(|id| (id, write, Status::Flushed)));
    assert!(cut.0.is_error());
    assert!(!cut.1.is_error(), "a receiver is not told");
    drop(healed);
    await_a_working_pair(&one, &other);
}

#[test]
#[ignore = "needs the kernel lab"]
fn a_port_tells_of_its_link() {
    let (one, other) = (open("rxe_a1", &config()), open("rxe_b1", &config()));
    while one.poll_event().is_some() {}
    let healed = Healed("a1");
    lab("lab-cut a1 admin");
    wait("the event", || {
        one.poll_event() == Some(DeviceEvent::PortDown)
    });
    assert_eq!(one.port_state(), PortState::Down);
    assert_eq!(other.port_state(), PortState::Active);
    assert_eq!(other.poll_event(), None);
    drop(healed);
    wait("the event", || {
        one.poll_event() == Some(DeviceEvent::PortUp)
    });
    wait("the state", || one.port_state() == PortState::Active);
    await_a_working_pair(&one, &other);
}

/// Whoever looks at a queue pair may be the one who reads that a port has gone: those who wait for
/// its events are woken all the same.
#[test]
#[ignore = "needs the kernel lab"]
fn a_port_tells_of_its_link_whoever_reads_it() {
    let (one, other) = (open("rxe_a1", &config()), open("rxe_b1", &config()));
    let wakes = Arc::new(AtomicU32::new(0));
    let seen = wakes.clone();
    one.on_event(Box::new(move || {
        seen.fetch_add(1, Ordering::SeqCst);
    }));
    // Holds the thread that waits for events, behind the device whose wake is looked for.
    let (is_held, is_free) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (held, free) = (is_held.clone(), is_free.clone());
    other.on_event(Box::new(move || {
        held.store(true, Ordering::SeqCst);
        wait("the end of the test", || free.load(Ordering::SeqCst));
    }));
    let reader = one.create_queue_pair(DEPTHS).expect("a queue pair");
    let healed = (Healed("b1"), Healed("a1"));
    lab("lab-cut b1 admin");
    wait("an event of the other device", || {
        is_held.load(Ordering::SeqCst)
    });
    let before = wakes.load(Ordering::SeqCst);
    lab("lab-cut a1 admin");
    reader.is_error();
    is_free.store(true, Ordering::SeqCst);
    wait("a call", || wakes.load(Ordering::SeqCst) > before);
    drop(healed);
    wait("the links", || {
        [&one, &other].map(|it| it.port_state()) == [PortState::Active; 2]
    });
}

/// Data and control have the traffic classes that they were given, as the switch sees them.
#[test]
#[ignore = "needs the kernel lab"]
fn packets_carry_their_traffic_class() {
    let config = VerbsConfig {
        traffic_class: 0x68,
        control_traffic_class: 0xc0,
        ..config()
    };
    let (one, other) = (open("rxe_a0", &config), open("rxe_b0", &config));
    let control = QueuePairConfig {
        traffic: Traffic::Control,
        ..DEPTHS
    };
    let before = [passed("a0", 0x68), passed("b0", 0xc0)];
    let mut a = one.create_queue_pair(DEPTHS).expect("a queue pair");
    let mut b = other.create_queue_pair(control).expect("a queue pair");
    a.connect(&b.address()).expect("connects");
    b.connect(&a.address()).expect("connects");
    assert_eq!(try_out(&mut (a, b)), Status::Success);
    assert!(passed("a0", 0x68) > before[0] && passed("b0", 0xc0) > before[1]);
    assert_eq!([passed("a0", 0xc0), passed("b0", 0x68)], [0, 0]);
}

/// RDMA packets of a traffic class that the switch has had from a NIC since this was first asked.
fn passed(nic: &str, class: u8) -> u64 {
    let switch = |arguments: &str| {
        let words = format!("-netns fabric -s filter {arguments}");
        let output = Command::new("tc").args(words.split_whitespace()).output();
        String::from_utf8_lossy(&output.expect("the lab's tc").stdout).into_owned()
    };
    let at = format!("dev p{nic} ingress pref {class}");
    switch(&format!(
        "add {at} protocol ip flower ip_proto udp dst_port 4791 ip_tos {class:#x} action pass"
    ));
    let text = switch(&format!("show {at}"));
    let sent = text.split("Sent ").nth(1).expect("a counter");
    let packets = sent.split_whitespace().nth(2).expect("packets");
    packets.parse().expect("a number")
}

/// The address of a queue pair moves to another place of the table between its making and its
/// connecting.
#[test]
#[ignore = "needs the kernel lab"]
fn an_address_is_found_where_it_has_moved() {
    let (one, other) = (open("rxe_a1", &config()), open("rxe_b1", &config()));
    let place = || {
        let gids = (0..8).map(|index| format!("/sys/class/infiniband/rxe_a1/ports/1/gids/{index}"));
        gids.map(|file| std::fs::read_to_string(file).unwrap_or_default())
            .position(|gid| gid.trim().ends_with(":ffff:0a0a:0101"))
    };
    let before = place();
    let mut a = one.create_queue_pair(DEPTHS).expect("a queue pair");
    let mut b = other.create_queue_pair(DEPTHS).expect("a queue pair");
    lab("ip address del 10.10.1.1/24 dev a1");
    lab("ip address add 10.10.1.99/32 dev a1");
    lab("ip address add 10.10.1.1/24 dev a1");
    wait("a new place", || {
        place().is_some_and(|place| Some(place) != before)
    });
    a.connect(&b.address()).expect("connects");
    b.connect(&a.address()).expect("connects");
    let result = try_out(&mut (a, b));
    lab("ip address del 10.10.1.99/32 dev a1");
    lab("lab-heal a1");
    assert_eq!(result, Status::Success);
}

/// Nothing blocks: the helper looks for the peer, and its failure shows on the work.
#[test]
#[ignore = "needs the kernel lab"]
fn a_peer_that_does_not_exist_shows_as_retry_exceeded() {
    let one = open("rxe_a0", &config());
    let mut a = one.create_queue_pair(DEPTHS).expect("a queue pair");
    let mut address = a.address();
    // The last byte of the GID: a host that is not there.
    address.0[31] = 77;
    a.post_receives(2).expect("receives");
    a.connect(&address).expect("does not block");
    for id in 1..=3 {
        post(a.as_mut(), SendWork::empty(id));
    }
    assert!(a.has_backlog(), "somebody must poll");
    let mut ended = completions(a.as_mut(), 5);
    ended.retain(|(_, opcode, _)| *opcode == Opcode::Write);
    let statuses = [Status::RetryExceeded, Status::Flushed, Status::Flushed];
    let expected: Vec<_> = (1..)
        .zip(statuses)
        .map(|(id, it)| (id, Opcode::Write, it))
        .collect();
    assert_eq!(ended, expected);
    assert!(a.is_error() && !a.has_backlog());
}

#[test]
#[ignore = "needs the kernel lab"]
fn addresses_of_other_kinds_are_refused() {
    let one = open("rxe_a0", &config());
    let mut a = one.create_queue_pair(DEPTHS).expect("a queue pair");
    let soft = QueuePairAddress([7; QueuePairAddress::BYTES]);
    let error = a
        .connect(&soft)
        .expect_err("not an RDMA device")
        .to_string();
    assert!(
        error.contains("rxe_a0") && error.contains("R2CCL_FABRIC"),
        "{error}"
    );
    let mut infiniband = a.address();
    infiniband.0[15] = 1;
    let error = a.connect(&infiniband).expect_err("InfiniBand").to_string();
    assert!(error.contains("InfiniBand"), "{error}");
    let own = a.address();
    a.connect(&own).expect("to itself");
    let error = a.connect(&own).expect_err("twice").to_string();
    assert!(error.contains("connected already"), "{error}");
}

/// The end that has connected first waits for its peer as long as that takes: much longer than all
/// retries, in the order in which the plugin connects.
#[test]
#[ignore = "needs the kernel lab"]
fn work_waits_for_a_peer_that_connects_late() {
    let (one, other) = (open("rxe_a0", &config()), open("rxe_b0", &config()));
    let mut a = one.create_queue_pair(DEPTHS).expect("a queue pair");
    let mut b = other.create_queue_pair(DEPTHS).expect("a queue pair");
    b.connect(&a.address()).expect("connects");
    post(b.as_mut(), SendWork::empty(1));
    // Half a second is when retries end.
    let late = Instant::now() + Duration::from_secs(1);
    while Instant::now() < late {
        assert_eq!(b.poll(&mut [Completion::EMPTY; 4]), 0);
        std::thread::yield_now();
    }
    assert!(!a.has_backlog(), "nothing to do yet");
    a.connect(&b.address()).expect("connects");
    assert!(a.has_backlog(), "somebody must poll, or the peer waits");
    let mut done = Vec::new();
    wait("the write", || {
        a.poll(&mut [Completion::EMPTY; 4]);
        let mut entry = [Completion::EMPTY];
        let count = b.poll(&mut entry);
        done.extend(entry.iter().take(count).map(|entry| entry.status));
        !done.is_empty()
    });
    assert_eq!(done, [Status::Success]);
    wait("an end of it", || {
        b.poll(&mut [Completion::EMPTY; 4]);
        a.poll(&mut [Completion::EMPTY; 4]);
        !a.has_backlog() && !b.has_backlog()
    });
}

/// What is sent before the peer is ready is lost. Without timers, only what is sent behind it can
/// have it sent again.
#[test]
#[ignore = "needs the kernel lab"]
fn an_early_greeting_is_sent_again() {
    let config = VerbsConfig {
        timeout: 0,
        ..config()
    };
    let (one, other) = (open("rxe_a0", &config), open("rxe_b0", &config));
    let mut a = one.create_queue_pair(DEPTHS).expect("a queue pair");
    let mut b = other.create_queue_pair(DEPTHS).expect("a queue pair");
    let (of_a, of_b) = (a.address(), b.address());
    let before = sent("rxe_a0");
    a.connect(&of_b).expect("connects");
    wait("a greeting that is lost", || {
        a.poll(&mut [Completion::EMPTY; 4]);
        sent("rxe_a0") > before
    });
    b.connect(&of_a).expect("connects");
    // Only one end has work: the other's greeting is all that lets it go.
    post(b.as_mut(), SendWork::empty(1));
    wait("the write", || {
        assert_eq!(a.poll(&mut [Completion::EMPTY; 4]), 0);
        b.poll(&mut [Completion::EMPTY; 4]) == 1
    });
}

/// Packets that a device has sent since it was made.
fn sent(device: &str) -> u64 {
    let file = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts");
    let text = std::fs::read_to_string(file).expect("a counter");
    text.trim().parse().expect("a number")
}
