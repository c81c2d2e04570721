//! Queue pairs that may die, and buffers that are looked at from outside.

use r2ccl_core::limits::{CREDIT_BYTES, CREDIT_RING_BYTES, EAGER_SLOTS};
use r2ccl_core::{
    EagerCopy, EagerWrite, Generation, PathId, ReceiverBody, ReceiverWrite, SegmentWrite, WorkId,
};
use std::collections::VecDeque;

const UNTOUCHED: u8 = 0xee;

pub fn path(index: usize) -> PathId {
    PathId::new(index as u8).expect("in range")
}

fn content(seq: u64, at: usize) -> u8 {
    (seq * 7 + at as u64 * 31 + 1) as u8 & 0x7f
}

/// The receive buffers by message.
#[derive(Default)]
pub struct Buffers {
    bytes: Vec<Vec<u8>>,
    is_received: Vec<bool>,
    is_sent: Vec<bool>,
}

impl Buffers {
    pub fn opened(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub fn open(&mut self, bytes: usize) {
        self.bytes.push(vec![UNTOUCHED; bytes]);
        self.is_received.push(false);
        self.is_sent.push(false);
    }

    pub fn check(&mut self, seq: u64, bytes: u32) {
        let buffer = &self.bytes[seq as usize];
        assert_eq!(bytes as usize, buffer.len(), "PROTOCOL R5: size of {seq}");
        let is_right = (0..buffer.len()).all(|at| buffer[at] == content(seq, at));
        assert!(is_right, "bytes of {seq}");
        self.is_received[seq as usize] = true;
    }

    pub fn report_send(&mut self, seq: u64) {
        self.is_sent[seq as usize] = true;
    }

    /// What the receiver copies out of a slot in which message `nth` of the sender lies.
    pub fn copy(&mut self, copy: &EagerCopy, nth: u64) {
        let seq = copy.seq.0;
        assert_eq!((seq, copy.address >> 32), (nth, seq + 1), "PROTOCOL R41");
        assert!(
            !self.is_received[seq as usize],
            "PROTOCOL R42: {seq} was copied late"
        );
        let buffer = &mut self.bytes[seq as usize];
        assert_eq!(copy.bytes as usize, buffer.len());
        assert!(
            buffer.iter().all(|&byte| byte == UNTOUCHED),
            "{seq} came twice"
        );
        for (at, byte) in buffer.iter_mut().enumerate() {
            *byte = content(seq, at);
        }
    }

    fn land(&mut self, write: &SegmentWrite) {
        let seq = write.seq.0;
        assert_eq!(write.remote_address >> 32, seq + 1);
        assert!(
            !self.is_received[seq as usize],
            "PROTOCOL R53: {seq} landed late"
        );
        assert!(!self.is_sent[seq as usize], "PROTOCOL R54: {seq} read late");
        let start = write.remote_address as u32 as usize;
        for at in start..start + write.bytes as usize {
            self.bytes[seq as usize][at] = content(seq, at);
        }
    }
}

/// A write of the sender that is under way.
pub enum Flight {
    Segment(SegmentWrite),
    /// With the number of the message that it carries.
    Eager(EagerWrite, u64),
}

/// The two queue pairs of one generation.
pub struct Pair {
    pub path: PathId,
    pub generation: Generation,
    flights: VecDeque<Flight>,
    /// What has landed in the slots, and the numbers of their messages.
    pub slots: [Option<(EagerWrite, u64)>; EAGER_SLOTS],
    confirmations: VecDeque<ReceiverWrite>,
    pub arrivals: VecDeque<SegmentWrite>,
    pub sender_completions: VecDeque<(WorkId, bool)>,
    pub receiver_completions: VecDeque<(WorkId, bool)>,
    pub ring: Vec<u8>,
    pub counter: u64,
    /// Nothing gets through any more, and nobody says so.
    pub is_black: bool,
    /// When the sender's queue pair fell silent.
    source_silent: Option<u64>,
    is_target_silent: bool,
}

impl Pair {
    pub fn new(path: PathId, generation: Generation) -> Self {
        Self {
            path,
            generation,
            flights: VecDeque::new(),
            slots: [None; EAGER_SLOTS],
            confirmations: VecDeque::new(),
            arrivals: VecDeque::new(),
            sender_completions: VecDeque::new(),
            receiver_completions: VecDeque::new(),
            ring: vec![0; CREDIT_RING_BYTES],
            counter: 0,
            is_black: false,
            source_silent: None,
            is_target_silent: false,
        }
    }
}

/// State of a path's NICs.
#[derive(Clone, Copy, Default)]
struct Nics {
    is_down: bool,
    /// 1: fences hang at the sender; 2: at the receiver.
    hang: usize,
}

pub struct Wire {
    /// Oldest first.
    pub pairs: Vec<Pair>,
    nics: Vec<Nics>,
    /// Segments that landed although their generation was over at the sender.
    pub landed_late: usize,
}

impl Wire {
    pub fn new(paths: usize) -> Self {
        Self {
            pairs: Vec::new(),
            nics: vec![Nics::default(); paths],
            landed_late: 0,
        }
    }

    fn pair(&mut self, path: PathId, generation: Generation) -> Option<&mut Pair> {
        let is_it = |pair: &&mut Pair| (pair.path, pair.generation) == (path, generation);
        self.pairs.iter_mut().find(is_it)
    }

    pub fn newest(&self, path: PathId) -> Option<Generation> {
        let of_path = self.pairs.iter().rfind(|pair| pair.path == path);
        of_path.map(|pair| pair.generation)
    }

    pub fn create(&mut self, path: PathId, generation: Generation) {
        if self.pair(path, generation).is_none() {
            self.pairs.push(Pair::new(path, generation));
        }
    }

    /// PROTOCOL R53: no segment is posted where another copy of it can still land.
    pub fn post_segment(&mut self, write: SegmentWrite) {
        let same = |other: &Flight| match other {
            Flight::Segment(other) => {
                other.seq == write.seq && other.remote_address == write.remote_address
            }
            Flight::Eager(..) => false,
        };
        let is_twice = self
            .pairs
            .iter()
            .any(|pair| !pair.is_target_silent && pair.flights.iter().any(same));
        assert!(!is_twice, "PROTOCOL R53: {write:?} is under way elsewhere");
        let pair = self.pair(write.path, write.generation);
        pair.expect("posted on what was made")
            .flights
            .push_back(Flight::Segment(write));
    }

    pub fn post_eager(&mut self, write: EagerWrite, nth: u64) {
        let pair = self.pair(write.path, write.generation);
        let pair = pair.expect("posted on what was made");
        pair.flights.push_back(Flight::Eager(write, nth));
    }

    pub fn post_confirmation(&mut self, write: ReceiverWrite) {
        let pair = self.pair(write.path, write.generation);
        pair.expect("posted on what was made")
            .confirmations
            .push_back(write);
    }

    /// Lets up to `count` writes each way land. The link may be down for a while, but a packet that
    /// is under way may land whenever it is not.
    pub fn land(&mut self, index: usize, count: usize, buffers: &mut Buffers) {
        let nics = self.nics[self.pairs[index].path.index()];
        let pair = &mut self.pairs[index];
        if nics.is_down || pair.is_black {
            return;
        }
        for _ in 0..count {
            let flight = pair.flights.pop_front();
            if let Some(flight) = flight.filter(|_| !pair.is_target_silent) {
                let is_late = pair.source_silent.is_some();
                self.landed_late += usize::from(is_late);
                let (work, signaled) = match flight {
                    Flight::Segment(write) => {
                        buffers.land(&write);
                        pair.arrivals.push_back(write);
                        (write.work, write.signaled)
                    }
                    Flight::Eager(write, nth) => {
                        pair.slots[write.slot] = Some((write, nth));
                        (write.work, write.signaled)
                    }
                };
                if signaled && !is_late {
                    pair.sender_completions.push_back((work, true));
                }
            }
            if let Some(write) = pair.confirmations.pop_front() {
                let (bytes, len) = write.payload();
                match write.body {
                    ReceiverBody::Credits { slot, .. } => {
                        let start = slot * CREDIT_BYTES;
                        pair.ring[start..start + len].copy_from_slice(&bytes[..len]);
                    }
                    ReceiverBody::Counter { value } => pair.counter = value,
                }
                if write.signaled {
                    pair.receiver_completions.push_back((write.work, true));
                }
            }
        }
    }

    /// A packet does not live longer than the quarantine once its source is silent.
    pub fn settle(&mut self, now: u64, quarantine_ns: u64) {
        for pair in &mut self.pairs {
            if pair
                .source_silent
                .is_some_and(|at| at + quarantine_ns <= now)
            {
                pair.flights.clear();
            }
        }
    }

    pub fn silence_source(&mut self, path: PathId, generation: Generation, now: u64) {
        if let Some(pair) = self.pair(path, generation) {
            pair.source_silent.get_or_insert(now);
        }
    }

    /// Nothing lands any more; what had arrived comes out of the completion queue.
    pub fn silence_target(&mut self, path: PathId, generation: Generation) -> Vec<SegmentWrite> {
        let Some(pair) = self.pair(path, generation) else {
            return Vec::new();
        };
        pair.is_target_silent = true;
        pair.arrivals.drain(..).collect()
    }

    pub fn destroy(&mut self, is_sender: bool, path: PathId, up_to: Generation) {
        for pair in &mut self.pairs {
            if pair.path == path && pair.generation <= up_to {
                if is_sender {
                    pair.source_silent.get_or_insert(0);
                } else {
                    pair.is_target_silent = true;
                }
            }
        }
    }

    pub fn cut(&mut self, path: PathId, hang: usize) {
        self.nics[path.index()] = Nics {
            is_down: true,
            hang,
        };
    }

    pub fn restore(&mut self, path: PathId) {
        self.nics[path.index()] = Nics::default();
    }

    pub fn is_up(&self, path: PathId) -> bool {
        !self.nics[path.index()].is_down
    }

    pub fn hangs(&self, is_sender: bool, path: PathId) -> bool {
        self.nics[path.index()].hang == if is_sender { 1 } else { 2 }
    }

    pub fn is_sound(&self, path: PathId, generation: Generation) -> bool {
        let is_it = |pair: &&Pair| (pair.path, pair.generation) == (path, generation);
        let pair = self.pairs.iter().find(is_it);
        let works =
            |pair: &Pair| !pair.is_black && pair.source_silent.is_none() && !pair.is_target_silent;
        self.is_up(path) && pair.is_some_and(works)
    }
}
