//! Generations that end, as the receiver sees them: the target's fence and the answer.

use super::Receiver;
use crate::end::Work;
use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, Seq};
use crate::limits::WINDOW;
use crate::paths::Condition;
use crate::planted::{Bug, planted};
use crate::recovery::{Answer, EagerReport};

impl Receiver {
    /// Like [`Receiver::add_path`], for a generation that has to prove itself first: what arrives
    /// counts, but nothing is posted before [`Receiver::serve_path`].
    pub fn add_proving_path(
        &mut self,
        path: PathId,
        generation: Generation,
    ) -> Result<(), ProtocolError> {
        self.paths.add(path, generation, Condition::Proving)?;
        self.eagers.begin(path);
        Ok(())
    }

    /// Takes a path into service that was added by [`Receiver::add_proving_path`].
    pub fn serve_path(&mut self, path: PathId) {
        self.paths.serve(path);
    }

    /// Newest generation of a path; `None` when it was never added.
    pub fn generation(&self, path: PathId) -> Option<Generation> {
        self.paths.generation(path)
    }

    /// The path that carries credits and counters.
    pub fn credit_path(&self) -> Option<PathId> {
        self.credit_path
    }

    /// Begins the end of a generation, for good (PROTOCOL R50): nothing more is posted in it. What
    /// arrives still counts, until its queue pair is silent and [`Receiver::handle_fence`] says so.
    /// False: that is so already, or it was never there.
    pub fn close_path(&mut self, path: PathId, generation: Generation) -> bool {
        let was_open = self.paths.stop(path, generation);
        if was_open {
            self.fenced &= !(1 << path.index());
        }
        was_open
    }

    /// The queue pair of a closed generation is silent (`is_fenced`), or nobody knows. Either way
    /// this is the commit point: from now on everything that arrives in this generation is dropped,
    /// so that [`Receiver::answer`] stays true (PROTOCOL R52). A fence may still follow an
    /// unknown. False: it said nothing new.
    pub fn handle_fence(&mut self, path: PathId, generation: Generation, is_fenced: bool) -> bool {
        let bit = 1 << path.index();
        if self.paths.generation(path) != Some(generation) {
            return false;
        }
        match self.paths.condition(path) {
            Some(Condition::Retired) if is_fenced && self.fenced & bit == 0 => {
                self.fenced |= bit;
                true
            }
            Some(Condition::Failed) => {
                self.eagers.end(path);
                self.paths.retire(path, generation);
                self.fenced = self.fenced & !bit | u16::from(is_fenced) << path.index();
                true
            }
            _ => false,
        }
    }

    /// What had arrived when the newest generation of a path ended; `None` while it has not, or
    /// for another one.
    pub fn answer(&self, path: PathId, generation: Generation) -> Option<Answer> {
        let is_over = self.paths.generation(path) == Some(generation)
            && (self.paths.condition(path) == Some(Condition::Retired)
                || planted(Bug::AnswersEarly));
        is_over.then(|| {
            let is_fenced = self.fenced >> path.index() & 1 == 1;
            self.answer_of(path, generation, is_fenced)
        })
    }

    /// The answer about a generation in which this end never let anything arrive.
    pub fn empty_answer(&self, path: PathId, generation: Generation) -> Answer {
        Answer {
            eager: EagerReport::default(),
            ..self.answer_of(path, generation, true)
        }
    }

    fn answer_of(&self, path: PathId, generation: Generation, is_fenced: bool) -> Answer {
        let mut answer = Answer {
            path,
            generation,
            is_fenced,
            eager: self.eagers.report(path),
            first: self.delivered,
            count: 0,
            arrived: [0; WINDOW],
        };
        let open = (self.delivered.0..self.opened.0).map(Seq);
        for ((index, seq), arrived) in (1..).zip(open).zip(&mut answer.arrived) {
            *arrived = self.messages.get(seq).arrived();
            if *arrived != 0 {
                answer.count = index;
            }
        }
        answer
    }

    /// The watchdog's view of a path: what is expected of the credit path while messages are open
    /// (PROTOCOL R60).
    pub fn work(&self, path: PathId) -> Work {
        let is_credit_path = self.credit_path == Some(path);
        let completed = self.paths.get(path).map_or(0, |state| state.completed());
        let is_unsure = self.resent.is_some_and(|(place, generation, posted)| {
            let state = self
                .paths
                .get(path)
                .filter(|state| state.generation() == generation);
            place == path && state.is_some_and(|state| state.completed() < posted)
        });
        let is_unsure = is_unsure && !planted(Bug::ResentIsUnwatched);
        let is_watching = is_credit_path && !planted(Bug::ReceiverSleeps);
        Work {
            is_waiting: is_watching && (self.is_waiting() || is_unsure),
            progress: completed + self.delivered.0,
            bytes: 0,
        }
    }

    /// Whether messages are open that have not arrived.
    pub fn is_waiting(&self) -> bool {
        self.delivered < self.opened
    }
}
