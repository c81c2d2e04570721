//! One end of a connection, between the core and its queue pairs: does what the core asks for, and
//! tells it what happens.
//!
//! In health a call costs a poll of the queue pair in use, and every few calls a look at the clock.
//! Everything else runs when something has happened or a time that the core named has come.

mod rebuild;
mod report;

pub use rebuild::make_path;

use std::sync::Arc;
use std::time::Duration;

use r2ccl_core::wire::frame::Frame;
use r2ccl_core::wire::path_frame::PathFrame;
use r2ccl_core::{
    Action, End, Evidence, Generation, Half, Health, PathId, ProbeKind, ProtocolError, Routing,
    Time, WorkId,
};
use r2ccl_fabric::{Completion, QueuePairConfig};

use super::causes::{Cause, Causes};
use super::fences::Fences;
use super::path::{Path, is_arrival, is_request_error, probe_id};
use super::paths::Paths;
use super::ring::PathMemory;
use super::shared::{DrainNews, Fate, Inbox, PathNic, PortChange, Shared};

/// How often a connection is looked at while it is called: a fifth of the time after which work
/// without progress is suspect. In health the paths that nothing goes over are polled only then: a
/// software NIC takes a system call for each.
const LOOK_NS: u64 = 5_000_000;
/// How often it is looked at otherwise, as long as a drained path is not out of use.
const LEAVING_NS: u64 = 50_000_000;
/// Longest wait for queue pairs that are being stopped when their connection ends.
const FENCES_MAX: Duration = Duration::from_secs(1);
/// One poll in so many looks at the clock even if it brings nothing. There are machines on which a
/// look is a system call.
const CLOCK_EVERY: u32 = 16;
/// Part in health and capacity of a path that only stands by.
pub const STANDBY: (u32, u32) = (0, 1);

/// Room for probes and a mail on a send queue, besides the core's own work.
pub const EXTRA_DEPTH: u32 = 17;

/// What tells the two halves apart here.
pub trait Role: Half + 'static {
    /// What a generation of a path has for the peer to write to.
    type Memory: PathMemory;
    /// Sizes of its queue pairs.
    const QUEUE_PAIR: QueuePairConfig;

    /// Takes a write with immediate of the peer.
    fn take_arrival(
        &mut self,
        path: PathId,
        generation: Generation,
        completion: &Completion,
    ) -> Result<(), ProtocolError>;

    /// Takes what the peer has written into the memory of a path; false if that is no news.
    fn take_written(&mut self, path: &Path<Self::Memory>) -> Result<bool, ProtocolError>;
}

/// What the settings say of an end.
#[derive(Clone, Copy, Debug)]
pub struct DriverConfig {
    /// Which paths messages take.
    pub routing: Routing,
    /// How long queue pairs that are over are kept.
    pub quarantine: Duration,
    /// Queue pairs of this process on a NIC with which no more backups are made ahead.
    pub queue_pairs_max: u32,
}

/// The time as a call knows it.
#[derive(Default)]
struct Clock {
    now: Time,
    /// Read in this call.
    is_fresh: bool,
}

impl Clock {
    /// The time, read once a call.
    fn read(&mut self) -> Time {
        if !self.is_fresh {
            self.now = super::now();
            self.is_fresh = true;
        }
        self.now
    }
}

/// This end of a generation, as a helper has made it, or could not.
type Made<M> = (PathId, Generation, Option<Box<Path<M>>>);

/// One end of a connection.
pub struct Driver<H: Role> {
    /// What other threads see of it.
    pub shared: Arc<Shared>,
    /// Its core.
    pub end: End<H>,
    /// Its queue pairs.
    pub paths: Paths<H::Memory>,
    /// What speaks against it.
    pub fate: Fate,
    made: Arc<Inbox<Made<H::Memory>>>,
    fences: Fences,
    config: DriverConfig,
    clock: Clock,
    look: Time,
    /// Something has happened that the core may want to act on.
    is_stirred: bool,
    /// All is well, and everything goes over the primary path.
    is_plain: bool,
    /// The other end has said something about paths, and may ask on any of them until then.
    told_until: Time,
    /// Paths in service when last looked, one bit each.
    serving: u16,
    /// Faults of single queue pairs that people have been told of.
    queue_pair_faults: u64,
    /// Those that have failed and are not back.
    failed: u16,
    causes: Causes,
    /// The path after the one that carried the last mail.
    mail_turn: usize,
    /// Those whose NIC here is drained, and the round of that news.
    drained: u16,
    drain_round: u32,
    polls: u32,
}

impl<H: Role> Driver<H> {
    /// An end whose first path is being connected.
    pub fn new(
        shared: Arc<Shared>,
        end: End<H>,
        first: Path<H::Memory>,
        config: DriverConfig,
    ) -> Self {
        let mut paths = Paths::new(config.quarantine);
        let serving = 1 << first.id.index();
        // Where it does not begin on the primary path, that one has failed.
        let failed = u16::from(first.id != PathId::PRIMARY);
        paths.insert(Box::new(first));
        shared.paths.set(serving, failed);
        Self {
            shared,
            end,
            paths,
            fate: Fate::default(),
            made: Arc::default(),
            fences: Fences::default(),
            config,
            clock: Clock::default(),
            look: Time::ZERO,
            is_stirred: true,
            is_plain: false,
            told_until: Time::ZERO,
            serving,
            queue_pair_faults: 0,
            failed,
            causes: Causes::default(),
            mail_turn: 0,
            drained: 0,
            drain_round: 0,
            polls: 0,
        }
    }

    /// Polls the queue pairs, and takes what the peer has written. `on_arrival` hears of each
    /// arrival before the core. False: nothing has come, and there is nothing else to look at.
    pub fn poll(&mut self, mut on_arrival: impl FnMut(&Completion)) -> bool {
        self.polls = self.polls.wrapping_add(1);
        let is_timed = self.polls % CLOCK_EVERY == 0;
        self.clock.is_fresh = false;
        if is_timed {
            self.clock.read();
        }
        let has_news = self.shared.note_news_taken();
        if self.is_plain && !has_news && !self.is_due() {
            return self.poll_path(PathId::PRIMARY, &mut on_arrival) || is_timed;
        }
        for id in (0..self.shared.nics.len()).filter_map(path_id) {
            self.poll_path(id, &mut on_arrival);
            if let Some(mail) = self.paths.get_mut(id).and_then(Path::take_mail) {
                self.shared.link.take_mail(mail);
            }
        }
        for made in self.made.take() {
            self.take_made(made);
        }
        for stopped in self.fences.take() {
            self.take_stopped(stopped);
        }
        true
    }

    /// Polls one path; returns whether anything has come. What breaks the protocol ends the
    /// connection.
    fn poll_path(&mut self, id: PathId, on_arrival: &mut impl FnMut(&Completion)) -> bool {
        let Some(path) = self.paths.get_mut(id) else {
            return false;
        };
        let mut polled = poll(&mut self.end, path, &mut self.clock, on_arrival);
        self.is_stirred |= polled.is_news;
        if polled.is_good {
            self.causes.note_work(id);
        }
        // What has landed counts; behind a fence nobody looks there any more.
        match self.end.half_mut().take_written(path) {
            Ok(is_any) => polled.is_any |= is_any,
            Err(error) => polled.broken = Some(error),
        }
        if let Some(error) = polled.broken {
            path.fence();
            self.fate.on_protocol_error(&self.shared.label, error);
        }
        if let Some(status) = path.news_of_failure() {
            self.is_stirred = true;
            if is_request_error(status) {
                self.fate.on_refusal(&self.shared.label, status);
            }
            self.causes.note(id, Cause::Status(status));
            let generation = path.generation;
            let now = self.clock.read();
            self.end
                .handle_evidence(now, id, generation, Evidence::Error);
        }
        polled.is_any
    }

    fn is_due(&self) -> bool {
        self.is_stirred || self.clock.now >= self.look
    }

    /// Lets the core act if something has happened or its time has come.
    pub fn attend(&mut self) {
        if !self.is_due() {
            return;
        }
        let now = self.clock.now;
        if !self.fate.is_quiet() {
            // What is over is not repaired.
            self.look = Time::from_nanoseconds(u64::MAX);
            self.is_stirred = false;
            self.shared.paths.set(0, self.failed);
            self.shared.note_due(None);
            return;
        }
        self.is_stirred = false;
        self.leave_unfit();
        self.end.handle_timeout(now);
        self.act();
        self.report();
        self.add_backups();
        let is_swept = !self.paths.sweep();
        self.note_out();
        let is_leaving = self.end.is_leaving();
        let is_cut = !self.shared.link.is_up();
        let is_calm = self.end.is_calm() && is_swept && !is_leaving && !is_cut;
        let is_told = now < self.told_until;
        self.is_plain = is_calm && !is_told && self.end.is_alone(PathId::PRIMARY);
        let next = self.end.next_timeout();
        let soon = now.plus(LOOK_NS);
        self.look = next.map_or(soon, |next| next.min(soon));
        let due = if is_swept { next } else { Some(soon) };
        let leaving = is_leaving.then(|| now.plus(LEAVING_NS));
        let due = due.into_iter().chain(leaving).min();
        let due = due.filter(|_| !is_calm);
        self.shared.note_due(due.map(Time::nanoseconds));
        if let Some(failure) = self.end.failure(now) {
            let causes = self.causes();
            self.fate.on_failure(&self.shared.label, failure, &causes);
        }
    }

    /// The time, for what a user does. One who has requests open (`is_called`) has looked for them
    /// a moment ago, and the time of then will do.
    pub fn time(&mut self, is_called: bool) -> Time {
        if !is_called {
            self.look_at_clock();
        }
        self.clock.now
    }

    /// Has the next poll know the time exactly.
    fn look_at_clock(&mut self) {
        self.clock.now = super::now();
    }

    /// Has the next poll look at everything.
    pub fn look_at_all(&mut self) {
        self.look_at_clock();
        self.stir();
    }

    /// Something was told to the core that it may want to act on at once.
    pub fn stir(&mut self) {
        self.is_stirred = true;
    }

    /// Nothing lands in the connection's buffers and nothing is read from them any more.
    pub fn stop(&mut self) {
        self.paths.fence();
        self.fences.wait(FENCES_MAX);
        self.fate.on_stop(&self.shared.label);
        self.is_stirred = true;
    }

    /// A word of the other end about a path.
    pub fn take_frame(&mut self, frame: &PathFrame) {
        if let PathFrame::Offer { path, .. } | PathFrame::Drain { path, .. } = frame {
            self.add_standby(*path);
        }
        if let PathFrame::Fence { path, .. } = frame {
            self.causes.note(*path, Cause::Peer);
        }
        let now = self.clock.read();
        self.told_until = now.plus(LOOK_NS);
        if let Err(error) = self.end.handle_frame(now, frame) {
            self.fate.on_protocol_error(&self.shared.label, error);
        }
        self.is_stirred = true;
    }

    /// Carries what the link has to say over a path that works, a different one each time
    /// (PROTOCOL R29).
    pub fn send_mail(&mut self, is_asking: bool) {
        if !self.fate.is_quiet() {
            return;
        }
        let mail = self.shared.link.write_mail(is_asking);
        let count = self.shared.nics.len();
        let turns = self.mail_turn..self.mail_turn + count;
        for index in turns.map(|turn| turn % count) {
            let id = path_id(index).filter(|id| self.is_serving(*id));
            let Some(path) = id.and_then(|id| self.paths.get_mut(id)) else {
                continue;
            };
            if path.send_mail(&mail) {
                self.mail_turn = index + 1;
                return;
            }
        }
    }

    fn is_serving(&self, id: PathId) -> bool {
        self.end.health(id).is_some_and(Health::is_in_service)
    }

    /// A port of this process has changed.
    pub fn take_port(&mut self, dev: usize, change: PortChange) {
        let now = self.clock.read();
        for (index, nic) in self.shared.nics.iter().enumerate() {
            let Some(id) = path_id(index).filter(|_| nic.dev == dev) else {
                continue;
            };
            let (evidence, cause) = match change {
                PortChange::Up => {
                    self.causes.clear(id);
                    self.end.handle_link_up(now, id);
                    continue;
                }
                PortChange::Down => (Evidence::Hint, Cause::LinkDown),
                PortChange::Gone => (Evidence::Error, Cause::DeviceGone),
            };
            self.causes.note(id, cause);
            if let Some(path) = self.paths.get_mut(id) {
                let generation = path.generation;
                self.end.handle_evidence(now, id, generation, evidence);
            }
        }
        self.is_stirred = true;
    }

    /// New messages are to keep off a NIC of this process, or may use it again.
    pub fn take_drain(&mut self, news: DrainNews) {
        let DrainNews {
            dev,
            is_drained,
            round,
        } = news;
        self.drain_round = round;
        self.note_out();
        for (index, nic) in self.shared.nics.iter().enumerate() {
            let Some(id) = path_id(index).filter(|_| nic.dev == dev) else {
                continue;
            };
            let bit = 1 << index;
            self.drained = self.drained & !bit | if is_drained { bit } else { 0 };
            self.end.drain(self.clock.now, id, is_drained);
        }
        self.note_out();
        self.is_stirred = true;
    }

    /// A path whose NIC has refused a buffer cannot carry all messages.
    fn leave_unfit(&mut self) {
        for path in self.paths.iter() {
            if self.shared.regions.is_unfit(path.id) {
                let (id, generation) = (path.id, path.generation);
                self.end
                    .handle_evidence(self.clock.now, id, generation, Evidence::Error);
            }
        }
    }

    /// The designated backup is made in the background right after the connection, and the next one
    /// as well while that cannot be had; the others when the primary path has left service, or is
    /// drained, and its share is to be spread.
    fn add_backups(&mut self) {
        if !H::IS_SENDER || self.config.routing == Routing::Static {
            return;
        }
        let primary = self.end.health(PathId::PRIMARY);
        let is_lost = primary.is_some_and(|health| !health.is_in_service());
        let is_free = is_lost || self.end.is_drained(PathId::PRIMARY);
        let is_spread = self.config.routing == Routing::Balance && is_free;
        for id in (1..self.shared.nics.len()).filter_map(path_id) {
            let queue_pairs = self.shared.nics[id.index()].tally.queue_pairs();
            if !is_free && queue_pairs >= self.config.queue_pairs_max {
                // Made when it is needed.
                break;
            }
            self.add_standby(id);
            if !is_spread && !self.end.is_unattainable(id) {
                break;
            }
        }
    }

    fn add_standby(&mut self, id: PathId) {
        if self.end.health(id).is_none() && id.index() < self.shared.nics.len() {
            let now = self.clock.now;
            self.end.add_standby(now, id, STANDBY);
            if self.drained >> id.index() & 1 == 1 {
                self.end.drain(now, id, true);
            }
            self.is_stirred = true;
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.end.poll_action(self.clock.now) {
            match action {
                Action::Send(frame) => {
                    let (to, frame) = (self.shared.peer_connection, Box::new(frame));
                    // A link that is down has ended the connection; its news says so.
                    let _ = self.shared.link.send(Frame::Path { to, frame });
                }
                Action::Fence { path, generation } => self.fence(path, generation),
                Action::Create { path, generation } => self.create(path, generation),
                Action::Connect {
                    path,
                    generation,
                    remote,
                } => self.connect(path, generation, &remote),
                Action::Destroy { path, up_to } => self.paths.release(path, up_to),
                Action::Probe {
                    path,
                    generation,
                    kind,
                    id,
                } => {
                    if let Some(path) = self.paths.find(path, generation) {
                        path.probe(id, kind);
                        self.rouse_peer(kind);
                    }
                }
            }
        }
    }

    /// Software NICs answer while their program looks at them, and one that computes does not: a
    /// frame makes it look. This one asks nothing of a sender, and a receiver to say all again.
    fn rouse_peer(&self, kind: ProbeKind) {
        let needs_program = |nic: &PathNic| nic.device.info().needs_program;
        if kind == ProbeKind::QueuePair && self.shared.nics.iter().any(needs_program) {
            let (to, frame) = (self.shared.peer_connection, Box::new(PathFrame::Resend));
            self.shared.link.send_if_idle(Frame::Path { to, frame });
        }
    }
}

impl<H: Role> Drop for Driver<H> {
    /// When it has returned, nothing lands through its queue pairs any more, if their devices
    /// answer.
    fn drop(&mut self) {
        if !self.fences.wait(FENCES_MAX) {
            tracing::error!(
                "{}: a NIC does not stop a queue pair; its memory is given up",
                self.shared.label
            );
        }
        for stopped in self.fences.take() {
            if let Some(path) = self.paths.find_any(stopped.path, stopped.generation) {
                path.restore(stopped.queue_pair);
            }
        }
        self.paths.leak_lent();
    }
}

/// What a poll has brought.
struct Polled {
    is_any: bool,
    /// Something has come through.
    is_good: bool,
    is_news: bool,
    broken: Option<ProtocolError>,
}

/// Polls one queue pair and hands its completions to the core.
fn poll<H: Role>(
    end: &mut End<H>,
    path: &mut Path<H::Memory>,
    clock: &mut Clock,
    on_arrival: &mut impl FnMut(&Completion),
) -> Polled {
    let (id, generation) = (path.id, path.generation);
    let (mut arrivals, mut is_news, mut is_good, mut broken) = (0, false, false, None);
    let is_any = path.poll(|completion| {
        is_good = true;
        if is_arrival(completion) {
            arrivals += 1;
            on_arrival(completion);
            if let Err(error) = end.half_mut().take_arrival(id, generation, completion) {
                broken.get_or_insert(error);
            }
        } else if let Some(work) = WorkId::from_raw(completion.id) {
            end.half_mut().handle_completion(work, true);
        } else {
            is_news = true;
            end.handle_probe(clock.read(), id, generation, probe_id(completion.id), true);
        }
    });
    if arrivals > 0 {
        path.post_receives(arrivals);
    }
    Polled {
        is_any,
        is_good,
        is_news,
        broken,
    }
}

fn path_id(index: usize) -> Option<PathId> {
    PathId::new(u8::try_from(index).ok()?)
}
