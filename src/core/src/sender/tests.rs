//! Tables for the sender, driven by hand-written credits.

extern crate std;

mod eager;
mod recovery;
mod several;

use super::{Match, SendStatus, Sender, SenderConfig, Truncation};
use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, RegionId, Seq};
use crate::limits::{SEGMENT_BYTES_MAX, SEND_DEPTH, SIGNAL_EVERY, WINDOW};
use crate::paths::Condition;
use crate::recovery::{Answer, EagerReport};
use crate::route::Route;
use crate::time::Time;
use crate::wire::credit::{Credit, CreditError};
use std::vec::Vec;

const PATH: PathId = PathId::PRIMARY;
const GENERATION: Generation = Generation(3);
const LOCAL: (RegionId, u64) = (RegionId(5), 0x100);

fn sender() -> Sender {
    let mut sender = Sender::new(SenderConfig::default()).expect("valid");
    sender.add_path(PATH, GENERATION).expect("first");
    sender.set_route(Route::single(PATH)).expect("known path");
    sender
}

fn credit(seq: u64, group_index: u8, group_size: u8, tag: i32) -> Credit {
    let address = 0x1000 * (seq + 1);
    Credit {
        seq: Seq(seq),
        address,
        capacity: 512,
        region: RegionId(7),
        tag,
        group_size,
        group_index,
    }
}

fn give(sender: &mut Sender, credit: Credit) -> Result<bool, ProtocolError> {
    sender.handle_credit(PATH, GENERATION, &credit.encode(GENERATION, Seq(0)))
}

fn submit(sender: &mut Sender, bytes: u64, tag: i32) -> Option<Seq> {
    sender
        .submit_send(Time::ZERO, LOCAL, bytes, tag)
        .expect("legal")
}

#[test]
fn a_message_from_credit_to_release() {
    let mut sender = sender();
    assert_eq!(submit(&mut sender, 100, 0), None, "no credit yet");
    assert_eq!(sender.expected_credit(), (0, Seq(0)));
    assert_eq!(give(&mut sender, credit(0, 0, 1, 9)), Ok(true));
    assert_eq!(
        give(&mut sender, credit(0, 0, 1, 9)),
        Ok(false),
        "taken already"
    );
    let found = Match {
        seq: Seq(0),
        region: RegionId(7),
        capacity: 512,
    };
    assert_eq!(sender.matching(9), Some(found));
    assert_eq!(sender.matching(0), None, "another queue's turn comes later");
    assert_eq!(submit(&mut sender, 100, 0), None);
    assert_eq!(submit(&mut sender, 100, 9), Some(Seq(0)));
    let write = sender.poll_transmit(PATH).expect("one segment");
    assert_eq!(
        (write.local_offset, write.remote_address, write.bytes),
        (0x100, 0x1000, 100)
    );
    assert_eq!(write.immediate, 3 << 22);
    assert_eq!(sender.poll_transmit(PATH), None);
    assert_eq!(sender.status(Seq(0)), SendStatus::Pending);
    assert_eq!(
        sender.release(Seq(0)),
        Err(ProtocolError::NotDelivered(Seq(0)))
    );
    // PROTOCOL R2: the NIC's word that it arrived is not enough.
    sender.handle_completion(write.work, true);
    assert_eq!(sender.status(Seq(0)), SendStatus::Pending);
    sender.handle_counter(PATH, GENERATION, 1).expect("posted");
    assert_eq!(sender.status(Seq(0)), SendStatus::Delivered { bytes: 100 });
    sender.release(Seq(0)).expect("delivered");
    assert_eq!(sender.status(Seq(0)), SendStatus::Unknown);
    assert_eq!(
        sender.release(Seq(0)),
        Err(ProtocolError::NotDelivered(Seq(0)))
    );
}

/// PROTOCOL R7: sends find their receive by tag, in any order; nothing goes out before all have.
#[test]
fn a_group_goes_out_when_it_is_filled() {
    let mut sender = sender();
    for index in 0..3 {
        give(
            &mut sender,
            credit(index.into(), index, 3, 10 + i32::from(index)),
        )
        .expect("valid");
    }
    give(&mut sender, credit(3, 0, 1, 0)).expect("valid");
    assert_eq!(submit(&mut sender, 1, 12), Some(Seq(2)));
    assert_eq!(
        submit(&mut sender, 1, 12),
        None,
        "taken, and the next group has to wait"
    );
    assert_eq!(submit(&mut sender, 1, 99), None);
    assert_eq!(submit(&mut sender, 2, 10), Some(Seq(0)));
    assert_eq!(sender.poll_transmit(PATH), None);
    assert_eq!(submit(&mut sender, 3, 11), Some(Seq(1)));
    let sent: Vec<_> = core::iter::from_fn(|| sender.poll_transmit(PATH)).collect();
    let order: Vec<_> = sent
        .iter()
        .map(|write| (write.seq.0, write.bytes))
        .collect();
    assert_eq!(order, [(0, 2), (1, 3), (2, 1)]);
    assert_eq!(
        submit(&mut sender, 4, 55),
        None,
        "the next group has one receive, for tag 0"
    );
    assert_eq!(submit(&mut sender, 4, 0), Some(Seq(3)));
}

/// PROTOCOL R6: lines of a group follow each other without a gap.
#[test]
fn broken_groups_are_an_error() {
    let broken = |seq| Err(ProtocolError::BadCredit(CreditError::GroupBroken(Seq(seq))));
    let mut fresh = sender();
    assert_eq!(give(&mut fresh, credit(0, 1, 2, 0)), broken(0));
    for wrong in [credit(1, 0, 1, 0), credit(1, 2, 3, 0), credit(1, 1, 2, 0)] {
        let mut open = sender();
        give(&mut open, credit(0, 0, 3, 0)).expect("valid");
        assert_eq!(give(&mut open, wrong), broken(1));
        assert_eq!(
            give(&mut open, credit(1, 1, 3, 0)),
            Ok(true),
            "nothing had changed"
        );
    }
    let mut closed = sender();
    give(&mut closed, credit(0, 0, 1, 0)).expect("valid");
    assert_eq!(give(&mut closed, credit(1, 1, 2, 0)), broken(1));
}

/// PROTOCOL R8.
#[test]
fn a_large_send_is_cut_down_once() {
    let mut sender = sender();
    give(&mut sender, credit(0, 0, 1, 0)).expect("valid");
    assert_eq!(submit(&mut sender, 513, 0), Some(Seq(0)));
    let truncation = Truncation {
        seq: Seq(0),
        asked: 513,
        given: 512,
        others: 0,
    };
    assert_eq!(sender.take_truncation(), Some(truncation));
    assert_eq!(sender.take_truncation(), None);
    assert_eq!(
        sender.poll_transmit(PATH).map(|write| write.bytes),
        Some(512)
    );
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let mut sender = sender();
    let huge = u64::from(sender.message_bytes_max()) + 1;
    let refused = sender.submit_send(Time::ZERO, LOCAL, huge, 0);
    assert_eq!(refused, Err(ProtocolError::MessageTooLarge(huge)));
    let refused = sender.submit_send(Time::ZERO, (RegionId(0), u64::MAX), 1, 0);
    assert_eq!(refused, Err(ProtocolError::AddressOverflow));
    let other = PathId::new(1).expect("in range");
    let refused = sender.set_route(Route::single(other));
    assert_eq!(refused, Err(ProtocolError::UnknownPath(other)));
    let mut bare = Sender::new(SenderConfig::default()).expect("valid");
    assert_eq!(
        bare.submit_send(Time::ZERO, LOCAL, 1, 0),
        Err(ProtocolError::NoRoute)
    );
    for bytes in [0, 65_535, 65_537, SEGMENT_BYTES_MAX + 128] {
        let error = Sender::new(SenderConfig {
            segment_bytes_max: bytes,
        })
        .err();
        assert_eq!(error, Some(ProtocolError::BadSegmentSize(bytes)));
    }
}

/// PROTOCOL R10: the counter never moves back and never past what was posted.
#[test]
fn counters_are_monotone_and_bounded() {
    let mut sender = sender();
    for seq in 0..4 {
        give(&mut sender, credit(seq, 0, 1, 0)).expect("valid");
        submit(&mut sender, 1, 0).expect("credit");
    }
    for _ in 0..3 {
        sender.poll_transmit(PATH).expect("queued");
    }
    sender.handle_counter(PATH, GENERATION, 2).expect("posted");
    sender
        .handle_counter(PATH, GENERATION, 1)
        .expect("an old write");
    assert_eq!(sender.delivered(), 2);
    let error = ProtocolError::CounterBeyondPosted {
        confirmed: 4,
        posted: 3,
    };
    assert_eq!(sender.handle_counter(PATH, GENERATION, 4), Err(error));
    assert_eq!(sender.delivered(), 2);
}

/// PROTOCOL R11: the line that has no room in the window may be the only word that frees it.
#[test]
fn a_full_window_reads_the_counter_of_the_next_line() {
    let mut sender = sender();
    for seq in 0..WINDOW as u64 {
        give(&mut sender, credit(seq, 0, 1, 0)).expect("valid");
    }
    let write = |sender: &mut Sender, delivered| {
        let line = credit(WINDOW as u64, 0, 1, 0).encode(GENERATION, Seq(delivered));
        sender.handle_credit(PATH, GENERATION, &line)
    };
    for _ in 0..3 {
        submit(&mut sender, 1, 0).expect("credit");
        sender.poll_transmit(PATH).expect("queued");
    }
    // Too far back to be said there.
    assert_eq!(write(&mut sender, 1), Ok(false));
    assert_eq!(sender.delivered(), 0);
    assert_eq!(write(&mut sender, 3), Ok(false));
    assert_eq!(sender.delivered(), 3);
    sender.release(Seq(0)).expect("delivered");
    assert_eq!(write(&mut sender, 3), Ok(true));
    let error = ProtocolError::CounterBeyondPosted {
        confirmed: 4,
        posted: 3,
    };
    let beyond = credit(257, 0, 1, 0).encode(GENERATION, Seq(4));
    assert_eq!(sender.handle_credit(PATH, GENERATION, &beyond), Err(error));
}

fn answer(
    path: PathId,
    generation: Generation,
    is_fenced: bool,
    first: u64,
    bits: &[u64],
) -> Answer {
    let mut arrived = [0; WINDOW];
    arrived[..bits.len()].copy_from_slice(bits);
    Answer {
        path,
        generation,
        is_fenced,
        eager: EagerReport::default(),
        first: Seq(first),
        count: bits.len() as u16,
        arrived,
    }
}

/// PROTOCOL R13: dropped and counted, whatever it says.
#[test]
fn stale_generations_change_nothing() {
    let mut sender = sender();
    give(&mut sender, credit(0, 0, 1, 0)).expect("valid");
    submit(&mut sender, 1, 0).expect("credit");
    let write = sender.poll_transmit(PATH).expect("queued");
    assert!(sender.close_path(PATH, GENERATION));
    let error = Err(ProtocolError::PathInUse(PATH));
    assert_eq!(sender.add_path(PATH, Generation(4)), error, "not settled");
    let answer = answer(PATH, GENERATION, true, 0, &[]);
    assert_eq!(sender.handle_answer(&answer), Ok(true));
    sender.add_path(PATH, Generation(4)).expect("newer");
    sender.handle_counter(PATH, GENERATION, 1).expect("dropped");
    sender
        .handle_counter(PATH, GENERATION, 1 << 60)
        .expect("dropped");
    sender.handle_completion(write.work, false);
    let line = credit(1, 0, 1, 0).encode(GENERATION, Seq(0));
    assert_eq!(sender.handle_credit(PATH, GENERATION, &line), Ok(false));
    assert_eq!(
        sender.handle_credit(PATH, Generation(4), &line),
        Ok(false),
        "old line, new ring"
    );
    assert_eq!(sender.delivered(), 0);
    assert_eq!(sender.condition(PATH), Some(Condition::Live));
    let statistics = sender.snapshot().statistics;
    let counted = (
        statistics.stale_credits,
        statistics.stale_counters,
        statistics.stale_completions,
    );
    assert_eq!(counted, (1, 2, 1));
}

/// PROTOCOL R3: never more open messages than the window holds.
#[test]
fn the_window_fills_and_drains() {
    let mut sender = sender();
    for seq in 0..WINDOW as u64 {
        assert_eq!(give(&mut sender, credit(seq, 0, 1, 0)), Ok(true));
    }
    assert_eq!(give(&mut sender, credit(WINDOW as u64, 0, 1, 0)), Ok(false));
    for _ in 0..3 {
        submit(&mut sender, 1, 0).expect("credit");
        sender.poll_transmit(PATH).expect("queued");
    }
    sender.handle_counter(PATH, GENERATION, 3).expect("posted");
    sender.release(Seq(1)).expect("delivered");
    let next = credit(256, 0, 1, 0);
    assert_eq!(give(&mut sender, next), Ok(false), "the oldest is there");
    sender.release(Seq(0)).expect("delivered");
    assert_eq!(sender.expected_credit(), (0, Seq(256)));
    assert_eq!(give(&mut sender, next), Ok(true));
    assert_eq!(give(&mut sender, credit(257, 0, 1, 0)), Ok(true));
    assert_eq!(give(&mut sender, credit(258, 0, 1, 0)), Ok(false));
    assert_eq!(sender.status(Seq(2)), SendStatus::Delivered { bytes: 1 });
    assert_eq!(
        sender.status(Seq(256)),
        SendStatus::Unknown,
        "offered, not submitted"
    );
}

/// PROTOCOL R14: back-pressure of the send queue, and writes handed back come again unchanged.
#[test]
fn returned_writes_come_again() {
    let mut sender = Sender::new(SenderConfig {
        segment_bytes_max: 64 << 10,
    })
    .expect("valid");
    sender.add_path(PATH, GENERATION).expect("first");
    sender.set_route(Route::single(PATH)).expect("known path");
    for seq in 0..10 {
        let large = Credit {
            capacity: 4 << 20,
            ..credit(seq, 0, 1, 0)
        };
        give(&mut sender, large).expect("valid");
        submit(&mut sender, 4 << 20, 0).expect("credit");
    }
    let first: Vec<_> = core::iter::from_fn(|| sender.poll_transmit(PATH)).collect();
    assert_eq!(first.len(), SEND_DEPTH as usize);
    assert_eq!(
        sender.return_transmit(&first[0]),
        Err(ProtocolError::ReturnOutOfOrder)
    );
    for write in first[100..].iter().rev() {
        sender.return_transmit(write).expect("newest first");
    }
    assert_eq!(sender.outstanding(PATH), 100);
    assert_eq!(sender.snapshot().posted, Seq(1));
    let again: Vec<_> = core::iter::from_fn(|| sender.poll_transmit(PATH)).collect();
    assert_eq!(again, first[100..]);
    assert_eq!(sender.snapshot().posted, Seq(4));
    let signalled = first
        .iter()
        .find(|write| write.signaled)
        .expect("one in 32");
    sender.handle_completion(signalled.work, true);
    assert_eq!(sender.outstanding(PATH), SEND_DEPTH - SIGNAL_EVERY);
    assert!(sender.poll_transmit(PATH).is_some());
}
