//! A run over all sizes: how often each is repeated, and what the hosts' numbers add up to.

use std::time::Duration;

use serde::Serialize;

use super::message::{Faults, Go, Leftover, Measured, Pattern};
use super::outcome::Failure;
use super::world::World;
use crate::units;

/// How often a size is repeated.
#[derive(Clone, Copy, Debug)]
pub enum Effort {
    /// Exactly so often, after a short warm-up.
    Count(u64),
    /// As often as fits into this time.
    Time(Duration),
}

/// Repetitions in one measurement at most: bounds the memory for latencies.
pub const COUNT_MAX: u64 = 4_000_000;
/// Repetitions of the warm-up before an exact count.
const WARM_UP: u64 = 16;

/// One line of the result.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Bytes of a message, or of the vector of an all-reduce.
    pub size: u64,
    /// Messages per connection, round trips, all-reduces or groups.
    pub count: u64,
    /// Time of the slowest host.
    pub nanoseconds: u64,
    /// Bytes received by all hosts together.
    pub bytes: u64,
    /// Messages received by all hosts together.
    pub messages: u64,
    /// GB/s (10^9): all bytes received by the time; for an all-reduce the vector by the time.
    pub gb_per_s: f64,
    /// Median half round trip of a ping-pong, in nanoseconds.
    pub p50_ns: Option<u64>,
    /// 99th percentile of it.
    pub p99_ns: Option<u64>,
    /// Longest time without a completion on any host, in nanoseconds.
    pub gap_ns: u64,
    /// CPU time of all hosts together, in nanoseconds.
    pub cpu_ns: u64,
    /// What the check found; all zero without `--check`, but for sizes.
    pub faults: Faults,
    /// Requests in flight when the connections were closed (pattern abort).
    pub in_flight: u64,
}

impl Row {
    /// Adds up what the hosts measured.
    pub fn new(pattern: Pattern, go: &Go, hosts: &[Measured]) -> Row {
        let nanoseconds = hosts.iter().map(|host| host.nanoseconds).max().unwrap_or(0);
        let bytes = hosts.iter().map(|host| host.bytes).sum();
        let counted = match pattern {
            Pattern::Allreduce => go.size.saturating_mul(go.count),
            _ => bytes,
        };
        let mut faults = Faults::default();
        hosts.iter().for_each(|host| faults.add(&host.faults));
        Row {
            size: go.size,
            count: go.count,
            nanoseconds,
            bytes,
            messages: hosts.iter().map(|host| host.messages).sum(),
            gb_per_s: units::gigabytes_per_second(counted, nanoseconds),
            p50_ns: hosts.iter().filter_map(|host| host.p50_ns).max(),
            p99_ns: hosts.iter().filter_map(|host| host.p99_ns).max(),
            gap_ns: hosts.iter().map(|host| host.gap_ns).max().unwrap_or(0),
            cpu_ns: hosts.iter().map(|host| host.cpu_ns).sum(),
            faults,
            in_flight: hosts.iter().map(|host| host.in_flight).sum(),
        }
    }

    /// The number by which two plugins are compared; larger is better.
    pub fn merit(&self) -> f64 {
        match self.p50_ns {
            Some(p50) if p50 > 0 => 1e9 / p50 as f64,
            _ => self.count as f64 * 1e9 / self.nanoseconds.max(1) as f64,
        }
    }
}

/// What the warm-up of a size gave.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// Repetitions for the measurement.
    pub count: u64,
    /// What the check found in the warm-up.
    pub faults: Faults,
}

/// Finds how often a size is repeated, with a warm-up on the way.
pub fn calibrate(world: &mut World, size: u64, effort: Effort) -> Result<Calibration, Failure> {
    let mut faults = Faults::default();
    let mut once = |count| -> Result<u64, Failure> {
        let measured = world.run(&Go { size, count }, |_, _| {})?;
        measured.iter().for_each(|host| faults.add(&host.faults));
        let longest = measured.iter().map(|host| host.nanoseconds).max();
        Ok(longest.unwrap_or(0).max(1))
    };
    let target = match effort {
        Effort::Count(count) => {
            once(count.min(WARM_UP))?;
            return Ok(Calibration { count, faults });
        }
        Effort::Time(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
    };
    // The very first run touches everything for the first time and counts for nothing.
    once(1)?;
    let mut count = 2;
    loop {
        let nanoseconds = once(count)?;
        let scaled = u128::from(count) * u128::from(target) / u128::from(nanoseconds);
        let scaled = u64::try_from(scaled)
            .unwrap_or(COUNT_MAX)
            .clamp(1, COUNT_MAX);
        if nanoseconds >= target / 10 || count >= scaled || count == COUNT_MAX {
            return Ok(Calibration {
                count: scaled,
                faults,
            });
        }
        // Short runs mislead: approach the count in steps.
        count = scaled.min(count.saturating_mul(8));
    }
}

/// Result of the pattern abort.
#[derive(Clone, Debug, Serialize)]
pub struct Flatness {
    /// Cycles of connecting and closing.
    pub cycles: u64,
    /// Hosts whose plugin reported the peer's end as an error, over all cycles.
    pub errors_seen: u64,
    /// After the first quarter of the cycles, by host.
    pub early: Vec<Leftover>,
    /// After the last one.
    pub late: Vec<Leftover>,
    /// Whether descriptors and threads are as many late as early.
    pub flat: bool,
}

/// Looks at what hosts hold, until it is no more than before or the time is over: a plugin may
/// clean up a moment after closing.
const SETTLE: Duration = Duration::from_secs(5);

/// Connects, stops in the middle and closes, `cycles` times in the same processes.
pub fn abort_cycles(
    world: &mut World,
    go: &Go,
    cycles: u64,
    mut tick: impl FnMut(u64),
) -> Result<(Row, Flatness), Failure> {
    let mut hosts: Vec<Measured> = Vec::new();
    let mut flat = Flatness {
        cycles,
        errors_seen: 0,
        early: Vec::new(),
        late: Vec::new(),
        flat: false,
    };
    for cycle in 0..cycles {
        // The first connection stands already.
        if cycle > 0 {
            world.connect()?;
        }
        let measured = world.run(go, |_, _| {})?;
        flat.errors_seen += measured.iter().filter(|host| host.cut).count() as u64;
        hosts.extend(measured);
        flat.late = world.close()?;
        if cycle == cycles / 4 {
            flat.early = settled(world, None)?;
        }
        tick(cycle + 1);
    }
    flat.late = settled(world, Some(&flat.early))?;
    let held = |left: &Leftover| (left.descriptors, left.threads);
    flat.flat = flat
        .late
        .iter()
        .zip(&flat.early)
        .all(|(late, early)| held(late).0 <= held(early).0 && held(late).1 <= held(early).1);
    let mut row = Row::new(Pattern::Abort, go, &hosts);
    row.nanoseconds = hosts.iter().map(|host| host.nanoseconds).sum();
    row.gb_per_s = units::gigabytes_per_second(row.bytes, row.nanoseconds);
    Ok((row, flat))
}

/// What hosts hold once that has stopped falling (no wish), or has come down to `wish`.
fn settled(world: &mut World, wish: Option<&[Leftover]>) -> Result<Vec<Leftover>, Failure> {
    let deadline = std::time::Instant::now() + SETTLE;
    let quiet = Duration::from_millis(300);
    let mut best = world.close()?;
    let mut fell = std::time::Instant::now();
    loop {
        let reached = match wish {
            None => fell.elapsed() >= quiet,
            Some(wish) => best.iter().zip(wish).all(|(now, wish)| {
                now.descriptors <= wish.descriptors && now.threads <= wish.threads
            }),
        };
        if reached || std::time::Instant::now() >= deadline {
            return Ok(best);
        }
        std::thread::sleep(Duration::from_millis(20));
        let now = world.close()?;
        let held = |all: &[Leftover]| -> usize {
            all.iter().map(|left| left.descriptors + left.threads).sum()
        };
        if held(&now) < held(&best) {
            fell = std::time::Instant::now();
        }
        best = now;
    }
}
