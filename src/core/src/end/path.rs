//! What an end knows of one path.

use super::values::EndConfig;
use crate::health::Health;
use crate::ids::Generation;
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wire::path_frame::Endpoint;

/// Longest time between repetitions of a frame, in units of `repeat_ns`.
const REPEAT_MAX: u64 = 200;

/// A frame that is sent again and again, ever more slowly, until something makes it needless.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repeat {
    at: Option<Time>,
    interval_ns: u64,
}

impl Repeat {
    /// Sends it now, and then every `interval_ns`, doubling.
    pub(super) fn start(&mut self, now: Time, interval_ns: u64) {
        *self = Self {
            at: Some(now),
            interval_ns,
        };
    }

    pub(super) fn stop(&mut self) {
        self.at = None;
    }

    /// Whether it is due; if so, it counts as sent.
    pub(super) fn take(&mut self, now: Time, repeat_ns: u64) -> bool {
        let is_due = self.at.is_some_and(|at| at <= now);
        if is_due {
            self.at = Some(now.plus(self.interval_ns));
            let slower_ns = (self.interval_ns * 2).min(REPEAT_MAX * repeat_ns);
            if !planted(Bug::FramesKeepTheirPace) {
                self.interval_ns = slower_ns;
            }
        }
        is_due
    }

    pub(super) fn at(&self) -> Option<Time> {
        self.at
    }
}

/// How far the fence of this end's queue pair has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    /// Not needed.
    None,
    /// The runtime has to be told.
    Due,
    /// The runtime works at it; from the deadline on it counts as unknown.
    Asked { deadline: Time },
    /// Unknown so far.
    Unknown,
    /// The queue pair is silent since then.
    Silent(Time),
}

/// A probe under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) id: u32,
    pub(super) is_sent: bool,
    pub(super) result: Option<bool>,
    pub(super) deadline: Time,
}

impl Probe {
    /// What it says by now: `None` while it may still pass.
    pub(super) fn verdict(&self, now: Time) -> Option<bool> {
        self.result.or((self.deadline <= now).then_some(false))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PathState {
    pub(super) health: Health,
    pub(super) since: Time,
    /// Newest generation; that of the attempt while one is under way.
    pub(super) generation: Generation,
    pub(super) share: u32,
    pub(super) capacity: u32,
    /// Changes of whether this end was told to keep off the path; odd: it was.
    pub(super) drains: u32,
    /// The same of the other end.
    pub(super) peer_drains: u32,
    /// When the path was drained last.
    pub(super) drained: Time,
    pub(super) drain_frame: Repeat,
    /// The other end waits for the answer to this word of its.
    pub(super) answer_drain: Option<u32>,
    /// The last word of this end that the other one has answered.
    pub(super) drain_answered: u32,

    pub(super) fence: Fence,
    /// The generation that is over and not settled, or was last.
    pub(super) closing: Generation,
    pub(super) closed: Time,
    pub(super) fence_frame: Repeat,
    /// Receiver: an answer about this generation is wanted.
    pub(super) answer_for: Option<Generation>,
    /// A generation of which the peer should hear that it is over.
    pub(super) tell_over: Option<Generation>,
    pub(super) destroy: Option<Generation>,

    /// Sender: earliest time of the next attempt.
    pub(super) due: Time,
    pub(super) attempts: u32,
    pub(super) attempt_end: Time,
    pub(super) create_due: bool,
    pub(super) connect_due: bool,
    pub(super) accept_due: bool,
    pub(super) ready_due: bool,
    pub(super) knock_due: bool,
    pub(super) local: Option<Endpoint>,
    pub(super) remote: Option<Endpoint>,
    pub(super) is_connected: bool,
    pub(super) is_peer_ready: bool,
    pub(super) is_proved: bool,
    pub(super) is_peer_proved: bool,
    pub(super) attempt_frame: Repeat,

    pub(super) hold_down_ns: u64,
    /// The next hold-down is a single probe: only the queue pair was at fault.
    pub(super) is_trusted: bool,
    pub(super) hold_end: Time,
    pub(super) probe_at: Time,
    /// The last probe of the hold-down did not come back.
    pub(super) is_missed: bool,
    /// When the generation came into service; `None` while it has not.
    pub(super) served: Option<Time>,
    /// Whether that was a return, as opposed to the set-up.
    pub(super) is_return: bool,
    /// It was never in service.
    pub(super) is_new: bool,
    /// Receiver: the offer that the next attempt answers.
    pub(super) offer: Option<(Generation, Endpoint)>,

    /// Somebody spoke against the path since it was last probed.
    pub(super) is_hinted: bool,
    /// When the suspicion began that is not cleared yet, if it is SUSPECT.
    pub(super) doubted: Time,
    pub(super) own_probe: Option<Probe>,
    pub(super) pair_probe: Option<Probe>,
    pub(super) pair_passed: Option<Time>,
    pub(super) is_waiting: bool,
    pub(super) progress: u64,
    pub(super) progressed: Time,
    /// How long the last step of progress took.
    pub(super) step_ns: u64,
    /// How long the shorter one of the last two took.
    pub(super) pace_ns: u64,
    pub(super) patience_ns: u64,
    /// Suspicions in a row that the own probe cleared without progress.
    pub(super) vain: u8,
}

impl PathState {
    pub(super) fn new(
        now: Time,
        generation: Generation,
        (share, capacity): (u32, u32),
        config: &EndConfig,
    ) -> Self {
        Self {
            health: Health::Active,
            since: now,
            generation,
            share,
            capacity,
            drains: 0,
            peer_drains: 0,
            drained: now,
            drain_frame: Repeat::default(),
            answer_drain: None,
            drain_answered: 0,
            fence: Fence::None,
            closing: generation,
            closed: now,
            fence_frame: Repeat::default(),
            answer_for: None,
            tell_over: None,
            destroy: None,
            due: now,
            attempts: 0,
            attempt_end: now,
            create_due: false,
            connect_due: false,
            accept_due: false,
            ready_due: false,
            knock_due: false,
            local: None,
            remote: None,
            is_connected: false,
            is_peer_ready: false,
            is_proved: false,
            is_peer_proved: false,
            attempt_frame: Repeat::default(),
            hold_down_ns: config.hold_down_ns,
            is_trusted: false,
            hold_end: now,
            probe_at: now,
            is_missed: false,
            served: Some(now),
            is_return: false,
            is_new: false,
            offer: None,
            is_hinted: false,
            doubted: now,
            own_probe: None,
            pair_probe: None,
            pair_passed: None,
            is_waiting: false,
            progress: 0,
            progressed: now,
            step_ns: 0,
            pace_ns: 0,
            patience_ns: config.stall_ns,
            vain: 0,
        }
    }

    /// Whether either end was told to keep off the path.
    pub(super) const fn is_drained(&self) -> bool {
        (self.drains | self.peer_drains) & 1 == 1
    }

    /// Forgets the last attempt and begins one for `generation`.
    pub(super) fn begin(&mut self, now: Time, generation: Generation, config: &EndConfig) {
        self.generation = generation;
        self.forget_attempt();
        self.fence_frame.stop();
        self.fence = Fence::None;
        self.served = None;
        self.attempt_end = now.plus(config.attempt_ns);
        self.create_due = true;
    }

    /// Nothing of an attempt is to be said or done any more.
    pub(super) fn forget_attempt(&mut self) {
        (self.create_due, self.connect_due) = (false, false);
        (self.accept_due, self.ready_due) = (false, false);
        (self.local, self.remote) = (None, None);
        (self.is_connected, self.is_peer_ready) = (false, false);
        (self.is_proved, self.is_peer_proved) = (false, false);
        (self.own_probe, self.pair_probe) = (None, None);
        self.is_missed = false;
        self.attempt_frame.stop();
    }
}
