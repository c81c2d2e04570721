//! What the helper threads of a runtime do: fence, make and connect queue pairs.

use r2ccl_core::limits::RECEIVE_DEPTH;
use r2ccl_core::wire::path_frame::Endpoint;
use r2ccl_core::{FenceOutcome, Generation, PathId};

use crate::bug::Bug;
use crate::check::Class;
use crate::connection::{Held, Mailbox, Side};
use crate::nic::{Completion, QpId, State, Status};
use crate::numbers::{STARTS, start_apart};
use crate::queue::{MICROSECOND, MILLISECOND, Nanos, SECOND};
use crate::slot::Slots;
use crate::world::{EndId, Event, Owner, World};

/// How often a helper that hangs in a command looks whether it still does.
pub(crate) const HANG_STEP: Nanos = 5 * MILLISECOND;
/// Queue pairs of a path at the most: those of attempts that failed are kept for a quarantine, and
/// ports that come and go make each of them begin early: with five that flap 33 were seen.
const HELD_MAX: usize = 48;

impl World {
    /// Whether a process is dead or stands still; then `event` waits for it.
    pub(crate) fn is_stuck(&mut self, end: EndId, event: Event) -> bool {
        let host = self.connections[end.connection].host(end.side);
        let host = &mut self.hosts[host];
        if host.alive && host.paused {
            host.waiting.push(event);
        }
        !host.alive || host.paused
    }

    /// A helper tries to move a queue pair to error. Where commands hang, it hangs.
    pub(crate) fn try_fence(&mut self, end: EndId, path: PathId, generation: Generation) {
        if self.is_stuck(end, Event::Fence(end, path, generation)) {
            return;
        }
        let Some(held) = self.connections[end.connection].held(end.side, path, generation) else {
            return;
        };
        let nic = &self.fabric.nics[self.nics.qps[held.qp].nic];
        let is_lie = match self.bug {
            Some(Bug::FenceIsALie) => true,
            Some(Bug::TargetFenceIsALie) => end.side == Side::Receiver,
            Some(Bug::HungCountsAsDrained) => nic.dead || nic.hung,
            _ => false,
        };
        if is_lie {
            return self.fenced(end, path, generation, FenceOutcome::Drained);
        }
        if nic.dead {
            // Mostly the driver says so. When the device is back, its queue pairs are gone.
            if !held.fence_wanted && self.random.percent(70) {
                self.want_fence(end, held.qp);
                self.fenced(end, path, generation, FenceOutcome::DeviceLost);
            }
            return self
                .queue
                .after(HANG_STEP, Event::Fence(end, path, generation));
        }
        if nic.hung {
            return self
                .queue
                .after(HANG_STEP, Event::Fence(end, path, generation));
        }
        self.want_fence(end, held.qp);
        let now = self.queue.now();
        let is_drained = self.nics.qps[held.qp].fenced_at.is_some();
        self.nics.fail(held.qp, Status::Flushed, now);
        // Drained before: the marker goes through at once.
        if is_drained || self.bug == Some(Bug::BusIsForgotten) {
            self.nics.qps[held.qp]
                .completions
                .push_back(Completion::Drained);
        }
        self.wake_at(end, now);
    }

    fn want_fence(&mut self, end: EndId, qp: QpId) {
        for entry in &mut self.state(end).held {
            entry.fence_wanted |= entry.qp == qp;
        }
    }

    /// A fence has come to an end.
    pub(crate) fn fenced(
        &mut self,
        end: EndId,
        path: PathId,
        generation: Generation,
        outcome: FenceOutcome,
    ) {
        let now = self.time();
        self.connections[end.connection].handle_fenced(end.side, now, path, generation, outcome);
        self.wake_at(end, self.queue.now());
    }

    pub(crate) fn make_qp(&mut self, end: EndId, path: PathId, generation: Generation) -> Held {
        let nic = self.connections[end.connection].paths[path.index()].at(end.side);
        let receives = if end.side == Side::Receiver {
            RECEIVE_DEPTH
        } else {
            0
        };
        // Fresh, so that no late packet of another queue pair with this number fits.
        let start = match self.bug {
            Some(Bug::NumberIsFree | Bug::PacketsCountFromZero) => 0,
            _ => start_apart(self.nics.qps.len(), self.random.below(STARTS)),
        };
        let port = match self.bug {
            Some(Bug::AddressIsKept) => 0,
            _ => self.fabric.nics[nic].address,
        };
        let qp = self.nics.create((nic, port), receives, start);
        let memory = if end.side == Side::Sender {
            self.mailboxes.push(Mailbox::default());
            self.mailboxes.len() - 1
        } else {
            self.slots.push(Slots::default());
            self.slots.len() - 1
        };
        self.owners.push(Owner { end, memory });
        let held = Held {
            path,
            generation,
            qp,
            remote: 0,
            fence_wanted: false,
            is_proved: false,
            taken: 0,
        };
        self.state(end).held.push(held);
        if self.fabric.nics[nic].dead {
            self.nics.lose(qp, self.queue.now());
        }
        let most = HELD_MAX * self.connections[end.connection].paths.len();
        if self.state(end).held.len() > most {
            let text = format!("{end:?} holds more than {most} queue pairs");
            self.fail(Class::Liveness, text);
        }
        held
    }

    /// A helper has made a queue pair, or could not.
    pub(crate) fn created(&mut self, end: EndId, path: PathId, generation: Generation) {
        let nic = self.connections[end.connection].paths[path.index()].at(end.side);
        let event = Event::Created(end, path, generation);
        if self.state(end).failed.is_some() || self.is_stuck(end, event) {
            return;
        }
        if self.fabric.nics[nic].hung {
            return self
                .queue
                .after(HANG_STEP, Event::Created(end, path, generation));
        }
        let endpoint = if self.fabric.nics[nic].dead || self.fabric.nics[nic].nameless {
            None
        } else {
            let held = self.make_qp(end, path, generation);
            let mut queue_pair = [0; 64];
            queue_pair[..8].copy_from_slice(&(held.qp as u64).to_le_bytes());
            queue_pair[8..12].copy_from_slice(&self.nics.qps[held.qp].port.to_le_bytes());
            let memory_address = self.owners[held.qp].memory as u64;
            Some(Endpoint {
                queue_pair,
                memory_address,
                memory_rkey: 0,
            })
        };
        let now = self.time();
        self.connections[end.connection].handle_created(end.side, now, path, generation, endpoint);
        self.wake_at(end, self.queue.now());
    }

    /// Tells a queue pair which one is at the other end, on which port, and which memory that
    /// offers.
    pub(crate) fn join(&mut self, end: EndId, qp: QpId, (peer, port): (QpId, u32), memory: u64) {
        (self.nics.qps[qp].peer, self.nics.qps[qp].peer_port) = (Some(peer), port);
        for entry in &mut self.state(end).held {
            if entry.qp == qp {
                entry.remote = memory;
            }
        }
    }

    pub(crate) fn connect_qp(
        &mut self,
        end: EndId,
        path: PathId,
        generation: Generation,
        remote: Endpoint,
    ) {
        let Some(held) = self.connections[end.connection].held(end.side, path, generation) else {
            return;
        };
        let (mut number, mut port) = ([0; 8], [0; 4]);
        number.copy_from_slice(&remote.queue_pair[..8]);
        port.copy_from_slice(&remote.queue_pair[8..12]);
        let peer = (u64::from_le_bytes(number) as QpId, u32::from_le_bytes(port));
        self.join(end, held.qp, peer, remote.memory_address);
        // Resolving an address may take its time.
        let slow = self.random.percent(5);
        let limit = if slow { SECOND } else { 500 * MICROSECOND };
        let delay = self.random.magnitude(10 * MICROSECOND, limit);
        self.queue
            .after(delay, Event::Connected(end, path, generation));
    }

    /// A helper has connected a queue pair, or could not.
    pub(crate) fn connected(&mut self, end: EndId, path: PathId, generation: Generation) {
        let event = Event::Connected(end, path, generation);
        if self.state(end).failed.is_some() || self.is_stuck(end, event) {
            return;
        }
        let Some(held) = self.connections[end.connection].held(end.side, path, generation) else {
            return;
        };
        let ok = self.nics.qps[held.qp].state == State::Ready;
        let now = self.time();
        self.connections[end.connection].handle_connected(end.side, now, path, generation, ok);
        self.wake_at(end, self.queue.now());
    }

    /// A retired queue pair is gone.
    pub(crate) fn destroy(&mut self, qp: QpId) {
        let end = self.owners[qp].end;
        self.nics.lose(qp, self.queue.now());
        self.nics.release(qp);
        self.state(end).held.retain(|held| held.qp != qp);
    }
}
