//! Counts of a receiver that has an eager message of a group that lacks sends.

use super::{GENERATION, LOCAL, PATH, credit, give, sender, submit};
use crate::ids::{PathId, Seq};
use crate::route::Route;
use crate::sender::SendStatus;
use crate::time::Time;
use crate::wire::eager::{EagerHead, eager_slot};

/// Slot of the first message of a generation.
const SLOT: usize = 1;

/// PROTOCOL R41: the receiver may count an eager message that the sender has bound, while other
/// receives of its group wait for their sends.
#[test]
fn a_count_runs_ahead_of_a_group() {
    let mut sender = sender();
    let write = sender.submit_eager(Time::ZERO, LOCAL, 8, 5);
    assert!(matches!(write, Ok(Some(_))));
    for (index, tag) in [(0, 5), (1, 6)] {
        give(&mut sender, credit(index.into(), index, 2, tag)).expect("valid");
    }
    assert_eq!(sender.eager_seq(SLOT), Some(Seq(0)));
    assert!(sender.handle_counter(PATH, GENERATION, 2).is_err());
    sender.handle_counter(PATH, GENERATION, 1).expect("bound");
    assert_eq!(
        sender.eager_status(SLOT),
        SendStatus::Delivered { bytes: 8 }
    );
    sender.release_eager(SLOT).expect("delivered");

    let mut sender = super::sender();
    let write = sender.submit_eager(Time::ZERO, LOCAL, 8, 5);
    assert!(matches!(write, Ok(Some(_))));
    for (index, tag) in [(0, 5), (1, 6)] {
        give(&mut sender, credit(index.into(), index, 2, tag)).expect("valid");
    }
    assert_eq!(submit(&mut sender, 8, 6), Some(Seq(1)));
    sender.poll_transmit(PATH).expect("the group is filled");
    sender.handle_counter(PATH, GENERATION, 1).expect("bound");
    assert_eq!(
        sender.eager_status(SLOT),
        SendStatus::Delivered { bytes: 8 }
    );
    sender.release_eager(SLOT).expect("delivered");
}

/// PROTOCOL R40: messages are numbered within a generation, also when others went over another
/// path in between: the receiver has seen the numbers before.
#[test]
fn numbers_go_on_when_sends_come_back_to_a_path() {
    let other = PathId::new(1).expect("in range");
    let mut sender = sender();
    sender.add_path(other, GENERATION).expect("first");
    let mut numbers = [0; 2];
    for (seq, path) in (0..).zip([PATH, PATH, other, PATH, other, other, PATH]) {
        sender.set_route(Route::single(path)).expect("known");
        let write = sender.submit_eager(Time::ZERO, LOCAL, 8, 5);
        let write = write.expect("routed").expect("no credits");
        let number = &mut numbers[path.index()];
        *number += 1;
        let head = EagerHead::decode(&write.head, *number, GENERATION);
        assert!(head.is_some_and(|head| head.frontier == Seq(seq)));
        assert_eq!(write.slot, eager_slot(*number));
        give(&mut sender, credit(seq, 0, 1, 5)).expect("valid");
        sender
            .handle_counter(PATH, GENERATION, seq + 1)
            .expect("bound");
        sender.release_eager(write.slot).expect("delivered");
    }
}
