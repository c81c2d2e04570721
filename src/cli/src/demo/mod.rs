//! `r2ccl demo`: an all-reduce over four software NICs, of which some die and come back.

mod picture;
mod report;
mod story;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bench::{Failure, Go, Pattern, Row, Setup, World, calibrate_for};
use crate::locate;
use report::Report;
use story::Story;
use watch::Watch;

/// NICs of each host, and channels: one each.
const NICS: usize = 4;
/// Rate of each NIC as the plugin is told, and in Gb/s: so low that the NICs are the limit and not
/// the processors.
const RATE: (&str, f64) = ("200M", 0.2);
/// Bytes of the vector that is summed: large enough to keep four NICs busy, small enough that many
/// rounds fit into the time.
const VECTOR: u64 = 4 << 20;
/// Time of one measurement; NICs die in the middle of one.
const ROUND: Duration = Duration::from_millis(500);

/// Options of `r2ccl demo`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Needs no GPU, no NCCL and no network card: the NICs are made of software and talk over 127.0.0.2 to
127.0.0.5 of this machine. Takes about 20 seconds. Exit code 0 if every sum was right and every NIC
came back.")]
pub struct DemoArgs {
    /// The plugin's file. Default: R2CCL_PLUGIN, else the one beside this program
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// NICs that die, one after the other
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
    kills: u8,
    /// Seconds between two events
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=60))]
    seconds: u64,
    /// Print only the result, as JSON
    #[arg(long)]
    json: bool,
    /// Write a picture of the throughput over time, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// One measurement: when it ran, in seconds from the beginning, and what it gave.
struct Round {
    from: f64,
    to: f64,
    row: Row,
}

/// Runs the demonstration.
pub fn run(args: &DemoArgs) -> Result<ExitCode, String> {
    let plugin = locate::plugin(args.plugin.as_deref())?;
    let boards = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let story = Story::new(usize::from(args.kills), args.seconds);
    if !args.json {
        println!(
            "R2CCL, driven as NCCL drives it\n\nplugin: {}\n",
            plugin.display()
        );
        println!("{INTRODUCTION}");
    }
    let (watch, rounds) = play(
        &setup(&plugin, boards.path()),
        &story,
        boards.path(),
        args.json,
    )?;
    let report = Report::new(&story, &watch, &rounds);
    if let Some(file) = &args.plot {
        let picture = picture::draw(&report, &watch)?;
        let written = std::fs::write(file, picture);
        written.map_err(|error| format!("{}: {error}", file.display()))?;
    }
    if args.json {
        println!("{:#}", report.as_json(&plugin, &watch));
    } else {
        println!("{report}");
        if report.is_good() {
            println!("{CLOSING}");
        }
    }
    Ok(crate::exit_code(report.is_good()))
}

const INTRODUCTION: &str = "\
What happens here: two processes play two hosts with a GPU each. They do what training does after
every step, an all-reduce: both hold a vector of 32-bit numbers, and both end up with the sum. The
data goes through the plugin by the same calls that NCCL makes. Each host has four network cards
(NICs) made of software, which pass data over TCP on this machine and are limited to 0.2 Gb/s each,
so that one can see the load spread. Then NICs of host 0 die, one after the other, in the middle of
an all-reduce, and all are repaired. Below is what host 0 receives, by NIC, in Gb/s:
";

const CLOSING: &str = "
Next:  r2ccl bench --help            measure this or any other NCCL net plugin
       r2ccl run -- torchrun ...     start your own training with the plugin
       r2ccl status --watch          see what its NICs do
       r2ccl chaos soft0 kill        break one, if the job was started with R2CCL_CHAOS=1";

/// Two hosts with four NICs, one channel a NIC, and boards of their own.
fn setup(plugin: &Path, boards: &Path) -> Setup {
    let list: Vec<String> = (0..NICS)
        .map(|nic| format!("127.0.0.{}@{}", nic + 2, RATE.0))
        .collect();
    let mut environment = vec![
        ("R2CCL_FABRIC".into(), "soft".into()),
        ("R2CCL_SOFT_NICS".into(), list.join(",")),
        ("R2CCL_CHAOS".into(), "1".into()),
        ("R2CCL_BOARD".into(), boards.display().to_string()),
    ];
    if std::env::var_os("NCCL_DEBUG").is_none() {
        // What the plugin says of its NICs would stand between the lines of the plot.
        environment.push(("R2CCL_LOG".into(), "error".into()));
    }
    Setup {
        plugin: plugin.to_path_buf(),
        abi: None,
        hosts: 2,
        channels: NICS,
        pattern: Pattern::Allreduce,
        nics: Vec::new(),
        check: true,
        offset: 0,
        window: 64 << 20,
        timeout: Duration::from_secs(10),
        environment,
        kill: None,
    }
}

/// Runs all-reduces for as long as the story lasts.
fn play(
    setup: &Setup,
    story: &Story,
    boards: &Path,
    is_quiet: bool,
) -> Result<(Watch, Vec<Round>), String> {
    let explain = |failure: Failure| {
        format!(
            "the demonstration {failure}\nIt needs the loopback addresses 127.0.0.2 to 127.0.0.5 \
             and a few TCP ports; NCCL_DEBUG=INFO shows the plugin's own words"
        )
    };
    let mut world = World::start(setup).map_err(explain)?;
    world.connect().map_err(explain)?;
    let warm_up = calibrate_for(&mut world, VECTOR, ROUND).map_err(explain)?;
    let go = Go {
        size: VECTOR,
        count: warm_up.count,
    };
    let (start, is_over) = (Instant::now(), AtomicBool::new(false));
    let mut watch = Watch::new(start, boards, is_quiet)?;
    let mut rounds = Vec::new();
    let ended = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let told = watch.follow(story, &is_over);
            is_over.store(true, Ordering::Relaxed);
            told
        });
        let mut measured = Ok(());
        while measured.is_ok() && !is_over.load(Ordering::Relaxed) {
            let from = start.elapsed().as_secs_f64();
            measured = world.run(&go, |_, _| {}).map(|hosts| {
                let to = start.elapsed().as_secs_f64();
                let row = Row::new(setup.pattern, &go, &hosts);
                rounds.push(Round { from, to, row });
            });
        }
        is_over.store(true, Ordering::Relaxed);
        let told = watching
            .join()
            .unwrap_or_else(|_| Err("the watch crashed".into()));
        measured.map_err(explain).and(told)
    });
    ended?;
    world.close().map_err(explain)?;
    world.exit().map_err(explain)?;
    Ok((watch, rounds))
}
