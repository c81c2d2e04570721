//! One message of the window, as the sender sees it.

use crate::ids::{RegionId, Seq};
use crate::limits::WINDOW;
use crate::segment::Cut;
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
    /// Segments posted so far.
    pub(super) posted: u8,
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
    };

    /// Whether every segment has been posted.
    pub(super) fn is_posted(&self) -> bool {
        self.posted == self.cut.segment_count()
    }
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
