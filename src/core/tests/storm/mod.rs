//! Two ends of a connection over several paths that fail, stall, hang and come back, in virtual
//! time, with control frames that are lost, doubled and late.
//!
//! Checked from outside: every byte, that nothing lands in a buffer that was reported on either
//! side, and that no segment is on two generations that can still land (PROTOCOL R53).

mod eager;
#[path = "../world/random.rs"]
mod random;
pub mod wire;

use r2ccl_core::limits::{CREDIT_BYTES, EAGER_SLOTS};
use r2ccl_core::wire::path_frame::{Endpoint, PathFrame};
use r2ccl_core::{
    Action, Condition, End, EndConfig, Evidence, FenceOutcome, Generation, PathId, ProbeKind,
    ReceiveEnd, Receiver, ReceiverConfig, SendEnd, SendStatus, Sender, SenderConfig, Seq, Time,
};
use random::Random;
use wire::{Buffers, Pair, Wire};

pub const MICROSECOND: u64 = 1_000;
pub const MILLISECOND: u64 = 1_000 * MICROSECOND;

/// What a world goes through.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub paths: usize,
    pub messages: u64,
    pub faults: usize,
    pub bytes_max: usize,
}

/// Something that comes later.
enum Later {
    ToSender(PathFrame),
    ToReceiver(PathFrame),
    Fenced(bool, PathId, Generation),
    Created(bool, PathId, Generation),
    Connected(bool, PathId, Generation),
    Probed(bool, PathId, Generation, u32),
    Up(PathId),
}

pub struct World {
    plan: Plan,
    random: Random,
    pub now: u64,
    pub sender: SendEnd,
    pub receiver: ReceiveEnd,
    pub wire: Wire,
    later: Vec<(u64, Later)>,
    buffers: Buffers,
    submitted: u64,
    reported_receives: u64,
    reported_sends: u64,
    /// Sizes of all messages.
    sizes: Vec<usize>,
    /// How many messages the receiving user is ahead at the most, for a while.
    lead: u64,
    /// The messages that went ahead of their credits, until they are reported, by slot.
    eager: [Option<u64>; EAGER_SLOTS],
    has_closed: bool,
    faults: usize,
    pub lost_frames: usize,
}

pub fn config(seed: u64) -> EndConfig {
    EndConfig {
        seed,
        repeat_ns: 500 * MICROSECOND,
        fence_deadline_ns: 2 * MILLISECOND,
        quarantine_ns: 20 * MILLISECOND,
        stall_ns: 4 * MILLISECOND,
        rate_min: 1_000_000_000,
        probe_ns: 3 * MILLISECOND,
        back_off_ns: MILLISECOND,
        back_off_max_ns: 30 * MILLISECOND,
        attempt_ns: 20 * MILLISECOND,
        hold_down_ns: 4 * MILLISECOND,
        hold_down_max_ns: 40 * MILLISECOND,
        ramp_ns: 10 * MILLISECOND,
        ..EndConfig::default()
    }
}

fn endpoint() -> Endpoint {
    Endpoint {
        queue_pair: [0; 64],
        memory_address: 0,
        memory_rkey: 0,
    }
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let sender = Sender::new(SenderConfig {
            segment_bytes_max: 64 << 10,
        });
        let receiver = Receiver::new(ReceiverConfig::default());
        let mut world = Self {
            plan,
            random: Random::new(plan.seed),
            now: 0,
            sender: End::new(config(plan.seed), sender.expect("valid")),
            receiver: End::new(config(plan.seed + 1), receiver),
            wire: Wire::new(plan.paths),
            later: Vec::new(),
            buffers: Buffers::default(),
            submitted: 0,
            reported_receives: 0,
            reported_sends: 0,
            sizes: Vec::new(),
            lead: 0,
            eager: [None; EAGER_SLOTS],
            has_closed: false,
            faults: 0,
            lost_frames: 0,
        };
        world.draw_sizes();
        let spread = world.random.once_in(2);
        for index in 0..plan.paths {
            let (path, parts) = (wire::path(index), (u32::from(spread || index == 0), 1));
            let first = Generation(1);
            world
                .sender
                .add_path(Time::ZERO, path, first, parts)
                .expect("first");
            world
                .receiver
                .add_path(Time::ZERO, path, first, parts)
                .expect("first");
            world.wire.pairs.push(Pair::new(path, first));
        }
        world
    }

    /// Runs until all is delivered and reported; panics when that takes too long.
    pub fn run(&mut self) {
        while self.reported_sends < self.plan.messages
            || self.reported_receives < self.plan.messages
        {
            self.step();
            assert!(
                self.now < 20_000 * MILLISECOND,
                "stuck at {:?}: {:?}\n{:?}\n{:?}\n{:?}",
                self.plan,
                self.sender.snapshot(),
                self.sender.half().snapshot(),
                self.receiver.snapshot(),
                self.receiver.half().snapshot(),
            );
        }
    }

    fn at(&self) -> Time {
        Time::from_nanoseconds(self.now)
    }

    fn step(&mut self) {
        self.now += self.random.below(100) as u64 * MICROSECOND;
        if self.faults < self.plan.faults && self.random.once_in(40) {
            self.faults += 1;
            self.fault();
        }
        let quarantine = config(0).quarantine_ns;
        self.wire.settle(self.now, quarantine);
        self.users();
        self.data();
        self.read_slots();
        self.deliver();
        let now = self.at();
        if self.sender.next_timeout().is_some_and(|at| at <= now) {
            self.sender.handle_timeout(now);
        }
        if self.receiver.next_timeout().is_some_and(|at| at <= now) {
            self.receiver.handle_timeout(now);
        }
        while let Some(action) = self.sender.poll_action(now) {
            self.act(true, action);
        }
        while let Some(action) = self.receiver.poll_action(now) {
            self.act(false, action);
        }
    }

    /// Opens, submits and reports messages.
    fn users(&mut self) {
        self.open_message();
        self.submit_message();
        let seq = Seq(self.reported_receives);
        if self.receiver.half().is_done(seq, 1) && self.random.once_in(2) {
            self.buffers.check(seq.0, self.receiver.half().bytes(seq));
            self.receiver.half_mut().release(seq, 1).expect("done");
            self.reported_receives += 1;
        }
        if self.reported_receives == self.plan.messages && !self.has_closed {
            self.has_closed = true;
            self.receiver.close(self.plan.messages);
        }
        let seq = Seq(self.reported_sends);
        let eager = self.eager.iter().position(|nth| *nth == Some(seq.0));
        let half = self.sender.half_mut();
        let status = eager.map_or_else(|| half.status(seq), |slot| half.eager_status(slot));
        if let SendStatus::Delivered { bytes } = status {
            assert!(seq.0 < self.receiver.half().delivered(), "PROTOCOL R2");
            assert_eq!(bytes as usize, self.sizes[seq.0 as usize]);
            if let Some(slot) = eager {
                half.release_eager(slot).expect("done");
                self.eager[slot] = None;
            } else {
                half.release(seq).expect("done");
            }
            self.buffers.report_send(seq.0);
            self.reported_sends += 1;
        }
    }

    /// Posts, lands and completes; each only a part of what could be.
    fn data(&mut self) {
        let now = self.at();
        let Self {
            sender,
            receiver,
            wire,
            buffers,
            random,
            ..
        } = self;
        for index in 0..self.plan.paths {
            for _ in 0..random.below(4) {
                let Some(write) = sender.half_mut().poll_transmit(wire::path(index)) else {
                    break;
                };
                if random.once_in(9) {
                    sender.half_mut().return_transmit(&write).expect("newest");
                    break;
                }
                wire.post_segment(write);
            }
        }
        while let Some(write) = receiver.half_mut().poll_transmit() {
            if random.once_in(9) {
                receiver.half_mut().return_transmit(&write).expect("newest");
                break;
            }
            wire.post_confirmation(write);
        }
        let picked = random.below(wire.pairs.len());
        for index in [picked, wire.pairs.len() - 1 - random.below(self.plan.paths)] {
            wire.land(index, random.below(4), buffers);
            let pair = &mut wire.pairs[index];
            while let Some(write) = pair.arrivals.pop_front() {
                receiver
                    .half_mut()
                    .handle_arrival(write.path, write.generation, write.immediate, write.bytes)
                    .expect("legal");
            }
            for _ in 0..random.below(3) {
                if let Some((work, ok)) = pair.sender_completions.pop_front() {
                    sender.handle_completion(now, work, ok);
                }
                if let Some((work, ok)) = pair.receiver_completions.pop_front() {
                    receiver.handle_completion(now, work, ok);
                }
            }
        }
        let mut order: Vec<_> = (0..wire.pairs.len()).collect();
        random.shuffle(&mut order);
        for index in order {
            let pair = &wire.pairs[index];
            let half = sender.half_mut();
            let is_read = matches!(
                half.condition(pair.path),
                Some(Condition::Live | Condition::Proving)
            );
            // Rings and counters of the past are offered as well, now and then.
            if !is_read && !random.once_in(8) {
                continue;
            }
            loop {
                let start = half.expected_credit().0 * CREDIT_BYTES;
                let line = pair.ring[start..start + CREDIT_BYTES].try_into();
                let line = line.expect("a line");
                if !half
                    .handle_credit(pair.path, pair.generation, line)
                    .expect("valid")
                {
                    break;
                }
            }
            half.handle_counter(pair.path, pair.generation, pair.counter)
                .expect("posted");
        }
    }

    fn act(&mut self, is_sender: bool, action: Action) {
        let delay = self.random.below(2_000) as u64 * MICROSECOND;
        let at = self.now + delay;
        let later = match action {
            Action::Send(frame) => return self.send(is_sender, frame),
            Action::Fence { path, generation } => {
                if self.wire.hangs(is_sender, path) {
                    // The outcome comes much later, if the other end does not hang for ever.
                    let at = self.now + 60 * MILLISECOND;
                    self.later
                        .push((at, Later::Fenced(is_sender, path, generation)));
                    return;
                }
                Later::Fenced(is_sender, path, generation)
            }
            Action::Create { path, generation } => {
                self.wire.create(path, generation);
                Later::Created(is_sender, path, generation)
            }
            Action::Connect {
                path, generation, ..
            } => Later::Connected(is_sender, path, generation),
            Action::Destroy { path, up_to } => {
                self.wire.destroy(is_sender, path, up_to);
                return;
            }
            Action::Probe {
                path,
                generation,
                kind,
                id,
            } => {
                let passes = match kind {
                    ProbeKind::QueuePair => self.wire.is_sound(path, generation),
                    ProbeKind::NicPair => self.wire.is_up(path),
                };
                if !passes {
                    return;
                }
                Later::Probed(is_sender, path, generation, id)
            }
        };
        self.later.push((at, later));
    }

    /// Control frames get lost, come twice, and overtake each other.
    fn send(&mut self, from_sender: bool, frame: PathFrame) {
        if self.random.once_in(4) {
            self.lost_frames += 1;
            return;
        }
        for _ in 0..=usize::from(self.random.once_in(5)) {
            let slow = if self.random.once_in(20) {
                30_000
            } else {
                1_000
            };
            let at = self.now + self.random.below(slow) as u64 * MICROSECOND;
            let later = if from_sender {
                Later::ToReceiver(frame)
            } else {
                Later::ToSender(frame)
            };
            self.later.push((at, later));
        }
    }

    fn deliver(&mut self) {
        while let Some(index) = self.later.iter().position(|(at, _)| *at <= self.now) {
            let (_, later) = self.later.swap_remove(index);
            self.happen(later);
        }
    }

    fn happen(&mut self, later: Later) {
        let now = self.at();
        match later {
            Later::ToSender(frame) => self.sender.handle_frame(now, &frame).expect("legal"),
            Later::ToReceiver(frame) => self.receiver.handle_frame(now, &frame).expect("legal"),
            Later::Fenced(true, path, generation) => {
                self.wire.silence_source(path, generation, self.now);
                let drained = FenceOutcome::Drained;
                self.sender.handle_fenced(now, path, generation, drained);
            }
            Later::Fenced(false, path, generation) => {
                let arrivals = self.wire.silence_target(path, generation);
                for write in arrivals {
                    self.receiver
                        .half_mut()
                        .handle_arrival(path, generation, write.immediate, write.bytes)
                        .expect("legal");
                }
                let drained = FenceOutcome::Drained;
                self.receiver.handle_fenced(now, path, generation, drained);
            }
            Later::Created(is_sender, path, generation) => {
                let made = (!self.random.once_in(8)).then(endpoint);
                if is_sender {
                    self.sender.handle_created(now, path, generation, made);
                } else {
                    self.receiver.handle_created(now, path, generation, made);
                }
            }
            Later::Connected(is_sender, path, generation) => {
                let ok = self.wire.is_up(path) && !self.random.once_in(8);
                if is_sender {
                    self.sender.handle_connected(now, path, generation, ok);
                } else {
                    self.receiver.handle_connected(now, path, generation, ok);
                }
            }
            Later::Probed(is_sender, path, generation, id) => {
                if is_sender {
                    self.sender.handle_probe(now, path, generation, id, true);
                } else {
                    self.receiver.handle_probe(now, path, generation, id, true);
                }
            }
            Later::Up(path) => {
                self.wire.restore(path);
                if self.random.once_in(2) {
                    self.sender.handle_link_up(now, path);
                }
                self.receiver.handle_link_up(now, path);
            }
        }
    }

    /// One of the things that happen to paths.
    fn fault(&mut self) {
        let now = self.at();
        let path = wire::path(self.random.below(self.plan.paths));
        let Some(generation) = self.wire.newest(path) else {
            return;
        };
        let error = Evidence::Error;
        let up = self.now + self.random.below(80_000) as u64 * MICROSECOND;
        match self.random.below(7) {
            0 => self.sender.handle_evidence(now, path, generation, error),
            1 => self.receiver.handle_evidence(now, path, generation, error),
            2 => {
                self.sender.handle_evidence(now, path, generation, error);
                self.receiver.handle_evidence(now, path, generation, error);
            }
            // A black hole of one queue pair, for ever.
            3 => self.wire.pairs.last_mut().expect("never empty").is_black = true,
            // The link is gone; who knows of it is drawn as well.
            4 => {
                self.wire.cut(path, 0);
                self.later.push((up, Later::Up(path)));
            }
            // The same, and fences hang at one end.
            5 | 6 => {
                self.wire.cut(path, 1 + self.random.below(2));
                self.later.push((up, Later::Up(path)));
                self.receiver.handle_evidence(now, path, generation, error);
            }
            _ => {}
        }
    }
}
