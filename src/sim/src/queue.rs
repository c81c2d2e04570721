//! Virtual time: what happens next.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// Virtual nanoseconds since the beginning of the world.
pub type Nanos = u64;

/// One microsecond.
pub const MICROSECOND: Nanos = 1_000;
/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// Events in the order of their time; those of one instant in the order in which they were made.
#[derive(Debug)]
pub struct Queue<E> {
    /// Time, order of making, and place in `events`: events themselves are large.
    heap: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    events: Vec<Option<E>>,
    free: Vec<u32>,
    now: Nanos,
    made: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::with_capacity(1024),
            events: Vec::with_capacity(1024),
            free: Vec::with_capacity(1024),
            now: 0,
            made: 0,
        }
    }
}

impl<E> Queue<E> {
    /// The time of the event that was taken last.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// How many events were made so far.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Lets `event` happen at `at`, or now if that has passed.
    pub fn at(&mut self, at: Nanos, event: E) {
        let place = match self.free.pop() {
            Some(place) => {
                self.events[place as usize] = Some(event);
                place
            }
            None => {
                self.events.push(Some(event));
                (self.events.len() - 1) as u32
            }
        };
        self.heap
            .push(Reverse((at.max(self.now), self.made, place)));
        self.made += 1;
    }

    /// Lets `event` happen `delay` from now.
    pub fn after(&mut self, delay: Nanos, event: E) {
        self.at(self.now.saturating_add(delay), event);
    }

    /// Lets time pass until `at`, with nothing left to happen before.
    pub fn pass(&mut self, at: Nanos) {
        self.now = self.now.max(at);
    }

    /// The next event, unless it lies behind `until`; time moves to it.
    pub fn next(&mut self, until: Nanos) -> Option<E> {
        if self.heap.peek()?.0.0 > until {
            return None;
        }
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.now = at;
        self.free.push(place);
        self.events[place as usize].take()
    }
}
