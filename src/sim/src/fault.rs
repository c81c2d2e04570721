//! The swarm of faults: which, when, for how long.

use crate::queue::{MICROSECOND, MILLISECOND, Nanos, SECOND};
use crate::random::Random;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A port loses its link.
    LinkDown,
    /// Nothing leaves a NIC, all arrives.
    OneWay,
    /// Nothing passes between two NICs, and nobody is told.
    PairBlackHole,
    /// Nothing leaves one queue pair.
    QueuePairBlackHole,
    /// Large packets of a NIC are lost.
    LargeLoss,
    /// A NIC reports no completions.
    CompletionsLost,
    /// Data land, but their acknowledgements are lost.
    AcksLost,
    /// Packets are stuck in the fabric and come late.
    Stuck,
    /// Commands to a NIC hang.
    FenceHangs,
    /// Commands to all NICs of two hosts hang.
    FenceHangsAtBoth,
    /// A device dies with all that it had to report.
    DeviceDead,
    /// A NIC reports an error of its own on one queue pair.
    OwnError,
    /// Control frames are lost, doubled, late and out of order.
    ControlChaos,
    /// The control connection of two hosts is down.
    ControlDown,
    /// A NIC is slow and late.
    Slow,
    /// A port goes down and up again and again.
    Flapping,
    /// A receiver has no receives.
    NoReceives,
    /// A process stands still.
    Paused,
    /// A process dies.
    Killed,
    /// All ports of a host go down.
    AllPathsDown,
    /// A user aborts or gives a buffer back: memory is deregistered with requests open.
    Abort,
    /// A switch dies with all NICs of one index.
    SwitchLoss,
    /// Packets are lost here and there.
    RandomLoss,
    /// Both ends of a path fail at once.
    BothEnds,
    /// Packets between two NICs come very late, and commands to their target hang: writes land
    /// when their generation is over. What the target says may be late as well.
    LateWrites,
    /// Packets between two NICs come very late, and their queue pair may be gone when they come.
    LatePackets,
    /// The speed of a NIC changes.
    Speed,
    /// A connection is made now, over what can be connected.
    Connect,
    /// A process ends in order, without a goodbye.
    Exit,
    /// A receiver closes: it says how many messages it has.
    Goodbye,
    /// An end is told to keep off a path. No fault: [`drains`] draws it.
    Drain,
}

/// All kinds.
pub const KINDS: [Kind; 31] = [
    Kind::LinkDown,
    Kind::OneWay,
    Kind::PairBlackHole,
    Kind::QueuePairBlackHole,
    Kind::LargeLoss,
    Kind::CompletionsLost,
    Kind::AcksLost,
    Kind::Stuck,
    Kind::FenceHangs,
    Kind::FenceHangsAtBoth,
    Kind::DeviceDead,
    Kind::OwnError,
    Kind::ControlChaos,
    Kind::ControlDown,
    Kind::Slow,
    Kind::Flapping,
    Kind::NoReceives,
    Kind::Paused,
    Kind::Killed,
    Kind::AllPathsDown,
    Kind::Abort,
    Kind::SwitchLoss,
    Kind::RandomLoss,
    Kind::BothEnds,
    Kind::LateWrites,
    Kind::LatePackets,
    Kind::Speed,
    Kind::Connect,
    Kind::Exit,
    Kind::Goodbye,
    Kind::Drain,
];

const _: () = assert!(KINDS[KINDS.len() - 1] as usize == KINDS.len() - 1);

/// Those of the swarm.
const SWARM: &[Kind] = KINDS.split_at(Kind::Drain as usize).0;

impl Kind {
    /// Whether connections of the process may end in an error because of it.
    pub fn is_fatal(self) -> bool {
        matches!(
            self,
            Self::Killed | Self::Abort | Self::Exit | Self::Goodbye
        )
    }

    /// Whether it is over as soon as it has struck.
    pub fn is_once(self) -> bool {
        self.is_fatal() || self == Self::Connect
    }
}

/// By how much writes come late, of the second number of a victim.
pub fn lateness(number: u64) -> Nanos {
    100 * MILLISECOND + number % SECOND
}

/// How long writes are late: at least until both ends have given their path up. Some commands hang
/// until the first writes have landed, some until longer than the quarantine.
fn lasts_late(number: u64, random: &mut Random) -> Nanos {
    match random.below(3) {
        0 => lateness(number) + random.magnitude(100 * MICROSECOND, 10 * MILLISECOND),
        1 => 2200 * MILLISECOND + random.below(SECOND),
        _ => lasts(random).max(400 * MILLISECOND),
    }
}

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At a time.
    At(Nanos),
    /// Shortly after a connection has received so many messages.
    Delivered(usize, usize, Nanos),
    /// Shortly after a connection has sent so many messages ahead of their credit.
    Ahead(usize, u32, Nanos),
    /// Before the so many-th event.
    Event(u64),
    /// Shortly after the so many-th generation was given up anywhere.
    Recovery(u32, Nanos),
}

/// One fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// When.
    pub when: When,
    /// How long, unless it is for good.
    pub lasts: Nanos,
    /// Numbers from which the victim is chosen when it strikes.
    pub victim: (u64, u64),
}

/// Latest time at which a fault that waits for time strikes.
const STRIKES_MAX: Nanos = 200 * MILLISECOND;

/// Latest time after a message went ahead of its credit at which such a fault strikes.
const AHEAD_MAX: Nanos = 200 * MICROSECOND;
/// Three to ten faults of a few kinds, for `connections` of `messages` each.
pub fn draw(connections: usize, random: &mut Random) -> Vec<Fault> {
    let kinds = random.between(2, 6);
    let mut swarm: Vec<Kind> = (0..kinds).map(|_| random.pick(SWARM)).collect();
    if random.percent(14) {
        swarm.truncate(random.index(2));
        swarm.push(Kind::LateWrites);
    }
    if random.percent(75) {
        swarm.retain(|kind| !kind.is_fatal());
    }
    if random.percent(8) {
        swarm.push(random.pick(&[Kind::Exit, Kind::Goodbye]));
    }
    if swarm.is_empty() {
        swarm.push(Kind::LinkDown);
    }
    let count = random.between(3, 10);
    (0..count)
        .map(|_| {
            let kind = random.pick(&swarm);
            let when = when(kind, connections, random);
            let mut victim = (random.below(1 << 32), random.below(1 << 32));
            if let When::Ahead(of, ..) | When::Delivered(of, ..) = when {
                victim.0 = of_connection(victim.0, of, connections);
            }
            let lasts = match kind {
                Kind::LateWrites => lasts_late(victim.1, random),
                _ => lasts(random),
            };
            Fault {
                kind,
                when,
                lasts,
                victim,
            }
        })
        .collect()
}

/// Orders to keep off a path, in some worlds, for `connections`. Some find that the other end
/// cannot be told.
pub fn drains(connections: usize, random: &mut Random) -> Vec<Fault> {
    let mut drawn = Vec::new();
    if !random.percent(15) {
        return drawn;
    }
    for _ in 0..random.between(1, 6) {
        let order = Fault {
            kind: Kind::Drain,
            when: when(Kind::Drain, connections, random),
            lasts: lasts(random),
            victim: (random.below(1 << 32), random.below(1 << 32)),
        };
        if random.percent(25) {
            drawn.push(Fault {
                kind: Kind::ControlDown,
                lasts: lasts(random),
                victim: (order.victim.0 >> 8, 0),
                ..order
            });
        }
        drawn.push(order);
    }
    drawn
}

/// The number of a victim, changed so that it chooses connection `of`.
fn of_connection(number: u64, of: usize, connections: usize) -> u64 {
    let (high, count) = (number >> 8, connections as u64);
    (high - high % count + of as u64) << 8 | (number & 0xff)
}

/// A fault of a small world: before event `at`, for 5 ms.
pub fn scripted((at, kind, victim): (u64, Kind, u64)) -> Fault {
    let lasts = 5 * MILLISECOND;
    Fault {
        kind,
        when: When::Event(at),
        lasts,
        victim: (victim, victim),
    }
}

fn when(kind: Kind, connections: usize, random: &mut Random) -> When {
    if kind == Kind::LateWrites {
        // Mostly while there is something to be late, and at once, so that it is.
        return match random.below(20) {
            0..=8 => When::Ahead(random.index(connections), random.below(40) as u32, 0),
            9..=17 => When::Delivered(random.index(connections), random.index(200), 0),
            _ => When::Recovery(
                random.below(6) as u32,
                random.magnitude(1, 20 * MILLISECOND),
            ),
        };
    }
    let soon = random.magnitude(1, MILLISECOND);
    match random.below(10) {
        0..=1 => When::At(random.magnitude(MICROSECOND, STRIKES_MAX)),
        2..=4 => When::Delivered(random.index(connections), random.index(200), soon),
        5..=6 => {
            // At once: before it has left the NIC.
            let soon = if random.percent(50) {
                0
            } else {
                random.magnitude(1, AHEAD_MAX)
            };
            When::Ahead(random.index(connections), random.below(40) as u32, soon)
        }
        _ => When::Recovery(
            random.below(6) as u32,
            random.magnitude(1, 20 * MILLISECOND),
        ),
    }
}

fn lasts(random: &mut Random) -> Nanos {
    match random.below(8) {
        0..=4 => random.magnitude(10 * MICROSECOND, 300 * MILLISECOND),
        5..=6 => random.magnitude(MILLISECOND, 4 * SECOND),
        // For good: until the world heals everything.
        _ => Nanos::MAX,
    }
}
