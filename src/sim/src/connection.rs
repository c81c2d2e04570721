//! One connection of a world: its two ends, its paths, its users.

use std::collections::VecDeque;

use r2ccl_core::limits::{CREDIT_RING_BYTES, EAGER_SLOTS};
use r2ccl_core::{EndConfig, Generation, PathId, Seq};

use crate::check::Postings;
use crate::drain::Drains;
use crate::eager::Copying;
use crate::endings::Leave;
use crate::fabric::NicId;
use crate::memory::BufferId;
use crate::nic::QpId;
use crate::plan::{Plan, RANKS};
use crate::ports::{ReceiveEnd, SendEnd};
use crate::queue::Nanos;
use crate::rules::Seen;
use crate::slot::Slot;
use crate::world::Event;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Sends.
    Sender,
    /// Receives.
    Receiver,
}

impl Side {
    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

/// The NICs of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathNics {
    /// At the sender.
    pub sender: NicId,
    /// At the receiver.
    pub receiver: NicId,
}

impl PathNics {
    /// The NIC at one end.
    pub fn at(&self, side: Side) -> NicId {
        match side {
            Side::Sender => self.sender,
            Side::Receiver => self.receiver,
        }
    }
}

/// The credit ring of one generation, and its counter word behind it.
#[derive(Clone)]
pub struct Mailbox {
    bytes: Box<[u8]>,
}

impl Default for Mailbox {
    fn default() -> Self {
        Self {
            bytes: vec![0; CREDIT_RING_BYTES + 8].into_boxed_slice(),
        }
    }
}

impl Mailbox {
    /// A small write lands.
    pub fn land(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// The line in a slot.
    pub fn line(&self, slot: usize) -> [u8; 32] {
        let mut line = [0; 32];
        line.copy_from_slice(&self.bytes[slot * 32..slot * 32 + 32]);
        line
    }

    /// The counter word.
    pub fn counter(&self) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[CREDIT_RING_BYTES..]);
        u64::from_le_bytes(word)
    }
}

/// A queue pair of an end.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Its path.
    pub path: PathId,
    /// Its generation.
    pub generation: Generation,
    /// The queue pair.
    pub qp: QpId,
    /// Where the other end takes small writes: the number of its mailbox or slots.
    pub remote: u64,
    /// The core waits for its fence.
    pub fence_wanted: bool,
    /// A probe on it has passed.
    pub is_proved: bool,
    /// Messages that were taken from its slots.
    pub taken: u64,
}

/// A receive request that is open.
#[derive(Clone, Copy, Debug)]
pub struct OpenReceive {
    /// Its first message.
    pub first: Seq,
    /// How many.
    pub count: usize,
    /// Their buffers.
    pub buffers: [BufferId; 8],
}

/// A send that is open.
#[derive(Clone, Copy, Debug)]
pub struct OpenSend {
    /// The message.
    pub message: usize,
    /// Its slot, if it went ahead of its credit.
    pub eager: Option<usize>,
    /// Its source.
    pub buffer: BufferId,
}

/// What an end has besides its core.
#[derive(Clone, Debug, Default)]
pub struct EndState {
    /// When it looks next.
    pub wake: Option<Nanos>,
    /// When its core wants to be told the time.
    pub timeout: Option<Nanos>,
    /// What it had been through when it was looked at last.
    pub seen: Seen,
    /// Queue pairs that are not destroyed.
    pub held: Vec<Held>,
    /// Its requests have failed, and why.
    pub failed: Option<String>,
}

/// A connection.
pub struct Connection {
    /// What its users do.
    pub plan: Plan,
    /// Hosts of sender and receiver.
    pub hosts: [usize; 2],
    /// Settings of both ends.
    pub config: EndConfig,
    /// Its paths by id.
    pub paths: Vec<PathNics>,
    /// Sending core.
    pub sender: SendEnd,
    /// Receiving core.
    pub receiver: ReceiveEnd,
    /// Both ends' other state.
    pub ends: [EndState; 2],
    /// Where segments were posted.
    pub postings: Postings,
    /// Group that is being sent, and how many of its messages are.
    pub sending: (usize, usize),
    /// What each rank of the sending user has not sent yet, by tag.
    pub ranks: [VecDeque<usize>; RANKS],
    /// The sending user rests until then.
    pub rest_until: Nanos,
    /// What messages ahead of their credit are copied to before they are posted, by slot.
    pub staging: [Option<BufferId>; EAGER_SLOTS],
    /// Since when a send has waited for its credit: the next one, or one that went ahead of it.
    pub starved_since: Option<Nanos>,
    /// Next group to receive.
    pub receiving: usize,
    /// The receiving user rests until then.
    pub receive_rest_until: Nanos,
    /// The copies of messages that came ahead of their credit, the present one first.
    pub copying: VecDeque<Copying>,
    /// What has to wait until the receiver has copied.
    pub deferred: Vec<Event>,
    /// A message taken from a slot of this generation that has found no receive; for the bug that
    /// keeps it.
    pub kept: Option<(PathId, Generation, Slot)>,
    /// Credits before this one were written once.
    pub credited: Seq,
    /// Open receives, oldest first.
    pub open_receives: VecDeque<OpenReceive>,
    /// Open sends.
    pub open_sends: Vec<OpenSend>,
    /// Buffers that are free; the last is taken first.
    pub free_buffers: Vec<BufferId>,
    /// Source buffers that are free.
    pub free_sources: Vec<BufferId>,
    /// Messages reported received.
    pub received: usize,
    /// When each of them was.
    pub deliveries: Vec<Nanos>,
    /// Messages reported sent.
    pub sent: usize,
    /// It may end in an error, or not at all: a process was killed or a user aborted.
    pub is_excused: bool,
    /// The end whose peer is gone without a word.
    pub deserted: Option<Side>,
    /// The receiver has been told to close.
    pub leaving: Option<Leave>,
    /// Messages that the sender has heard to be delivered, of a receiver that has closed.
    pub counted: Option<usize>,
    /// The receiver posts no receives on its queue pairs.
    pub is_starved: bool,
    /// Paths that its ends were told to keep off.
    pub drains: Drains,
}

impl Connection {
    /// Host of an end.
    pub fn host(&self, side: Side) -> usize {
        self.hosts[side as usize]
    }

    /// State of an end.
    pub fn end(&mut self, side: Side) -> &mut EndState {
        &mut self.ends[side as usize]
    }

    /// The queue pair of a generation.
    pub fn held(&self, side: Side, path: PathId, generation: Generation) -> Option<Held> {
        let held = self.ends[side as usize].held.iter();
        held.copied()
            .find(|held| held.path == path && held.generation == generation)
    }

    /// Its requests may fail from now on.
    pub fn excuse(&mut self) {
        self.is_excused = true;
    }

    /// All messages are through, and all paths are in service at both ends.
    pub fn is_finished(&self) -> bool {
        let is_at_rest = self.is_through() && self.is_back() && self.obeys_drains();
        let is_done = self.is_excused || is_at_rest;
        is_done && !self.must_fail() && !self.must_finish()
    }

    /// All messages are received and reported sent.
    pub fn is_through(&self) -> bool {
        let count = self.plan.messages.len();
        self.received == count && self.sent == count
    }

    /// All paths are in service at both ends.
    pub fn is_back(&self) -> bool {
        let all = |side| {
            self.healths(side)
                .iter()
                .all(|health| health.is_in_service())
        };
        all(Side::Sender) && all(Side::Receiver)
    }

    /// What is left to do, for people.
    pub fn unfinished(&self) -> Option<String> {
        if self.is_finished() {
            return None;
        }
        let count = self.plan.messages.len();
        let sender = self.sender.half().snapshot();
        let receiver = self.receiver.half().snapshot();
        Some(format!(
            "{} of {count} messages received, {} sent; paths {:?} and {:?}; sender: oldest {} \
             delivered {} posted {} filled {} credited {} unfenced {:b}; receiver: oldest {} \
             delivered {} confirmed {} credited {} opened {}",
            self.received,
            self.sent,
            self.healths(Side::Sender),
            self.healths(Side::Receiver),
            sender.oldest.0,
            sender.delivered.0,
            sender.posted.0,
            sender.filled.0,
            sender.credited.0,
            sender.unfenced,
            receiver.oldest.0,
            receiver.delivered.0,
            receiver.confirmed.0,
            receiver.credited.0,
            receiver.opened.0,
        ))
    }
}
