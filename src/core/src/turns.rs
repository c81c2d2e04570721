//! Messages that are too small to be spread over all paths of a route take turns on them.

use crate::error::ProtocolError;
use crate::limits::SHARES_MAX;
use crate::planted::{Bug, planted};
use crate::route::{Route, WeightedPath};
use crate::segment::{Cut, SegmentSize};

/// Bytes by weight are counted in parts of this size.
const PART_BITS: u32 = 20;

/// How much each path of the present route has had for its weight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turns {
    /// By place in the route, beyond the one that has had least.
    given: [u64; SHARES_MAX],
}

impl Turns {
    /// Cuts a message over `route`; what has had least comes first and is left out last.
    pub(crate) fn cut(
        &mut self,
        bytes: u32,
        route: &Route,
        size: SegmentSize,
    ) -> Result<Cut, ProtocolError> {
        let entries = route.entries();
        if entries.len() == 1 || planted(Bug::HeaviestTakesAll) {
            return Cut::new(bytes, entries, size);
        }
        let mut order: [usize; SHARES_MAX] = core::array::from_fn(|place| place);
        let order = &mut order[..entries.len()];
        order.sort_unstable_by_key(|&place| (self.given[place], place));
        let mut sorted = [entries[0]; SHARES_MAX];
        for (entry, &place) in sorted.iter_mut().zip(order.iter()) {
            *entry = entries[place];
        }
        let cut = Cut::new(bytes, &sorted[..entries.len()], size)?;
        self.count(&cut, entries);
        Ok(cut)
    }

    fn count(&mut self, cut: &Cut, entries: &[WeightedPath]) {
        let given = &mut self.given[..entries.len()];
        for share in cut.shares() {
            let place = entries.iter().position(|entry| entry.path == share.path);
            if let Some(place) = place {
                let parts = u64::from(share.bytes.max(1)) << PART_BITS;
                given[place] += parts / u64::from(entries[place].weight);
            }
        }
        let least = given.iter().copied().min().unwrap_or(0);
        given.iter_mut().for_each(|parts| *parts -= least);
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;
    use crate::ids::PathId;
    use crate::limits::STRIPE_BYTES_MIN;
    use crate::route::Route;
    use crate::segment::SegmentSize;

    /// Bytes of each path after `messages` of `bytes`, over paths of these weights.
    fn spread<const N: usize>(weights: [u32; N], bytes: u32, messages: u32) -> [u64; N] {
        let path = |index: usize| PathId::new(index as u8).expect("in range");
        let given: [_; N] = core::array::from_fn(|index| (path(index), weights[index]));
        let route = Route::weighted(&given).expect("valid");
        let (mut turns, mut sums) = (Turns::default(), [0; N]);
        for _ in 0..messages {
            let cut = turns.cut(bytes, &route, SegmentSize::MAX).expect("valid");
            for share in cut.shares() {
                sums[share.path.index()] += u64::from(share.bytes);
            }
        }
        sums
    }

    /// PROTOCOL R1: whatever the size of messages, in the long run bytes follow the weights.
    #[test]
    fn small_messages_take_turns() {
        for bytes in [
            8,
            4096,
            STRIPE_BYTES_MIN,
            2 * STRIPE_BYTES_MIN,
            5 * STRIPE_BYTES_MIN,
        ] {
            for weights in [[1, 1, 1], [4, 1, 1], [3, 2, 1]] {
                let messages = 600;
                let sums = spread(weights, bytes, messages);
                let total = u64::from(bytes) * u64::from(messages);
                let all: u32 = weights.iter().sum();
                for (sum, weight) in sums.iter().zip(weights) {
                    let fair = total * u64::from(weight) / u64::from(all);
                    let off = sum.abs_diff(fair);
                    assert!(
                        off <= 3 * u64::from(bytes),
                        "{bytes} over {weights:?}: {sums:?}"
                    );
                }
            }
        }
    }
}
