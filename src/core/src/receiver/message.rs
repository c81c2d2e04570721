//! One message of the window, as the receiver sees it.

use crate::error::ProtocolError;
use crate::ids::Seq;
use crate::limits::WINDOW;
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wire::credit::Credit;
use crate::wire::immediate::Immediate;

/// Buffer and progress of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) credit: Credit,
    pub(super) opened: Time,
    /// Segments that have arrived, one bit each.
    arrived: u64,
    /// Segments of the message; 0 until the first has arrived.
    segments: u8,
    /// Sum over the distinct segments that have arrived.
    pub(super) bytes: u32,
    pub(super) is_released: bool,
}

/// What a segment did to its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Partial,
    Complete,
    Duplicate,
}

impl Message {
    pub(super) fn new(credit: Credit, opened: Time) -> Self {
        Self {
            credit,
            opened,
            arrived: 0,
            segments: 0,
            bytes: 0,
            is_released: false,
        }
    }

    /// Whether all segments have arrived (PROTOCOL R5).
    pub(super) fn is_complete(&self) -> bool {
        if planted(Bug::LastSegmentCompletes) {
            return self.segments > 0 && self.arrived >> (self.segments - 1) == 1;
        }
        self.segments > 0 && self.arrived == u64::MAX >> (u64::BITS - u32::from(self.segments))
    }

    /// Completes a message that came whole, ahead of its credit.
    pub(super) fn complete(&mut self, bytes: u32) {
        (self.segments, self.arrived, self.bytes) = (1, 1, bytes);
    }

    /// Segments that have arrived, one bit each.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Marks one segment of `bytes`. On an error nothing has changed.
    pub(super) fn mark(
        &mut self,
        immediate: Immediate,
        bytes: u32,
    ) -> Result<Progress, ProtocolError> {
        let (seq, now) = (self.credit.seq, immediate.count);
        let is_other = self.segments != 0 && self.segments != now;
        if is_other && !planted(Bug::CountsMayDiffer) {
            let first = self.segments;
            return Err(ProtocolError::SegmentCountChanged { seq, first, now });
        }
        let bit = 1 << immediate.index;
        if self.arrived & bit != 0 && !planted(Bug::DuplicatesCount) {
            return Ok(Progress::Duplicate);
        }
        let room = self.credit.capacity.saturating_sub(self.bytes);
        if bytes > room && !planted(Bug::BuffersMayOverflow) {
            return Err(ProtocolError::Overrun(seq));
        }
        self.segments = now;
        self.arrived |= bit;
        self.bytes += bytes;
        Ok(if self.is_complete() {
            Progress::Complete
        } else {
            Progress::Partial
        })
    }
}

/// The messages of the window by sequence.
#[derive(Debug)]
pub(super) struct Messages {
    slots: alloc::boxed::Box<[Message]>,
}

impl Messages {
    pub(super) fn new() -> Self {
        let credit = Credit {
            seq: Seq(0),
            address: 0,
            capacity: 0,
            region: crate::ids::RegionId(0),
            tag: 0,
            group_size: 0,
            group_index: 0,
        };
        let free = Message::new(credit, Time::ZERO);
        Self {
            slots: alloc::vec![free; WINDOW].into_boxed_slice(),
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
