//! Messages that come ahead of their credit, at the receiver.

extern crate std;

use super::super::{EagerCopy, ReceiveBuffer, Receiver, ReceiverBody};
use super::{GENERATION, PATH, arrive, buffer, counters, open, receiver, writes};
use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, Seq};
use crate::limits::{EAGER_BYTES_MAX, EAGER_HEAD_BYTES, EAGER_SLOTS, WINDOW};
use crate::time::Time;
use crate::wire::eager::{EagerHead, eager_slot};
use std::vec::Vec;

fn other() -> PathId {
    PathId::new(1).expect("in range")
}

fn head(number: u64, frontier: u64, bytes: u32, tag: i32) -> [u8; EAGER_HEAD_BYTES] {
    let head = EagerHead {
        number,
        frontier: Seq(frontier),
        bytes,
        tag,
    };
    head.encode(GENERATION)
}

fn take(receiver: &mut Receiver, number: u64, frontier: u64, tag: i32) {
    let head = head(number, frontier, 10, tag);
    assert_eq!(receiver.handle_eager(PATH, GENERATION, &head), Ok(true));
}

/// The message that an early one has become.
fn bind(receiver: &mut Receiver) -> Option<u64> {
    receiver.poll_eager().map(|copy| copy.seq.0)
}

fn open_tags(receiver: &mut Receiver, tags: &[i32]) {
    let buffers: Vec<ReceiveBuffer> = tags.iter().map(|&tag| buffer(tag)).collect();
    let opened = receiver.post_recv(Time::ZERO, &buffers).expect("legal");
    opened.expect("room");
}

/// Messages whose credits are written.
fn credits(receiver: &mut Receiver) -> Vec<u64> {
    let mut seqs = Vec::new();
    for write in writes(receiver) {
        if let ReceiverBody::Credits { first, count, .. } = write.body {
            seqs.extend(first.0..first.0 + u64::from(count));
        }
    }
    seqs
}

/// PROTOCOL R40 and R13: only the next number, only of a generation that lives.
#[test]
fn only_the_next_of_a_living_generation_is_taken() {
    let mut receiver = receiver();
    receiver.add_path(other(), Generation(9)).expect("first");
    let table = [
        (PATH, GENERATION, head(2, 0, 1, 1)),
        (PATH, GENERATION, head(0, 0, 1, 1)),
        (PATH, GENERATION, [0; EAGER_HEAD_BYTES]),
        (PATH, Generation(1), head(1, 0, 1, 1)),
        (other(), Generation(9), head(1, 0, 1, 1)),
        (other(), GENERATION, head(1, 0, 1, 1)),
    ];
    for (path, generation, head) in table {
        assert_eq!(receiver.handle_eager(path, generation, &head), Ok(false));
        assert_eq!(receiver.eager_slot(path), Some(1));
    }
    take(&mut receiver, 1, 0, 1);
    assert_eq!(receiver.eager_slot(PATH), Some(2));
    for number in [1, 3] {
        let head = head(number, 0, 1, 1);
        assert_eq!(receiver.handle_eager(PATH, GENERATION, &head), Ok(false));
    }
    open(&mut receiver, 1).expect("room");
    assert_eq!(bind(&mut receiver), Some(0));
    let again = head(1, 0, 1, 1);
    assert_eq!(receiver.handle_eager(PATH, GENERATION, &again), Ok(false));
    take(&mut receiver, 2, 1, 1);
}

/// PROTOCOL R40 and R18: no sender knows a credit that was not given, or sends so much.
#[test]
fn nonsense_is_an_error() {
    let mut receiver = receiver();
    open(&mut receiver, 2).expect("room");
    let before = receiver.snapshot();
    let large = EAGER_BYTES_MAX as u32 + 1;
    for head in [
        head(1, 3, 1, 1),
        head(1, u64::MAX, 1, 1),
        head(1, 0, large, 1),
    ] {
        let refused = receiver.handle_eager(PATH, GENERATION, &head);
        assert_eq!(refused, Err(ProtocolError::BadEager));
        assert!(ProtocolError::BadEager.is_peer_fault());
        assert_eq!(receiver.eager_slot(PATH), Some(1));
        assert_eq!(receiver.snapshot(), before);
    }
    let edge = head(1, 2, EAGER_BYTES_MAX as u32, 1);
    assert_eq!(receiver.handle_eager(PATH, GENERATION, &edge), Ok(true));
}

/// PROTOCOL R41: copied by software into its receive, cut down to it, and counted as delivered.
#[test]
fn it_is_copied_and_counted() {
    let mut receiver = receiver();
    open(&mut receiver, 1).expect("room");
    let long = head(1, 0, 1500, 1);
    assert_eq!(receiver.handle_eager(PATH, GENERATION, &long), Ok(true));
    assert!(!receiver.is_done(Seq(0), 1));
    let copy = EagerCopy {
        path: PATH,
        slot: 1,
        seq: Seq(0),
        region: buffer(1).region,
        address: 0x5000,
        payload: 1500,
        bytes: 1000,
    };
    assert_eq!(receiver.poll_eager(), Some(copy));
    assert_eq!(receiver.poll_eager(), None, "once");
    assert!(receiver.is_done(Seq(0), 1));
    assert_eq!(receiver.bytes(Seq(0)), 1000);
    assert_eq!(counters(&mut receiver), [1]);
    assert_eq!(receiver.snapshot().statistics.eager_receives, 1);
    receiver.release(Seq(0), 1).expect("delivered");
}

/// PROTOCOL R41: the first receive with its tag from the frontier on, whether it was opened before
/// or after the head came.
#[test]
fn it_takes_the_first_receive_that_the_sender_did_not_know() {
    // Tags of a group opened before, frontier, tags opened after, its message. Its own tag is 1.
    let table = [
        (&[1, 1][..], 0, &[1][..], 0),
        (&[1, 1], 2, &[1], 2),
        (&[2, 3, 1, 1], 0, &[1], 2),
        (&[1, 2], 2, &[3, 2, 1], 4),
        (&[2, 2], 0, &[2, 1], 3),
    ];
    for (before, frontier, after, expected) in table {
        let mut receiver = receiver();
        open_tags(&mut receiver, before);
        let opened = receiver.opened();
        take(&mut receiver, 1, frontier, 1);
        let early = bind(&mut receiver);
        assert_eq!(early, (expected < opened).then_some(expected));
        open_tags(&mut receiver, after);
        let late = bind(&mut receiver);
        assert_eq!(late, (expected >= opened).then_some(expected));
        assert!(receiver.is_done(Seq(expected), 1));
        assert_eq!(receiver.delivered(), u64::from(expected == 0));
    }
}

/// PROTOCOL R41: messages before it that were reported long ago are no receives any more.
#[test]
fn released_messages_are_passed_over() {
    let mut receiver = receiver();
    open_tags(&mut receiver, &[2]);
    open_tags(&mut receiver, &[1]);
    arrive(&mut receiver, 0, (0, 1), 5).expect("open");
    receiver.release(Seq(0), 1).expect("delivered");
    take(&mut receiver, 1, 0, 1);
    assert_eq!(bind(&mut receiver), Some(1));
    assert_eq!(receiver.delivered(), 2);
}

/// PROTOCOL R41 and R3: nor does it find, under a number of the past, the receive that has the slot
/// of a released message now.
#[test]
fn slots_in_use_again_are_not_mistaken() {
    let mut receiver = receiver();
    for seq in 0..WINDOW as u64 {
        open_tags(&mut receiver, &[2]);
        arrive(&mut receiver, seq, (0, 1), 5).expect("open");
    }
    receiver.release(Seq(0), 2).expect("delivered");
    open_tags(&mut receiver, &[1]);
    take(&mut receiver, 1, 0, 1);
    assert_eq!(bind(&mut receiver), Some(WINDOW as u64));
    assert_eq!(receiver.delivered(), WINDOW as u64 + 1);
}

/// PROTOCOL R41 and R18: nothing is copied over what has landed; the next receive is taken.
#[test]
fn a_message_with_arrivals_takes_no_other() {
    for (count, is_whole) in [(2, false), (1, true)] {
        let mut receiver = receiver();
        open(&mut receiver, 1).expect("room");
        arrive(&mut receiver, 0, (0, count), 5).expect("open");
        assert_eq!(receiver.is_done(Seq(0), 1), is_whole);
        take(&mut receiver, 1, 0, 1);
        assert_eq!(bind(&mut receiver), None);
        open(&mut receiver, 1).expect("room");
        assert_eq!(bind(&mut receiver), Some(1));
        assert_eq!(receiver.bytes(Seq(0)), 5);
    }
}

/// PROTOCOL R42: at the commit point of its generation a message that has no receive is dropped;
/// one that has a receive is in the answer.
#[test]
fn the_commit_point_drops_what_is_not_bound() {
    for is_bound in [true, false] {
        let mut receiver = receiver();
        receiver.add_path(other(), GENERATION).expect("first");
        take(&mut receiver, 1, 0, 1);
        assert!(receiver.close_path(PATH, GENERATION));
        if is_bound {
            open(&mut receiver, 1).expect("room");
            assert_eq!(bind(&mut receiver), Some(0), "not over before the fence");
        }
        assert!(receiver.handle_fence(PATH, GENERATION, false));
        open(&mut receiver, 1).expect("room");
        assert_eq!(bind(&mut receiver), None);
        for number in [1, 2] {
            let late = head(number, 0, 10, 1);
            let looked = receiver.handle_eager(PATH, GENERATION, &late);
            assert_eq!(looked, Ok(false), "never looked at again");
        }
        let answer = receiver.answer(PATH, GENERATION).expect("over");
        let taken = u64::from(is_bound);
        assert_eq!(answer.eager.is_matched(1), is_bound);
        assert_eq!((answer.eager.seen, answer.first), (1, Seq(taken)));
        let next = head(1, taken, 10, 1);
        assert_eq!(receiver.handle_eager(other(), GENERATION, &next), Ok(true));
        assert_eq!(bind(&mut receiver), Some(taken));
    }
}

/// PROTOCOL R42: the end of another path, and a fence that gets better, take nothing away.
#[test]
fn other_commit_points_leave_it() {
    let mut receiver = receiver();
    receiver.add_path(other(), GENERATION).expect("first");
    let early = head(1, 0, 10, 1);
    assert_eq!(receiver.handle_eager(other(), GENERATION, &early), Ok(true));
    assert!(receiver.close_path(PATH, GENERATION));
    assert!(receiver.handle_fence(PATH, GENERATION, false));
    assert!(receiver.handle_fence(PATH, GENERATION, true));
    open(&mut receiver, 1).expect("room");
    assert_eq!(bind(&mut receiver), Some(0));
}

/// PROTOCOL R43: until something proves that the sender has the credit of the last one, it is
/// written again with all after it, although the message is delivered and released.
#[test]
fn its_credit_is_written_again_until_the_sender_has_it() {
    let mut receiver = receiver();
    open_tags(&mut receiver, &[1]);
    open_tags(&mut receiver, &[2]);
    open_tags(&mut receiver, &[2]);
    arrive(&mut receiver, 0, (0, 1), 5).expect("open");
    take(&mut receiver, 1, 1, 2);
    assert_eq!(bind(&mut receiver), Some(1));
    receiver.release(Seq(0), 2).expect("delivered");
    assert_eq!(receiver.snapshot().oldest, Seq(1), "held");
    assert!(!receiver.is_done(Seq(1), 1), "reported once all the same");
    writes(&mut receiver);
    for _ in 0..2 {
        receiver.resend_all(PATH, GENERATION);
        assert_eq!(credits(&mut receiver), [1, 2]);
    }
    // What is wrong proves nothing.
    let wrong = arrive(&mut receiver, 2, (0, 1), 1001);
    assert_eq!(wrong, Err(ProtocolError::Overrun(Seq(2))));
    assert_eq!(receiver.snapshot().oldest, Seq(1));
    arrive(&mut receiver, 2, (0, 2), 5).expect("open");
    assert_eq!(receiver.snapshot().oldest, Seq(2), "the sender has both");
    receiver.resend_all(PATH, GENERATION);
    assert_eq!(credits(&mut receiver), [2]);
}

/// PROTOCOL R43: the frontier of the next one is a proof as well.
#[test]
fn a_frontier_releases_what_was_held() {
    let mut receiver = receiver();
    for number in 1..4 {
        open_tags(&mut receiver, &[1]);
        take(&mut receiver, number, number - 1, 1);
        assert_eq!(receiver.snapshot().oldest, Seq(number - 1), "the proof");
        assert_eq!(bind(&mut receiver), Some(number - 1));
        receiver.release(Seq(number - 1), 1).expect("delivered");
        assert_eq!(receiver.snapshot().oldest, Seq(number - 1));
        receiver.resend_all(PATH, GENERATION);
        assert_eq!(credits(&mut receiver), [number - 1]);
    }
}

/// PROTOCOL R43: an arrival before it proves nothing; the message behind a gap is resent from the
/// gap on.
#[test]
fn earlier_arrivals_prove_nothing() {
    let mut receiver = receiver();
    open_tags(&mut receiver, &[2, 1]);
    take(&mut receiver, 1, 0, 1);
    assert_eq!(bind(&mut receiver), Some(1));
    receiver.resend_all(PATH, GENERATION);
    assert_eq!(
        credits(&mut receiver),
        [0, 1],
        "from the undelivered one on"
    );
    arrive(&mut receiver, 0, (0, 1), 5).expect("open");
    receiver.release(Seq(0), 2).expect("delivered");
    assert_eq!(receiver.snapshot().oldest, Seq(1));
    receiver.resend_all(PATH, GENERATION);
    assert_eq!(credits(&mut receiver), [1]);
}

/// PROTOCOL R43 and R3: a held credit keeps its place in the ring, so that the window is open one
/// message less behind it.
#[test]
fn the_window_waits_for_a_held_credit() {
    let mut receiver = receiver();
    open(&mut receiver, 1).expect("room");
    take(&mut receiver, 1, 0, 1);
    assert_eq!(bind(&mut receiver), Some(0));
    receiver.release(Seq(0), 1).expect("delivered");
    for seq in 1..WINDOW as u64 {
        assert_eq!(open(&mut receiver, 1), Some(Seq(seq)));
    }
    assert_eq!(open(&mut receiver, 1), None);
    arrive(&mut receiver, 1, (0, 2), 5).expect("open");
    assert_eq!(open(&mut receiver, 1), Some(Seq(WINDOW as u64)));
    assert_eq!(open(&mut receiver, 1), None);
}

/// PROTOCOL R43, R15 and R60: nothing else shows that the credit of a delivered message does not
/// get through. What is said again is signalled, also when its queue had no room at first.
#[test]
fn the_watchdog_sees_what_is_said_again() {
    let mut receiver = receiver();
    open(&mut receiver, 1).expect("room");
    take(&mut receiver, 1, 0, 1);
    assert_eq!(bind(&mut receiver), Some(0));
    let early = writes(&mut receiver);
    assert!(early.len() == 2 && early.iter().all(|write| !write.signaled));
    assert!(!receiver.is_waiting() && !receiver.work(PATH).is_waiting);
    receiver.resend_all(PATH, GENERATION);
    let again = writes(&mut receiver);
    assert!(again.len() == 2 && again.iter().all(|write| write.signaled));
    for write in again.iter().rev() {
        receiver.return_transmit(write).expect("newest first");
    }
    let again = writes(&mut receiver);
    assert!(again.len() == 2 && again.iter().all(|write| write.signaled));
    assert!(receiver.work(PATH).is_waiting);
    assert!(!receiver.work(other()).is_waiting);
    receiver.handle_completion(again[0].work, true);
    assert!(receiver.work(PATH).is_waiting, "the counter is on its way");
    receiver.handle_completion(again[1].work, true);
    assert!(!receiver.work(PATH).is_waiting, "they got through");
}

/// PROTOCOL R40: as many wait for their receives as there are slots; one that has found its
/// receive makes room for the next in its slot only.
#[test]
fn eight_wait_for_their_receives() {
    let mut receiver = receiver();
    for number in 1..=EAGER_SLOTS as u64 {
        assert_eq!(receiver.eager_slot(PATH), Some(eager_slot(number)));
        take(&mut receiver, number, 0, number as i32);
    }
    let ninth = head(9, 0, 10, 9);
    assert_eq!(receiver.eager_slot(PATH), None);
    assert_eq!(receiver.handle_eager(PATH, GENERATION, &ninth), Ok(false));
    open_tags(&mut receiver, &[2]);
    assert_eq!(bind(&mut receiver), Some(0));
    assert_eq!(receiver.eager_slot(PATH), None, "not the turn of this one");
    open_tags(&mut receiver, &[1]);
    assert_eq!(bind(&mut receiver), Some(1));
    assert_eq!(receiver.eager_slot(PATH), Some(1));
    assert_eq!(receiver.handle_eager(PATH, GENERATION, &ninth), Ok(true));
}

/// PROTOCOL R41 and R42: several of a tag take their receives in the order of their numbers; the
/// answer names those that have one.
#[test]
fn several_are_matched_in_order() {
    let mut receiver = receiver();
    open_tags(&mut receiver, &[3]);
    for (number, tag) in [(1, 1), (2, 2), (3, 1), (4, 1)] {
        take(&mut receiver, number, 1, tag);
    }
    assert_eq!(receiver.poll_eager(), None);
    open_tags(&mut receiver, &[1, 3, 1, 2]);
    let mut copies = Vec::new();
    while let Some(copy) = receiver.poll_eager() {
        copies.push((copy.slot, copy.seq.0));
    }
    assert_eq!(copies, [(1, 1), (2, 4), (3, 3)]);
    assert!(receiver.close_path(PATH, GENERATION));
    assert!(receiver.handle_fence(PATH, GENERATION, true));
    let report = receiver.answer(PATH, GENERATION).expect("over").eager;
    let is_matched = [1, 2, 3, 4, 5].map(|number| report.is_matched(number));
    assert_eq!(is_matched, [true, true, true, false, false]);
}
