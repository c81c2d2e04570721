//! Connections cut again and again, from outside, while frames flow both ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::kit::{Node, cut, numbered, wait_until};
use crate::runtime::control::Link;

const FRAMES: u64 = 2000;

fn send_slowly(link: &Arc<Link>) {
    for number in 0..FRAMES {
        link.send(numbered(number)).expect("sent");
        if number % 16 == 0 {
            std::thread::yield_now();
        }
    }
}

fn run(marks: &[u64], both_dial: bool) -> Result<(), TestCaseError> {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let ab = a.link(&b);
    ab.send(numbered(u64::MAX)).expect("sent");
    b.recorder.wait_frames(1);
    let ba = match both_dial {
        true => b.link(&a),
        false => b.recorder.wait(|events| events.links.first().cloned()),
    };
    let cuts = std::thread::scope(|scope| {
        scope.spawn(|| send_slowly(&ab));
        scope.spawn(|| send_slowly(&ba));
        let mut cuts = 0;
        for &mark in marks {
            wait_until("frames flow", || b.recorder.numbers().len() as u64 > mark);
            cuts += usize::from(cut(a.address()) + cut(b.address()) > 0);
        }
        cuts
    });
    a.recorder.wait_frames(FRAMES as usize);
    b.recorder.wait_frames(FRAMES as usize + 1);
    let expected: Vec<_> = (0..FRAMES).collect();
    prop_assert_eq!(a.recorder.numbers(), expected.clone());
    prop_assert_eq!(&b.recorder.numbers()[1..], expected);
    wait_until("cuts are followed by a reconnection", || {
        cuts == 0 || a.plane.counters().reconnects > 0
    });
    prop_assert!(ab.error().is_none() && ba.error().is_none());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn frames_arrive_once_and_in_order_across_cuts(
        mut marks in proptest::collection::vec(0..FRAMES, 1..12),
        both_dial: bool,
    ) {
        marks.sort_unstable();
        run(&marks, both_dial)?;
    }
}

/// PROTOCOL R29.
#[test]
fn a_storm_of_cuts_is_survived() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let (ab, ba) = (a.link(&b), b.link(&a));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| send_slowly(&ab));
        scope.spawn(|| send_slowly(&ba));
        scope.spawn(|| {
            for _ in 0..100 {
                cut(a.address());
                cut(b.address());
                std::thread::park_timeout(std::time::Duration::from_millis(2));
            }
            done.store(true, Ordering::Release);
        });
    });
    assert!(done.load(Ordering::Acquire));
    for node in [&a, &b] {
        node.recorder.wait_frames(FRAMES as usize);
        assert_eq!(node.recorder.numbers(), (0..FRAMES).collect::<Vec<_>>());
    }
    assert!(a.plane.counters().reconnects > 0);
}
