//! Small sends that go ahead of their credits (PROTOCOL R40 to R43).
//!
//! Right after a pause the receiver's credit is on its way while the sender has its data already.
//! Such a send goes at once, into a slot of the receiver's. Which message it is turns out later,
//! by the same rule at both ends: it takes the first receive with its tag whose credit the sender
//! did not know when it sent.

use super::Sender;
use super::values::{EagerWrite, Match, SendStatus};
use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, RegionId, Seq, WorkKind};
use crate::limits::{EAGER_BYTES_MAX, EAGER_SLOTS, PATHS_MAX};
use crate::planted::{Bug, planted};
use crate::recovery::Answer;
use crate::route::Route;
use crate::segment::Cut;
use crate::time::Time;
use crate::wire::eager::{EagerHead, eager_slot};

/// A send that went ahead of its credit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Eager {
    number: u64,
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

/// The eager sends that were not released, by slot. All of them went over one generation of one
/// path, which keeps them in order.
#[derive(Debug, Default)]
pub(super) struct Eagers {
    slots: [Option<Eager>; EAGER_SLOTS],
    home: Option<(PathId, Generation)>,
    /// Numbers used in the last generation of each path that carried any: the sends may come back
    /// to it.
    counts: [Option<(Generation, u64)>; PATHS_MAX],
}

impl Eagers {
    /// Takes the next number in a generation. `None`: its slot is in use, or others are still open
    /// that went over another one.
    fn next(&mut self, home: (PathId, Generation)) -> Option<u64> {
        let is_elsewhere = self.home != Some(home) && !planted(Bug::AheadOnTwoPaths);
        if is_elsewhere && self.slots.iter().any(Option::is_some) {
            return None;
        }
        let number = self.count(home) + 1;
        if self.slots[eager_slot(number)].is_some() && !planted(Bug::SlotIsTaken) {
            return None;
        }
        let (path, generation) = home;
        self.home = Some(home);
        self.counts[path.index()] = Some((generation, number));
        Some(number)
    }

    /// Numbers used in a generation.
    fn count(&self, (path, generation): (PathId, Generation)) -> u64 {
        let is_new = planted(Bug::NumbersBeginAnew) && self.home != Some((path, generation));
        let last = self.counts[path.index()].filter(|(of, _)| *of == generation && !is_new);
        last.map_or(0, |(_, count)| count)
    }

    /// Those whose credit is not here yet, in the order of sending, with their slots.
    pub(super) fn unbound(&self) -> impl Iterator<Item = (usize, &Eager)> {
        let count = self.home.map_or(0, |home| self.count(home));
        let oldest_first = (1..=EAGER_SLOTS as u64).map(move |age| eager_slot(count + age));
        oldest_first.filter_map(|slot| {
            let eager = self.slots[slot].as_ref()?;
            let is_unbound = eager.seq.is_none() && eager.fate != Fate::Confirmed;
            is_unbound.then_some((slot, eager))
        })
    }

    /// Those of them that the receiver may have: it may count them already.
    fn ahead(&self) -> u64 {
        let is_ahead = |(_, eager): &(usize, &Eager)| eager.fate != Fate::Lost;
        self.unbound().filter(is_ahead).count() as u64
    }

    /// The answer about the generation that carried them says for good which of them the receiver
    /// has (PROTOCOL R42). Returns how many it has not.
    pub(super) fn settle(&mut self, answer: &Answer) -> u64 {
        if self.home != Some((answer.path, answer.generation)) {
            return 0;
        }
        let mut lost = 0;
        for eager in self.slots.iter_mut().flatten() {
            if eager.fate == Fate::Posted {
                let is_taken = answer.eager.is_matched(eager.number);
                let is_taken = is_taken || planted(Bug::LostIsTaken);
                eager.fate = if is_taken { Fate::Taken } else { Fate::Lost };
                lost += u64::from(!is_taken);
            }
        }
        lost
    }
}

impl Sender {
    /// Starts a small send for which no credit is there. `Ok(None)`: not now. That is so while a
    /// credit waits for a send with another tag, while all slots are in use or the path is full.
    /// Copy the message and post the write before anything else on its path.
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
        let has_spare_credits = self.filled < self.credited && !planted(Bug::AheadOfSpareCredits);
        let is_large = bytes > EAGER_BYTES_MAX as u64 && !planted(Bug::AheadAtAnySize);
        if is_large || has_spare_credits {
            return Ok(None);
        }
        let Some(path) = self.paths.get_mut(primary).filter(|path| path.can_post()) else {
            return Ok(None);
        };
        let generation = path.generation();
        let Some(number) = self.eagers.next((primary, generation)) else {
            return Ok(None);
        };
        // Not more than EAGER_BYTES_MAX.
        let bytes = bytes as u32;
        let (work, signaled) = path.post(WorkKind::Eager, self.credited, 0);
        self.statistics.eager_sends += 1;
        let head = EagerHead {
            number,
            frontier: self.credited,
            bytes,
            tag,
        };
        let slot = eager_slot(number);
        self.eagers.slots[slot] = Some(Eager {
            number,
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
            slot,
            bytes,
            head: head.encode(generation),
            signaled,
        }))
    }

    /// How the eager send in `slot` stands.
    pub fn eager_status(&self, slot: usize) -> SendStatus {
        let Some(eager) = self.eagers.slots.get(slot).copied().flatten() else {
            return SendStatus::Unknown;
        };
        match eager.seq {
            Some(seq) => self.status(seq),
            None if eager.fate == Fate::Confirmed => SendStatus::Delivered { bytes: eager.bytes },
            None => SendStatus::Pending,
        }
    }

    /// The message that the eager send in `slot` has become, once its credit is here.
    pub fn eager_seq(&self, slot: usize) -> Option<Seq> {
        self.eagers.slots.get(slot).copied().flatten()?.seq
    }

    /// Forgets the eager send in `slot`, which is delivered and was reported.
    pub fn release_eager(&mut self, slot: usize) -> Result<(), ProtocolError> {
        if !matches!(self.eager_status(slot), SendStatus::Delivered { .. }) {
            return Err(ProtocolError::NotDelivered(self.credited));
        }
        let eager = self.eagers.slots[slot].take();
        match eager.and_then(|eager| eager.seq) {
            Some(seq) => self.release(seq),
            None => Ok(()),
        }
    }

    /// Gives each eager send the first credit with its tag, as the receiver does (PROTOCOL R41).
    pub(super) fn bind_eagers(&mut self) {
        loop {
            let found = self
                .eagers
                .unbound()
                .find_map(|(slot, eager)| Some((slot, *eager, self.find(eager.tag)?)));
            let is_bound =
                found.is_some_and(|(slot, eager, matched)| self.bind(slot, eager, matched));
            if !is_bound {
                return;
            }
        }
    }

    fn bind(&mut self, slot: usize, eager: Eager, matched: Match) -> bool {
        let Match { seq, capacity, .. } = matched;
        let home = self.eagers.home.map_or(PathId::PRIMARY, |(path, _)| path);
        // What is lost begins like any other message, where the heaviest path is by now.
        let route = self.route.as_ref().filter(|_| eager.fate == Fate::Lost);
        let path = route.map_or(home, |route| route.entries()[0].path);
        let given = eager.bytes.min(capacity);
        // One segment: far below the smallest that a connection may have.
        let Ok(cut) = Cut::new(given, Route::single(path).entries(), self.segment_size) else {
            return false;
        };
        let sent = (eager.submitted, eager.local, eager.bytes.into());
        self.fill(seq, sent, (given, cut));
        let message = self.messages.get_mut(seq);
        if eager.fate != Fate::Lost {
            message.posted = message.all();
        }
        match eager.fate {
            Fate::Posted => message.held = 1 << path.index(),
            Fate::Taken | Fate::Confirmed => message.arrived = message.all(),
            Fate::Lost => {}
        }
        if let Some(eager) = &mut self.eagers.slots[slot] {
            eager.seq = Some(seq);
        }
        self.advance_posted();
        if eager.fate == Fate::Lost {
            self.rehome();
        }
        true
    }

    /// Messages that the receiver may have: those posted without a gap, and eager ones behind them
    /// whose credits are not here. Behind a credit that no send has taken there are none.
    pub(super) fn countable(&self) -> u64 {
        let is_all_posted = self.posted == self.credited;
        let ahead = if is_all_posted {
            self.eagers.ahead()
        } else {
            0
        };
        self.posted.0 + ahead
    }

    /// How many eager messages that wait for their credits the receiver may have.
    pub(super) fn unbound_ahead(&self) -> u64 {
        self.eagers.ahead()
    }

    /// Where sends wait that have nothing but credits to wait for, their own or others of their
    /// group: early ones on the path that carried them, and once that generation is over, like all
    /// others on the one that the next send would take. With what grows when something happens
    /// (PROTOCOL R62).
    pub(super) fn credit_wait(&self) -> Option<(PathId, u64)> {
        let next = self.route.as_ref()?.entries()[0].path;
        if planted(Bug::EarlyIsUnwatched) {
            return None;
        }
        let Some((_, oldest)) = self.eagers.unbound().next() else {
            let is_watched = self.is_group_busy() && !planted(Bug::GroupIsUnwatched);
            return is_watched.then_some((next, self.credited.0));
        };
        let home = self.eagers.home;
        let home = home.filter(|&(path, generation)| self.paths.accepts(path, generation));
        Some((home.map_or(next, |(path, _)| path), oldest.number))
    }

    /// Whether a send that waits for its credit may have been lost in a generation that is over.
    pub(super) fn is_early_unsettled(&self, path: PathId, generation: Generation) -> bool {
        let mut unbound = self.eagers.unbound();
        self.eagers.home == Some((path, generation))
            && unbound.any(|(_, eager)| eager.fate == Fate::Posted)
            && !planted(Bug::EarlyIsUnwatched)
    }

    /// A receiver that has closed counts eager messages whose credits never came: that was their
    /// confirmation. If it counts some only, those are the oldest of one tag; of several tags
    /// nobody could say which.
    pub(super) fn confirm_eagers(&mut self, delivered: u64) {
        // A goodbye may be heard twice: what it has confirmed it does not count again.
        let known = self.posted.max(self.ended);
        let counted = delivered.saturating_sub(known.0);
        let Some(first) = self.eagers.unbound().next().map(|(_, eager)| eager.tag) else {
            return;
        };
        let is_one_tag = self.eagers.unbound().all(|(_, eager)| eager.tag == first);
        if counted == 0 || counted < self.eagers.ahead() && !is_one_tag {
            return;
        }
        for _ in 0..counted {
            let mut ahead = self.eagers.unbound();
            let oldest = ahead.find(|(_, eager)| eager.fate != Fate::Lost);
            let Some(slot) = oldest.map(|(slot, _)| slot) else {
                break;
            };
            drop(ahead);
            if let Some(eager) = &mut self.eagers.slots[slot] {
                eager.fate = Fate::Confirmed;
            }
        }
        // The credits of these may still arrive.
        self.ended = self.ended.max(Seq(delivered));
    }
}
