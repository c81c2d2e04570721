//! Counts of a receiver that has an eager message of a group that lacks sends.

use super::{GENERATION, LOCAL, PATH, credit, give, sender, submit};
use crate::ids::Seq;
use crate::sender::SendStatus;
use crate::time::Time;

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
