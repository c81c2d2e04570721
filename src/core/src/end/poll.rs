//! What is due: actions, and the time at which there may be more.

use super::path::{Fence, PathState, Probe};
use super::{Action, End, Half, ProbeKind};
use crate::health::{Event, Health};
use crate::ids::PathId;
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wire::path_frame::PathFrame;

impl<H: Half> End<H> {
    /// The next action that is due. Ask until there is none.
    pub fn poll_action(&mut self, now: Time) -> Option<Action> {
        let now = self.clock.advance(now);
        if let Some(count) = self.goodbye_due.take() {
            return Some(Action::Send(PathFrame::Goodbye { count }));
        }
        if core::mem::take(&mut self.resend_due) {
            return Some(Action::Send(PathFrame::Resend));
        }
        self.ids().find_map(|id| {
            self.poll_device(now, id)
                .or_else(|| self.poll_frame(now, id).map(Action::Send))
        })
    }

    /// What the runtime has to do to the path's queue pairs.
    fn poll_device(&mut self, now: Time, path: PathId) -> Option<Action> {
        let deadline = now.plus(self.config.fence_deadline_ns);
        let state = self.state(path)?;
        let generation = state.generation;
        if state.fence == Fence::Due {
            state.fence = Fence::Asked { deadline };
            let generation = state.closing;
            return Some(Action::Fence { path, generation });
        }
        if core::mem::take(&mut state.create_due) {
            return Some(Action::Create { path, generation });
        }
        if let Some(remote) = state.remote.filter(|_| state.connect_due) {
            state.connect_due = false;
            return Some(Action::Connect {
                path,
                generation,
                remote,
            });
        }
        if let Some(up_to) = state.destroy.take() {
            return Some(Action::Destroy { path, up_to });
        }
        if state.health == Health::Probation && state.own_probe.is_none() && state.probe_at <= now {
            self.begin_proof(now, path);
        }
        self.poll_probe(path)
    }

    fn poll_probe(&mut self, path: PathId) -> Option<Action> {
        let state = self.state(path)?;
        let generation = state.generation;
        let unsent = |probe: &mut Option<Probe>, kind| {
            let probe = probe.as_mut().filter(|probe| !probe.is_sent)?;
            probe.is_sent = true;
            Some(Action::Probe {
                path,
                generation,
                kind,
                id: probe.id,
            })
        };
        unsent(&mut state.own_probe, ProbeKind::QueuePair)
            .or_else(|| unsent(&mut state.pair_probe, ProbeKind::NicPair))
    }

    /// The next frame about a path.
    fn poll_frame(&mut self, now: Time, path: PathId) -> Option<PathFrame> {
        let repeat_ns = self.config.repeat_ns;
        if let Some(wanted) = self.known(path).and_then(|state| state.answer_for) {
            if let Some(answer) = self.half.answer(path, wanted) {
                self.state(path)?.answer_for = None;
                return Some(PathFrame::Answer(answer));
            }
        }
        let is_quiet = self.is_quiet(path) || planted(Bug::DrainedAtOnce);
        let state = self.state(path)?;
        // What takes the path back is heard as soon as it has come.
        let is_done = |serial: &mut u32| is_quiet || *serial & 1 == 0;
        if let Some(serial) = state.answer_drain.take_if(is_done) {
            return Some(PathFrame::Drained { path, serial });
        }
        if let Some(generation) = state.tell_over.take() {
            return Some(PathFrame::Fence { path, generation });
        }
        if state.drain_frame.take(now, repeat_ns) {
            let serial = state.drains;
            if planted(Bug::DrainsAreSaidOnce) {
                state.drain_frame.stop();
            }
            return Some(PathFrame::Drain { path, serial });
        }
        if core::mem::take(&mut state.knock_due) {
            return Some(PathFrame::Knock { path });
        }
        if state.fence_frame.take(now, repeat_ns) {
            let generation = state.closing;
            return Some(PathFrame::Fence { path, generation });
        }
        attempt_frame(state, now, path, repeat_ns)
    }

    /// What has become due by the passing of time.
    pub fn handle_timeout(&mut self, now: Time) {
        let now = self.clock.advance(now);
        for id in self.ids() {
            self.check_fence_deadline(now, id);
            self.check_quarantine(now, id);
            self.check_due(now, id);
            self.check_probes(now, id);
            let is_overdue = self
                .known(id)
                .is_some_and(|state| state.health.is_attempt() && state.attempt_end <= now);
            if is_overdue {
                self.step(now, id, Event::Failed);
            }
            if self.watch <= now {
                self.watch(now, id);
            }
        }
        if self.watch <= now {
            self.watch = self.next_watch(now);
        }
        if self.reroute_at.is_some_and(|at| at <= now) {
            self.reroute(now);
        }
    }

    /// When [`End::handle_timeout`] and [`End::poll_action`] should be called at the latest;
    /// `None` while only an input can change anything. Ask again after every input and whenever
    /// the half was given work.
    pub fn next_timeout(&self) -> Option<Time> {
        let is_busy = self.half.is_busy();
        let own = self.ids().filter_map(|id| {
            let state = self.known(id)?;
            self.timeout_of(id, state, is_busy)
        });
        own.chain(self.reroute_at).min()
    }

    fn timeout_of(&self, id: PathId, state: &PathState, is_busy: bool) -> Option<Time> {
        let deadline = match state.fence {
            Fence::Asked { deadline } => Some(deadline),
            _ => None,
        };
        let waits = state.health == Health::Down && self.is_free(id);
        let probation = state.health == Health::Probation && state.own_probe.is_none();
        let probe = |probe: Option<Probe>| {
            let open = probe.filter(|probe| probe.result.is_none())?;
            Some(open.deadline)
        };
        // The receiver may wait for a word to arrive when no request is left.
        let is_waiting =
            is_busy || self.is_full(id) || (!H::IS_SENDER && self.half.work(id).is_waiting);
        let watched = is_waiting && state.health.is_in_service();
        [
            deadline,
            self.quarantine_end(id),
            waits.then_some(state.due),
            state.health.is_attempt().then_some(state.attempt_end),
            probation.then_some(state.probe_at),
            probe(state.own_probe),
            probe(state.pair_probe),
            state.fence_frame.at(),
            state.drain_frame.at(),
            state.attempt_frame.at(),
            watched.then_some(self.watch),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// What an attempt has to say: the offer, the consent, and how far this end is.
fn attempt_frame(
    state: &mut PathState,
    now: Time,
    path: PathId,
    repeat_ns: u64,
) -> Option<PathFrame> {
    let generation = state.generation;
    if let Some(endpoint) = state.local.filter(|_| state.accept_due) {
        state.accept_due = false;
        return Some(PathFrame::Accept {
            path,
            generation,
            endpoint,
        });
    }
    if core::mem::take(&mut state.ready_due) {
        return Some(PathFrame::Ready {
            path,
            generation,
            is_proved: true,
            is_active: true,
        });
    }
    if !state.health.is_attempt() || !state.attempt_frame.take(now, repeat_ns) {
        return None;
    }
    if state.is_connected {
        return Some(PathFrame::Ready {
            path,
            generation,
            is_proved: state.is_proved,
            is_active: false,
        });
    }
    state.local.map(|endpoint| PathFrame::Offer {
        path,
        generation,
        endpoint,
    })
}
