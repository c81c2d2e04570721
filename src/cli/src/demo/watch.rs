//! Looks at the boards while the hosts run, tells their NICs what the story says, and shows it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use r2ccl::monitor::order::Order;
use r2ccl::monitor::record::NicRecord;

use super::story::Story;
use super::{NICS, RATE};
use crate::board::Target;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// Longest time that a host may take to do what its NIC is told.
const TELL_LIMIT: Duration = Duration::from_secs(5);
/// Seconds between two lines.
const LINE: f64 = 0.5;
/// Width of the bar of a NIC at its full rate.
const BAR: f64 = 8.0;
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// What each NIC had received at a time.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Seconds from the beginning.
    pub at: f64,
    /// Bytes by NIC.
    pub bytes: [u64; NICS],
}

/// What was seen of host 0.
pub struct Watch {
    start: Instant,
    targets: Vec<Target>,
    is_quiet: bool,
    /// When numbers of bytes changed.
    pub points: Vec<Point>,
    /// When each act of the story happened, in seconds.
    pub done: Vec<f64>,
    /// Seconds from a NIC's repair until it was in service.
    pub back: [Option<f64>; NICS],
    repaired: [Option<f64>; NICS],
    is_dead: [bool; NICS],
    /// When the last line was printed; 0 before the first.
    printed: f64,
}

impl Watch {
    /// Finds the NICs of host 0.
    pub fn new(start: Instant, boards: &Path, is_quiet: bool) -> Result<Self, String> {
        let named = |nic| Target::find_in(boards, &format!("h0/soft{nic}"));
        let targets = (0..NICS).map(named).collect::<Result<_, _>>()?;
        Ok(Watch {
            start,
            targets,
            is_quiet,
            points: Vec::new(),
            done: Vec::new(),
            back: [None; NICS],
            repaired: [None; NICS],
            is_dead: [false; NICS],
            printed: 0.0,
        })
    }

    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Looks until the story or the run is over.
    pub fn follow(&mut self, story: &Story, is_over: &AtomicBool) -> Result<(), String> {
        while self.now() < story.end && !is_over.load(Ordering::Relaxed) {
            self.look();
            let act = story.acts.get(self.done.len());
            if let Some(act) = act.filter(|act| act.at <= self.now()) {
                for &nic in &act.nics {
                    self.tell(nic, act.order)?;
                }
                self.done.push(self.now());
                self.line(&act.text());
            } else if self.now() >= self.printed + LINE {
                self.line("");
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn tell(&mut self, nic: usize, order: Order) -> Result<(), String> {
        let target = &self.targets[nic];
        let answers = target.tell(Instant::now() + TELL_LIMIT, |command, serial| {
            (command.order, command.order_serial) = (order, serial);
        })?;
        if !answers.all_done() {
            return Err(format!("{} does not do as it is told", target.name()));
        }
        self.is_dead[nic] = order == Order::Kill;
        if !self.is_dead[nic] {
            self.repaired[nic] = Some(self.now());
        }
        Ok(())
    }

    fn look(&mut self) {
        let at = self.now();
        let records = self.targets.iter().map(|target| target.users().pop());
        let records: Vec<Option<NicRecord>> =
            records.map(|user| user.map(|(_, nic)| nic)).collect();
        let bytes: [u64; NICS] = std::array::from_fn(|nic| {
            records[nic]
                .as_ref()
                .map_or(0, |record| record.bytes_received)
        });
        let is_news = self.points.last().is_none_or(|last| last.bytes != bytes);
        if is_news && records.iter().all(Option::is_some) {
            self.points.push(Point { at, bytes });
        }
        for (nic, record) in records.iter().enumerate() {
            let is_back = record.as_ref().is_some_and(|nic| nic.paths_failed == 0);
            if let (Some(since), true) = (self.repaired[nic], is_back) {
                self.back[nic].get_or_insert(at - since);
            }
        }
    }

    /// Gb/s of each NIC between the points nearest to two times.
    pub fn rates(&self, from: f64, to: f64) -> [f64; NICS] {
        let near = |time: f64| {
            let place = self.points.partition_point(|point| point.at <= time);
            self.points.get(place.saturating_sub(1))
        };
        let (Some(first), Some(last)) = (near(from), near(to)) else {
            return [0.0; NICS];
        };
        let seconds = (last.at - first.at).max(1e-3);
        std::array::from_fn(|nic| {
            last.bytes[nic].saturating_sub(first.bytes[nic]) as f64 * 8e-9 / seconds
        })
    }

    /// One line of the plot, which grows downwards.
    fn line(&mut self, note: &str) {
        let (from, now) = (self.printed, self.now());
        let rates = self.rates(from, now);
        if !self.is_quiet {
            if from == 0.0 {
                let heads: String = (0..NICS).map(|nic| format!("  soft{nic:<11}")).collect();
                println!("  seconds{heads}  all");
            }
            let cells: String = (0..NICS)
                .map(|nic| match (self.is_dead[nic], rates[nic] < 0.005) {
                    (true, true) => format!("  {:<13}", "✗ dead"),
                    _ => format!("  {:<8} {:.2}", bar(rates[nic]), rates[nic]),
                })
                .collect();
            let total: f64 = rates.iter().sum();
            let note = if note.is_empty() {
                String::new()
            } else {
                format!("   ← {note}")
            };
            println!("  {now:>7.1}{cells}  {total:.2}{note}");
        }
        self.printed = now;
    }
}

/// A bar for a rate in Gb/s.
fn bar(rate: f64) -> String {
    let eighths = (rate / RATE.1 * BAR * 8.0).round().clamp(0.0, BAR * 8.0) as usize;
    let mut text = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        text.push(EIGHTHS[eighths % 8]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn bars_are_as_long_as_rates_are_high() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(0.1), "████");
        assert_eq!(bar(0.1 + 0.2 / 64.0), "████▏");
        assert_eq!(bar(0.3), "████████");
    }
}
