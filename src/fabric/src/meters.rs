//! Bytes that a NIC has moved. Each queue pair has a meter of its own, which only its owner writes;
//! they are summed when somebody reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Payload bytes, from the NIC's first queue pair on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesMoved {
    /// Sent to other NICs.
    pub sent: u64,
    /// Received from them.
    pub received: u64,
}

impl BytesMoved {
    fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent.wrapping_add(other.sent),
            received: self.received.wrapping_add(other.received),
        }
    }
}

#[derive(Default)]
struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counters {
    fn read(&self) -> BytesMoved {
        BytesMoved {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
        }
    }
}

#[derive(Default)]
struct State {
    /// What queue pairs moved that are no more.
    ended: BytesMoved,
    counters: Vec<Arc<Counters>>,
}

/// The meters of one NIC.
#[derive(Default)]
pub(crate) struct Meters(Mutex<State>);

impl Meters {
    /// A meter for another queue pair.
    pub(crate) fn add(self: &Arc<Self>) -> Meter {
        let counters = Arc::<Counters>::default();
        self.0.lock().counters.push(counters.clone());
        Meter {
            counters,
            meters: self.clone(),
        }
    }

    /// What all queue pairs have moved; it never falls.
    pub(crate) fn read(&self) -> BytesMoved {
        let state = self.0.lock();
        let each = state.counters.iter().map(|counters| counters.read());
        each.fold(state.ended, BytesMoved::plus)
    }
}

/// The meter of one queue pair.
pub(crate) struct Meter {
    counters: Arc<Counters>,
    meters: Arc<Meters>,
}

impl Meter {
    /// Says what the queue pair has moved in all.
    pub(crate) fn show(&self, traffic: BytesMoved) {
        self.counters.sent.store(traffic.sent, Ordering::Relaxed);
        let received = &self.counters.received;
        received.store(traffic.received, Ordering::Relaxed);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let mut state = self.meters.0.lock();
        state.ended = state.ended.plus(self.counters.read());
        state
            .counters
            .retain(|other| !Arc::ptr_eq(other, &self.counters));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_still_counts() {
        let meters = Arc::<Meters>::default();
        let (first, second) = (meters.add(), meters.add());
        let show = |meter: &Meter, sent, received| meter.show(BytesMoved { sent, received });
        show(&first, 5, 1);
        show(&second, 7, 0);
        show(&first, 6, 2);
        let (sent, received) = (13, 2);
        assert_eq!(meters.read(), BytesMoved { sent, received });
        drop(first);
        assert_eq!(meters.read(), BytesMoved { sent, received });
        assert_eq!(meters.0.lock().counters.len(), 1);
    }
}
