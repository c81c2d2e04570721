//! The schedules that lose or spoil data, one for each rule of recovery, at the sender.

extern crate std;

use super::super::{SendStatus, Sender, SenderConfig};
use super::{answer, credit};
use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, RegionId, Seq};
use crate::route::Route;
use crate::time::Time;
use std::vec::Vec;

const OLD: PathId = PathId::PRIMARY;
const GENERATION: Generation = Generation(3);
const SEGMENT: u32 = 64 << 10;

fn other() -> PathId {
    PathId::new(1).expect("in range")
}

/// Two paths, everything over the first; `sizes` submitted as messages.
fn sender(sizes: &[u64]) -> Sender {
    let config = SenderConfig {
        segment_bytes_max: SEGMENT,
    };
    let mut sender = Sender::new(config).expect("valid");
    for path in [OLD, other()] {
        sender.add_path(path, GENERATION).expect("first");
    }
    sender.set_route(Route::single(OLD)).expect("known");
    for (seq, &bytes) in (0..).zip(sizes) {
        let mut credit = credit(seq, 0, 1, 0);
        credit.capacity = 1 << 20;
        let line = credit.encode(GENERATION, Seq(0));
        assert_eq!(sender.handle_credit(other(), GENERATION, &line), Ok(true));
        let local = (RegionId(0), 0);
        let submitted = sender.submit_send(Time::ZERO, local, bytes, 0);
        assert_eq!(submitted, Ok(Some(Seq(seq))));
    }
    sender
}

/// Message and segment of all that is posted on `path`.
fn post(sender: &mut Sender, path: PathId) -> Vec<(u64, u8)> {
    core::iter::from_fn(|| sender.poll_transmit(path))
        .map(|write| (write.seq.0, write.work.segment()))
        .collect()
}

fn move_over(sender: &mut Sender) {
    assert!(sender.close_path(OLD, GENERATION));
    sender.set_route(Route::single(other())).expect("known");
}

/// PROTOCOL R51: exactly what was posted there and the answer lacks, with the old numbers. What
/// was never posted does not wait for the answer.
#[test]
fn replay_is_what_the_answer_lacks() {
    let size = u64::from(SEGMENT);
    let mut sender = sender(&[3 * size, 10, 10]);
    for _ in 0..4 {
        sender.poll_transmit(OLD).expect("posted");
    }
    move_over(&mut sender);
    assert_eq!(post(&mut sender, OLD), []);
    assert_eq!(
        post(&mut sender, other()),
        [(2, 0)],
        "never posted on the old path"
    );
    let told = answer(OLD, GENERATION, true, 0, &[0b101, 0]);
    assert_eq!(sender.handle_answer(&told), Ok(true));
    assert_eq!(post(&mut sender, other()), [(0, 1), (1, 0)]);
    assert_eq!(sender.snapshot().statistics.replayed_segments, 2);
    assert_eq!(sender.snapshot().statistics.replayed_bytes, size + 10);
}

/// PROTOCOL R52: a second answer, however different, replays nothing. Schedule: FENCE is doubled,
/// the first answer is applied, the second was written later and comes after a new failure.
#[test]
fn one_answer_counts() {
    let mut sender = sender(&[10, 10]);
    assert_eq!(post(&mut sender, OLD).len(), 2);
    move_over(&mut sender);
    let first = answer(OLD, GENERATION, true, 0, &[1]);
    assert_eq!(sender.handle_answer(&first), Ok(true));
    assert_eq!(post(&mut sender, other()), [(1, 0)]);
    let second = answer(OLD, GENERATION, true, 0, &[]);
    for _ in 0..2 {
        assert_eq!(sender.handle_answer(&second), Ok(false));
        assert_eq!(post(&mut sender, other()), []);
    }
    sender.add_path(OLD, Generation(4)).expect("settled");
    assert_eq!(sender.handle_answer(&second), Ok(false), "of the past");
    assert_eq!(sender.snapshot().statistics.stale_answers, 3);
}

/// PROTOCOL R53: an answer without a fence replays nothing: the old write could land behind the
/// new one and spoil a buffer that is in use again. Quarantine stands in for the fence, and only
/// for that.
#[test]
fn replay_needs_answer_and_fence() {
    let unfenced = answer(OLD, GENERATION, false, 0, &[]);
    let fenced = answer(OLD, GENERATION, true, 0, &[]);
    for schedule in 0..4 {
        let mut sender = sender(&[10]);
        assert_eq!(post(&mut sender, OLD), [(0, 0)]);
        move_over(&mut sender);
        if schedule < 2 {
            assert_eq!(sender.handle_answer(&unfenced), Ok(true));
            assert_eq!(sender.handle_answer(&unfenced), Ok(false));
        } else {
            assert!(sender.handle_quarantine_over(OLD, GENERATION));
            assert!(!sender.handle_quarantine_over(OLD, GENERATION), "once");
        }
        assert_eq!(post(&mut sender, other()), [], "schedule {schedule}");
        assert!(!sender.is_settled(OLD));
        match schedule {
            0 => assert!(sender.handle_quarantine_over(OLD, GENERATION)),
            1 | 2 => assert_eq!(sender.handle_answer(&fenced), Ok(true)),
            _ => assert_eq!(sender.handle_answer(&unfenced), Ok(true)),
        }
        assert_eq!(post(&mut sender, other()), [(0, 0)], "schedule {schedule}");
        assert!(sender.is_settled(OLD));
    }
}

/// PROTOCOL R54: delivered is not done while a generation that held the message may still read
/// it: the user would change the source under the NIC. Messages of other paths do not wait.
#[test]
fn done_waits_for_the_fence() {
    let mut sender = sender(&[10]);
    assert_eq!(post(&mut sender, OLD), [(0, 0)]);
    assert!(sender.close_path(OLD, GENERATION));
    sender
        .handle_counter(other(), GENERATION, 1)
        .expect("posted");
    assert_eq!(sender.delivered(), 1);
    assert_eq!(sender.status(Seq(0)), SendStatus::Pending);
    assert!(sender.is_waiting_for_fence(OLD) && !sender.is_waiting_for_fence(other()));
    let error = ProtocolError::NotDelivered(Seq(0));
    assert_eq!(sender.release(Seq(0)), Err(error));
    let told = answer(OLD, GENERATION, false, 1, &[]);
    assert_eq!(sender.handle_answer(&told), Ok(true));
    assert_eq!(sender.status(Seq(0)), SendStatus::Pending);
    assert!(sender.handle_quarantine_over(OLD, GENERATION));
    assert_eq!(sender.status(Seq(0)), SendStatus::Delivered { bytes: 10 });
}

/// PROTOCOL R55: the path that took the replay fails as well, before and after it was posted; the
/// first comes back meanwhile.
#[test]
fn a_second_fault_is_just_another() {
    let mut sender = sender(&[10, 10]);
    assert_eq!(post(&mut sender, OLD).len(), 2);
    move_over(&mut sender);
    let nothing = answer(OLD, GENERATION, true, 0, &[]);
    assert_eq!(sender.handle_answer(&nothing), Ok(true));
    let write = sender.poll_transmit(other()).expect("replayed");
    assert_eq!(write.seq, Seq(0));
    assert!(sender.close_path(other(), GENERATION));
    // Not posted after all, but nobody can know: the answer will lack it.
    assert_eq!(sender.return_transmit(&write), Ok(()));
    sender.add_path(OLD, Generation(4)).expect("settled");
    sender.set_route(Route::single(OLD)).expect("known");
    assert_eq!(
        post(&mut sender, OLD),
        [(1, 0)],
        "not posted on the other path"
    );
    let nothing = answer(other(), GENERATION, true, 0, &[]);
    assert_eq!(sender.handle_answer(&nothing), Ok(true));
    assert_eq!(post(&mut sender, OLD), [(0, 0)]);
}

/// What is being proved takes credits and posts nothing.
#[test]
fn a_generation_posts_nothing_before_it_is_proved() {
    let mut sender = sender(&[10]);
    assert!(sender.close_path(OLD, GENERATION));
    let nothing = answer(OLD, GENERATION, true, 0, &[]);
    assert_eq!(sender.handle_answer(&nothing), Ok(true));
    sender
        .add_proving_path(OLD, Generation(4))
        .expect("settled");
    assert_eq!(post(&mut sender, OLD), []);
    sender.serve_path(OLD);
    assert_eq!(post(&mut sender, OLD), [(0, 0)]);
}

/// PROTOCOL R18: a peer that claims what was never posted is refused, and nothing has changed.
#[test]
fn impossible_answers_are_refused() {
    let mut sender = sender(&[10, 10]);
    sender.poll_transmit(OLD).expect("posted");
    move_over(&mut sender);
    let claims = answer(OLD, GENERATION, true, 0, &[1, 1]);
    let error = ProtocolError::SegmentNeverPosted(Seq(1));
    assert_eq!(sender.handle_answer(&claims), Err(error));
    let beyond = answer(OLD, GENERATION, true, 2, &[]);
    let error = ProtocolError::CounterBeyondPosted {
        confirmed: 2,
        posted: 1,
    };
    assert_eq!(sender.handle_answer(&beyond), Err(error));
    assert!(!sender.is_settled(OLD));
    assert_eq!(
        sender.handle_answer(&answer(OLD, GENERATION, true, 1, &[])),
        Ok(true)
    );
}
