//! A rate limit that all queue pairs of a device share, without a lock and without sleeping.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest time whose bytes may go out in one burst.
const BURST: Duration = Duration::from_millis(1);
/// Smallest burst in bytes, so that slow devices still move whole segments.
const BURST_BYTES: u64 = 64 * 1024;

/// Token bucket: `paid_ns` is the time up to which the bytes sent so far have used the device.
pub(super) struct Limiter {
    bytes_per_second: u64,
    burst_ns: u64,
    start: Instant,
    paid_ns: AtomicU64,
}

impl Limiter {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        let bytes_per_second = bytes_per_second.max(1);
        let smallest = BURST_BYTES.saturating_mul(1_000_000_000) / bytes_per_second;
        let burst_ns = smallest.max(BURST.as_nanos() as u64);
        Self {
            bytes_per_second,
            burst_ns,
            // Starts in the past, so that the first burst is there at once.
            start: Instant::now(),
            paid_ns: AtomicU64::new(0),
        }
    }

    /// How many of `wanted` bytes may go out now.
    pub(super) fn take(&self, wanted: usize) -> usize {
        self.take_at(self.now_ns(), wanted)
    }

    /// Gives back what was taken and not sent.
    pub(super) fn give_back(&self, bytes: usize) {
        self.paid_ns
            .fetch_sub(self.cost_ns(bytes as u64), Ordering::Relaxed);
    }

    fn now_ns(&self) -> u64 {
        self.burst_ns
            .saturating_add(self.start.elapsed().as_nanos() as u64)
    }

    fn cost_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second)) as u64
    }

    fn take_at(&self, now_ns: u64, wanted: usize) -> usize {
        let mut paid = self.paid_ns.load(Ordering::Relaxed);
        loop {
            let from = paid.max(now_ns.saturating_sub(self.burst_ns));
            let room_ns = now_ns.saturating_sub(from);
            let room = u128::from(room_ns) * u128::from(self.bytes_per_second) / 1_000_000_000;
            let granted = usize::try_from(room).unwrap_or(usize::MAX).min(wanted);
            if granted == 0 {
                return 0;
            }
            let next = from + self.cost_ns(granted as u64);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_the_rate_and_no_more_than_a_burst_after_a_pause() {
        let limiter = Limiter::new(1_000_000_000);
        let second = 1_000_000_000;
        let mut sent = 0;
        for step in 0..1000 {
            sent += limiter.take_at(10 * second + step * 1_000_000, usize::MAX);
        }
        assert!((999_000_000..=1_001_000_000).contains(&sent), "{sent}");
        assert_eq!(limiter.take_at(20 * second, usize::MAX), 1_000_000);
        assert_eq!(limiter.take_at(20 * second, 1), 0);
        limiter.give_back(1_000);
        assert_eq!(limiter.take_at(20 * second, usize::MAX), 1_000);
    }
}
