//! What must hold, seen from outside the code.

use r2ccl_core::EndConfig;

use crate::nic::{Nics, QpId};
use crate::queue::{Nanos, SECOND};

/// How a world failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A rule of safety is broken: bytes wrong, twice, late.
    Safety,
    /// Something does not come to an end, or costs too much.
    Liveness,
}

/// What a world found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// How bad.
    pub class: Class,
    /// Virtual time.
    pub at: Nanos,
    /// What happened.
    pub text: String,
}

/// A packet lives shorter than this once its source is silent.
pub const QUARANTINE: Nanos = 2 * SECOND;
/// Times that one segment may be posted, with the usual hold-down.
const POSTINGS_MAX: usize = 24;
/// The same where paths come back sooner: faults last for 6 s, and a hold-down 50 ms.
const POSTINGS_MAX_HASTY: usize = 160;

/// One segment on one queue pair.
#[derive(Clone, Copy, Debug)]
struct Posting {
    segment: u8,
    qp: QpId,
    /// Its place on the queue pair.
    ordinal: u64,
}

/// Where the segments of one connection were posted.
#[derive(Clone, Debug, Default)]
pub struct Postings {
    /// By message.
    messages: Vec<Vec<Posting>>,
    /// Messages that the receiver has taken from a slot.
    taken: Vec<bool>,
    /// Only the target's fence counts.
    is_strict: bool,
    /// Times that one segment may be posted.
    postings_max: usize,
}

impl Postings {
    /// Nothing was posted yet of `messages` messages.
    pub fn new(messages: usize, config: &EndConfig) -> Self {
        let is_hasty = config.hold_down_ns < SECOND;
        Self {
            messages: vec![Vec::new(); messages],
            taken: vec![false; messages],
            is_strict: config.is_fence_strict,
            postings_max: if is_hasty {
                POSTINGS_MAX_HASTY
            } else {
                POSTINGS_MAX
            },
        }
    }

    /// Whether only the target's fence counts.
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// The receiver takes a message from a slot: it came ahead of its credit. It must not come on
    /// any other way, and not twice.
    pub fn take(&mut self, message: usize) -> Result<(), String> {
        let is_posted = self
            .messages
            .get(message)
            .is_none_or(|list| !list.is_empty());
        if is_posted || core::mem::replace(&mut self.taken[message], true) {
            return Err(format!(
                "message {message} was taken from a slot and came otherwise as well"
            ));
        }
        Ok(())
    }

    /// A segment is posted. It must not be on any other queue pair that is not fenced, and not be
    /// posted again and again.
    pub fn post(
        &mut self,
        nics: &Nics,
        now: Nanos,
        (message, segment): (usize, u8),
        qp: QpId,
    ) -> Result<(), (Class, String)> {
        let Some(list) = self.messages.get(message) else {
            return Err((
                Class::Safety,
                format!("message {message} was never planned"),
            ));
        };
        if self.taken[message] {
            let text = format!("message {message} was posted after it was taken from a slot");
            return Err((Class::Safety, text));
        }
        let mut count = 0;
        for posting in list.iter().filter(|posting| posting.segment == segment) {
            let other = posting.qp;
            count += 1;
            if other == qp {
                let text = format!("segment {segment} of {message} twice on queue pair {qp}");
                return Err((Class::Safety, text));
            }
            if !self.is_fenced(nics, now, other) {
                let text = format!(
                    "segment {segment} of message {message} was posted on queue pair {qp} while \
                     it was unfenced on {other}"
                );
                return Err((Class::Safety, text));
            }
        }
        if count >= self.postings_max {
            let text = format!("segment {segment} of message {message} was posted {count} times");
            return Err((Class::Liveness, text));
        }
        let ordinal = nics.qps[qp].next_ordinal();
        self.messages[message].push(Posting {
            segment,
            qp,
            ordinal,
        });
        Ok(())
    }

    /// Whether all that was posted of a message so far was accepted by the other NIC.
    pub fn are_accepted(&self, nics: &Nics, message: usize) -> bool {
        let postings = self.messages.get(message).map_or(&[][..], Vec::as_slice);
        let mut accepted = postings
            .iter()
            .map(|one| nics.has_accepted(one.qp, one.ordinal));
        !postings.is_empty() && accepted.all(|one| one)
    }

    /// A message was reported done at one end: no queue pair that held a segment of it and has not
    /// delivered that may still do so, and none whose generation `is_over` may still read it.
    pub fn done(
        &self,
        nics: &Nics,
        now: Nanos,
        message: usize,
        is_over: impl Fn(QpId) -> bool,
    ) -> Result<(), String> {
        for posting in self.messages.get(message).into_iter().flatten() {
            let &Posting {
                segment,
                qp,
                ordinal,
            } = posting;
            let is_at_rest = nics.has_accepted(qp, ordinal) && !is_over(qp);
            if !is_at_rest && !self.is_fenced(nics, now, qp) {
                return Err(format!(
                    "message {message} was reported done while segment {segment} was unfenced on \
                     queue pair {qp}"
                ));
            }
        }
        Ok(())
    }

    /// Whether no write that was posted on a queue pair can land any more: its target is in error
    /// and drained, or it is itself and a quarantine has passed.
    pub fn is_fenced(&self, nics: &Nics, now: Nanos, qp: QpId) -> bool {
        let source = &nics.qps[qp];
        let at_target = source
            .peer
            .is_none_or(|peer| nics.qps[peer].fenced_at.is_some());
        // A device that is lost sends nothing more, whatever of its peers' is still on its bus.
        let mut silent_at = [source.lost_at, source.fenced_at].into_iter().flatten();
        let at_source = silent_at.any(|at| now >= at + QUARANTINE);
        at_target || (at_source && !self.is_strict)
    }
}
