//! The checkers are checked: each deliberate bug breaks a world that holds without it.
//!
//! One test only: the switch of the bugs inside the core is one for the whole process.

use r2ccl_sim::{Bug, Failure, Options, run_one};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Worlds within which a deliberate bug must be found.
const FOUND_WITHIN: u64 = 1000;
/// Worlds at a time.
const JOBS: usize = 2;

fn world(seed: u64, bug: Option<Bug>) -> Result<(), Failure> {
    let options = Options {
        seed,
        bug,
        ..Options::default()
    };
    run_one(options).map(|_| ())
}

/// The first seeds from `first` on, that break with the bug, lowest first, and how.
fn broken(bug: Bug, first: u64) -> Option<(u64, Failure)> {
    let next = AtomicU64::new(first);
    let found: Mutex<Option<(u64, Failure)>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= FOUND_WITHIN {
                        return;
                    }
                    if let Err(failure) = world(seed, Some(bug)) {
                        let mut found = found.lock().expect("no panic");
                        if found.as_ref().is_none_or(|(other, _)| seed < *other) {
                            *found = Some((seed, failure));
                        }
                        next.store(FOUND_WITHIN, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    found.into_inner().expect("no panic")
}

#[test]
fn deliberate_bugs_are_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut missed = Vec::new();
    for (name, bug) in
        Bug::all().filter(|(name, _)| only.is_empty() || only.split(',').any(|o| o == *name))
    {
        let started = std::time::Instant::now();
        let mut first = 0;
        let found = loop {
            match broken(bug, first) {
                Some((seed, _)) if world(seed, None).is_err() => first = seed + 1,
                found => break found,
            }
        };
        println!("{name} {:.1}s {found:?}", started.elapsed().as_secs_f64());
        if found.is_none() {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}
