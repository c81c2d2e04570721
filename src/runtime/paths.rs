//! The queue pairs of one end of a connection: for each path the generation in use, and those that
//! are over.

use std::time::{Duration, Instant};

use r2ccl_core::limits::PATHS_MAX;
use r2ccl_core::{Generation, PathId};
use r2ccl_fabric::helpers;

use super::path::Path;

/// All queue pairs of an end.
pub struct Paths<M> {
    current: [Option<Box<Path<M>>>; PATHS_MAX],
    /// Fenced; kept until nothing of them can be on its way any more (PROTOCOL R6).
    retired: Vec<Retired<M>>,
    /// Generations up to this one, by path, are not needed any more.
    released: [Option<Generation>; PATHS_MAX],
    quarantine: Duration,
}

struct Retired<M> {
    path: Box<Path<M>>,
    since: Instant,
}

impl<M: Send + 'static> Paths<M> {
    /// None yet. Those that are over are kept for `quarantine`.
    pub fn new(quarantine: Duration) -> Self {
        Self {
            current: [const { None }; PATHS_MAX],
            retired: Vec::new(),
            released: [None; PATHS_MAX],
            quarantine,
        }
    }

    /// Adds a generation that was made. One that has been released meanwhile is not needed any
    /// more.
    pub fn insert(&mut self, path: Box<Path<M>>) {
        let id = path.id;
        if let Some(old) = self.current[id.index()].replace(path) {
            self.keep(old);
        }
        self.retire_released(id);
    }

    /// The generation in use.
    pub fn get_mut(&mut self, id: PathId) -> Option<&mut Path<M>> {
        self.current[id.index()].as_deref_mut()
    }

    /// The generation in use, if it is this one.
    pub fn find(&mut self, id: PathId, generation: Generation) -> Option<&mut Path<M>> {
        self.get_mut(id)
            .filter(|path| path.generation == generation)
    }

    /// This generation, in use or over.
    pub fn find_any(&mut self, id: PathId, generation: Generation) -> Option<&mut Path<M>> {
        let retired = self.retired.iter_mut().map(|retired| &mut *retired.path);
        let current = self.current[id.index()].as_deref_mut();
        retired
            .chain(current)
            .find(|path| path.id == id && path.generation == generation)
    }

    /// All in use.
    pub fn iter(&self) -> impl Iterator<Item = &Path<M>> {
        self.current.iter().filter_map(Option::as_deref)
    }

    /// All in use.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path<M>> {
        self.current.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// Generations of the path up to `up_to` are not needed any more.
    pub fn release(&mut self, id: PathId, up_to: Generation) {
        let released = &mut self.released[id.index()];
        *released = (*released).max(Some(up_to));
        self.retire_released(id);
    }

    fn retire_released(&mut self, id: PathId) {
        let up_to = self.released[id.index()];
        let entry = &mut self.current[id.index()];
        if let Some(path) = entry.take_if(|path| Some(path.generation) <= up_to) {
            self.keep(path);
        }
    }

    fn keep(&mut self, mut path: Box<Path<M>>) {
        path.fence();
        let since = Instant::now();
        self.retired.push(Retired { path, since });
    }

    /// Destroys what has been over for long enough and is needed no more, on a helper, since a
    /// device may block. Returns whether more is left.
    pub fn sweep(&mut self) -> bool {
        if self.retired.is_empty() {
            return false;
        }
        let (released, quarantine) = (&self.released, self.quarantine);
        let is_needed = |retired: &Retired<M>| {
            let path = &retired.path;
            path.is_lent()
                || Some(path.generation) > released[path.id.index()]
                || retired.since.elapsed() < quarantine
        };
        let retired = std::mem::take(&mut self.retired);
        let (needed, over): (_, Vec<_>) = retired.into_iter().partition(is_needed);
        self.retired = needed;
        if !over.is_empty() {
            // Without a helper they are destroyed here.
            let _ = helpers::submit(Box::new(move || drop(over)));
        }
        !self.retired.is_empty()
    }

    /// Gives up the memory of what is still away: nobody knows when the device lets go of it
    /// (PROTOCOL R6).
    pub fn leak_lent(&mut self) {
        let retired = self.retired.drain(..).map(|retired| retired.path);
        let current = self.current.iter_mut().filter_map(Option::take);
        for path in retired.chain(current).filter(|path| path.is_lent()) {
            Box::leak(path);
        }
    }

    /// Whether somebody must call again for posted work to leave this host.
    pub fn has_backlog(&self) -> bool {
        self.iter().any(Path::has_backlog)
    }

    /// Stops all queue pairs: nothing lands through them and nothing is read any more.
    pub fn fence(&mut self) {
        self.iter_mut().for_each(Path::fence);
    }
}
