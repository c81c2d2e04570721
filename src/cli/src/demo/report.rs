//! What the demonstration has shown, for people and for scripts.

use std::fmt;
use std::path::Path;

use r2ccl::monitor::order::Order;
use serde_json::{Value, json};

use super::story::{Act, Story};
use super::watch::Watch;
use super::{NICS, RATE, Round, VECTOR};
use crate::{stats, units};

/// Seconds after an event in which its effect shows as a pause.
const EFFECT: f64 = 0.6;
/// Seconds after an event that do not count for the throughput behind it.
const SETTLE: f64 = 0.5;

/// The time between two events.
pub struct Phase {
    /// What began it.
    pub what: String,
    /// In seconds from the beginning, without the time in which it settled.
    pub from: f64,
    pub to: f64,
    /// NICs that were alive.
    pub alive: usize,
    /// Gb/s into host 0, by NIC.
    pub rates: [f64; NICS],
}

impl Phase {
    fn total(&self) -> f64 {
        self.rates.iter().sum()
    }
}

/// An event and what it did to the job.
pub struct Effect {
    /// What happened.
    pub act: Act,
    /// When, in seconds.
    pub at: f64,
    /// The longest time between two messages around it, in milliseconds.
    pub pause_ms: f64,
}

/// All of it.
pub struct Report {
    /// Between the events.
    pub phases: Vec<Phase>,
    /// The events.
    pub effects: Vec<Effect>,
    /// The longest time between two messages in rounds without events, in milliseconds: the median.
    pub usual_ms: f64,
    back: Vec<Option<f64>>,
    all_reduces: u64,
    wrong: u64,
}

impl Report {
    /// Sums up what was seen.
    pub fn new(story: &Story, watch: &Watch, rounds: &[Round]) -> Self {
        let pause = |round: &Round| round.row.gap_ns as f64 * 1e-6;
        let touches = |round: &Round, at: f64| round.to >= at && round.from <= at + EFFECT;
        let is_calm = |round: &&Round| !watch.done.iter().any(|&at| touches(round, at));
        let usual: Vec<f64> = rounds.iter().filter(is_calm).map(pause).collect();
        let effects = story.acts.iter().zip(&watch.done).map(|(act, &at)| {
            let around = rounds.iter().filter(|round| touches(round, at));
            Effect {
                act: act.clone(),
                at,
                pause_ms: around.map(pause).fold(0.0, f64::max),
            }
        });
        let killed: Vec<usize> = story.acts.last().map_or(Vec::new(), |act| act.nics.clone());
        Report {
            phases: phases(story, watch),
            effects: effects.collect(),
            usual_ms: stats::median(&usual).map_or(0.0, |it| it.median),
            back: killed.iter().map(|&nic| watch.back[nic]).collect(),
            all_reduces: rounds.iter().map(|round| round.row.count).sum(),
            wrong: rounds.iter().map(|round| round.row.faults.total()).sum(),
        }
    }

    /// Every sum was right, and every NIC came back.
    pub fn is_good(&self) -> bool {
        self.wrong == 0 && self.back.iter().all(Option::is_some)
    }

    /// Seconds until the last NIC was back.
    fn last_back(&self) -> Option<f64> {
        let all: Option<Vec<f64>> = self.back.iter().copied().collect();
        all.map(|all| all.into_iter().fold(0.0, f64::max))
    }

    /// For scripts.
    pub fn as_json(&self, plugin: &Path, watch: &Watch) -> Value {
        let phase = |phase: &Phase| {
            json!({
                "begins_with": phase.what,
                "from_s": phase.from,
                "to_s": phase.to,
                "nics_alive": phase.alive,
                "gbit_per_s": phase.total(),
                "gbit_per_s_per_nic": phase.rates,
                "of_first_phase": phase.total() / self.phases[0].total(),
            })
        };
        let effect = |effect: &Effect| {
            json!({
                "what": effect.act.text(),
                "at_s": effect.at,
                "longest_pause_ms": effect.pause_ms,
            })
        };
        let point = |point: &super::watch::Point| json!([point.at, point.bytes]);
        json!({
            "plugin": plugin,
            "nics": NICS,
            "gbit_per_s_of_a_nic": RATE.1,
            "phases": self.phases.iter().map(phase).collect::<Vec<_>>(),
            "events": self.effects.iter().map(effect).collect::<Vec<_>>(),
            "usual_longest_pause_ms": self.usual_ms,
            "back_after_s": self.back,
            "all_reduces": self.all_reduces,
            "wrong": self.wrong,
            "good": self.is_good(),
            "received_bytes": watch.points.iter().map(point).collect::<Vec<_>>(),
        })
    }
}

/// The times between events, each without its beginning.
fn phases(story: &Story, watch: &Watch) -> Vec<Phase> {
    let last = watch.points.last().map_or(story.end, |point| point.at);
    let mut phases = Vec::new();
    let mut begin = (SETTLE, "all NICs are well".to_owned(), NICS);
    let ends = watch.done.iter().copied().chain([last]);
    for (index, to) in ends.enumerate() {
        let (from, what, alive) = begin.clone();
        phases.push(Phase {
            what,
            from,
            to,
            alive,
            rates: watch.rates(from, to),
        });
        let Some(act) = story.acts.get(index) else {
            break;
        };
        let is_kill = act.order == Order::Kill;
        // A NIC that is repaired is back after its hold-down, and its share grows for a second.
        let back = act.nics.iter().filter_map(|&nic| watch.back[nic]);
        let settled = if is_kill {
            SETTLE
        } else {
            SETTLE + 1.0 + back.fold(0.0, f64::max)
        };
        begin = (
            to + settled,
            act.text(),
            if is_kill { alive - 1 } else { NICS },
        );
    }
    phases
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let full = self.phases.first().map_or(0.0, Phase::total);
        writeln!(f)?;
        for phase in &self.phases {
            writeln!(
                f,
                "  {:<28} {:.2} Gb/s, {:>3.0} % of the beginning ({} of {NICS} NICs: {:.0} %)",
                phase.what,
                phase.total(),
                phase.total() / full.max(1e-9) * 100.0,
                phase.alive,
                phase.alive as f64 / NICS as f64 * 100.0,
            )?;
        }
        writeln!(f)?;
        for effect in self
            .effects
            .iter()
            .filter(|effect| effect.act.order == Order::Kill)
        {
            writeln!(
                f,
                "  {:<28} longest pause between two messages {:.1} ms (usual: {:.1} ms)",
                effect.act.text(),
                effect.pause_ms,
                self.usual_ms,
            )?;
        }
        match self.last_back() {
            Some(back) => writeln!(f, "  all back in service {back:.1} s after the repair")?,
            None => writeln!(f, "  NOT ALL NICs CAME BACK: please report this")?,
        }
        let verdict = match self.wrong {
            0 => "all right".to_string(),
            wrong => format!("{wrong} BYTES WERE WRONG, please report this"),
        };
        write!(
            f,
            "\n{} all-reduces of {}, every number of every result compared with the right sum: \
             {verdict}.",
            self.all_reduces,
            units::bytes(VECTOR),
        )
    }
}
