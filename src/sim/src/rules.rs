//! What the rules ask of an end, seen at its edge after each of its calls.

use r2ccl_core::limits::SEND_DEPTH;
use r2ccl_core::{Condition, EndConfig, EndSnapshot, Health, HealthSnapshot, PathId};

use crate::check::Class;
use crate::connection::{Connection, Held, Side};
use crate::nic::{QpId, Work};
use crate::queue::{Nanos, SECOND};
use crate::times::Times;
use crate::world::{EndId, World};

/// Time in which the watchdog leaves only so many paths (PROTOCOL R61).
const EVICTION_WINDOW: Nanos = 10 * SECOND;

/// What an end had been through when it was looked at last.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    paths: Vec<Option<HealthSnapshot>>,
    evictions: u64,
    closed: u64,
    /// Paths that came back before their hold-down was over.
    quick: u64,
    /// When it was called last without a path that stayed in service.
    lonely: Option<Nanos>,
    /// When paths failed and came back.
    pub times: Times,
    /// A device has not taken what was posted in this call.
    pub is_refused: bool,
}

impl Seen {
    /// Compares with what is now; an error names the rule that was broken in between.
    fn look(
        &mut self,
        (side, now): (Side, Nanos),
        end: &EndSnapshot,
        (config, is_prompt): (&EndConfig, bool),
    ) -> Result<(), &'static str> {
        let evictions_max = config.evictions_max;
        let statistics = end.statistics;
        let mut result = Ok(());
        if side == Side::Sender {
            // Those that were in service may all have ended in this very call.
            let serves = |path: &Option<HealthSnapshot>| {
                path.as_ref()
                    .is_some_and(|path| path.health.is_in_service())
            };
            let mut pairs = self.paths.iter().zip(&end.paths);
            if !pairs.any(|(old, new)| serves(old) && serves(new)) {
                self.lonely = Some(now);
            }
            // Where no path is in service the wait for one stays short.
            let lonely = self.lonely;
            let longest = |old: &HealthSnapshot| {
                let is_short = lonely.is_some_and(|at| at >= old.since.nanoseconds());
                if is_short {
                    config.hold_down_ns
                } else {
                    Nanos::MAX
                }
            };
            let pairs = self.paths.iter().zip(&end.paths).enumerate();
            // One that was never in service need not wait.
            let pairs = pairs.filter(|(path, _)| self.times.has_served(*path));
            let pairs = pairs.filter_map(|(_, (old, new))| Some((old.as_ref()?, new.as_ref()?)));
            let quick = pairs
                .filter(|(old, new)| is_quick(old, new, longest(old)))
                .count();
            self.quick += quick as u64;
            let pairs = self.paths.iter().zip(&end.paths).enumerate();
            for (path, (old, new)) in pairs {
                if let Some(pair) = old.as_ref().zip(new.as_ref()) {
                    let look = self.times.look((path, now), pair, config, is_prompt);
                    result = result.and(look);
                }
            }
            result = result.and(self.times.ramp(&end.paths, now, config));
            self.paths = end.paths.to_vec();
        }
        let left = statistics.evictions - self.evictions;
        let closed = statistics.closed - self.closed;
        (self.evictions, self.closed) = (statistics.evictions, statistics.closed);
        let is_anywhere = end
            .paths
            .iter()
            .flatten()
            .any(|path| path.health.is_in_service());
        // Only where a queue pair was at fault is one probe enough.
        if self.quick > statistics.queue_pair_faults {
            return Err("a path came back before its hold-down was over");
        }
        // An error in the same call may have ended the path that was better.
        if left > 0 && left == closed && !is_anywhere {
            return Err("a path was left with nowhere better to go");
        }
        let unspoken = statistics.evictions - statistics.hinted_evictions;
        if now < EVICTION_WINDOW && unspoken > evictions_max.into() {
            return Err("too many paths were left in ten seconds");
        }
        result
    }
}

/// Whether a path came back into service before its hold-down was over.
fn is_quick(old: &HealthSnapshot, new: &HealthSnapshot, longest: Nanos) -> bool {
    old.health == Health::Probation
        && new.health.is_in_service()
        && new.generation == old.generation
        && new.since.since(old.since) < old.hold_down_ns.min(longest)
}

impl Connection {
    /// Whether a queue pair belongs to a generation that is over at the sender.
    pub(crate) fn is_over(&self, qp: QpId) -> bool {
        let held = self.ends[Side::Sender as usize].held.iter();
        held.filter(|held| held.qp == qp).any(|held| {
            let half = self.sender.half();
            half.generation(held.path) != Some(held.generation)
                || half.condition(held.path) == Some(Condition::Retired)
        })
    }

    /// Whether an end has nothing left to post that it could post.
    fn check_posted(&self, side: Side) -> Result<(), &'static str> {
        match side {
            Side::Sender => self.check_segments(),
            Side::Receiver => self.check_words(),
        }
    }

    /// What a path could take does not wait for another one (PROTOCOL R51).
    fn check_segments(&self) -> Result<(), &'static str> {
        let sender = self.sender.half();
        let marks = sender.snapshot();
        let mut can_post = false;
        for path in (0..self.paths.len() as u8).filter_map(PathId::new) {
            let is_live = sender.condition(path) == Some(Condition::Live);
            if is_live && sender.outstanding(path) >= SEND_DEPTH {
                return Ok(());
            }
            can_post |= is_live;
        }
        if can_post && marks.posted < marks.filled {
            return Err("a segment waits although a path could take it");
        }
        Ok(())
    }

    /// Credits and counter are posted in the call in which they are due (PROTOCOL R11).
    fn check_words(&self) -> Result<(), &'static str> {
        let receiver = self.receiver.half();
        let can_post = receiver.credit_path().is_some_and(|path| {
            receiver.condition(path) == Some(Condition::Live)
                && receiver.outstanding(path) < SEND_DEPTH
        });
        if can_post && receiver.has_unsent() {
            return Err("a credit or counter waits although its path could take it");
        }
        Ok(())
    }
}

impl World {
    /// An end hears that a path may work again.
    pub(crate) fn knocked(&mut self, end: EndId, path: PathId) {
        let now = self.queue.now();
        self.state(end).seen.times.knock(path.index(), now);
    }

    /// Looks at an end after a call.
    pub(crate) fn check_rules(&mut self, end: EndId) {
        let now = self.queue.now();
        let connection = &mut self.connections[end.connection];
        let snapshot = connection.snapshot(end.side);
        let seen = &mut connection.ends[end.side as usize].seen;
        // Where the order is chosen, an end may be called late.
        let is_prompt = !self.has_pauses && self.window.is_none();
        let rules = (&connection.config, is_prompt);
        let result = seen.look((end.side, now), &snapshot, rules);
        let is_refused = core::mem::take(&mut seen.is_refused);
        let result = if is_refused {
            result
        } else {
            result.and(connection.check_posted(end.side))
        };
        if let Err(text) = result {
            self.fail(Class::Liveness, format!("{end:?}: {text}"));
        }
        self.look_at_drains(end, &snapshot);
    }

    /// An end posts on a queue pair: a new one was proved by both ends (PROTOCOL R59), and its
    /// queue has an end (PROTOCOL R14).
    pub(crate) fn post_work(&mut self, end: EndId, held: Held, work: Work) {
        self.with_nics(|nics, around| nics.post(held.qp, work, around));
        let peer = self.nics.qps[held.qp].peer;
        let other = &self.connections[end.connection].ends[end.side.other() as usize];
        let mut others = other.held.iter();
        let there = others.find(|other| Some(other.qp) == peer);
        let is_proved = held.is_proved && there.is_none_or(|other| other.is_proved);
        if held.generation.0 > 0 && !is_proved {
            let text = format!("{end:?} posts before a proof: {held:?} to {there:?}");
            self.fail(Class::Liveness, text);
        }
        if self.nics.qps[held.qp].unanswered() > SEND_DEPTH as usize {
            let text = format!("{end:?} has more than {SEND_DEPTH} work requests outstanding");
            self.fail(Class::Safety, text);
        }
    }
}
