//! The fake wire: one pair of queues a path, and the rings and counters in the sender's memory.

use super::path;
use super::random::Random;
use super::slot::{Slot, Slots};
use r2ccl_core::limits::{CREDIT_BYTES, CREDIT_RING_BYTES, EAGER_SLOTS};
use r2ccl_core::wire::{credit::Credit, immediate::Immediate};
use r2ccl_core::{
    Answer, Arrival, EagerCopy, EagerWrite, Generation, PathId, Receiver, ReceiverBody,
    ReceiverWrite, SegmentWrite, Sender, Seq, WorkId,
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

/// A write of the sender that is under way.
enum Flight {
    Segment(SegmentWrite),
    /// With its payload.
    Eager(EagerWrite, Vec<u8>),
}

/// One path in its newest generation.
struct Link {
    generation: Generation,
    /// What the sender has posted, under way.
    flights: VecDeque<Flight>,
    /// Where messages ahead of their credit land at the receiver.
    slots: Slots,
    /// The generation is over at the sender.
    is_left: bool,
    /// It is over at the receiver, whose answer is under way.
    answer: Option<Box<Answer>>,
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
            flights: VecDeque::new(),
            slots: core::array::from_fn(|_| Slot::default()),
            is_left: false,
            answer: None,
            confirmations: VecDeque::new(),
            mailbox: Mailbox::new(),
            sender_completions: VecDeque::new(),
            receiver_completions: VecDeque::new(),
        }
    }
}

impl Link {
    /// No segment lands any more; in the slots anything may.
    fn land_late(&mut self) {
        for flight in self.flights.drain(..) {
            if let Flight::Eager(write, payload) = flight {
                self.slots[write.slot].land(&write, &payload);
            }
        }
    }
}

pub struct Wire {
    links: Vec<Link>,
    /// Slots of generations that are over.
    past: Vec<(PathId, Generation, Slots)>,
    /// Segments that have landed.
    pub landed: usize,
}

impl Wire {
    pub fn new(paths: usize) -> Self {
        Self {
            links: (0..paths).map(|_| Link::new(Generation(0))).collect(),
            past: Vec::new(),
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
            link.flights.push_back(Flight::Segment(*write));
        }
    }

    /// Posts a message ahead of its credit.
    pub fn post_eager(&mut self, write: EagerWrite, payload: Vec<u8>) {
        let link = &mut self.links[write.path.index()];
        assert_eq!(write.generation, link.generation);
        assert!(!link.is_left, "PROTOCOL R50: nothing more is posted");
        link.flights.push_back(Flight::Eager(write, payload));
    }

    /// The receiver looks at the slots, in random order. Returns how many messages it has taken.
    pub fn read_slots(&mut self, receiver: &mut Receiver, random: &mut Random) -> usize {
        let mut order: Vec<_> = (0..self.links.len()).collect();
        random.shuffle(&mut order);
        let mut taken = 0;
        for index in order {
            let link = &self.links[index];
            while let Some(slot) = receiver.eager_slot(path(index)) {
                let head = link.slots[slot].head();
                let is_taken = receiver
                    .handle_eager(path(index), link.generation, head)
                    .expect("legal");
                if !is_taken {
                    break;
                }
                assert!(link.answer.is_none(), "PROTOCOL R42");
                taken += 1;
            }
        }
        taken
    }

    /// The payload that the receiver copies.
    pub fn payload(&self, copy: &EagerCopy) -> &[u8] {
        self.links[copy.path.index()].slots[copy.slot].payload(copy.payload)
    }

    /// Lets the next write of a random path land and, if it is a segment, complete at the receiver.
    pub fn land_segment(
        &mut self,
        receiver: &mut Receiver,
        random: &mut Random,
        land: impl FnOnce(&SegmentWrite),
    ) {
        let index = random.below(self.links.len());
        let link = &mut self.links[index];
        let is_fenced = link.answer.as_ref().is_some_and(|answer| answer.is_fenced);
        let write = match link.flights.pop_front().filter(|_| !is_fenced) {
            Some(Flight::Segment(write)) => write,
            Some(Flight::Eager(write, payload)) => {
                link.slots[write.slot].land(&write, &payload);
                if write.signaled {
                    link.sender_completions.push_back(write.work);
                }
                return;
            }
            None => return,
        };
        land(&write);
        self.landed += 1;
        if link.answer.is_some() {
            return;
        }
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
            loop {
                let start = sender.expected_credit().0 * CREDIT_BYTES;
                let line = link.mailbox.ring[start..start + CREDIT_BYTES].try_into();
                let line = line.expect("a line");
                if !sender
                    .handle_credit(path(index), link.generation, line)
                    .expect("valid")
                {
                    break;
                }
            }
            if link.is_left {
                continue;
            }
            let (before, counter) = (sender.snapshot(), link.mailbox.counter);
            sender
                .handle_counter(path(index), link.generation, counter)
                .expect("posted");
            // It runs ahead of the credits of eager messages.
            let ahead = before.posted.0 + EAGER_SLOTS as u64;
            assert!(counter <= ahead, "PROTOCOL R43");
            assert_eq!(
                sender.delivered(),
                before.delivered.0.max(counter.min(before.posted.0)),
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
        for (path, generation, slots) in &self.past {
            let current = self.links[path.index()].generation;
            for (generation, slot) in [*generation, current]
                .into_iter()
                .flat_map(|generation| slots.iter().map(move |slot| (generation, slot)))
            {
                let looked = receiver.handle_eager(*path, generation, slot.head());
                assert_eq!(looked, Ok(false), "PROTOCOL R42: never looked at again");
            }
        }
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
            {
                let (_, seq) = sender.expected_credit();
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
                let line = credit.encode(old, seq);
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

    /// The next step of a random path from one generation to another: each end leaves it, in
    /// random order, and the answer comes. What is under way then is lost.
    pub fn renew(
        &mut self,
        sender: &mut Sender,
        receiver: &mut Receiver,
        random: &mut Random,
    ) -> bool {
        let index = random.below(self.links.len());
        let link = &mut self.links[index];
        match (link.is_left, link.answer.is_some()) {
            (false, false) if !random.once_in(4) => {}
            (false, is_answered) if is_answered || random.once_in(2) => {
                link.is_left = true;
                assert!(sender.close_path(path(index), link.generation));
            }
            (_, false) => {
                let is_fenced = random.once_in(2);
                assert!(receiver.close_path(path(index), link.generation));
                assert!(receiver.handle_fence(path(index), link.generation, is_fenced));
                if is_fenced {
                    link.land_late();
                }
                let answer = receiver.answer(path(index), link.generation);
                link.answer = Some(Box::new(answer.expect("closed")));
            }
            _ => {
                self.begin(index, sender, receiver);
                self.post_confirmations(receiver, random);
                return true;
            }
        }
        false
    }

    /// The answer comes, and a new generation.
    fn begin(&mut self, index: usize, sender: &mut Sender, receiver: &mut Receiver) {
        let old = self.links[index].generation;
        let new = old.next().expect("enough numbers");
        let mut late = core::mem::replace(&mut self.links[index], Link::new(new));
        let answer = late.answer.take().expect("ended");
        assert_eq!(sender.handle_answer(&answer), Ok(true));
        assert_eq!(sender.handle_answer(&answer), Ok(false));
        late.land_late();
        if !answer.is_fenced {
            assert!(!sender.is_settled(path(index)), "PROTOCOL R53");
            assert!(sender.handle_quarantine_over(path(index), old));
        }
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
        self.past.push((path(index), old, late.slots));
        if self.past.len() > 8 {
            self.past.remove(0);
        }
    }
}
