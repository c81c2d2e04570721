//! Queue pairs that helpers are stopping. A device whose firmware hangs may block the verb that
//! does it for a minute, which neither NCCL's thread nor the steward can afford (PROTOCOL R26).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use r2ccl_core::{Generation, PathId};
use r2ccl_fabric::{QueuePair, helpers};

use super::shared::Shared;

/// A queue pair that a helper has stopped.
pub struct Stopped {
    /// Its path.
    pub path: PathId,
    /// Its generation.
    pub generation: Generation,
    /// The queue pair, in error and drained as far as its device answered.
    pub queue_pair: Box<dyn QueuePair>,
}

/// The queue pairs of one end that are away.
#[derive(Default)]
pub struct Fences {
    away: usize,
    back: Arc<Back>,
}

#[derive(Default)]
struct Back {
    stopped: Mutex<Vec<Stopped>>,
    news: Condvar,
}

impl Fences {
    /// Has a helper stop a queue pair; true: it will come back. Without a helper it is dropped,
    /// which stops it here and now.
    pub fn begin(
        &mut self,
        shared: &Arc<Shared>,
        (path, generation): (PathId, Generation),
        mut queue_pair: Box<dyn QueuePair>,
    ) -> bool {
        let (back, shared) = (self.back.clone(), shared.clone());
        let job = move || {
            queue_pair.set_error();
            back.stopped.lock().push(Stopped {
                path,
                generation,
                queue_pair,
            });
            back.news.notify_all();
            shared.urge();
        };
        let is_begun = helpers::submit(Box::new(job)).is_ok();
        self.away += usize::from(is_begun);
        is_begun
    }

    /// Those that are back; one look at a counter when none is away.
    pub fn take(&mut self) -> Vec<Stopped> {
        if self.away == 0 {
            return Vec::new();
        }
        let stopped = std::mem::take(&mut *self.back.stopped.lock());
        self.away -= stopped.len();
        stopped
    }

    /// Waits until all are stopped, for `limit` at the most; returns whether they are.
    pub fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut stopped = self.back.stopped.lock();
        while stopped.len() < self.away {
            if self
                .back
                .news
                .wait_until(&mut stopped, deadline)
                .timed_out()
            {
                return stopped.len() >= self.away;
            }
        }
        true
    }
}
