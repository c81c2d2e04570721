//! One end of a connection over many paths: it notices that a path is bad, ends its generation
//! together with the other end, and brings the path back.
//!
//! An [`End`] holds a [`crate::Sender`] or a [`crate::Receiver`] and drives it where generations
//! begin and end; data still goes directly through [`End::half_mut`]. Everything else is told by
//! `handle_*` and asked for by [`End::poll_action`] and [`End::next_timeout`]. Nothing waits for
//! anything global: each (path, generation) is ended and each path re-created on its own, so that
//! a further fault at any moment is just another one (PROTOCOL R55).
//!
//! * `recovery.rs`: fence, answer, settle;
//! * `rebuild.rs`: back-off, attempts, hold-down;
//! * `watchdog.rs`: stalls, probes and what they prove;
//! * `routes.rs`: which path takes what;
//! * `poll.rs`: what is due.

mod half;
mod path;
mod poll;
mod rebuild;
mod recovery;
mod routes;
#[cfg(test)]
mod tests;
mod values;
mod watchdog;

use crate::error::ProtocolError;
use crate::health::{Effect, Event, Health};
use crate::ids::{Generation, PathId, WorkId};
use crate::limits::{PATHS_MAX, SEND_DEPTH};
use crate::paths::Condition;
use crate::planted::{Bug, planted};
use crate::receiver::Receiver;
use crate::route::Route;
use crate::sender::Sender;
use crate::time::{Clock, Time};
use crate::wire::path_frame::PathFrame;
pub use half::{Half, Work};
use path::PathState;
pub use values::{
    Action, EndConfig, EndSnapshot, EndStatistics, Evidence, Failure, HealthSnapshot, ProbeKind,
    Routing,
};

/// The sending end.
pub type SendEnd = End<Sender>;
/// The receiving end.
pub type ReceiveEnd = End<Receiver>;

/// One end of a connection over many paths.
///
/// Drive it like this: after every input, and whenever [`End::next_timeout`] has passed
/// ([`End::handle_timeout`]), take [`End::poll_action`] until there is none. Then let the half
/// post what it has.
#[derive(Debug)]
pub struct End<H> {
    config: EndConfig,
    half: H,
    clock: Clock,
    random: u64,
    paths: [Option<PathState>; PATHS_MAX],
    /// Paths that may be there: the others are not looked at, which is much memory to touch.
    paths_len: usize,
    route: Option<Route>,
    /// When the route may change, if nothing else happens.
    reroute_at: Option<Time>,
    lost_since: Option<Time>,
    /// When the watchdog looks next.
    watch: Time,
    probe_id: u32,
    resend_due: bool,
    resent: Option<Time>,
    goodbye_due: Option<u64>,
    evictions_since: Time,
    evictions_count: u8,
    statistics: EndStatistics,
}

impl<H: Half> End<H> {
    /// An end without paths.
    pub fn new(config: EndConfig, half: H) -> Self {
        Self {
            config,
            half,
            clock: Clock::default(),
            random: config.seed | 1,
            paths: [None; PATHS_MAX],
            paths_len: 0,
            route: None,
            reroute_at: Some(Time::ZERO),
            lost_since: None,
            watch: Time::ZERO,
            probe_id: 0,
            resend_due: false,
            resent: None,
            goodbye_due: None,
            evictions_since: Time::ZERO,
            evictions_count: 0,
            statistics: EndStatistics::default(),
        }
    }

    /// The half.
    pub const fn half(&self) -> &H {
        &self.half
    }

    /// The half, for messages, credits, counters and arrivals. Generations begin and end through
    /// the end only.
    pub const fn half_mut(&mut self) -> &mut H {
        &mut self.half
    }

    /// Adds a path that both ends have connected at set-up. `share` is its part of the bytes in
    /// health, 0 for a backup; `capacity` its part of what other paths have lost.
    pub fn add_path(
        &mut self,
        now: Time,
        path: PathId,
        generation: Generation,
        (share, capacity): (u32, u32),
    ) -> Result<(), ProtocolError> {
        let now = self.clock.advance(now);
        self.half.add(path, generation)?;
        let state = PathState::new(now, generation, (share, capacity), &self.config);
        self.insert(path, state);
        self.reroute(now);
        Ok(())
    }

    /// Accounts for a completion of a work request; an error ends its generation.
    pub fn handle_completion(&mut self, now: Time, work: WorkId, ok: bool) {
        self.half.handle_completion(work, ok);
        if !ok {
            self.handle_evidence(now, work.path(), work.generation(), Evidence::Error);
        }
    }

    /// Something speaks against a generation. Of one that is over it changes nothing.
    pub fn handle_evidence(
        &mut self,
        now: Time,
        path: PathId,
        generation: Generation,
        evidence: Evidence,
    ) {
        let now = self.clock.advance(now);
        if self.is_current(path, generation) {
            if let Some(state) = self.state(path) {
                state.is_hinted = evidence == Evidence::Hint;
            }
            self.step(
                now,
                path,
                match evidence {
                    Evidence::Error => Event::Condemned,
                    Evidence::Hint => Event::Hint,
                },
            );
        }
    }

    /// Takes a frame of the other end. Frames may be lost, doubled, reordered and late; what says
    /// nothing new is counted. An error means that the peer broke the protocol.
    pub fn handle_frame(&mut self, now: Time, frame: &PathFrame) -> Result<(), ProtocolError> {
        let now = self.clock.advance(now);
        let is_news = match frame {
            PathFrame::Fence { path, generation } => self.on_fence(now, *path, *generation),
            PathFrame::Answer(answer) => self.on_answer(now, answer)?,
            PathFrame::Offer {
                path,
                generation,
                endpoint,
            } => self.on_offer(now, *path, *generation, endpoint),
            PathFrame::Accept {
                path,
                generation,
                endpoint,
            } => self.on_accept(*path, *generation, endpoint),
            PathFrame::Ready {
                path,
                generation,
                is_proved,
                is_active,
            } => self.on_ready(now, (*path, *generation), *is_proved, *is_active),
            PathFrame::Knock { path } => {
                self.step(now, *path, Event::Knock);
                true
            }
            PathFrame::Resend => {
                self.half.resend();
                !H::IS_SENDER
            }
            PathFrame::Goodbye { count } => {
                self.half.handle_goodbye(*count)?;
                true
            }
            PathFrame::Drain { path, serial } => self.on_drain(now, *path, *serial),
            PathFrame::Drained { path, serial } => self.on_drained(*path, *serial),
        };
        self.statistics.stale_frames += u64::from(!is_news);
        Ok(())
    }

    /// Asks the receiver for its credits and its counter: a send has waited for long.
    pub fn request_credits(&mut self, now: Time) {
        let now = self.clock.advance(now);
        let pause = 4 * self.config.repeat_ns;
        if H::IS_SENDER && self.resent.is_none_or(|at| now.since(at) >= pause) {
            self.resent = Some(now);
            self.resend_due = true;
        }
    }

    /// Tells the other end that this one closes, and its last count.
    pub fn close(&mut self, count: u64) {
        self.goodbye_due = Some(count);
    }

    /// A local port came back, or something else says that the path may work again.
    pub fn handle_link_up(&mut self, now: Time, path: PathId) {
        let now = self.clock.advance(now);
        self.step(now, path, Event::Knock);
        if let Some(state) = self.state(path) {
            state.knock_due = !state.health.is_in_service();
        }
    }

    /// Why requests fail now, if they do (PROTOCOL R62).
    pub fn failure(&self, now: Time) -> Option<Failure> {
        let give_up = if planted(Bug::NoPatience) {
            0
        } else if planted(Bug::NeverGivesUp) {
            u64::MAX
        } else {
            self.config.give_up_ns
        };
        let is_over = |since| now.since(since) >= give_up;
        // It would have been left if there were anywhere better.
        let is_silent = self.states().any(|state| {
            let is_suspect = state.health == Health::Suspect && !planted(Bug::SilenceHasNoEnd);
            is_suspect && is_over(state.doubted)
        });
        let is_lost = self.lost_since.is_some_and(is_over) || is_silent;
        if is_lost && (self.half.is_busy() || planted(Bug::IdleFails)) {
            return Some(Failure::NoPath);
        }
        self.ids().find_map(|id| {
            let state = self.known(id)?;
            let is_due = now.since(state.closed) >= give_up;
            let is_failure = is_due && !planted(Bug::FencesAreAwaited);
            (is_failure && self.half.is_waiting_for_fence(id)).then_some(Failure::NoFence(id))
        })
    }

    /// Health of a path; `None` when it was never added.
    pub fn health(&self, path: PathId) -> Option<Health> {
        self.known(path).map(|state| state.health)
    }

    /// Whether a path is out of service and could not be made when that was last tried.
    pub fn is_unattainable(&self, path: PathId) -> bool {
        let state = self.known(path);
        state.is_some_and(|state| !state.health.is_in_service() && state.attempts > 0)
    }

    /// Whether nothing is wrong and nothing under way: then only an input or a stall of work
    /// changes anything, and whoever waits for work looks often enough.
    pub fn is_calm(&self) -> bool {
        self.states().all(|state| {
            state.health == Health::Active
                && state.fence == path::Fence::None
                && state.pair_probe.is_none()
        })
    }

    /// State for people.
    pub fn snapshot(&self) -> EndSnapshot {
        EndSnapshot {
            paths: core::array::from_fn(|index| {
                let id = PathId::new(index as u8)?;
                let state = self.known(id)?;
                Some(HealthSnapshot {
                    health: state.health,
                    generation: state.generation,
                    since: state.since,
                    is_drained: state.is_drained(),
                    hold_down_ns: state.hold_down_ns,
                    attempts: state.attempts,
                    is_settled: self.half.is_settled(id),
                    weight: self.weight(id),
                })
            }),
            lost_since: self.lost_since,
            statistics: self.statistics,
        }
    }

    /// One event for one path: the table says what follows.
    fn step(&mut self, now: Time, id: PathId, event: Event) {
        self.reroute_at = Some(now);
        let Some(state) = self.state(id) else {
            return;
        };
        if event == Event::Knock && !planted(Bug::KnockKeepsBackOff) {
            // Also for the attempt under way, which may have begun too early.
            state.attempts = 0;
        }
        let is_spoken_of = matches!(event, Event::Knock | Event::Hint);
        let is_doubted = is_spoken_of && state.is_new && state.is_trusted;
        let (next, effect) = state.health.next(event);
        if next != state.health {
            (state.health, state.since) = (next, now);
            if next == Health::Suspect {
                state.doubted = now;
            }
        }
        if is_doubted {
            // It has to prove itself like others.
            state.is_trusted = false;
            self.restart_hold_down(now, id);
        }
        match effect {
            Effect::Nothing => {}
            Effect::Probe => self.suspect(now, id),
            Effect::Clear => self.clear(now, id),
            Effect::Close => self.end_generation(now, id),
            Effect::Start => self.start_attempt(now, id),
            Effect::HoldDown => self.begin_hold_down(now, id),
            Effect::Restart => self.restart_hold_down(now, id),
            Effect::Serve => self.serve(now, id),
            Effect::BackOff => self.give_attempt_up(now, id),
            Effect::Hurry => self.hurry(now, id),
        }
    }

    fn insert(&mut self, id: PathId, state: PathState) {
        self.paths[id.index()] = Some(state);
        self.paths_len = self.paths_len.max(id.index() + 1);
    }

    fn state(&mut self, id: PathId) -> Option<&mut PathState> {
        self.paths[id.index()].as_mut()
    }

    fn known(&self, id: PathId) -> Option<&PathState> {
        self.paths[id.index()].as_ref()
    }

    fn states(&self) -> impl Iterator<Item = &PathState> {
        self.paths[..self.paths_len].iter().flatten()
    }

    fn ids(&self) -> impl Iterator<Item = PathId> + use<H> {
        (0..self.paths_len as u8).filter_map(PathId::new)
    }

    /// Whether `generation` is the newest of the path, attempts included.
    fn is_current(&self, path: PathId, generation: Generation) -> bool {
        self.known(path)
            .is_some_and(|state| state.generation == generation)
    }

    /// Whether no more work fits on the send queue of a path.
    fn is_full(&self, id: PathId) -> bool {
        self.half.outstanding(id) >= SEND_DEPTH
    }

    /// Whether some path of this end is in service.
    fn has_service(&self) -> bool {
        self.states().any(|state| state.health.is_in_service())
    }

    /// A condition that the half reached on its own: an error completion that did not come through
    /// [`End::handle_completion`].
    fn has_failed(&self, id: PathId) -> bool {
        self.half.condition(id) == Some(Condition::Failed)
    }

    /// A pseudo-random number below `bound` (xorshift); only jitter depends on it.
    fn jitter(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound.max(1)
    }
}

impl Health {
    /// Whether an attempt to re-create the path is under way.
    const fn is_attempt(self) -> bool {
        matches!(self, Self::Rebuild | Self::Probation)
    }
}
