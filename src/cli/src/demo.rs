//! `r2ccl demo`: the plugin at work over four software NICs, explained while one watches.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::bench::{Go, Pattern, Row, Setup, World, calibrate_for};
use crate::{locate, units};

/// NICs, and channels: one each.
const NICS: usize = 4;
/// Rate of each NIC as the plugin is told, and in Gb/s.
const RATE: (&str, f64) = ("200M", 0.2);
/// Bytes of the vector that is summed: large enough to keep four NICs busy, small enough that many
/// rounds fit into the time.
const VECTOR: u64 = 4 << 20;

/// Options of `r2ccl demo`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Needs no GPU, no NCCL and no network card: the NICs are made of software and talk over 127.0.0.2 to
127.0.0.5 of this machine. Takes about 15 seconds.")]
pub struct DemoArgs {
    /// The plugin's file. Default: R2CCL_PLUGIN, else the one beside this program
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// Seconds of the main part
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Print only the result, as JSON
    #[arg(long)]
    json: bool,
}

/// What a part of the demonstration gave.
struct Part {
    row: Row,
    per_nic: Vec<f64>,
}

/// Runs the demonstration.
pub fn run(args: &DemoArgs) -> Result<ExitCode, String> {
    let plugin = locate::plugin(args.plugin.as_deref())?;
    let say = |text: &str| {
        if !args.json {
            println!("{text}");
        }
    };
    say(&format!(
        "R2CCL, driven as NCCL drives it\n\nplugin: {}\n",
        plugin.display()
    ));
    say(INTRODUCTION);
    let all = part(
        args,
        &setup(&plugin, NICS),
        Duration::from_secs(args.seconds),
    )?;
    say(&format!(
        "\n{} all-reduces of {} in {}: {:.2} Gb/s into each host, over {NICS} NICs.\n\
         Every number of every result was compared with the right sum: {}.\n",
        all.row.count,
        units::bytes(VECTOR),
        units::duration(all.row.nanoseconds),
        gigabits(&all.row),
        verdict(&all.row)
    ));
    say("Now the same with a single NIC, to see what the other three were worth:\n");
    let one = part(
        args,
        &setup(&plugin, 1),
        Duration::from_secs(args.seconds.div_ceil(2)),
    )?;
    let gain = gigabits(&all.row) / gigabits(&one.row).max(1e-9);
    say(&format!(
        "\n{:.2} Gb/s with one NIC, {:.2} Gb/s with {NICS}: {gain:.1} times as much. Sums: {}.\n",
        gigabits(&one.row),
        gigabits(&all.row),
        verdict(&one.row)
    ));
    if gain < 3.0 {
        say(BUSY);
    }
    let wrong = all.row.faults.total() + one.row.faults.total();
    if args.json {
        print_json(&plugin, &all, &one, wrong);
    } else {
        println!(
            "{}",
            if wrong == 0 {
                CLOSING
            } else {
                "WRONG DATA: please report this."
            }
        );
    }
    Ok(crate::exit_code(wrong == 0))
}

const INTRODUCTION: &str = "\
What happens here: two processes play two hosts with a GPU each. They do what training does after
every step, an all-reduce: both hold a vector of 32-bit numbers, and both end up with the sum. The
data goes through the plugin by the same calls that NCCL makes. Each host has four network cards
(NICs) made of software, which pass data over TCP on this machine and are limited to 0.2 Gb/s each,
so that one can see the load spread. Below is what host 0 receives, by NIC, in Gb/s:
";

const BUSY: &str = "\
It would be nearly four times as much, had the processors not been the limit: this machine is slow
or busy, or the program was built without optimisation.
";

const CLOSING: &str = "\
What you have seen: one unmodified NCCL plugin interface, two processes, four NICs sharing the load,
every byte checked. What you have not seen: a NIC that dies. Try it on a job of your own, started
with R2CCL_CHAOS=1: `r2ccl chaos soft0 kill` while it runs, `r2ccl chaos soft0 restore` later, and
`r2ccl status --watch` beside it.

Next:  r2ccl bench --help            measure this or any other NCCL net plugin
       r2ccl run -- torchrun ...     start your own training with the plugin";

/// Two hosts with so many NICs, one channel a NIC.
fn setup(plugin: &std::path::Path, nics: usize) -> Setup {
    let list: Vec<String> = (0..nics)
        .map(|nic| format!("127.0.0.{}@{}", nic + 2, RATE.0))
        .collect();
    Setup {
        plugin: plugin.to_path_buf(),
        abi: None,
        hosts: 2,
        channels: nics,
        pattern: Pattern::Allreduce,
        nics: Vec::new(),
        check: true,
        offset: 0,
        window: 64 << 20,
        timeout: Duration::from_secs(10),
        environment: vec![
            ("R2CCL_FABRIC".into(), "soft".into()),
            ("R2CCL_SOFT_NICS".into(), list.join(",")),
        ],
        kill: None,
    }
}

/// Runs all-reduces for about `time` with a live view.
fn part(args: &DemoArgs, setup: &Setup, time: Duration) -> Result<Part, String> {
    let explain = |failure: crate::bench::Failure| {
        format!(
            "the demonstration {failure}\nIt needs the loopback addresses 127.0.0.2 to 127.0.0.5 \
             and a few TCP ports; NCCL_DEBUG=INFO shows the plugin's own words"
        )
    };
    let mut world = World::start(setup).map_err(explain)?;
    world.connect().map_err(explain)?;
    let warm_up = calibrate_for(&mut world, VECTOR, time).map_err(explain)?;
    let go = Go {
        size: VECTOR,
        count: warm_up.count,
    };
    let names = world
        .loaded
        .devices
        .iter()
        .map(|device| device.name.clone())
        .collect();
    let mut view = View::new(args.json, names);
    let measured = world.run(&go, |host, channels| {
        if host == 0 {
            view.update(channels);
        }
    });
    let measured = measured.map_err(explain)?;
    view.finish();
    world.close().map_err(explain)?;
    world.exit().map_err(explain)?;
    let mut row = Row::new(setup.pattern, &go, &measured);
    row.faults.add(&warm_up.faults);
    Ok(Part {
        row,
        per_nic: view.average(),
    })
}

/// Gb/s into one of the two hosts.
fn gigabits(row: &Row) -> f64 {
    row.bytes as f64 / 2.0 * 8.0 / row.nanoseconds.max(1) as f64
}

fn verdict(row: &Row) -> String {
    match row.faults.total() {
        0 => "all right".to_string(),
        wrong => format!("{wrong} BYTES WERE WRONG"),
    }
}

fn print_json(plugin: &std::path::Path, all: &Part, one: &Part, wrong: u64) {
    let result = json!({
        "plugin": plugin,
        "nics": NICS,
        "gbit_per_s_per_nic": all.per_nic,
        "gbit_per_s": gigabits(&all.row),
        "gbit_per_s_one_nic": gigabits(&one.row),
        "all_reduces": all.row.count + one.row.count,
        "wrong": wrong,
    });
    println!("{result:#}");
}

/// The live view: a bar per NIC on a terminal, a line a second elsewhere.
struct View {
    bars: Vec<ProgressBar>,
    names: Vec<String>,
    quiet: bool,
    started: Instant,
    seen: Instant,
    printed: Instant,
    before: Vec<u64>,
    first: Option<(Instant, Vec<u64>)>,
}

impl View {
    fn new(quiet: bool, names: Vec<String>) -> Self {
        let mut bars = Vec::new();
        if !quiet && std::io::stderr().is_terminal() {
            let target = ProgressDrawTarget::stderr();
            let many = MultiProgress::with_draw_target(target);
            for name in &names {
                let bar = many.add(ProgressBar::new(1000));
                let style = ProgressStyle::with_template("  {prefix:8} {bar:40} {msg}");
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                bar.set_prefix(name.clone());
                bars.push(bar);
            }
        }
        let now = Instant::now();
        let before = vec![0; names.len()];
        let (seen, printed) = (now, now);
        View {
            bars,
            names,
            quiet,
            started: now,
            seen,
            printed,
            before,
            first: None,
        }
    }

    /// Takes the bytes that each NIC has received so far.
    fn update(&mut self, channels: &[u64]) {
        let now = Instant::now();
        self.first.get_or_insert_with(|| (now, channels.to_vec()));
        let on_terminal = !self.bars.is_empty();
        let since = if on_terminal { self.seen } else { self.printed };
        let wait = Duration::from_millis(if on_terminal { 200 } else { 1000 });
        if self.quiet || now - since < wait {
            return;
        }
        let rates = rates(&self.before, channels, now - since);
        (self.seen, self.printed) = (now, now);
        self.before = channels.to_vec();
        if on_terminal {
            for (bar, rate) in self.bars.iter().zip(&rates) {
                // The full bar is a quarter more than the limit, so that one sees it reached.
                bar.set_position((rate / (RATE.1 * 1.25) * 1000.0) as u64);
                bar.set_message(format!("{rate:.2} Gb/s"));
            }
            return;
        }
        let texts: Vec<String> = self
            .names
            .iter()
            .zip(&rates)
            .map(|(name, rate)| format!("{name} {rate:.2}"))
            .collect();
        let second = (now - self.started).as_secs_f64();
        println!("  second {second:>4.1}:  {}  Gb/s", texts.join("  "));
    }

    fn finish(&self) {
        for bar in &self.bars {
            bar.abandon();
        }
    }

    /// Gb/s of each NIC over the whole part.
    fn average(&self) -> Vec<f64> {
        match &self.first {
            Some((at, bytes)) if self.seen > *at => rates(bytes, &self.before, self.seen - *at),
            _ => Vec::new(),
        }
    }
}

/// Gb/s from two readings.
fn rates(before: &[u64], after: &[u64], time: Duration) -> Vec<f64> {
    let nanoseconds = time.as_nanos().max(1) as f64;
    let pairs = before.iter().zip(after);
    pairs
        .map(|(before, after)| after.saturating_sub(*before) as f64 * 8.0 / nanoseconds)
        .collect()
}
