//! Small messages that come ahead of their credit (PROTOCOL R40 to R43).

use super::Receiver;
use super::values::EagerCopy;
use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, Seq};
use crate::limits::{EAGER_BYTES_MAX, EAGER_HEAD_BYTES};
use crate::wire::eager::EagerHead;

/// A message in a slot, until it has found its receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Eager {
    path: PathId,
    head: EagerHead,
}

impl Receiver {
    /// Whether the slots are worth a look: no message that came early waits for its receive.
    pub fn takes_eager(&self) -> bool {
        self.eager.is_none()
    }

    /// Takes a copy of the head in a generation's slot. False: it is not the next one, or of a
    /// generation that is over; nothing has changed then. After true, and after each
    /// [`Receiver::post_recv`], ask [`Receiver::poll_eager`].
    pub fn handle_eager(
        &mut self,
        path: PathId,
        generation: Generation,
        head: &[u8; EAGER_HEAD_BYTES],
    ) -> Result<bool, ProtocolError> {
        if self.eager.is_some() || !self.paths.accepts(path, generation) {
            return Ok(false);
        }
        let Some(head) = EagerHead::decode(head, self.eager_count + 1, generation) else {
            return Ok(false);
        };
        if head.frontier > self.opened || head.bytes > EAGER_BYTES_MAX as u32 {
            return Err(ProtocolError::BadEager);
        }
        if let Some(last) = head.frontier.0.checked_sub(1) {
            self.note_credited(Seq(last));
        }
        self.eager = Some(Eager { path, head });
        Ok(true)
    }

    /// Gives the early message to its receive: the first one with its tag whose credit the sender
    /// did not know (PROTOCOL R41). It counts as delivered: copy it before anything else is done
    /// with this connection. `Ok(None)`: there is no such message, or no such receive yet.
    pub fn poll_eager(&mut self) -> Result<Option<EagerCopy>, ProtocolError> {
        let Some(Eager { path, head }) = self.eager else {
            return Ok(None);
        };
        let first = head.frontier.max(self.oldest);
        let fitting = (first.0..self.opened.0)
            .map(Seq)
            .find(|seq| self.messages.get(*seq).credit.tag == head.tag);
        let Some(seq) = fitting else {
            return Ok(None);
        };
        let message = self.messages.get_mut(seq);
        if message.arrived() != 0 {
            return Err(ProtocolError::BadEager);
        }
        let bytes = head.bytes.min(message.credit.capacity);
        message.complete(bytes);
        let (region, address) = (message.credit.region, message.credit.address);
        self.eager = None;
        self.eager_count += 1;
        self.held = Some(seq);
        self.statistics.eager_receives += 1;
        self.advance_delivered();
        Ok(Some(EagerCopy {
            path,
            seq,
            region,
            address,
            payload: head.bytes,
            bytes,
        }))
    }

    /// Whatever lies in the slot of a generation that is over counts no more (PROTOCOL R42).
    pub(super) fn drop_eager(&mut self, path: PathId) {
        self.eager = self.eager.filter(|eager| eager.path != path);
    }

    /// The sender has taken all credits up to that of `seq`.
    pub(super) fn note_credited(&mut self, seq: Seq) {
        if self.held.is_some_and(|held| held <= seq) {
            self.held = None;
            self.advance_oldest();
        }
    }
}
