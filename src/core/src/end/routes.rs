//! Which path takes what, by health.

use super::path::PathState;
use super::values::{EndConfig, Routing};
use super::{End, Half};
use crate::ids::PathId;
use crate::limits::{PATHS_MAX, SHARES_MAX, WEIGHT_MAX};
use crate::planted::{Bug, planted};
use crate::route::Route;
use crate::time::Time;

/// Steps in which a path that came back reaches its full weight.
const RAMP_STEPS: u64 = 8;
/// Shares and capacities beyond this are cut to it, so that products stay inside 64 bits.
const PART_MAX: u64 = 1 << 16;

/// How far up the ramp a path is, from 1 to [`RAMP_STEPS`]; 0 when it takes nothing.
fn step(state: &PathState, now: Time, config: &EndConfig) -> u64 {
    let Some(served) = state.served.filter(|_| state.health.is_in_service()) else {
        return 0;
    };
    if !state.is_return || config.ramp_ns == 0 || planted(Bug::NoRamp) {
        return RAMP_STEPS;
    }
    let lasted = now.since(served).saturating_mul(RAMP_STEPS) / config.ramp_ns;
    (lasted + 1).min(RAMP_STEPS)
}

/// Weights of all paths. Each keeps its share as far as it is up; what is lost of the shares goes
/// to paths in service by their capacity.
fn weights(paths: &[Option<PathState>], now: Time, config: &EndConfig) -> [u64; PATHS_MAX] {
    let serving = || {
        paths
            .iter()
            .flatten()
            .filter(|state| state.health.is_in_service())
    };
    let has_undrained = serving().any(|state| !state.is_drained());
    let last_drained = serving().map(|state| state.drained).max();
    let is_last = |state: &PathState| {
        !has_undrained && Some(state.drained) == last_drained && !planted(Bug::LastDrainedStops)
    };
    let known = |index: usize| paths.get(index)?.as_ref();
    let steps: [u64; PATHS_MAX] = core::array::from_fn(|index| {
        let is_usable = |state: &&PathState| {
            !state.is_drained() || is_last(state) || planted(Bug::DrainedCarries)
        };
        let usable = known(index).filter(is_usable);
        usable.map_or(0, |state| step(state, now, config))
    });
    let part = |part: u32| u64::from(part).min(PART_MAX);
    let share = |index: usize| known(index).map_or(0, |state| part(state.share));
    let capacity = |index: usize| known(index).map_or(0, |state| part(state.capacity));
    if config.routing == Routing::Static {
        return core::array::from_fn(share);
    }
    let lost: u64 = (0..PATHS_MAX)
        .map(|index| share(index) * (RAMP_STEPS - steps[index]))
        .sum();
    let first = (0..PATHS_MAX).find(|&index| steps[index] == RAMP_STEPS && capacity(index) > 0);
    let spare: [u64; PATHS_MAX] = core::array::from_fn(|index| match config.routing {
        Routing::HotRepair if Some(index) == first => 1,
        Routing::HotRepair => 0,
        _ => capacity(index) * steps[index],
    });
    let total: u64 = spare.iter().sum();
    if total == 0 {
        return core::array::from_fn(|index| share(index).max(1) * steps[index]);
    }
    core::array::from_fn(|index| share(index) * steps[index] * total + lost * spare[index])
}

impl<H: Half> End<H> {
    /// Computes the route anew and notes whether any path is left.
    pub(super) fn reroute(&mut self, now: Time) {
        self.reroute_at = self.ramp_end(now);
        if self.has_service() {
            self.lost_since = None;
        } else {
            self.lost_since = self.lost_since.or(Some(now));
        }
        let route = self.route(now);
        if let Some(route) = route.filter(|route| Some(*route) != self.route) {
            self.route = Some(route);
            self.half.use_route(route);
        }
    }

    /// The heaviest paths; `None` while there are none, and then the old route stays.
    fn route(&self, now: Time) -> Option<Route> {
        let mut weights = weights(&self.paths[..self.paths_len], now, &self.config);
        let is_known = |index: usize| {
            PathId::new(index as u8).is_some_and(|id| self.half.generation(id).is_some())
        };
        for (index, weight) in weights.iter_mut().enumerate() {
            if !is_known(index) {
                *weight = 0;
            }
        }
        let largest = weights
            .iter()
            .copied()
            .max()
            .filter(|&largest| largest > 0)?;
        let scale = largest.div_ceil(u64::from(WEIGHT_MAX));
        let mut entries = [(PathId::PRIMARY, 0); SHARES_MAX];
        for entry in &mut entries {
            let (index, &weight) = weights
                .iter()
                .enumerate()
                .rev()
                .max_by_key(|(_, weight)| **weight)?;
            if weight == 0 {
                break;
            }
            // At most WEIGHT_MAX; a path in service never vanishes by rounding.
            *entry = (PathId::new(index as u8)?, (weight / scale).max(1) as u32);
            weights[index] = 0;
        }
        let len = entries.iter().take_while(|(_, weight)| *weight > 0).count();
        Route::weighted(&entries[..len]).ok()
    }

    /// The weight of a path in the present route, and the sum of all.
    pub(super) fn weight(&self, id: PathId) -> (u32, u32) {
        let entries = self.route.as_ref().map_or(&[][..], Route::entries);
        let own = entries.iter().find(|entry| entry.path == id);
        let all = entries.iter().map(|entry| entry.weight).sum();
        (own.map_or(0, |entry| entry.weight), all)
    }

    /// Whether all that this end sends goes over this path.
    pub fn is_alone(&self, path: PathId) -> bool {
        let entries = self.route.as_ref().map(Route::entries);
        matches!(entries, Some([only]) if only.path == path)
    }

    /// Whether a path is on its way to its full weight, so that the route changes with time.
    fn ramp_end(&self, now: Time) -> Option<Time> {
        let config = &self.config;
        let ramps = self.states().filter_map(|state| {
            let step = step(state, now, config);
            let served = state.served.filter(|_| step > 0 && step < RAMP_STEPS)?;
            Some(served.plus((config.ramp_ns * step).div_ceil(RAMP_STEPS)))
        });
        ramps.min()
    }

    /// Takes a path out of the routes of both ends, or puts it back, while it stays in service. A
    /// path that is the last one goes on carrying everything; those that were drained before it
    /// stay out.
    pub fn drain(&mut self, now: Time, path: PathId, is_drained: bool) {
        let now = self.clock.advance(now);
        let repeat_ns = self.config.repeat_ns;
        if let Some(state) = self.state(path) {
            if (state.drains & 1 == 1) != is_drained {
                state.drained = now;
                state.drains = state.drains.wrapping_add(1);
                state.drain_frame.start(now, repeat_ns);
            }
        }
        self.reroute(now);
    }

    /// Whether either end was told to keep off a path.
    pub fn is_drained(&self, path: PathId) -> bool {
        self.known(path).is_some_and(|state| state.is_drained())
    }

    /// The other end has been told to, or not to any more; false when that is no news. It says so
    /// until it has an answer, which may have been lost.
    pub(super) fn on_drain(&mut self, now: Time, path: PathId, serial: u32) -> bool {
        let is_late =
            |state: &PathState| serial < state.peer_drains && !planted(Bug::OldDrainCounts);
        let Some(state) = self.state(path).filter(|state| !is_late(state)) else {
            return false;
        };
        state.answer_drain = Some(serial);
        if serial == state.peer_drains {
            return false;
        }
        (state.peer_drains, state.drained) = (serial, now);
        self.reroute(now);
        true
    }

    /// The other end has heard the last word of this one and has nothing under way on the path if
    /// that was to drain it.
    pub(super) fn on_drained(&mut self, path: PathId, serial: u32) -> bool {
        let Some(state) = self.state(path).filter(|state| serial == state.drains) else {
            return false;
        };
        state.drain_frame.stop();
        core::mem::replace(&mut state.drain_answered, serial) != serial
    }

    /// Whether this end neither uses a path nor waits for what it sent there, in a generation that
    /// lives or in one that is over and may still reach the receiver.
    pub(super) fn is_quiet(&self, path: PathId) -> bool {
        let is_over = H::IS_SENDER && !self.half.is_settled(path);
        self.weight(path).0 == 0 && !self.half.work(path).is_waiting && !is_over
    }

    /// Whether this end was told to keep off the path and neither end uses it any more.
    pub fn is_out(&self, path: PathId) -> bool {
        self.known(path)
            .is_some_and(|state| state.drains & 1 == 1 && state.drain_answered == state.drains)
            && self.is_quiet(path)
    }

    /// Whether an end waits for a path to be out of use, which shows only when somebody looks.
    pub fn is_leaving(&self) -> bool {
        self.ids().any(|id| {
            self.known(id).is_some_and(|state| {
                state.answer_drain.is_some() || (state.drains & 1 == 1 && !self.is_out(id))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{RAMP_STEPS, weights};
    use crate::end::path::PathState;
    use crate::end::{EndConfig, Routing};
    use crate::health::Health;
    use crate::ids::Generation;
    use crate::limits::PATHS_MAX;
    use crate::time::Time;

    /// Parts of the whole in percent, for paths of (share, capacity, in service).
    fn percent<const N: usize>(routing: Routing, given: [(u32, u32, bool); N]) -> [u64; N] {
        let config = EndConfig {
            routing,
            ..EndConfig::default()
        };
        let mut paths = [None; PATHS_MAX];
        for (entry, (share, capacity, is_up)) in paths.iter_mut().zip(given) {
            let parts = (share, capacity);
            let mut state = PathState::new(Time::ZERO, Generation(1), parts, &config);
            if !is_up {
                state.health = Health::Down;
            }
            *entry = Some(state);
        }
        let weights = weights(&paths, Time::ZERO, &config);
        let total: u64 = weights.iter().sum();
        core::array::from_fn(|index| weights[index] * 100 / total)
    }

    #[test]
    fn the_lost_share_goes_where_the_policy_says() {
        let (up, down) = (true, false);
        let healthy = [(1, 1, up), (0, 1, up), (0, 3, up)];
        let hurt = [(1, 1, down), (0, 1, up), (0, 3, up)];
        for routing in [Routing::Static, Routing::HotRepair, Routing::Balance] {
            assert_eq!(percent(routing, healthy), [100, 0, 0], "{routing:?}");
        }
        assert_eq!(percent(Routing::Static, hurt), [100, 0, 0]);
        assert_eq!(percent(Routing::HotRepair, hurt), [0, 100, 0]);
        assert_eq!(percent(Routing::Balance, hurt), [0, 25, 75]);
        let spread = [(1, 1, up), (1, 1, up), (2, 2, down)];
        assert_eq!(percent(Routing::Balance, spread), [50, 50, 0]);
        assert_eq!(percent(Routing::HotRepair, spread), [75, 25, 0]);
        // Nobody has spare capacity: whoever is up takes all the same.
        assert_eq!(
            percent(Routing::Balance, [(1, 0, down), (0, 0, up)]),
            [0, 100]
        );
    }

    /// A path that came back takes an eighth more with each eighth of the ramp.
    #[test]
    fn weight_ramps_up() {
        let config = EndConfig::default();
        let at = |eighths: u64| Time::from_nanoseconds(eighths * config.ramp_ns / RAMP_STEPS);
        let mut back = PathState::new(Time::ZERO, Generation(2), (1, 1), &config);
        back.is_return = true;
        let other = PathState::new(Time::ZERO, Generation(1), (0, 1), &config);
        let mut paths = [None; PATHS_MAX];
        (paths[0], paths[1]) = (Some(back), Some(other));
        let mut last = 0;
        for eighths in 0..8 {
            let weights = weights(&paths, at(eighths), &config);
            let percent = weights[0] * 100 / (weights[0] + weights[1]);
            assert!(percent > last, "{eighths}: {percent} after {last}");
            last = percent;
        }
        assert_eq!(last, 100);
    }
}
