//! Stalls, probes, and what they prove.
//!
//! A path whose own work makes no progress is suspect. Two probes tell why: one on its own queue
//! pair, one between its NICs that needs nothing of this connection.
//!
//! | own probe | NIC pair | verdict |
//! |---|---|---|
//! | passes, or work progresses | any | transient |
//! | passes again and again without progress | any | the queue pair: completions were lost |
//! | fails | passes | the queue pair: end it, make another between the same NICs |
//! | fails | fails | the NICs: leave them, if another path's NICs can talk and not too often |

use super::path::Probe;
use super::{End, Half};
use crate::health::{Event, Health};
use crate::ids::{Generation, PathId};
use crate::planted::{Bug, planted};
use crate::time::Time;

/// Longest pause between two suspicions of a path that always clears, in stall times.
const PATIENCE_MAX: u64 = 6;
/// Looks at a path in the time after which it is suspect.
const LOOKS: u64 = 5;
/// Steps of progress that a probe on a queue pair may have to wait for. A sender's waits behind its
/// own messages: NCCL has so many under way.
const STEPS_AHEAD: u64 = 8;
/// A receiver's waits for what answers it; its steps also take long when the sender rests.
const STEPS_BEFORE_ANSWER: u64 = 2;
/// A step that took longer says nothing of NICs.
const STEP_MAX_NS: u64 = 200_000_000;
/// Times that the NICs of a path that somebody spoke against may be late as long as others are.
const HINT_TRIES: u64 = 5;
/// Times that the own probe of a path passes without progress, each with a request to say all
/// again: then the other end has not heard of what has arrived there.
const VAIN_MAX: u8 = 4;

impl<H: Half> End<H> {
    /// Looks whether the work of a path that is in service gets on (PROTOCOL R60).
    pub(super) fn watch(&mut self, now: Time, id: PathId) {
        if self.has_failed(id) && self.known(id).is_some_and(|s| s.health.is_in_service()) {
            self.step(now, id, Event::Condemned);
            return;
        }
        let rate_min = self.config.rate_min.max(1);
        let stall_ns = self.config.stall_ns;
        let mut work = self.half.work(id);
        // Other work may wait for room.
        work.is_waiting |= self.is_full(id);
        let Some(state) = self.state(id).filter(|state| state.health.is_in_service()) else {
            return;
        };
        let was_waiting = core::mem::replace(&mut state.is_waiting, work.is_waiting);
        if work.progress != state.progress || !was_waiting || !work.is_waiting {
            if work.progress != state.progress && was_waiting {
                // One long step between short ones is a pause.
                let step_ns = now.since(state.progressed).min(STEP_MAX_NS);
                state.pace_ns = step_ns.min(core::mem::replace(&mut state.step_ns, step_ns));
            }
            (state.progress, state.progressed) = (work.progress, now);
            (state.patience_ns, state.vain) = (stall_ns, 0);
            // What was on its way before its port was lost proves nothing.
            let counts = (!state.is_hinted || planted(Bug::ProgressOutweighsHints))
                && !planted(Bug::ProgressClearsNothing);
            if state.health == Health::Suspect && work.is_waiting && counts {
                self.step(now, id, Event::Progress);
            }
            return;
        }
        let mut needed = work.bytes.saturating_mul(1_000_000_000) / rate_min;
        if planted(Bug::BytesNeedNoTime) {
            needed = 0;
        }
        let patience_ns = state.patience_ns.saturating_add(needed);
        let is_stalled =
            now.since(state.progressed) >= patience_ns && !planted(Bug::WatchdogSleeps);
        if state.health == Health::Active && is_stalled {
            self.step(now, id, Event::Hint);
        }
    }

    /// When to look next: often enough to see the last progress nearly when it was, and when a path
    /// becomes suspect.
    pub(super) fn next_watch(&self, now: Time) -> Time {
        let waiting = self
            .states()
            .filter(|state| state.health.is_in_service() && state.is_waiting);
        let looks = waiting.map(|state| {
            let look = now.plus(state.patience_ns / LOOKS);
            let due = state.progressed.plus(state.patience_ns);
            if due > now { look.min(due) } else { look }
        });
        let usual = now.plus(self.config.stall_ns / LOOKS);
        looks.min().unwrap_or(usual)
    }

    /// How long a probe may be late behind other work, where steps of progress take long: NICs are
    /// slow, or many share one. What is seen at every look or two is not slow.
    fn lateness(&self) -> u64 {
        let paces = self.states().map(|state| state.pace_ns);
        let usual_ns = 2 * self.config.stall_ns / LOOKS;
        let slow_ns = paces.max().unwrap_or(0).saturating_sub(usual_ns);
        if planted(Bug::SlowIsStuck) {
            return 0;
        }
        let steps = if H::IS_SENDER {
            STEPS_AHEAD
        } else {
            STEPS_BEFORE_ANSWER
        };
        slow_ns * steps
    }

    /// One probe of a generation that has to prove itself.
    pub(super) fn begin_proof(&mut self, now: Time, id: PathId) {
        let own = self.probe(now.plus(self.config.probe_ns));
        if let Some(state) = self.state(id) {
            state.own_probe = Some(own);
        }
    }

    /// Sends the probes of a suspicion: own queue pair, own NICs, and those of the other paths.
    pub(super) fn suspect(&mut self, now: Time, id: PathId) {
        let rate_min = self.config.rate_min.max(1);
        let needed = self.half.work(id).bytes.saturating_mul(1_000_000_000) / rate_min;
        let deadline = now.plus(self.config.probe_ns.saturating_add(needed));
        let own = self.probe(deadline.plus(self.lateness()));
        // Of its own NICs, and of those of others.
        let mut pair_deadlines = (deadline, deadline);
        if let Some(state) = self.state(id) {
            state.own_probe = Some(own);
            state.pair_probe = None;
            if state.is_hinted && !planted(Bug::HintsTakeTheirTime) {
                let hint_ns = self.config.hint_probe_ns;
                pair_deadlines = (now.plus(hint_ns), now.plus(HINT_TRIES * hint_ns));
            }
        }
        for other in self.ids() {
            let is_asked = self.known(other).is_some_and(|state| {
                let is_over = |probe: Probe| probe.verdict(now).is_some();
                state.health.is_in_service() && state.pair_probe.is_none_or(is_over)
            });
            if is_asked {
                let (of_own, of_others) = pair_deadlines;
                let pair = self.probe(if other == id { of_own } else { of_others });
                if let Some(state) = self.state(other) {
                    state.pair_probe = Some(pair);
                }
            }
        }
    }

    fn probe(&mut self, deadline: Time) -> Probe {
        self.probe_id = self.probe_id.wrapping_add(1);
        let deadline = if planted(Bug::ProbesHaveNoEnd) {
            Time::from_nanoseconds(u64::MAX)
        } else {
            deadline
        };
        Probe {
            id: self.probe_id,
            is_sent: false,
            result: None,
            deadline,
        }
    }

    /// The result of [`super::Action::Probe`].
    pub fn handle_probe(
        &mut self,
        now: Time,
        path: PathId,
        generation: Generation,
        id: u32,
        passed: bool,
    ) {
        let now = self.clock.advance(now);
        let own_deadline = now.plus(self.config.own_probe_ns.saturating_add(self.lateness()));
        let Some(state) = self.state(path).filter(|s| s.generation == generation) else {
            return;
        };
        if let Some(own) = state.own_probe.as_mut().filter(|probe| probe.id == id) {
            own.result = Some(passed);
        } else if let Some(pair) = state.pair_probe.as_mut().filter(|probe| probe.id == id) {
            pair.result = Some(passed);
            if passed {
                state.pair_passed = Some(now);
                let is_suspect =
                    state.health == Health::Suspect && !planted(Bug::OwnProbeIsNotHurried);
                if let Some(own) = state.own_probe.as_mut().filter(|_| is_suspect) {
                    own.deadline = own.deadline.min(own_deadline);
                }
            }
        }
        for other in self.ids() {
            self.check_probes(now, other);
        }
    }

    /// Draws the conclusion of what has come back or is overdue.
    pub(super) fn check_probes(&mut self, now: Time, id: PathId) {
        let Some(state) = self.state(id) else {
            return;
        };
        // What is overdue has failed, and nothing waits for its time any more.
        for probe in [&mut state.own_probe, &mut state.pair_probe]
            .into_iter()
            .flatten()
        {
            probe.result = probe.verdict(now);
        }
        let state = *state;
        let own = state.own_probe.map(|probe| probe.verdict(now));
        let pair = state.pair_probe.map(|probe| probe.verdict(now));
        match (state.health, own, pair) {
            (Health::Probation, Some(Some(passed)), _) => self.prove(now, id, passed),
            (Health::Suspect, Some(Some(true)), _) => self.count_vain(now, id),
            (Health::Suspect, _, Some(Some(true))) if planted(Bug::OtherProbeClears) => {
                self.step(now, id, Event::Progress);
            }
            (Health::Suspect, Some(Some(false)), Some(Some(true))) => {
                self.blame_queue_pair(now, id);
            }
            (Health::Suspect, Some(Some(false)), Some(Some(false)) | None) => self.evict(now, id),
            (Health::Suspect, _, Some(Some(false))) if state.is_hinted => self.evict(now, id),
            (Health::Active, _, Some(Some(_))) => {
                if let Some(state) = self.state(id) {
                    state.pair_probe = None;
                }
            }
            _ => {}
        }
    }

    fn blame_queue_pair(&mut self, now: Time, id: PathId) {
        self.statistics.queue_pair_faults += 1;
        if let Some(state) = self.state(id) {
            state.is_trusted = true;
        }
        self.step(now, id, Event::Condemned);
    }

    /// The own probe has passed, and with it all work before it. A send queue that is full all the
    /// same, or a message that does not become delivered, shows that completions were lost: only
    /// a fence finds out what has arrived.
    fn count_vain(&mut self, now: Time, id: PathId) {
        if let Some(state) = self.state(id) {
            state.vain = state.vain.saturating_add(1);
        }
        let owing = self.half.owing();
        let is_vain = |other: PathId| {
            owing >> other.index() & 1 == 0
                || self
                    .known(other)
                    .is_some_and(|state| state.vain >= VAIN_MAX)
        };
        let is_owing = owing >> id.index() & 1 == 1;
        let is_all_vain = is_owing && self.ids().all(is_vain) && !planted(Bug::VainProbesClear);
        let is_full = self.is_full(id) && !planted(Bug::FullQueueIsCleared);
        if is_full || is_all_vain {
            self.blame_queue_pair(now, id);
        } else {
            self.step(now, id, Event::Progress);
        }
    }

    /// The NICs of a path cannot talk. It is left only if there is somewhere better, and not too
    /// often: a pause that hits all paths alike is waited for. One whose port has lost its link
    /// does not pause (PROTOCOL R61).
    fn evict(&mut self, now: Time, id: PathId) {
        let Some(state) = self.paths[id.index()] else {
            return;
        };
        let (since, is_hinted) = (state.since, state.is_hinted);
        // What comes back at the last moment may as well come back here at the next.
        let is_early = |at: Time| {
            4 * at.since(since) <= 3 * now.since(since) || planted(Bug::LastAnswersCount)
        };
        let counts = |at: Time| at >= since && (is_hinted || is_early(at));
        let is_better = |state: &&super::PathState| {
            state.health.is_in_service() && state.pair_passed.is_some_and(counts)
        };
        let others = self.ids().filter(|other| *other != id);
        let mut others = others.filter_map(|other| self.known(other));
        let is_any_better = others.any(|state| is_better(&state)) || planted(Bug::NowhereBetter);
        if !is_any_better && is_hinted && now.since(since) < HINT_TRIES * self.config.hint_probe_ns
        {
            self.wait_for_others(now, id);
        } else if !is_any_better {
            self.statistics.nowhere_better += 1;
            self.ask_again(now, id);
        } else if is_hinted && !planted(Bug::HintsAreLimited) || self.may_evict(now) {
            self.statistics.evictions += 1;
            self.statistics.hinted_evictions += u64::from(is_hinted);
            self.step(now, id, Event::Condemned);
        } else {
            self.statistics.evictions_limited += 1;
            self.ask_again(now, id);
        }
    }

    /// The NICs of a path that somebody spoke against have not answered, nor have others yet.
    fn wait_for_others(&mut self, now: Time, id: PathId) {
        let deadline = now.plus(self.config.hint_probe_ns);
        let state = self.state(id);
        if let Some(pair) = state.and_then(|state| state.pair_probe.as_mut()) {
            (pair.result, pair.deadline) = (None, deadline);
        }
    }

    fn may_evict(&mut self, now: Time) -> bool {
        if now.since(self.evictions_since) >= self.config.eviction_window_ns {
            (self.evictions_since, self.evictions_count) = (now, 0);
        }
        let may =
            self.evictions_count < self.config.evictions_max || planted(Bug::LeavesWithoutLimit);
        self.evictions_count = self.evictions_count.saturating_add(u8::from(may));
        may
    }

    /// Stays suspect and probes again, a little later than the others.
    fn ask_again(&mut self, now: Time, id: PathId) {
        if let Some(state) = self.state(id) {
            (state.own_probe, state.pair_probe) = (None, None);
            state.since = now;
            state.is_hinted &= planted(Bug::HintsStay);
        }
        if !planted(Bug::NobodyIsWoken) {
            // Software NICs answer when their program looks at them, and one that has received all
            // does not: a frame makes it look.
            self.request_credits(now);
        }
        let jitter = self.jitter(self.config.probe_ns / 4);
        self.suspect(now.plus(jitter), id);
    }

    /// A suspicion has come to nothing.
    pub(super) fn clear(&mut self, now: Time, id: PathId) {
        self.statistics.transients += 1;
        let longest = PATIENCE_MAX * self.config.stall_ns;
        let Some(state) = self.state(id) else {
            return;
        };
        (state.own_probe, state.pair_probe) = (None, None);
        state.is_hinted = false;
        state.patience_ns = (state.patience_ns * 2).min(longest);
        state.progressed = now;
        // Work that waits on a sound path may wait for a word that was lost.
        self.request_credits(now);
    }
}
