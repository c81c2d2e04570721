//! The target's side of a generation that ends.

use super::super::{Arrival, Receiver};
use super::{GENERATION, PATH, arrive, open, receiver};
use crate::ids::{Generation, Seq};

fn first(receiver: &Receiver) -> Option<(u64, u16, u64, bool)> {
    let answer = receiver.answer(PATH, GENERATION)?;
    Some((
        answer.first.0,
        answer.count,
        answer.arrived[0],
        answer.is_fenced,
    ))
}

/// PROTOCOL R52: the answer is there when nothing of the generation counts any more, not before:
/// what arrived after an early answer would be replayed and land twice.
#[test]
fn the_answer_is_a_commit_point() {
    let mut receiver = receiver();
    open(&mut receiver, 3).expect("room");
    arrive(&mut receiver, 0, (0, 1), 5).expect("legal");
    arrive(&mut receiver, 1, (0, 2), 5).expect("legal");
    assert_eq!(first(&receiver), None, "alive");
    assert!(receiver.close_path(PATH, GENERATION));
    assert!(!receiver.close_path(PATH, GENERATION));
    assert_eq!(receiver.poll_transmit(), None);
    assert_eq!(
        first(&receiver),
        None,
        "what is in the completion queue still counts"
    );
    assert_eq!(
        arrive(&mut receiver, 2, (1, 2), 5),
        Ok(Arrival::Segment(Seq(2)))
    );
    assert!(receiver.handle_fence(PATH, GENERATION, false));
    assert_eq!(first(&receiver), Some((1, 2, 0b01, false)));
    assert_eq!(arrive(&mut receiver, 1, (1, 2), 5), Ok(Arrival::Stale));
    assert_eq!(
        first(&receiver),
        Some((1, 2, 0b01, false)),
        "the same for ever"
    );
    let answer = receiver.answer(PATH, GENERATION).expect("over");
    assert_eq!(
        [0, 1, 2, 3].map(|seq| answer.arrived(Seq(seq))),
        [u64::MAX, 1, 2, 0]
    );
}

/// A better outcome may follow an unknown one; never the other way round.
#[test]
fn a_fence_only_gets_better() {
    let mut receiver = receiver();
    assert!(!receiver.handle_fence(PATH, GENERATION, true), "not closed");
    assert!(receiver.close_path(PATH, GENERATION));
    assert!(
        !receiver.handle_fence(PATH, Generation(7), true),
        "another one"
    );
    assert!(receiver.handle_fence(PATH, GENERATION, false));
    assert!(!receiver.handle_fence(PATH, GENERATION, false));
    assert!(receiver.handle_fence(PATH, GENERATION, true));
    assert!(!receiver.handle_fence(PATH, GENERATION, true));
    assert!(!receiver.handle_fence(PATH, GENERATION, false));
    assert!(receiver.answer(PATH, GENERATION).expect("over").is_fenced);
    receiver.add_path(PATH, Generation(2000)).expect("newer");
    assert_eq!(receiver.answer(PATH, GENERATION), None);
}
