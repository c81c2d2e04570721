//! What works when nobody does harm.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use r2ccl_core::wire::frame::Frame;

use super::kit::{Node, PANIC, PATIENCE, config, connections, numbered, wait_until};
use crate::runtime::control::{ControlHandler, ControlPlane, Link, LinkError};
use crate::runtime::error::Error;

#[test]
fn frames_go_both_ways_over_one_connection() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let ab = a.link(&b);
    (0..100).for_each(|number| ab.send(numbered(number)).expect("sent"));
    b.recorder.wait_frames(100);
    assert_eq!(b.recorder.numbers(), (0..100).collect::<Vec<_>>());
    assert!(ab.is_up());
    assert_eq!(ab.peer().host, "b");
    assert_eq!(ab.peer().pid, std::process::id());

    let ba = b.link(&a);
    let seen = b.recorder.wait(|events| events.links.first().cloned());
    assert!(
        Arc::ptr_eq(&ba, &seen),
        "a handle leads to the link that exists"
    );
    assert_eq!(ba.peer().instance, a.plane.instance());
    (0..100).for_each(|number| ba.send(numbered(number)).expect("sent"));
    a.recorder.wait_frames(100);
    assert_eq!(a.recorder.numbers(), (0..100).collect::<Vec<_>>());
    assert!(Arc::ptr_eq(
        &ab,
        &a.plane.link(&b.plane.handle_for(2)).expect("a link")
    ));
    // Tests beside this one hold duplicates of descriptors for moments.
    wait_until("there is one connection", || {
        (
            connections(a.address()).len(),
            connections(b.address()).len(),
        ) == (0, 2)
    });
}

/// PROTOCOL R30.
#[test]
fn crossing_dials_leave_one_connection_and_lose_nothing() {
    for _ in 0..20 {
        let (a, b) = (Node::new("a"), Node::new("b"));
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for (from, to) in [(&a, &b), (&b, &a)] {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let link = from.link(to);
                    (0..50).for_each(|number| link.send(numbered(number)).expect("sent"));
                });
            }
        });
        for node in [&a, &b] {
            node.recorder.wait_frames(50);
            assert_eq!(node.recorder.numbers(), (0..50).collect::<Vec<_>>());
        }
        wait_until("one connection stays", || {
            connections(a.address()).len() + connections(b.address()).len() == 2
        });
        // The links hear of it a moment later.
        wait_until("both links stand", || {
            a.link(&b).is_up() && b.link(&a).is_up()
        });
        for node in [&a, &b] {
            node.recorder
                .wait(|events| events.downs.is_empty().then_some(()));
            let counters = node.plane.counters();
            assert_eq!(counters.strangers, 0, "the dial that lost is no stranger");
        }
    }
}

#[test]
fn a_process_talks_to_itself() {
    let node = Node::new("a");
    let link = node.link(&node);
    (0..10).for_each(|number| link.send(numbered(number)).expect("sent"));
    assert!(link.flush(Instant::now() + Duration::from_secs(10)));
    assert_eq!(node.recorder.numbers(), (0..10).collect::<Vec<_>>());
    assert!(link.is_up());
}

#[test]
fn ticks_come_when_asked_for() {
    let node = Node::new("a");
    node.recorder.wait(|events| {
        events.pauses = vec![Duration::from_micros(200), Duration::from_millis(20)];
        Some(())
    });
    let start = Instant::now();
    node.plane.wake();
    node.recorder
        .wait(|events| (events.ticks == 3).then_some(()));
    assert!(start.elapsed() >= Duration::from_millis(20));
    node.plane.wake();
    node.recorder
        .wait(|events| (events.ticks == 4).then_some(()));
}

/// PROTOCOL R25.
#[test]
fn flush_waits_for_the_peer_and_no_longer_than_told() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let link = a.link(&b);
    assert!(link.flush(Instant::now()), "nothing was sent");
    link.send(numbered(1)).expect("sent");
    assert!(link.flush(Instant::now() + Duration::from_secs(10)));
    assert_eq!(b.recorder.numbers(), [1]);

    let (_silent, link) = a.silent_link(&Node::new("c"));
    link.send(numbered(2)).expect("sent");
    let start = Instant::now();
    assert!(!link.flush(start + Duration::from_millis(20)));
    assert!(start.elapsed() >= Duration::from_millis(20));
    (0..5).for_each(|_| assert!(!link.flush(start + Duration::from_secs(60))));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "one budget for all"
    );
}

#[test]
fn a_port_in_use_is_named_with_its_setting() {
    let first = Node::new("a");
    let mut second = config("b");
    second.addresses = first.plane.addresses().to_vec();
    let error = ControlPlane::start(second, first.recorder.clone())
        .err()
        .expect("an error");
    let text = error.to_string();
    assert!(matches!(error, Error::Usage(_)), "{text}");
    let port = format!("port {}", first.address().port());
    assert!(
        text.contains(&port) && text.contains("R2CCL_CONTROL_PORT"),
        "{text}"
    );
}

#[test]
fn a_queue_has_a_bound() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let (_silent, link) = a.silent_link(&b);
    let refused = (0..70_000).find(|&number| link.send(numbered(number)).is_err());
    assert_eq!(refused, Some(65_536));
}

/// PROTOCOL R28.
#[test]
fn a_panic_of_the_handler_ends_neither_link_nor_steward() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let link = a.link(&b);
    link.send(PANIC).expect("sent");
    link.send(numbered(1)).expect("sent");
    b.recorder.wait_frames(1);
    assert_eq!(b.recorder.numbers(), [1]);
}

/// Says what the steward calls, and keeps it there until it may go on.
struct Gated {
    calls: Mutex<Sender<&'static str>>,
    gate: Mutex<Receiver<()>>,
}

impl Gated {
    fn pass(&self, call: &'static str) {
        let _ = self.calls.lock().send(call);
        let _ = self.gate.lock().recv_timeout(PATIENCE);
    }
}

impl ControlHandler for Gated {
    fn on_frame(&self, _: &Arc<Link>, _: Frame) {
        self.pass("frame");
    }

    fn on_link_down(&self, _: &Arc<Link>, _: &LinkError) {}

    fn on_mail_due(&self, _: &Arc<Link>, _: bool) {}

    fn on_tick(&self) -> Option<Duration> {
        self.pass("tick");
        None
    }
}

#[test]
fn no_wake_is_lost_while_the_steward_takes_its_events() {
    let ((calls, called), (open, gate)) = (channel(), channel());
    let (calls, gate) = (Mutex::new(calls), Mutex::new(gate));
    let plane = ControlPlane::start(config("a"), Arc::new(Gated { calls, gate })).expect("starts");
    let next = || called.recv_timeout(PATIENCE).expect("the steward calls");
    let peer = Node::new("b");
    let link = peer.plane.link(&plane.handle_for(1)).expect("a link");
    link.send(numbered(0)).expect("sent");
    assert_eq!(next(), "frame");
    open.send(()).expect("it waits");

    // While it is busy there come, in this order, a frame and a wake: it will take both at once.
    plane.wake();
    assert_eq!(next(), "tick");
    link.send(numbered(1)).expect("sent");
    let address = plane.addresses()[0];
    wait_until("the frame is there", || {
        let is_there = |end: &TcpStream| end.peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
        let ends = connections(address);
        ends.iter()
            .any(|end| end.local_addr().is_ok_and(|local| local == address) && is_there(end))
    });
    plane.wake();
    open.send(()).expect("it waits");
    // While it has the frame, before it has looked at the wake: another one.
    assert_eq!(next(), "frame");
    plane.shared.notify();
    open.send(()).expect("it waits");
    assert_eq!(next(), "tick");
    open.send(()).expect("it waits");
    // It sleeps, and must hear this; its timer for the peer's proof would wake it after 2 s.
    plane.wake();
    let heard = called.recv_timeout(Duration::from_secs(1));
    assert_eq!(heard, Ok("tick"), "the wake was lost");
    open.send(()).expect("it waits");
}
