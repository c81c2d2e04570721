//! Users that are ahead of each other, and sends that go ahead of their credit.

use super::{UNTOUCHED, World};
use r2ccl_core::limits::EAGER_SLOTS;
use r2ccl_core::wire::eager::EagerHead;
use r2ccl_core::{EagerCopy, RegionId, SendStatus, Seq, Time};

/// What went ahead of its credit.
pub struct EagerSend {
    tag: i32,
    /// Which send with its tag it is.
    nth: usize,
    source: Vec<u8>,
    /// The message that it became at the end that knew first.
    seq: Option<Seq>,
    is_seen: bool,
    is_copied: bool,
}

/// What has happened to them.
#[derive(Clone, Copy, Debug, Default)]
pub struct EagerCounts {
    pub sent: usize,
    /// Sent in a slot that had been used before.
    pub reused: usize,
    /// Bound at the sender before the receiver had it.
    pub sender_first: usize,
    /// Given to a receive before the sender had its credit.
    pub receiver_first: usize,
    /// Taken before their receive was there.
    pub early: usize,
    /// Bound in a group that lacked other sends.
    pub unfilled: usize,
    /// Bound behind messages that were not sent when it was.
    pub passed_over: usize,
    pub truncated: usize,
    /// Confirmed by a goodbye.
    pub confirmed: usize,
}

impl EagerCounts {
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.reused += other.reused;
        self.sender_first += other.sender_first;
        self.receiver_first += other.receiver_first;
        self.early += other.early;
        self.unfilled += other.unfilled;
        self.passed_over += other.passed_over;
        self.truncated += other.truncated;
        self.confirmed += other.confirmed;
    }
}

impl World {
    /// Makes up one more group that both users will come to; false when there are enough.
    pub(super) fn plan_group(&mut self) -> bool {
        if self.planned >= self.plan.messages {
            return false;
        }
        let count = if self.random.once_in(2) {
            1
        } else {
            1 + self.random.below(8)
        };
        let first = if self.random.once_in(3) { 8 } else { 0 };
        let mut tags: Vec<_> = (first..first + count as i32).collect();
        if count > 1 && self.random.once_in(4) {
            tags[1] = tags[0];
        }
        self.random.shuffle(&mut tags);
        self.planned += count;
        self.wanted.push_back(tags.clone());
        self.unopened.push_back(tags);
        true
    }

    /// Group and member that the sending user sends for now: of the oldest, or of the one behind it
    /// as long as that keeps the order of the tag.
    pub(super) fn pick_send(&mut self) -> Option<(usize, usize)> {
        if self.wanted.len() < 2 && self.random.once_in(4) {
            self.plan_group();
        }
        let group = usize::from(self.wanted.len() > 1 && self.random.once_in(4));
        let tags = self.wanted.get(group)?;
        let member = self.random.below(tags.len());
        let is_overtaking = group > 0 && self.wanted[0].contains(&tags[member]);
        (!is_overtaking).then_some((group, member))
    }

    /// Which send with `tag` the next one is.
    pub(super) fn count_send(&mut self, tag: i32) -> usize {
        let (_, sends) = self.tags.entry(tag).or_default();
        *sends += 1;
        *sends - 1
    }

    /// Sends ahead of the credit, if that may be.
    pub(super) fn send_eager(&mut self, local: (RegionId, u64), tag: i32, source: &[u8]) -> bool {
        let now = Time::from_nanoseconds(self.now);
        let submitted = self
            .sender
            .submit_eager(now, local, source.len() as u64, tag)
            .expect("there is a route");
        let Some(write) = submitted else {
            return false;
        };
        let slot = write.slot;
        assert!(self.eager[slot].is_none(), "PROTOCOL R40: its slot is free");
        let number = u64::from_le_bytes(write.head[24..].try_into().expect("8 bytes"));
        let head = EagerHead::decode(&write.head, number, write.generation).expect("its own");
        assert_eq!(head.frontier, self.sender.snapshot().filled, "PROTOCOL R40");
        let counts = &mut self.eager_counts;
        counts.sent += 1;
        counts.reused += usize::from(number > EAGER_SLOTS as u64);
        self.wire.post_eager(write, source.to_vec());
        self.eager[slot] = Some(EagerSend {
            tag,
            nth: self.count_send(tag),
            source: source.to_vec(),
            seq: None,
            is_seen: false,
            is_copied: false,
        });
        true
    }

    /// The receiver looks at its slots.
    pub(super) fn read_slots(&mut self) {
        let Self {
            wire,
            receiver,
            random,
            ..
        } = self;
        let taken = wire.read_slots(receiver, random);
        if taken > 0 {
            self.eager_counts.early += taken - self.copy_eagers();
            self.wire
                .post_confirmations(&mut self.receiver, &mut self.random);
        }
    }

    pub(super) fn is_eager_open(&self) -> bool {
        self.eager.iter().any(Option::is_some)
    }

    /// The receiver copies what has found its receive. Returns how many messages.
    pub(super) fn copy_eagers(&mut self) -> usize {
        let mut given = 0;
        while let Some(copy) = self.receiver.poll_eager() {
            self.copy_eager(&copy);
            given += 1;
        }
        given
    }

    fn copy_eager(&mut self, copy: &EagerCopy) {
        assert_eq!((copy.address >> 32) - 1, copy.seq.0);
        self.bind(copy.slot, copy.seq);
        let eager = self.eager[copy.slot]
            .as_mut()
            .expect("open until it is delivered");
        assert!(!eager.is_copied, "PROTOCOL R5: once");
        eager.is_copied = true;
        self.eager_counts.receiver_first += usize::from(!eager.is_seen);
        let payload = self.wire.payload(copy)[..copy.bytes as usize].to_vec();
        let buffer = &mut self.buffers[copy.seq.0 as usize];
        assert!(!buffer.is_reported, "PROTOCOL R16: landed late");
        assert!(buffer.bytes.iter().all(|&byte| byte == UNTOUCHED));
        buffer.bytes[..payload.len()].copy_from_slice(&payload);
    }

    /// Looks whether the sender has come to know which messages they are.
    pub(super) fn see_bindings(&mut self) {
        for slot in 0..EAGER_SLOTS {
            if let Some(seq) = self.sender.eager_seq(slot) {
                self.see_binding(slot, seq);
            }
        }
    }

    fn see_binding(&mut self, slot: usize, seq: Seq) {
        self.bind(slot, seq);
        let eager = self.eager[slot]
            .as_mut()
            .expect("open until it is delivered");
        if eager.is_seen {
            return;
        }
        eager.is_seen = true;
        let marks = self.sender.snapshot();
        self.eager_counts.sender_first += usize::from(!eager.is_copied);
        self.eager_counts.unfilled += usize::from(seq >= marks.filled);
    }

    /// PROTOCOL R41: both ends find the same message.
    fn bind(&mut self, slot: usize, seq: Seq) {
        let eager = self.eager[slot]
            .as_mut()
            .expect("open until it is delivered");
        if let Some(before) = eager.seq.replace(seq) {
            assert_eq!(before, seq, "PROTOCOL R41: both ends");
            return;
        }
        let (tag, nth, source) = (eager.tag, eager.nth, eager.source.clone());
        let is_behind = seq > self.sender.snapshot().filled;
        let given = self.match_buffer(seq, (tag, nth), &source);
        self.eager_counts.truncated += usize::from(given < source.len());
        self.eager_counts.passed_over += usize::from(is_behind);
    }

    /// Reports some of the sends that are done.
    pub(super) fn report_eagers(&mut self) {
        for slot in 0..EAGER_SLOTS {
            if self.random.once_in(2) {
                self.report_eager(slot);
            }
        }
    }

    fn report_eager(&mut self, slot: usize) {
        let SendStatus::Delivered { bytes } = self.sender.eager_status(slot) else {
            return;
        };
        let eager = self.eager[slot].take().expect("open until it is delivered");
        let seq = eager.seq.expect("both ends know");
        assert!(
            seq.0 < self.receiver.delivered(),
            "PROTOCOL R2: done means delivered"
        );
        let buffer = &self.buffers[seq.0 as usize];
        let expected = buffer.expected.as_ref().expect("submitted").len();
        if eager.is_seen {
            assert_eq!(bytes as usize, expected);
        } else {
            self.eager_counts.confirmed += 1;
            assert_eq!(bytes as usize, eager.source.len());
        }
        self.sender.release_eager(slot).expect("delivered");
        assert_eq!(self.sender.eager_status(slot), SendStatus::Unknown);
        self.reported_sends += 1;
    }

    /// The receiving user has all and closes.
    pub(super) fn say_goodbye(&mut self) {
        let delivered = self.receiver.delivered();
        self.sender.handle_goodbye(delivered).expect("posted");
    }
}
