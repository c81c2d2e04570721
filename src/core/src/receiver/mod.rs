//! The receiving side of a connection.

mod eager;
mod message;
mod recovery;
#[cfg(test)]
mod tests;
mod values;

use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, Seq, WorkId, WorkKind};
use crate::limits::{
    CREDIT_BYTES, CREDIT_LINES_MAX, GROUP_MAX, IMMEDIATE_SEQ_BITS, MESSAGE_BYTES_MAX,
    SEGMENT_BYTES_MAX, WINDOW,
};
use crate::paths::{Condition, PathTable};
use crate::planted::{Bug, planted};
use crate::time::{Clock, Time};
use crate::wire::credit::{Credit, counted};
use crate::wire::immediate::Immediate;
use eager::Eagers;
use message::{Message, Messages, Progress};
pub use values::{
    Arrival, EagerCopy, ReceiveBuffer, ReceiverBody, ReceiverConfig, ReceiverSnapshot,
    ReceiverStatistics, ReceiverWrite,
};

/// The receiving side of one connection.
///
/// Messages pass four marks, each a sequence below which everything is so: `oldest` (released) ≤
/// `delivered` ≤ `opened` ≤ `oldest` + [`WINDOW`], and `credited` ≤ `opened`. Messages complete in
/// any order; `delivered` moves when there is no gap.
///
/// Drive it like this: on a receive, [`Receiver::post_recv`]; for each completion of a write with
/// immediate, [`Receiver::handle_arrival`]; then, in the same call, post what
/// [`Receiver::poll_transmit`] yields (PROTOCOL R11); ask [`Receiver::is_done`], report, and
/// [`Receiver::release`].
#[derive(Debug)]
pub struct Receiver {
    clock: Clock,
    paths: PathTable,
    /// Paths whose last generation is over and fenced here, one bit each.
    fenced: u16,
    credit_path: Option<PathId>,
    messages: Messages,
    oldest: Seq,
    delivered: Seq,
    credited: Seq,
    opened: Seq,
    /// Greatest counter value handed out; 0 when that may not have been said.
    confirmed: Seq,
    /// The counter is to be written even if it has not grown.
    counter_due: bool,
    eagers: Eagers,
    /// What is written is said again on demand: the sender may have missed it.
    is_resending: bool,
    /// Where that ends: path, generation and work requests posted by then.
    resent: Option<(PathId, Generation, u64)>,
    statistics: ReceiverStatistics,
}

impl Receiver {
    /// A connection without paths. Takes all the memory that it will ever need.
    pub fn new(_config: ReceiverConfig) -> Self {
        Self {
            clock: Clock::default(),
            paths: PathTable::new(),
            fenced: 0,
            credit_path: None,
            messages: Messages::new(),
            oldest: Seq(0),
            delivered: Seq(0),
            credited: Seq(0),
            opened: Seq(0),
            confirmed: Seq(0),
            counter_due: false,
            eagers: Eagers::default(),
            is_resending: false,
            resent: None,
            statistics: ReceiverStatistics::default(),
        }
    }

    /// Adds a path, or brings a retired one back under a newer generation (PROTOCOL R12).
    pub fn add_path(&mut self, path: PathId, generation: Generation) -> Result<(), ProtocolError> {
        self.paths.add(path, generation, Condition::Live)?;
        self.eagers.begin(path);
        Ok(())
    }

    /// Condition of a path's newest generation; `None` when it was never added.
    pub fn condition(&self, path: PathId) -> Option<Condition> {
        self.paths.condition(path)
    }

    /// Sets the path that carries credits and counters from now on. What was written on another
    /// path stays valid while that lives; after its end use [`Receiver::resend_all`].
    pub fn set_credit_path(&mut self, path: PathId) -> Result<(), ProtocolError> {
        self.paths.require(path)?;
        self.credit_path = Some(path);
        Ok(())
    }

    /// Opens one message for each of 1 to 8 buffers, a group (PROTOCOL R6), and returns the first.
    /// `Ok(None)`: the window is full; try again later.
    pub fn post_recv(
        &mut self,
        now: Time,
        buffers: &[ReceiveBuffer],
    ) -> Result<Option<Seq>, ProtocolError> {
        let now = self.clock.advance(now);
        if buffers.is_empty() || buffers.len() > GROUP_MAX {
            return Err(ProtocolError::BadGroupSize(buffers.len()));
        }
        if buffers
            .iter()
            .any(|buffer| buffer.address.checked_add(buffer.capacity).is_none())
        {
            return Err(ProtocolError::AddressOverflow);
        }
        let opened = self.opened.since(self.oldest) + buffers.len() as u64;
        if opened > WINDOW as u64 && !planted(Bug::OpensBeyondWindow) {
            return Ok(None);
        }
        let first = self.opened;
        for (index, buffer) in (0..).zip(buffers) {
            let seq = first.plus(u64::from(index));
            let credit = Credit {
                seq,
                address: buffer.address,
                capacity: buffer.capacity.min(u64::from(MESSAGE_BYTES_MAX)) as u32,
                region: buffer.region,
                tag: buffer.tag,
                group_size: buffers.len() as u8,
                group_index: if planted(Bug::GroupIsOnePlace) {
                    0
                } else {
                    index
                },
            };
            *self.messages.get_mut(seq) = Message::new(credit, now);
        }
        self.opened = first.plus(buffers.len() as u64);
        Ok(Some(first))
    }

    /// Takes the completion of a write with immediate that came on the queue pair of `path` in
    /// `generation`. On an error nothing has changed, and the connection is beyond repair.
    pub fn handle_arrival(
        &mut self,
        path: PathId,
        generation: Generation,
        immediate: u32,
        bytes: u32,
    ) -> Result<Arrival, ProtocolError> {
        let same_generation = Immediate::generation_of(immediate) == generation.wire()
            || planted(Bug::ImmediatesAreOfAnyGeneration);
        let is_over = !self.paths.accepts(path, generation) && !planted(Bug::PastIsHeard);
        if !same_generation || is_over {
            self.statistics.stale_arrivals += 1;
            return Ok(Arrival::Stale);
        }
        let immediate = Immediate::decode(immediate)?;
        if bytes > SEGMENT_BYTES_MAX {
            return Err(ProtocolError::SegmentTooLarge(bytes));
        }
        let seq = self.open_message(immediate.seq)?;
        let progress = self.messages.get_mut(seq).mark(immediate, bytes)?;
        self.note_credited(seq);
        match progress {
            Progress::Duplicate => {
                self.statistics.duplicates += 1;
                Ok(Arrival::Duplicate(seq))
            }
            Progress::Partial => Ok(Arrival::Segment(seq)),
            Progress::Complete => {
                self.advance_delivered();
                Ok(Arrival::Delivered(seq))
            }
        }
    }

    fn advance_delivered(&mut self) {
        while self.delivered < self.opened && self.messages.get(self.delivered).is_complete() {
            self.delivered = self.delivered.plus(1);
        }
    }

    /// The open message whose number ends in `low` (PROTOCOL R3). One that was reported done is
    /// open no more: bytes that land after that are an error, not a duplicate (PROTOCOL R16).
    fn open_message(&self, low: u16) -> Result<Seq, ProtocolError> {
        let mask = (1 << IMMEDIATE_SEQ_BITS) - 1;
        let ahead = low.wrapping_sub(self.oldest.wire()) & mask;
        let seq = self.oldest.plus(u64::from(ahead));
        let is_reported = self.messages.get(seq).is_released && !planted(Bug::ReportedTakesMore);
        if (seq < self.opened || planted(Bug::UnopenedTakes)) && !is_reported {
            Ok(seq)
        } else {
            Err(ProtocolError::OutsideWindow(low))
        }
    }

    /// Next write to post; `None` when there is none, the send queue is full or the credit path
    /// is not live. It counts as posted: hand it back with [`Receiver::return_transmit`] if it
    /// could not be. The counter rides on the credits, or comes after them (PROTOCOL R11).
    pub fn poll_transmit(&mut self) -> Option<ReceiverWrite> {
        let path = self.credit_path?;
        let generation = self
            .paths
            .get(path)
            .filter(|state| state.can_post())?
            .generation();
        let (kind, seq, body) = self.next_body(generation)?;
        let state = self.paths.get_mut(path)?;
        let (work, signaled) = state.post(kind, seq, 0);
        if self.is_resending {
            self.resent = Some((path, generation, state.posted()));
        }
        let signaled = signaled || (self.is_resending && !planted(Bug::ResentIsUnsigned));
        self.is_resending &= self.has_unsent();
        Some(ReceiverWrite {
            work,
            path,
            generation,
            signaled,
            body,
        })
    }

    /// What to say next; it counts as said.
    fn next_body(&mut self, generation: Generation) -> Option<(WorkKind, Seq, ReceiverBody)> {
        if self.credited < self.opened {
            let first = self.credited;
            let (lines, count) = self
                .messages
                .lines((first, self.opened), (generation, self.delivered));
            let last = first.plus(u64::from(count) - 1);
            self.credited = last.plus(1);
            self.confirmed = self.confirmed.max(counted(last, self.delivered));
            let body = ReceiverBody::Credits {
                slot: first.slot(),
                first,
                count,
                lines,
            };
            return Some((WorkKind::Credits, first, body));
        }
        let is_owed = self.delivered != self.confirmed && !planted(Bug::CounterIsNotOwed);
        if !is_owed && !self.counter_due {
            return None;
        }
        self.confirmed = self.delivered;
        self.counter_due = false;
        let value = self.delivered.0;
        Some((
            WorkKind::Counter,
            self.delivered,
            ReceiverBody::Counter { value },
        ))
    }

    /// Credits that were handed out and that no message has used yet.
    pub fn spare_credits(&self) -> u64 {
        self.credited.0.saturating_sub(self.delivered.0)
    }

    /// Whether credits or the counter wait to be posted.
    pub fn has_unsent(&self) -> bool {
        self.credited < self.opened || self.delivered > self.confirmed || self.counter_due
    }

    /// Whether what waits to be posted may go out as soon as there is room.
    pub fn has_way(&self) -> bool {
        self.credit_path
            .is_some_and(|path| self.paths.is_live(path))
    }

    /// Hands back the newest write of its path, which was not posted. Several are handed back
    /// newest first.
    pub fn return_transmit(&mut self, write: &ReceiverWrite) -> Result<(), ProtocolError> {
        let state = self
            .paths
            .get_mut(write.path)
            .ok_or(ProtocolError::UnknownPath(write.path))?;
        let is_over = state.is_over(write.generation);
        if !is_over && !state.take_back(write.work) {
            return Err(ProtocolError::ReturnOutOfOrder);
        }
        let of = (write.path, write.generation);
        let is_said_again = |(path, generation, _)| (path, generation) == of;
        // Whether it arrives has to be seen the next time as well.
        self.is_resending |= self.resent.is_some_and(is_said_again);
        match write.body {
            ReceiverBody::Credits { first, .. } => {
                self.credited = self.credited.min(first);
                // The counter on them was not said either; nor is it on lines that have gone out
                // elsewhere since.
                self.confirmed = Seq(0);
                self.counter_due |= is_over || self.credit_path != Some(write.path);
            }
            ReceiverBody::Counter { .. } => self.counter_due = true,
        }
        Ok(())
    }

    /// Makes `path` the credit path and writes the credits of all messages from the oldest
    /// undelivered one on, and the counter, again, signalled: the watchdog sees whether they
    /// arrive. May be repeated at will (PROTOCOL R15). A generation that is over is ignored.
    pub fn resend_all(&mut self, path: PathId, generation: Generation) {
        if self.paths.accepts(path, generation) {
            self.credit_path = Some(path);
            let held = self.eagers.held();
            let first = held.map_or(self.delivered, |held| held.min(self.delivered));
            if !planted(Bug::CreditsAreSaidOnce) {
                self.credited = first;
            }
            self.counter_due = !planted(Bug::CounterIsSaidOnce);
            self.is_resending = true;
        }
    }

    /// Accounts for a completion of one of the receiver's own writes: it and all before it on its
    /// queue pair have left the send queue. An error is final for the generation: its path is
    /// [`Condition::Failed`] from now on.
    pub fn handle_completion(&mut self, work: WorkId, ok: bool) {
        if !self.paths.complete(work, ok) {
            self.statistics.stale_completions += 1;
        }
    }

    /// Work requests on the send queue of `path` that are not known to be complete.
    pub fn outstanding(&self, path: PathId) -> u32 {
        self.paths.get(path).map_or(0, |state| state.outstanding())
    }

    /// Whether all of the `count` messages from `first` on are delivered and not released.
    pub fn is_done(&self, first: Seq, count: usize) -> bool {
        (0..count as u64).all(|index| self.is_reportable(first.plus(index)))
    }

    fn is_reportable(&self, seq: Seq) -> bool {
        let message = self.messages.get(seq);
        seq >= self.oldest && seq < self.opened && message.is_complete() && !message.is_released
    }

    /// Bytes of a message that have arrived; 0 for one that is not open.
    pub fn bytes(&self, seq: Seq) -> u32 {
        let is_open = seq >= self.oldest && seq < self.opened;
        if is_open {
            self.messages.get(seq).bytes
        } else {
            0
        }
    }

    /// Frees the slots of delivered messages whose end was reported.
    pub fn release(&mut self, first: Seq, count: usize) -> Result<(), ProtocolError> {
        for index in 0..count as u64 {
            let seq = first.plus(index);
            if !self.is_reportable(seq) {
                return Err(ProtocolError::NotDelivered(seq));
            }
            self.messages.get_mut(seq).is_released = !planted(Bug::DoneTwice);
        }
        self.advance_oldest();
        Ok(())
    }

    fn advance_oldest(&mut self) {
        while self.oldest < self.delivered
            && self.messages.get(self.oldest).is_released
            && self.eagers.held() != Some(self.oldest)
        {
            self.oldest = self.oldest.plus(1);
        }
    }

    /// Messages delivered without a gap.
    pub fn delivered(&self) -> u64 {
        self.delivered.0
    }

    /// Messages opened so far.
    pub fn opened(&self) -> u64 {
        self.opened.0
    }

    /// Whether a write is waiting to be posted, or a message to arrive.
    pub fn is_busy(&self) -> bool {
        self.delivered < self.opened || self.has_unsent()
    }

    /// State for people.
    pub fn snapshot(&self) -> ReceiverSnapshot {
        let is_waiting = self.delivered < self.opened;
        ReceiverSnapshot {
            oldest: self.oldest,
            delivered: self.delivered,
            confirmed: self.confirmed,
            credited: self.credited,
            opened: self.opened,
            waiting_since: is_waiting.then(|| self.messages.get(self.delivered).opened),
            paths: self.paths.snapshot(),
            statistics: self.statistics,
        }
    }
}

impl Messages {
    /// Up to [`CREDIT_LINES_MAX`] credit lines from `first` on, as far as they do not wrap.
    fn lines(
        &self,
        (first, end): (Seq, Seq),
        (generation, delivered): (Generation, Seq),
    ) -> ([u8; CREDIT_BYTES * CREDIT_LINES_MAX], u8) {
        let mut lines = [0; CREDIT_BYTES * CREDIT_LINES_MAX];
        let count = (end.since(first) as usize)
            .min(CREDIT_LINES_MAX)
            .min(WINDOW - first.slot());
        for (index, line) in (0..count as u64).zip(lines.chunks_exact_mut(CREDIT_BYTES)) {
            let credit = &self.get(first.plus(index)).credit;
            line.copy_from_slice(&credit.encode(generation, delivered));
        }
        (lines, count as u8)
    }
}
