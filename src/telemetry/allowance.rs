//! How many lines each place in the code may log.
//!
//! A fault can make one place speak a million times a second. Each place has an allowance: a burst,
//! then one line a second; what is left out is counted and told with the next line. One atomic word
//! a place, found by its address in a fixed table: no lock, no allocation.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use tracing::{Level, Metadata};

/// Time in which a place earns one line, in milliseconds.
const REFILL_MS: u64 = 1000;
/// Lines that a place may log at once if it was silent: warnings and failures.
const BURST_WARN: u64 = 5;
/// The same for information, which comes in sets: one line for each NIC, say.
const BURST_INFO: u64 = 40;
/// Places in the table; there are some hundreds in the whole library. A power of two.
const PLACES: usize = 1024;
/// Slots that are looked at before places must share one.
const PROBES: usize = 16;
/// Bits of the word that count suppressed lines; the rest is a time.
const SUPPRESSED_BITS: u32 = 24;
const SUPPRESSED_MAX: u64 = (1 << SUPPRESSED_BITS) - 1;

/// Places that speak once, or limit themselves by something finer than the place.
const UNLIMITED_TARGETS: [&str; 2] = ["r2ccl::config", "r2ccl::plugin::result"];

/// State of one place.
struct Slot {
    /// Address of the place's metadata; 0 is free.
    place: AtomicUsize,
    /// Upper bits: the time in milliseconds at which the place has its full burst again; lower
    /// bits: lines suppressed since the last one that was let through.
    word: AtomicU64,
}

static SLOTS: [Slot; PLACES] = [const {
    Slot {
        place: AtomicUsize::new(0),
        word: AtomicU64::new(0),
    }
}; PLACES];

/// Whether the place may log now. `Some(n)`: yes, and `n` lines were left out before.
pub fn admit(metadata: &'static Metadata<'static>) -> Option<u64> {
    let level = *metadata.level();
    let is_on_demand = level == Level::DEBUG || level == Level::TRACE;
    if is_on_demand || UNLIMITED_TARGETS.contains(&metadata.target()) {
        return Some(0);
    }
    let burst = if level == Level::INFO {
        BURST_INFO
    } else {
        BURST_WARN
    };
    static START: OnceLock<Instant> = OnceLock::new();
    let now_ms = START.get_or_init(Instant::now).elapsed().as_millis();
    let now_ms = u64::try_from(now_ms).unwrap_or(u64::MAX);
    spend(
        &slot(std::ptr::from_ref(metadata).addr()).word,
        now_ms,
        burst,
    )
}

/// The slot of a place: its own, or one that it shares if the neighbourhood is full.
fn slot(place: usize) -> &'static Slot {
    // Metadata are larger than 64 bytes, so the lowest bits tell little.
    let start = (place >> 6) ^ (place >> 14);
    for probe in 0..PROBES {
        let slot = &SLOTS[(start + probe) % PLACES];
        let claim = slot
            .place
            .compare_exchange(0, place, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_ok() || claim == Err(place) {
            return slot;
        }
    }
    &SLOTS[start % PLACES]
}

/// Takes one line from the allowance in `word`.
fn spend(word: &AtomicU64, now_ms: u64, burst: u64) -> Option<u64> {
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let (full_ms, suppressed) = (old >> SUPPRESSED_BITS, old & SUPPRESSED_MAX);
        let next_ms = full_ms.max(now_ms) + REFILL_MS;
        let is_admitted = next_ms <= now_ms + burst * REFILL_MS;
        let new = match is_admitted {
            true => next_ms << SUPPRESSED_BITS,
            false => full_ms << SUPPRESSED_BITS | (suppressed + 1).min(SUPPRESSED_MAX),
        };
        match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return is_admitted.then_some(suppressed),
            Err(changed) => old = changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_one_a_second_with_the_count() {
        let word = AtomicU64::new(0);
        for _ in 0..5 {
            assert_eq!(spend(&word, 100, 5), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(spend(&word, 600, 5), None);
        }
        assert_eq!(spend(&word, 1100, 5), Some(7));
        assert_eq!(spend(&word, 1100, 5), None);
        assert_eq!(spend(&word, 2100, 5), Some(1));
        // Silence earns the burst back, and no more than that.
        for _ in 0..5 {
            assert_eq!(spend(&word, 1_000_000, 5), Some(0));
        }
        assert_eq!(spend(&word, 1_000_000, 5), None);
    }

    #[test]
    fn counts_stop_at_their_limit() {
        let full = u64::MAX >> SUPPRESSED_BITS << SUPPRESSED_BITS >> 1;
        let word = AtomicU64::new(full | SUPPRESSED_MAX);
        assert_eq!(spend(&word, 0, 5), None);
        assert_eq!(
            word.load(Ordering::Relaxed) & SUPPRESSED_MAX,
            SUPPRESSED_MAX
        );
    }

    #[test]
    fn threads_share_one_allowance() {
        let word = AtomicU64::new(0);
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        if spend(&word, 0, 5).is_some() {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 5);
        assert_eq!(word.into_inner() & SUPPRESSED_MAX, 4 * 10_000 - 5);
    }

    #[test]
    fn places_keep_their_slots() {
        let places: Vec<usize> = (1..=300).map(|number| number << 20 | 0x40).collect();
        let slots: Vec<*const Slot> = places.iter().map(|place| slot(*place) as _).collect();
        let again: Vec<*const Slot> = places.iter().map(|place| slot(*place) as _).collect();
        assert_eq!(slots, again);
    }
}
