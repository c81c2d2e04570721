//! The one source of chance of a world.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Draws of one world; equal seeds give equal draws.
#[derive(Clone, Debug)]
pub struct Random {
    state: Pcg64Mcg,
}

impl Random {
    /// The draws of `seed`. `stream` keeps the choices of different parts of a world apart, so
    /// that one more draw in one part does not change the others.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mixed = seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self {
            state: Pcg64Mcg::seed_from_u64(mixed),
        }
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // The bias is below 2^-32 for the small bounds in use.
        ((u128::from(self.state.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index of a list of `len` entries.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// A number from `low` to `high` whose magnitude is what is drawn: as many between 1 and 10 as
    /// between 10 and 100.
    pub fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let low = low.max(1);
        let doublings = (high / low).max(1).ilog2() + 1;
        let floor = low << self.below(u64::from(doublings));
        self.between(floor, floor * 2).clamp(low, high)
    }

    /// True in `percent` of all draws.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True in `parts` of a million draws.
    pub fn ppm(&mut self, parts: u32) -> bool {
        parts > 0 && self.below(1_000_000) < u64::from(parts)
    }

    /// One of the entries of a list that is not empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.index(list.len())]
    }
}
