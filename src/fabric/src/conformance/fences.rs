//! Behaviours of the fences: what must not be touched any more.

use super::Fixture;
use super::kit::{End, drive, pair};
use crate::{SendWork, Status};

const BYTES: usize = 1 << 20;

/// Keeps `a` writing to `b` until some bytes have landed and many are under way.
fn flood(fixture: &dyn Fixture, a: &mut End, b: &mut End) {
    a.memory.fill(0x77);
    let work = a.write(b, 0, 0, BYTES);
    for id in 0..60 {
        a.post(SendWork { id, ..work });
    }
    drive(fixture, a, b, "the first byte", |_, b| {
        b.memory.get(4096) == 0x77
    });
}

/// PROTOCOL R38. After `set_error` at the target no byte lands, though writes are under way.
pub(super) fn nothing_lands_after_set_error(fixture: &dyn Fixture) {
    let mut interrupted = 0;
    for _ in 0..20 {
        let (mut a, mut b) = pair(fixture, BYTES);
        flood(fixture, &mut a, &mut b);
        b.queue_pair.set_error();
        b.memory.fill(0x33);
        drive(fixture, &mut a, &mut b, "the end at the sender", |a, _| {
            a.sent().len() == 60
        });
        // On a busy machine everything may have arrived before this thread came to its fence.
        interrupted += usize::from(a.sent().iter().any(|it| it.1 != Status::Success));
        assert!(
            b.memory.holds_only(0x33),
            "bytes have landed after the fence"
        );
    }
    assert!(interrupted > 0, "nothing was under way");
}

/// PROTOCOL R38. After a deregistration at the target no byte lands in the region, though writes
/// are under way.
pub(super) fn nothing_lands_after_deregistration(fixture: &dyn Fixture) {
    let mut interrupted = 0;
    for _ in 0..20 {
        let (mut a, mut b) = pair(fixture, BYTES);
        flood(fixture, &mut a, &mut b);
        b.device.deregister(b.registration);
        b.memory.fill(0x33);
        drive(fixture, &mut a, &mut b, "the end at the sender", |a, _| {
            a.sent().len() == 60
        });
        // As above, it may have been too late.
        if let Some((_, status)) = a.sent().into_iter().find(|it| it.1 != Status::Success) {
            assert_eq!(status, Status::RemoteAccess);
            interrupted += 1;
        }
        assert!(
            b.memory.holds_only(0x33),
            "bytes have landed after the deregistration"
        );
    }
    assert!(interrupted > 0, "nothing was under way");
}

/// PROTOCOL R38. After `set_error` at the sender its memory is read no more: nothing of what is put
/// there lands.
pub(super) fn nothing_is_read_after_set_error(fixture: &dyn Fixture) {
    for _ in 0..20 {
        let (mut a, mut b) = pair(fixture, BYTES);
        flood(fixture, &mut a, &mut b);
        a.queue_pair.set_error();
        a.memory.fill(0x55);
        // An empty write shows that the target has seen the end of the stream.
        let work = b.write(&a, 0, 0, 0);
        // SAFETY: nothing is read for an empty write.
        let posted = unsafe { b.queue_pair.post_send(&[work]) };
        drive(fixture, &mut a, &mut b, "the end at the target", |_, b| {
            posted.is_err() || b.queue_pair.is_error()
        });
        assert!(b.memory.read(0, BYTES).iter().all(|byte| *byte != 0x55));
    }
}
