//! The end of a generation: stop, fence, answer, settle.
//!
//! Each step is monotone and idempotent and belongs to one (path, generation). Both ends may
//! begin at once; whoever is first, the other follows, and there is no way back (PROTOCOL R50).

use super::path::Fence;
use super::{End, Half};
use crate::error::ProtocolError;
use crate::health::{Event, Health};
use crate::ids::{Generation, PathId};
use crate::paths::Condition;
use crate::planted::{Bug, planted};
use crate::recovery::{Answer, FenceOutcome};
use crate::time::Time;

impl<H: Half> End<H> {
    /// Ends the newest generation of a path at this end. The table has put the path into DOWN.
    pub(super) fn end_generation(&mut self, now: Time, id: PathId) {
        self.close_generation(now, id);
        self.plan_return(now, id);
        self.reroute(now);
        self.half.resend();
    }

    /// Stops posting in the newest generation and begins to fence it. False: nothing was ever
    /// added under it, so that there is nothing to fence.
    pub(super) fn close_generation(&mut self, now: Time, id: PathId) -> bool {
        let repeat_ns = self.config.repeat_ns;
        let condition = self.half.condition(id);
        let newest = self.half.generation(id);
        let Some(state) = self.state(id) else {
            return false;
        };
        if newest != Some(state.generation) || condition == Some(Condition::Retired) {
            return false;
        }
        let generation = state.generation;
        state.forget_attempt();
        state.fence = Fence::Due;
        state.closed = now;
        if !planted(Bug::FenceIsNotTold) {
            state.fence_frame.start(now, repeat_ns);
        }
        state.closing = generation;
        if !H::IS_SENDER {
            state.answer_for = state.answer_for.max(Some(generation));
        }
        self.half.close(id, generation);
        self.statistics.closed += 1;
        true
    }

    /// The outcome of [`super::Action::Fence`]. It may come late, more than once, and better than
    /// before. At the receiver it is the commit point: feed all arrivals that completed before.
    pub fn handle_fenced(
        &mut self,
        now: Time,
        path: PathId,
        generation: Generation,
        outcome: FenceOutcome,
    ) {
        let now = self.clock.advance(now);
        let is_waiting = |fence| matches!(fence, Fence::Due | Fence::Asked { .. } | Fence::Unknown);
        let Some(state) = self
            .state(path)
            .filter(|state| state.closing == generation && is_waiting(state.fence))
        else {
            return;
        };
        let is_silent = match outcome {
            FenceOutcome::Drained => true,
            FenceOutcome::DeviceLost => H::IS_SENDER || planted(Bug::LostTargetIsFenced),
            FenceOutcome::Unknown => false,
        };
        state.fence = if is_silent {
            Fence::Silent(now)
        } else {
            Fence::Unknown
        };
        self.commit(path, generation, is_silent);
    }

    /// Nobody knows whether the queue pair is silent, and it has taken too long to find out.
    pub(super) fn check_fence_deadline(&mut self, now: Time, id: PathId) {
        let Some(state) = self.state(id) else {
            return;
        };
        let is_late = matches!(state.fence, Fence::Asked { deadline } if deadline <= now);
        if is_late && !planted(Bug::AnswersWhenDrained) {
            state.fence = Fence::Unknown;
            let generation = state.closing;
            self.commit(id, generation, false);
        }
    }

    /// The receiver's snapshot is final from here on, and its answer is due (PROTOCOL R52).
    fn commit(&mut self, id: PathId, generation: Generation, is_fenced: bool) {
        self.half.handle_fence(id, generation, is_fenced);
        let Some(state) = self.state(id) else {
            return;
        };
        if !H::IS_SENDER {
            state.answer_for = state.answer_for.max(Some(generation));
            if is_fenced {
                state.destroy = state.destroy.max(Some(generation));
            }
        }
    }

    /// The source is silent and no packet of it can live any more (PROTOCOL R53). Under
    /// `R2CCL_FENCE=strict` that does not count.
    pub(super) fn check_quarantine(&mut self, now: Time, id: PathId) {
        if self.quarantine_end(id).is_none_or(|end| end > now) {
            return;
        }
        let Some(state) = self.paths[id.index()] else {
            return;
        };
        if self.half.handle_quarantine_over(id, state.closing) {
            self.statistics.quarantines += 1;
            self.check_settled(id);
        }
    }

    /// When the quarantine of a closed generation ends; `None` when it does not count or matter.
    pub(super) fn quarantine_end(&self, id: PathId) -> Option<Time> {
        let state = self.known(id)?;
        let Fence::Silent(since) = state.fence else {
            return None;
        };
        let is_strict = self.config.is_fence_strict && !planted(Bug::StrictIsIgnored);
        let since = if planted(Bug::QuarantineFromClose) {
            state.closed
        } else {
            since
        };
        let counts = H::IS_SENDER && !is_strict && self.half.is_unfenced(id);
        counts.then(|| since.plus(self.config.quarantine_ns))
    }

    /// The other end says that a generation is over. To the receiver this is also the question
    /// for its answer.
    pub(super) fn on_fence(&mut self, now: Time, id: PathId, generation: Generation) -> bool {
        let newest = self.half.generation(id);
        let Some(state) = self.state(id) else {
            return false;
        };
        let is_news = generation >= state.generation && state.health != Health::Down;
        if !H::IS_SENDER && newest.is_none_or(|newest| generation >= newest) {
            state.answer_for = state.answer_for.max(Some(generation));
        }
        if generation >= state.generation {
            self.step(now, id, Event::Condemned);
        }
        let Some(state) = self.state(id) else {
            return is_news;
        };
        if !H::IS_SENDER && generation >= state.generation {
            // A generation that this end has not heard of yet is over as well, and the peer knows.
            state.generation = state.generation.max(generation);
            state.fence_frame.stop();
        }
        is_news
    }

    /// The receiver's answer; a generation that did not know that it is over ends here.
    pub(super) fn on_answer(&mut self, now: Time, answer: &Answer) -> Result<bool, ProtocolError> {
        let id = answer.path;
        if !H::IS_SENDER {
            return Ok(false);
        }
        if self.is_current(id, answer.generation) {
            self.step(now, id, Event::Condemned);
        }
        let is_news = self.half.handle_answer(answer)?;
        self.check_settled(id);
        Ok(is_news)
    }

    /// Once settled, nothing of the generation is needed any more.
    fn check_settled(&mut self, id: PathId) {
        let is_settled = self.half.is_settled(id);
        let Some(state) = self.state(id) else {
            return;
        };
        if is_settled && state.health == Health::Down && state.fence != Fence::None {
            state.fence_frame.stop();
            // A queue pair that may still be held by its device is destroyed all the same: the
            // number stays unused, and the target accepts nothing from it.
            state.destroy = state.destroy.max(Some(state.closing));
            state.fence = Fence::None;
        }
    }
}
