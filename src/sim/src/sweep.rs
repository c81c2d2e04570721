//! Many worlds, one after the other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bug::Bug;
use crate::check::Class;
use crate::coverage::Coverage;
use crate::eager::EagerCounts;
use crate::world::{Options, Outcome, World};

/// How a run of worlds ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The code panicked.
    Crash(String),
    /// A rule was broken.
    Rule(crate::check::Violation),
}

impl Failure {
    /// What a caught panic said.
    pub(crate) fn from_panic(cause: &(dyn Any + Send)) -> Self {
        let text = cause
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_string()));
        Self::Crash(text.unwrap_or_else(|| "a panic".into()))
    }

    /// Exit code of a process that found it: 2 crash, 3 safety, 4 liveness.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Crash(_) => 2,
            Self::Rule(violation) => match violation.class {
                Class::Safety => 3,
                Class::Liveness => 4,
            },
        }
    }
}

/// Lets one world happen; a panic in it is a failure, too.
///
/// Worlds that happen at the same time in one process must have the same deliberate bug, or bugs
/// outside the core only.
pub fn run_one(options: Options) -> Result<Outcome, Failure> {
    Bug::plant(options.bug);
    let world = catch_unwind(AssertUnwindSafe(|| World::new(options).run()));
    match world {
        Ok(outcome) => match outcome.violation {
            Some(violation) => Err(Failure::Rule(violation)),
            None => Ok(outcome),
        },
        Err(cause) => Err(Failure::from_panic(&*cause)),
    }
}

/// Sums over worlds without a failure.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Worlds.
    pub worlds: u64,
    /// Events.
    pub events: u64,
    /// Generations that were given up.
    pub recoveries: u64,
    /// Faults that struck.
    pub struck: u64,
    /// Messages received.
    pub messages: u64,
    /// What became of messages that went ahead of their credit.
    pub eager: EagerCounts,
    /// Which faults met which states.
    pub coverage: Coverage,
}

impl Totals {
    /// Adds a world.
    pub fn add(&mut self, outcome: &Outcome) {
        self.worlds += 1;
        self.events += outcome.events;
        self.recoveries += u64::from(outcome.recoveries);
        self.struck += u64::from(outcome.struck);
        self.messages += outcome.messages;
        self.eager.add(&outcome.eager);
        self.coverage.add(&outcome.coverage);
    }
}
