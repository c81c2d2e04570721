//! Behaviours in health: what lands, what completes, in which order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Fixture;
use super::kit::{DEPTHS, End, connect, drive, drive_a_while, pair, pattern, unconnected};
use crate::{QueuePairConfig, SendWork, Status, Traffic, WriteSource};

fn inline(to: &End, at: usize, content: &[u8]) -> SendWork {
    let mut bytes = [0; WriteSource::INLINE_BYTES_MAX];
    bytes[..content.len()].copy_from_slice(content);
    SendWork {
        id: 0,
        source: WriteSource::Inline {
            bytes,
            len: content.len() as u8,
        },
        remote_address: to.memory.address() + at as u64,
        rkey: to.registration.rkey,
        immediate: None,
        signaled: true,
    }
}

/// Every byte lands where it should and nowhere else, whatever size and alignment.
pub(super) fn writes_land_exactly(fixture: &dyn Fixture) {
    let room = (1 << 20) + 64;
    let (mut a, mut b) = pair(fixture, room);
    b.queue_pair.post_receives(256).expect("receives");
    let sizes = [
        1,
        2,
        7,
        8,
        9,
        63,
        64,
        65,
        1000,
        4095,
        4097,
        16_385,
        65_535,
        65_536,
        65_537,
        131_073,
        300_001,
        1 << 20,
    ];
    let mut round = 0;
    for bytes in sizes {
        for (from, at) in [(0, 0), (1, 0), (0, 3), (5, 8), (3, 3), (7, 12)] {
            let content = pattern(round, bytes);
            a.memory.write(from, &content);
            b.memory.fill(0xa5);
            let work = a.write(&b, from, at, bytes);
            round += 1;
            a.post(SendWork {
                immediate: Some(round as u32),
                ..work
            });
            drive(fixture, &mut a, &mut b, "one write", |a, b| {
                b.received().len() == round && a.sent().len() == round
            });
            assert_eq!(b.received()[round - 1], (round as u32, bytes as u32));
            assert!(
                b.memory.read(at, bytes) == content,
                "{bytes} bytes {from} -> {at}"
            );
            let around = (0..at).chain(at + bytes..room);
            assert!(
                around.into_iter().all(|place| b.memory.get(place) == 0xa5),
                "{bytes} {at}"
            );
        }
    }
}

/// Immediates complete at the target in posting order, with their sizes.
pub(super) fn immediates_keep_their_order(fixture: &dyn Fixture) {
    let (mut a, mut b) = pair(fixture, 400_000);
    let sizes = [8, 0, 300_000, 1, 70_000, 64, 0, 65_536, 200_000];
    let total = 600;
    let mut posted = 0;
    let mut receives = 0;
    while b.received().len() < total {
        while posted < total {
            let bytes = sizes[posted % sizes.len()];
            let work = a.write(&b, 0, 0, bytes);
            let signaled = posted % 7 == 0;
            let work = SendWork {
                immediate: Some(posted as u32),
                signaled,
                ..work
            };
            // SAFETY: the region lives as long as the end.
            if unsafe { a.queue_pair.post_send(&[work]) } != Ok(1) {
                break;
            }
            posted += 1;
        }
        let room = 200.min(total as u32 - receives);
        if receives as usize <= b.received().len() && room > 0 {
            b.queue_pair.post_receives(room).expect("receives");
            receives += room;
        }
        let before = b.received().len();
        drive(fixture, &mut a, &mut b, "the next immediate", |_, b| {
            b.received().len() > before
        });
    }
    for (index, arrived) in b.received().into_iter().enumerate() {
        assert_eq!(arrived, (index as u32, sizes[index % sizes.len()] as u32));
    }
}

/// Writes without bytes work, with and without immediate, whatever key they name.
pub(super) fn empty_writes_need_no_key(fixture: &dyn Fixture) {
    let (mut a, mut b) = pair(fixture, 64);
    b.queue_pair.post_receives(1).expect("receives");
    let source = WriteSource::Registered {
        address: 1,
        len: 0,
        lkey: 0xdead,
    };
    let work = SendWork {
        source,
        remote_address: 3,
        rkey: 0xbeef,
        ..a.write(&b, 0, 0, 0)
    };
    a.post(SendWork { id: 1, ..work });
    a.post(SendWork {
        id: 2,
        immediate: Some(9),
        ..work
    });
    drive(fixture, &mut a, &mut b, "empty writes", |a, b| {
        a.sent().len() == 2 && !b.received().is_empty()
    });
    assert_eq!(a.sent(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(b.received(), [(9, 0)]);
}

/// Inline bytes are taken when they are posted, up to the device's limit.
pub(super) fn inline_writes_copy_at_once(fixture: &dyn Fixture) {
    let (mut a, mut b) = pair(fixture, 4096);
    let most = a
        .device
        .info()
        .inline_bytes_max
        .min(WriteSource::INLINE_BYTES_MAX);
    let content = pattern(1, most);
    for bytes in [1, 8, 32, most] {
        b.memory.fill(0);
        let before = a.sent().len();
        let work = inline(&b, 5, &content[..bytes]);
        a.post(work);
        drive(fixture, &mut a, &mut b, "inline", |a, _| {
            a.sent().len() > before
        });
        assert_eq!(b.memory.read(5, bytes), content[..bytes]);
        assert_eq!(b.memory.get(4) | b.memory.get(5 + bytes), 0);
    }
}

/// Inline writes that are under way at the same time have bytes of their own.
pub(super) fn inline_writes_do_not_share_their_bytes(fixture: &dyn Fixture) {
    let (mut a, mut b) = pair(fixture, 4096);
    for round in 0..10 {
        let before = a.sent().len();
        let bytes = |index: usize| [(round * 32 + index) as u8; 8];
        for index in 0..32 {
            a.post(inline(&b, index * 8, &bytes(index)));
        }
        drive(fixture, &mut a, &mut b, "all of them", |a, _| {
            a.sent().len() == before + 32
        });
        for index in 0..32 {
            assert_eq!(b.memory.read(index * 8, 8), bytes(index), "{round} {index}");
        }
    }
}

/// Unsignalled work yields nothing on success and is done when later work is.
pub(super) fn unsignaled_success_is_silent(fixture: &dyn Fixture) {
    let (mut a, mut b) = pair(fixture, 4096);
    for id in 1..=300u64 {
        let work = a.write(&b, 0, 0, 16);
        let work = SendWork {
            id,
            signaled: id % 50 == 0,
            ..work
        };
        // SAFETY: the region lives as long as the end.
        while unsafe { a.queue_pair.post_send(&[work]) } == Ok(0) {
            a.poll();
            b.poll();
        }
    }
    drive(fixture, &mut a, &mut b, "signalled ones", |a, _| {
        a.sent().len() >= 6
    });
    drive_a_while(&mut a, &mut b);
    let expected: Vec<_> = (1..=6).map(|step| (step * 50, Status::Success)).collect();
    assert_eq!(a.sent(), expected);
}

/// Completions of one queue pair come in posting order, large and small mixed.
pub(super) fn signaled_completions_keep_their_order(fixture: &dyn Fixture) {
    let (mut a, mut b) = pair(fixture, 1 << 20);
    for id in 0..40 {
        let bytes = if id % 3 == 0 { 500_000 } else { 24 };
        let work = a.write(&b, 0, 0, bytes);
        a.post(SendWork { id, ..work });
    }
    drive(fixture, &mut a, &mut b, "all completions", |a, _| {
        a.sent().len() == 40
    });
    let expected: Vec<_> = (0..40).map(|id| (id, Status::Success)).collect();
    assert_eq!(a.sent(), expected);
}

/// When a small write completes at the target, the large ones before it are in place.
pub(super) fn a_completion_covers_all_earlier_data(fixture: &dyn Fixture) {
    let large = 900_000;
    let (mut a, mut b) = pair(fixture, large + 64);
    b.queue_pair.post_receives(40).expect("receives");
    for round in 0..40 {
        let content = pattern(round, large);
        a.memory.write(0, &content);
        let first = a.write(&b, 0, 0, large);
        let second = inline(&b, large + 8, &[round as u8 + 1; 8]);
        a.post(SendWork {
            signaled: false,
            ..first
        });
        a.post(SendWork {
            immediate: Some(7),
            ..second
        });
        drive(fixture, &mut a, &mut b, "the small write", |_, b| {
            b.received().len() > round
        });
        assert!(
            b.memory.read(0, large) == content,
            "round {round}: completed too early"
        );
        assert_eq!(b.memory.read(large + 8, 8), [round as u8 + 1; 8]);
        drive(fixture, &mut a, &mut b, "its completion", |a, _| {
            a.sent().len() > round
        });
    }
}

/// Bulk in both directions at the same time.
pub(super) fn both_directions_at_once(fixture: &dyn Fixture) {
    let (half, rounds) = (1 << 20, 24u64);
    let (mut a, mut b) = pair(fixture, 2 * half);
    let (of_a, of_b) = (pattern(1, half), pattern(2, half));
    a.memory.write(0, &of_a);
    b.memory.write(0, &of_b);
    for end in [&mut a, &mut b] {
        end.queue_pair
            .post_receives(rounds as u32)
            .expect("receives");
    }
    for id in 0..rounds {
        let (there, back) = (a.write(&b, 0, half, half), b.write(&a, 0, half, half));
        a.post(SendWork {
            id,
            immediate: Some(id as u32),
            ..there
        });
        b.post(SendWork {
            id,
            immediate: Some(id as u32),
            ..back
        });
    }
    let all = rounds as usize;
    drive(fixture, &mut a, &mut b, "both directions", |a, b| {
        [a, b]
            .iter()
            .all(|end| end.received().len() == all && end.sent().len() == all)
    });
    assert!(b.memory.read(half, half) == of_a);
    assert!(a.memory.read(half, half) == of_b);
}

/// Work posted before the ends know each other goes out when they do.
pub(super) fn work_posted_before_connecting_is_held(fixture: &dyn Fixture) {
    let (mut a, mut b) = unconnected(fixture, DEPTHS, 300_000);
    b.queue_pair.post_receives(2).expect("receives");
    let content = pattern(3, 300_000);
    a.memory.write(0, &content);
    let work = a.write(&b, 0, 0, 300_000);
    a.post(SendWork {
        immediate: Some(1),
        ..work
    });
    assert!(a.queue_pair.has_backlog(), "somebody must poll");
    drive_a_while(&mut a, &mut b);
    assert!(a.done.is_empty() && b.done.is_empty());
    connect(&mut a, &mut b);
    let work = a.write(&b, 0, 0, 0);
    a.post(SendWork {
        immediate: Some(2),
        ..work
    });
    drive(fixture, &mut a, &mut b, "held work", |_, b| {
        b.received().len() == 2
    });
    assert_eq!(b.received(), [(1, 300_000), (2, 0)]);
    assert!(b.memory.read(0, 300_000) == content);
}

/// A write with immediate that finds no receive waits, without error, until there is one.
pub(super) fn missing_receives_hold_the_write(fixture: &dyn Fixture) {
    let (mut a, mut b) = pair(fixture, 200_000);
    for id in 0..4 {
        let work = a.write(&b, 0, 0, if id == 1 { 200_000 } else { 8 });
        a.post(SendWork {
            id,
            immediate: Some(id as u32),
            ..work
        });
    }
    drive_a_while(&mut a, &mut b);
    assert!(a.done.is_empty() && b.done.is_empty());
    b.queue_pair.post_receives(1).expect("receives");
    drive(fixture, &mut a, &mut b, "one", |a, b| {
        b.received().len() == 1 && a.sent().len() == 1
    });
    drive_a_while(&mut a, &mut b);
    assert_eq!((a.sent().len(), b.received().len()), (1, 1));
    b.queue_pair.post_receives(3).expect("receives");
    drive(fixture, &mut a, &mut b, "all", |a, _| a.sent().len() == 4);
    assert_eq!(
        b.received().iter().map(|it| it.0).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
}

/// A full send queue takes less than it is given; what it took completes.
pub(super) fn a_full_send_queue_pushes_back(fixture: &dyn Fixture) {
    let depths = QueuePairConfig {
        send_depth: 16,
        receive_depth: 4,
        traffic: Traffic::Data,
    };
    let (mut a, mut b) = unconnected(fixture, depths, 4096);
    connect(&mut a, &mut b);
    let chain = [a.write(&b, 0, 0, 64); 10];
    let mut taken = 0;
    loop {
        // SAFETY: the region lives as long as the end.
        let count = unsafe { a.queue_pair.post_send(&chain) }.expect("posted");
        taken += count;
        assert!(taken < 100_000, "the queue has no end");
        if count < chain.len() {
            break;
        }
    }
    assert!(taken >= 16, "less than asked for: {taken}");
    drive(fixture, &mut a, &mut b, "all taken work", |a, _| {
        a.sent().len() == taken
    });
    let work = a.write(&b, 0, 0, 8);
    a.post(work);
    drive(fixture, &mut a, &mut b, "one more", |a, _| {
        a.sent().len() == taken + 1
    });
}

/// Many queue pairs between the same devices do not disturb each other.
pub(super) fn many_queue_pairs_share_a_device(fixture: &dyn Fixture) {
    let depths = QueuePairConfig {
        send_depth: 4,
        receive_depth: 4,
        traffic: Traffic::Data,
    };
    let mut pairs: Vec<_> = (0..48)
        .map(|index| {
            let (mut a, mut b) = unconnected(fixture, depths, 100_000);
            connect(&mut a, &mut b);
            a.memory.write(0, &pattern(index, 100_000));
            b.queue_pair.post_receives(1).expect("receives");
            let work = a.write(&b, 0, 0, 100_000);
            a.post(SendWork {
                immediate: Some(index as u32),
                ..work
            });
            (a, b)
        })
        .collect();
    for (index, (a, b)) in pairs.iter_mut().enumerate() {
        drive(fixture, a, b, "one of many", |a, b| {
            !b.received().is_empty() && !a.sent().is_empty()
        });
        assert_eq!(b.received(), [(index as u32, 100_000)]);
        assert!(b.memory.read(0, 100_000) == pattern(index, 100_000));
    }
}

/// PROTOCOL R37. Whoever watches the destination sees aligned words change as a whole, and never
/// sees a word of a 128-byte line before those below it.
pub(super) fn aligned_words_are_never_torn(fixture: &dyn Fixture) {
    // One step of NCCL's LL128 protocol, the largest message that a GPU polls.
    let most = 4_800 * 128;
    let (mut a, mut b) = pair(fixture, most);
    let base = b.memory.address() as usize;
    let (stop, passes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let word = |at: usize| {
                // SAFETY: aligned and inside the memory, which outlives the scope.
                unsafe { AtomicU64::from_ptr((base + at) as *mut u64) }.load(Ordering::Acquire)
            };
            while !stop.load(Ordering::Relaxed) {
                passes.fetch_add(1, Ordering::Relaxed);
                // From above: a newer word may not lie above an older one of the same line.
                for line in (0..most).step_by(128) {
                    let mut above = 0;
                    for at in (line..line + 128).step_by(8).rev() {
                        let value = word(at);
                        assert_eq!(value as u32, (value >> 32) as u32, "torn word at {at}");
                        assert!(value as u32 >= above, "not ascending at {at}");
                        above = value as u32;
                    }
                }
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 1..u32::MAX {
                let value = u64::from(round) << 32 | u64::from(round);
                a.memory.write(0, &value.to_le_bytes().repeat(most / 8));
                let work = a.write(&b, 0, 0, if round % 2 == 0 { most } else { 48 * 1024 });
                a.post(work);
                let before = a.sent().len();
                drive(fixture, &mut a, &mut b, "a message", |a, _| {
                    a.sent().len() > before
                });
                // The watcher must have had its looks while messages landed.
                let watched = passes.load(Ordering::Relaxed) >= 4 || watcher.is_finished();
                if round >= 60 && watched {
                    break;
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
