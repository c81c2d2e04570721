//! Behaviours in error: who is told what, and who is not disturbed.

use super::Fixture;
use super::kit::{End, drive, pair};
use crate::{Access, Opcode, PostError, SendWork, Status, WriteSource};

/// Posts a good write, a bad one and another good one, and expects the bad one to be the guilty.
fn expect_remote_access(fixture: &dyn Fixture, mut a: End, mut b: End, bad: SendWork) {
    b.queue_pair.post_receives(3).expect("receives");
    b.memory.fill(0x11);
    let good = a.write(&b, 0, 0, 8);
    a.post(SendWork { id: 1, ..good });
    a.post(SendWork {
        id: 2,
        immediate: Some(2),
        signaled: false,
        ..bad
    });
    // The queue pair may be in error by now, and then takes nothing more.
    // SAFETY: the region lives as long as the end.
    let last = unsafe { a.queue_pair.post_send(&[SendWork { id: 3, ..good }]) };
    let total = 2 + usize::from(last == Ok(1));
    drive(fixture, &mut a, &mut b, "the refusal", |a, b| {
        a.sent().len() == total && b.queue_pair.is_error()
    });
    let mut expected = vec![(1, Status::Success), (2, Status::RemoteAccess)];
    expected.extend((total == 3).then_some((3, Status::Flushed)));
    assert_eq!(a.sent(), expected);
    assert!(a.queue_pair.is_error());
    drive(fixture, &mut a, &mut b, "flushed receives", |_, b| {
        b.done.len() >= 3
    });
    assert!(
        b.done.iter().all(|it| it.status == Status::Flushed),
        "{:?}",
        b.done
    );
    b.memory.write(0, &[0x11; 8]);
    assert!(b.memory.holds_only(0x11), "the refused write has landed");
}

/// PROTOCOL R35. A key that nobody has given out is refused at the target.
pub(super) fn wrong_remote_keys_are_refused(fixture: &dyn Fixture) {
    for bytes in [16, 300_000] {
        let (a, b) = pair(fixture, 300_000);
        let work = a.write(&b, 0, 0, bytes);
        let bad = SendWork {
            rkey: work.rkey ^ 0x4000_0000,
            ..work
        };
        expect_remote_access(fixture, a, b, bad);
    }
}

/// PROTOCOL R35. Bytes before and behind the region are refused at the target.
pub(super) fn remote_bounds_are_checked(fixture: &dyn Fixture) {
    for (address, bytes) in [
        (u64::MAX, 16), // one below the region
        (300_000 - 15, 16),
        (300_000, 1),
        (1, 300_000),
        (1 << 63, 16),
    ] {
        let (a, b) = pair(fixture, 300_000);
        let work = a.write(&b, 0, 0, bytes);
        let remote_address = work.remote_address.wrapping_add(address);
        expect_remote_access(
            fixture,
            a,
            b,
            SendWork {
                remote_address,
                ..work
            },
        );
    }
}

/// PROTOCOL R35. A region without the right to remote writes is refused at the target, even by its
/// own key.
pub(super) fn regions_for_local_use_are_not_written(fixture: &dyn Fixture) {
    let (a, b) = pair(fixture, 64);
    let address = b.memory.address() as *mut u8;
    // SAFETY: the memory lives until the end of the pair, and the device is done with it by then.
    let local = unsafe { b.device.register(address, b.memory.bytes(), Access::Local) };
    let local = local.expect("a registration");
    let device = b.device.clone();
    let work = a.write(&b, 0, 0, 16);
    let bad = SendWork {
        rkey: local.lkey,
        ..work
    };
    assert_eq!(local.rkey, 0);
    // The key is deregistered only after the pair is gone, hence the clone above.
    expect_remote_access(fixture, a, b, bad);
    device.deregister(local);
}

fn expect_local_protection(fixture: &dyn Fixture, source: impl Fn(&End) -> WriteSource) {
    let (mut a, mut b) = pair(fixture, 300_000);
    let good = a.write(&b, 0, 0, 8);
    a.post(SendWork { id: 1, ..good });
    if fixture.local_fault() == Status::Flushed {
        // Such a device flushes the work before it, too.
        drive(fixture, &mut a, &mut b, "the good write", |a, _| {
            a.sent().len() == 1
        });
    }
    let bad = SendWork {
        id: 2,
        source: source(&a),
        signaled: false,
        ..good
    };
    a.post(bad);
    drive(fixture, &mut a, &mut b, "the local error", |a, _| {
        a.sent().len() == 2
    });
    assert_eq!(a.sent(), [(1, Status::Success), (2, fixture.local_fault())]);
    assert!(a.queue_pair.is_error());
}

/// A local key that nobody has given out fails at the sender, after the work before it.
pub(super) fn wrong_local_keys_fail_locally(fixture: &dyn Fixture) {
    for len in [16, 300_000] {
        expect_local_protection(fixture, |a| WriteSource::Registered {
            address: a.memory.address(),
            len,
            lkey: a.registration.lkey ^ 0x4000_0000,
        });
    }
}

/// Source bytes outside the region fail at the sender.
pub(super) fn local_bounds_are_checked(fixture: &dyn Fixture) {
    for (offset, len) in [(299_999, 2), (300_000, 1), (1, 300_000), (u64::MAX, 2)] {
        expect_local_protection(fixture, |a| WriteSource::Registered {
            address: a.memory.address().wrapping_add(offset),
            len,
            lkey: a.registration.lkey,
        });
    }
}

/// Work that is larger than the device allows is not posted, and hurts nothing.
pub(super) fn malformed_work_is_not_posted(fixture: &dyn Fixture) {
    let (mut a, mut b) = pair(fixture, 64);
    let good = a.write(&b, 0, 0, 8);
    let bytes = [0; WriteSource::INLINE_BYTES_MAX];
    let long = SendWork {
        source: WriteSource::Inline {
            bytes,
            len: u8::MAX,
        },
        ..good
    };
    // SAFETY: the region lives as long as the end; nothing of the bad work is taken.
    let (alone, behind) = unsafe {
        (
            a.queue_pair.post_send(&[long]),
            a.queue_pair.post_send(&[good, long]),
        )
    };
    assert_eq!((alone, behind), (Err(PostError::Malformed), Ok(1)));
    let most = a.device.info().message_bytes_max;
    if let Ok(len) = u32::try_from(most + 1) {
        let source = WriteSource::Registered {
            address: 0,
            len,
            lkey: 0,
        };
        // SAFETY: nothing of it is taken.
        let posted = unsafe { a.queue_pair.post_send(&[SendWork { source, ..good }]) };
        assert_eq!(posted, Err(PostError::Malformed));
    }
    drive(fixture, &mut a, &mut b, "the good write", |a, _| {
        a.sent().len() == 1
    });
    assert_eq!(a.sent(), [(0, Status::Success)]);
}

/// The failure of one queue pair leaves others of the same devices alone.
pub(super) fn an_error_leaves_other_queue_pairs_alone(fixture: &dyn Fixture) {
    let (mut good_a, mut good_b) = pair(fixture, 100_000);
    let (mut a, mut b) = pair(fixture, 64);
    // Its flush tells this end; an end without any work need not learn of it.
    b.queue_pair.post_receives(1).expect("a receive");
    let work = a.write(&b, 0, 0, 8);
    a.post(SendWork { rkey: 0, ..work });
    drive(fixture, &mut a, &mut b, "the refusal", |a, b| {
        a.queue_pair.is_error() && b.queue_pair.is_error()
    });
    let work = good_a.write(&good_b, 0, 0, 100_000);
    good_a.post(SendWork { id: 5, ..work });
    drive(
        fixture,
        &mut good_a,
        &mut good_b,
        "the other pair",
        |a, _| a.sent().len() == 1,
    );
    assert_eq!(good_a.sent(), [(5, Status::Success)]);
}

/// PROTOCOL R36. On an error all outstanding work completes as flushed: sends, also unsignalled
/// ones, in posting order, and receives.
pub(super) fn an_error_flushes_everything(fixture: &dyn Fixture) {
    let (mut a, mut b) = pair(fixture, 1 << 20);
    a.queue_pair.post_receives(5).expect("receives");
    for id in 0..20 {
        // Without receives at the target they stay outstanding.
        let work = a.write(&b, 0, 0, if id % 2 == 0 { 8 } else { 1 << 20 });
        a.post(SendWork {
            id,
            immediate: Some(1),
            signaled: id % 3 == 0,
            ..work
        });
    }
    a.queue_pair.set_error();
    assert!(a.queue_pair.is_error());
    assert!(!a.queue_pair.has_backlog(), "nothing is left to push out");
    drive(fixture, &mut a, &mut b, "the flush", |a, _| {
        a.done.len() == 25
    });
    let count = |opcode| a.done.iter().filter(|it| it.opcode == opcode).count();
    assert_eq!(
        (count(Opcode::Write), count(Opcode::ReceiveImmediate)),
        (20, 5)
    );
    assert!(
        a.done.iter().all(|it| it.status == Status::Flushed),
        "{:?}",
        a.done
    );
    let ids = a
        .done
        .iter()
        .filter(|it| it.opcode == Opcode::Write)
        .map(|it| it.id);
    assert!(ids.eq(0..20), "posting order");
}

/// PROTOCOL R36. A queue pair in error takes no posts.
pub(super) fn posting_after_an_error_is_refused(fixture: &dyn Fixture) {
    let (mut a, b) = pair(fixture, 64);
    a.queue_pair.set_error();
    a.queue_pair.set_error();
    let work = a.write(&b, 0, 0, 8);
    // SAFETY: nothing of it is taken.
    let posted = unsafe { a.queue_pair.post_send(&[work]) };
    assert_eq!(posted, Err(PostError::InError));
    assert_eq!(a.queue_pair.post_receives(1), Err(PostError::InError));
}

/// Work for a peer that is gone ends with retry-exceeded, the rest is flushed; receives too.
pub(super) fn retries_end_when_the_peer_goes(fixture: &dyn Fixture) {
    for outstanding in [true, false] {
        let (mut a, mut b) = pair(fixture, 1 << 20);
        a.queue_pair.post_receives(2).expect("receives");
        let work = a.write(&b, 0, 0, 1 << 20);
        a.post(SendWork { id: 1, ..work });
        drive(fixture, &mut a, &mut b, "a first write", |a, _| {
            a.sent().len() == 1
        });
        let post = |a: &mut End| {
            // Held for want of a receive, so it cannot be done.
            a.post(SendWork {
                id: 2,
                immediate: Some(1),
                ..work
            });
            a.post(SendWork {
                id: 3,
                signaled: false,
                ..work
            });
        };
        if outstanding {
            post(&mut a);
        }
        b.queue_pair.set_error();
        if !outstanding {
            post(&mut a);
        }
        drive(fixture, &mut a, &mut b, "the end of retries", |a, _| {
            a.done.len() == 5
        });
        let sent = [
            (1, Status::Success),
            (2, Status::RetryExceeded),
            (3, Status::Flushed),
        ];
        assert_eq!(a.sent(), sent);
        assert!(a.queue_pair.is_error());
    }
}
