//! What a run prints: a progress bar on a terminal, a table or JSON, and a verdict.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::args::BenchArgs;
use super::message::{Device, Pattern};
use super::outcome::Failure;
use super::session::{Flatness, Row};
use super::world::{Loaded, Setup};
use crate::units;

/// A progress bar on standard error, shown only if that is a terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar of so many steps.
    pub fn new(quiet: bool, steps: usize) -> Self {
        let target = match quiet || !std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr(),
        };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Bar(bar)
    }

    /// Says which size is running.
    pub fn at(&self, size: u64) {
        self.0.set_message(units::bytes(size));
    }

    /// Says how much of it has moved.
    pub fn moved(&self, bytes: u64) {
        self.0
            .set_message(format!("{} received", units::bytes(bytes >> 20 << 20)));
    }

    /// One step further.
    pub fn done(&self) {
        self.0.inc(1);
    }

    /// Prints a line of the table, above the bar if there is one.
    pub fn line(&self, line: &str) {
        self.0.suspend(|| println!("{line}"));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The result of a run, printed as it grows or at its end.
pub struct Report {
    json: bool,
    setup: Setup,
    loaded: Option<Loaded>,
    rows: Vec<Row>,
    flatness: Vec<Flatness>,
    failure: Option<Failure>,
}

impl Report {
    /// An empty report.
    pub fn new(args: &BenchArgs, setup: &Setup) -> Self {
        Report {
            json: args.json,
            setup: setup.clone(),
            loaded: None,
            rows: Vec::new(),
            flatness: Vec::new(),
            failure: None,
        }
    }

    /// The plugin is loaded: prints the head of the table.
    pub fn loaded(&mut self, loaded: &Loaded) {
        self.loaded = Some(loaded.clone());
        if self.json {
            return;
        }
        let Setup {
            hosts,
            channels,
            pattern,
            check,
            ..
        } = &self.setup;
        let name = &loaded.network;
        println!(
            "# {} ({name}, v{})",
            self.setup.plugin.display(),
            loaded.abi
        );
        println!("# devices: {}", list(&loaded.devices));
        let checked = if *check {
            "every byte checked"
        } else {
            "sizes checked, bytes not"
        };
        let pattern = format!("{pattern:?}").to_lowercase();
        println!("# {pattern}, hosts: {hosts}, channels: {channels}, {checked}");
        println!("{}", header(self.setup.pattern));
    }

    /// A size has ended.
    pub fn row(&mut self, row: Row, bar: &Bar) {
        if !self.json {
            bar.line(&line(self.setup.pattern, &row));
        }
        self.rows.push(row);
    }

    /// All cycles of the pattern abort have ended.
    pub fn flatness(&mut self, flatness: Flatness) {
        if !self.json {
            let Flatness {
                cycles,
                errors_seen,
                early,
                late,
                flat,
            } = &flatness;
            println!(
                "# {cycles} cycles; {errors_seen} times a host saw the other's end as an error"
            );
            for (host, (early, late)) in early.iter().zip(late).enumerate() {
                println!(
                    "# h{host}: descriptors {} then {}, threads {} then {}, memory {} then {} KiB",
                    early.descriptors,
                    late.descriptors,
                    early.threads,
                    late.threads,
                    early.resident >> 10,
                    late.resident >> 10
                );
            }
            println!(
                "# {}",
                if *flat {
                    "nothing grows"
                } else {
                    "GROWS: something is leaked"
                }
            );
        }
        self.flatness.push(flatness);
    }

    /// The run has failed.
    pub fn failed(&mut self, failure: Failure) {
        if !self.json {
            eprintln!("r2ccl bench: {failure}");
        }
        self.failure = Some(failure);
    }

    /// Whether everything that arrived was right.
    pub fn is_good(&self) -> bool {
        self.failure.is_none()
            && self.rows.iter().all(|row| row.faults.total() == 0)
            && self.flatness.iter().all(|flatness| flatness.flat)
    }

    /// Prints what is left to print.
    pub fn finish(&self, json: bool) {
        if json {
            println!("{:#}", self.as_json());
            return;
        }
        let wrong: u64 = self.rows.iter().map(|row| row.faults.total()).sum();
        if wrong > 0 {
            for row in self.rows.iter().filter(|row| row.faults.total() > 0) {
                println!("# WRONG at {}: {:?}", units::bytes(row.size), row.faults);
            }
        } else if self.failure.is_none() && self.setup.check {
            let messages: u64 = self.rows.iter().map(|row| row.messages).sum();
            println!("# all {messages} messages arrived as they were sent");
        }
    }

    fn as_json(&self) -> serde_json::Value {
        let failure = self.failure.as_ref();
        json!({
            "plugin": self.setup.plugin,
            "network": self.loaded.as_ref().map(|loaded| &loaded.network),
            "abi": self.loaded.as_ref().map(|loaded| loaded.abi),
            "devices": self.loaded.as_ref().map(|loaded| &loaded.devices),
            "pattern": self.setup.pattern,
            "hosts": self.setup.hosts,
            "channels": self.setup.channels,
            "check": self.setup.check,
            "rows": self.rows,
            "cycles": self.flatness,
            "failed_step": failure.map(|failure| failure.step),
            "outcomes": failure.map(|failure| &failure.outcomes),
            "good": self.is_good(),
        })
    }
}

fn list(devices: &[Device]) -> String {
    let texts: Vec<String> = devices.iter().map(Device::to_string).collect();
    texts.join(", ")
}

fn header(pattern: Pattern) -> String {
    let what = match pattern {
        Pattern::Pingpong => "   half p50    half p99",
        _ => "   each takes",
    };
    format!(
        "{:>12} {:>9} {:>11} {:>8} {what} {:>11} {:>9}",
        "size", "count", "time", "GB/s", "longest gap", "wrong"
    )
}

fn line(pattern: Pattern, row: &Row) -> String {
    let middle = match pattern {
        Pattern::Pingpong => {
            let p50 = units::duration(row.p50_ns.unwrap_or(0));
            let p99 = units::duration(row.p99_ns.unwrap_or(0));
            format!("{p50:>11} {p99:>11}")
        }
        _ => format!(
            "{:>13}",
            units::duration(row.nanoseconds / row.count.max(1))
        ),
    };
    format!(
        "{:>12} {:>9} {:>11} {:>8.3} {middle} {:>11} {:>9}",
        units::bytes(row.size),
        row.count,
        units::duration(row.nanoseconds),
        row.gb_per_s,
        units::duration(row.gap_ns),
        row.faults.total()
    )
}
