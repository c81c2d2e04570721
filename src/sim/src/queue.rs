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
    due: Nanos,
    made: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::with_capacity(1024),
            events: Vec::with_capacity(1024),
            free: Vec::with_capacity(1024),
            now: 0,
            due: 0,
            made: 0,
        }
    }
}

impl<E> Queue<E> {
    /// Now: the latest time of an event that was taken.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The time for which the event was meant that was taken last: before now if others were taken
    /// before it.
    pub fn due(&self) -> Nanos {
        self.due
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
        self.happen(at, place)
    }

    /// What lies ahead, in order: time, number and event.
    pub fn pending(&self) -> Vec<(Nanos, u64, &E)> {
        let places = self
            .heap
            .iter()
            .filter_map(|&Reverse((at, number, place))| {
                let event = self.events[place as usize].as_ref()?;
                Some((at, number, event))
            });
        let mut list: Vec<_> = places.collect();
        list.sort_unstable_by_key(|&(at, number, _)| (at, number));
        list
    }

    /// The event of a number, whatever lies before it; time moves on to it, or stands still.
    pub fn take(&mut self, number: u64) -> Option<E> {
        let found = self.heap.iter().find(|Reverse((_, own, _))| *own == number);
        let &Reverse((at, _, place)) = found?;
        self.heap.retain(|Reverse((_, own, _))| *own != number);
        self.happen(at, place)
    }

    fn happen(&mut self, at: Nanos, place: u32) -> Option<E> {
        (self.now, self.due) = (self.now.max(at), at);
        self.free.push(place);
        self.events[place as usize].take()
    }
}
