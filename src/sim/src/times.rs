//! What the rules about times ask of the paths of a sending end: back-off, knock, hold-down, ramp.

use r2ccl_core::limits::PATHS_MAX;
use r2ccl_core::{EndConfig, Health, HealthSnapshot};

use crate::queue::{MILLISECOND, Nanos};

/// What a time may differ by that is measured at the edge of an end.
const SLACK: Nanos = MILLISECOND;
/// Steps in which a path that came back reaches its full weight.
const RAMP_STEPS: u64 = 8;

/// What one path has been through.
#[derive(Clone, Copy, Debug, Default)]
struct PathTimes {
    /// Since when it is down and could be tried again.
    free: Option<Nanos>,
    /// When somebody said last that it may work again.
    knocked: Option<Nanos>,
    /// When it came back into service last.
    returned: Option<Nanos>,
    /// It was in service before.
    has_served: bool,
}

/// What all paths of an end have been through.
#[derive(Clone, Debug, Default)]
pub struct Times {
    paths: [PathTimes; PATHS_MAX],
}

impl Times {
    /// Somebody says that a path may work again.
    pub fn knock(&mut self, path: usize, now: Nanos) {
        self.paths[path].knocked = Some(now);
    }

    /// These paths are in service from the beginning.
    pub fn begin(&mut self, paths: impl IntoIterator<Item = bool>) {
        for (times, is_served) in self.paths.iter_mut().zip(paths) {
            times.has_served = is_served;
        }
    }

    /// Whether a path was ever in service.
    pub fn has_served(&self, path: usize) -> bool {
        self.paths[path].has_served
    }

    /// Compares a path with what it was; an error names the rule that was broken in between.
    /// `is_prompt`: the end was called whenever it had asked for it.
    pub fn look(
        &mut self,
        (path, now): (usize, Nanos),
        (old, new): (&HealthSnapshot, &HealthSnapshot),
        config: &EndConfig,
        is_prompt: bool,
    ) -> Result<(), &'static str> {
        let times = &mut self.paths[path];
        let result = times.back_off((old, new), now, config, is_prompt);
        let result = result.and(times.hold_down((old, new), now, config));
        let is_down = new.health == Health::Down;
        times.free = times.free.filter(|_| is_down && new.since == old.since);
        if is_down && new.is_settled {
            times.free.get_or_insert(now);
        }
        if old.health == Health::Probation && new.health.is_in_service() && times.has_served {
            times.returned = Some(now);
        }
        times.has_served |= old.health.is_in_service() || new.health.is_in_service();
        result
    }

    /// PROTOCOL R58: a path that came back takes little at first, where others can take the rest.
    pub fn ramp(
        &self,
        paths: &[Option<HealthSnapshot>; PATHS_MAX],
        now: Nanos,
        config: &EndConfig,
    ) -> Result<(), &'static str> {
        let lasted = |path: usize| {
            let is_up = paths[path].is_some_and(|state| state.health.is_in_service());
            let returned = self.paths[path].returned;
            is_up.then(|| returned.map_or(Nanos::MAX, |at| now - at))
        };
        let can_take = |path: usize| {
            let is_drained = paths[path].is_none_or(|state| state.is_drained);
            !is_drained && lasted(path).is_some_and(|it| it > config.ramp_ns + SLACK)
        };
        let is_any_full = (0..PATHS_MAX).any(can_take);
        let first = (config.ramp_ns / RAMP_STEPS).saturating_sub(SLACK);
        for path in (0..PATHS_MAX).filter(|_| is_any_full) {
            let is_first = lasted(path).is_some_and(|it| it < first);
            let weight = paths[path].map_or((0, 0), |state| state.weight);
            // With the capacities of these worlds it never has half of all in its first eighth.
            if is_first && 2 * weight.0 > weight.1 {
                return Err("a path that came back has its full weight at once");
            }
        }
        Ok(())
    }
}

impl PathTimes {
    /// PROTOCOL R57: a path is tried after its back-off, not before and not much later.
    fn back_off(
        &self,
        (old, new): (&HealthSnapshot, &HealthSnapshot),
        now: Nanos,
        config: &EndConfig,
        is_prompt: bool,
    ) -> Result<(), &'static str> {
        if old.health != Health::Down {
            return Ok(());
        }
        let since = old.since.nanoseconds();
        // At the very instant at which the path ended, nobody knows which came first.
        let may_be_knocked = self.knocked.is_some_and(|at| at >= since);
        let knocked = self.knocked.filter(|&at| at > since);
        let is_tried = new.health == Health::Rebuild;
        let is_waiting = new.health == Health::Down && new.since == old.since;
        if is_waiting && knocked == Some(now) && new.attempts > 0 {
            return Err("a knock does not begin the back-off anew");
        }
        let end = if is_tried {
            new.since.nanoseconds()
        } else {
            now
        };
        let pause = match old.attempts.checked_sub(1) {
            _ if may_be_knocked => config.back_off_ns,
            Some(doublings) => {
                let pause = config.back_off_ns.saturating_mul(1 << doublings.min(32));
                pause.min(config.back_off_max_ns)
            }
            None => config.back_off_ns / 4,
        };
        if is_tried && !may_be_knocked && old.attempts > 0 && end - since < pause / 4 * 3 {
            return Err("a path was tried again before its back-off was over");
        }
        let from = self.free.map(|at| at.max(since).max(knocked.unwrap_or(0)));
        let is_late = from.is_some_and(|from| end > from + pause + SLACK);
        if is_prompt && (is_tried || is_waiting) && is_late {
            return Err("a path was not tried again when its back-off was over");
        }
        Ok(())
    }

    /// PROTOCOL R58: how long the next hold-down is.
    fn hold_down(
        &self,
        (old, new): (&HealthSnapshot, &HealthSnapshot),
        now: Nanos,
        config: &EndConfig,
    ) -> Result<(), &'static str> {
        let has_ended = old.health.is_in_service() && new.health == Health::Down;
        let Some(returned) = self.returned else {
            return Ok(());
        };
        if !has_ended || old.generation != new.generation {
            return Ok(());
        }
        let lasted = now - returned;
        let mut limits = [config.flap_ns, config.stable_ns].into_iter();
        if limits.any(|limit| lasted.abs_diff(limit) < SLACK) {
            return Ok(());
        }
        let expected = if lasted >= config.stable_ns {
            config.hold_down_ns
        } else if lasted < config.flap_ns {
            (2 * old.hold_down_ns).min(config.hold_down_max_ns)
        } else {
            old.hold_down_ns
        };
        if new.hold_down_ns == expected {
            Ok(())
        } else {
            Err("a path that ended has another hold-down than it should")
        }
    }
}
