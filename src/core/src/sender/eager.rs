//! Small sends that go ahead of their credit (PROTOCOL R40 to R43).
//!
//! Right after a pause the receiver's credit is on its way while the sender has its data already.
//! Such a send goes at once, into a slot of the receiver's. Which message it is turns out later,
//! by the same rule at both ends: it takes the first receive with its tag whose credit the sender
//! did not know when it sent.

use super::Sender;
use super::values::{EagerWrite, Match, SendStatus};
use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, RegionId, Seq, WorkKind};
use crate::limits::EAGER_BYTES_MAX;
use crate::recovery::Answer;
use crate::route::Route;
use crate::segment::Cut;
use crate::time::Time;
use crate::wire::eager::EagerHead;

/// A send that went ahead of its credit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Eager {
    number: u64,
    path: PathId,
    generation: Generation,
    local: (RegionId, u64),
    bytes: u32,
    pub(super) tag: i32,
    pub(super) submitted: Time,
    fate: Fate,
    /// The message that it has become.
    seq: Option<Seq>,
}

/// What is known of the write that carried an eager message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Posted; the receiver may have it, or get it.
    Posted,
    /// The receiver has given it to a receive.
    Taken,
    /// The receiver has closed and counted it; its credit may never come.
    Confirmed,
    /// The receiver does not have it and takes it no more.
    Lost,
}

impl Sender {
    /// Starts a small send for which no credit is there. `Ok(None)`: not now. That is so while
    /// another one is open, while a credit waits for a send with another tag, and when the path is
    /// full. Copy the message and post the write before anything else on its path.
    pub fn submit_eager(
        &mut self,
        now: Time,
        local: (RegionId, u64),
        bytes: u64,
        tag: i32,
    ) -> Result<Option<EagerWrite>, ProtocolError> {
        let now = self.clock.advance(now);
        let route = self.route.as_ref().ok_or(ProtocolError::NoRoute)?;
        let primary = route.entries()[0].path;
        let has_spare_credits = self.filled < self.credited;
        if bytes > EAGER_BYTES_MAX as u64 || self.eager.is_some() || has_spare_credits {
            return Ok(None);
        }
        let Some(path) = self.paths.get_mut(primary).filter(|path| path.can_post()) else {
            return Ok(None);
        };
        // Not more than EAGER_BYTES_MAX.
        let bytes = bytes as u32;
        let generation = path.generation();
        let (work, signaled) = path.post(WorkKind::Eager, self.credited, 0);
        self.eager_count += 1;
        self.statistics.eager_sends += 1;
        let head = EagerHead {
            number: self.eager_count,
            frontier: self.credited,
            bytes,
            tag,
        };
        self.eager = Some(Eager {
            number: self.eager_count,
            path: primary,
            generation,
            local,
            bytes,
            tag,
            submitted: now,
            fate: Fate::Posted,
            seq: None,
        });
        Ok(Some(EagerWrite {
            work,
            path: primary,
            generation,
            bytes,
            head: head.encode(generation),
            signaled,
        }))
    }

    /// How the eager send stands.
    pub fn eager_status(&self) -> SendStatus {
        let Some(eager) = self.eager else {
            return SendStatus::Unknown;
        };
        match eager.seq {
            Some(seq) => self.status(seq),
            None if eager.fate == Fate::Confirmed => SendStatus::Delivered { bytes: eager.bytes },
            None => SendStatus::Pending,
        }
    }

    /// The message that the eager send has become, once its credit is here.
    pub fn eager_seq(&self) -> Option<Seq> {
        self.eager.and_then(|eager| eager.seq)
    }

    /// Forgets the eager send, which is delivered and was reported.
    pub fn release_eager(&mut self) -> Result<(), ProtocolError> {
        if !matches!(self.eager_status(), SendStatus::Delivered { .. }) {
            return Err(ProtocolError::NotDelivered(self.credited));
        }
        if let Some(seq) = self.eager.take().and_then(|eager| eager.seq) {
            self.release(seq)?;
        }
        Ok(())
    }

    /// The eager send whose credit is not here yet.
    pub(super) fn unbound_eager(&self) -> Option<&Eager> {
        self.eager.as_ref().filter(|eager| eager.seq.is_none())
    }

    /// Whether the receiver may count one message more than were posted in the ordinary way: the
    /// eager one, whose credit is not here or whose group is not filled. It has to be the next:
    /// before it, nothing is delivered that was not posted (PROTOCOL R10, R43).
    pub(super) fn may_run_ahead(&self) -> bool {
        let next = |eager: &Eager| eager.seq.unwrap_or(self.credited);
        self.eager
            .as_ref()
            .is_some_and(|eager| eager.fate != Fate::Lost && next(eager) == self.posted)
    }

    /// Gives the eager send the first credit with its tag, as the receiver does (PROTOCOL R41).
    pub(super) fn bind_eager(&mut self) {
        let unbound = self.unbound_eager().copied();
        let Some(eager) = unbound.filter(|eager| eager.fate != Fate::Confirmed) else {
            return;
        };
        let Some(Match { seq, capacity, .. }) = self.find(eager.tag) else {
            return;
        };
        let given = eager.bytes.min(capacity);
        let Ok(cut) = Cut::new(given, &Route::single(eager.path), self.segment_size) else {
            return;
        };
        self.fill(
            seq,
            eager.submitted,
            eager.local,
            eager.bytes.into(),
            (given, cut),
        );
        let message = self.messages.get_mut(seq);
        if eager.fate != Fate::Lost {
            message.posted = message.all();
        }
        match eager.fate {
            Fate::Posted => message.held = 1 << eager.path.index(),
            Fate::Taken | Fate::Confirmed => message.arrived = message.all(),
            Fate::Lost => {}
        }
        self.eager = Some(Eager {
            seq: Some(seq),
            ..eager
        });
        self.advance_posted();
        if eager.fate == Fate::Lost {
            self.rehome();
        }
    }

    /// The answer about the generation that carried the eager message says for good whether the
    /// receiver has it (PROTOCOL R42). One that was lost leaves its number to the next.
    pub(super) fn settle_eager(&mut self, answer: &Answer) {
        let Some(eager) = self.eager.as_mut().filter(|eager| {
            (eager.path, eager.generation) == (answer.path, answer.generation)
                && eager.fate == Fate::Posted
        }) else {
            return;
        };
        if answer.eager >= eager.number {
            eager.fate = Fate::Taken;
        } else {
            eager.fate = Fate::Lost;
            self.eager_count = eager.number - 1;
            self.statistics.eager_lost += 1;
        }
    }

    /// A receiver that has closed counts an eager message whose credit never came: that was its
    /// confirmation.
    pub(super) fn confirm_unbound(&mut self, delivered: u64) {
        let posted = self.posted.0;
        let eager = self.eager.as_mut().filter(|eager| eager.seq.is_none());
        if let Some(eager) = eager.filter(|_| delivered > posted) {
            eager.fate = Fate::Confirmed;
        }
    }
}
