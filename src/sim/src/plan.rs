//! What the user of a connection does: which messages, in which groups, how fast.

use std::collections::VecDeque;

use crate::memory::Content;
use crate::queue::{MICROSECOND, MILLISECOND, Nanos};
use crate::random::Random;

/// Messages of a connection at least.
pub const MESSAGES_MIN: usize = 200;
/// Bytes of the largest message.
pub const BYTES_MAX: u64 = 512 << 10;

/// Tags of a connection at the most.
pub const RANKS: usize = 8;
/// Ranks of a connection that several share.
const SHARING: u64 = 3;

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Bytes of the send.
    pub bytes: u64,
    /// Room at the receive.
    pub capacity: u64,
    /// Tag of both.
    pub tag: i32,
    /// What it carries.
    pub content: Content,
    /// It may go ahead of its credit.
    pub may_be_eager: bool,
}

impl Message {
    /// Bytes that arrive.
    pub fn delivered(&self) -> u64 {
        self.bytes.min(self.capacity)
    }
}

/// The receives of one request.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Index of its first message.
    pub first: usize,
    /// How many messages.
    pub count: usize,
    /// The message of the group that is sent first; the others follow in a circle.
    pub turn: usize,
}

/// All that a connection will carry.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Messages in the order of their receives.
    pub messages: Vec<Message>,
    /// Their requests.
    pub groups: Vec<Group>,
    /// Each tag is sent by a rank of its own, whenever that likes.
    pub is_shared: bool,
    /// Requests that are open at once.
    pub depth: usize,
    /// Rest of the sending user between two requests, at the most.
    pub rest: Nanos,
    /// The same for the receiving user.
    pub receive_rest: Nanos,
    /// Largest segment.
    pub segment_bytes: u32,
    /// The data are polled by a GPU.
    pub polled: bool,
}

impl Plan {
    /// The plan of a small world: two messages, one small, one in two segments.
    pub fn small() -> Self {
        let message = |number, bytes| Message {
            bytes,
            capacity: bytes,
            tag: 0,
            content: Content(number),
            may_be_eager: true,
        };
        let group = |first| Group {
            first,
            count: 1,
            turn: 0,
        };
        Self {
            messages: vec![message(1, 64), message(2, 128 << 10)],
            groups: vec![group(0), group(1)],
            is_shared: false,
            depth: 2,
            rest: 0,
            receive_rest: 0,
            segment_bytes: 64 << 10,
            polled: false,
        }
    }

    /// A plan of `count` equal messages, with rests of up to `rest` at the sender.
    pub fn steady(index: usize, count: usize, bytes: u64, rest: Nanos) -> Self {
        let message = |number: usize| Message {
            bytes,
            capacity: bytes,
            tag: 0,
            content: Content((index as u64) << 24 | (number as u64 + 1)),
            may_be_eager: false,
        };
        let group = |first| Group {
            first,
            count: 1,
            turn: 0,
        };
        Self {
            messages: (0..count).map(message).collect(),
            groups: (0..count).map(group).collect(),
            is_shared: false,
            depth: 4,
            rest,
            receive_rest: 0,
            segment_bytes: 1 << 20,
            polled: false,
        }
    }

    /// The plan of connection `index`, of `messages` or more.
    pub fn new(index: usize, messages: usize, random: &mut Random) -> Self {
        let grouped = random.percent(30);
        let large = random.pick(&[0, 5, 20, 40]);
        // Never, sometimes, always.
        let eager = random.pick(&[0, 50, 100]);
        let count = messages + random.index(64);
        let mut plan = Self {
            messages: Vec::with_capacity(count + 8),
            groups: Vec::with_capacity(count),
            is_shared: !grouped && random.percent(40),
            depth: random.between(1, 24) as usize,
            rest: random.pick(&[0, 20 * MICROSECOND, 200 * MICROSECOND, 2 * MILLISECOND]),
            receive_rest: random.pick(&[0, 20 * MICROSECOND, 200 * MICROSECOND, 2 * MILLISECOND]),
            segment_bytes: random.pick(&[64 << 10, 128 << 10, 16 << 20]),
            polled: random.percent(50),
        };
        while plan.messages.len() < count {
            let members = if grouped && random.percent(50) {
                random.between(2, 8)
            } else {
                1
            };
            let first = plan.messages.len();
            for member in 0..members {
                let bytes = size(large, random);
                let number = (plan.messages.len() + 1) as u64;
                let capacity = if random.percent(2) { bytes / 2 } else { bytes };
                let tag = if plan.is_shared {
                    random.below(SHARING)
                } else {
                    member
                };
                plan.messages.push(Message {
                    bytes,
                    capacity,
                    tag: tag as i32,
                    content: Content((index as u64) << 24 | number),
                    may_be_eager: random.percent(eager),
                });
            }
            let turn = random.index(members as usize);
            let count = members as usize;
            plan.groups.push(Group { first, count, turn });
        }
        plan
    }

    /// Messages by tag, in the order of their receives.
    pub fn ranks(&self) -> [VecDeque<usize>; RANKS] {
        let mut ranks: [VecDeque<usize>; RANKS] = Default::default();
        for (index, message) in self.messages.iter().enumerate() {
            ranks[message.tag as usize].push_back(index);
        }
        ranks
    }
}

fn size(large: u64, random: &mut Random) -> u64 {
    if random.percent(large) {
        return random.between(64 << 10, BYTES_MAX);
    }
    match random.below(8) {
        0 => 0,
        1 => random.between(1, 200),
        2..=5 => random.magnitude(8, 8 << 10),
        _ => random.magnitude(1 << 10, 64 << 10),
    }
}
