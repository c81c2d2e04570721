//! The driver of an end: what a runtime does between a core and its NICs.

use r2ccl_core::limits::{CREDIT_BYTES, CREDIT_RING_BYTES, RECEIVE_DEPTH};
use r2ccl_core::{
    Action, Evidence, FenceOutcome, Generation, PathId, ProbeKind, ReceiverBody, ReceiverWrite,
    SegmentWrite, Time, WorkId,
};

use crate::bug::Bug;
use crate::check::{Class, QUARANTINE};
use crate::connection::{EndState, Held, Side};
use crate::memory;
use crate::nic::{Body, Completion, QpId, State, Status, Work};
use crate::queue::{MICROSECOND, MILLISECOND, Nanos, SECOND};
use crate::world::{EndId, Event, Hint, World};

/// Highest bits of a work id of the core; probes have none of them.
const PROBE_ID: u64 = 1 << 32;

impl World {
    pub(crate) fn time(&self) -> Time {
        Time::from_nanoseconds(self.queue.now())
    }

    pub(crate) fn state(&mut self, end: EndId) -> &mut EndState {
        self.connections[end.connection].end(end.side)
    }

    /// The owner of an end looks at it at `at`, or earlier.
    pub(crate) fn wake_at(&mut self, end: EndId, at: Nanos) {
        let now = self.queue.now();
        let at = at.max(now);
        let state = self.state(end);
        if state.wake.is_none_or(|wake| at < wake) {
            state.wake = Some(at);
            self.queue.at(at, Event::Wake(end));
        }
    }

    /// One progress call.
    pub(crate) fn wake_now(&mut self, end: EndId) {
        let (now, due) = (self.queue.now(), self.queue.due());
        if self.state(end).wake != Some(due) {
            return;
        }
        self.state(end).wake = None;
        if self.is_copying(end) {
            return;
        }
        let host = &self.hosts[self.connections[end.connection].host(end.side)];
        if !host.alive || host.paused || self.state(end).failed.is_some() {
            return;
        }
        self.take_completions(end);
        if self.state(end).timeout.is_some_and(|at| at <= now) {
            let time = self.time();
            self.counts.timeouts += 1;
            self.connections[end.connection].handle_timeout(end.side, time);
        }
        match end.side {
            Side::Sender => self.progress_sender(end.connection),
            Side::Receiver => self.progress_receiver(end.connection),
        }
        // What came ahead of its credit is copied before anything else is done.
        if self.is_copying(end) {
            return;
        }
        self.perform_actions(end);
        self.post_writes(end);
        self.check_rules(end);
        self.schedule(end);
        self.check_leaving(end);
    }

    fn schedule(&mut self, end: EndId) {
        let now = self.queue.now();
        let time = self.time();
        let connection = &mut self.connections[end.connection];
        if let Some(failure) = connection.failure(end.side, time) {
            return self.end_failed(end, format!("{failure:?}"));
        }
        let timeout = connection.next_timeout(end.side);
        self.state(end).timeout = timeout.map(|at| at.nanoseconds().max(now));
        if let Some(at) = timeout {
            // A timer that is due already would be a loop without progress.
            self.wake_at(end, at.nanoseconds().max(now + MICROSECOND));
        }
        // A user who is left alone goes on asking.
        if self.connections[end.connection].deserted == Some(end.side) && now < self.alone_until {
            self.wake_at(end, now + SECOND);
        }
    }

    fn take_completions(&mut self, end: EndId) {
        for index in 0..self.state(end).held.len() {
            let held = self.state(end).held[index];
            while let Some(completion) = self.nics.qps[held.qp].completions.pop_front() {
                self.take_completion(end, held, completion);
            }
            self.replenish(end, held.qp);
        }
    }

    fn replenish(&mut self, end: EndId, qp: QpId) {
        let is_starved = self.connections[end.connection].is_starved;
        let entry = &mut self.nics.qps[qp];
        if entry.state == State::Ready && end.side == Side::Receiver && !is_starved {
            entry.receives = RECEIVE_DEPTH;
        }
    }

    fn take_completion(&mut self, end: EndId, held: Held, completion: Completion) {
        let now = self.time();
        let (path, generation) = (held.path, held.generation);
        match completion {
            Completion::Sent { work, status } => {
                let ok = status == Status::Success || self.bug == Some(Bug::ErrorsAreSuccess);
                if let Some(work) = WorkId::from_raw(work) {
                    self.connections[end.connection].handle_completion(end.side, now, work, ok);
                } else {
                    self.prove(end, held.qp, ok);
                    self.probed(end, (path, generation), (work - PROBE_ID) as u32, ok);
                }
                if !ok {
                    self.evidence(end, path, generation, Evidence::Error);
                }
            }
            Completion::Arrived { immediate, bytes } => {
                let receiver = self.connections[end.connection].receiver.half_mut();
                let result = receiver.handle_arrival(path, generation, immediate, bytes);
                if let Err(error) = result {
                    self.fail(Class::Safety, format!("{end:?}: {error}"));
                }
            }
            Completion::ReceivesFlushed => {
                if self.bug != Some(Bug::ErrorsAreSuccess) {
                    self.evidence(end, path, generation, Evidence::Error);
                }
            }
            Completion::Drained => {
                if held.fence_wanted {
                    self.fenced(end, path, generation, FenceOutcome::Drained);
                }
            }
        }
    }

    fn evidence(&mut self, end: EndId, path: PathId, generation: Generation, what: Evidence) {
        let now = self.time();
        self.connections[end.connection].handle_evidence(end.side, now, path, generation, what);
    }

    pub(crate) fn perform_actions(&mut self, end: EndId) {
        for _ in 0..1000 {
            let now = self.time();
            let connection = &mut self.connections[end.connection];
            let Some(action) = connection.poll_action(end.side, now) else {
                return;
            };
            self.perform(end, action);
        }
        self.fail(Class::Liveness, format!("{end:?} never stops to act"));
    }

    fn perform(&mut self, end: EndId, action: Action) {
        match action {
            Action::Send(frame) => self.send(end, frame),
            Action::Fence { path, generation } => {
                self.on_recovery();
                let delay = self.random.magnitude(MICROSECOND, MILLISECOND);
                self.queue.after(delay, Event::Fence(end, path, generation));
            }
            Action::Create { path, generation } => {
                let delay = self.random.magnitude(10 * MICROSECOND, 2 * MILLISECOND);
                self.queue
                    .after(delay, Event::Created(end, path, generation));
            }
            Action::Connect {
                path,
                generation,
                remote,
            } => {
                self.connect_qp(end, path, generation, remote);
            }
            Action::Destroy { path, up_to } => {
                // Its number stays unused as long as packets for it may be under way.
                let is_at_once =
                    self.bug == Some(Bug::NumberIsFree) || self.character.has_few_numbers;
                let pause = if is_at_once { 0 } else { QUARANTINE };
                for held in self.state(end).held.clone() {
                    if held.path == path && held.generation <= up_to {
                        self.queue.after(pause, Event::Destroy(held.qp));
                    }
                }
            }
            Action::Probe {
                path,
                generation,
                kind,
                id,
            } => {
                self.probe(end, path, generation, kind, id);
            }
        }
    }

    fn probe(
        &mut self,
        end: EndId,
        path: PathId,
        generation: Generation,
        kind: ProbeKind,
        id: u32,
    ) {
        let connection = &self.connections[end.connection];
        if kind == ProbeKind::NicPair {
            let nics = connection.paths[path.index()];
            let (here, there) = (nics.at(end.side), nics.at(end.side.other()));
            let (now, random) = (self.queue.now(), &mut self.random);
            let out = self.fabric.travel((here, there), 64, now, random);
            let back = self.fabric.travel_back((there, here), now, random);
            if let (Some(out), Some(back)) = (out, back) {
                self.queue
                    .after(out + back, Event::Probed(end, (path, generation), id));
            }
            return;
        }
        let Some(held) = connection.held(end.side, path, generation) else {
            return;
        };
        let work = Work {
            id: PROBE_ID + u64::from(id),
            signaled: true,
            body: Body::Probe,
        };
        self.with_nics(|nics, around| nics.post(held.qp, work, around));
    }

    /// A probe on a queue pair has come back.
    fn prove(&mut self, end: EndId, qp: QpId, ok: bool) {
        let held = &mut self.state(end).held;
        if let Some(held) = held.iter_mut().find(|held| held.qp == qp) {
            held.is_proved |= ok;
        }
    }

    /// A probe has come back.
    pub(crate) fn probed(&mut self, end: EndId, of: (PathId, Generation), id: u32, ok: bool) {
        let time = self.time();
        self.connections[end.connection].handle_probe(end.side, time, of, id, ok);
        self.wake_at(end, self.queue.now());
    }

    fn post_writes(&mut self, end: EndId) {
        match end.side {
            Side::Sender => {
                for path in 0..self.connections[end.connection].paths.len() as u8 {
                    let Some(path) = PathId::new(path) else {
                        return;
                    };
                    loop {
                        let sender = self.connections[end.connection].sender.half_mut();
                        let Some(write) = sender.poll_transmit(path) else {
                            break;
                        };
                        if self.is_refused(end, &write) {
                            break;
                        }
                        self.post_segment(end, &write);
                    }
                }
            }
            Side::Receiver => loop {
                let receiver = self.connections[end.connection].receiver.half_mut();
                let Some(write) = receiver.poll_transmit() else {
                    break;
                };
                self.post_line(end, &write);
            },
        }
    }

    fn post_segment(&mut self, end: EndId, write: &SegmentWrite) {
        let connection = &mut self.connections[end.connection];
        let Some(held) = connection.held(end.side, write.path, write.generation) else {
            let text = format!("{end:?} posts on a generation that is gone: {write:?}");
            return self.fail(Class::Safety, text);
        };
        let now = self.queue.now();
        let place = (write.seq.0 as usize, write.work.segment());
        if let Err((class, text)) = connection.postings.post(&self.nics, now, place, held.qp) {
            self.fail(class, format!("{end:?}: {text}"));
        }
        self.check_kept_off(end, write.path, Some(write.seq));
        let body = Body::Segment {
            local: memory::address(write.local_region.0 as usize, write.local_offset),
            remote: write.remote_address,
            bytes: u64::from(write.bytes),
            immediate: write.immediate,
        };
        let work = Work {
            id: write.work.raw(),
            signaled: write.signaled,
            body,
        };
        self.post_work(end, held, work);
    }

    fn post_line(&mut self, end: EndId, write: &ReceiverWrite) {
        let connection = &self.connections[end.connection];
        let Some(held) = connection.held(end.side, write.path, write.generation) else {
            let text = format!("{end:?} posts on a generation that is gone: {write:?}");
            return self.fail(Class::Safety, text);
        };
        self.check_kept_off(end, write.path, None);
        let (bytes, count) = write.payload();
        let (offset, bytes, count) = match write.body {
            ReceiverBody::Credits { slot, first, .. } => {
                let line = (slot * CREDIT_BYTES, bytes, count);
                self.without_held(end, first, line)
            }
            ReceiverBody::Counter { .. } => (CREDIT_RING_BYTES, bytes, count),
        };
        let connection = &self.connections[end.connection];
        let is_last = connection.received == connection.plan.messages.len();
        if is_last && self.bug == Some(Bug::LastCounterIsLost) {
            return;
        }
        let body = Body::Line {
            offset: offset as u32,
            bytes,
            count: count as u8,
        };
        let work = Work {
            id: write.work.raw(),
            signaled: write.signaled,
            body,
        };
        self.post_work(end, held, work);
    }

    /// A host hears about its NIC and tells all ends that use it.
    pub(crate) fn hint(&mut self, nic: usize, hint: Hint) {
        for index in 0..self.connections.len() {
            for side in [Side::Sender, Side::Receiver] {
                let end = EndId {
                    connection: index,
                    side,
                };
                if self.fabric.nics[nic].host != self.connections[index].host(side) {
                    continue;
                }
                for path in 0..self.connections[index].paths.len() {
                    if self.connections[index].paths[path].at(side) == nic {
                        self.handle(Event::Told(end, Self::path(path), hint));
                    }
                }
            }
        }
    }

    /// An end hears about the NIC of a path.
    pub(crate) fn told(&mut self, end: EndId, path: PathId, hint: Hint) {
        let now = self.time();
        self.connections[end.connection].handle_hint(end.side, now, path, hint);
        if hint == Hint::LinkUp {
            self.knocked(end, path);
        }
        self.wake_at(end, self.queue.now());
    }
}
