//! A peer that sends anything at all: errors at the most, never a panic, never a false "done"
//! (PROTOCOL R18).

use proptest::prelude::*;
use r2ccl_core::limits::{EAGER_BYTES_MAX, EAGER_HEAD_BYTES, EAGER_SLOTS};
use r2ccl_core::wire::credit::Credit;
use r2ccl_core::wire::eager::EagerHead;
use r2ccl_core::wire::immediate::Immediate;
use r2ccl_core::{
    Arrival, Generation, PathId, ProtocolError, ReceiveBuffer, Receiver, ReceiverConfig, RegionId,
    Route, SendStatus, Sender, SenderConfig, Seq, Time, WorkId,
};

const PATH: PathId = PathId::PRIMARY;
const GENERATION: Generation = Generation(5);

/// What may reach the sender.
#[derive(Clone, Debug)]
enum ToSender {
    /// Any 32 bytes.
    Line([u8; 32]),
    /// A line for the expected message with any fields.
    Credit {
        address: u64,
        capacity: u32,
        tag: i32,
        group: (u8, u8),
    },
    Counter(u64),
    Completion(u64, bool),
    Send {
        bytes: u64,
        tag: i32,
    },
    Eager {
        bytes: u64,
        tag: i32,
    },
    ReleaseEager(usize),
    Transmit {
        taken: bool,
    },
    Release(u64),
}

fn to_sender() -> impl Strategy<Value = ToSender> {
    let group = prop_oneof![3 => Just((1, 0)), 1 => (0u8..10, 0u8..10)];
    prop_oneof![
        1 => any::<[u8; 32]>().prop_map(ToSender::Line),
        4 => (any::<u64>(), 0u32..1 << 31, 0i32..3, group).prop_map(
            |(address, capacity, tag, group)| ToSender::Credit { address, capacity, tag, group }
        ),
        2 => prop_oneof![0u64..20, any::<u64>()].prop_map(ToSender::Counter),
        1 => (any::<u64>(), prop::bool::weighted(0.99))
            .prop_map(|(work, ok)| ToSender::Completion(work, ok)),
        4 => (0u64..1 << 31, 0i32..3).prop_map(|(bytes, tag)| ToSender::Send { bytes, tag }),
        4 => (0u64..5000, 0i32..3).prop_map(|(bytes, tag)| ToSender::Eager { bytes, tag }),
        2 => (0..=EAGER_SLOTS).prop_map(ToSender::ReleaseEager),
        4 => any::<bool>().prop_map(|taken| ToSender::Transmit { taken }),
        1 => (0u64..20).prop_map(ToSender::Release),
    ]
}

fn feed_sender(sender: &mut Sender, input: ToSender) {
    match input {
        ToSender::Line(line) => {
            let _ = sender.handle_credit(PATH, GENERATION, &line);
        }
        ToSender::Credit {
            address,
            capacity,
            tag,
            group: (group_size, group_index),
        } => {
            let (_, seq) = sender.expected_credit();
            let region = RegionId(0);
            let credit = Credit {
                seq,
                address,
                capacity,
                region,
                tag,
                group_size,
                group_index,
            };
            let line = credit.encode(GENERATION, Seq(0));
            let fault = sender.handle_credit(PATH, GENERATION, &line).err();
            assert!(fault.is_none_or(|error| error.is_peer_fault()));
        }
        ToSender::Counter(value) => {
            let before = sender.delivered();
            let posted = sender.snapshot().posted.0;
            let is_unbound = |&slot: &usize| {
                sender.eager_status(slot) == SendStatus::Pending && sender.eager_seq(slot).is_none()
            };
            let unbound = (0..EAGER_SLOTS).filter(is_unbound).count() as u64;
            let result = sender.handle_counter(PATH, GENERATION, value);
            if value > posted && value <= posted + unbound {
                let counted = if result.is_ok() { posted } else { before };
                assert_eq!(sender.delivered(), counted, "PROTOCOL R43");
            } else {
                assert_eq!(result.is_ok(), value <= posted, "PROTOCOL R10");
            }
            assert!(sender.delivered() >= before);
        }
        ToSender::Completion(raw, ok) => {
            if let Some(work) = WorkId::from_raw(raw) {
                sender.handle_completion(work, ok);
            }
        }
        ToSender::Send { bytes, tag } => {
            let _ = sender.submit_send(Time::ZERO, (RegionId(0), 0), bytes, tag);
        }
        ToSender::Eager { bytes, tag } => {
            let before: [_; EAGER_SLOTS] = core::array::from_fn(|slot| sender.eager_status(slot));
            let local = (RegionId(0), u64::MAX - 5000);
            let submitted = sender.submit_eager(Time::ZERO, local, bytes, tag);
            if let Some(write) = submitted.expect("there is a route") {
                assert_eq!(before[write.slot], SendStatus::Unknown, "PROTOCOL R40");
            }
        }
        ToSender::ReleaseEager(slot) => {
            let is_done = matches!(sender.eager_status(slot), SendStatus::Delivered { .. });
            assert_eq!(sender.release_eager(slot).is_ok(), is_done);
        }
        ToSender::Transmit { taken } => {
            let Some(write) = sender.poll_transmit(PATH) else {
                return;
            };
            if !taken {
                sender.return_transmit(&write).expect("newest");
            }
        }
        // Those of eager sends are released as such.
        ToSender::Release(seq)
            if (0..EAGER_SLOTS).any(|slot| sender.eager_seq(slot) == Some(Seq(seq))) => {}
        ToSender::Release(seq) => {
            let is_done = matches!(sender.status(Seq(seq)), SendStatus::Delivered { .. });
            assert_eq!(sender.release(Seq(seq)).is_ok(), is_done);
        }
    }
}

/// What may reach the receiver.
#[derive(Clone, Debug)]
enum ToReceiver {
    Arrival {
        immediate: u32,
        bytes: u32,
    },
    Likely {
        seq: u64,
        index: u8,
        count: u8,
        bytes: u32,
    },
    /// Any 32 bytes.
    Head([u8; EAGER_HEAD_BYTES]),
    /// A head of the right number with any fields.
    LikelyHead {
        frontier: u64,
        bytes: u32,
        tag: i32,
    },
    Open(usize),
    Transmit,
    Release(u64),
}

fn to_receiver() -> impl Strategy<Value = ToReceiver> {
    prop_oneof![
        1 => (any::<u32>(), any::<u32>())
            .prop_map(|(immediate, bytes)| ToReceiver::Arrival { immediate, bytes }),
        6 => (0u64..12, 0u8..4, 1u8..4, 0u32..60).prop_map(|(seq, index, count, bytes)| {
            ToReceiver::Likely { seq, index, count, bytes }
        }),
        1 => any::<[u8; EAGER_HEAD_BYTES]>().prop_map(ToReceiver::Head),
        4 => (prop_oneof![9 => 0u64..12, 1 => any::<u64>()], 0u32..5000, 0i32..2).prop_map(
            |(frontier, bytes, tag)| ToReceiver::LikelyHead { frontier, bytes, tag }
        ),
        2 => (0usize..10).prop_map(ToReceiver::Open),
        1 => Just(ToReceiver::Transmit),
        1 => (0u64..12).prop_map(ToReceiver::Release),
    ]
}

fn feed_receiver(receiver: &mut Receiver, input: ToReceiver, heads: &mut u64) {
    match input {
        ToReceiver::Arrival { immediate, bytes } => {
            let result = receiver.handle_arrival(PATH, GENERATION, immediate, bytes);
            assert!(result.err().is_none_or(|error| error.is_peer_fault()));
        }
        ToReceiver::Likely {
            seq,
            index,
            count,
            bytes,
        } => {
            let immediate = Immediate {
                index,
                count,
                ..Immediate::new(Seq(seq), 0, 1, GENERATION)
            };
            let before = receiver.snapshot();
            match receiver.handle_arrival(PATH, GENERATION, immediate.encode(), bytes) {
                Ok(Arrival::Segment(at) | Arrival::Delivered(at) | Arrival::Duplicate(at)) => {
                    assert_eq!(at, Seq(seq));
                }
                Ok(Arrival::Stale) => panic!("the generation is live"),
                Err(error) => {
                    assert!(error.is_peer_fault());
                    assert_eq!(receiver.snapshot(), before, "an error changes nothing");
                }
            }
        }
        ToReceiver::Head(head) => {
            let result = receiver.handle_eager(PATH, GENERATION, &head);
            assert!(result.err().is_none_or(|error| error.is_peer_fault()));
        }
        ToReceiver::LikelyHead {
            frontier,
            bytes,
            tag,
        } => feed_head(receiver, heads, (Seq(frontier), bytes, tag)),
        ToReceiver::Open(count) => {
            let buffer = ReceiveBuffer {
                region: RegionId(0),
                address: 0,
                capacity: 100,
                tag: 0,
            };
            let _ = receiver.post_recv(Time::ZERO, &vec![buffer; count]);
        }
        ToReceiver::Transmit => {
            receiver.poll_transmit();
        }
        ToReceiver::Release(seq) => {
            let is_done = receiver.is_done(Seq(seq), 1);
            assert!(
                receiver.bytes(Seq(seq)) <= 100,
                "PROTOCOL R5: never more than there is room"
            );
            assert_eq!(receiver.release(Seq(seq), 1).is_ok(), is_done);
        }
    }
}

/// Feeds the next head; `heads` have been taken.
fn feed_head(receiver: &mut Receiver, heads: &mut u64, (frontier, bytes, tag): (Seq, u32, i32)) {
    let before = receiver.snapshot();
    let head = EagerHead {
        number: *heads + 1,
        frontier,
        bytes,
        tag,
    };
    let was_free = receiver.eager_slot(PATH).is_some();
    let result = receiver.handle_eager(PATH, GENERATION, &head.encode(GENERATION));
    let is_legal = frontier <= before.opened && bytes <= EAGER_BYTES_MAX as u32;
    if was_free && !is_legal {
        assert_eq!(result, Err(ProtocolError::BadEager), "PROTOCOL R40");
        assert_eq!(receiver.snapshot(), before, "an error changes nothing");
        return;
    }
    assert_eq!(result, Ok(was_free));
    *heads += u64::from(was_free);
    while let Some(copy) = receiver.poll_eager() {
        assert!(copy.bytes <= 100 && copy.bytes <= copy.payload, "its room");
        assert!(copy.seq < before.opened && copy.seq >= before.oldest);
    }
}

proptest! {
    #[test]
    fn the_sender_survives_anything(inputs in prop::collection::vec(to_sender(), 0..200)) {
        let mut sender = Sender::new(SenderConfig::default()).expect("valid");
        sender.add_path(PATH, GENERATION).expect("first");
        sender.set_route(Route::single(PATH)).expect("known");
        for input in inputs {
            feed_sender(&mut sender, input);
            let marks = sender.snapshot();
            prop_assert!(marks.oldest <= marks.delivered && marks.delivered <= marks.posted);
            prop_assert!(marks.oldest <= marks.filled && marks.filled <= marks.credited);
            prop_assert!(marks.posted <= marks.credited);
            prop_assert!(marks.credited.since(marks.oldest) <= 256);
        }
    }

    #[test]
    fn the_receiver_survives_anything(inputs in prop::collection::vec(to_receiver(), 0..200)) {
        let mut receiver = Receiver::new(ReceiverConfig::default());
        receiver.add_path(PATH, GENERATION).expect("first");
        receiver.set_credit_path(PATH).expect("known");
        let mut heads = 0;
        for input in inputs {
            feed_receiver(&mut receiver, input, &mut heads);
            let marks = receiver.snapshot();
            prop_assert!(marks.oldest <= marks.delivered && marks.delivered <= marks.opened);
            prop_assert!(marks.confirmed <= marks.delivered && marks.credited <= marks.opened);
        }
    }
}
