//! Tables for the receiver, driven by hand-written immediates.

extern crate std;

mod eager;
mod recovery;

use super::{Arrival, ReceiveBuffer, Receiver, ReceiverBody, ReceiverConfig, ReceiverWrite};
use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, RegionId, Seq};
use crate::limits::{SEGMENT_BYTES_MAX, SEND_DEPTH, WINDOW};
use crate::time::Time;
use crate::wire::credit::Credit;
use crate::wire::immediate::Immediate;
use std::vec::Vec;

const PATH: PathId = PathId::PRIMARY;
const GENERATION: Generation = Generation(1025);

fn receiver() -> Receiver {
    let mut receiver = Receiver::new(ReceiverConfig::default());
    receiver.add_path(PATH, GENERATION).expect("first");
    receiver.set_credit_path(PATH).expect("known path");
    receiver
}

fn buffer(tag: i32) -> ReceiveBuffer {
    ReceiveBuffer {
        region: RegionId(2),
        address: 0x5000,
        capacity: 1000,
        tag,
    }
}

fn open(receiver: &mut Receiver, count: usize) -> Option<Seq> {
    let buffers = [
        buffer(1),
        buffer(2),
        buffer(3),
        buffer(4),
        buffer(5),
        buffer(6),
    ];
    receiver
        .post_recv(Time::ZERO, &buffers[..count])
        .expect("legal")
}

fn arrive(
    receiver: &mut Receiver,
    seq: u64,
    (index, count): (u8, u8),
    bytes: u32,
) -> Result<Arrival, ProtocolError> {
    let immediate = Immediate::new(Seq(seq), index, count, GENERATION).encode();
    receiver.handle_arrival(PATH, GENERATION, immediate, bytes)
}

fn writes(receiver: &mut Receiver) -> Vec<ReceiverWrite> {
    core::iter::from_fn(|| receiver.poll_transmit()).collect()
}

fn counters(receiver: &mut Receiver) -> Vec<u64> {
    let values = writes(receiver)
        .into_iter()
        .filter_map(|write| match write.body {
            ReceiverBody::Counter { value } => Some(value),
            ReceiverBody::Credits { .. } => None,
        });
    values.collect()
}

#[test]
fn a_message_from_receive_to_release() {
    let mut receiver = receiver();
    assert_eq!(open(&mut receiver, 1), Some(Seq(0)));
    assert_eq!(writes(&mut receiver).len(), 1);
    assert!(!receiver.is_done(Seq(0), 1));
    assert_eq!(
        arrive(&mut receiver, 0, (0, 1), 77),
        Ok(Arrival::Delivered(Seq(0)))
    );
    assert!(receiver.is_done(Seq(0), 1));
    assert_eq!(receiver.bytes(Seq(0)), 77);
    // PROTOCOL R11: once, without being asked again.
    assert_eq!(counters(&mut receiver), [1]);
    assert_eq!(counters(&mut receiver), [0; 0]);
    receiver.release(Seq(0), 1).expect("delivered");
    assert!(!receiver.is_done(Seq(0), 1));
    assert_eq!(
        receiver.release(Seq(0), 1),
        Err(ProtocolError::NotDelivered(Seq(0)))
    );
}

/// PROTOCOL R11: what a credit line has said is not said again; what it could not say is.
#[test]
fn the_counter_rides_on_a_credit() {
    let mut receiver = receiver();
    open(&mut receiver, 2).expect("room");
    writes(&mut receiver);
    arrive(&mut receiver, 0, (0, 1), 9).expect("open");
    open(&mut receiver, 1).expect("room");
    let written = writes(&mut receiver);
    let [
        ReceiverWrite {
            body: ReceiverBody::Credits { lines, .. },
            ..
        },
    ] = written[..]
    else {
        panic!("{written:?}");
    };
    let line = lines.first_chunk().expect("a line");
    let read = Credit::decode(line, Seq(2), GENERATION).expect("valid");
    assert_eq!(read.map(|(_, delivered)| delivered), Some(Seq(1)));
    assert_eq!(receiver.snapshot().confirmed, Seq(1));
    // A line that is handed back takes its counter along.
    arrive(&mut receiver, 1, (0, 1), 9).expect("open");
    open(&mut receiver, 1).expect("room");
    let written = writes(&mut receiver);
    receiver.return_transmit(&written[0]).expect("the newest");
    assert_eq!(writes(&mut receiver), written);
    arrive(&mut receiver, 2, (0, 1), 9).expect("open");
    assert_eq!(counters(&mut receiver), [3]);
}

#[test]
fn credits_travel_in_pairs_and_do_not_wrap() {
    let mut receiver = receiver();
    open(&mut receiver, 5).expect("room");
    let mut ranges = Vec::new();
    for write in writes(&mut receiver) {
        let ReceiverBody::Credits {
            slot,
            first,
            count,
            lines,
        } = write.body
        else {
            panic!("nothing was delivered");
        };
        ranges.push((slot, first.0, count));
        for (index, line) in (0..count).zip(lines.chunks_exact(32)) {
            let seq = first.plus(index.into());
            let line = line.try_into().expect("32 bytes");
            let (credit, _) = Credit::decode(line, seq, GENERATION)
                .expect("valid")
                .expect("whole");
            assert_eq!(credit.tag, 1 + seq.0 as i32);
            assert_eq!(
                (credit.group_size, u64::from(credit.group_index)),
                (5, seq.0)
            );
            assert_eq!((credit.address, credit.capacity), (0x5000, 1000));
        }
        assert_eq!(write.payload().1, usize::from(count) * 32);
    }
    assert_eq!(ranges, [(0, 0, 2), (2, 2, 2), (4, 4, 1)]);
    for seq in 0..255 {
        if seq >= 5 {
            open(&mut receiver, 1).expect("room");
        }
        arrive(&mut receiver, seq, (0, 1), 0).expect("open");
        receiver.release(Seq(seq), 1).expect("delivered");
    }
    writes(&mut receiver);
    open(&mut receiver, 3).expect("room");
    let slots = writes(&mut receiver)
        .into_iter()
        .map(|write| match write.body {
            ReceiverBody::Credits { slot, count, .. } => (slot, count),
            ReceiverBody::Counter { .. } => panic!("nothing was delivered"),
        });
    assert_eq!(slots.collect::<Vec<_>>(), [(255, 1), (0, 2)]);
}

/// PROTOCOL R5: bytes of a segment count once, in whatever order and number it comes.
#[test]
fn segments_count_once() {
    let mut receiver = receiver();
    open(&mut receiver, 1).expect("room");
    let seq = Seq(0);
    assert_eq!(
        arrive(&mut receiver, 0, (2, 3), 100),
        Ok(Arrival::Segment(seq))
    );
    assert_eq!(
        arrive(&mut receiver, 0, (2, 3), 100),
        Ok(Arrival::Duplicate(seq))
    );
    assert_eq!(
        arrive(&mut receiver, 0, (0, 3), 200),
        Ok(Arrival::Segment(seq))
    );
    let changed = ProtocolError::SegmentCountChanged {
        seq,
        first: 3,
        now: 2,
    };
    assert_eq!(arrive(&mut receiver, 0, (1, 2), 1), Err(changed));
    assert!(!receiver.is_done(seq, 1));
    assert_eq!(
        arrive(&mut receiver, 0, (1, 3), 300),
        Ok(Arrival::Delivered(seq))
    );
    assert_eq!(
        arrive(&mut receiver, 0, (0, 3), 200),
        Ok(Arrival::Duplicate(seq))
    );
    assert_eq!(receiver.bytes(seq), 600);
    assert_eq!(receiver.snapshot().statistics.duplicates, 2);
}

#[test]
fn sixty_four_segments_fill_the_bitmap() {
    let mut receiver = receiver();
    open(&mut receiver, 1).expect("room");
    for index in (1..64).rev() {
        assert_eq!(
            arrive(&mut receiver, 0, (index, 64), 1),
            Ok(Arrival::Segment(Seq(0)))
        );
    }
    assert_eq!(
        arrive(&mut receiver, 0, (0, 64), 1),
        Ok(Arrival::Delivered(Seq(0)))
    );
    assert_eq!(receiver.bytes(Seq(0)), 64);
}

/// PROTOCOL R10 and R11: the counter counts without gaps; a group is done when all of it is.
#[test]
fn the_counter_waits_for_gaps() {
    let mut receiver = receiver();
    open(&mut receiver, 3).expect("room");
    assert_eq!(counters(&mut receiver), [0; 0]);
    arrive(&mut receiver, 1, (0, 1), 0).expect("open");
    arrive(&mut receiver, 2, (0, 1), 0).expect("open");
    assert_eq!(counters(&mut receiver), [0; 0]);
    assert!(receiver.is_done(Seq(1), 2) && !receiver.is_done(Seq(0), 3));
    assert_eq!(
        receiver.release(Seq(0), 3),
        Err(ProtocolError::NotDelivered(Seq(0)))
    );
    arrive(&mut receiver, 0, (0, 1), 0).expect("open");
    assert_eq!(counters(&mut receiver), [3]);
    assert!(receiver.is_done(Seq(0), 3));
}

/// PROTOCOL R3 and R16: what is not open takes no bytes, be it not yet or no more.
#[test]
fn outside_the_window_is_an_error() {
    let mut receiver = receiver();
    let outside = |low| Err(ProtocolError::OutsideWindow(low));
    assert_eq!(arrive(&mut receiver, 0, (0, 1), 0), outside(0));
    open(&mut receiver, 3).expect("room");
    assert_eq!(arrive(&mut receiver, 3, (0, 1), 0), outside(3));
    assert_eq!(arrive(&mut receiver, 1023, (0, 1), 0), outside(1023));
    arrive(&mut receiver, 1, (0, 1), 0).expect("open");
    receiver.release(Seq(1), 1).expect("delivered");
    assert_eq!(
        arrive(&mut receiver, 1, (0, 1), 0),
        outside(1),
        "released, behind an open one"
    );
    arrive(&mut receiver, 0, (0, 1), 0).expect("open");
    receiver.release(Seq(0), 1).expect("delivered");
    assert_eq!(arrive(&mut receiver, 0, (0, 1), 0), outside(0));
}

#[test]
fn too_many_bytes_are_an_error() {
    let mut receiver = receiver();
    open(&mut receiver, 1).expect("room");
    arrive(&mut receiver, 0, (0, 2), 600).expect("open");
    assert_eq!(
        arrive(&mut receiver, 0, (1, 2), 401),
        Err(ProtocolError::Overrun(Seq(0)))
    );
    let large = SEGMENT_BYTES_MAX + 1;
    assert_eq!(
        arrive(&mut receiver, 0, (1, 2), large),
        Err(ProtocolError::SegmentTooLarge(large))
    );
    assert_eq!(
        arrive(&mut receiver, 0, (1, 2), 400),
        Ok(Arrival::Delivered(Seq(0)))
    );
}

/// PROTOCOL R13: neither the generation of the queue pair nor that of the immediate may be old.
#[test]
fn stale_generations_change_nothing() {
    let mut receiver = receiver();
    open(&mut receiver, 1).expect("room");
    let of = |generation| Immediate::new(Seq(0), 0, 1, Generation(generation)).encode();
    let other = PathId::new(1).expect("in range");
    let table = [
        (PATH, Generation(1), of(1025)),
        (PATH, GENERATION, of(1024)),
        (PATH, GENERATION, of(1024) | 0xffff),
        (other, GENERATION, of(1025)),
    ];
    for (path, generation, immediate) in table {
        assert_eq!(
            receiver.handle_arrival(path, generation, immediate, 0),
            Ok(Arrival::Stale)
        );
    }
    assert!(receiver.close_path(PATH, GENERATION));
    assert!(receiver.handle_fence(PATH, GENERATION, true));
    assert_eq!(arrive(&mut receiver, 0, (0, 1), 0), Ok(Arrival::Stale));
    assert_eq!(receiver.snapshot().statistics.stale_arrivals, 5);
    assert_eq!(receiver.poll_transmit(), None, "the credit path is gone");
}

#[test]
fn bad_requests_are_refused() {
    let mut receiver = receiver();
    let now = Time::ZERO;
    let nine = [buffer(0); 9];
    assert_eq!(
        receiver.post_recv(now, &[]),
        Err(ProtocolError::BadGroupSize(0))
    );
    assert_eq!(
        receiver.post_recv(now, &nine),
        Err(ProtocolError::BadGroupSize(9))
    );
    let beyond = ReceiveBuffer {
        address: u64::MAX,
        ..buffer(0)
    };
    assert_eq!(
        receiver.post_recv(now, &[beyond]),
        Err(ProtocolError::AddressOverflow)
    );
    assert_eq!(receiver.opened(), 0);
    let other = PathId::new(1).expect("in range");
    assert_eq!(
        receiver.set_credit_path(other),
        Err(ProtocolError::UnknownPath(other))
    );
}

#[test]
fn the_window_fills_and_drains() {
    let mut receiver = receiver();
    for first in (0..WINDOW as u64).step_by(4) {
        assert_eq!(open(&mut receiver, 4), Some(Seq(first)));
    }
    assert_eq!(open(&mut receiver, 1), None);
    arrive(&mut receiver, 0, (0, 1), 0).expect("open");
    assert_eq!(open(&mut receiver, 1), None, "delivered, but not reported");
    receiver.release(Seq(0), 1).expect("delivered");
    assert_eq!(open(&mut receiver, 2), None);
    assert_eq!(open(&mut receiver, 1), Some(Seq(256)));
}

/// PROTOCOL R15: all open credits and the counter again, on the path that was named.
#[test]
fn everything_is_sent_again_on_demand() {
    let mut receiver = receiver();
    open(&mut receiver, 3).expect("room");
    arrive(&mut receiver, 0, (0, 1), 0).expect("open");
    arrive(&mut receiver, 2, (0, 1), 0).expect("open");
    let before = writes(&mut receiver);
    assert_eq!(before.len(), 2, "the counter rides");
    receiver.resend_all(PATH, Generation(1));
    assert_eq!(receiver.poll_transmit(), None, "an old generation");
    let other = PathId::new(1).expect("in range");
    receiver.add_path(other, Generation(9)).expect("first");
    receiver.resend_all(other, Generation(9));
    let again = writes(&mut receiver);
    assert!(
        again
            .iter()
            .all(|write| (write.path, write.generation) == (other, Generation(9)))
    );
    let credit = |write: &ReceiverWrite| match write.body {
        ReceiverBody::Credits { first, count, .. } => Some((first.0, count)),
        ReceiverBody::Counter { value } => Some((value, 0)),
    };
    assert_eq!(
        again.iter().filter_map(credit).collect::<Vec<_>>(),
        [(1, 2), (1, 0)]
    );
}

/// PROTOCOL R11, R14: credits that are handed back when they were said again elsewhere: the sender
/// has them, and looks at no line that brings them once more.
#[test]
fn a_counter_is_not_lost_with_credits_said_elsewhere() {
    let mut receiver = receiver();
    let other = PathId::new(1).expect("in range");
    receiver.add_path(other, Generation(9)).expect("first");
    open(&mut receiver, 2).expect("room");
    let first = writes(&mut receiver);
    receiver.resend_all(other, Generation(9));
    assert_eq!(counters(&mut receiver), [0]);
    arrive(&mut receiver, 0, (0, 1), 0).expect("open");
    receiver.return_transmit(&first[0]).expect("the newest");
    assert_eq!(counters(&mut receiver), [1]);
}

/// PROTOCOL R14.
#[test]
fn returned_writes_come_again() {
    let mut receiver = receiver();
    open(&mut receiver, 5).expect("room");
    arrive(&mut receiver, 0, (0, 1), 0).expect("open");
    let first = writes(&mut receiver);
    assert_eq!(first.len(), 3, "the counter rides");
    assert_eq!(
        receiver.return_transmit(&first[0]),
        Err(ProtocolError::ReturnOutOfOrder)
    );
    for write in first[1..].iter().rev() {
        receiver.return_transmit(write).expect("newest first");
    }
    assert_eq!(writes(&mut receiver), first[1..]);
    for _ in 3..SEND_DEPTH {
        receiver.resend_all(PATH, GENERATION);
        receiver.poll_transmit().expect("room on the queue");
    }
    receiver.resend_all(PATH, GENERATION);
    assert_eq!(receiver.poll_transmit(), None, "the queue is full");
    assert!(receiver.has_unsent());
}
