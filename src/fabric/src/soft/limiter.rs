//! A rate limit that all queue pairs of a device share, without a lock and without sleeping.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest time whose bytes may go out in one burst after a pause.
const BURST: Duration = Duration::from_millis(1);
/// Smallest burst in bytes, so that slow devices still move whole segments.
const BURST_BYTES: u64 = 64 * 1024;
/// Longest time that is made up for when bytes have waited and nobody came to send them: a busy
/// machine lets a thread wait for some time slices.
const CATCH_UP: Duration = Duration::from_millis(50);
/// Bytes go out in portions of this time at least, as long as there are as many: a caller that
/// polls without a pause would otherwise send them one by one.
const GRAIN: Duration = Duration::from_micros(200);
const GRAIN_BYTES_MIN: u64 = 4 * 1024;
const GRAIN_BYTES_MAX: u64 = BURST_BYTES;

/// The clock starts so far in the past that the first burst is there at once, at any rate.
const LEAD_NS: u64 = BURST_BYTES * 1_000_000_000;

/// Token bucket: `paid_ns` is the time up to which the bytes sent so far have used the device.
pub(super) struct Limiter {
    /// 0: no limit.
    bytes_per_second: AtomicU64,
    start: Instant,
    paid_ns: AtomicU64,
    /// Senders whose bytes wait: with any, the device is not idle although it does not send.
    hungry: AtomicU32,
}

/// One sender's part in a [`Limiter`].
#[derive(Default)]
pub(super) struct Appetite {
    hungry: bool,
}

impl Limiter {
    pub(super) fn new(bytes_per_second: Option<u64>) -> Self {
        let limiter = Self {
            bytes_per_second: AtomicU64::new(0),
            start: Instant::now(),
            paid_ns: AtomicU64::new(0),
            hungry: AtomicU32::new(0),
        };
        limiter.set(bytes_per_second);
        limiter
    }

    /// Limits to so many bytes a second from now on; `None`: not at all.
    pub(super) fn set(&self, bytes_per_second: Option<u64>) {
        let rate = bytes_per_second.map_or(0, |rate| rate.max(1));
        self.bytes_per_second.store(rate, Ordering::Relaxed);
    }

    pub(super) fn is_on(&self) -> bool {
        self.bytes_per_second.load(Ordering::Relaxed) > 0
    }

    /// How many of `wanted` bytes may go out now: not few of many.
    pub(super) fn take(&self, appetite: &mut Appetite, wanted: usize) -> usize {
        let taken = self.take_at(self.now_ns(), wanted);
        if taken < wanted && !appetite.hungry {
            appetite.hungry = true;
            self.hungry.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Gives back what was taken and not sent.
    pub(super) fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            // It may have been taken at another rate.
            let cost_ns = cost_ns(bytes as u64, self.rate());
            let given = |paid: u64| Some(paid.saturating_sub(cost_ns));
            let order = Ordering::Relaxed;
            let _ = self.paid_ns.fetch_update(order, order, given);
        }
    }

    /// Notes that the sender has nothing that waits only for the limit: if no other has, time that
    /// passes without sending is a pause.
    pub(super) fn satisfy(&self, appetite: &mut Appetite) {
        if std::mem::take(&mut appetite.hungry) {
            self.hungry.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn now_ns(&self) -> u64 {
        LEAD_NS.saturating_add(self.start.elapsed().as_nanos() as u64)
    }

    fn rate(&self) -> u64 {
        self.bytes_per_second.load(Ordering::Relaxed).max(1)
    }

    fn take_at(&self, now_ns: u64, wanted: usize) -> usize {
        let rate = self.rate();
        let least = usize::try_from(grain_bytes(rate)).unwrap_or(usize::MAX);
        let burst_ns = cost_ns(BURST_BYTES, rate).max(BURST.as_nanos() as u64);
        let mut paid = self.paid_ns.load(Ordering::Relaxed);
        loop {
            let reach_ns = if self.hungry.load(Ordering::Relaxed) > 0 {
                burst_ns.max(CATCH_UP.as_nanos() as u64)
            } else {
                burst_ns
            };
            let from = paid.max(now_ns.saturating_sub(reach_ns));
            let room_ns = now_ns.saturating_sub(from);
            let room = u128::from(room_ns) * u128::from(rate) / 1_000_000_000;
            let granted = usize::try_from(room).unwrap_or(usize::MAX).min(wanted);
            if granted < least.min(wanted) {
                return 0;
            }
            let next = from + cost_ns(granted as u64, rate);
            match self.paid_ns.compare_exchange_weak(
                paid,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return granted,
                Err(now) => paid = now,
            }
        }
    }
}

fn cost_ns(bytes: u64, rate: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64
}

fn grain_bytes(rate: u64) -> u64 {
    let grain = u128::from(rate) * GRAIN.as_nanos() / 1_000_000_000;
    let grain = u64::try_from(grain).unwrap_or(GRAIN_BYTES_MAX);
    grain.clamp(GRAIN_BYTES_MIN, GRAIN_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn grants_the_rate_and_no_more_than_a_burst_after_a_pause() {
        let limiter = Limiter::new(Some(1_000_000_000));
        let mut sent = 0;
        for step in 0..1000 {
            sent += limiter.take_at(10 * SECOND + step * MILLISECOND, usize::MAX);
        }
        assert!((999_000_000..=1_001_000_000).contains(&sent), "{sent}");
        assert_eq!(limiter.take_at(20 * SECOND, usize::MAX), 1_000_000);
        assert_eq!(limiter.take_at(20 * SECOND, 1), 0);
        limiter.give_back(1_000);
        assert_eq!(limiter.take_at(20 * SECOND, 1_000), 1_000);
    }

    #[test]
    fn time_is_made_up_for_while_bytes_wait_and_portions_are_not_tiny() {
        let limiter = Limiter::new(Some(50_000_000));
        let (mut one, mut other) = (Appetite::default(), Appetite::default());
        let mut sent = limiter.take_at(SECOND, 1 << 20);
        assert_eq!(sent, 65_536);
        // More is wanted than there ever is.
        limiter.take(&mut one, usize::MAX);
        limiter.take(&mut other, usize::MAX);
        limiter.paid_ns.store(SECOND, Ordering::Relaxed);
        sent = 0;
        for step in 1..=50 {
            // Asked often at first, then only each 20 ms.
            for micros in 1..1000 {
                let now = SECOND + step * 20 * MILLISECOND + micros * 1000;
                let taken = limiter.take_at(now, 1 << 20);
                assert!(taken == 0 || taken >= 10_000, "{taken} bytes");
                sent += taken;
            }
            // One sender's end leaves the other hungry.
            limiter.satisfy(&mut one);
        }
        let rate = sent as f64 / 1.001;
        assert!((49.4e6..50.1e6).contains(&rate), "{rate}");
        limiter.satisfy(&mut other);
        assert_eq!(limiter.take_at(9 * SECOND, 1 << 20), 65_536);
        // As little as is wanted is no tiny portion.
        assert_eq!(limiter.take_at(9 * SECOND + 1_000, 40), 40);
    }

    #[test]
    fn the_rate_may_change_between_taking_and_giving_back() {
        let limiter = Limiter::new(Some(1_000_000_000));
        assert!(limiter.is_on());
        assert_eq!(limiter.take_at(SECOND, 60_000), 60_000);
        limiter.set(Some(1_000));
        limiter.give_back(60_000);
        assert_eq!(limiter.take_at(100 * SECOND, usize::MAX), 65_536);
        assert_eq!(limiter.take_at(100 * SECOND, usize::MAX), 0);
        limiter.set(Some(1_000_000_000));
        assert_eq!(limiter.take_at(101 * SECOND, usize::MAX), 1_000_000);
        limiter.set(None);
        assert!(!limiter.is_on());
    }
}
