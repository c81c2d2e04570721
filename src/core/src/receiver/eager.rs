//! Small messages that come ahead of their credits (PROTOCOL R40 to R43).

use super::Receiver;
use super::values::EagerCopy;
use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, Seq};
use crate::limits::{EAGER_BYTES_MAX, EAGER_HEAD_BYTES, EAGER_SLOTS, PATHS_MAX};
use crate::planted::{Bug, planted};
use crate::recovery::EagerReport;
use crate::wire::eager::{EagerHead, eager_slot};

/// A message in a slot, until it has found its receive.
#[derive(Clone, Copy, Debug)]
struct Eager {
    path: PathId,
    head: EagerHead,
}

/// Messages that came ahead of their credits.
#[derive(Debug, Default)]
pub(super) struct Eagers {
    /// Those that have not found their receive, by slot: a sender's are all of one generation.
    slots: [Option<Eager>; EAGER_SLOTS],
    /// What was seen of the newest generation of each path.
    reports: [EagerReport; PATHS_MAX],
    /// First and last of the matched messages whose credits the sender may not know.
    held: Option<(Seq, Seq)>,
    /// Messages whose credits the sender is known to have: so many of the first.
    known: u64,
}

impl Eagers {
    /// A path begins a new generation.
    pub(super) fn begin(&mut self, path: PathId) {
        self.reports[path.index()] = EagerReport::default();
    }

    /// Whatever lies in the slots of a generation that is over counts no more (PROTOCOL R42).
    pub(super) fn end(&mut self, path: PathId) {
        for slot in &mut self.slots {
            let outlives = planted(Bug::SlotOutlives);
            *slot = slot.filter(|eager| eager.path != path || outlives);
        }
    }

    /// What was matched of the newest generation of a path.
    pub(super) fn report(&self, path: PathId) -> EagerReport {
        self.reports[path.index()]
    }

    /// First of the matched messages whose credits the sender may not know.
    pub(super) fn held(&self) -> Option<Seq> {
        let held = self.held.filter(|_| !planted(Bug::EarlyCreditIsDropped));
        held.map(|(first, _)| first)
    }
}

impl Receiver {
    /// Slot of a path's newest generation that the next message ahead of its credit goes to, if
    /// there is room for it.
    pub fn eager_slot(&self, path: PathId) -> Option<usize> {
        let slot = eager_slot(self.eagers.report(path).seen + 1);
        self.eagers.slots[slot].is_none().then_some(slot)
    }

    /// Takes a copy of the head in that slot. False: it is not the next one, or of a generation
    /// that is over; nothing has changed then. After true look again; after each
    /// [`Receiver::post_recv`] as well, ask [`Receiver::poll_eager`] until there is nothing.
    pub fn handle_eager(
        &mut self,
        path: PathId,
        generation: Generation,
        head: &[u8; EAGER_HEAD_BYTES],
    ) -> Result<bool, ProtocolError> {
        let Some(slot) = self.eager_slot(path) else {
            return Ok(false);
        };
        let next = self.eagers.report(path).seen + 1;
        let head = EagerHead::decode(head, next, generation);
        let is_live = self.paths.accepts(path, generation) || planted(Bug::OldSlotsAreRead);
        let Some(head) = head.filter(|_| is_live) else {
            return Ok(false);
        };
        if head.frontier > self.opened || head.bytes > EAGER_BYTES_MAX as u32 {
            return Err(ProtocolError::BadEager);
        }
        if let Some(last) = head.frontier.0.checked_sub(1) {
            self.note_credited(Seq(last));
        }
        self.eagers.slots[slot] = Some(Eager { path, head });
        let report = &mut self.eagers.reports[path.index()];
        report.seen = next;
        report.matched &= !(1 << slot);
        Ok(true)
    }

    /// Gives an early message to its receive: the first one with its tag whose credit the sender
    /// did not know (PROTOCOL R41). It counts as delivered: copy it before anything else is done
    /// with this connection. `None`: there is no such message, or no such receive yet.
    pub fn poll_eager(&mut self) -> Option<EagerCopy> {
        let waiting = self.eagers.slots.iter().flatten();
        let fitting = waiting.filter_map(|eager| Some((*eager, self.receive_of(&eager.head)?)));
        let (Eager { path, head }, seq) = fitting.min_by_key(|(eager, _)| {
            let number = eager.head.number;
            if planted(Bug::LatestGoesFirst) {
                u64::MAX - number
            } else {
                number
            }
        })?;
        let slot = eager_slot(head.number);
        let message = self.messages.get_mut(seq);
        let bytes = head.bytes.min(message.credit.capacity);
        message.complete(bytes);
        let (region, address) = (message.credit.region, message.credit.address);
        self.eagers.slots[slot] = None;
        self.eagers.reports[path.index()].matched |= 1 << slot;
        // What came later may have told already that the sender has the credit.
        if seq.0 >= self.eagers.known {
            let held = self.eagers.held.unwrap_or((seq, seq));
            self.eagers.held = Some((held.0.min(seq), held.1.max(seq)));
        }
        self.statistics.eager_receives += 1;
        self.advance_delivered();
        Some(EagerCopy {
            path,
            slot,
            seq,
            region,
            address,
            payload: head.bytes,
            bytes,
        })
    }

    fn receive_of(&self, head: &EagerHead) -> Option<Seq> {
        let mut first = head.frontier.max(self.oldest);
        if planted(Bug::BeforeFrontier) {
            first = self.oldest;
        }
        (first.0..self.opened.0).map(Seq).find(|seq| {
            let message = self.messages.get(*seq);
            message.credit.tag == head.tag && message.arrived() == 0
        })
    }

    /// The sender has taken all credits up to that of `seq`.
    pub(super) fn note_credited(&mut self, seq: Seq) {
        self.eagers.known = self.eagers.known.max(seq.0 + 1);
        if let Some((first, last)) = self.eagers.held.filter(|(first, _)| *first <= seq) {
            let is_some_left = seq < last;
            self.eagers.held = is_some_left.then(|| (seq.plus(1).max(first), last));
            self.advance_oldest();
        }
    }
}
