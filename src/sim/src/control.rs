//! The ways of control frames between hosts: lossy, doubling, late and out of order when a world
//! wants them so.

use crate::queue::{MICROSECOND, MILLISECOND, Nanos};
use crate::random::Random;

/// What is wrong with the control connection of two hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlWay {
    /// Nothing passes.
    pub down: bool,
    /// Frames lost in a million.
    pub loss_ppm: u32,
    /// Frames that come twice in a million.
    pub double_ppm: u32,
    /// Additional time of a frame, drawn anew for each: the source of disorder.
    pub delay_max: Nanos,
}

/// All control connections.
#[derive(Clone, Debug)]
pub struct Control {
    hosts: usize,
    ways: Vec<ControlWay>,
}

impl Control {
    /// Connections in health.
    pub fn new(hosts: usize) -> Self {
        Self {
            hosts,
            ways: vec![ControlWay::default(); hosts * hosts],
        }
    }

    /// One direction between two hosts.
    pub fn way(&mut self, from: usize, to: usize) -> &mut ControlWay {
        &mut self.ways[from * self.hosts + to]
    }

    /// When copies of a frame arrive, counted from now: none, one or two.
    pub fn travel(&self, from: usize, to: usize, random: &mut Random) -> [Option<Nanos>; 2] {
        let way = self.ways[from * self.hosts + to];
        if way.down || random.ppm(way.loss_ppm) {
            return [None, None];
        }
        let mut copy = || {
            let base = random.between(30, 120) * MICROSECOND;
            base + random.below(way.delay_max + 1)
        };
        let first = Some(copy());
        let second = copy() + MILLISECOND;
        [first, random.ppm(way.double_ppm).then_some(second)]
    }

    /// Everything is repaired.
    pub fn heal(&mut self) {
        self.ways.fill(ControlWay::default());
    }
}
