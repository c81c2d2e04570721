//! Reports from the field about ports that go and come. The numbers are ours; each scenario names
//! the public report that it answers.

use r2ccl_core::EndConfig;

use super::lost::milliseconds;
use super::outage::{BACK_MAX, UNTOLD_MAX};
use super::stage::{BACKUP, LATER, SHARED, SIDES, pair, stage};
use super::{Figures, Scenario, Settings};
use crate::check::Violation;
use crate::fabric::Topology;
use crate::plan::Plan;
use crate::queue::{MILLISECOND, Nanos, SECOND};
use crate::world::World;

macro_rules! field {
    ($number:literal, $about:literal, $play:expr) => {
        Scenario {
            name: concat!("field-report-", $number),
            about: $about,
            play: $play,
        }
    };
}
pub(super) use field;

pub(super) const SCENARIOS: [Scenario; 11] = [
    field!(
        "01",
        "a repaired port carries traffic again, whoever hears of it when",
        report_01
    ),
    field!(
        "02",
        "a warm standby stays idle in health, ten times over",
        report_02
    ),
    field!(
        "04",
        "the backup of a NIC is spread over the others of its host",
        report_04
    ),
    field!(
        "05",
        "a link that is up and not usable gets no data, only its paths are out",
        report_05
    ),
    field!(
        "12",
        "the port has no address for a while after its link event, and then another one",
        report_12
    ),
    field!(
        "20",
        "a port that toggles during set-up joins when it is stable",
        report_20
    ),
    field!(
        "21",
        "a NIC that is down at the start joins when it comes up",
        report_21
    ),
    field!("26", "a stream is moved at any offset", report_26),
    field!(
        "27",
        "flaps of 200 ms, 2 s and 20 s are a dip, not an end",
        report_27
    ),
    field!(
        "28",
        "bandwidth after the repair is that of before, one-sided faults too",
        report_28
    ),
    field!(
        "35",
        "a cable is out for a minute while nothing is sent",
        report_35
    ),
];

/// A told port event moves connections within this time at the worst.
pub(super) const MOVED_MAX: Nanos = 23 * MILLISECOND;
/// A silent fault does.
pub(super) const SILENT_MAX: Nanos = 250 * MILLISECOND;
const TOLD: Option<Nanos> = Some(MILLISECOND);
/// A path that came back has its full weight after this long.
const RAMP: Nanos = SECOND + 100 * MILLISECOND;

/// The same connection with other messages than those of the stream.
pub(super) fn steady(count: usize) -> Plan {
    Plan::steady(0, count, 256 << 10, MILLISECOND)
}

/// Waits for load on a NIC, takes its link away, and lets everything move: the gap.
pub(super) fn unplug(
    world: &mut World,
    nic: usize,
    told: Option<Nanos>,
) -> Result<Nanos, Violation> {
    world.wait_for_load(nic)?;
    let event = world.queue.now();
    world.plug(nic, false, told);
    world.pass(300 * MILLISECOND)?;
    let gap = world.gap(0, event);
    let most = if told.is_some() {
        MOVED_MAX
    } else {
        SILENT_MAX
    };
    world.ensure(gap <= most, || format!("moved after {gap} ns"))?;
    Ok(gap)
}

/// <https://github.com/NVIDIA/nccl/issues/2157>
fn report_01(settings: Settings) -> Result<Figures, Violation> {
    let mut longest = [0; 2];
    for outage in [1, 15, 20, 30, 120, 600] {
        for skew in [Some(0), Some(10), Some(30), None] {
            let mut world = pair(settings, &[SHARED; 2], steady(4000));
            world.pass(5 * MILLISECOND)?;
            let nic = world.connections[0].paths[0].receiver;
            unplug(&mut world, nic, TOLD)?;
            let until = world.queue.now() + outage * SECOND;
            world.calm(until + 3 * UNTOLD_MAX)?;
            world.advance(until)?;
            let told = skew.map(|skew| skew * SECOND + MILLISECOND);
            world.plug(nic, true, told);
            let limit = told.map_or(UNTOLD_MAX, |told| told + BACK_MAX);
            let back = world.wait(limit, "back", |world| world.serves(0, 0))?;
            let kind = usize::from(skew != Some(0));
            longest[kind] = longest[kind].max(back);
            world.advance(until + 3 * UNTOLD_MAX)?;
            let sent = world.sent(0, 50 * MILLISECOND)?;
            world.ensure(sent[0].abs_diff(sent[1]) < sent[1] / 4, || {
                format!("paths do not share again: {sent:?}")
            })?;
        }
    }
    Ok(vec![format!(
        "back after {:.0} ms at the latest when told at once, {:.0} otherwise",
        milliseconds(longest[0]),
        milliseconds(longest[1])
    )])
}

/// <https://github.com/NVIDIA/nccl/issues/2310>
fn report_02(settings: Settings) -> Result<Figures, Violation> {
    let mut world = pair(settings, &[SHARED, BACKUP], steady(20_000));
    let (home, mut worst, mut backs) = (world.connections[0].paths[0].sender, 0, Vec::new());
    for _ in 0..10 {
        let sent = world.sent(0, 20 * MILLISECOND)?;
        world.ensure(sent[0] > 0 && sent[1] == 0, || {
            format!("the standby sends in health: {sent:?}")
        })?;
        worst = unplug(&mut world, home, TOLD)?.max(worst);
        let sent = world.sent(0, 20 * MILLISECOND)?;
        world.ensure(sent[0] == 0 && sent[1] > 0, || {
            format!("the standby does not take over: {sent:?}")
        })?;
        let until = world.queue.now() + 10 * SECOND;
        world.calm(until + 110 * SECOND)?;
        world.advance(until)?;
        world.plug(home, true, TOLD);
        backs.push(world.wait(BACK_MAX, "back", |world| world.serves(0, 0))?);
        world.advance(until + 110 * SECOND)?;
    }
    let longest = backs.iter().copied().max().unwrap_or(0);
    Ok(vec![format!(
        "ten cycles: moved within {:.1} ms, back within {:.0} ms",
        milliseconds(worst),
        milliseconds(longest)
    )])
}

/// <https://github.com/NVIDIA/nccl/issues/2192>
fn report_04(settings: Settings) -> Result<Figures, Violation> {
    let (mut lenders_min, mut worst) = (usize::MAX, 0);
    for home in 0..8 {
        let mut world = stage(settings, (2, 8), Topology::RailOnly);
        let pairs: Vec<_> = (0..8)
            .map(|step| (home + step) % 8)
            .map(|nic| (nic, nic))
            .collect();
        let mut roles = [BACKUP; 8];
        roles[0] = SHARED;
        let plan = Plan::steady(0, 2000, 512 << 10, MILLISECOND);
        world.line_over([0, 1], &pairs, &roles, (plan, EndConfig::default()));
        let sent = world.sent(0, 20 * MILLISECOND)?;
        let users = sent.iter().filter(|bytes| **bytes > 0).count();
        world.ensure(users == 1 && sent[home] > 0, || {
            format!("in health: {sent:?}")
        })?;
        worst = unplug(&mut world, home, TOLD)?.max(worst);
        let sent = world.sent(0, 20 * MILLISECOND)?;
        let lenders = sent.iter().filter(|bytes| **bytes > 0).count();
        world.ensure(lenders >= 2 && sent[home] == 0, || {
            format!("lenders: {sent:?}")
        })?;
        lenders_min = lenders_min.min(lenders);
    }
    Ok(vec![format!(
        "{lenders_min} lenders or more, moved within {:.1} ms",
        milliseconds(worst)
    )])
}

/// Every NIC of one host to every NIC of the other.
fn matrix(settings: Settings) -> World {
    let mut world = stage(settings, (2, 4), Topology::FullMesh);
    let pairs: Vec<_> = (0..16).map(|path| (path / 4, path % 4)).collect();
    let plan = Plan::steady(0, 4000, 512 << 10, MILLISECOND);
    world.line_over([0, 1], &pairs, &[SHARED; 16], (plan, EndConfig::default()));
    world
}

/// <https://github.com/kvcache-ai/Mooncake/issues/2960>
fn report_05(settings: Settings) -> Result<Figures, Violation> {
    let mut worst = 0;
    for side in SIDES {
        let mut world = matrix(settings);
        world.pass(5 * MILLISECOND)?;
        let nic = world.connections[0].paths[5].at(side);
        let mut of_nic = Vec::new();
        for path in 0..16 {
            if world.connections[0].paths[path].at(side) == nic {
                of_nic.push(path);
            }
        }
        worst = unplug(&mut world, nic, TOLD)?.max(worst);
        let judge = |world: &World, what: &str| {
            for path in 0..16 {
                let is_out = world.is_out(0, path);
                let is_kept = SIDES
                    .iter()
                    .all(|&side| world.generation(0, side, path) == 0);
                let is_right = if of_nic.contains(&path) {
                    is_out
                } else {
                    is_kept
                };
                world.ensure(is_right, || format!("{what}: path {path} is wrong"))?;
            }
            Ok(())
        };
        judge(&world, "without a link")?;
        // The link is up, and the switch does not forward yet.
        world.isolate(nic, true);
        world.plug(nic, true, TOLD);
        for _ in 0..30 {
            world.pass(100 * MILLISECOND)?;
            judge(&world, "not usable")?;
        }
        world.isolate(nic, false);
        world.calm(world.queue.now() + 100 * SECOND)?;
        let is_back = |world: &World| of_nic.iter().all(|&path| world.serves(0, path));
        world.wait(6 * SECOND, "back", is_back)?;
    }
    Ok(vec![format!("moved within {:.1} ms", milliseconds(worst))])
}

/// <https://github.com/NVIDIA/nccl/pull/2183>
fn report_12(settings: Settings) -> Result<Figures, Violation> {
    let mut longest = 0;
    for late in [1, 2, 5, 10] {
        let mut world = pair(settings, &[SHARED; 2], steady(4000));
        world.pass(5 * MILLISECOND)?;
        let nic = world.connections[0].paths[0].receiver;
        unplug(&mut world, nic, TOLD)?;
        let until = world.queue.now() + 600 * SECOND;
        world.calm(until + 300 * SECOND)?;
        world.advance(until)?;
        world.fabric.nics[nic].nameless = true;
        world.fabric.nics[nic].address += 1;
        world.plug(nic, true, TOLD);
        world.pass(late * SECOND)?;
        world.ensure(world.is_out(0, 0), || "back without an address".into())?;
        world.fabric.nics[nic].nameless = false;
        // Attempts follow each other as closely as they did before: no longer than it has taken.
        let limit = late * SECOND + BACK_MAX;
        let back = world.wait(limit, "back", |world| world.serves(0, 0))?;
        longest = longest.max(back);
    }
    Ok(vec![format!(
        "back {:.0} ms at the latest after the address",
        milliseconds(longest)
    )])
}

/// <https://github.com/ROCm/rccl/issues/1423>
fn report_20(settings: Settings) -> Result<Figures, Violation> {
    let mut world = pair(settings, &[SHARED, SHARED, SHARED, LATER], steady(4000));
    let nic = world.connections[0].paths[3].receiver;
    world.fabric.nics[nic].up = false;
    world.pass(100 * MILLISECOND)?;
    world.ensure(world.connections[0].received > 20, || {
        "three paths wait for one".into()
    })?;
    world.calm(500 * SECOND)?;
    for step in 0..30 {
        world.plug(nic, step % 2 == 0, TOLD);
        world.pass(500 * MILLISECOND)?;
        world.ensure(world.is_out(0, 3), || "joined while it toggles".into())?;
    }
    world.plug(nic, true, TOLD);
    let joined = world.wait(BACK_MAX, "joined", |world| world.serves(0, 3))?;
    world.pass(RAMP)?;
    Ok(vec![format!(
        "joined {:.0} ms after the last event",
        milliseconds(joined)
    )])
}

/// <https://github.com/uccl-project/uccl/issues/120>
fn report_21(settings: Settings) -> Result<Figures, Violation> {
    let mut roles = [SHARED; 8];
    roles[7] = LATER;
    let mut world = pair(
        settings,
        &roles,
        Plan::steady(0, 4000, 512 << 10, MILLISECOND),
    );
    let nic = world.connections[0].paths[7].sender;
    world.fabric.nics[nic].up = false;
    let sent = world.sent(0, 100 * MILLISECOND)?;
    world.ensure(
        sent[7] == 0 && sent[..7].iter().all(|bytes| *bytes > 0),
        || format!("at the start: {sent:?}"),
    )?;
    world.calm(30 * SECOND)?;
    world.advance(20 * SECOND)?;
    world.plug(nic, true, TOLD);
    let joined = world.wait(BACK_MAX, "joined", |world| world.serves(0, 7))?;
    world.advance(30 * SECOND)?;
    let sent = world.sent(0, 100 * MILLISECOND)?;
    world.ensure(sent[7] > sent[0] / 2, || format!("in the end: {sent:?}"))?;
    Ok(vec![format!(
        "joined {:.0} ms after its event",
        milliseconds(joined)
    )])
}

/// <https://github.com/NVIDIA/nccl/issues/998>
fn report_26(settings: Settings) -> Result<Figures, Violation> {
    let (mut worst, worlds) = ([0; 2], 200);
    for seed in settings.seed..settings.seed + worlds {
        let plan = Plan::steady(0, 600, 512 << 10, 0);
        let mut world = pair(Settings { seed, ..settings }, &[SHARED, BACKUP], plan);
        let offset = world.random.below(100 * MILLISECOND);
        world.pass(offset)?;
        let is_told = seed % 2 == 0;
        let nic = world.connections[0].paths[0].at(SIDES[seed as usize / 2 % 2]);
        let gap = unplug(&mut world, nic, TOLD.filter(|_| is_told))?;
        worst[usize::from(!is_told)] = worst[usize::from(!is_told)].max(gap);
        world.finish(SECOND)?;
    }
    Ok(vec![format!(
        "{worlds} offsets: moved within {:.1} ms when told, {:.1} ms otherwise",
        milliseconds(worst[0]),
        milliseconds(worst[1])
    )])
}

/// <https://github.com/NVIDIA/nccl/issues/1557>
fn report_27(settings: Settings) -> Result<Figures, Violation> {
    let mut worst = 0;
    for lasts in [200, 2000, 20_000] {
        let mut world = pair(settings, &[SHARED; 2], steady(6000));
        world.pass(5 * MILLISECOND)?;
        let nic = world.connections[0].paths[0].receiver;
        world.wait_for_load(nic)?;
        let event = world.queue.now();
        world.plug(nic, false, TOLD);
        world.pass(lasts * MILLISECOND)?;
        world.plug(nic, true, TOLD);
        world.pass(200 * MILLISECOND)?;
        worst = world.gap(0, event).max(worst);
        world.wait(BACK_MAX, "back", |world| world.serves(0, 0))?;
    }
    let world = pair(settings, &[SHARED; 2], steady(1));
    let text = format!("a dip of {:.1} ms at the worst", milliseconds(worst));
    world.ensure(worst <= MOVED_MAX, || text.clone())?;
    Ok(vec![text])
}

/// <https://github.com/NVIDIA/nccl/issues/2044>
fn report_28(settings: Settings) -> Result<Figures, Violation> {
    let mut least = 100;
    for is_one_sided in [false, true] {
        let plan = Plan::steady(0, 8000, 512 << 10, 0);
        let mut world = pair(settings, &[SHARED; 2], plan);
        world.pass(5 * MILLISECOND)?;
        let before: u64 = world.sent(0, 100 * MILLISECOND)?.iter().sum();
        let nics = world.connections[0].paths[0];
        world.wait_for_load(nics.receiver)?;
        if is_one_sided {
            world.fabric.way(nics.sender, nics.receiver).cut = true;
        } else {
            world.plug(nics.receiver, false, TOLD);
        }
        world.wait(SECOND, "left", |world| world.is_out(0, 0))?;
        let until = world.queue.now() + 30 * SECOND;
        world.calm(until + 2 * UNTOLD_MAX)?;
        world.advance(until)?;
        world.fabric.way(nics.sender, nics.receiver).cut = false;
        let limit = if is_one_sided { UNTOLD_MAX } else { BACK_MAX };
        if !is_one_sided {
            world.plug(nics.receiver, true, TOLD);
        }
        world.wait(limit, "back", |world| world.serves(0, 0))?;
        world.pass(RAMP)?;
        world.rest(0, world.queue.now());
        world.pass(5 * MILLISECOND)?;
        let after: u64 = world.sent(0, 100 * MILLISECOND)?.iter().sum();
        let percent = after * 100 / before.max(1);
        world.ensure(before > 0 && percent >= 98, || {
            format!("{percent} % of before")
        })?;
        least = least.min(percent);
    }
    Ok(vec![format!(
        "{least} % of the bandwidth of before, or more"
    )])
}

/// <https://github.com/ofiwg/libfabric/issues/7803>
fn report_35(settings: Settings) -> Result<Figures, Violation> {
    let mut longest = 0;
    for told in [TOLD, None] {
        for paths in 1..=2 {
            let mut world = pair(settings, &[SHARED; 2][..paths], steady(400));
            let until = 70 * SECOND;
            world.pass(20 * MILLISECOND)?;
            world.calm(until)?;
            world.pass(SECOND)?;
            let received = world.connections[0].received;
            let nics: Vec<usize> = world.connections[0]
                .paths
                .iter()
                .map(|p| p.receiver)
                .collect();
            for (up, at) in [(false, 65 * SECOND), (true, until - MILLISECOND)] {
                for &nic in &nics {
                    world.plug(nic, up, told);
                }
                world.advance(at)?;
            }
            world.ensure(world.connections[0].received == received, || {
                "not idle".into()
            })?;
            let first = world.wait(2 * SECOND, "the first message", |world| {
                world.connections[0].received > received
            })?;
            world.ensure(first <= SECOND, || {
                format!("the first message took {first} ns")
            })?;
            longest = longest.max(first);
        }
    }
    Ok(vec![format!(
        "the first message takes {:.1} ms at the most",
        milliseconds(longest)
    )])
}
