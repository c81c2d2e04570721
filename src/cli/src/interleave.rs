//! `r2ccl sim --interleave` and `--schedule`: the small world in all orders of a few events.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use r2ccl_sim::{Bug, Failure, Kind, Schedule, Tally, searches};

use crate::sim;

/// What a search is asked for.
pub struct Search {
    /// Seed of the small world.
    pub seed: u64,
    /// Events of a window.
    pub depth: u32,
    /// Of so many windows with their faults, one is searched.
    pub stride: usize,
    /// Searches at a time.
    pub jobs: usize,
    /// Deliberate bug.
    pub bug: Option<Bug>,
}

/// What became of all searches.
#[derive(Default)]
struct Found {
    tally: Tally,
    searches: u64,
    kinds: BTreeSet<Kind>,
    failure: Option<(usize, Schedule, Failure)>,
}

impl Found {
    fn add(&mut self, index: usize, schedule: Schedule, result: Result<Tally, Failure>) {
        match result {
            Ok(tally) => {
                self.searches += 1;
                self.tally.add(&tally);
                self.kinds.extend(schedule.blows.map(|(kind, _)| kind));
            }
            // Of several, the first search counts: the same one every time.
            Err(failure) => {
                if self
                    .failure
                    .as_ref()
                    .is_none_or(|(other, ..)| index < *other)
                {
                    self.failure = Some((index, schedule, failure));
                }
            }
        }
    }
}

/// Searches all windows. The last line of a failure plays the schedule that failed.
pub fn search(asked: &Search) -> Result<ExitCode, String> {
    if asked.depth == 0 || asked.stride == 0 {
        return Err("--interleave and --stride must not be 0".into());
    }
    let started = Instant::now();
    let windows = searches(asked.seed, asked.depth)
        .step_by(asked.stride)
        .enumerate();
    let windows = Mutex::new(windows);
    let found = Mutex::new(Found::default());
    let is_over = AtomicBool::new(false);
    // A panic in a world is a finding; its schedule says how to see it again.
    std::panic::set_hook(Box::new(|_| {}));
    thread::scope(|scope| {
        for _ in 0..asked.jobs {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let next = windows
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .next();
                    let Some((index, mut schedule)) = next else {
                        return;
                    };
                    let result = schedule.search(asked.bug);
                    is_over.fetch_or(result.is_err(), Ordering::Relaxed);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.add(index, schedule, result);
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(report(asked, &found, started.elapsed().as_secs_f64()))
}

fn report(asked: &Search, found: &Found, seconds: f64) -> ExitCode {
    let tally = found.tally;
    println!(
        "{} schedules in {seconds:.1} s ({:.0} a second): {} windows of {} events, {} kinds of \
         faults, {} events",
        tally.schedules,
        tally.schedules as f64 / seconds.max(1e-9),
        found.searches,
        asked.depth,
        found.kinds.len(),
        tally.events,
    );
    match &found.failure {
        Some((_, schedule, failure)) => fail(schedule, failure, asked.bug),
        None => ExitCode::SUCCESS,
    }
}

/// Plays one schedule and tells it.
pub fn play(schedule: &Schedule, bug: Option<Bug>) -> ExitCode {
    match schedule.play(bug, Some(|line| println!("{line}"))) {
        Ok(()) => {
            println!("the schedule holds");
            ExitCode::SUCCESS
        }
        Err(failure) => fail(schedule, &failure, bug),
    }
}

fn fail(schedule: &Schedule, failure: &Failure, bug: Option<Bug>) -> ExitCode {
    println!("a schedule failed: {}", sim::say(failure));
    println!("r2ccl sim --schedule {schedule}{}", sim::plant(bug));
    ExitCode::from(failure.exit_code())
}
