//! Both ends of a connection against each other, over a wire that does what wires may do.

mod world;

use proptest::prelude::*;
use r2ccl_core::limits::{MESSAGE_BYTES_MAX, SEGMENT_BYTES_MAX};
use r2ccl_core::{
    Arrival, Generation, PathId, ReceiveBuffer, Receiver, ReceiverBody, ReceiverConfig, RegionId,
    Route, SendStatus, Sender, SenderConfig, Seq, Time,
};
use world::{EagerCounts, Plan, World};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// PROTOCOL R1 to R16: whatever the schedule, every message completes once on each side, with
    /// the right bytes, and no send is done before its message is delivered.
    #[test]
    fn any_schedule_delivers_everything_once(seed: u64, paths in 1u8..=4) {
        World::new(Plan { seed, messages: 150, paths, bytes_max: 400 << 10 }).run();
    }
}

/// The ten bits of an immediate and the credit ring wrap several times. The counts show that the
/// world did what it claims to do.
#[test]
fn numbers_wrap() {
    let plan = Plan {
        seed: 7,
        messages: 4000,
        paths: 3,
        bytes_max: 200_000,
    };
    let mut world = World::new(plan);
    world.run();
    assert!(world.reported_sends >= plan.messages);
    assert!(
        world.generation_changes > 100,
        "{}",
        world.generation_changes
    );
    assert!(world.truncated > 100 && world.refused_sends > 100 && world.full_windows > 0);
}

/// The worlds above do with eager messages what they claim to: counted over a fixed set of them.
/// The seed of a world that ends with a goodbye for one is among them.
#[test]
fn eager_messages_go_every_way() {
    let mut seen = EagerCounts::default();
    let mut lost = 0;
    for seed in 0..400 {
        let plan = Plan {
            seed,
            messages: [5, 200][seed as usize % 2],
            paths: 1 + (seed / 2 % 4) as u8,
            bytes_max: 0,
        };
        let mut world = World::new(plan);
        world.run();
        seen.add(&world.eager_counts);
        lost += world.sender_statistics().eager_lost;
    }
    assert!(seen.sent > 1000 && seen.reused > 100, "{seen:?}");
    assert!(
        seen.sender_first > 100 && seen.receiver_first > 100,
        "{seen:?}"
    );
    assert!(seen.early > 100 && seen.unfilled > 100, "{seen:?}");
    assert!(seen.passed_over > 100 && seen.truncated > 100, "{seen:?}");
    assert!(seen.confirmed > 0 && lost > 100, "{lost} {seen:?}");
}

#[test]
fn a_largest_message_has_64_segments() {
    let (path, generation) = (PathId::PRIMARY, Generation(1));
    let mut sender = Sender::new(SenderConfig::default()).expect("valid");
    let mut receiver = Receiver::new(ReceiverConfig::default());
    sender.add_path(path, generation).expect("first");
    receiver.add_path(path, generation).expect("first");
    sender.set_route(Route::single(path)).expect("known");
    receiver.set_credit_path(path).expect("known");
    let bytes = u64::from(MESSAGE_BYTES_MAX);
    let buffer = ReceiveBuffer {
        region: RegionId(0),
        address: 1 << 40,
        capacity: bytes,
        tag: 0,
    };
    receiver
        .post_recv(Time::ZERO, &[buffer])
        .expect("legal")
        .expect("room");
    let credits = receiver.poll_transmit().expect("a credit").payload().0;
    let line = credits[..32].try_into().expect("a line");
    assert_eq!(sender.handle_credit(path, generation, line), Ok(true));
    let local = (RegionId(0), 0);
    let submitted = sender.submit_send(Time::ZERO, local, bytes, 0);
    assert_eq!(submitted, Ok(Some(Seq(0))));
    let mut end = 0;
    for index in 0..64 {
        let write = sender.poll_transmit(path).expect("64 segments");
        assert_eq!((write.bytes, write.local_offset), (SEGMENT_BYTES_MAX, end));
        assert_eq!(write.remote_address, (1 << 40) + end);
        end += u64::from(write.bytes);
        let arrival = receiver.handle_arrival(path, generation, write.immediate, write.bytes);
        let last = index == 63;
        let expected = if last {
            Arrival::Delivered(Seq(0))
        } else {
            Arrival::Segment(Seq(0))
        };
        assert_eq!(arrival, Ok(expected));
    }
    assert_eq!(end, bytes);
    assert_eq!(sender.poll_transmit(path), None);
    let counter = receiver.poll_transmit().expect("the counter");
    assert_eq!(counter.body, ReceiverBody::Counter { value: 1 });
    sender.handle_counter(path, generation, 1).expect("posted");
    assert_eq!(
        sender.status(Seq(0)),
        SendStatus::Delivered {
            bytes: MESSAGE_BYTES_MAX
        }
    );
}
