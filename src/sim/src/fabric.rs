//! NICs, switches and what is wrong with the ways between them.

use crate::queue::{MICROSECOND, Nanos};
use crate::random::Random;

/// A NIC of the world.
pub type NicId = usize;

/// How the fabric is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Every NIC reaches every other.
    FullMesh,
    /// A NIC reaches those of its own index only.
    RailOnly,
    /// NICs of even and of odd index cannot reach each other.
    TwoPlanes,
}

/// Bytes from which on a write counts as large for faults that only hit large packets.
pub const LARGE_BYTES: u64 = 2048;

/// One NIC.
#[derive(Clone, Debug)]
pub struct Nic {
    /// Host that it sits in.
    pub host: usize,
    /// Its index there.
    pub index: usize,
    /// Bytes in a microsecond.
    pub speed: u64,
    /// The same in health.
    pub usual_speed: u64,
    /// Its port has a link.
    pub up: bool,
    /// It is gone: nothing in, nothing out, no completions.
    pub dead: bool,
    /// Commands to it (change of state, drain) hang, while data flows on.
    pub hung: bool,
    /// Completions of arrivals and of sends are lost.
    pub eats_completions: bool,
    /// Its port has no address yet: no queue pair can be made.
    pub nameless: bool,
    /// Which address its port has: another one each time that it has moved.
    pub address: u32,
    /// Everything to and from it waits until then, as under a storm of pause frames.
    pub held_until: Nanos,
    /// Bytes of work requests that it has sent.
    pub sent: u64,
    /// Until when its transmitter is taken.
    busy_until: Nanos,
}

/// What is wrong with one direction between two NICs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Nothing passes.
    pub cut: bool,
    /// Nothing of [`LARGE_BYTES`] or more passes.
    pub large_lost: bool,
    /// Acknowledgements are lost.
    pub acks_lost: bool,
    /// Packets lost in a million.
    pub loss_ppm: u32,
    /// Additional time that every packet takes.
    pub delay: Nanos,
}

/// All NICs and ways.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// NICs by id.
    pub nics: Vec<Nic>,
    /// How they are wired.
    pub topology: Topology,
    ways: Vec<Way>,
    latency: Nanos,
    jitter: Nanos,
    /// Longest time that a packet may be stuck in the fabric; below the quarantine by assumption.
    stuck_ppm: u32,
}

/// Longest time that a packet is stuck: well below the quarantine of 2 s.
const STUCK_MAX: Nanos = 1_500_000_000;
/// Longest time that a packet is late for all reasons together.
const LATE_MAX: Nanos = 1_900_000_000;

impl Fabric {
    /// `hosts` hosts of `nics` NICs each, in health. Speeds are equal or differ by host.
    pub fn new(hosts: usize, nics: usize, topology: Topology, random: &mut Random) -> Self {
        let mixed = random.percent(25);
        let base = random.pick(&[1_250, 12_500, 50_000]);
        let mut list = Vec::with_capacity(hosts * nics);
        for host in 0..hosts {
            for index in 0..nics {
                let slower = mixed && random.percent(30);
                let speed = if slower { base / 4 } else { base };
                list.push(Nic {
                    host,
                    index,
                    speed,
                    usual_speed: speed,
                    up: true,
                    dead: false,
                    hung: false,
                    eats_completions: false,
                    nameless: false,
                    address: 0,
                    held_until: 0,
                    sent: 0,
                    busy_until: 0,
                });
            }
        }
        Self {
            ways: vec![Way::default(); list.len() * list.len()],
            nics: list,
            topology,
            latency: random.between(2, 20) * MICROSECOND,
            jitter: random.magnitude(100, 20 * MICROSECOND),
            stuck_ppm: 0,
        }
    }

    /// The same with all NICs alike, of 10 Gb/s, and little else left to chance.
    pub fn even(hosts: usize, nics: usize, topology: Topology, random: &mut Random) -> Self {
        let mut fabric = Self::new(hosts, nics, topology, random);
        for nic in &mut fabric.nics {
            (nic.speed, nic.usual_speed) = (1_250, 1_250);
        }
        (fabric.latency, fabric.jitter) = (5 * MICROSECOND, 2 * MICROSECOND);
        fabric
    }

    /// NIC `index` of `host`.
    pub fn nic(&self, host: usize, index: usize) -> NicId {
        let per_host = self.nics.iter().filter(|nic| nic.host == 0).count();
        host * per_host + index
    }

    /// Whether the wiring has a way between two NICs.
    pub fn is_wired(&self, from: NicId, to: NicId) -> bool {
        let (from, to) = (self.nics[from].index, self.nics[to].index);
        match self.topology {
            Topology::FullMesh => true,
            Topology::RailOnly => from == to,
            Topology::TwoPlanes => from % 2 == to % 2,
        }
    }

    /// One direction between two NICs.
    pub fn way(&mut self, from: NicId, to: NicId) -> &mut Way {
        let count = self.nics.len();
        &mut self.ways[from * count + to]
    }

    /// Lets some packets get stuck in a buffer of the fabric and come late.
    pub fn set_stuck(&mut self, ppm: u32) {
        self.stuck_ppm = ppm;
    }

    /// Whether a NIC takes part at all.
    pub fn is_on(&self, nic: NicId) -> bool {
        self.nics[nic].up && !self.nics[nic].dead
    }

    /// Whether small packets can pass one way, as far as NICs and wiring go.
    pub fn passes(&self, from: NicId, to: NicId) -> bool {
        let way = self.ways[from * self.nics.len() + to];
        self.is_on(from) && self.is_on(to) && self.is_wired(from, to) && !way.cut
    }

    /// Takes the transmitter of `nic` for `bytes`; the time when they have left.
    pub fn transmit(&mut self, nic: NicId, bytes: u64, now: Nanos) -> Nanos {
        let nic = &mut self.nics[nic];
        nic.sent += bytes;
        let start = nic.busy_until.max(now);
        nic.busy_until = start + (bytes + 64) * MICROSECOND / nic.speed.max(1);
        nic.busy_until
    }

    /// How long a packet takes, or `None` when it is lost on the way.
    pub fn travel(
        &self,
        (from, to): (NicId, NicId),
        bytes: u64,
        now: Nanos,
        random: &mut Random,
    ) -> Option<Nanos> {
        if !self.passes(from, to) {
            return None;
        }
        let way = self.ways[from * self.nics.len() + to];
        let lost = (way.large_lost && bytes >= LARGE_BYTES) || random.ppm(way.loss_ppm);
        if lost {
            return None;
        }
        let stuck = if random.ppm(self.stuck_ppm) {
            random.magnitude(MICROSECOND, STUCK_MAX)
        } else {
            0
        };
        let held_until = self.nics[from].held_until.max(self.nics[to].held_until);
        let held = held_until.saturating_sub(now);
        let late = (way.delay + stuck).min(LATE_MAX);
        Some(self.latency + random.below(self.jitter + 1) + late + held)
    }

    /// Like [`Fabric::travel`] for an acknowledgement.
    pub fn travel_back(
        &self,
        (from, to): (NicId, NicId),
        now: Nanos,
        random: &mut Random,
    ) -> Option<Nanos> {
        let way = self.ways[from * self.nics.len() + to];
        if way.acks_lost {
            return None;
        }
        self.travel((from, to), 0, now, random)
    }

    /// Everything is repaired at once.
    pub fn heal(&mut self) {
        self.ways.fill(Way::default());
        self.stuck_ppm = 0;
        for nic in &mut self.nics {
            (nic.up, nic.dead, nic.hung) = (true, false, false);
            (nic.eats_completions, nic.speed) = (false, nic.usual_speed);
        }
    }
}
