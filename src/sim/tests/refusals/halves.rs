//! What the sending and the receiving half take and post.

use r2ccl_core::limits::{STRIPE_BYTES_MIN, WINDOW};
use r2ccl_core::wire::immediate::Immediate;
use r2ccl_core::{
    Answer, Arrival, EagerReport, Generation, ReceiveBuffer, Receiver, ReceiverBody,
    ReceiverConfig, RegionId, Route, SendStatus, Sender, SenderConfig, Seq, Time,
};

use super::{GENERATION, PATH, credit, other};

/// Bytes of most segments here.
const BYTES: u32 = 10;

/// A receiver with two open messages of 100 bytes, opened at 7 and 3 ns.
fn receiver() -> Receiver {
    let mut receiver = Receiver::new(ReceiverConfig::default());
    receiver.add_path(PATH, GENERATION).expect("first");
    receiver.set_credit_path(PATH).expect("known");
    let buffer = ReceiveBuffer {
        region: RegionId(0),
        address: 0,
        capacity: 100,
        tag: 0,
    };
    for nanoseconds in [7, 3] {
        let now = Time::from_nanoseconds(nanoseconds);
        receiver.post_recv(now, &[buffer]).expect("valid");
    }
    receiver
}

/// Segment `index` of `count` of a message, with so many bytes.
fn arrive(
    receiver: &mut Receiver,
    seq: u64,
    (index, count): (u8, u8),
    bytes: u32,
) -> Option<Arrival> {
    let immediate = Immediate::new(Seq(seq), index, count, GENERATION).encode();
    receiver
        .handle_arrival(PATH, GENERATION, immediate, bytes)
        .ok()
}

/// PROTOCOL R5.
pub fn a_segment_counts_once() -> bool {
    let mut receiver = receiver();
    let first = arrive(&mut receiver, 0, (0, 2), BYTES);
    let second = arrive(&mut receiver, 0, (0, 2), BYTES);
    first == Some(Arrival::Segment(Seq(0)))
        && second == Some(Arrival::Duplicate(Seq(0)))
        && receiver.bytes(Seq(0)) == BYTES
}

/// PROTOCOL R5.
pub fn segments_agree_on_their_count() -> bool {
    let mut receiver = receiver();
    arrive(&mut receiver, 0, (0, 2), BYTES).expect("the first");
    arrive(&mut receiver, 0, (1, 3), BYTES).is_none()
}

/// PROTOCOL R5.
pub fn no_segment_is_beyond_its_buffer() -> bool {
    let mut receiver = receiver();
    arrive(&mut receiver, 0, (0, 2), 60).expect("there is room");
    arrive(&mut receiver, 0, (1, 2), 41).is_none()
}

/// PROTOCOL R11.
pub fn a_full_window_is_freed_by_the_next_line() -> bool {
    let mut sender = sender();
    for seq in 0..WINDOW as u64 {
        assert!(give(&mut sender, seq, BYTES));
    }
    for _ in 0..2 {
        submit(&mut sender, BYTES);
        sender.poll_transmit(PATH).expect("queued");
    }
    let next = credit(WINDOW as u64, (0, 1), BYTES).encode(GENERATION, Seq(2));
    sender.handle_credit(PATH, GENERATION, &next) == Ok(false) && sender.delivered() == 2
}

/// PROTOCOL R13.
pub fn an_immediate_names_its_generation() -> bool {
    let mut receiver = receiver();
    let immediate = Immediate::new(Seq(0), 0, 1, Generation(GENERATION.0 - 1)).encode();
    let arrival = receiver.handle_arrival(PATH, GENERATION, immediate, BYTES);
    arrival == Ok(Arrival::Stale)
}

/// PROTOCOL R15.
pub fn the_counter_is_said_again() -> bool {
    let mut receiver = receiver();
    arrive(&mut receiver, 0, (0, 1), BYTES).expect("open");
    while receiver.poll_transmit().is_some() {}
    receiver.resend_all(PATH, GENERATION);
    let mut writes = core::iter::from_fn(|| receiver.poll_transmit());
    writes.any(|write| matches!(write.body, ReceiverBody::Counter { value: 1 }))
}

/// PROTOCOL R15.
pub fn what_is_said_again_is_signalled() -> bool {
    let mut receiver = receiver();
    let first = receiver.poll_transmit().expect("credits");
    receiver.resend_all(PATH, GENERATION);
    let again = receiver.poll_transmit().expect("credits");
    !first.signaled && again.signaled
}

/// PROTOCOL R16.
pub fn a_reported_message_takes_nothing() -> bool {
    let mut receiver = receiver();
    assert_eq!(
        arrive(&mut receiver, 1, (0, 1), BYTES),
        Some(Arrival::Delivered(Seq(1)))
    );
    receiver.release(Seq(1), 1).expect("delivered");
    arrive(&mut receiver, 1, (0, 1), BYTES).is_none()
}

/// PROTOCOL R17.
pub fn time_does_not_go_back() -> bool {
    let mut receiver = receiver();
    arrive(&mut receiver, 0, (0, 1), BYTES);
    receiver.snapshot().waiting_since == Some(Time::from_nanoseconds(7))
}

fn sender() -> Sender {
    let mut sender = Sender::new(SenderConfig::default()).expect("valid");
    sender.add_path(PATH, GENERATION).expect("first");
    sender.set_route(Route::single(PATH)).expect("known");
    sender
}

/// The credit of message `seq` comes, with room for so many bytes; whether it is taken.
fn give(sender: &mut Sender, seq: u64, capacity: u32) -> bool {
    let line = credit(seq, (0, 1), capacity).encode(GENERATION, Seq(0));
    sender.handle_credit(PATH, GENERATION, &line) == Ok(true)
}

fn submit(sender: &mut Sender, bytes: u32) {
    let submitted = sender.submit_send(Time::ZERO, (RegionId(0), 0), bytes.into(), 0);
    assert!(matches!(submitted, Ok(Some(_))));
}

/// PROTOCOL R1.
pub fn no_share_is_thin() -> bool {
    let mut sender = sender();
    sender.add_path(other(), GENERATION).expect("first");
    let bytes = 2 * STRIPE_BYTES_MIN;
    let uneven = Route::weighted(&[(PATH, 3), (other(), 1)]).expect("valid");
    sender.set_route(uneven).expect("known");
    assert!(give(&mut sender, 0, bytes));
    submit(&mut sender, bytes);
    sender.poll_transmit(other()).is_none()
}

/// PROTOCOL R6.
pub fn no_group_has_gaps() -> bool {
    let line = credit(0, (1, 2), BYTES).encode(GENERATION, Seq(0));
    sender().handle_credit(PATH, GENERATION, &line).is_err()
}

/// PROTOCOL R8.
pub fn the_first_cut_is_reported() -> bool {
    let mut sender = sender();
    for seq in 0..2 {
        assert!(give(&mut sender, seq, BYTES));
        submit(&mut sender, 2 * BYTES);
    }
    let cut = sender.take_truncation().expect("two were cut");
    (cut.seq, cut.others) == (Seq(0), 1)
}

/// PROTOCOL R9.
pub fn a_line_names_its_generation() -> bool {
    let line = credit(0, (0, 1), BYTES).encode(Generation(GENERATION.0 - 1), Seq(0));
    sender().handle_credit(PATH, GENERATION, &line) == Ok(false)
}

/// PROTOCOL R10.
pub fn no_counter_beyond_what_was_posted() -> bool {
    sender().handle_counter(PATH, GENERATION, 1).is_err()
}

/// PROTOCOL R13.
pub fn an_old_credit_is_dropped() -> bool {
    let mut sender = sender();
    sender.close_path(PATH, GENERATION);
    !give(&mut sender, 0, BYTES)
}

/// PROTOCOL R13.
pub fn an_old_counter_is_dropped() -> bool {
    let mut sender = sender();
    assert!(give(&mut sender, 0, BYTES));
    submit(&mut sender, BYTES);
    sender.poll_transmit(PATH).expect("a segment");
    sender.close_path(PATH, GENERATION);
    sender
        .handle_counter(PATH, GENERATION, 1)
        .expect("not looked at");
    sender.delivered() == 0
}

/// An answer about the first generation that speaks of one message.
fn answer(is_fenced: bool, arrived: u64) -> Answer {
    let mut bits = [0; WINDOW];
    bits[0] = arrived;
    Answer {
        path: PATH,
        generation: GENERATION,
        is_fenced,
        eager: EagerReport::default(),
        first: Seq(0),
        count: 1,
        arrived: bits,
    }
}

/// PROTOCOL R18.
pub fn no_answer_claims_what_was_not_posted() -> bool {
    let mut sender = sender();
    sender.close_path(PATH, GENERATION);
    sender.handle_answer(&answer(true, 1)).is_err()
}

/// PROTOCOL R54.
pub fn others_do_not_wait_for_a_fence() -> bool {
    let mut sender = sender();
    sender.add_path(other(), GENERATION).expect("first");
    for (seq, path) in [(0, PATH), (1, other())] {
        sender.set_route(Route::single(path)).expect("known");
        assert!(give(&mut sender, seq, BYTES));
        submit(&mut sender, BYTES);
        sender.poll_transmit(path).expect("a segment");
    }
    sender
        .handle_counter(PATH, GENERATION, 2)
        .expect("both are posted");
    sender.close_path(other(), GENERATION);
    sender.status(Seq(0)) == SendStatus::Delivered { bytes: BYTES }
        && sender.status(Seq(1)) == SendStatus::Pending
}

/// PROTOCOL R1.
pub fn small_messages_take_turns() -> bool {
    let mut sender = sender();
    sender.add_path(other(), GENERATION).expect("first");
    let route = Route::weighted(&[(PATH, 1), (other(), 1)]).expect("valid");
    sender.set_route(route).expect("known");
    let mut posted = [0; 2];
    for seq in 0..6 {
        assert!(give(&mut sender, seq, BYTES));
        submit(&mut sender, BYTES);
        for (count, path) in posted.iter_mut().zip([PATH, other()]) {
            *count += usize::from(sender.poll_transmit(path).is_some());
        }
    }
    posted == [3, 3]
}

/// PROTOCOL R3: nor a message that no receive was opened for.
pub fn an_unopened_message_takes_nothing() -> bool {
    arrive(&mut receiver(), 2, (0, 1), 0).is_none()
}

/// PROTOCOL R52: the second answer is wrong, and nobody looks at it.
pub fn the_first_answer_counts() -> bool {
    let mut sender = sender();
    assert!(give(&mut sender, 0, BYTES));
    submit(&mut sender, BYTES);
    sender.poll_transmit(PATH).expect("a segment");
    sender.add_path(other(), GENERATION).expect("first");
    sender.set_route(Route::single(other())).expect("known");
    sender.close_path(PATH, GENERATION);
    for arrived in [0, 1] {
        let answer = answer(false, arrived);
        sender.handle_answer(&answer).expect("it was posted");
    }
    sender.handle_quarantine_over(PATH, GENERATION);
    sender.poll_transmit(other()).is_some()
}
