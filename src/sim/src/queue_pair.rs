//! Queue pairs and work requests as values.

use std::collections::VecDeque;

use r2ccl_core::limits::EAGER_HEAD_BYTES;
use r2ccl_core::wire::eager::eager_padded;

use crate::fabric::NicId;
use crate::memory::Payload;
use crate::queue::Nanos;

/// Bytes from which on a segment lands in two parts.
const SPLIT_BYTES: u64 = 4096;
/// The same for a message ahead of its credit.
const SPLIT_EAGER: u64 = 1024;

/// A queue pair of the world; never used twice, unlike the number that it carries on the wire.
pub type QpId = usize;

/// What a NIC does in the future.
#[derive(Clone, Debug)]
pub enum NicEvent {
    /// The next work request of a queue pair leaves the NIC.
    Depart { qp: QpId, epoch: u32 },
    /// A part of a write is at the target.
    Arrive(Packet),
    /// What the target has accepted reaches memory.
    Land { qp: QpId, packet: Packet },
    /// An acknowledgement of everything before `ordinal` is back.
    Ack { qp: QpId, ordinal: u64 },
    /// The target has everything before `ordinal`, and later packets have come.
    Gap { qp: QpId, ordinal: u64 },
    /// The target refused a write.
    Refused { qp: QpId, ordinal: u64 },
    /// The target had no receive.
    NotReady { qp: QpId, epoch: u32 },
    /// No acknowledgement has come in time.
    Timeout { qp: QpId, epoch: u32 },
}

/// A part of a write on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    pub(crate) from: QpId,
    /// NIC and number of the queue pair that it is for.
    pub(crate) to: (NicId, usize),
    pub(crate) ordinal: u64,
    pub(crate) part: u8,
    pub(crate) parts: u8,
    pub(crate) work: Work,
    /// What was read from the source, for this part.
    pub(crate) payload: Option<Payload>,
    pub(crate) skip: u64,
}

/// What a work request writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Body {
    /// A segment: local address, remote address, bytes, immediate.
    Segment {
        local: u64,
        remote: u64,
        bytes: u64,
        immediate: u32,
    },
    /// Inline bytes for the mailbox of the path's generation, at an offset.
    Line {
        offset: u32,
        bytes: [u8; 64],
        count: u8,
    },
    /// A message ahead of its credit: local address, bytes, the slots of the path's generation, the
    /// one of them that it takes, and the head behind it.
    Eager {
        local: u64,
        bytes: u32,
        slots: u64,
        slot: usize,
        head: [u8; EAGER_HEAD_BYTES],
    },
    /// Nothing: a probe of the queue pair itself.
    Probe,
}

/// One work request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Comes back in the completion.
    pub id: u64,
    /// Whether success yields a completion.
    pub signaled: bool,
    /// What it writes.
    pub body: Body,
}

impl Work {
    pub(crate) fn bytes(&self) -> u64 {
        match self.body {
            Body::Segment { bytes, .. } => bytes,
            Body::Line { count, .. } => u64::from(count),
            Body::Eager { bytes, .. } => (eager_padded(bytes) + EAGER_HEAD_BYTES) as u64,
            Body::Probe => 0,
        }
    }

    /// Parts in which it lands.
    pub(crate) fn parts(&self) -> u8 {
        let split = match self.body {
            Body::Eager { .. } => SPLIT_EAGER,
            _ => SPLIT_BYTES,
        };
        if self.bytes() >= split { 2 } else { 1 }
    }
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Acknowledged by the other NIC.
    Success,
    /// No acknowledgement after all attempts.
    RetryExceeded,
    /// The other NIC refused the key.
    RemoteAccess,
    /// The NIC itself failed.
    LocalOperation,
    /// The message did not fit, as the NIC sees it.
    LocalLength,
    /// The other NIC could not do it.
    RemoteOperation,
    /// The other NIC had no receive, again and again.
    NotReadyExceeded,
    /// The queue pair was in error already.
    Flushed,
}

impl Status {
    /// All but success.
    pub const ERRORS: [Self; 7] = [
        Self::RetryExceeded,
        Self::RemoteAccess,
        Self::LocalOperation,
        Self::LocalLength,
        Self::RemoteOperation,
        Self::NotReadyExceeded,
        Self::Flushed,
    ];
}

/// What a completion queue tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A work request of the send queue has ended.
    Sent { work: u64, status: Status },
    /// A write with immediate has landed.
    Arrived { immediate: u32, bytes: u32 },
    /// The receives were flushed.
    ReceivesFlushed,
    /// Nothing of this queue pair can land any more.
    Drained,
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Work is done.
    Ready,
    /// All work is flushed; nothing is accepted.
    Error,
}

/// One end of a reliable connection.
#[derive(Debug)]
pub struct Qp {
    /// The NIC that it lives on.
    pub nic: NicId,
    /// Its number there.
    pub number: usize,
    /// Number of its first packet.
    pub start: u64,
    /// The address of its port when it was made.
    pub port: u32,
    /// The other end.
    pub peer: Option<QpId>,
    /// The address of its port, as the other end has told it.
    pub peer_port: u32,
    /// Its state.
    pub state: State,
    /// Packets of this queue pair only are lost on the way out.
    pub black_hole: bool,
    /// Completions that nobody has taken.
    pub completions: VecDeque<Completion>,
    /// Receives that are posted.
    pub receives: u32,
    /// Since when no write of it can land any more; the truth, not what a NIC tells.
    pub fenced_at: Option<Nanos>,
    /// Since when its device is gone.
    pub lost_at: Option<Nanos>,
    pub(crate) sends: VecDeque<(u64, Work)>,
    pub(crate) next_ordinal: u64,
    pub(crate) departed: usize,
    pub(crate) departing: bool,
    pub(crate) epoch: u32,
    pub(crate) retries: u32,
    pub(crate) timer: bool,
    pub(crate) epoch_of_timer: u32,
    pub(crate) last_arrival: Nanos,
    pub(crate) last_land: Nanos,
    pub(crate) expected: (u64, u8),
    pub(crate) landing: u32,
    pub(crate) landed: u64,
    pub(crate) has_told_gap: bool,
}

impl Qp {
    /// Work requests of the core that the other NIC has not acknowledged.
    pub fn unanswered(&self) -> usize {
        let own = self.sends.iter();
        own.filter(|(_, work)| work.body != Body::Probe).count()
    }

    /// Whether `is_so` of the places of all of them.
    pub fn unanswered_all(&self, is_so: impl Fn(u64) -> bool) -> bool {
        let mut own = self.sends.iter();
        own.all(|(ordinal, work)| work.body == Body::Probe || is_so(*ordinal))
    }

    /// How packets find it: its NIC, and its number there.
    pub fn address(&self) -> (NicId, usize) {
        (self.nic, self.number)
    }

    /// Whether it does work.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Place of the next work request.
    pub fn next_ordinal(&self) -> u64 {
        self.next_ordinal
    }
}

/// One part of a write: its share of the payload, cut at a line.
pub(crate) fn part_of(
    (from, to): (QpId, (NicId, usize)),
    ordinal: u64,
    work: Work,
    payload: Option<Payload>,
    (part, parts): (u8, u8),
) -> Packet {
    let mut packet = Packet {
        from,
        to,
        ordinal,
        part,
        parts,
        work,
        payload,
        skip: 0,
    };
    if let Some(payload) = packet.payload.as_mut().filter(|_| parts > 1) {
        let head = payload.bytes / 2 / 128 * 128;
        if part == 0 {
            payload.bytes = head;
        } else {
            packet.skip = head;
            payload.place += head / 128;
            payload.bytes -= head;
        }
    }
    packet
}
