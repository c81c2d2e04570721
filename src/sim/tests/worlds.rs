//! Worlds that must hold, and all of a small model.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use r2ccl_sim::{Options, Totals, run_one, run_small, scripts};

/// Worlds of each sweep: the same ones in every run, and others. `scripts/soak-sim.sh` takes a
/// million.
const WORLDS: u64 = 2000;
/// Worlds that show a pair of fault and state of a path that is not among the first ones:
/// a process is killed while a path is suspect.
const RARE: &[u64] = &[5418, 5463];
/// Leaves seeds that people can type, far more than anybody will ever try.
const FRESH_SHIFT: u32 = 16;

/// Events before which the faults of the small model strike, and the step between them: a small
/// world without faults has about 60. `r2ccl sim --small` takes every event.
const SMALL_DEPTH: u64 = 48;
const SMALL_STRIDE: usize = 16;

#[test]
fn known_seeds_hold() {
    for line in include_str!("../seeds/regressions.txt").lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let seed = line.parse().expect("a seed");
        let outcome = run_one(Options {
            seed,
            ..Options::default()
        });
        assert!(outcome.is_ok(), "seed {seed}: {outcome:?}");
    }
}

/// Lets these worlds happen.
fn sweep(seeds: impl Iterator<Item = u64>) -> Totals {
    let mut totals = Totals::default();
    for seed in seeds {
        match run_one(Options {
            seed,
            ..Options::default()
        }) {
            Ok(outcome) => totals.add(&outcome),
            Err(failure) => panic!("r2ccl sim --seed {seed}: {failure:?}"),
        }
    }
    totals
}

#[test]
fn the_first_worlds_hold() {
    let totals = sweep((0..WORLDS).chain(RARE.iter().copied()));
    // A world in which nothing happens proves nothing.
    assert!(totals.struck > 2 * WORLDS && totals.recoveries > WORLDS);
    assert!(totals.messages > 150 * WORLDS);
    let eager = totals.eager;
    assert!(eager.before > 10 * WORLDS && eager.after > 5 * WORLDS);
    assert!(eager.lost > 0 && eager.late > 0);
    assert_eq!(totals.coverage.missing_eager(), []);
    assert_eq!(totals.coverage.missing(), []);
}

/// Nobody has seen these worlds before. A seed that fails goes into `seeds/regressions.txt`.
#[test]
fn fresh_worlds_hold() {
    let draw = RandomState::new().build_hasher().finish();
    let first = draw >> FRESH_SHIFT;
    println!("worlds from {first} on");
    sweep(first..first + WORLDS);
}

#[test]
fn equal_seeds_are_equal_worlds() {
    for seed in 0..20 {
        let options = Options {
            seed,
            ..Options::default()
        };
        assert_eq!(run_one(options), run_one(options));
    }
}

/// Two paths, two messages, two faults: every pair of faults at every pair of early instants.
#[test]
fn the_small_model_holds() {
    for script in scripts(SMALL_DEPTH, SMALL_STRIDE) {
        let outcome = run_small(1, script, None);
        assert!(outcome.is_ok(), "{script:?}: {outcome:?}");
    }
}
