//! `r2ccl sim`: lets simulated worlds happen and says which broke a rule.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use clap::Args;
use r2ccl_sim::{
    Bug, Failure, Options, Scenario, Schedule, Settings, Totals, run_one, run_small, scenarios,
    scripts,
};

use crate::interleave::{self, Search};

/// Arguments of `r2ccl sim`.
#[derive(Args)]
#[command(after_help = "\
Exit code 2 if a world crashed, 3 if it lost or corrupted data, 4 if it did not come to an end; the
last line repeats the world that failed.")]
pub struct SimArgs {
    /// One world, told event by event
    #[arg(long, conflicts_with_all = ["first", "worlds"])]
    seed: Option<u64>,
    /// Seed of the first world
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many worlds
    #[arg(long, default_value_t = 1000)]
    worlds: u64,
    /// Worlds at a time; 0 means one for each processor
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Plant a deliberate bug: the worlds have to find it
    #[arg(long, value_name = "NAME", value_parser = parse_bug)]
    plant: Option<Bug>,
    /// Print which faults met which states
    #[arg(long)]
    coverage: bool,
    /// Instead of random worlds take the small model: two paths, two messages, and two faults
    /// before every pair of events up to this one
    #[arg(long, value_name = "EVENTS", conflicts_with = "seed")]
    small: Option<u64>,
    /// Instead of random worlds take all orders of so many events in a small world, with two faults
    /// among them; --first is its seed
    #[arg(long, value_name = "EVENTS", conflicts_with_all = ["seed", "small"])]
    interleave: Option<u32>,
    /// Of so many windows of --interleave take one
    #[arg(
        long,
        value_name = "WINDOWS",
        default_value_t = 1,
        requires = "interleave"
    )]
    stride: usize,
    /// Play one schedule, as a failing --interleave prints it, told event by event
    #[arg(long, value_name = "TEXT",
          conflicts_with_all = ["seed", "first", "worlds", "small", "interleave"])]
    schedule: Option<Schedule>,
    /// Play a scenario instead; --seed draws what it leaves to chance
    #[arg(long, value_name = "NAME", value_parser = parse_scenario,
          conflicts_with_all = ["first", "worlds", "small", "interleave", "schedule", "plant",
                                "coverage"])]
    scenario: Option<&'static Scenario>,
    /// List the scenarios
    #[arg(long)]
    list: bool,
    /// Print events even of more than one world
    #[arg(long)]
    verbose: bool,
}

fn parse_bug(name: &str) -> Result<Bug, String> {
    Bug::named(name).ok_or_else(|| {
        let names: Vec<&str> = Bug::all().map(|(name, _)| name).collect();
        format!("no such bug; there are {}", names.join(", "))
    })
}

fn parse_scenario(name: &str) -> Result<&'static Scenario, String> {
    Scenario::named(name).ok_or_else(|| "no such scenario; --list prints them".into())
}

/// Runs the command.
pub fn run(args: &SimArgs) -> Result<ExitCode, String> {
    if args.list {
        for scenario in scenarios() {
            println!("{:<24} {}", scenario.name, scenario.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(scenario) = args.scenario {
        return Ok(play(args, scenario));
    }
    if let Some(schedule) = &args.schedule {
        return Ok(interleave::play(schedule, args.plant));
    }
    if let Some(depth) = args.interleave {
        return interleave::search(&Search {
            seed: args.first,
            depth,
            stride: args.stride,
            jobs: jobs(args.jobs),
            bug: args.plant,
        });
    }
    if args.worlds == 0 {
        return Err("--worlds must not be 0".into());
    }
    if let Some(depth) = args.small {
        return run_model(args, depth);
    }
    Ok(sweep(args))
}

/// Random worlds, one after the other.
fn sweep(args: &SimArgs) -> ExitCode {
    let (first, count) = args
        .seed
        .map_or((args.first, args.worlds), |seed| (seed, 1));
    let is_told = args.verbose || args.seed.is_some();
    let trace: Option<fn(&str)> = is_told.then_some(|line| println!("{line}"));
    let bug = args.plant;
    let next = AtomicU64::new(0);
    let found: Mutex<(Totals, Option<(u64, Failure)>)> = Mutex::default();
    let started = Instant::now();
    // A panic in a world is a finding of that world; its seed says how to see it again.
    std::panic::set_hook(Box::new(|_| {}));
    thread::scope(|scope| {
        for _ in 0..jobs(args.jobs) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(seed) = first.checked_add(index).filter(|_| index < count) else {
                        return;
                    };
                    let outcome = run_one(Options {
                        seed,
                        trace,
                        bug,
                        ..Options::default()
                    });
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    match outcome {
                        Ok(outcome) => found.0.add(&outcome),
                        Err(failure) => {
                            // Of several, the lowest seed counts: the same one every time.
                            if found.1.as_ref().is_none_or(|(other, _)| seed < *other) {
                                found.1 = Some((seed, failure));
                            }
                            next.store(count, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    let (totals, failure) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(args, &totals, started.elapsed().as_secs_f64());
    let Some((seed, failure)) = failure else {
        return ExitCode::SUCCESS;
    };
    println!("world {seed} failed: {}", say(&failure));
    println!("r2ccl sim --seed {seed}{}", plant(bug));
    ExitCode::from(failure.exit_code())
}

/// One scenario.
fn play(args: &SimArgs, scenario: &Scenario) -> ExitCode {
    let settings = Settings {
        seed: args.seed.unwrap_or(0),
        trace: args.verbose.then_some(|line| println!("{line}")),
    };
    let started = Instant::now();
    match scenario.play(settings) {
        Ok(figures) => {
            for line in figures {
                println!("{line}");
            }
            let seconds = started.elapsed().as_secs_f64();
            println!("{} holds ({seconds:.1} s)", scenario.name);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{} failed: {}", scenario.name, say(&failure));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// The argument that plants a deliberate bug.
pub fn plant(bug: Option<Bug>) -> String {
    let named = Bug::all().find(|(_, known)| Some(*known) == bug);
    named.map_or(String::new(), |(name, _)| format!(" --plant {name}"))
}

/// A failure for people.
pub fn say(failure: &Failure) -> String {
    match failure {
        Failure::Crash(text) => format!("crash: {text}"),
        Failure::Rule(violation) => {
            format!(
                "{:?} at {} ns: {}",
                violation.class, violation.at, violation.text
            )
        }
    }
}

/// The small model, script by script.
fn run_model(args: &SimArgs, depth: u64) -> Result<ExitCode, String> {
    let mut count = 0u64;
    for script in scripts(depth, 1) {
        if let Err(failure) = run_small(args.first, script, args.plant) {
            println!("small world {script:?} failed: {failure:?}");
            println!("r2ccl sim --small {depth} --first {}", args.first);
            return Ok(ExitCode::from(failure.exit_code()));
        }
        count += 1;
    }
    println!("{count} small worlds hold");
    Ok(ExitCode::SUCCESS)
}

fn jobs(asked: usize) -> usize {
    match asked {
        0 => thread::available_parallelism().map_or(1, usize::from),
        asked => asked,
    }
}

fn report(args: &SimArgs, totals: &Totals, seconds: f64) {
    println!(
        "{} worlds in {seconds:.1} s ({:.0} a second): {} events, {} messages, {} faults, \
         {} generations given up",
        totals.worlds,
        totals.worlds as f64 / seconds.max(1e-9),
        totals.events,
        totals.messages,
        totals.struck,
        totals.recoveries,
    );
    let eager = totals.eager;
    println!(
        "{} sends ahead of their credit: {} taken before their receive, {} after, {} lost, {} \
         written late",
        eager.sent, eager.before, eager.after, eager.lost, eager.late,
    );
    if args.coverage {
        print!("{}", totals.coverage.table());
    }
}
