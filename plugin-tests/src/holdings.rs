//! What a process holds, and whether that grows.

use std::time::Duration;

use nix::unistd::Pid;

/// What a process holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holdings {
    descriptors: usize,
    threads: usize,
    resident_kib: usize,
}

impl Holdings {
    /// The most that any of the processes holds of each.
    pub fn of(processes: &[Pid]) -> Self {
        let each = processes.iter().map(|process| Self::of_one(*process));
        each.fold(Self::default(), Self::max)
    }

    fn of_one(process: Pid) -> Self {
        let folder = format!("/proc/{process}");
        let count = |name: &str| {
            let entries = std::fs::read_dir(format!("{folder}/{name}"));
            entries.expect("a process of ours").count()
        };
        let status = std::fs::read_to_string(format!("{folder}/status")).expect("proc");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        Self {
            descriptors: count("fd"),
            threads: count("task"),
            resident_kib: number.expect("a number"),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            resident_kib: self.resident_kib.max(other.resident_kib),
        }
    }
}

/// How many cycles a test is to do: so many, unless `PLUGIN_TEST_CYCLES` says another number.
pub fn cycles(usual: usize) -> usize {
    let given = std::env::var("PLUGIN_TEST_CYCLES").ok();
    given.map_or(usual, |text| text.parse().expect("a number"))
}

/// Asserts that what was held, cycle by cycle, is no more in the last quarter of them than in the
/// second; the first sets things up. Prints both.
pub fn assert_flat(held: &[Holdings]) {
    let quarter = held.len() / 4;
    let most = |part: &[Holdings]| {
        part.iter()
            .copied()
            .fold(Holdings::default(), Holdings::max)
    };
    let (early, late) = (
        most(&held[quarter..2 * quarter]),
        most(&held[3 * quarter..]),
    );
    println!("{} cycles: {early:?}, then {late:?}", held.len());
    // Queue pairs that are over are kept for a while, more or less of them, and helper threads are
    // added where a device, or the host, keeps them waiting.
    let is_flat = late.descriptors <= early.descriptors + 16
        && late.threads <= early.threads + 8
        && late.resident_kib <= early.resident_kib + 8192;
    assert!(is_flat, "{early:?}, then {late:?}");
}

/// Asserts, of a hundred cycles or more, that the later ones take no longer than the earlier ones,
/// as medians have it. Prints them.
pub fn assert_as_fast(took: &[Duration]) {
    let usual = |part: &[Duration]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part[part.len() / 2]
    };
    let (first, last) = took.split_at(took.len() / 2);
    let (first, last) = (usual(first), usual(last));
    println!("a cycle took {first:?}, then {last:?}");
    assert!(
        took.len() < 100 || last <= first * 5 / 4,
        "{first:?}, then {last:?}"
    );
}
