//! Sends that go ahead of their credit, at the sender.

extern crate std;

use super::super::{EagerWrite, SendStatus, Sender, Truncation};
use super::{GENERATION, LOCAL, PATH, answer, credit};
use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, Seq, WorkKind};
use crate::limits::{EAGER_BYTES_MAX, EAGER_SLOTS, SEND_DEPTH};
use crate::recovery::{Answer, EagerReport};
use crate::route::Route;
use crate::time::Time;
use crate::wire::eager::{EagerHead, eager_slot};
use std::vec::Vec;

/// Slot of the first message of a generation.
const SLOT: usize = 1;

pub(super) fn other() -> PathId {
    PathId::new(1).expect("in range")
}

/// Two paths, everything over the first; credits and counters come over the second.
pub(super) fn sender() -> Sender {
    let mut sender = super::sender();
    sender.add_path(other(), GENERATION).expect("first");
    sender
}

pub(super) fn give(sender: &mut Sender, seq: u64, (index, size): (u8, u8), tag: i32) {
    let line = credit(seq, index, size, tag).encode(GENERATION, Seq(0));
    assert_eq!(sender.handle_credit(other(), GENERATION, &line), Ok(true));
}

pub(super) fn count(sender: &mut Sender, delivered: u64) -> Result<(), ProtocolError> {
    sender.handle_counter(other(), GENERATION, delivered)
}

pub(super) fn eager(sender: &mut Sender, bytes: u64, tag: i32) -> Option<EagerWrite> {
    let submitted = sender.submit_eager(Time::ZERO, LOCAL, bytes, tag);
    submitted.expect("there is a route")
}

pub(super) fn submit(sender: &mut Sender, tag: i32) -> Option<Seq> {
    let submitted = sender.submit_send(Time::ZERO, LOCAL, 10, tag);
    submitted.expect("legal")
}

/// Message of each write that goes out on `path` in the ordinary way.
pub(super) fn post(sender: &mut Sender, path: PathId) -> Vec<u64> {
    core::iter::from_fn(|| sender.poll_transmit(path))
        .map(|write| write.seq.0)
        .collect()
}

/// The answer about the first path's generation, whose first eager message was matched or not.
fn told(is_fenced: bool, taken: u64, first: u64, bits: &[u64]) -> Answer {
    matched(is_fenced, (1, (taken << SLOT) as u8), first, bits)
}

/// The same after `seen` messages, with a bit for each slot.
pub(super) fn matched(
    is_fenced: bool,
    (seen, slots): (u64, u8),
    first: u64,
    bits: &[u64],
) -> Answer {
    let eager = EagerReport {
        seen,
        matched: slots,
    };
    Answer {
        eager,
        ..answer(PATH, GENERATION, is_fenced, first, bits)
    }
}

pub(super) fn close(sender: &mut Sender) {
    assert!(sender.close_path(PATH, GENERATION));
    sender.set_route(Route::single(other())).expect("known");
}

pub(super) fn head(write: &EagerWrite, number: u64) -> EagerHead {
    EagerHead::decode(&write.head, number, write.generation).expect("the number")
}

pub(super) const DELIVERED: SendStatus = SendStatus::Delivered { bytes: 10 };

/// PROTOCOL R40: small, eight at a time, and only when every credit that is known is used.
#[test]
fn a_send_goes_ahead_only_without_credits() {
    let mut sender = sender();
    let too_large = EAGER_BYTES_MAX as u64 + 1;
    assert_eq!(eager(&mut sender, too_large, 0), None);
    assert_eq!(eager(&mut sender, u64::MAX, 0), None);
    give(&mut sender, 0, (0, 2), 7);
    assert_eq!(
        eager(&mut sender, 1, 0),
        None,
        "a credit waits, for whatever tag"
    );
    assert_eq!(submit(&mut sender, 7), Some(Seq(0)));
    assert_eq!(
        eager(&mut sender, 1, 0),
        None,
        "the rest of its group is on its way"
    );
    give(&mut sender, 1, (1, 2), 8);
    assert_eq!(submit(&mut sender, 8), Some(Seq(1)));
    let write = eager(&mut sender, EAGER_BYTES_MAX as u64, -5).expect("all are used");
    assert_eq!((write.path, write.generation), (PATH, GENERATION));
    assert_eq!(write.work.kind(), WorkKind::Eager);
    let expected = EagerHead {
        number: 1,
        frontier: Seq(2),
        bytes: EAGER_BYTES_MAX as u32,
        tag: -5,
    };
    assert_eq!(head(&write, 1), expected);
    for number in 2..=EAGER_SLOTS as u64 {
        let write = eager(&mut sender, 1, 9).expect("a slot");
        assert_eq!(head(&write, number).frontier, Seq(2));
        assert_eq!(write.slot, eager_slot(number));
    }
    assert_eq!(eager(&mut sender, 1, 9), None, "all slots are in use");
    assert_eq!(sender.eager_status(SLOT), SendStatus::Pending);
    assert!(sender.is_busy());
    let refused = Err(ProtocolError::NotDelivered(Seq(2)));
    assert_eq!(sender.release_eager(SLOT), refused);
}

/// PROTOCOL R40: where nothing can be posted, it waits for its credit like any send.
#[test]
fn a_send_goes_ahead_only_over_a_path_with_room() {
    let mut full = sender();
    for round in 0..u64::from(SEND_DEPTH) {
        give(&mut full, round, (0, 1), 0);
        submit(&mut full, 0).expect("credit");
    }
    assert_eq!(post(&mut full, PATH).len(), SEND_DEPTH as usize);
    assert_eq!(eager(&mut full, 1, 0), None, "the send queue is full");
    let mut dead = sender();
    assert!(dead.close_path(PATH, GENERATION));
    assert_eq!(eager(&mut dead, 1, 0), None, "the path is over");
    dead.set_route(Route::single(other())).expect("known");
    let write = eager(&mut dead, 1, 0).expect("the other one lives");
    assert_eq!((write.path, head(&write, 1).number), (other(), 1));
    let config = super::SenderConfig::default();
    let mut bare = Sender::new(config).expect("valid");
    let refused = bare.submit_eager(Time::ZERO, LOCAL, 1, 0);
    assert_eq!(refused, Err(ProtocolError::NoRoute));
}

/// PROTOCOL R41 and R8: the credit makes it a message, cut down to its receive; nothing is posted
/// for it any more; done means delivered.
#[test]
fn the_credit_binds_it() {
    let mut sender = sender();
    eager(&mut sender, 1000, 4).expect("no credits");
    assert_eq!(sender.eager_seq(SLOT), None);
    give(&mut sender, 0, (0, 1), 4);
    assert_eq!(sender.eager_seq(SLOT), Some(Seq(0)));
    let truncation = Truncation {
        seq: Seq(0),
        asked: 1000,
        given: 512,
        others: 0,
    };
    assert_eq!(sender.take_truncation(), Some(truncation));
    let marks = sender.snapshot();
    assert_eq!((marks.posted, marks.filled), (Seq(1), Seq(1)));
    assert_eq!(post(&mut sender, PATH), [0; 0]);
    assert_eq!(sender.eager_status(SLOT), SendStatus::Pending);
    assert!(sender.work(PATH).is_waiting, "the watchdog sees it");
    count(&mut sender, 1).expect("posted");
    assert_eq!(
        sender.eager_status(SLOT),
        SendStatus::Delivered { bytes: 512 },
        "what went over"
    );
    sender.release_eager(SLOT).expect("delivered");
    assert_eq!(sender.eager_status(SLOT), SendStatus::Unknown);
    assert!(!sender.is_busy());
    assert_eq!(sender.snapshot().oldest, Seq(1));
    let next = eager(&mut sender, 1, 4).expect("no credits");
    assert_eq!(head(&next, 2).frontier, Seq(1));
}

/// PROTOCOL R41: sends of its tag keep their order; those of other tags go, and may use up whole
/// groups before it finds its own.
#[test]
fn its_tag_waits_and_others_go() {
    let mut sender = sender();
    eager(&mut sender, 10, 5).expect("no credits");
    give(&mut sender, 0, (0, 2), 6);
    give(&mut sender, 1, (1, 2), 7);
    give(&mut sender, 2, (0, 2), 5);
    assert_eq!(
        sender.eager_seq(SLOT),
        None,
        "the group before is not filled yet"
    );
    assert_eq!((sender.matching(5), submit(&mut sender, 5)), (None, None));
    assert_eq!(submit(&mut sender, 6), Some(Seq(0)));
    assert_eq!(submit(&mut sender, 7), Some(Seq(1)));
    assert_eq!(sender.eager_seq(SLOT), Some(Seq(2)));
    assert_eq!(submit(&mut sender, 5), None, "one receive, one send");
    give(&mut sender, 3, (1, 2), 5);
    assert_eq!(submit(&mut sender, 5), Some(Seq(3)), "its turn has come");
    assert_eq!(post(&mut sender, PATH), [0, 1, 3]);
    assert_eq!(sender.snapshot().posted, Seq(4));
}

/// PROTOCOL R10 and R43: the receiver may have it before its credit is here, so that a counter may
/// run ahead; by no more than are open, and not when the next message is another one.
#[test]
fn a_counter_runs_ahead_of_the_credits() {
    let beyond = |confirmed, posted| Err(ProtocolError::CounterBeyondPosted { confirmed, posted });
    let mut sender = sender();
    assert_eq!(count(&mut sender, 1), beyond(1, 0));
    eager(&mut sender, 10, 5).expect("no credits");
    assert_eq!(count(&mut sender, 2), beyond(2, 1));
    assert_eq!(count(&mut sender, 1), Ok(()));
    assert_eq!(sender.delivered(), 0);
    assert_eq!(sender.eager_status(SLOT), SendStatus::Pending);
    give(&mut sender, 0, (0, 1), 6);
    assert_eq!(
        count(&mut sender, 1),
        beyond(1, 0),
        "message 0 is another one, and was not sent"
    );
    submit(&mut sender, 6).expect("credit");
    assert_eq!(count(&mut sender, 1), beyond(1, 0));
    assert_eq!(post(&mut sender, PATH), [0]);
    assert_eq!(count(&mut sender, 3), beyond(3, 2));
    assert_eq!(count(&mut sender, 2), Ok(()));
    assert_eq!(sender.delivered(), 1);
    give(&mut sender, 1, (0, 1), 5);
    assert_eq!(count(&mut sender, 2), Ok(()));
    assert_eq!(sender.eager_status(SLOT), DELIVERED);
    assert_eq!(
        count(&mut sender, 3),
        beyond(3, 2),
        "nothing runs ahead now"
    );
}

/// PROTOCOL R10 and R43: a member of a group may be counted while others lack their send, if it is
/// the next one.
#[test]
fn a_counter_runs_ahead_of_a_group() {
    for place in 0..2 {
        let mut sender = sender();
        eager(&mut sender, 10, 5).expect("no credits");
        let tags = [[5, 6], [6, 5]][place];
        give(&mut sender, 0, (0, 2), tags[0]);
        give(&mut sender, 1, (1, 2), tags[1]);
        assert_eq!(sender.eager_seq(SLOT), Some(Seq(place as u64)));
        let is_first = place == 0;
        assert_eq!(sender.snapshot().posted, Seq(is_first.into()));
        assert_eq!(count(&mut sender, 1).is_ok(), is_first);
        assert!(count(&mut sender, 2).is_err());
        assert_eq!(sender.delivered(), is_first.into());
        assert_eq!(sender.eager_status(SLOT) == DELIVERED, is_first);
        assert_eq!(sender.is_busy(), !is_first);
        submit(&mut sender, 6).expect("credit");
        assert_eq!(post(&mut sender, PATH), [1 - place as u64]);
        assert_eq!(count(&mut sender, 2), Ok(()));
        assert_eq!(sender.eager_status(SLOT), DELIVERED);
        sender.release_eager(SLOT).expect("delivered");
    }
}

/// PROTOCOL R42: the answer says for good whether the receiver has it. Without its credit, and
/// even without the fence: what lands late lands in a slot that nobody looks at.
#[test]
fn the_answer_settles_it_before_its_credit() {
    for is_taken in [true, false] {
        let mut sender = sender();
        eager(&mut sender, 10, 5).expect("no credits");
        close(&mut sender);
        let taken = u64::from(is_taken);
        let answer = told(false, taken, taken, &[]);
        assert_eq!(sender.handle_answer(&answer), Ok(true));
        assert_eq!(sender.eager_status(SLOT), SendStatus::Pending);
        assert_eq!(count(&mut sender, 1).is_ok(), is_taken, "lost: not counted");
        assert_eq!(submit(&mut sender, 5), None);
        give(&mut sender, 0, (0, 1), 5);
        assert_settled(&mut sender, is_taken);
    }
}

/// It is posted again if it was lost, delivered once, and the next one goes over the other path.
fn assert_settled(sender: &mut Sender, is_taken: bool) {
    let again = if is_taken { &[][..] } else { &[0] };
    assert_eq!(post(sender, other()), again);
    assert_eq!(count(sender, 1), Ok(()));
    assert_eq!(sender.eager_status(SLOT), DELIVERED);
    let lost = sender.snapshot().statistics.eager_lost;
    assert_eq!(lost, u64::from(!is_taken));
    sender.release_eager(SLOT).expect("delivered");
    let next = eager(sender, 1, 5).expect("no credits");
    assert_eq!((next.path, head(&next, 1).frontier), (other(), Seq(1)));
}

/// PROTOCOL R42 and R53: with its credit it is a message like others: posted again when the answer
/// lacks it and its path is fenced.
#[test]
fn the_answer_settles_it_after_its_credit() {
    for is_taken in [true, false] {
        let mut sender = sender();
        eager(&mut sender, 10, 5).expect("no credits");
        close(&mut sender);
        give(&mut sender, 0, (0, 1), 5);
        assert_eq!(post(&mut sender, other()), [0; 0], "no answer, no replay");
        assert!(sender.is_waiting_for_fence(PATH));
        let taken = u64::from(is_taken);
        let answer = told(false, taken, taken, &[]);
        assert_eq!(sender.handle_answer(&answer), Ok(true));
        assert_eq!(post(&mut sender, other()), [0; 0], "no fence, no replay");
        assert!(sender.handle_quarantine_over(PATH, GENERATION));
        assert_settled(&mut sender, is_taken);
    }
}

/// PROTOCOL R42: only the answer about its own generation speaks of it. Schedule: the other path
/// ends as well, its answer comes first; the first path comes back before the credit is there.
#[test]
fn other_answers_say_nothing_of_it() {
    let mut sender = sender();
    eager(&mut sender, 10, 5).expect("no credits");
    assert!(sender.close_path(other(), GENERATION));
    let mut empty = answer(other(), GENERATION, true, 0, &[]);
    assert_eq!(sender.handle_answer(&empty), Ok(true));
    sender.add_path(other(), Generation(4)).expect("settled");
    close(&mut sender);
    empty = told(true, 1, 1, &[]);
    assert_eq!(sender.handle_answer(&empty), Ok(true), "taken after all");
    sender.add_path(PATH, Generation(4)).expect("settled");
    let line = credit(0, 0, 1, 5).encode(Generation(4), Seq(0));
    assert_eq!(sender.handle_credit(PATH, Generation(4), &line), Ok(true));
    assert_eq!(post(&mut sender, PATH), [0; 0]);
    assert_eq!(post(&mut sender, other()), [0; 0]);
    // Its bytes were never posted in the new generation: that one may end as well.
    assert!(sender.close_path(PATH, Generation(4)));
    let answer = Answer {
        eager: EagerReport::default(),
        ..answer(PATH, Generation(4), true, 1, &[])
    };
    assert_eq!(sender.handle_answer(&answer), Ok(true));
    assert_eq!(sender.eager_status(SLOT), DELIVERED);
    assert_eq!(sender.snapshot().statistics.replayed_segments, 0);
}

/// PROTOCOL R42 and R7: it is bound in a group that lacks a send when its path ends; it goes again
/// with its group, not before.
#[test]
fn a_group_that_is_not_filled_replays_it_later() {
    let table = [
        (false, 0, 0, &[][..]),
        (false, 1, 0, &[]),
        (true, 0, 1, &[]),
        (true, 1, 0, &[0, 1]),
    ];
    for (is_taken, place, first, bits) in table {
        let mut sender = sender();
        eager(&mut sender, 10, 5).expect("no credits");
        let tags = [[5, 6], [6, 5]][place as usize];
        give(&mut sender, 0, (0, 2), tags[0]);
        give(&mut sender, 1, (1, 2), tags[1]);
        assert_eq!(sender.eager_seq(SLOT), Some(Seq(place)));
        close(&mut sender);
        let answer = told(true, u64::from(is_taken), first, bits);
        assert_eq!(sender.handle_answer(&answer), Ok(true));
        assert!(sender.is_settled(PATH));
        assert_eq!(post(&mut sender, other()), [0; 0], "the group lacks a send");
        assert_eq!(eager(&mut sender, 10, 9), None, "a credit waits");
        submit(&mut sender, 6).expect("credit");
        let mut again = post(&mut sender, other());
        again.sort_unstable();
        let expected = if is_taken { &[1 - place][..] } else { &[0, 1] };
        assert_eq!(again, expected);
        let marks = sender.snapshot();
        assert_eq!((marks.posted, marks.filled), (Seq(2), Seq(2)));
        assert_eq!(count(&mut sender, 2), Ok(()));
        assert_eq!(sender.eager_status(SLOT), DELIVERED);
    }
}

/// PROTOCOL R18: the answer may speak of one message whose credit is not here, whole, and only
/// while there is one that may be it.
#[test]
fn impossible_answers_are_refused() {
    let never = |seq| Err(ProtocolError::SegmentNeverPosted(Seq(seq)));
    let mut sender = sender();
    eager(&mut sender, 10, 5).expect("no credits");
    give(&mut sender, 0, (0, 1), 6);
    close(&mut sender);
    assert_eq!(sender.handle_answer(&told(true, 1, 0, &[1])), Ok(true));
    for (bits, wrong) in [(&[0, 1, 1][..], 2), (&[0, 2], 1), (&[0, 3], 1)] {
        let mut sender = self::sender();
        eager(&mut sender, 10, 5).expect("no credits");
        close(&mut sender);
        assert_eq!(sender.handle_answer(&told(true, 1, 0, bits)), never(wrong));
        assert!(!sender.is_settled(PATH), "nothing has changed");
    }
}

/// PROTOCOL R43: a receiver that closes with receives open counts a part.
#[test]
fn a_goodbye_confirms_the_oldest_of_one_tag() {
    let mut sender = sender();
    eager(&mut sender, 10, 5).expect("no credits");
    let second = eager(&mut sender, 10, 5).expect("no credits").slot;
    sender.handle_goodbye(1).expect("legal");
    assert_eq!(sender.eager_status(SLOT), DELIVERED);
    assert_eq!(sender.eager_status(second), SendStatus::Pending);
    // Frames may come twice: the second time it says nothing new.
    sender.handle_goodbye(1).expect("legal");
    assert_eq!(sender.eager_status(second), SendStatus::Pending);
    // The credit of the first is not the second's.
    give(&mut sender, 0, (0, 1), 5);
    assert_eq!(sender.eager_seq(second), None);
    assert_eq!(sender.eager_status(second), SendStatus::Pending);
    // Of several tags it may be any, until the credit says which.
    let mut sender = self::sender();
    eager(&mut sender, 10, 6).expect("no credits");
    let second = eager(&mut sender, 10, 5).expect("no credits").slot;
    sender.handle_goodbye(1).expect("legal");
    let pending = |sender: &Sender| {
        [SLOT, second].map(|slot| sender.eager_status(slot) == SendStatus::Pending)
    };
    assert_eq!(pending(&sender), [true, true]);
    give(&mut sender, 0, (0, 1), 5);
    assert_eq!(pending(&sender), [true, false]);
}

/// PROTOCOL R42: a receiver that has closed writes no more credits; its last count, beyond what is
/// known here, is the confirmation.
#[test]
fn a_goodbye_confirms_it() {
    let mut sender = sender();
    eager(&mut sender, 10, 5).expect("no credits");
    let beyond = ProtocolError::CounterBeyondPosted {
        confirmed: 2,
        posted: 1,
    };
    assert_eq!(sender.handle_goodbye(2), Err(beyond));
    sender.handle_goodbye(0).expect("legal");
    assert_eq!(
        sender.eager_status(SLOT),
        SendStatus::Pending,
        "closed without it"
    );
    sender.handle_goodbye(1).expect("legal");
    assert_eq!(sender.eager_status(SLOT), DELIVERED);
    // A credit that was on its way changes nothing.
    give(&mut sender, 0, (0, 1), 5);
    assert_eq!(sender.eager_seq(SLOT), None);
    assert_eq!(submit(&mut sender, 5), None);
    sender.release_eager(SLOT).expect("delivered");
    assert_eq!(sender.eager_status(SLOT), SendStatus::Unknown);
    assert!(!sender.is_busy());
    assert_eq!(count(&mut sender, 1), Ok(()), "its last counter, read late");
    close(&mut sender);
    assert_eq!(sender.handle_answer(&told(true, 1, 1, &[])), Ok(true));
    // One that has its credit is confirmed like any message.
    let mut bound = self::sender();
    eager(&mut bound, 10, 5).expect("no credits");
    give(&mut bound, 0, (0, 1), 5);
    bound.handle_goodbye(1).expect("legal");
    assert_eq!(bound.eager_status(SLOT), DELIVERED);
    bound.release_eager(SLOT).expect("delivered");
}
