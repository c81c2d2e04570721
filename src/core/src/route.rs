//! Weights over the paths of a connection.

use crate::error::ProtocolError;
use crate::ids::PathId;
use crate::limits::{SHARES_MAX, WEIGHT_MAX};

/// One path of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightedPath {
    /// The path.
    pub path: PathId,
    /// Its part of the bytes, relative to the other weights; above 0.
    pub weight: u32,
}

/// Which paths take which part of a message; swapped as a whole. Heaviest path first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    entries: [WeightedPath; SHARES_MAX],
    len: u8,
}

impl Route {
    /// Everything over one path.
    pub const fn single(path: PathId) -> Self {
        Self {
            entries: [WeightedPath { path, weight: 1 }; SHARES_MAX],
            len: 1,
        }
    }

    /// A route by weights. Paths of weight 0 are left out; equal weights keep their order.
    pub fn weighted(weights: &[(PathId, u32)]) -> Result<Self, ProtocolError> {
        let mut route = Self::single(PathId::PRIMARY);
        let mut len = 0;
        for &(path, weight) in weights {
            let known = route.entries[..len].iter().any(|entry| entry.path == path);
            if known || weight > WEIGHT_MAX {
                return Err(ProtocolError::BadRoute);
            }
            if weight == 0 {
                continue;
            }
            if len == SHARES_MAX {
                return Err(ProtocolError::BadRoute);
            }
            let place = route.entries[..len].partition_point(|entry| entry.weight >= weight);
            route.entries.copy_within(place..len, place + 1);
            route.entries[place] = WeightedPath { path, weight };
            len += 1;
        }
        if len == 0 {
            return Err(ProtocolError::BadRoute);
        }
        route.len = len as u8;
        Ok(route)
    }

    /// The paths with their weights, heaviest first; never empty.
    pub fn entries(&self) -> &[WeightedPath] {
        &self.entries[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{Route, WeightedPath};
    use crate::error::ProtocolError;
    use crate::ids::PathId;
    use crate::limits::WEIGHT_MAX;
    use std::vec::Vec;

    fn path(index: u8) -> PathId {
        PathId::new(index).expect("in range")
    }

    #[test]
    fn heaviest_first_and_stable() {
        let weights = [
            (path(0), 1),
            (path(1), 3),
            (path(2), 0),
            (path(3), 3),
            (path(4), 2),
        ];
        let route = Route::weighted(&weights).expect("valid");
        let order: Vec<_> = route
            .entries()
            .iter()
            .map(|entry| entry.path.index())
            .collect();
        assert_eq!(order, [1, 3, 4, 0]);
    }

    #[test]
    fn a_single_path_is_a_route() {
        let only = WeightedPath {
            path: path(3),
            weight: 1,
        };
        assert_eq!(Route::single(path(3)).entries(), [only]);
    }

    #[test]
    fn bad_routes_are_refused() {
        let nine: Vec<_> = (0..9).map(|index| (path(index), 1)).collect();
        let table: [&[(PathId, u32)]; 5] = [
            &[],
            &[(path(0), 0)],
            &[(path(0), 1), (path(0), 1)],
            &[(path(0), WEIGHT_MAX + 1)],
            &nine,
        ];
        for weights in table {
            assert_eq!(
                Route::weighted(weights),
                Err(ProtocolError::BadRoute),
                "{weights:?}"
            );
        }
    }
}
