//! Two real ends of a connection, a fake wire between them, simulated memory and fake time.
//!
//! The wire keeps the order inside a queue pair and nothing else: queue pairs overtake each other,
//! completions come late, idempotent writes come again, old generations speak up. The world checks
//! from outside: every byte of every buffer, that nothing lands in a buffer that was reported, that
//! sends of a tag keep their order, and that no send is done before its message is delivered.

mod eager;
mod random;
mod slot;
mod wire;

pub use eager::EagerCounts;
use eager::EagerSend;
use r2ccl_core::limits::{EAGER_SLOTS, WINDOW};
use r2ccl_core::{
    Generation, PathId, ReceiveBuffer, Receiver, ReceiverConfig, RegionId, Route, SendStatus,
    Sender, SenderConfig, SenderStatistics, Seq, Time, Truncation,
};
use random::Random;
use std::collections::{BTreeMap, VecDeque};
pub use wire::Wire;

/// What memory holds before anything has landed.
const UNTOUCHED: u8 = 0xee;
const SEGMENT_BYTES: u32 = 64 << 10;

/// A receive buffer and what should come of it.
pub struct Buffer {
    pub bytes: Vec<u8>,
    tag: i32,
    /// Source and room, as soon as a send has taken it.
    expected: Option<Vec<u8>>,
    pub is_reported: bool,
}

/// A grouped receive whose end has not been reported.
struct Request {
    first: Seq,
    count: usize,
}

/// What kinds of message a world sees.
#[derive(Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub messages: usize,
    pub paths: u8,
    pub bytes_max: usize,
}

pub struct World {
    plan: Plan,
    random: Random,
    now: u64,
    /// How many messages the receiving user is ahead at the most, for a while.
    lead: u64,
    /// Whether credits and heads go slowly for a while.
    is_slow: [bool; 2],
    sender: Sender,
    receiver: Receiver,
    pub wire: Wire,
    /// Buffers by message.
    buffers: Vec<Buffer>,
    /// Sources by message.
    sources: BTreeMap<u64, Vec<u8>>,
    requests: Vec<Request>,
    /// Tags of the groups that the receiving user has not opened.
    unopened: VecDeque<Vec<i32>>,
    /// Tags that the sending user still has to send for, group by group.
    wanted: VecDeque<Vec<i32>>,
    /// Messages that either user knows of.
    planned: usize,
    /// By tag: its receives, and how many of them have their send.
    tags: BTreeMap<i32, (Vec<u64>, usize)>,
    /// Sends whose end has not been reported.
    sends: Vec<Seq>,
    /// The sends that went ahead of their credits, until their end is reported, by slot.
    eager: [Option<EagerSend>; EAGER_SLOTS],
    pub eager_counts: EagerCounts,
    pub reported_sends: usize,
    pub reported_receives: usize,
    pub generation_changes: usize,
    pub refused_sends: usize,
    pub full_windows: usize,
    pub truncated: usize,
    /// Cuts that the sender has told of.
    cuts: u64,
}

pub fn path(index: usize) -> PathId {
    PathId::new(index as u8).expect("in range")
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let config = SenderConfig {
            segment_bytes_max: SEGMENT_BYTES,
        };
        let mut sender = Sender::new(config).expect("valid");
        let mut receiver = Receiver::new(ReceiverConfig::default());
        for index in 0..plan.paths.into() {
            sender.add_path(path(index), Generation(0)).expect("first");
            receiver
                .add_path(path(index), Generation(0))
                .expect("first");
        }
        receiver.set_credit_path(path(0)).expect("known");
        sender.set_route(Route::single(path(0))).expect("known");
        Self {
            plan,
            random: Random::new(plan.seed),
            now: 0,
            lead: 0,
            is_slow: [false; 2],
            sender,
            receiver,
            wire: Wire::new(plan.paths.into()),
            buffers: Vec::new(),
            sources: BTreeMap::new(),
            requests: Vec::new(),
            unopened: VecDeque::new(),
            wanted: VecDeque::new(),
            planned: 0,
            tags: BTreeMap::new(),
            sends: Vec::new(),
            eager: Default::default(),
            eager_counts: EagerCounts::default(),
            reported_sends: 0,
            reported_receives: 0,
            generation_changes: 0,
            refused_sends: 0,
            full_windows: 0,
            truncated: 0,
            cuts: 0,
        }
    }

    /// Runs until every message is reported on both sides; panics when that takes too long.
    pub fn run(&mut self) {
        let limit = 400 * self.plan.messages + 10_000;
        for _ in 0..limit {
            self.step();
            self.check_marks();
            self.see_bindings();
            self.take_cuts();
            let is_opened = self.planned >= self.plan.messages && self.unopened.is_empty();
            let is_sent = self.wanted.is_empty() && self.sends.is_empty() && !self.is_eager_open();
            if is_opened && is_sent && self.requests.is_empty() {
                let opened = self.buffers.len();
                assert_eq!(
                    (self.reported_sends, self.reported_receives),
                    (opened, opened)
                );
                assert_eq!(self.cuts, self.sender_statistics().truncated, "PROTOCOL R8");
                assert!(!self.sender.is_busy() && self.receiver.delivered() == opened as u64);
                return;
            }
            if is_opened && self.requests.is_empty() && self.random.once_in(5) {
                self.say_goodbye();
            }
        }
        panic!(
            "stuck: {:?}\n{:?}",
            self.sender.snapshot(),
            self.receiver.snapshot()
        );
    }

    pub fn sender_statistics(&self) -> SenderStatistics {
        self.sender.snapshot().statistics
    }

    fn check_marks(&self) {
        let marks = self.sender.snapshot();
        assert!(marks.oldest <= marks.delivered && marks.delivered <= marks.posted);
        assert!(marks.oldest <= marks.filled && marks.filled <= marks.credited);
        assert!(marks.posted <= marks.credited);
        assert!(marks.credited.since(marks.oldest) <= WINDOW as u64);
        let marks = self.receiver.snapshot();
        assert!(marks.oldest <= marks.delivered && marks.delivered <= marks.opened);
        assert!(marks.credited <= marks.opened);
        assert!(marks.opened.since(marks.oldest) <= WINDOW as u64);
    }

    fn step(&mut self) {
        self.now += self.random.below(1000) as u64;
        if self.random.once_in(200) {
            self.lead = [0, 0, 3, WINDOW as u64][self.random.below(4)];
            self.is_slow = core::array::from_fn(|_| self.random.once_in(3));
        }
        let [credits, heads] = self.is_slow.map(|slow| slow && !self.random.once_in(30));
        match self.random.below(100) {
            0..10 => self.receive(),
            10..15 if !heads => self.read_slots(),
            15..32 => self.send(),
            32..45 => self.wire.post_segments(&mut self.sender, &mut self.random),
            45..65 => {
                let Self {
                    wire,
                    receiver,
                    buffers,
                    sources,
                    random,
                    ..
                } = self;
                wire.land_segment(receiver, random, |write| {
                    let seq = (write.remote_address >> 32) - 1;
                    assert_eq!(seq, write.seq.0, "the address is that of the message");
                    let at = write.remote_address as u32 as usize;
                    let from = write.local_offset as u32 as usize;
                    let buffer = &mut buffers[seq as usize];
                    assert!(!buffer.is_reported, "PROTOCOL R16: landed late");
                    let len = write.bytes as usize;
                    let source = &sources[&((write.local_offset >> 32) - 1)];
                    buffer.bytes[at..at + len].copy_from_slice(&source[from..from + len]);
                });
                self.wire
                    .post_confirmations(&mut self.receiver, &mut self.random);
            }
            65..75 if !credits => self.wire.land_confirmations(&mut self.random),
            75..85 => self.wire.read_mailboxes(&mut self.sender, &mut self.random),
            85..91 => {
                self.report_eagers();
                self.report_sends();
            }
            91..95 => self.report_receives(),
            95 => self
                .wire
                .complete_some(&mut self.sender, &mut self.receiver, &mut self.random),
            96 => self.change_route(),
            97 => self.wire.resend(&mut self.receiver, &mut self.random),
            98 => self
                .wire
                .speak_up_from_the_past(&mut self.sender, &mut self.receiver),
            _ => {
                let Self {
                    wire,
                    sender,
                    receiver,
                    random,
                    ..
                } = self;
                self.generation_changes += usize::from(wire.renew(sender, receiver, random));
            }
        }
    }

    /// Opens a group of receives.
    fn receive(&mut self) {
        let is_ahead = self.receiver.opened() - self.receiver.delivered() > self.lead;
        if is_ahead {
            return;
        }
        if self.unopened.is_empty() && !self.plan_group() {
            return;
        }
        let tags = self.unopened.pop_front().expect("planned");
        let count = tags.len();
        let first = self.buffers.len();
        let fresh: Vec<_> = (0..count).map(|_| vec![UNTOUCHED; self.bytes()]).collect();
        let offers: Vec<_> = fresh
            .iter()
            .zip(&tags)
            .enumerate()
            .map(|(index, (bytes, &tag))| ReceiveBuffer {
                region: RegionId(1),
                address: ((first + index + 1) as u64) << 32,
                capacity: bytes.len() as u64,
                tag,
            })
            .collect();
        let now = Time::from_nanoseconds(self.now);
        let Some(opened) = self.receiver.post_recv(now, &offers).expect("legal") else {
            self.full_windows += 1;
            self.unopened.push_front(tags);
            return;
        };
        assert_eq!(opened.0, first as u64);
        for (bytes, &tag) in fresh.into_iter().zip(&tags) {
            let seq = self.buffers.len() as u64;
            self.tags.entry(tag).or_default().0.push(seq);
            self.buffers.push(Buffer {
                bytes,
                tag,
                expected: None,
                is_reported: false,
            });
        }
        self.requests.push(Request {
            first: opened,
            count,
        });
        self.copy_eagers();
        self.wire
            .post_confirmations(&mut self.receiver, &mut self.random);
    }

    /// Submits one send for a group whose turn it is, or for the next one.
    fn send(&mut self) {
        let Some((group, member)) = self.pick_send() else {
            return;
        };
        let tag = self.wanted[group][member];
        let bytes = self.bytes();
        let id = self.sources.len() as u64;
        let now = Time::from_nanoseconds(self.now);
        let local = (RegionId(0), (id + 1) << 32);
        let submitted = self
            .sender
            .submit_send(now, local, bytes as u64, tag)
            .expect("legal");
        let source: Vec<u8> = (0..bytes)
            .map(|at| (at as u64 * 31 + id * 7 + 1) as u8)
            .collect();
        if let Some(seq) = submitted {
            let nth = self.count_send(tag);
            let given = self.match_buffer(seq, (tag, nth), &source);
            if given < bytes {
                let cut = self.take_cuts().expect("PROTOCOL R8");
                let is_it = (cut.seq, cut.asked, cut.given) == (seq, bytes as u64, given as u32);
                assert!(is_it, "{cut:?}");
                self.truncated += 1;
            }
            self.sends.push(seq);
        } else if !self.send_eager(local, tag, &source) {
            self.refused_sends += 1;
            return;
        }
        self.sources.insert(id, source);
        self.wanted[group].swap_remove(member);
        self.wanted.retain(|tags| !tags.is_empty());
    }

    /// Takes note of the sends that were cut down.
    fn take_cuts(&mut self) -> Option<Truncation> {
        let cut = self.sender.take_truncation();
        self.cuts += cut.map_or(0, |cut| 1 + u64::from(cut.others));
        cut
    }

    /// A send of `source`, the `nth` with its tag, has become a message. Returns how much of it
    /// finds room.
    fn match_buffer(&mut self, seq: Seq, (tag, nth): (i32, usize), source: &[u8]) -> usize {
        let buffer = &mut self.buffers[seq.0 as usize];
        assert!(
            buffer.expected.is_none(),
            "PROTOCOL R7: a receive takes one send"
        );
        assert_eq!(buffer.tag, tag, "PROTOCOL R7: tags match");
        let receives = &self.tags[&tag].0;
        assert_eq!(receives[nth], seq.0, "PROTOCOL R7: in the order of the tag");
        let given = source.len().min(buffer.bytes.len());
        buffer.expected = Some(source[..given].to_vec());
        given
    }

    fn bytes(&mut self) -> usize {
        match self.random.below(20) {
            0..4 => 0,
            4 if self.plan.bytes_max > 0 => self.random.below(self.plan.bytes_max + 1),
            5..10 => 256,
            _ => self.random.below(400),
        }
    }

    /// Asks about one random send and reports it if it is done.
    fn report_sends(&mut self) {
        if self.sends.is_empty() {
            return;
        }
        let index = self.random.below(self.sends.len());
        let seq = self.sends[index];
        match self.sender.status(seq) {
            SendStatus::Pending => return,
            SendStatus::Delivered { bytes } => {
                assert!(
                    seq.0 < self.receiver.delivered(),
                    "PROTOCOL R2: done means delivered"
                );
                let buffer = &self.buffers[seq.0 as usize];
                let expected = buffer.expected.as_ref().expect("submitted").len();
                assert_eq!(bytes as usize, expected);
            }
            SendStatus::Unknown => panic!("{seq:?} was submitted and not released"),
        }
        self.sender.release(seq).expect("delivered");
        assert_eq!(
            self.sender.status(seq),
            SendStatus::Unknown,
            "PROTOCOL R4: once"
        );
        self.sends.swap_remove(index);
        self.reported_sends += 1;
    }

    /// Asks about one random receive request and reports it if it is done.
    fn report_receives(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let index = self.random.below(self.requests.len());
        let Request { first, count } = self.requests[index];
        if !self.receiver.is_done(first, count) {
            return;
        }
        for seq in (0..count as u64).map(|member| first.plus(member)) {
            let buffer = &mut self.buffers[seq.0 as usize];
            let expected = buffer.expected.take().expect("only what was sent is done");
            let bytes = self.receiver.bytes(seq) as usize;
            assert_eq!(bytes, expected.len(), "PROTOCOL R5: the size of {seq:?}");
            assert!(
                buffer.bytes[..bytes] == expected[..],
                "the bytes of {seq:?}"
            );
            assert!(buffer.bytes[bytes..].iter().all(|&byte| byte == UNTOUCHED));
            buffer.is_reported = true;
            buffer.expected = Some(expected);
        }
        self.receiver.release(first, count).expect("delivered");
        assert!(!self.receiver.is_done(first, count));
        self.requests.swap_remove(index);
        self.reported_receives += count;
    }

    fn change_route(&mut self) {
        let weights: Vec<_> = (0..self.plan.paths.into())
            .map(|index| (path(index), self.random.below(4) as u32))
            .collect();
        if let Ok(route) = Route::weighted(&weights) {
            self.sender.set_route(route).expect("known paths");
        }
    }
}
