//! The paths of one connection: generation, condition and what is on the send queue.

use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, Seq, WorkId, WorkKind};
use crate::limits::{PATHS_MAX, SEND_DEPTH, SIGNAL_EVERY};
use crate::planted::{Bug, planted};

/// What may be done with a generation of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Connected but not in service: nothing is posted yet, what arrives counts.
    Proving,
    /// Work may be posted, and what arrives counts.
    Live,
    /// A completion reported an error, or the receiver is closing it: nothing more is posted,
    /// what arrives still counts.
    Failed,
    /// Over: nothing is posted and everything that arrives is dropped (PROTOCOL R13).
    Retired,
}

/// State of one path, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSnapshot {
    /// The newest generation.
    pub generation: Generation,
    /// What may be done with it.
    pub condition: Condition,
    /// Work requests posted in this generation.
    pub posted: u64,
    /// Of those, not known to be complete.
    pub outstanding: u32,
}

/// One path in its newest generation. Positions count the work requests of its queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    id: PathId,
    generation: Generation,
    condition: Condition,
    posted: u64,
    completed: u64,
}

impl Path {
    /// Work requests posted and not known to be complete.
    pub(crate) fn outstanding(&self) -> u32 {
        // Bounded by SEND_DEPTH in `post`.
        (self.posted - self.completed) as u32
    }

    /// Work requests posted in this generation.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// Work requests known to be complete.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// The generation.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether the path may post now: alive, with room on its send queue (PROTOCOL R14).
    pub(crate) fn can_post(&self) -> bool {
        let has_room = self.outstanding() < SEND_DEPTH || planted(Bug::QueueHasNoEnd);
        self.condition == Condition::Live && has_room
    }

    /// Counts one work request as posted and names it. The flag says whether to signal it:
    /// every [`SIGNAL_EVERY`]th is, whatever it carries.
    pub(crate) fn post(&mut self, kind: WorkKind, seq: Seq, segment: u8) -> (WorkId, bool) {
        let id = WorkId::new(kind, self.id, self.generation, self.posted, seq, segment);
        self.posted += 1;
        let is_signaled = self.posted % u64::from(SIGNAL_EVERY) == 0;
        (id, is_signaled && !planted(Bug::NothingIsSignalled))
    }

    /// Whether `generation` of this path is over.
    pub(crate) fn is_over(&self, generation: Generation) -> bool {
        generation < self.generation
            || (generation == self.generation && self.condition == Condition::Retired)
    }

    /// Takes back the newest work request; false when `work` is not that.
    pub(crate) fn take_back(&mut self, work: WorkId) -> bool {
        let newest = self.outstanding() > 0
            && work.generation() == self.generation
            && work.age(self.posted) == 0;
        if newest {
            self.posted -= 1;
        }
        newest
    }

    /// Work requests complete in the order of posting: `work` and all before it are done.
    fn complete(&mut self, work: WorkId) {
        let age = work.age(self.posted);
        if age < u64::from(self.outstanding()) {
            self.completed = if planted(Bug::CompletionsCountOne) {
                self.completed + 1
            } else {
                self.posted - age
            };
        }
    }
}

/// All paths of one end of a connection.
#[derive(Debug)]
pub(crate) struct PathTable {
    paths: [Option<Path>; PATHS_MAX],
}

impl PathTable {
    pub(crate) const fn new() -> Self {
        Self {
            paths: [None; PATHS_MAX],
        }
    }

    /// Adds a path, or brings one back under a new generation (PROTOCOL R12).
    pub(crate) fn add(
        &mut self,
        id: PathId,
        generation: Generation,
        condition: Condition,
    ) -> Result<(), ProtocolError> {
        let entry = &mut self.paths[id.index()];
        if let Some(last) = entry {
            if last.condition != Condition::Retired {
                return Err(ProtocolError::PathInUse(id));
            }
            if generation <= last.generation {
                return Err(ProtocolError::GenerationNotNewer(id));
            }
        }
        *entry = Some(Path {
            id,
            generation,
            condition,
            posted: 0,
            completed: 0,
        });
        Ok(())
    }

    /// The path in whatever condition.
    pub(crate) fn get(&self, id: PathId) -> Option<&Path> {
        self.paths[id.index()].as_ref()
    }

    /// The path for posting.
    pub(crate) fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.paths[id.index()].as_mut()
    }

    /// An error for paths that were never added.
    pub(crate) fn require(&self, id: PathId) -> Result<&Path, ProtocolError> {
        self.get(id).ok_or(ProtocolError::UnknownPath(id))
    }

    /// Whether what arrives in this generation of the path counts (PROTOCOL R13).
    pub(crate) fn accepts(&self, id: PathId, generation: Generation) -> bool {
        self.get(id).is_some_and(|path| {
            path.generation == generation && path.condition != Condition::Retired
        })
    }

    /// Takes a generation that was being proved into service.
    pub(crate) fn serve(&mut self, id: PathId) {
        let path = self.get_mut(id);
        if let Some(path) = path.filter(|path| path.condition == Condition::Proving) {
            path.condition = Condition::Live;
        }
    }

    /// Lets nothing more be posted in a generation; false when that is so already.
    pub(crate) fn stop(&mut self, id: PathId, generation: Generation) -> bool {
        let path = self
            .get_mut(id)
            .filter(|path| path.generation == generation && path.condition != Condition::Retired);
        let stopped = path.map(|path| core::mem::replace(&mut path.condition, Condition::Failed));
        matches!(stopped, Some(Condition::Proving | Condition::Live))
    }

    /// Whether work may be posted on the path, but for a full queue.
    pub(crate) fn is_live(&self, id: PathId) -> bool {
        self.condition(id) == Some(Condition::Live)
    }

    /// Newest generation of a path.
    pub(crate) fn generation(&self, id: PathId) -> Option<Generation> {
        self.get(id).map(|path| path.generation)
    }

    /// Ends a generation; an older or unknown one is over already.
    pub(crate) fn retire(&mut self, id: PathId, generation: Generation) {
        if let Some(path) = self
            .get_mut(id)
            .filter(|path| path.generation == generation)
        {
            path.condition = Condition::Retired;
        }
    }

    /// Accounts for a completion; false when its generation is over.
    pub(crate) fn complete(&mut self, work: WorkId, ok: bool) -> bool {
        let is_live = self.accepts(work.path(), work.generation());
        if !is_live && !planted(Bug::OldCompletionsCount) {
            return false;
        }
        if let Some(path) = self.get_mut(work.path()) {
            if ok {
                path.complete(work);
            } else {
                path.condition = Condition::Failed;
            }
        }
        true
    }

    /// Condition of the newest generation of a path.
    pub(crate) fn condition(&self, id: PathId) -> Option<Condition> {
        self.get(id).map(|path| path.condition)
    }

    /// All paths, for people.
    pub(crate) fn snapshot(&self) -> [Option<PathSnapshot>; PATHS_MAX] {
        self.paths.map(|entry| {
            entry.map(|path| PathSnapshot {
                generation: path.generation,
                condition: path.condition,
                posted: path.posted,
                outstanding: path.outstanding(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Condition, PathTable};
    use crate::error::ProtocolError;
    use crate::ids::{Generation, PathId, Seq, WorkKind};
    use crate::limits::{SEND_DEPTH, SIGNAL_EVERY};

    const PATH: PathId = PathId::PRIMARY;

    fn live() -> PathTable {
        let mut table = PathTable::new();
        let live = Condition::Live;
        table.add(PATH, Generation(1), live).expect("first");
        table
    }

    /// PROTOCOL R12: back only when retired, and only under a number never used before.
    #[test]
    fn generations_only_rise() {
        let mut table = live();
        let live = Condition::Live;
        assert_eq!(
            table.add(PATH, Generation(2), live),
            Err(ProtocolError::PathInUse(PATH))
        );
        table.retire(PATH, Generation(0));
        assert_eq!(table.condition(PATH), Some(Condition::Live));
        table.retire(PATH, Generation(1));
        for old in [0, 1] {
            let error = ProtocolError::GenerationNotNewer(PATH);
            assert_eq!(table.add(PATH, Generation(old), live), Err(error));
        }
        assert!(!table.accepts(PATH, Generation(1)));
        table.add(PATH, Generation(2), live).expect("newer");
        assert!(table.accepts(PATH, Generation(2)) && !table.accepts(PATH, Generation(1)));
    }

    /// PROTOCOL R14: a full queue posts nothing, and one signalled completion frees all before it.
    #[test]
    fn a_completion_covers_all_before_it() {
        let mut table = live();
        let path = table.get_mut(PATH).expect("added");
        let mut signalled = [None; 3];
        for position in 0..SEND_DEPTH {
            assert!(path.can_post());
            let (work, signal) = path.post(WorkKind::Segment, Seq(u64::from(position)), 0);
            assert_eq!(signal, position % SIGNAL_EVERY == SIGNAL_EVERY - 1);
            if signal && position / SIGNAL_EVERY < 3 {
                signalled[(position / SIGNAL_EVERY) as usize] = Some(work);
            }
        }
        assert!(!path.can_post());
        let [first, second, _] = signalled.map(|work| work.expect("signalled"));
        let mut left = SEND_DEPTH;
        for (work, freed) in [(second, 2), (first, 0), (second, 0)] {
            assert!(table.complete(work, true));
            left -= freed * SIGNAL_EVERY;
            assert_eq!(table.get(PATH).expect("added").outstanding(), left);
        }
    }

    #[test]
    fn an_error_is_final_for_its_generation() {
        let mut table = live();
        let (work, _) = table
            .get_mut(PATH)
            .expect("added")
            .post(WorkKind::Credits, Seq(0), 0);
        assert!(table.complete(work, false));
        assert!(table.complete(work, true));
        assert_eq!(table.condition(PATH), Some(Condition::Failed));
        assert!(!table.get(PATH).expect("added").can_post());
        table.retire(PATH, Generation(1));
        assert!(!table.complete(work, true));
    }

    #[test]
    fn only_the_newest_is_taken_back() {
        let mut table = live();
        let path = table.get_mut(PATH).expect("added");
        let (older, _) = path.post(WorkKind::Segment, Seq(0), 0);
        let (newer, _) = path.post(WorkKind::Segment, Seq(1), 0);
        assert!(!path.take_back(older));
        assert!(path.take_back(newer));
        assert!(path.take_back(older));
        assert!(!path.take_back(older));
    }
}
