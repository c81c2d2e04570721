//! Named scenarios: worlds in health, with the faults that somebody thought of instead of drawn
//! ones, and with what must come of them. All times are those of the world.

mod congestion;
mod field_faults;
mod field_ports;
mod lost;
mod outage;
mod stage;
mod stuck;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::check::Violation;
use crate::sweep::Failure;

/// How a scenario is played.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Seed of what is left to chance.
    pub seed: u64,
    /// Hears, line by line, what happens.
    pub trace: Option<fn(&str)>,
}

/// What a scenario has found, line by line, for people.
pub type Figures = Vec<String>;

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// By which people call it.
    pub name: &'static str,
    /// What happens and what must come of it.
    pub about: &'static str,
    play: fn(Settings) -> Result<Figures, Violation>,
}

const LISTS: [&[Scenario]; 6] = [
    &lost::SCENARIOS,
    &stuck::SCENARIOS,
    &outage::SCENARIOS,
    &congestion::SCENARIOS,
    &field_ports::SCENARIOS,
    &field_faults::SCENARIOS,
];

/// All scenarios.
pub fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    LISTS.into_iter().flatten()
}

impl Scenario {
    /// The scenario of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        scenarios().find(|one| one.name == name)
    }

    /// Plays it; a panic is a failure, too.
    pub fn play(&self, settings: Settings) -> Result<Figures, Failure> {
        match catch_unwind(AssertUnwindSafe(|| (self.play)(settings))) {
            Ok(result) => result.map_err(Failure::Rule),
            Err(cause) => Err(Failure::from_panic(&*cause)),
        }
    }
}
