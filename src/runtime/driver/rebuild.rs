//! Generations end and begin: what may sleep runs on helpers.

use r2ccl_core::wire::path_frame::Endpoint;
use r2ccl_core::{FenceOutcome, Generation, PathId};
use r2ccl_fabric::helpers;

use super::{Driver, Made, Role, poll};
use crate::runtime::error::{Error, Result};
use crate::runtime::fences::Stopped;
use crate::runtime::memory::check_spare;
use crate::runtime::path::Path;
use crate::runtime::ring::PathMemory;
use crate::runtime::shared::{PathNic, Shared};

impl<H: Role> Driver<H> {
    /// Has a queue pair stopped (PROTOCOL R52).
    pub(super) fn fence(&mut self, id: PathId, generation: Generation) {
        let is_away = match self.paths.find(id, generation) {
            Some(path) => path.lend().is_none_or(|queue_pair| {
                self.fences
                    .begin(&self.shared, (id, generation), queue_pair)
            }),
            None => false,
        };
        if !is_away {
            self.end
                .handle_fenced(self.clock.now, id, generation, FenceOutcome::Drained);
        }
    }

    /// A queue pair has been stopped: takes what had arrived before.
    pub(super) fn take_stopped(&mut self, stopped: Stopped) {
        let (id, generation) = (stopped.path, stopped.generation);
        let now = self.clock.read();
        if let Some(path) = self.paths.find_any(id, generation) {
            path.restore(stopped.queue_pair);
            loop {
                let polled = poll(&mut self.end, path, &mut self.clock, &mut |_| ());
                if let Some(error) = polled.broken {
                    self.fate.on_protocol_error(&self.shared.label, error);
                }
                if !polled.is_any {
                    break;
                }
            }
        }
        self.end
            .handle_fenced(now, id, generation, FenceOutcome::Drained);
        self.is_stirred = true;
    }

    pub(super) fn create(&mut self, id: PathId, generation: Generation) {
        let Some(nic) = self.shared.nics.get(id.index()).cloned() else {
            return self
                .end
                .handle_created(self.clock.now, id, generation, None);
        };
        let (shared, inbox) = (self.shared.clone(), self.made.clone());
        let job = move || {
            let made = make::<H>(&shared, &nic, (id, generation));
            if let Err(error) = &made {
                tracing::debug!("{}: path {}: {error}", shared.label, id.index());
            }
            inbox.put((id, generation, made.ok()));
            shared.urge();
        };
        if helpers::submit(Box::new(job)).is_err() {
            self.end
                .handle_created(self.clock.now, id, generation, None);
        }
    }

    pub(super) fn connect(&mut self, id: PathId, generation: Generation, remote: &Endpoint) {
        let path = self.paths.find(id, generation);
        let connected = path.map(|path| path.connect(remote));
        if let Some(Err(error)) = &connected {
            tracing::debug!("{}: path {}: {error}", self.shared.label, id.index());
        }
        let ok = matches!(connected, Some(Ok(())));
        self.end
            .handle_connected(self.clock.now, id, generation, ok);
    }

    /// A helper has made this end of a generation, or could not.
    pub(super) fn take_made(&mut self, made: Made<H::Memory>) {
        let (id, generation, path) = made;
        let now = self.clock.read();
        let endpoint = path.as_ref().map(|path| path.endpoint());
        if let Some(path) = path {
            self.paths.insert(path);
        }
        self.end.handle_created(now, id, generation, endpoint);
        self.is_stirred = true;
    }
}

/// Makes this end of a generation, on one NIC; may sleep.
pub fn make_path<H: Role>(
    nic: &PathNic,
    (id, generation): (PathId, Generation),
) -> Result<Path<H::Memory>> {
    let memory = H::Memory::new(&nic.cache)?;
    let made = nic.device.create_queue_pair(H::QUEUE_PAIR);
    let mut queue_pair = made.map_err(|error| Error::System(error.to_string()))?;
    // Before the peer hears of it: whoever knows our queue pair may write at once.
    if !H::IS_SENDER {
        let posted = queue_pair.post_receives(H::QUEUE_PAIR.receive_depth);
        posted.map_err(|error| Error::System(error.to_string()))?;
    }
    let memory = (memory, nic.tally.count());
    Ok(Path::new(id, generation, queue_pair, memory))
}

/// The same for a connection that is there: its buffers are registered on that NIC, too.
fn make<H: Role>(
    shared: &Shared,
    nic: &PathNic,
    (id, generation): (PathId, Generation),
) -> Result<Box<Path<H::Memory>>> {
    check_spare()?;
    let path = make_path::<H>(nic, (id, generation))?;
    let keys = shared.regions.activate(id, &nic.cache)?;
    if !H::IS_SENDER {
        shared.announce(&keys);
    }
    Ok(Box::new(path))
}
