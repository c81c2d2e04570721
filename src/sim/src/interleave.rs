//! Schedules: all orders of a few events, with two faults among them, in the small world.
//!
//! A world happens from its beginning for each schedule; equal schedules are equal worlds. The
//! search goes depth first through the choices of one [`Window`], and each schedule differs from
//! all others: its window begins with a choice that is not the usual one.

use core::fmt;
use core::str::FromStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bug::Bug;
use crate::fault::{KINDS, Kind};
use crate::small::{SMALL_KINDS, VICTIMS};
use crate::sweep::Failure;
use crate::window::{Opens, Step, Window};
use crate::world::{Options, World};

/// No event has this number.
const NEVER: u64 = u64::MAX;
/// Events after the beginning of a recovery before which a window may open, at the most.
const RECOVERY: u64 = 100;
/// Events between the instants of a first fault that is not in the window.
const EARLY_STEP: usize = 6;

/// A fault of a schedule, and the number from which the world chooses its victim.
pub type Blow = (Kind, u64);

/// One world: what strikes, and in which order things happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Seed of the world.
    pub seed: u64,
    /// When the window opens.
    pub opens: Opens,
    /// Events that the window is long.
    pub depth: u32,
    /// The first fault strikes before the event of this number, not in the window.
    pub early: Option<u64>,
    /// The faults in their order.
    pub blows: [Blow; 2],
    /// What is chosen in the window; behind the last choice the first one that is new.
    pub choices: Vec<u32>,
}

/// Sums over schedules that hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Schedules.
    pub schedules: u64,
    /// Events.
    pub events: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.events += other.events;
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, two] = self.blows;
        write!(f, "{}:", self.seed)?;
        match self.opens {
            Opens::Event(number) => write!(f, "event+{number}")?,
            Opens::Recovery(later) => write!(f, "recovery+{later}")?,
        }
        write!(f, ":{}:{:?}.{}", self.depth, one.0, one.1)?;
        if let Some(early) = self.early {
            write!(f, "@{early}")?;
        }
        write!(f, ":{:?}.{}:", two.0, two.1)?;
        let choices: Vec<String> = self.choices.iter().map(u32::to_string).collect();
        f.write_str(&choices.join("."))
    }
}

impl FromStr for Schedule {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or("not a schedule as a failing search prints it")
    }
}

fn parse(text: &str) -> Option<Schedule> {
    let parts: Vec<&str> = text.split(':').collect();
    let [seed, opens, depth, one, two, choices] = parts[..] else {
        return None;
    };
    let (event, later) = opens.split_once('+')?;
    let later = later.parse().ok()?;
    let (one, early) = match one.split_once('@') {
        Some((one, early)) => (one, Some(early.parse().ok()?)),
        None => (one, None),
    };
    let choices = choices.split('.').filter(|choice| !choice.is_empty());
    Some(Schedule {
        seed: seed.parse().ok()?,
        opens: match event {
            "event" => Opens::Event(later),
            "recovery" => Opens::Recovery(later),
            _ => return None,
        },
        depth: depth.parse().ok()?,
        early,
        blows: [blow(one)?, blow(two)?],
        choices: choices
            .map(|choice| choice.parse().ok())
            .collect::<Option<_>>()?,
    })
}

fn blow(text: &str) -> Option<Blow> {
    let (name, victim) = text.split_once('.')?;
    let kind = KINDS.into_iter().find(|kind| format!("{kind:?}") == name)?;
    Some((kind, victim.parse().ok()?))
}

/// Every fault that differs from the others in the small world.
fn blows() -> impl Iterator<Item = Blow> {
    SMALL_KINDS.into_iter().flat_map(|kind| {
        let victims: &[u64] = match kind {
            // There is one control connection, and a fault of queue pairs counts those.
            Kind::ControlDown => &[0],
            Kind::OwnError => &[0, 1, 2, 3],
            _ => &VICTIMS,
        };
        victims.iter().map(move |&victim| (kind, victim))
    })
}

/// The world of a seed in its usual order, in which only a first fault strikes, or nothing.
fn usual(seed: u64, (at, one): (u64, Blow)) -> World {
    let mut world = World::new(Options {
        seed,
        small: Some([(at, one.0, one.1), (NEVER, one.0, one.1)]),
        ..Options::default()
    });
    // Events count as in worlds with a window.
    world.window = Some(Window::new(Opens::NEVER, 0, &[], 0));
    world
}

/// Events of the world of a seed until its messages are through, if nothing strikes.
fn life(seed: u64) -> u64 {
    let mut world = usual(seed, (NEVER, (Kind::LinkDown, 0)));
    while !world.connections[0].is_through() && world.step() {}
    world.handled
}

/// Events after the first recovery before which a window may open: until that one is over.
fn recovery(seed: u64, first: (u64, Blow)) -> u64 {
    let mut world = usual(seed, first);
    while world.recoveries == 0 && world.step() {}
    let began = world.handled;
    while !world.connections[0].is_back() && world.step() {}
    (world.handled - began).min(RECOVERY)
}

/// The first schedule of each search with both faults in its window.
fn sudden(seed: u64, depth: u32) -> impl Iterator<Item = Schedule> {
    (0..life(seed)).flat_map(move |event| {
        pairs().map(move |blows| Schedule {
            seed,
            opens: Opens::Event(event),
            depth,
            early: None,
            blows,
            choices: Vec::new(),
        })
    })
}

/// The first schedule of each search with the second fault in its window, which opens when the
/// first has ended a generation.
fn second(seed: u64, depth: u32) -> impl Iterator<Item = Schedule> {
    let early = (0..life(seed)).step_by(EARLY_STEP);
    let firsts = early.flat_map(|early| blows().map(move |one| (early, one)));
    firsts.flat_map(move |(early, one)| {
        (0..recovery(seed, (early, one))).flat_map(move |later| {
            blows().map(move |two| Schedule {
                seed,
                opens: Opens::Recovery(later),
                depth,
                early: Some(early),
                blows: [one, two],
                choices: Vec::new(),
            })
        })
    })
}

/// The first schedules of all searches whose windows are `depth` events long: those with both
/// faults in the window, wherever it opens in the life of a world, and those with the first fault
/// before it, wherever it opens in the recovery from that.
pub fn searches(seed: u64, depth: u32) -> impl Iterator<Item = Schedule> {
    sudden(seed, depth).chain(second(seed, depth))
}

fn pairs() -> impl Iterator<Item = [Blow; 2]> {
    blows().flat_map(|one| blows().map(move |two| [one, two]))
}

/// How a schedule ended, the choices that it took, and how many events there were.
struct Played {
    result: Result<(), Failure>,
    steps: Vec<Step>,
    handled: u64,
}

impl Schedule {
    /// Lets its world happen.
    pub fn play(&self, bug: Option<Bug>, trace: Option<fn(&str)>) -> Result<(), Failure> {
        self.run(bug, trace).result
    }

    fn run(&self, bug: Option<Bug>, trace: Option<fn(&str)>) -> Played {
        let [one, two] = self.blows;
        let script = [
            (self.early.unwrap_or(NEVER), one.0, one.1),
            (NEVER, two.0, two.1),
        ];
        let options = Options {
            seed: self.seed,
            trace,
            bug,
            small: Some(script),
        };
        Bug::plant(bug);
        let mut world = World::new(options);
        let struck = usize::from(self.early.is_some());
        world.window = Some(Window::new(self.opens, self.depth, &self.choices, struck));
        let outcome = catch_unwind(AssertUnwindSafe(|| world.run_on()));
        let result = match outcome {
            Ok(()) => world
                .violation
                .take()
                .map_or(Ok(()), |one| Err(Failure::Rule(one))),
            Err(cause) => Err(Failure::from_panic(&*cause)),
        };
        Played {
            result,
            steps: world
                .window
                .take()
                .map_or(Vec::new(), |window| window.steps),
            handled: world.handled,
        }
    }

    /// Lets the worlds of all choices happen, this one first; `self` becomes the one that fails.
    pub fn search(&mut self, bug: Option<Bug>) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        loop {
            let played = self.run(bug, None);
            if let Err(failure) = played.result {
                self.choices = played.steps.iter().map(|step| step.chosen).collect();
                return Err(failure);
            }
            tally.schedules += 1;
            tally.events += played.handled;
            let Some(choices) = next(&played.steps) else {
                return Ok(tally);
            };
            self.choices = choices;
        }
    }
}

/// The choices that come after those of `steps`, depth first.
fn next(steps: &[Step]) -> Option<Vec<u32>> {
    let other = |step: &Step| {
        let later = u64::from(step.allowed) >> (step.chosen + 1) << (step.chosen + 1);
        (later != 0).then(|| later.trailing_zeros())
    };
    let last = steps.iter().rposition(|step| other(step).is_some())?;
    let kept = steps[..last].iter().map(|step| step.chosen);
    Some(kept.chain(other(&steps[last])).collect())
}
