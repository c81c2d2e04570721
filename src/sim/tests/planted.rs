//! The checkers are checked: each deliberate bug breaks a world that holds without it.
//!
//! One test only: the switch of the bugs inside the core is one for the whole process.

mod table;

use r2ccl_sim::{Bug, Options, run_one};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Worlds within which a deliberate bug must be found.
const FOUND_WITHIN: u64 = 1000;
/// Worlds at a time. All of them have the same bug.
const JOBS: usize = 2;

fn holds(seed: u64, bug: Option<Bug>) -> bool {
    let options = Options {
        seed,
        bug,
        ..Options::default()
    };
    run_one(options).is_ok()
}

fn shows(seed: u64, bug: Bug) -> bool {
    !holds(seed, Some(bug)) && holds(seed, None)
}

/// The first world from `first` on that breaks with the bug.
fn broken(bug: Bug, first: u64) -> Option<u64> {
    let next = AtomicU64::new(first);
    let found = AtomicU64::new(FOUND_WITHIN);
    thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= found.load(Ordering::Relaxed) {
                        return;
                    }
                    if !holds(seed, Some(bug)) {
                        found.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    Some(found.into_inner()).filter(|&seed| seed < FOUND_WITHIN)
}

/// The first world that breaks with the bug and holds without it.
fn find(bug: Bug) -> Option<u64> {
    let mut first = 0;
    loop {
        let seed = broken(bug, first)?;
        if holds(seed, None) {
            return Some(seed);
        }
        first = seed + 1;
    }
}

#[test]
fn deliberate_bugs_are_found() {
    // Some bugs show as panics of the core.
    std::panic::set_hook(Box::new(|_| {}));
    let rows = table::rows();
    let mut missed = Vec::new();
    for (name, bug) in Bug::all() {
        let row = rows.iter().find(|row| row.name == name);
        let is_checked = row.is_some_and(|row| row.shown_by == "check");
        let known = row.and_then(|row| row.shown_by.parse::<u64>().ok());
        if is_checked || known.is_some_and(|seed| seed < FOUND_WITHIN && shows(seed, bug)) {
            continue;
        }
        // The draws of worlds have changed since the table was written.
        match find(bug) {
            Some(seed) => println!("{name}: now seed {seed}, for docs/PROTOCOL.md"),
            None => missed.push(name),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}
