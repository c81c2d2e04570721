//! A port is away for two days and comes back.

use r2ccl_core::EndConfig;

use super::lost::milliseconds;
use super::stage::{SHARED, pair, stage};
use super::{Figures, Scenario, Settings};
use crate::check::Violation;
use crate::fabric::{NicId, Topology};
use crate::plan::Plan;
use crate::queue::{MILLISECOND, Nanos, SECOND};
use crate::world::{Counts, World};

pub(super) const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "outage-48h",
        about: "one NIC of two without a link for 48 hours: few wake-ups meanwhile, and back in \
                service 2 s and the hold-down after its link event",
        play: |settings| one_nic(settings, true),
    },
    Scenario {
        name: "outage-48h-no-event",
        about: "the same with nobody told that the link is back: the longest back-off and the \
                hold-down",
        play: |settings| one_nic(settings, false),
    },
    Scenario {
        name: "outage-48h-all-paths",
        about: "both NICs, with messages under way and no limit to the wait: they arrive after 48 \
                hours",
        play: all_paths,
    },
];

pub(super) const HOUR: Nanos = 3600 * SECOND;
const OUTAGE: Nanos = 48 * HOUR;
const HOLD_DOWN: Nanos = SECOND;
/// In service again after the link event.
pub(super) const BACK_MAX: Nanos = 2 * SECOND + HOLD_DOWN;
/// The same without an event: the longest back-off instead.
pub(super) const UNTOLD_MAX: Nanos = 60 * SECOND + BACK_MAX;
/// Attempts of an hour at the longest back-off, which jitter shortens by a quarter.
const ATTEMPTS_HOUR: u64 = 80;
/// Wake-ups and frames of one attempt, both ends together.
const EACH_MAX: u64 = 40;
/// When the host hears of its port.
const TOLD: Nanos = MILLISECOND;

fn since(counts: Counts, before: Counts) -> Counts {
    Counts {
        timeouts: counts.timeouts - before.timeouts,
        frames: counts.frames - before.frames,
        knocks: counts.knocks - before.knocks,
    }
}

/// Two days pass; what the ends of `paths` paths did meanwhile.
fn pass_two_days(world: &mut World, paths: u64, until: Nanos) -> Result<String, Violation> {
    let (before, began) = (world.counts, world.queue.now());
    world.advance(until)?;
    let counts = since(world.counts, before);
    let hours = (world.queue.now() - began).div_ceil(HOUR);
    let most = hours * paths * ATTEMPTS_HOUR * EACH_MAX;
    let text = format!(
        "{hours} h: {} timers, {} frames, {} knocks",
        counts.timeouts, counts.frames, counts.knocks
    );
    world.ensure(counts.timeouts <= most && counts.frames <= most, || {
        format!("too much for {most}: {text}")
    })?;
    world.ensure(counts.timeouts > hours && counts.frames > hours, || {
        format!("nobody tried: {text}")
    })?;
    world.ensure(counts.knocks == 0, || {
        format!("nothing to knock for: {text}")
    })?;
    Ok(text)
}

fn one_nic(settings: Settings, is_told: bool) -> Result<Figures, Violation> {
    let plan = Plan::steady(0, 2000, 256 << 10, MILLISECOND);
    let mut world = pair(settings, &[SHARED; 2], plan);
    world.pass(10 * MILLISECOND)?;
    let nic: NicId = world.connections[0].paths[0].receiver;
    let bytes = world.wait_for_load(nic)?;
    let until = world.queue.now() + OUTAGE;
    world.plug(nic, false, is_told.then_some(TOLD));
    world.wait(SECOND, "out of service", |world| world.is_out(0, 0))?;
    world.calm(until + 2 * UNTOLD_MAX)?;
    world.pass(60 * SECOND)?;
    let quiet = pass_two_days(&mut world, 1, until)?;
    world.plug(nic, true, is_told.then_some(TOLD));
    let limit = if is_told { TOLD + BACK_MAX } else { UNTOLD_MAX };
    let back = world.wait(limit, "back in service", |world| world.serves(0, 0))?;
    world.advance(until + 2 * UNTOLD_MAX)?;
    let sent = world.sent(0, 100 * MILLISECOND)?;
    world.ensure(
        sent[0] > 0 && sent[0].abs_diff(sent[1]) < sent[1] / 4,
        || format!("paths do not share again: {sent:?}"),
    )?;
    world.finish(60 * SECOND)?;
    Ok(vec![format!(
        "{bytes} bytes were under way; {quiet}; back after {:.0} ms",
        milliseconds(back)
    )])
}

fn all_paths(settings: Settings) -> Result<Figures, Violation> {
    let mut world = stage(settings, (2, 2), Topology::RailOnly);
    let config = EndConfig {
        give_up_ns: u64::MAX,
        ..EndConfig::default()
    };
    let plan = Plan::steady(0, 500, 256 << 10, MILLISECOND);
    world.line([0, 1], &[SHARED; 2], plan, config);
    world.pass(10 * MILLISECOND)?;
    let nics = [0, 1].map(|path| world.connections[0].paths[path].receiver);
    let bytes = world.wait_for_load(nics[0])?;
    let until = world.queue.now() + OUTAGE;
    for nic in nics {
        world.plug(nic, false, Some(TOLD));
    }
    world.rest(0, until);
    let received = world.connections[0].received;
    let is_out = |world: &World| world.is_out(0, 0) && world.is_out(0, 1);
    world.wait(60 * SECOND, "out of service", is_out)?;
    world.pass(60 * SECOND)?;
    let quiet = pass_two_days(&mut world, 2, until - MILLISECOND)?;
    world.ensure(world.connections[0].received <= received + 4, || {
        "messages came without a path".into()
    })?;
    for nic in nics {
        world.plug(nic, true, Some(TOLD));
    }
    let back = world.wait(TOLD + BACK_MAX, "back in service", |world| {
        world.connections[0].is_back()
    })?;
    world.finish(10 * SECOND)?;
    Ok(vec![format!(
        "{bytes} bytes were under way; {quiet}; both paths back after {:.0} ms",
        milliseconds(back)
    )])
}
