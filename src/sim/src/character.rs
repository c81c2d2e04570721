//! What kind of world a seed is, beside its faults. The draws have a stream of their own: a new
//! one leaves all other worlds as they were.

use r2ccl_core::{EndConfig, SegmentWrite};

use crate::check::Class;
use crate::connection::{Connection, Side};
use crate::memory::Content;
use crate::plan::{Group, Message, Plan};
use crate::queue::{MICROSECOND, MILLISECOND, Nanos, SECOND};
use crate::random::Random;
use crate::world::{EndId, World};

/// Messages of a long connection: the numbers in its immediates and slots begin again.
const LONG_MESSAGES: usize = 1200;
/// Requests that are open on it at once: more than the window has room for.
const LONG_DEPTH: usize = 300;
/// Writes that a device refuses at a time, at the most.
const REFUSED_MAX: usize = 3;
/// How long a device looks full.
const REFUSED_PAUSE: Nanos = 5 * MICROSECOND;

/// What kind of world it is.
#[derive(Clone, Copy, Debug)]
pub struct Character {
    /// Nothing strikes.
    pub is_calm: bool,
    /// One connection has many small messages, and more receives than the window holds.
    pub is_long: bool,
    /// Nobody hears that a process has died.
    pub is_silent: bool,
    /// Paths that the watchdog may leave in ten seconds.
    pub evictions_max: u8,
    /// Writes in a million that a device does not take at once.
    pub refusal_ppm: u32,
    /// Longest back-off.
    pub back_off_max: Nanos,
    /// Paths have short hold-downs, which soon double and soon are short again.
    pub is_hasty: bool,
    /// How long what was accepted takes to reach memory, if that is long.
    pub bus_delay: Option<Nanos>,
    /// A port that comes back has another address, and none for a while.
    pub moves_addresses: bool,
    /// Devices have few numbers: that of a queue pair that is over is given anew at once.
    pub has_few_numbers: bool,
}

impl Character {
    /// That of a small world.
    pub const SMALL: Self = Self {
        is_calm: false,
        is_long: false,
        is_silent: false,
        evictions_max: 4,
        refusal_ppm: 0,
        back_off_max: 60 * SECOND,
        is_hasty: false,
        bus_delay: None,
        moves_addresses: false,
        has_few_numbers: false,
    };

    /// That of any other.
    pub fn draw(random: &mut Random) -> Self {
        let usual = EndConfig::default();
        Self {
            is_calm: random.percent(3),
            is_long: random.percent(4),
            is_silent: random.percent(50),
            evictions_max: random.pick(&[1, 2, 4, 4]),
            refusal_ppm: random.pick(&[0, 0, 0, 20_000]),
            bus_delay: random.percent(15).then_some(2 * MILLISECOND),
            back_off_max: if random.percent(15) {
                400 * MILLISECOND
            } else {
                usual.back_off_max_ns
            },
            is_hasty: random.percent(15),
            moves_addresses: random.percent(15),
            has_few_numbers: random.percent(15),
        }
    }
}

impl Plan {
    /// Adds small messages to those of connection `index`, and receives that are open at once.
    pub fn prolong(&mut self, index: usize, random: &mut Random) {
        (self.depth, self.rest, self.receive_rest) = (LONG_DEPTH, 0, 0);
        let tags = self.messages.iter().map(|message| message.tag);
        let tags = if self.is_shared {
            1 + tags.max().unwrap_or(0)
        } else {
            1
        };
        while self.messages.len() < LONG_MESSAGES {
            let first = self.messages.len();
            let bytes = random.magnitude(8, 8 << 10);
            self.messages.push(Message {
                bytes,
                capacity: bytes,
                tag: random.below(tags as u64) as i32,
                content: Content((index as u64) << 24 | (first as u64 + 1)),
                may_be_eager: random.percent(20),
            });
            self.groups.push(Group {
                first,
                count: 1,
                turn: 0,
            });
        }
    }
}

impl Connection {
    /// Whether the requests of an end that is alone must still fail (PROTOCOL R62).
    pub fn must_fail(&self) -> bool {
        self.deserted.is_some_and(|side| {
            let is_busy = match side {
                Side::Sender => self.sender.half().is_busy(),
                Side::Receiver => self.receiver.half().is_waiting(),
            };
            is_busy && self.ends[side as usize].failed.is_none()
        })
    }

    /// Whether sends must still become done that the receiver counted when it closed.
    pub fn must_finish(&self) -> bool {
        let has_failed = self.ends[Side::Sender as usize].failed.is_some();
        self.deserted == Some(Side::Sender) && !has_failed && self.counted_send().is_some()
    }
}

impl Character {
    /// Its settings of an end.
    pub fn config(&self) -> EndConfig {
        let config = EndConfig {
            evictions_max: self.evictions_max,
            back_off_max_ns: self.back_off_max,
            ..EndConfig::default()
        };
        if !self.is_hasty {
            return config;
        }
        EndConfig {
            hold_down_ns: 50 * MILLISECOND,
            flap_ns: 150 * MILLISECOND,
            stable_ns: 300 * MILLISECOND,
            ..config
        }
    }
}

impl World {
    /// A device does not take a segment, and a few that follow: they are handed back, newest first
    /// (PROTOCOL R14). False: it takes them.
    pub(crate) fn is_refused(&mut self, end: EndId, write: &SegmentWrite) -> bool {
        if !self.random.ppm(self.character.refusal_ppm) {
            return false;
        }
        let more = self.random.index(REFUSED_MAX);
        let sender = self.connections[end.connection].sender.half_mut();
        let mut writes = vec![*write];
        writes.extend((0..more).map_while(|_| sender.poll_transmit(write.path)));
        let results = writes
            .iter()
            .rev()
            .map(|write| sender.return_transmit(write));
        let result: Result<(), _> = results.collect();
        if let Err(error) = result {
            self.fail(Class::Safety, format!("{end:?}: {error}"));
        }
        self.state(end).seen.is_refused = true;
        let at = self.queue.now() + REFUSED_PAUSE;
        self.wake_at(end, at);
        true
    }

    /// Where nothing strikes, nothing is given up.
    pub(crate) fn check_calm(&mut self) {
        if self.character.is_calm && self.recoveries > 0 {
            let text = format!("{} generations given up for nothing", self.recoveries);
            self.fail(Class::Liveness, text);
        }
    }
}
