//! A path comes back: attempts, and the proof that a new generation works.
//!
//! ```text
//! sender                              receiver
//!   make a queue pair
//!   OFFER n      ──────────────────>    make a queue pair, receives posted
//!                <──────────────────    ACCEPT n;  connect
//!   connect                             READY n, arrivals count
//!   READY n      <─────────────────>
//!   probe for the hold-down             probe once
//!   READY n, proved  <─────────────>    READY n, proved
//!   in service                          in service
//! ```
//!
//! Each attempt is a generation of its own, so that whatever is said late about an older one is
//! told apart by its number (PROTOCOL R56). Offers and readiness are repeated until answered.

use super::{End, Half};
use crate::health::{Event, Health};
use crate::ids::{Generation, PathId};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wire::path_frame::Endpoint;

use super::path::{Fence, PathState};

/// Doublings after which the back-off stays at its longest, whatever that is.
const BACK_OFF_SHIFT_MAX: u32 = 32;

impl<H: Half> End<H> {
    /// Adds a path that is not connected yet: it is made like one that was lost.
    pub fn add_standby(&mut self, now: Time, path: PathId, (share, capacity): (u32, u32)) {
        let now = self.clock.advance(now);
        let mut state = PathState::new(now, Generation(0), (share, capacity), &self.config);
        (state.health, state.served) = (Health::Down, None);
        // Nothing speaks against it: one probe is enough, and it need not be tried with little.
        state.is_new = true;
        state.is_trusted = !planted(Bug::NewPathsWait);
        if planted(Bug::SetUpIsOnce) {
            state.due = Time::from_nanoseconds(u64::MAX);
        }
        self.insert(path, state);
        self.reroute(now);
    }

    /// When to try again, and how long the hold-down will be, now that a generation has ended.
    pub(super) fn plan_return(&mut self, now: Time, id: PathId) {
        let config = self.config;
        let jitter = self.jitter(config.back_off_ns / 4);
        let Some(state) = self.state(id) else {
            return;
        };
        let Some(served) = state.served.take() else {
            self.back_off(now, id);
            return;
        };
        let lasted = now.since(served);
        if lasted >= config.stable_ns && !planted(Bug::HoldDownStays) {
            state.hold_down_ns = config.hold_down_ns;
        } else if state.is_return && lasted < config.flap_ns {
            state.is_trusted = false;
            let factor = if planted(Bug::HoldDownIsFlat) { 1 } else { 2 };
            let longest_ns = if planted(Bug::HoldDownHasNoCap) {
                u64::MAX
            } else {
                config.hold_down_max_ns
            };
            state.hold_down_ns = state.hold_down_ns.saturating_mul(factor).min(longest_ns);
        }
        state.attempts = 0;
        state.due = now.plus(jitter);
    }

    fn back_off(&mut self, now: Time, id: PathId) {
        let config = self.config;
        self.statistics.attempts_failed += 1;
        let Some(state) = self.state(id) else {
            return;
        };
        state.is_trusted = false;
        let mut doublings = state.attempts.min(BACK_OFF_SHIFT_MAX);
        if planted(Bug::BackOffIsFlat) {
            doublings = 0;
        }
        state.attempts = state.attempts.saturating_add(1);
        let pause = config.back_off_ns.saturating_mul(1 << doublings);
        let pause = if planted(Bug::OneAttempt) {
            u64::MAX
        } else if planted(Bug::BackOffHasNoCap) {
            pause
        } else {
            pause.min(config.back_off_max_ns)
        };
        // Three to four quarters, so that the longest stays the longest.
        let jitter = self.jitter(pause / 4);
        if let Some(state) = self.state(id) {
            state.due = now.plus(pause - jitter);
        }
    }

    /// A knock cuts the back-off short, which begins anew: the port may be up and not have its
    /// address yet. But attempts never follow each other more closely than the first back-off.
    pub(super) fn hurry(&mut self, now: Time, id: PathId) {
        let pause = self.config.back_off_ns;
        let state = self.state(id);
        if let Some(state) = state.filter(|_| !planted(Bug::KnockIsIgnored)) {
            state.due = state.due.min(now.max(state.since.plus(pause)));
        }
    }

    /// Whether the sender may begin an attempt: the last generation is settled.
    pub(super) fn is_free(&self, id: PathId) -> bool {
        H::IS_SENDER && (self.half.is_settled(id) || planted(Bug::AttemptBeforeSettled))
    }

    pub(super) fn check_due(&mut self, now: Time, id: PathId) {
        let is_due = self
            .known(id)
            .is_some_and(|state| state.health == Health::Down && state.due <= now);
        if is_due && self.is_free(id) {
            self.step(now, id, Event::Due);
        }
    }

    pub(super) fn start_attempt(&mut self, now: Time, id: PathId) {
        let config = self.config;
        let Some(state) = self.state(id) else {
            return;
        };
        let offer = state.offer.take();
        let next = match offer {
            Some((generation, _)) => Some(generation),
            None if planted(Bug::NumberIsUsedAgain) => Some(state.generation),
            None => state.generation.next(),
        };
        let Some(generation) = next else {
            // The numbers are used up (PROTOCOL A6): the path stays away.
            (state.health, state.due) = (Health::Down, Time::from_nanoseconds(u64::MAX));
            return;
        };
        state.begin(now, generation, &config);
        state.remote = offer.map(|(_, endpoint)| endpoint);
        self.statistics.attempts += 1;
    }

    /// An attempt that was not connected comes to nothing.
    pub(super) fn give_attempt_up(&mut self, now: Time, id: PathId) {
        let Some(state) = self.state(id) else {
            return;
        };
        let generation = state.generation;
        state.forget_attempt();
        // If this end was connected, its queue pair has to fall silent first.
        if !self.close_generation(now, id) {
            if let Some(state) = self.state(id) {
                state.tell_over = Some(generation);
                state.destroy = Some(generation);
            }
        }
        self.back_off(now, id);
    }

    /// The result of [`super::Action::Create`]: this end of the new generation, or `None` when it
    /// could not be made.
    pub fn handle_created(
        &mut self,
        now: Time,
        path: PathId,
        generation: Generation,
        endpoint: Option<Endpoint>,
    ) {
        let now = self.clock.advance(now);
        let repeat_ns = self.config.repeat_ns;
        let Some(state) = self.state(path) else {
            return;
        };
        if state.generation != generation || state.health != Health::Rebuild {
            // Too late: the attempt was given up while it was made.
            let is_over = generation < state.generation || state.health == Health::Down;
            if endpoint.is_some() && is_over && state.fence == Fence::None {
                state.destroy = state.destroy.max(Some(generation));
            }
            return;
        }
        let Some(endpoint) = endpoint else {
            self.step(now, path, Event::Failed);
            return;
        };
        state.local = Some(endpoint);
        if H::IS_SENDER {
            state.attempt_frame.start(now, repeat_ns);
        } else {
            (state.accept_due, state.connect_due) = (true, true);
        }
    }

    /// The result of [`super::Action::Connect`].
    pub fn handle_connected(&mut self, now: Time, path: PathId, generation: Generation, ok: bool) {
        let now = self.clock.advance(now);
        let repeat_ns = self.config.repeat_ns;
        let expects = |state: &PathState| {
            state.generation == generation && state.health == Health::Rebuild && !state.is_connected
        };
        if !self.known(path).is_some_and(expects) {
            return;
        }
        // Arrivals count before the peer hears that it may probe; the sender reads its ring.
        let is_added = ok && self.half.add_proving(path, generation).is_ok();
        if !is_added {
            self.step(now, path, Event::Failed);
            return;
        }
        if let Some(state) = self.state(path) {
            state.is_connected = true;
            state.attempt_frame.start(now, repeat_ns);
        }
        self.check_attempt(now, path);
    }

    /// Both connected: PROBATION; both proved: in service.
    fn check_attempt(&mut self, now: Time, id: PathId) {
        let Some(state) = self.paths[id.index()] else {
            return;
        };
        if state.health == Health::Rebuild && state.is_connected && state.is_peer_ready {
            self.step(now, id, Event::Connected);
        }
        let is_proved = state.is_proved || (state.is_peer_ready && planted(Bug::NoOwnProof));
        let is_peer_proved = state.is_peer_proved || planted(Bug::NoPeerProof);
        if is_proved && is_peer_proved {
            self.step(now, id, Event::Proved);
        }
    }

    pub(super) fn begin_hold_down(&mut self, now: Time, id: PathId) {
        let config = self.config;
        self.restart_hold_down(now, id);
        if let Some(state) = self.state(id) {
            let longest = config.hold_down_max_ns.saturating_add(config.attempt_ns);
            state.attempt_end = now.plus(longest);
            state.probe_at = now;
        }
    }

    /// The sender's hold-down is that of the connection; to the receiver one probe is enough.
    pub(super) fn restart_hold_down(&mut self, now: Time, id: PathId) {
        if let Some(state) = self.state(id) {
            let is_trusted = state.is_trusted && !planted(Bug::TrustIsForgotten);
            let is_short = !H::IS_SENDER || is_trusted || planted(Bug::NoHoldDown);
            let hold_down_ns = if is_short { 0 } else { state.hold_down_ns };
            state.hold_end = now.plus(hold_down_ns);
        }
    }

    /// A probe in PROBATION has passed or failed.
    pub(super) fn prove(&mut self, now: Time, id: PathId, passed: bool) {
        let repeat_ns = self.config.repeat_ns;
        let (has_service, first_ns) = (self.has_service(), self.config.hold_down_ns);
        let Some(state) = self.state(id) else {
            return;
        };
        state.own_probe = None;
        if !passed {
            // One may be lost; the next makes the target say so.
            let is_second = core::mem::replace(&mut state.is_missed, true);
            if is_second || planted(Bug::OneLostProbeFails) {
                self.step(now, id, Event::Failed);
            } else {
                state.probe_at = now;
            }
            return;
        }
        state.is_missed = false;
        let mut rest = state.hold_end.since(now);
        if !has_service && !planted(Bug::LonelyPathsWait) {
            // All may have flapped: then the wait for one of them stays short.
            rest = rest.min(state.since.plus(first_ns).since(now));
        }
        state.probe_at = now.plus((rest / 4).clamp(repeat_ns, 250_000_000));
        if rest > 0 {
            state.probe_at = state.probe_at.min(state.hold_end);
        } else if !state.is_proved {
            state.is_proved = true;
            state.attempt_frame.start(now, repeat_ns);
        }
        self.check_attempt(now, id);
    }

    pub(super) fn serve(&mut self, now: Time, id: PathId) {
        let stall_ns = self.config.stall_ns;
        self.half.serve(id);
        self.statistics.returns += 1;
        if let Some(state) = self.state(id) {
            state.attempt_frame.stop();
            state.ready_due = true;
            (state.own_probe, state.pair_probe) = (None, None);
            (state.served, state.attempts, state.is_trusted) = (Some(now), 0, false);
            (state.is_return, state.is_new) = (!state.is_new, false);
            (state.progressed, state.patience_ns, state.vain) = (now, stall_ns, 0);
        }
        self.reroute(now);
        self.half.resend();
    }

    /// The sender proposes a new generation. It has settled all before, so that whatever this end
    /// still holds of them is over.
    pub(super) fn on_offer(
        &mut self,
        now: Time,
        id: PathId,
        generation: Generation,
        endpoint: &Endpoint,
    ) -> bool {
        let Some(state) = self.state(id).filter(|_| !H::IS_SENDER) else {
            return false;
        };
        if generation <= state.generation && !planted(Bug::OldOfferCounts) {
            let is_attempt = generation == state.generation && state.health.is_attempt();
            state.accept_due = is_attempt && state.local.is_some();
            return false;
        }
        let event = match state.health {
            Health::Rebuild => Event::Failed,
            _ => Event::Condemned,
        };
        self.step(now, id, event);
        // Not settled: the offer comes again.
        if self.half.is_settled(id) || planted(Bug::OfferBeforeCommit) {
            if let Some(state) = self.state(id) {
                state.offer = Some((generation, *endpoint));
                state.tell_over = None;
            }
            self.step(now, id, Event::Due);
        }
        true
    }

    /// The receiver's end of the attempt.
    pub(super) fn on_accept(
        &mut self,
        id: PathId,
        generation: Generation,
        endpoint: &Endpoint,
    ) -> bool {
        let expected = self.state(id).filter(|state| {
            H::IS_SENDER
                && (state.generation == generation || planted(Bug::LateAcceptCounts))
                && state.health == Health::Rebuild
                && state.local.is_some()
                && state.remote.is_none()
        });
        let is_news = expected.is_some();
        if let Some(state) = expected {
            (state.remote, state.connect_due) = (Some(*endpoint), true);
            state.attempt_frame.stop();
        }
        is_news
    }

    /// How far the other end is with this generation.
    pub(super) fn on_ready(
        &mut self,
        now: Time,
        (id, generation): (PathId, Generation),
        is_proved: bool,
        is_active: bool,
    ) -> bool {
        let Some(state) = self.state(id) else {
            return false;
        };
        if state.generation != generation || state.health == Health::Down {
            // The peer still works at a generation that is over here.
            if generation <= state.generation {
                state.tell_over = Some(generation);
            }
            return false;
        }
        if state.health.is_in_service() {
            state.ready_due |= !is_active;
            return false;
        }
        let is_news = !state.is_peer_ready || (is_proved && !state.is_peer_proved);
        state.is_peer_ready = true;
        state.is_peer_proved |= is_proved;
        self.check_attempt(now, id);
        is_news
    }
}
