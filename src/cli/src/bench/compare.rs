//! `--compare A --with B`: both plugins are loaded and connected, measurements alternate between
//! them, and the median of the paired ratios is judged together with its interval. A second set of
//! hosts with plugin A is measured in the same turn: its ratio to the first must include 1, or the
//! machine was too restless for any verdict.

use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use super::args::BenchArgs;
use super::message::{Go, Pattern};
use super::outcome::Failure;
use super::report::Bar;
use super::session::{Row, calibrate};
use super::world::{Setup, World};
use crate::stats::{self, Median};
use crate::{locate, units};

/// Orders of the three runs of a turn, used one after the other, so that none is always first.
const ORDERS: [[usize; 3]; 6] = [
    [0, 1, 2],
    [2, 1, 0],
    [1, 2, 0],
    [0, 2, 1],
    [2, 0, 1],
    [1, 0, 2],
];

/// The result at one size.
#[derive(Clone, Debug, Serialize)]
struct Verdict {
    size: u64,
    count: u64,
    /// Median GB/s of A and B.
    gb_per_s: [f64; 2],
    /// Median half round trip of A and B, for a ping-pong.
    p50_ns: Option<[f64; 2]>,
    /// A to B, above 1 when A is better.
    ratio: Median,
    /// A's second set of hosts to the first.
    control: Median,
    /// Wrong bytes and sizes of A and B.
    wrong: [u64; 2],
    /// Every pair, for those who want to count again.
    ratios: Vec<f64>,
}

impl Verdict {
    fn control_holds(&self) -> bool {
        self.control.low <= 1.0 && self.control.high >= 1.0
    }

    fn word(&self, bar: Option<f64>) -> &'static str {
        match bar {
            _ if self.wrong[0] > 0 || self.wrong[1] > 0 => "WRONG DATA",
            _ if !self.control_holds() => "no verdict: the control differs",
            Some(bar) if self.ratio.low > bar => "reached",
            Some(_) => "NOT REACHED",
            None => "",
        }
    }

    fn is_good(&self, bar: Option<f64>) -> bool {
        matches!(self.word(bar), "" | "reached")
    }
}

/// Runs the comparison.
pub fn run(args: &BenchArgs) -> Result<ExitCode, String> {
    if args.pattern == Pattern::Abort {
        return Err("the pattern abort measures nothing that could be compared".into());
    }
    let (Some(first), Some(second)) = (&args.compare, &args.with) else {
        return Err("--compare and --with belong together".into());
    };
    let a = args.setup(&locate::absolute(first)?, &args.environment)?;
    let mut other = args.environment.clone();
    other.extend(args.env_with.iter().cloned());
    let mut b = args.setup(&locate::absolute(second)?, &other)?;
    b.abi = args.abi_with;
    let verdicts = match measure(args, &a, &b) {
        Ok(verdicts) => verdicts,
        Err(failure) => {
            eprintln!("r2ccl bench: {failure}");
            return Ok(ExitCode::FAILURE);
        }
    };
    print(args, &a, &b, &verdicts);
    let good = verdicts.iter().all(|verdict| verdict.is_good(args.bar));
    Ok(crate::exit_code(good))
}

fn measure(args: &BenchArgs, a: &Setup, b: &Setup) -> Result<Vec<Verdict>, Failure> {
    let sizes = args.sizes().unwrap_or_default();
    let mut worlds = [World::start(a)?, World::start(b)?, World::start(a)?];
    for world in &mut worlds {
        world.connect()?;
    }
    let bar = Bar::new(args.json, sizes.len() * usize::from(args.pairs));
    let mut verdicts = Vec::new();
    for size in sizes {
        bar.at(size);
        verdicts.push(one_size(args, &mut worlds, size, &bar)?);
    }
    for mut world in worlds {
        world.close()?;
        world.exit()?;
    }
    Ok(verdicts)
}

fn one_size(
    args: &BenchArgs,
    worlds: &mut [World; 3],
    size: u64,
    bar: &Bar,
) -> Result<Verdict, Failure> {
    let mut count = u64::MAX;
    let mut wrong = [0, 0];
    for (which, world) in worlds.iter_mut().enumerate() {
        let warm_up = calibrate(world, size, args.effort())?;
        count = count.min(warm_up.count);
        wrong[which % 2] += warm_up.faults.total();
    }
    let go = Go { size, count };
    let mut rows: [Vec<Row>; 3] = Default::default();
    for pair in 0..usize::from(args.pairs) {
        for which in ORDERS[pair % ORDERS.len()] {
            let measured = worlds[which].run(&go, |_, _| {})?;
            rows[which].push(Row::new(args.pattern, &go, &measured));
        }
        bar.done();
    }
    let mut verdict = judge(&go, &rows);
    verdict.wrong[0] += wrong[0];
    verdict.wrong[1] += wrong[1];
    Ok(verdict)
}

fn judge(go: &Go, rows: &[Vec<Row>; 3]) -> Verdict {
    let ratios = |above: &[Row], below: &[Row]| -> Vec<f64> {
        above
            .iter()
            .zip(below)
            .map(|(a, b)| a.merit() / b.merit())
            .collect()
    };
    let middle = |values: Vec<f64>| stats::median(&values).map_or(0.0, |median| median.median);
    let rate = |rows: &[Row]| middle(rows.iter().map(|row| row.gb_per_s).collect());
    let half = |rows: &[Row]| middle(rows.iter().filter_map(|r| Some(r.p50_ns? as f64)).collect());
    let wrong = |rows: &[Row]| rows.iter().map(|row| row.faults.total()).sum::<u64>();
    let nothing = Median {
        median: 0.0,
        low: 0.0,
        high: 0.0,
    };
    let against = ratios(&rows[0], &rows[1]);
    let latency = rows[0].iter().any(|row| row.p50_ns.is_some());
    Verdict {
        size: go.size,
        count: go.count,
        gb_per_s: [rate(&rows[0]), rate(&rows[1])],
        p50_ns: latency.then(|| [half(&rows[0]), half(&rows[1])]),
        ratio: stats::median(&against).unwrap_or(nothing),
        control: stats::median(&ratios(&rows[2], &rows[0])).unwrap_or(nothing),
        wrong: [wrong(&rows[0]) + wrong(&rows[2]), wrong(&rows[1])],
        ratios: against,
    }
}

fn print(args: &BenchArgs, a: &Setup, b: &Setup, verdicts: &[Verdict]) {
    if args.json {
        let words: Vec<&str> = verdicts
            .iter()
            .map(|verdict| verdict.word(args.bar))
            .collect();
        let result = json!({
            "a": a.plugin, "b": b.plugin, "pattern": args.pattern, "hosts": args.hosts,
            "channels": args.channels, "pairs": args.pairs, "bar": args.bar,
            "sizes": verdicts, "verdicts": words,
            "good": verdicts.iter().all(|verdict| verdict.is_good(args.bar)),
        });
        println!("{result:#}");
        return;
    }
    println!("# A = {}\n# B = {}", a.plugin.display(), b.plugin.display());
    println!(
        "# {} pairs in turn; a ratio above 1 means that A is better",
        args.pairs
    );
    println!("# [..] holds the median with 95 %; the control is A against A and must hold 1.00");
    println!(
        "{:>12} {:>11} {:>11}  {:<24} {:<24} verdict",
        "size", "A", "B", "ratio A to B", "control"
    );
    for verdict in verdicts {
        let [first, second] = match verdict.p50_ns {
            Some(halves) => halves.map(|half| units::duration(half as u64)),
            None => verdict.gb_per_s.map(|rate| format!("{rate:.3} GB/s")),
        };
        println!(
            "{:>12} {first:>11} {second:>11}  {:<24} {:<24} {}",
            units::bytes(verdict.size),
            interval(&verdict.ratio),
            interval(&verdict.control),
            verdict.word(args.bar)
        );
    }
}

fn interval(median: &Median) -> String {
    format!(
        "{:.3} [{:.3}, {:.3}]",
        median.median, median.low, median.high
    )
}
