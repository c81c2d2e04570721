//! Reliable-connected queue pairs as a NIC keeps them, unpleasant sides included.
//!
//! Writes of one queue pair land in order and once. A lost packet is sent again after a timeout,
//! a few times; then the queue pair goes to error. An acknowledgement may be lost after the data
//! has landed, a completion may never come, and what a NIC has accepted reaches memory a little
//! later. On error all that is outstanding is flushed; a marker that was posted after the change
//! completes when nothing of the queue pair can land any more.

use std::collections::VecDeque;

use crate::fabric::{Fabric, NicId};
use crate::memory::Payload;
use crate::numbers::Numbers;
use crate::queue::{MICROSECOND, MILLISECOND, Nanos, Queue};
use crate::queue_pair::part_of;
pub use crate::queue_pair::{Body, Completion, NicEvent, Packet, Qp, QpId, State, Status, Work};
use crate::random::Random;

/// How long a receiver that has no receive posted holds the sender off.
const RNR_DELAY: Nanos = 100 * MICROSECOND;

/// All queue pairs of a world.
#[derive(Debug)]
pub struct Nics {
    /// Queue pairs by id.
    pub qps: Vec<Qp>,
    timeout: Nanos,
    retries_max: u32,
    /// Packets of work requests that were lost.
    pub lost: u64,
    /// A target that misses packets says so at once, once for each gap.
    tells_gaps: bool,
    /// How long what was accepted takes to reach memory, at the most.
    pub bus_delay: Nanos,
    /// Numbers of queue pairs on the wire.
    pub(crate) numbers: Numbers,
}

/// What the world must do after an event of a NIC.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Nothing.
    None,
    /// The owner of this queue pair has something to look at.
    Wake(QpId),
    /// A payload lands at an address; then the owner of the queue pair may look.
    Land(QpId, u64, Payload),
    /// Inline bytes land in the mailbox of the owner of the queue pair.
    Mail(QpId, u32, [u8; 64], u8),
    /// A part of a message ahead of its credit lands in a slot.
    Slot(Packet),
    /// A queue pair has taken what was meant for another.
    Mistaken(String),
}

/// How long a word of `target` to `source` takes.
fn way_back<E>(target: NicId, source: NicId, around: &mut Surroundings<E>) -> Option<Nanos> {
    let (way, now) = ((target, source), around.queue.now());
    around.fabric.travel_back(way, now, around.random)
}

/// What the NICs need of the world around them.
pub struct Surroundings<'a, E> {
    /// Ways.
    pub fabric: &'a mut Fabric,
    /// Future.
    pub queue: &'a mut Queue<E>,
    /// Chance.
    pub random: &'a mut Random,
}

impl Nics {
    /// No queue pairs yet; timers drawn.
    pub fn new(random: &mut Random) -> Self {
        Self {
            qps: Vec::with_capacity(64),
            timeout: random.magnitude(MILLISECOND, 60 * MILLISECOND),
            retries_max: random.between(3, 7) as u32,
            bus_delay: random.pick(&[0, 0, 2 * MICROSECOND, 200 * MICROSECOND]),
            lost: 0,
            tells_gaps: false,
            numbers: Numbers::default(),
        }
    }

    /// NICs with the timers that NCCL sets by default, 4.3 s and 7 retries, which are no help in
    /// finding faults.
    pub fn usual() -> Self {
        Self {
            qps: Vec::with_capacity(64),
            timeout: 4_295 * MILLISECOND,
            retries_max: 7,
            bus_delay: 2 * MICROSECOND,
            lost: 0,
            tells_gaps: true,
            numbers: Numbers::default(),
        }
    }

    /// A queue pair without a peer on the `port` of a NIC, with `receives` posted, whose packets
    /// count from `start`.
    pub fn create(&mut self, (nic, port): (NicId, u32), receives: u32, start: u64) -> QpId {
        let number = self.numbers.take(nic, self.qps.len());
        self.qps.push(Qp {
            nic,
            number,
            start,
            port,
            peer: None,
            peer_port: 0,
            state: State::Ready,
            black_hole: false,
            completions: VecDeque::new(),
            receives,
            fenced_at: None,
            lost_at: None,
            sends: VecDeque::new(),
            next_ordinal: 0,
            departed: 0,
            departing: false,
            epoch: 0,
            retries: 0,
            timer: false,
            epoch_of_timer: 0,
            last_arrival: 0,
            last_land: 0,
            expected: (0, 0),
            landing: 0,
            landed: 0,
            has_told_gap: false,
        });
        self.qps.len() - 1
    }

    /// Posts a work request. In error it is flushed at once.
    pub fn post<E: From<NicEvent>>(&mut self, qp: QpId, work: Work, around: &mut Surroundings<E>) {
        let entry = &mut self.qps[qp];
        if entry.state == State::Error {
            let status = Status::Flushed;
            entry.completions.push_back(Completion::Sent {
                work: work.id,
                status,
            });
            return;
        }
        entry.sends.push_back((entry.next_ordinal, work));
        entry.next_ordinal += 1;
        self.depart_next(qp, around);
    }

    fn depart_next<E: From<NicEvent>>(&mut self, qp: QpId, around: &mut Surroundings<E>) {
        let entry = &mut self.qps[qp];
        let Some((_, work)) = entry.sends.get(entry.departed) else {
            return;
        };
        if entry.departing {
            return;
        }
        entry.departing = true;
        let at = around
            .fabric
            .transmit(entry.nic, work.bytes(), around.queue.now());
        let epoch = entry.epoch;
        around.queue.at(at, NicEvent::Depart { qp, epoch }.into());
    }

    /// Everything that was not acknowledged is sent again, in order.
    fn go_back<E: From<NicEvent>>(&mut self, qp: QpId, around: &mut Surroundings<E>) {
        let entry = &mut self.qps[qp];
        entry.epoch += 1;
        entry.epoch_of_timer += 1;
        (entry.departed, entry.departing, entry.timer) = (0, false, false);
        self.depart_next(qp, around);
    }

    /// Lets an event happen. `read` reads the source of a segment.
    pub fn handle<E: From<NicEvent>>(
        &mut self,
        event: NicEvent,
        around: &mut Surroundings<E>,
        read: impl FnOnce(u64, u64) -> Payload,
        reachable: impl FnOnce(u64) -> bool,
    ) -> Effect {
        match event {
            NicEvent::Depart { qp, epoch } => self.depart(qp, epoch, around, read),
            NicEvent::Arrive(packet) => self.arrive(packet, around, reachable),
            NicEvent::Land { qp, packet } => self.land(qp, &packet, around),
            NicEvent::Ack { qp, ordinal } | NicEvent::Gap { qp, ordinal }
                if !self.is_holder(qp) =>
            {
                self.stray(qp, ordinal)
            }
            NicEvent::Ack { qp, ordinal } => self.acknowledge(qp, ordinal, around),
            NicEvent::Gap { qp, ordinal } => {
                let effect = self.acknowledge(qp, ordinal, around);
                let entry = &self.qps[qp];
                if entry.state == State::Ready && around.fabric.is_on(entry.nic) {
                    self.go_back(qp, around);
                }
                effect
            }
            NicEvent::Refused { qp, ordinal } => self.refused(qp, ordinal, around),
            NicEvent::NotReady { qp, epoch } => {
                if self.qps[qp].epoch == epoch && self.qps[qp].state == State::Ready {
                    self.go_back(qp, around);
                }
                Effect::None
            }
            NicEvent::Timeout { qp, epoch } => self.timed_out(qp, epoch, around),
        }
    }

    fn depart<E: From<NicEvent>>(
        &mut self,
        qp: QpId,
        epoch: u32,
        around: &mut Surroundings<E>,
        read: impl FnOnce(u64, u64) -> Payload,
    ) -> Effect {
        let entry = &mut self.qps[qp];
        if entry.epoch != epoch || entry.state != State::Ready {
            return Effect::None;
        }
        entry.departing = false;
        let Some(&(ordinal, work)) = entry.sends.get(entry.departed) else {
            return Effect::None;
        };
        entry.departed += 1;
        let now = around.queue.now();
        let nic = entry.nic;
        let payload = match work.body {
            Body::Segment { local, bytes, .. } => Some(read(local, bytes)),
            Body::Eager { local, bytes, .. } => Some(read(local, bytes.into())),
            Body::Line { .. } | Body::Probe => None,
        };
        let to = entry.peer.map(|peer| self.qps[peer].address());
        let to = to.filter(|_| self.is_addressed(qp, around.fabric));
        let bytes = work.bytes();
        let parts = work.parts();
        for part in 0..parts {
            let entry = &mut self.qps[qp];
            let travel = to.filter(|_| !entry.black_hole).and_then(|to| {
                let way = (nic, to.0);
                let travel = around.fabric.travel(way, bytes, now, around.random)?;
                Some((to, travel))
            });
            let Some((to, travel)) = travel else {
                self.lost += 1;
                break;
            };
            entry.last_arrival = (entry.last_arrival + 1).max(now + travel);
            let packet = part_of((qp, to), ordinal, work, payload, (part, parts));
            around
                .queue
                .at(entry.last_arrival, NicEvent::Arrive(packet).into());
        }
        self.arm(qp, around);
        self.depart_next(qp, around);
        Effect::None
    }

    fn arm<E: From<NicEvent>>(&mut self, qp: QpId, around: &mut Surroundings<E>) {
        let entry = &mut self.qps[qp];
        if !entry.timer && !entry.sends.is_empty() {
            entry.timer = true;
            let epoch = entry.epoch_of_timer;
            around
                .queue
                .after(self.timeout, NicEvent::Timeout { qp, epoch }.into());
        }
    }

    fn arrive<E: From<NicEvent>>(
        &mut self,
        packet: Packet,
        around: &mut Surroundings<E>,
        reachable: impl FnOnce(u64) -> bool,
    ) -> Effect {
        let from = packet.from;
        let (source, target) = (self.qps[from].nic, packet.to.0);
        if !around.fabric.is_on(target) || !self.is_addressed(from, around.fabric) {
            return Effect::None;
        }
        let qp = match self.target(&packet) {
            Ok(Some(qp)) => qp,
            Ok(None) => return Effect::None,
            Err(text) => return Effect::Mistaken(text),
        };
        let entry = &mut self.qps[qp];
        if !entry.is_ready() {
            return Effect::None;
        }
        let place = (packet.ordinal, packet.part);
        let is_last = packet.part + 1 == packet.parts;
        if place != entry.expected {
            let is_old = place < entry.expected;
            self.out_of_place(qp, is_old, (source, target), around);
            return Effect::None;
        }
        if let Some(effect) = self.refuse(qp, &packet, around, reachable) {
            return effect;
        }
        let entry = &mut self.qps[qp];
        entry.has_told_gap = false;
        entry.expected = if is_last {
            (place.0 + 1, 0)
        } else {
            (place.0, place.1 + 1)
        };
        let is_probe = packet.work.body == Body::Probe;
        if is_last {
            self.answer(qp, source, target, around);
        }
        if is_probe {
            return Effect::None;
        }
        let delay = around.random.below(self.bus_delay + 1);
        if delay == 0 && self.qps[qp].landing == 0 {
            self.qps[qp].landing += 1;
            return self.land(qp, &packet, around);
        }
        self.qps[qp].landing += 1;
        // Posted writes of one device do not pass each other.
        let entry = &mut self.qps[qp];
        let at = (around.queue.now() + delay).max(entry.last_land + 1);
        entry.last_land = at;
        around.queue.at(at, NicEvent::Land { qp, packet }.into());
        Effect::None
    }

    /// A segment is not taken: its buffer is not there, or no receive is. Else it takes one.
    fn refuse<E: From<NicEvent>>(
        &mut self,
        qp: QpId,
        packet: &Packet,
        around: &mut Surroundings<E>,
        reachable: impl FnOnce(u64) -> bool,
    ) -> Option<Effect> {
        let Body::Segment { remote, .. } = packet.work.body else {
            return None;
        };
        let (from, ordinal) = (packet.from, packet.ordinal);
        if !reachable(remote) {
            self.fail(qp, Status::Flushed, around.queue.now());
            let (source, target) = (self.qps[from].nic, packet.to.0);
            if let Some(travel) = way_back(target, source, around) {
                around
                    .queue
                    .after(travel, NicEvent::Refused { qp: from, ordinal }.into());
            }
            return Some(Effect::Wake(qp));
        }
        let is_last = packet.part + 1 == packet.parts;
        if is_last && self.qps[qp].receives == 0 {
            let epoch = self.qps[from].epoch;
            around
                .queue
                .after(RNR_DELAY, NicEvent::NotReady { qp: from, epoch }.into());
            return Some(Effect::None);
        }
        self.qps[qp].receives -= u32::from(is_last);
        None
    }

    fn land<E: From<NicEvent>>(
        &mut self,
        qp: QpId,
        packet: &Packet,
        around: &mut Surroundings<E>,
    ) -> Effect {
        let eats = around.fabric.nics[self.qps[qp].nic].eats_completions
            || around.fabric.nics[self.qps[qp].nic].dead;
        let entry = &mut self.qps[qp];
        entry.landing -= 1;
        entry.landed += 1;
        if entry.state == State::Error && entry.landing == 0 {
            self.drained(qp, around.queue.now());
        }
        let entry = &mut self.qps[qp];
        match packet.work.body {
            Body::Segment {
                remote,
                immediate,
                bytes,
                ..
            } => {
                let is_last = packet.part + 1 == packet.parts;
                if is_last && !eats && entry.state == State::Ready {
                    let bytes = bytes as u32;
                    entry
                        .completions
                        .push_back(Completion::Arrived { immediate, bytes });
                }
                match packet.payload {
                    Some(payload) => Effect::Land(qp, remote + packet.skip, payload),
                    None => Effect::Wake(qp),
                }
            }
            Body::Line {
                offset,
                bytes,
                count,
            } => Effect::Mail(qp, offset, bytes, count),
            Body::Eager { .. } => Effect::Slot(packet.clone()),
            Body::Probe => Effect::None,
        }
    }

    fn answer<E: From<NicEvent>>(
        &mut self,
        qp: QpId,
        source: NicId,
        target: NicId,
        around: &mut Surroundings<E>,
    ) {
        let entry = &self.qps[qp];
        let Some(peer) = entry.peer else { return };
        if entry.black_hole {
            return;
        }
        if let Some(travel) = way_back(target, source, around) {
            let ordinal = entry.expected.0;
            around
                .queue
                .after(travel, NicEvent::Ack { qp: peer, ordinal }.into());
        }
    }

    /// A packet that came before, or one behind a gap.
    fn out_of_place<E: From<NicEvent>>(
        &mut self,
        qp: QpId,
        is_old: bool,
        (source, target): (NicId, NicId),
        around: &mut Surroundings<E>,
    ) {
        if is_old {
            self.answer(qp, source, target, around);
        } else if self.tells_gaps && !self.qps[qp].has_told_gap {
            self.tell_gap(qp, source, target, around);
        }
    }

    /// Packets are missing: the source hears from where on it has to send again.
    fn tell_gap<E: From<NicEvent>>(
        &mut self,
        qp: QpId,
        source: NicId,
        target: NicId,
        around: &mut Surroundings<E>,
    ) {
        let entry = &mut self.qps[qp];
        let Some(peer) = entry.peer.filter(|_| !entry.black_hole) else {
            return;
        };
        entry.has_told_gap = true;
        if let Some(travel) = way_back(target, source, around) {
            let ordinal = entry.expected.0;
            around
                .queue
                .after(travel, NicEvent::Gap { qp: peer, ordinal }.into());
        }
    }

    fn acknowledge<E: From<NicEvent>>(
        &mut self,
        qp: QpId,
        ordinal: u64,
        around: &mut Surroundings<E>,
    ) -> Effect {
        let nic = &around.fabric.nics[self.qps[qp].nic];
        let (is_dead, eats) = (nic.dead || !nic.up, nic.eats_completions);
        let entry = &mut self.qps[qp];
        if entry.state != State::Ready || is_dead {
            return Effect::None;
        }
        let mut progress = false;
        let mut wake = false;
        while let Some(&(front, work)) = entry.sends.front().filter(|(front, _)| *front < ordinal) {
            debug_assert!(front < ordinal);
            entry.sends.pop_front();
            entry.departed = entry.departed.saturating_sub(1);
            progress = true;
            if work.signaled && !eats {
                wake = true;
                let status = Status::Success;
                entry.completions.push_back(Completion::Sent {
                    work: work.id,
                    status,
                });
            }
        }
        if progress {
            // The timer starts anew for what is left.
            entry.epoch_of_timer += 1;
            (entry.retries, entry.timer) = (0, false);
            self.arm(qp, around);
        }
        if wake { Effect::Wake(qp) } else { Effect::None }
    }

    fn refused<E>(&mut self, qp: QpId, ordinal: u64, around: &mut Surroundings<E>) -> Effect {
        let entry = &self.qps[qp];
        if entry.state == State::Ready && entry.sends.iter().any(|(own, _)| *own == ordinal) {
            self.fail(qp, Status::RemoteAccess, around.queue.now());
            return Effect::Wake(qp);
        }
        Effect::None
    }

    fn timed_out<E: From<NicEvent>>(
        &mut self,
        qp: QpId,
        epoch: u32,
        around: &mut Surroundings<E>,
    ) -> Effect {
        let entry = &mut self.qps[qp];
        if entry.state != State::Ready || entry.epoch_of_timer != epoch {
            return Effect::None;
        }
        entry.timer = false;
        if entry.sends.is_empty() || around.fabric.nics[entry.nic].dead {
            return Effect::None;
        }
        entry.retries += 1;
        if entry.retries > self.retries_max {
            self.fail(qp, Status::RetryExceeded, around.queue.now());
            return Effect::Wake(qp);
        }
        self.go_back(qp, around);
        Effect::None
    }

    /// Moves a queue pair to error; `cause` is the status of the oldest work request.
    pub fn fail(&mut self, qp: QpId, cause: Status, now: Nanos) {
        let entry = &mut self.qps[qp];
        if entry.state == State::Error {
            return;
        }
        entry.state = State::Error;
        entry.epoch += 1;
        entry.epoch_of_timer += 1;
        let mut status = cause;
        for (_, work) in core::mem::take(&mut entry.sends) {
            entry.completions.push_back(Completion::Sent {
                work: work.id,
                status,
            });
            status = Status::Flushed;
        }
        entry.receives = 0;
        entry.completions.push_back(Completion::ReceivesFlushed);
        if entry.landing == 0 {
            self.drained(qp, now);
        }
    }

    /// Parts of writes that have landed through a queue pair.
    pub fn landed(&self, qp: QpId) -> u64 {
        self.qps[qp].landed
    }

    /// Bytes and number of the work requests of a queue pair that are not acknowledged.
    pub fn outstanding(&self, qp: QpId) -> (u64, usize) {
        let sends = &self.qps[qp].sends;
        (
            sends.iter().map(|(_, work)| work.bytes()).sum(),
            sends.len(),
        )
    }

    /// Whether the other end has accepted a work request: it will not do so again.
    pub fn has_accepted(&self, qp: QpId, ordinal: u64) -> bool {
        let peer = self.qps[qp].peer;
        peer.is_some_and(|peer| self.qps[peer].expected.0 > ordinal)
    }

    /// The device of a queue pair is gone, with all that it had to report.
    pub fn lose(&mut self, qp: QpId, now: Nanos) {
        let entry = &mut self.qps[qp];
        let was_ready = entry.state == State::Ready;
        entry.state = State::Error;
        entry.lost_at = entry.lost_at.or(Some(now));
        entry.epoch += 1;
        entry.epoch_of_timer += 1;
        entry.sends.clear();
        entry.completions.clear();
        entry.receives = 0;
        if was_ready && entry.landing == 0 {
            entry.fenced_at = Some(now);
        }
    }

    fn drained(&mut self, qp: QpId, now: Nanos) {
        let entry = &mut self.qps[qp];
        if entry.fenced_at.is_none() {
            entry.fenced_at = Some(now);
            entry.completions.push_back(Completion::Drained);
        }
    }
}
