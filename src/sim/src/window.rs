//! A window in the life of a small world in which the order of events is chosen, not drawn.
//!
//! Before and behind it what is due first happens first. In it any event may be next that is the
//! first of its channel, of those that are due soon. What others pass happens late: packets wait
//! in the fabric, threads wait for a processor. The faults of the world are further choices.

use core::mem::discriminant;

use crate::connection::Side;
use crate::nic::{NicEvent, QpId};
use crate::queue::{MILLISECOND, Nanos};
use crate::world::{EndId, Event, World};

/// How far behind the first event another one may be due to happen before it: the time that most
/// commands to a NIC take at most.
const HORIZON: Nanos = 2 * MILLISECOND;

/// When a window opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opens {
    /// Before the event of this number.
    Event(u64),
    /// So many events after a generation was given up for the first time.
    Recovery(u64),
}

/// A choice that was made, and those that could have been.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The event in the order of time, or behind all of them: the next fault strikes.
    pub chosen: u32,
    /// A bit for each choice that leads to a world of its own.
    pub allowed: u32,
}

impl Opens {
    /// Never.
    pub const NEVER: Self = Self::Event(u64::MAX);
}

/// The window of a world.
#[derive(Debug)]
pub struct Window {
    opens: Opens,
    /// Events that it is long.
    depth: u32,
    /// What to choose at its first steps.
    choices: Vec<u32>,
    /// What was chosen.
    pub steps: Vec<Step>,
    /// Faults of the world that have struck.
    struck: usize,
    taken: u32,
    recovered_at: Option<u64>,
    is_open: bool,
    /// Where the last event was, and the numbers of those that it has passed.
    last: Option<(Place, Vec<u64>)>,
}

/// Where an event happens.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The end that it concerns, if it is one.
    side: Option<Side>,
    /// It changes nothing that a checker compares with the other end.
    is_quiet: bool,
}

impl Place {
    /// Whether two events may change places without a difference to anyone: each happens at an end
    /// of its own, and no checker looks at both.
    fn is_apart(self, other: Self) -> bool {
        let sides = self.side.zip(other.side);
        sides.is_some_and(|(one, two)| one != two) && (self.is_quiet || other.is_quiet)
    }
}

/// An event that may be next.
struct Candidate {
    number: u64,
    place: Place,
}

impl Window {
    /// A window of `depth` events, with the choices of its first steps. The first `struck` faults
    /// of the world have their own time.
    pub fn new(opens: Opens, depth: u32, choices: &[u32], struck: usize) -> Self {
        Self {
            opens,
            depth,
            choices: choices.to_vec(),
            steps: Vec::new(),
            struck,
            taken: 0,
            recovered_at: None,
            is_open: false,
            last: None,
        }
    }

    /// Whether the window is open before event `handled`, after so many recoveries.
    fn is_open(&mut self, handled: u64, recoveries: u32) -> bool {
        if recoveries > 0 {
            self.recovered_at.get_or_insert(handled);
        }
        self.is_open |= match self.opens {
            Opens::Event(number) => handled == number,
            Opens::Recovery(later) => self.recovered_at.is_some_and(|at| handled == at + later),
        };
        self.is_open
    }

    /// Chooses among `events` and, behind them, the next fault, if there is one. The first choice
    /// is not the usual one: otherwise the same happens in a window that opens later.
    fn choose(&mut self, events: &[Candidate], has_fault: bool) -> usize {
        let mut allowed = 0;
        for (index, event) in events.iter().enumerate() {
            let is_known = self.last.as_ref().is_some_and(|(place, passed)| {
                passed.contains(&event.number) && place.is_apart(event.place)
            });
            let is_usual = self.steps.is_empty() && index == 0;
            allowed |= u32::from(!is_known && !is_usual) << index;
        }
        allowed |= u32::from(has_fault) << events.len();
        let given = self.choices.get(self.steps.len()).copied();
        let count = events.len() + usize::from(has_fault);
        let chosen = given.filter(|&choice| (choice as usize) < count);
        // Where nothing is left that is new, the usual order is as good as any.
        let chosen = chosen.unwrap_or(allowed.trailing_zeros() % 32);
        self.steps.push(Step { chosen, allowed });
        chosen as usize
    }

    /// An event is the next one.
    fn pass(&mut self, events: &[Candidate], chosen: usize) {
        self.taken += 1;
        let passed = events[..chosen].iter().map(|event| event.number);
        self.last = Some((events[chosen].place, passed.collect()));
    }
}

impl World {
    /// The next event, unless it lies behind `until`.
    pub(crate) fn take_next(&mut self, until: Nanos) -> Option<Event> {
        let Some(mut window) = self.window.take() else {
            return self.queue.next(until);
        };
        let event = self.take_in(&mut window, until);
        self.window = Some(window);
        event
    }

    fn take_in(&mut self, window: &mut Window, until: Nanos) -> Option<Event> {
        if !window.is_open(self.handled, self.recoveries) {
            return self.next_in_time(until);
        }
        while window.taken < window.depth {
            let events = self.candidates(until);
            let has_fault = window.struck < self.faults.len();
            if events.is_empty() {
                break;
            }
            let chosen = window.choose(&events, has_fault);
            if let Some(event) = events.get(chosen) {
                window.pass(&events, chosen);
                return self.queue.take(event.number);
            }
            self.strike_next(window);
        }
        while window.struck < self.faults.len() {
            self.strike_next(window);
        }
        self.next_in_time(until)
    }

    /// The usual next event. One that changes nothing does not count: a window that opens behind it
    /// would be the same as one before it.
    fn next_in_time(&mut self, until: Nanos) -> Option<Event> {
        loop {
            let event = self.queue.next(until)?;
            if !self.is_stale(self.queue.due(), &event) {
                return Some(event);
            }
        }
    }

    fn strike_next(&mut self, window: &mut Window) {
        self.strike(window.struck);
        window.struck += 1;
        window.last = None;
    }

    /// The events that may be next, in the order of time.
    fn candidates(&self, until: Nanos) -> Vec<Candidate> {
        let mut horizon = until;
        let mut ways = Vec::new();
        let mut candidates = Vec::new();
        for (at, number, event) in self.queue.pending() {
            if at > horizon || candidates.len() == 31 {
                break;
            }
            if self.is_stale(at, event) {
                continue;
            }
            horizon = horizon.min(at + HORIZON);
            let way = way(event);
            if way.is_none_or(|way| !ways.contains(&way)) {
                ways.extend(way);
                let place = self.place(event);
                candidates.push(Candidate { number, place });
            }
        }
        candidates
    }

    /// Whether an event has been overtaken: it changes nothing.
    fn is_stale(&self, at: Nanos, event: &Event) -> bool {
        match *event {
            Event::Wake(EndId { connection, side }) => {
                self.connections[connection].ends[side as usize].wake != Some(at)
            }
            Event::Nic(NicEvent::Depart { qp, epoch }) => self.nics.qps[qp].epoch != epoch,
            Event::Nic(NicEvent::Timeout { qp, epoch }) => {
                self.nics.qps[qp].epoch_of_timer != epoch
            }
            _ => false,
        }
    }

    fn place(&self, event: &Event) -> Place {
        let of = |qp: QpId| Some(self.owners[qp].end.side);
        let (side, is_quiet) = match event {
            Event::Nic(NicEvent::Depart { qp, .. }) => (of(*qp), true),
            Event::Nic(NicEvent::Ack { qp, .. } | NicEvent::Gap { qp, .. }) => (of(*qp), true),
            Event::Nic(NicEvent::Arrive(packet)) => (of(packet.from).map(Side::other), false),
            Event::Nic(
                NicEvent::Land { qp, .. }
                | NicEvent::Refused { qp, .. }
                | NicEvent::NotReady { qp, .. }
                | NicEvent::Timeout { qp, .. },
            ) => (of(*qp), false),
            Event::Frame(end, _) | Event::Connected(end, ..) | Event::Probed(end, ..) => {
                (Some(end.side), true)
            }
            Event::Wake(end) | Event::Fence(end, ..) | Event::Created(end, ..) => {
                (Some(end.side), false)
            }
            Event::Copy(end) => (Some(end.side), false),
            _ => (None, false),
        };
        Place { side, is_quiet }
    }
}

/// What keeps its order: events of one kind at one queue pair, or at one path of an end. `None`:
/// the event may pass all others.
fn way(event: &Event) -> Option<(core::mem::Discriminant<Event>, u64, usize)> {
    let (kind, at) = match event {
        Event::Nic(event) => match event {
            NicEvent::Depart { qp, .. } => (0, *qp),
            NicEvent::Arrive(packet) => (1, packet.from),
            NicEvent::Land { qp, .. } => (2, *qp),
            NicEvent::Timeout { qp, .. } => (3, *qp),
            NicEvent::Ack { qp, .. }
            | NicEvent::Gap { qp, .. }
            | NicEvent::Refused { qp, .. }
            | NicEvent::NotReady { qp, .. } => (4, *qp),
        },
        Event::Wake(end) | Event::Copy(end) => (0, end.side as usize),
        Event::Fence(end, path, _)
        | Event::Created(end, path, _)
        | Event::Connected(end, path, _)
        | Event::Probed(end, (path, _), _) => (end.side as u64, path.index()),
        Event::Hint { nic, .. } => (0, *nic),
        _ => return None,
    };
    Some((discriminant(event), kind, at))
}
