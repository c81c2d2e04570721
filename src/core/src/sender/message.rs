//! One message of the window, as the sender sees it.

use crate::ids::{PathId, RegionId, Seq};
use crate::limits::{SEGMENTS_MAX, WINDOW};
use crate::segment::{Cut, Segment};
use crate::time::Time;
use crate::wire::credit::Credit;

/// How far a message has come. Delivery is not a stage: the counter alone tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No credit yet, or released.
    Free,
    /// The credit is known; no send has taken it.
    Offered,
    /// A send has taken it.
    Submitted,
}

/// Credit, source and cut of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) stage: Stage,
    pub(super) credit: Credit,
    pub(super) local_region: RegionId,
    pub(super) local_offset: u64,
    pub(super) bytes: u32,
    pub(super) submitted: Time,
    pub(super) cut: Cut,
    /// Segments posted, one bit each; those that an answer lacks are taken out again.
    pub(super) posted: u64,
    /// Segments that an answer confirmed.
    pub(super) arrived: u64,
    /// Segments that go over another path than they were cut for.
    pub(super) moved: u64,
    /// Paths on whose present or last generation a segment was posted, one bit each.
    pub(super) held: u16,
    /// For each moved segment its path.
    pub(super) home: [PathId; SEGMENTS_MAX],
}

impl Message {
    pub(super) const FREE: Self = Self {
        stage: Stage::Free,
        credit: Credit {
            seq: Seq(0),
            address: 0,
            capacity: 0,
            region: RegionId(0),
            tag: 0,
            group_size: 0,
            group_index: 0,
        },
        local_region: RegionId(0),
        local_offset: 0,
        bytes: 0,
        submitted: Time::ZERO,
        cut: Cut::EMPTY,
        posted: 0,
        arrived: 0,
        moved: 0,
        held: 0,
        home: [PathId::PRIMARY; SEGMENTS_MAX],
    };

    /// Whether every segment has been posted.
    pub(super) fn is_posted(&self) -> bool {
        self.posted == self.all()
    }

    /// One bit for each segment.
    pub(super) fn all(&self) -> u64 {
        u64::MAX >> (u64::BITS - u32::from(self.cut.segment_count()))
    }

    /// The path that a segment goes over.
    pub(super) fn home_of(&self, index: u8) -> PathId {
        if self.moved >> index & 1 == 1 {
            return self.home[usize::from(index)];
        }
        let (path, _) = self
            .cut
            .segment(index)
            .unwrap_or((PathId::PRIMARY, NOTHING));
        path
    }

    /// Segments that go over `path`, one bit each.
    pub(super) fn on_path(&self, path: PathId) -> u64 {
        bits(self.all()).fold(0, |on_path, index| {
            on_path | u64::from(self.home_of(index) == path) << index
        })
    }

    /// Sends a segment over another path than the one that it was cut for.
    pub(super) fn move_to(&mut self, index: u8, path: PathId) {
        self.moved |= 1 << index;
        self.home[usize::from(index)] = path;
    }
}

/// What a segment that does not exist has.
const NOTHING: Segment = Segment {
    offset: 0,
    bytes: 0,
};

/// Indices of the bits that are set, lowest first.
pub(super) fn bits(word: u64) -> impl Iterator<Item = u8> {
    let mut rest = word;
    core::iter::from_fn(move || {
        let index = rest.trailing_zeros() as u8;
        rest &= rest.checked_sub(1)?;
        Some(index)
    })
}

/// The messages of the window by sequence.
#[derive(Debug)]
pub(super) struct Messages {
    slots: alloc::boxed::Box<[Message]>,
}

impl Messages {
    pub(super) fn new() -> Self {
        Self {
            slots: alloc::vec![Message::FREE; WINDOW].into_boxed_slice(),
        }
    }

    /// The message in the slot of `seq`. The caller knows that `seq` is in the window.
    pub(super) fn get(&self, seq: Seq) -> &Message {
        &self.slots[seq.slot()]
    }

    /// Like [`Messages::get`], for changing it.
    pub(super) fn get_mut(&mut self, seq: Seq) -> &mut Message {
        &mut self.slots[seq.slot()]
    }
}
