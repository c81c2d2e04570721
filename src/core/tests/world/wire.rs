//! The fake wire: one pair of queues a path, and the rings and counters in the sender's memory.

use super::path;
use super::random::Random;
use r2ccl_core::limits::{CREDIT_BYTES, CREDIT_RING_BYTES};
use r2ccl_core::wire::{credit::Credit, immediate::Immediate};
use r2ccl_core::{
    Arrival, Generation, Receiver, ReceiverBody, ReceiverWrite, SegmentWrite, Sender, Seq, WorkId,
};
use std::collections::VecDeque;

/// What the receiver writes to in one generation of a path.
struct Mailbox {
    ring: Vec<u8>,
    counter: u64,
}

impl Mailbox {
    fn new() -> Self {
        Self {
            ring: vec![0; CREDIT_RING_BYTES],
            counter: 0,
        }
    }

    fn land(&mut self, write: &ReceiverWrite) {
        let (bytes, len) = write.payload();
        match write.body {
            ReceiverBody::Credits { slot, .. } => {
                let start = slot * CREDIT_BYTES;
                self.ring[start..start + len].copy_from_slice(&bytes[..len]);
            }
            ReceiverBody::Counter { value } => self.counter = value,
        }
    }
}

/// One path in its newest generation.
struct Link {
    generation: Generation,
    /// Segments under way.
    segments: VecDeque<SegmentWrite>,
    /// Credits and counters under way.
    confirmations: VecDeque<ReceiverWrite>,
    mailbox: Mailbox,
    /// Completions that the sender has not seen.
    sender_completions: VecDeque<WorkId>,
    /// Completions that the receiver has not seen.
    receiver_completions: VecDeque<WorkId>,
}

impl Link {
    fn new(generation: Generation) -> Self {
        Self {
            generation,
            segments: VecDeque::new(),
            confirmations: VecDeque::new(),
            mailbox: Mailbox::new(),
            sender_completions: VecDeque::new(),
            receiver_completions: VecDeque::new(),
        }
    }
}

pub struct Wire {
    links: Vec<Link>,
    /// Segments that have landed.
    pub landed: usize,
}

impl Wire {
    pub fn new(paths: usize) -> Self {
        Self {
            links: (0..paths).map(|_| Link::new(Generation(0))).collect(),
            landed: 0,
        }
    }

    /// Posts segments on a random path; the queue pair takes only a part of a chain.
    pub fn post_segments(&mut self, sender: &mut Sender, random: &mut Random) {
        let index = random.below(self.links.len());
        let link = &mut self.links[index];
        let chain: Vec<_> = (0..random.below(40))
            .map_while(|_| sender.poll_transmit(path(index)))
            .collect();
        let taken = random.below(chain.len() + 1);
        for write in chain[taken..].iter().rev() {
            sender.return_transmit(write).expect("newest first");
        }
        for write in &chain[..taken] {
            assert_eq!(
                (write.path, write.generation),
                (path(index), link.generation)
            );
            link.segments.push_back(*write);
        }
    }

    /// Lets the next segment of a random path land and complete at the receiver.
    pub fn land_segment(
        &mut self,
        receiver: &mut Receiver,
        random: &mut Random,
        land: impl FnOnce(&SegmentWrite),
    ) {
        let index = random.below(self.links.len());
        let link = &mut self.links[index];
        let Some(write) = link.segments.pop_front() else {
            return;
        };
        land(&write);
        self.landed += 1;
        let arrival =
            receiver.handle_arrival(write.path, write.generation, write.immediate, write.bytes);
        let is_new = arrival == Ok(Arrival::Segment(write.seq))
            || arrival == Ok(Arrival::Delivered(write.seq));
        assert!(is_new, "{arrival:?}");
        if random.once_in(10) {
            let again =
                receiver.handle_arrival(write.path, write.generation, write.immediate, write.bytes);
            assert_eq!(again, Ok(Arrival::Duplicate(write.seq)));
        }
        if write.signaled {
            link.sender_completions.push_back(write.work);
        }
    }

    /// Posts what the receiver wants to write; the queue pair takes only a part of it.
    pub fn post_confirmations(&mut self, receiver: &mut Receiver, random: &mut Random) {
        while let Some(write) = receiver.poll_transmit() {
            if random.once_in(8) {
                receiver.return_transmit(&write).expect("newest");
                return;
            }
            self.links[write.path.index()]
                .confirmations
                .push_back(write);
        }
    }

    /// Lets some credits and counters of a random path land.
    pub fn land_confirmations(&mut self, random: &mut Random) {
        let index = random.below(self.links.len());
        let link = &mut self.links[index];
        for _ in 0..=random.below(64) {
            let Some(write) = link.confirmations.pop_front() else {
                return;
            };
            link.mailbox.land(&write);
            if write.signaled {
                link.receiver_completions.push_back(write.work);
            }
        }
    }

    /// The sender looks at rings and counters, in random order.
    pub fn read_mailboxes(&mut self, sender: &mut Sender, random: &mut Random) {
        let mut order: Vec<_> = (0..self.links.len()).collect();
        random.shuffle(&mut order);
        for index in order {
            let link = &self.links[index];
            while let Some((slot, _)) = sender.expected_credit() {
                let start = slot * CREDIT_BYTES;
                let line = link.mailbox.ring[start..start + CREDIT_BYTES].try_into();
                let line = line.expect("a line");
                if !sender
                    .handle_credit(path(index), link.generation, line)
                    .expect("valid")
                {
                    break;
                }
            }
            let (before, counter) = (sender.delivered(), link.mailbox.counter);
            sender
                .handle_counter(path(index), link.generation, counter)
                .expect("posted");
            assert_eq!(
                sender.delivered(),
                before.max(counter),
                "PROTOCOL R10: monotone"
            );
        }
    }

    /// Both sides see completions, late and in order.
    pub fn complete_some(
        &mut self,
        sender: &mut Sender,
        receiver: &mut Receiver,
        random: &mut Random,
    ) {
        for link in &mut self.links {
            for _ in 0..=random.below(8) {
                if let Some(work) = link.sender_completions.pop_front() {
                    sender.handle_completion(work, true);
                }
                if let Some(work) = link.receiver_completions.pop_front() {
                    receiver.handle_completion(work, true);
                }
            }
        }
    }

    /// A starved sender asks for all credits again.
    pub fn resend(&mut self, receiver: &mut Receiver, random: &mut Random) {
        let index = random.below(self.links.len());
        receiver.resend_all(path(index), self.links[index].generation);
        self.post_confirmations(receiver, random);
    }

    /// Old generations and completions of the past change nothing, whatever they say.
    pub fn speak_up_from_the_past(&mut self, sender: &mut Sender, receiver: &mut Receiver) {
        for (index, link) in self.links.iter().enumerate() {
            let Some(old) = link.generation.0.checked_sub(1).map(Generation) else {
                continue;
            };
            let seq = Seq(receiver.delivered());
            let immediate = Immediate::new(seq, 0, 1, old).encode();
            let current = link.generation;
            for generation in [old, current] {
                let stale = receiver.handle_arrival(path(index), generation, immediate, 0);
                assert_eq!(stale, Ok(Arrival::Stale));
            }
            let before = sender.snapshot();
            sender
                .handle_counter(path(index), old, u64::MAX)
                .expect("dropped");
            if let Some((_, seq)) = sender.expected_credit() {
                let region = r2ccl_core::RegionId(0);
                let credit = Credit {
                    seq,
                    address: 0,
                    capacity: 0,
                    region,
                    tag: 0,
                    group_size: 1,
                    group_index: 0,
                };
                let line = credit.encode(old);
                assert_eq!(sender.handle_credit(path(index), old, &line), Ok(false));
                assert_eq!(sender.handle_credit(path(index), current, &line), Ok(false));
            }
            let after = sender.snapshot();
            assert_eq!(
                (before.delivered, before.credited),
                (after.delivered, after.credited)
            );
        }
    }

    /// Gives a path whose segments have all landed a new generation. Its credits and counters that
    /// are under way are lost.
    pub fn renew(
        &mut self,
        sender: &mut Sender,
        receiver: &mut Receiver,
        random: &mut Random,
    ) -> bool {
        let index = random.below(self.links.len());
        let link = &mut self.links[index];
        if !link.segments.is_empty() {
            return false;
        }
        let (old, new) = (
            link.generation,
            link.generation.next().expect("enough numbers"),
        );
        let late = core::mem::replace(link, Link::new(new));
        assert!(sender.close_path(path(index), old));
        assert!(receiver.close_path(path(index), old));
        assert!(receiver.handle_fence(path(index), old, true));
        let answer = receiver.answer(path(index), old).expect("closed");
        assert_eq!(sender.handle_answer(&answer), Ok(true));
        assert_eq!(sender.handle_answer(&answer), Ok(false));
        assert!(sender.is_settled(path(index)));
        sender.add_path(path(index), new).expect("newer");
        receiver.add_path(path(index), new).expect("newer");
        for work in late.sender_completions {
            sender.handle_completion(work, false);
        }
        for work in late.receiver_completions {
            receiver.handle_completion(work, false);
        }
        receiver.resend_all(path(index), new);
        self.post_confirmations(receiver, random);
        true
    }
}
