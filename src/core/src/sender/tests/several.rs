//! Several sends that are ahead of their credits, at the sender.

extern crate std;

use super::super::{SendStatus, Sender, Truncation};
use super::eager::{
    DELIVERED, close, count, eager, give, head, matched, other, post, sender, submit,
};
use super::{GENERATION, LOCAL, PATH, answer};
use crate::error::ProtocolError;
use crate::ids::Seq;
use crate::limits::EAGER_SLOTS;
use crate::route::Route;
use crate::time::Time;
use crate::wire::eager::eager_slot;

/// PROTOCOL R40: slots are taken in turn, and each only when its send was reported.
#[test]
fn slots_are_taken_in_turn() {
    let mut sender = sender();
    for seq in 0..EAGER_SLOTS as u64 {
        eager(&mut sender, 10, 5).expect("a slot");
        assert_eq!(sender.eager_seq(eager_slot(seq + 1)), None);
    }
    for seq in 0..EAGER_SLOTS as u64 {
        give(&mut sender, seq, (0, 1), 5);
        assert_eq!(sender.eager_seq(eager_slot(seq + 1)), Some(Seq(seq)));
    }
    count(&mut sender, 2).expect("posted");
    sender.release_eager(2).expect("delivered");
    assert_eq!(eager(&mut sender, 10, 5), None, "not the turn of this one");
    sender.release_eager(1).expect("delivered");
    for number in [9, 10] {
        let write = eager(&mut sender, 10, 5).expect("a slot");
        assert_eq!(head(&write, number).frontier, Seq(8));
        assert_eq!(write.slot, eager_slot(number));
    }
    assert_eq!(eager(&mut sender, 10, 5), None);
    assert_eq!(sender.eager_status(99), SendStatus::Unknown, "no slot");
}

/// PROTOCOL R40: all open ones are of one generation. Numbers are counted within it, also when
/// others went over another path in between: the receiver has seen the numbers before.
#[test]
fn numbers_go_on_when_sends_come_back_to_a_path() {
    let mut sender = sender();
    let mut numbers = [0; 2];
    for (seq, path) in (0..).zip([PATH, PATH, other(), PATH, other(), other(), PATH]) {
        sender.set_route(Route::single(path)).expect("known");
        let write = eager(&mut sender, 8, 5).expect("no credits");
        let number = &mut numbers[path.index()];
        *number += 1;
        assert_eq!(head(&write, *number).frontier, Seq(seq));
        assert_eq!((write.path, write.slot), (path, eager_slot(*number)));
        let elsewhere = [other(), PATH][path.index()];
        sender.set_route(Route::single(elsewhere)).expect("known");
        assert_eq!(eager(&mut sender, 8, 5), None, "one is open elsewhere");
        give(&mut sender, seq, (0, 1), 5);
        count(&mut sender, seq + 1).expect("bound");
        sender.release_eager(write.slot).expect("delivered");
    }
}

/// PROTOCOL R41: they are bound in the order of their numbers, each as soon as its group is the
/// oldest that is not filled.
#[test]
fn several_are_bound_in_order() {
    let mut sender = sender();
    for tag in [5, 6, 5] {
        eager(&mut sender, 10, tag).expect("a slot");
    }
    let bound = |sender: &Sender| [1, 2, 3].map(|slot| sender.eager_seq(slot).map(|seq| seq.0));
    give(&mut sender, 0, (0, 2), 5);
    assert_eq!(bound(&sender), [Some(0), None, None]);
    give(&mut sender, 1, (1, 2), 7);
    give(&mut sender, 2, (0, 2), 5);
    give(&mut sender, 3, (1, 2), 6);
    assert_eq!(bound(&sender), [Some(0), None, None]);
    assert_eq!(submit(&mut sender, 7), Some(Seq(1)));
    assert_eq!(bound(&sender), [Some(0), Some(3), Some(2)]);
    assert_eq!(post(&mut sender, PATH), [1]);
    assert_eq!(count(&mut sender, 4), Ok(()));
}

/// PROTOCOL R42: of several the answer may name some. The others go again, and only they.
#[test]
fn an_answer_may_name_some() {
    for is_bound in [true, false] {
        let mut sender = sender();
        for tag in [5, 6, 7] {
            eager(&mut sender, 10, tag).expect("a slot");
        }
        let credits = |sender: &mut Sender| {
            for (seq, tag) in (0..).zip([5, 6, 7]) {
                give(sender, seq, (0, 1), tag);
            }
        };
        if is_bound {
            credits(&mut sender);
        }
        close(&mut sender);
        let answer = matched(true, (3, 0b1010), 1, &[0, 1]);
        assert_eq!(sender.handle_answer(&answer), Ok(true));
        assert_eq!(sender.snapshot().statistics.eager_lost, 1);
        if !is_bound {
            assert!(count(&mut sender, 3).is_err(), "one was lost");
            credits(&mut sender);
        }
        assert_eq!(post(&mut sender, other()), [1]);
        assert_eq!(count(&mut sender, 3), Ok(()));
        for slot in [1, 2, 3] {
            assert_eq!(sender.eager_status(slot), DELIVERED);
        }
    }
}

/// PROTOCOL R42: a goodbye that counts some of several tells nothing of any of them. What was
/// answered before it, and comes late, is no error.
#[test]
fn a_goodbye_confirms_all_or_none() {
    let mut sender = sender();
    for tag in [5, 6] {
        eager(&mut sender, 10, tag).expect("a slot");
    }
    sender.handle_goodbye(1).expect("legal");
    for slot in [1, 2] {
        assert_eq!(sender.eager_status(slot), SendStatus::Pending);
    }
    sender.handle_goodbye(2).expect("legal");
    for slot in [1, 2] {
        assert_eq!(sender.eager_status(slot), DELIVERED);
        sender.release_eager(slot).expect("delivered");
    }
    assert!(sender.close_path(other(), GENERATION));
    let late = answer(other(), GENERATION, true, 0, &[0, 1]);
    assert_eq!(sender.handle_answer(&late), Ok(true));
    close(&mut sender);
    let beyond = matched(true, (2, 0b110), 2, &[1]);
    let never = Err(ProtocolError::SegmentNeverPosted(Seq(2)));
    assert_eq!(sender.handle_answer(&beyond), never);
}

/// PROTOCOL R8: one call may cut several sends; none is forgotten.
#[test]
fn every_cut_is_counted() {
    let mut sender = sender();
    for _ in 0..2 {
        eager(&mut sender, 1000, 5).expect("a slot");
    }
    for (seq, tag) in (0..).zip([6, 5, 5]) {
        give(&mut sender, seq, (0, 1), tag);
    }
    let submitted = sender.submit_send(Time::ZERO, LOCAL, 600, 6);
    assert_eq!(submitted, Ok(Some(Seq(0))));
    let truncation = Truncation {
        seq: Seq(0),
        asked: 600,
        given: 512,
        others: 2,
    };
    assert_eq!(sender.take_truncation(), Some(truncation));
    assert_eq!(sender.take_truncation(), None);
    assert_eq!(sender.snapshot().statistics.truncated, 3);
}
