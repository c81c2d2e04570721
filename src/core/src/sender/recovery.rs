//! Generations that end: answers, fences, and what has to be posted again.

use super::Sender;
use super::message::{Stage, bits};
use crate::end::Work;
use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, Seq};
use crate::limits::PATHS_MAX;
use crate::paths::Condition;
use crate::planted::{Bug, planted};
use crate::recovery::Answer;
use crate::segment::{Cut, Segment};

/// A generation that is over, until it is settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    generation: Generation,
    /// Nothing posted in it can land any more.
    is_fenced: bool,
    /// The answer has been applied.
    is_answered: bool,
}

impl Sender {
    /// Like [`Sender::add_path`], for a generation that has to prove itself first: credits and
    /// counters count, but nothing is posted before [`Sender::serve_path`].
    pub fn add_proving_path(
        &mut self,
        path: PathId,
        generation: Generation,
    ) -> Result<(), ProtocolError> {
        self.add(path, generation, Condition::Proving)
    }

    pub(super) fn add(
        &mut self,
        path: PathId,
        generation: Generation,
        condition: Condition,
    ) -> Result<(), ProtocolError> {
        if !self.is_settled(path) {
            return Err(ProtocolError::PathInUse(path));
        }
        self.paths.add(path, generation, condition)?;
        self.rehome();
        Ok(())
    }

    /// Takes a path into service that was added by [`Sender::add_proving_path`].
    pub fn serve_path(&mut self, path: PathId) {
        self.paths.serve(path);
        self.rehome();
    }

    /// Newest generation of a path; `None` when it was never added.
    pub fn generation(&self, path: PathId) -> Option<Generation> {
        self.paths.generation(path)
    }

    /// Ends a generation, for good: nothing more is posted in it, and its credits, counters and
    /// completions are dropped and counted (PROTOCOL R13, R50). What was posted in it waits for
    /// its fence and for the receiver's answer; what was not goes over other paths at once. False:
    /// it is over already, or was never there.
    pub fn close_path(&mut self, path: PathId, generation: Generation) -> bool {
        if !self.paths.accepts(path, generation) {
            return false;
        }
        if !planted(Bug::PostsAfterFence) {
            self.paths.retire(path, generation);
        }
        self.closing[path.index()] = Some(Closing {
            generation,
            is_fenced: false,
            is_answered: false,
        });
        self.rehome();
        true
    }

    /// Whether no generation of the path waits for a fence or an answer, so that a new one may
    /// begin.
    pub fn is_settled(&self, path: PathId) -> bool {
        self.closing[path.index()].is_none()
    }

    /// Whether the path has a generation that is over and not fenced.
    pub fn is_unfenced(&self, path: PathId) -> bool {
        self.unfenced >> path.index() & 1 == 1
    }

    /// Takes the receiver's answer. Only the first for each generation counts (PROTOCOL R52); a
    /// later one may still say that the target is fenced by now. False: it said nothing new.
    pub fn handle_answer(&mut self, answer: &Answer) -> Result<bool, ProtocolError> {
        let Some(mut closing) = self.closing_of(answer.path, answer.generation) else {
            self.statistics.stale_answers += 1;
            return Ok(false);
        };
        if closing.is_answered && planted(Bug::LateFenceIsNotHeard) {
            return Ok(false);
        }
        let is_news = !closing.is_answered || (answer.is_fenced && !closing.is_fenced);
        if !closing.is_answered || planted(Bug::EachAnswerCounts) {
            self.check_answer(answer)?;
            for seq in (self.delivered.0..self.credited.0).map(Seq) {
                let message = self.messages.get_mut(seq);
                if message.stage != Stage::Submitted {
                    continue;
                }
                message.arrived |= answer.arrived(seq) & message.on_path(answer.path);
                message.arrived &= message.posted;
            }
            self.statistics.eager_lost += self.eagers.settle(answer);
            self.confirm(answer.first);
        }
        closing.is_answered = true;
        closing.is_fenced |= answer.is_fenced;
        self.closing[answer.path.index()] = Some(closing);
        self.settle(answer.path);
        self.statistics.stale_answers += u64::from(!is_news);
        Ok(is_news)
    }

    /// The source's queue pair is in the error state and drained, or its device is gone, and the
    /// quarantine has passed since: that stands in for the receiver's fence, never for its answer
    /// (PROTOCOL R53).
    pub fn handle_quarantine_over(&mut self, path: PathId, generation: Generation) -> bool {
        let Some(closing) = self
            .closing_of(path, generation)
            .filter(|closing| !closing.is_fenced)
        else {
            return false;
        };
        self.closing[path.index()] = Some(Closing {
            is_fenced: true,
            ..closing
        });
        self.settle(path);
        true
    }

    /// Takes the count of a receiver that has closed its end: the last word about what was
    /// delivered, whichever paths are left.
    pub fn handle_goodbye(&mut self, delivered: u64) -> Result<(), ProtocolError> {
        if planted(Bug::GoodbyeIsIgnored) {
            return Ok(());
        }
        self.check_count(delivered)?;
        let is_all = planted(Bug::GoodbyeIsAll);
        self.confirm(if is_all { self.posted } else { Seq(delivered) });
        self.confirm_eagers(delivered);
        // Its counters and answers may still say so when the eager sends are long released.
        if !planted(Bug::GoodbyeIsForgotten) {
            self.goodbye = self.goodbye.max(Seq(delivered));
        }
        Ok(())
    }

    /// The receiver has all messages before `first`. A count may run ahead of the credits of eager
    /// messages; what lies beyond these is taken when they are there.
    pub(super) fn confirm(&mut self, first: Seq) {
        let first = first.min(self.posted);
        self.delivered = if planted(Bug::CountersFall) {
            first
        } else {
            self.delivered.max(first)
        };
    }

    pub(super) fn closing_of(&self, path: PathId, generation: Generation) -> Option<Closing> {
        self.closing[path.index()].filter(|closing| closing.generation == generation)
    }

    pub(super) fn check_count(&self, delivered: u64) -> Result<(), ProtocolError> {
        let posted = self.countable().max(self.goodbye.0);
        if delivered > posted && !planted(Bug::CountersAreBelieved) {
            return Err(ProtocolError::CounterBeyondPosted {
                confirmed: delivered,
                posted,
            });
        }
        Ok(())
    }

    /// No peer may claim what was never posted (PROTOCOL R18).
    fn check_answer(&self, answer: &Answer) -> Result<(), ProtocolError> {
        self.check_count(answer.first.0)?;
        // The receiver may have given eager messages to receives whose credits are not here yet.
        let mut eager = self.unbound_ahead();
        for index in 0..u64::from(answer.count) {
            let seq = answer.first.plus(index);
            let claimed = answer.arrived(seq);
            let posted = if seq < self.delivered.max(self.goodbye) {
                u64::MAX
            } else if self.is_submitted(seq) {
                self.messages.get(seq).posted
            } else if claimed == 1 && eager > 0 {
                eager -= 1;
                1
            } else {
                0
            };
            if claimed & !posted != 0 && !planted(Bug::AnswersAreBelieved) {
                return Err(ProtocolError::SegmentNeverPosted(seq));
            }
        }
        Ok(())
    }

    /// Paths with a generation that is over and not fenced, one bit each.
    pub(super) fn compute_unfenced(&self) -> u16 {
        (0..PATHS_MAX).fold(0, |mask, index| {
            let is_open = self.closing[index].is_some_and(|closing| !closing.is_fenced);
            mask | u16::from(is_open) << index
        })
    }

    /// Delivered, and no generation that held the message can still read it (PROTOCOL R54).
    pub(super) fn is_complete(&self, seq: Seq) -> bool {
        if planted(Bug::DoneIsPosted) {
            return seq < self.posted;
        }
        let is_read = self.messages.get(seq).held & self.unfenced != 0
            || (self.unfenced != 0 && planted(Bug::AllWaitForFences));
        seq < self.delivered && (!is_read || planted(Bug::DoneUnfenced))
    }

    /// The watchdog's view of a path: what was posted on it and is not delivered. What other paths
    /// achieve does not count (PROTOCOL R60).
    pub fn work(&self, path: PathId) -> Work {
        let bit = 1 << path.index();
        let completed = self.paths.get(path).map_or(0, |state| state.completed());
        let mut work = Work {
            is_waiting: false,
            progress: completed,
            bytes: 0,
        };
        for seq in (self.delivered.0..self.credited.0).map(Seq) {
            let message = self.messages.get(seq);
            if message.stage != Stage::Submitted || message.held & bit == 0 {
                continue;
            }
            if !work.is_waiting {
                work.progress += seq.0;
            }
            work.is_waiting = true;
            work.bytes += u64::from(message.bytes);
        }
        let waiting = self.credit_wait().filter(|(place, _)| *place == path);
        if let Some((_, progress)) = waiting.filter(|_| !work.is_waiting) {
            work.is_waiting = true;
            work.progress += progress;
        }
        work
    }

    /// Paths that the oldest message was posted on that is posted and not delivered, one bit each.
    pub(crate) fn owing(&self) -> u16 {
        if self.delivered < self.posted {
            self.messages.get(self.delivered).held
        } else {
            0
        }
    }

    /// Whether a send waits for a generation of `path` that is over and not settled: for its fence,
    /// or for the answer that says what to post again.
    pub fn is_waiting_for_fence(&self, path: PathId) -> bool {
        let bit = 1 << path.index();
        let Some(closing) = self.closing[path.index()] else {
            return false;
        };
        self.is_early_unsettled(path, closing.generation)
            || (self.oldest.0..self.credited.0).map(Seq).any(|seq| {
                let message = self.messages.get(seq);
                message.stage == Stage::Submitted && message.held & bit != 0
            })
    }

    /// When a generation is both fenced and answered, what was posted in it and has not arrived
    /// is posted again, elsewhere (PROTOCOL R51, R53).
    fn settle(&mut self, path: PathId) {
        self.unfenced = self.compute_unfenced();
        let place = path.index();
        let is_settled = self.closing[place].is_some_and(|closing| {
            (closing.is_fenced || planted(Bug::ReplaysUnfenced))
                && (closing.is_answered || planted(Bug::ReplaysUnanswered))
        });
        if !is_settled {
            return;
        }
        self.closing[place] = None;
        for seq in (self.delivered.0..self.credited.0).map(Seq) {
            let message = self.messages.get_mut(seq);
            if message.stage != Stage::Submitted {
                continue;
            }
            let mut lacking = message.posted & !message.arrived & message.on_path(path);
            if planted(Bug::ReplaysAll) {
                lacking = message.posted & message.on_path(path);
            }
            if lacking == 0 {
                continue;
            }
            message.posted &= !lacking;
            if planted(Bug::ReplaysOne) {
                lacking &= lacking.wrapping_neg();
            }
            if planted(Bug::CutAnew) {
                let route = self.route.as_ref();
                let cut =
                    route.map(|route| Cut::new(message.bytes, route.entries(), self.segment_size));
                message.cut = cut.and_then(Result::ok).unwrap_or(message.cut);
            }
            for index in bits(lacking) {
                message.move_to(index, path);
                let bytes = message.cut.segment(index).map_or(0, |(_, part)| part.bytes);
                self.statistics.replayed_bytes += u64::from(bytes);
            }
            self.waiting[place] += lacking.count_ones();
            self.statistics.replayed_segments += u64::from(lacking.count_ones());
            self.posted = self.posted.min(seq);
        }
        for seq in (self.oldest.0..self.credited.0).map(Seq) {
            self.messages.get_mut(seq).held &= !(1 << place);
        }
        self.rehome();
    }

    /// Gives every segment that waits on a path that cannot post to one of the route that can, by
    /// weight. Those that were posted stay where they are until their generation is settled.
    pub(super) fn rehome(&mut self) {
        self.unfenced = self.compute_unfenced();
        let mut given = [0u64; PATHS_MAX];
        for seq in (self.delivered.0..self.credited.0).map(Seq) {
            let message = self.messages.get(seq);
            if message.stage != Stage::Submitted || message.is_posted() {
                continue;
            }
            for index in bits(message.all() & !message.posted) {
                let message = self.messages.get(seq);
                let old = message.home_of(index);
                let waits = planted(Bug::UnpostedWaits) && !self.is_settled(old);
                if self.paths.is_live(old) || waits {
                    continue;
                }
                let bytes = message.cut.segment(index).map_or(0, |(_, part)| part.bytes);
                let Some(new) = self.lightest(&given) else {
                    return;
                };
                given[new.index()] += u64::from(bytes.max(1));
                let message = self.messages.get_mut(seq);
                if message.moved >> index & 1 == 1 {
                    self.waiting[old.index()] -= 1;
                } else {
                    self.statistics.moved_segments += 1;
                }
                message.move_to(index, new);
                self.waiting[new.index()] += 1;
            }
        }
    }

    /// The live path of the route that has been given least for its weight.
    fn lightest(&self, given: &[u64; PATHS_MAX]) -> Option<PathId> {
        let entries = self.route.as_ref()?.entries();
        let live = entries
            .iter()
            .filter(|entry| self.paths.is_live(entry.path));
        let load = |entry: &&crate::route::WeightedPath| {
            given[entry.path.index()].saturating_mul(1 << 20) / u64::from(entry.weight)
        };
        live.min_by_key(load).map(|entry| entry.path)
    }

    /// The next segment that was moved to `path`, oldest message first.
    pub(super) fn next_moved(&mut self, path: PathId) -> Option<(Seq, u8, Segment)> {
        if self.waiting[path.index()] == 0 {
            return None;
        }
        for seq in (self.delivered.0..self.filled.0).map(Seq) {
            let message = self.messages.get(seq);
            let waiting = message.moved & !message.posted;
            for index in bits(waiting) {
                if message.home_of(index) == path {
                    let (_, segment) = message.cut.segment(index)?;
                    self.waiting[path.index()] -= 1;
                    return Some((seq, index, segment));
                }
            }
        }
        None
    }
}
