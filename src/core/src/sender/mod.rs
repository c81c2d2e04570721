//! The sending side of a connection.

mod eager;
mod message;
mod recovery;
#[cfg(test)]
mod tests;
mod values;

use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, RegionId, Seq, WorkId, WorkKind};
use crate::limits::{CREDIT_BYTES, GROUP_MAX, PATHS_MAX, WINDOW};
use crate::paths::{Condition, Path, PathTable};
use crate::planted::{Bug, planted};
use crate::route::Route;
use crate::segment::{Cut, Segment, SegmentSize};
use crate::time::{Clock, Time};
use crate::turns::Turns;
use crate::wire::credit::{Credit, CreditError};
use crate::wire::immediate::Immediate;
use eager::Eagers;
use message::{Message, Messages, Stage};
use recovery::Closing;
pub use values::{
    EagerWrite, Match, SegmentWrite, SendStatus, SenderConfig, SenderSnapshot, SenderStatistics,
    Truncation,
};

/// Where a path stands in the list of segments: everything before has been posted there.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    seq: Seq,
    /// Segments of the message's share that have been posted.
    nth: u8,
}

/// The sending side of one connection.
///
/// Messages pass four marks, each a sequence below which everything is so:
/// `oldest` (released) ≤ `delivered` ≤ `posted` (all segments) ≤ `credited` (credit known) ≤
/// `oldest` + [`WINDOW`]; and `oldest` ≤ `filled` (all sends of the group matched) ≤ `credited`.
/// Only a message that went ahead of its credit may be posted beyond `filled`.
///
/// Drive it like this: for each live path read slot [`Sender::expected_credit`] of its ring into
/// [`Sender::handle_credit`] until nothing is accepted; on a send, [`Sender::matching`], then
/// [`Sender::submit_send`]; then post what [`Sender::poll_transmit`] yields for each path. To see
/// sends done, feed [`Sender::handle_counter`] and [`Sender::handle_completion`], ask
/// [`Sender::status`] and [`Sender::release`] what was reported.
#[derive(Debug)]
pub struct Sender {
    segment_size: SegmentSize,
    clock: Clock,
    paths: PathTable,
    cursors: [Cursor; PATHS_MAX],
    /// Generations that are over and not settled, by path.
    closing: [Option<Closing>; PATHS_MAX],
    /// Paths with a generation that is over and not fenced, one bit each.
    unfenced: u16,
    /// Moved segments that wait to be posted, by path.
    waiting: [u32; PATHS_MAX],
    route: Option<Route>,
    turns: Turns,
    messages: Messages,
    oldest: Seq,
    delivered: Seq,
    posted: Seq,
    filled: Seq,
    credited: Seq,
    /// Sends matched in the oldest group that still lacks some.
    matched: u8,
    truncation: Option<Truncation>,
    eagers: Eagers,
    /// What the receiver counted when it closed.
    goodbye: Seq,
    /// Credits before this belong to eager sends that are confirmed by that count.
    ended: Seq,
    statistics: SenderStatistics,
}

impl Sender {
    /// A connection without paths and route. Takes all the memory that it will ever need.
    pub fn new(config: SenderConfig) -> Result<Self, ProtocolError> {
        Ok(Self {
            segment_size: SegmentSize::new(config.segment_bytes_max)?,
            clock: Clock::default(),
            paths: PathTable::new(),
            cursors: [Cursor::default(); PATHS_MAX],
            closing: [None; PATHS_MAX],
            unfenced: 0,
            waiting: [0; PATHS_MAX],
            route: None,
            turns: Turns::default(),
            messages: Messages::new(),
            oldest: Seq(0),
            delivered: Seq(0),
            posted: Seq(0),
            filled: Seq(0),
            credited: Seq(0),
            matched: 0,
            truncation: None,
            eagers: Eagers::default(),
            goodbye: Seq(0),
            ended: Seq(0),
            statistics: SenderStatistics::default(),
        })
    }

    /// Adds a path, or brings a retired one back under a newer generation (PROTOCOL R12).
    pub fn add_path(&mut self, path: PathId, generation: Generation) -> Result<(), ProtocolError> {
        self.add(path, generation, Condition::Live)
    }

    /// Condition of a path's newest generation; `None` when it was never added.
    pub fn condition(&self, path: PathId) -> Option<Condition> {
        self.paths.condition(path)
    }

    /// Sets the route for messages submitted from now on; those already cut keep theirs
    /// (PROTOCOL R1). All its paths must have been added.
    pub fn set_route(&mut self, route: Route) -> Result<(), ProtocolError> {
        for entry in route.entries() {
            self.paths.require(entry.path)?;
        }
        (self.route, self.turns) = (Some(route), Turns::default());
        self.rehome();
        Ok(())
    }

    /// Bytes of the largest message that this connection takes.
    pub fn message_bytes_max(&self) -> u32 {
        self.segment_size.message_bytes_max()
    }

    /// Slot of the credit rings to look at, and the message whose line would be accepted there.
    pub fn expected_credit(&self) -> (usize, Seq) {
        (self.credited.slot(), self.credited)
    }

    /// Takes a copy of the line in the expected slot of a ring. False: it is not the expected line,
    /// or of a generation that is over (PROTOCOL R9, R13), or the window is full: then it counts as
    /// a counter only, and is looked at again.
    pub fn handle_credit(
        &mut self,
        path: PathId,
        generation: Generation,
        line: &[u8; CREDIT_BYTES],
    ) -> Result<bool, ProtocolError> {
        if !self.paths.accepts(path, generation) && !planted(Bug::OldCreditsCount) {
            self.statistics.stale_credits += 1;
            return Ok(false);
        }
        let (_, seq) = self.expected_credit();
        let Some((credit, delivered)) = Credit::decode(line, seq, generation)? else {
            return Ok(false);
        };
        self.check_count(delivered.0)?;
        let has_room = seq.since(self.oldest) < WINDOW as u64;
        if !has_room && !planted(Bug::CreditsBeyondWindow) {
            // What frees the window may be confirmed by nothing else (PROTOCOL R11).
            if !planted(Bug::FullWindowIsDeaf) {
                self.confirm(delivered);
            }
            return Ok(false);
        }
        self.check_group(&credit)?;
        let message = self.messages.get_mut(seq);
        (message.stage, message.credit) = (Stage::Offered, credit);
        self.credited = seq.plus(1);
        if !planted(Bug::EarlyIsPassed) {
            self.bind_eagers();
        }
        self.confirm(delivered);
        if self.goodbye > self.delivered {
            self.confirm(self.goodbye);
        }
        Ok(true)
    }

    /// Lines of a group follow each other without a gap (PROTOCOL R6).
    fn check_group(&self, credit: &Credit) -> Result<(), CreditError> {
        let continues = if credit.seq == self.filled {
            credit.group_index == 0
        } else {
            let before = &self.messages.get(Seq(credit.seq.0 - 1)).credit;
            if before.group_index + 1 < before.group_size {
                credit.group_index == before.group_index + 1
                    && credit.group_size == before.group_size
            } else {
                credit.group_index == 0
            }
        };
        if continues || planted(Bug::GroupsMayHaveGaps) {
            Ok(())
        } else {
            Err(CreditError::GroupBroken(credit.seq))
        }
    }

    /// The message that a send with `tag` would become, if its credit is there. Ask before
    /// [`Sender::submit_send`] to see whether the keys of the region are known.
    pub fn matching(&self, tag: i32) -> Option<Match> {
        // Sends of a tag keep their order.
        let is_overtaking = self.eagers.unbound().any(|(_, eager)| eager.tag == tag);
        if is_overtaking && !planted(Bug::EarlyIsPassed) {
            return None;
        }
        self.find(tag)
    }

    fn find(&self, tag: i32) -> Option<Match> {
        let group = self.messages.get(self.filled);
        let mut known = self.credited.since(self.filled);
        if !planted(Bug::LaterGroupsMatch) {
            known = known.min(u64::from(group.credit.group_size));
        }
        (0..known).find_map(|index| {
            let message = self.messages.get(self.filled.plus(index));
            let credit = &message.credit;
            let fits = message.stage == Stage::Offered
                && credit.seq >= self.ended
                && (credit.tag == tag || planted(Bug::TagsAreIgnored));
            fits.then_some(Match {
                seq: credit.seq,
                region: credit.region,
                capacity: credit.capacity,
            })
        })
    }

    /// Submits a send of `bytes` at `local` (region, offset). `Ok(None)`: no credit of the oldest
    /// unfilled group fits; try again later. A send larger than the room at the receiver is cut
    /// down to it (PROTOCOL R8) and shows in [`Sender::take_truncation`].
    pub fn submit_send(
        &mut self,
        now: Time,
        local: (RegionId, u64),
        bytes: u64,
        tag: i32,
    ) -> Result<Option<Seq>, ProtocolError> {
        let now = self.clock.advance(now);
        let route = self.route.as_ref().ok_or(ProtocolError::NoRoute)?;
        if bytes > u64::from(self.message_bytes_max()) {
            return Err(ProtocolError::MessageTooLarge(bytes));
        }
        if local.1.checked_add(bytes).is_none() {
            return Err(ProtocolError::AddressOverflow);
        }
        let Some(matched) = self.matching(tag) else {
            return Ok(None);
        };
        // Not more than message_bytes_max, a u32.
        let mut given = bytes.min(u64::from(matched.capacity)) as u32;
        if planted(Bug::SendsAreNotCut) {
            given = bytes as u32;
        }
        let cut = self.turns.cut(given, route, self.segment_size)?;
        self.fill(matched.seq, (now, local, bytes), (given, cut));
        self.bind_eagers();
        Ok(Some(matched.seq))
    }

    /// Gives the credit of `seq` to a send of `bytes`, of which `given` find room.
    fn fill(
        &mut self,
        seq: Seq,
        (now, local, bytes): (Time, (RegionId, u64), u64),
        (given, cut): (u32, Cut),
    ) {
        let message = self.messages.get_mut(seq);
        message.stage = Stage::Submitted;
        (message.local_region, message.local_offset) = local;
        message.bytes = given;
        message.submitted = now;
        message.cut = cut;
        (message.posted, message.arrived, message.moved, message.held) = (0, 0, 0, 0);
        let group_size = message.credit.group_size;
        self.count_match(group_size);
        if bytes > u64::from(given) {
            self.statistics.truncated += 1;
            match &mut self.truncation {
                Some(first) if !planted(Bug::LastCutIsReported) => first.others += 1,
                _ => {
                    self.truncation = Some(Truncation {
                        seq,
                        asked: bytes,
                        given,
                        others: 0,
                    });
                }
            }
        }
    }

    /// A group is filled, and may go out, when each of its receives has its send (PROTOCOL R7).
    fn count_match(&mut self, group_size: u8) {
        self.matched += 1;
        if self.matched == group_size || planted(Bug::GroupGoesEarly) {
            self.matched = 0;
            self.filled = self.filled.plus(u64::from(group_size));
        }
    }

    /// The first send that was cut down to its receive since the last call; it counts the others.
    /// One credit may cut several that went ahead of theirs.
    pub fn take_truncation(&mut self) -> Option<Truncation> {
        self.truncation.take()
    }

    /// Next segment to post on `path`; `None` when there is none or the send queue is full. It
    /// counts as posted: hand it back with [`Sender::return_transmit`] if it could not be.
    pub fn poll_transmit(&mut self, path: PathId) -> Option<SegmentWrite> {
        let waits = planted(Bug::AllPathsWait) && self.unfenced != 0;
        if waits || !self.paths.get(path)?.can_post() {
            return None;
        }
        let (seq, index, segment) = match self.next_moved(path) {
            Some(found) => found,
            None => self.next_cut(path)?,
        };
        let state = self.paths.get_mut(path)?;
        let message = self.messages.get_mut(seq);
        let write = post(state, message, (seq, path, index), segment);
        self.advance_posted();
        Some(write)
    }

    /// The next segment that was cut for `path`.
    fn next_cut(&mut self, path: PathId) -> Option<(Seq, u8, Segment)> {
        let cursor = &mut self.cursors[path.index()];
        if cursor.seq < self.posted {
            *cursor = Cursor {
                seq: self.posted,
                nth: 0,
            };
        }
        while cursor.seq < self.filled {
            let message = self.messages.get(cursor.seq);
            while let Some((index, segment)) = message.cut.of_path(path, cursor.nth) {
                cursor.nth += 1;
                if (message.moved | message.posted) >> index & 1 == 0 {
                    return Some((cursor.seq, index, segment));
                }
            }
            *cursor = Cursor {
                seq: cursor.seq.plus(1),
                nth: 0,
            };
        }
        None
    }

    fn advance_posted(&mut self) {
        // Beyond `filled` only an eager message is posted: it does not wait for its group.
        while self.is_submitted(self.posted) && self.messages.get(self.posted).is_posted() {
            self.posted = self.posted.plus(1);
        }
    }

    /// Hands back the newest write of its path, which was not posted. Several are handed back
    /// newest first.
    pub fn return_transmit(&mut self, write: &SegmentWrite) -> Result<(), ProtocolError> {
        let state = self
            .paths
            .get_mut(write.path)
            .ok_or(ProtocolError::UnknownPath(write.path))?;
        if state.is_over(write.generation) {
            // It counts as posted in a generation that is over: the answer will lack it.
            return Ok(());
        }
        if write.seq < self.delivered || !state.take_back(write.work) {
            return Err(ProtocolError::ReturnOutOfOrder);
        }
        let message = self.messages.get_mut(write.seq);
        let (index, place) = (write.work.segment(), write.path.index());
        if !planted(Bug::HandedBackIsLost) {
            message.posted &= !(1 << index);
        }
        if message.moved >> index & 1 == 1 {
            self.waiting[place] += 1;
        } else {
            let first = message.cut.share(write.path).map_or(0, |share| share.first);
            self.cursors[place] = Cursor {
                seq: write.seq,
                nth: index - first,
            };
        }
        self.posted = self.posted.min(write.seq);
        Ok(())
    }

    /// Accounts for a completion of a work request: it and all before it on its queue pair have
    /// left the send queue. An error is final for the generation: its path is
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

    /// Takes the counter word of a generation: messages that the receiver has without a gap. It
    /// only ever moves forward, and never beyond what was posted (PROTOCOL R10).
    pub fn handle_counter(
        &mut self,
        path: PathId,
        generation: Generation,
        delivered: u64,
    ) -> Result<(), ProtocolError> {
        if !self.paths.accepts(path, generation) && !planted(Bug::OldCountersCount) {
            self.statistics.stale_counters += 1;
            return Ok(());
        }
        self.check_count(delivered)?;
        self.confirm(Seq(delivered));
        Ok(())
    }

    /// How a send stands (PROTOCOL R2: done means delivered, and R54: nothing may read it any
    /// more).
    pub fn status(&self, seq: Seq) -> SendStatus {
        if !self.is_submitted(seq) {
            return SendStatus::Unknown;
        }
        if self.is_complete(seq) {
            SendStatus::Delivered {
                bytes: self.messages.get(seq).bytes,
            }
        } else {
            SendStatus::Pending
        }
    }

    /// Frees the slot of a delivered send whose end was reported.
    pub fn release(&mut self, seq: Seq) -> Result<(), ProtocolError> {
        if !self.is_submitted(seq) || !self.is_complete(seq) {
            return Err(ProtocolError::NotDelivered(seq));
        }
        if !planted(Bug::SentTwice) {
            self.messages.get_mut(seq).stage = Stage::Free;
        }
        // The first message of a group that is not filled says how large it is.
        let end = self.delivered.min(self.filled);
        while self.oldest < end && self.messages.get(self.oldest).stage == Stage::Free {
            self.oldest = self.oldest.plus(1);
        }
        Ok(())
    }

    fn is_submitted(&self, seq: Seq) -> bool {
        seq >= self.oldest
            && seq < self.credited
            && self.messages.get(seq).stage == Stage::Submitted
    }

    /// Messages that the receiver has confirmed, without a gap.
    pub fn delivered(&self) -> u64 {
        self.delivered.0
    }

    /// Whether sends were submitted that are not delivered.
    pub fn is_busy(&self) -> bool {
        self.delivered < self.filled
            || self.is_group_busy()
            || self.eagers.unbound().next().is_some()
    }

    /// The same for the oldest group that lacks sends: an eager one may be delivered before these.
    pub(super) fn is_group_busy(&self) -> bool {
        let end = self.credited.min(self.filled.plus(GROUP_MAX as u64));
        let first = self.filled.max(self.delivered);
        self.matched > 0 && (first.0..end.0).any(|seq| self.is_submitted(Seq(seq)))
    }

    /// State for people.
    pub fn snapshot(&self) -> SenderSnapshot {
        let waiting = self.messages.get(self.delivered);
        let pending = self.is_submitted(self.delivered);
        SenderSnapshot {
            oldest: self.oldest,
            delivered: self.delivered,
            posted: self.posted,
            filled: self.filled,
            credited: self.credited,
            matched: self.matched,
            waiting_since: pending.then_some(waiting.submitted).or_else(|| {
                self.eagers
                    .unbound()
                    .map(|(_, eager)| eager.submitted)
                    .next()
            }),
            unfenced: self.unfenced,
            paths: self.paths.snapshot(),
            statistics: self.statistics,
        }
    }
}

/// Posts one segment: the work request that carries it.
fn post(
    state: &mut Path,
    message: &mut Message,
    (seq, path, index): (Seq, PathId, u8),
    segment: Segment,
) -> SegmentWrite {
    message.posted |= 1 << index;
    message.held |= 1 << path.index();
    let count = message.cut.segment_count();
    let generation = state.generation();
    let (work, signaled) = state.post(WorkKind::Segment, seq, index);
    let offset = u64::from(segment.offset);
    SegmentWrite {
        work,
        path,
        generation,
        seq,
        local_region: message.local_region,
        local_offset: message.local_offset + offset,
        remote_region: message.credit.region,
        remote_address: message.credit.address + offset,
        bytes: segment.bytes,
        immediate: Immediate::new(seq, index, count, generation).encode(),
        signaled,
    }
}
