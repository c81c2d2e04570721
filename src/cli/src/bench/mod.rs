//! `r2ccl bench`: any net plugin under the load that NCCL's proxy would put on it.

mod allreduce;
mod args;
mod compare;
mod connect;
mod data;
mod flow;
mod grouped;
mod host;
mod link;
mod memory;
mod message;
mod outcome;
mod report;
mod session;
mod wire;
mod world;

pub use args::BenchArgs;
pub use host::main as host_main;
pub use message::{Go, Pattern};
pub use outcome::Failure;
pub use session::{Calibration, Row};
pub use world::{HOST_COMMAND, Setup, World};

use std::process::ExitCode;
use std::time::Duration;

use outcome::End;
use report::Bar;
use session::{abort_cycles, calibrate};

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<ExitCode, String> {
    if args.compare.is_some() {
        return compare::run(args);
    }
    let setup = args.setup(&args.plugin()?, &args.environment)?;
    let sizes = args.sizes()?;
    let mut report = report::Report::new(args, &setup);
    let ended = match setup.pattern {
        Pattern::Abort => abort(args, &setup, &sizes, &mut report),
        _ => measure(args, &setup, &sizes, &mut report),
    };
    if let Err(failure) = ended {
        let as_wished = args.kill.is_some() && kill_was_noticed(&failure);
        report.failed(failure);
        report.finish(args.json);
        return Ok(crate::exit_code(as_wished));
    }
    report.finish(args.json);
    if args.kill.is_some() {
        return Err("the run ended before the host was to be killed".into());
    }
    Ok(crate::exit_code(report.is_good()))
}

/// Whether every host but the killed one got an error from the plugin by itself.
fn kill_was_noticed(failure: &Failure) -> bool {
    let killed = failure
        .outcomes
        .iter()
        .filter(|o| o.end == End::KilledOnPurpose)
        .count();
    let noticed = failure
        .outcomes
        .iter()
        .filter(|o| o.end == End::PluginError)
        .count();
    killed == 1 && killed + noticed == failure.outcomes.len()
}

/// Repetitions of a size that take about `time`, found by a warm-up.
pub fn calibrate_for(world: &mut World, size: u64, time: Duration) -> Result<Calibration, Failure> {
    calibrate(world, size, session::Effort::Time(time))
}

fn measure(
    args: &BenchArgs,
    setup: &Setup,
    sizes: &[u64],
    report: &mut report::Report,
) -> Result<(), Failure> {
    let mut world = World::start(setup)?;
    report.loaded(&world.loaded);
    world.connect()?;
    let bar = Bar::new(args.json, sizes.len());
    for &size in sizes {
        bar.at(size);
        let warm_up = calibrate(&mut world, size, args.effort())?;
        let go = Go {
            size,
            count: warm_up.count,
        };
        let mut received = vec![0; setup.hosts];
        let measured = world.run(&go, |host, channels| {
            received[host] = channels.iter().sum();
            bar.moved(received.iter().sum());
        })?;
        let mut row = Row::new(setup.pattern, &go, &measured);
        row.faults.add(&warm_up.faults);
        report.row(row, &bar);
        bar.done();
    }
    world.close()?;
    world.exit()
}

fn abort(
    args: &BenchArgs,
    setup: &Setup,
    sizes: &[u64],
    report: &mut report::Report,
) -> Result<(), Failure> {
    let cycles = args.iterations.unwrap_or(50);
    let mut world = World::start(setup)?;
    report.loaded(&world.loaded);
    world.connect()?;
    let bar = Bar::new(
        args.json,
        sizes.len() * usize::try_from(cycles).unwrap_or(0),
    );
    for (index, &size) in sizes.iter().enumerate() {
        if index > 0 {
            world.connect()?;
        }
        bar.at(size);
        let go = Go { size, count: 64 };
        let (row, flatness) = abort_cycles(&mut world, &go, cycles, |_| bar.done())?;
        report.row(row, &bar);
        report.flatness(flatness);
    }
    world.exit()
}
