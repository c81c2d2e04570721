//! Reports from the field about fabrics, devices and endings. The numbers are ours; each scenario
//! names the public report that it answers.

use r2ccl_core::EndConfig;

use super::field_ports::{MOVED_MAX, SILENT_MAX, field, steady, unplug};
use super::lost::milliseconds;
use super::outage::BACK_MAX;
use super::stage::{LATER, SHARED, SIDES, pair, stage};
use super::{Figures, Scenario, Settings};
use crate::check::Violation;
use crate::connection::Side;
use crate::fabric::Topology;
use crate::nic::Status;
use crate::plan::Plan;
use crate::queue::{MILLISECOND, Nanos, SECOND};
use crate::world::{EndId, World};

pub(super) const SCENARIOS: [Scenario; 9] = [
    field!(
        "06",
        "a device takes all completions with it, at any moment",
        report_06
    ),
    field!(
        "07",
        "queue pairs are never reset, and control frames get lost and reordered",
        report_07
    ),
    field!(
        "10",
        "two planes: the pairs across are tried for ever and hold up nothing",
        report_10
    ),
    field!(
        "11",
        "rails only: one is lost at either end, the others take over",
        report_11
    ),
    field!(
        "16",
        "no path is left: an error after the give-up time, not before",
        report_16
    ),
    field!(
        "17",
        "a device hangs in commands: the quarantine and 250 ms",
        report_17
    ),
    field!(
        "22",
        "a switch loses 0.1, 1 and 10 % of the packets",
        report_22
    ),
    field!(
        "25",
        "writes come late, after their path was given up: no byte is wrong",
        report_25
    ),
    field!(
        "32",
        "one of two rails reports an error: the other goes on",
        report_32
    ),
];

const TOLD: Option<Nanos> = Some(MILLISECOND);
/// Until nothing of a source that is silent can land any more.
const QUARANTINE: Nanos = 2 * SECOND;

/// <https://github.com/kvcache-ai/Mooncake/pull/2427>
fn report_06(settings: Settings) -> Result<Figures, Violation> {
    let (mut worst, mut most, worlds) = (0, 0, 200);
    for seed in settings.seed..settings.seed + worlds {
        let mut plan = Plan::steady(0, 2000, 16 << 10, 50_000);
        plan.depth = 1 + (seed % 24) as usize;
        let mut world = pair(Settings { seed, ..settings }, &[SHARED; 2], plan);
        let moment = world.random.below(20 * MILLISECOND);
        world.pass(moment)?;
        let nic = world.connections[0].paths[0].at(SIDES[seed as usize % 2]);
        world.wait_for_load(nic)?;
        most = most.max(world.in_flight(nic).1);
        let event = world.queue.now();
        world.kill_device(nic, MILLISECOND);
        world.finish(QUARANTINE + 2 * SECOND)?;
        worst = world.gap(0, event).max(worst);
        world.fabric.nics[nic].dead = false;
        world.plug(nic, true, TOLD);
        world.wait(2 * BACK_MAX, "back", |world| world.serves(0, 0))?;
    }
    let world = pair(settings, &[SHARED], steady(1));
    let text = format!(
        "{worlds} moments, up to {most} work requests under way: moved within {:.0} ms",
        milliseconds(worst)
    );
    world.ensure(worst <= QUARANTINE + SILENT_MAX, || text.clone())?;
    Ok(vec![text])
}

/// <https://github.com/ROCm/rocm-systems/pull/6145>
fn report_07(settings: Settings) -> Result<Figures, Violation> {
    let mut longest = 0;
    let mut world = pair(settings, &[SHARED; 2], steady(20_000));
    for (from, to) in [(0, 1), (1, 0)] {
        let way = world.control.way(from, to);
        (way.loss_ppm, way.double_ppm) = (300_000, 100_000);
        way.delay_max = 20 * MILLISECOND;
    }
    for cycle in 1..=5 {
        let nic = world.connections[0].paths[0].receiver;
        let old = SIDES.map(|side| world.newest_qp(end(side), 0));
        world.wait_for_load(nic)?;
        let event = world.queue.now();
        world.plug(nic, false, TOLD);
        world.wait(SECOND, "left", |world| world.is_out(0, 0))?;
        world.pass(300 * MILLISECOND)?;
        let gap = world.gap(0, event);
        world.ensure(gap <= SILENT_MAX, || format!("moved after {gap} ns"))?;
        longest = longest.max(gap);
        let until = world.queue.now() + 70 * SECOND;
        world.calm(until)?;
        world.plug(nic, true, TOLD);
        world.wait(2 * BACK_MAX, "back", |world| world.serves(0, 0))?;
        let new = SIDES.map(|side| world.newest_qp(end(side), 0));
        let is_new = old.iter().zip(new).all(|(old, new)| *old != new);
        world.ensure(is_new, || format!("cycle {cycle}: an old queue pair"))?;
        world.advance(until)?;
    }
    Ok(vec![format!(
        "five cycles: moved within {:.1} ms",
        milliseconds(longest)
    )])
}

fn end(side: Side) -> EndId {
    EndId {
        connection: 0,
        side,
    }
}

/// <https://github.com/NVIDIA/nccl/issues/1804>
fn report_10(settings: Settings) -> Result<Figures, Violation> {
    let mut worst = 0;
    for side in SIDES {
        let mut world = stage(settings, (2, 2), Topology::TwoPlanes);
        let pairs = [(0, 0), (1, 1), (0, 1), (1, 0)];
        let roles = [SHARED, SHARED, LATER, LATER];
        world.line_over([0, 1], &pairs, &roles, (steady(4000), EndConfig::default()));
        let sent = world.sent(0, 100 * MILLISECOND)?;
        world.ensure(sent.iter().all(|bytes| *bytes > 0), || {
            format!("both planes: {sent:?}")
        })?;
        let nic = world.connections[0].paths[0].at(side);
        worst = unplug(&mut world, nic, TOLD)?.max(worst);
        let until = world.queue.now() + 600 * SECOND;
        world.calm(until)?;
        let before = world.sum(|count| count.attempts);
        world.advance(until)?;
        let attempts = world.sum(|count| count.attempts) - before;
        // Three paths that do not work, at both ends, in ten minutes.
        world.ensure((30..200).contains(&attempts), || {
            format!("{attempts} attempts")
        })?;
        world.ensure(world.is_out(0, 2) && world.is_out(0, 3), || {
            "a pair across the planes serves".into()
        })?;
        let sent = world.sent(0, 100 * MILLISECOND)?;
        world.ensure(sent[1] > 0 && sent[0] == 0, || {
            format!("one plane: {sent:?}")
        })?;
    }
    Ok(vec![format!("moved within {:.1} ms", milliseconds(worst))])
}

/// <https://github.com/NVIDIA/nccl/issues/2013>
fn report_11(settings: Settings) -> Result<Figures, Violation> {
    let plan = Plan::steady(0, 4000, 512 << 10, MILLISECOND);
    let mut world = pair(settings, &[SHARED; 4], plan);
    world.pass(5 * MILLISECOND)?;
    let paths = world.connections[0].paths.clone();
    let first = unplug(&mut world, paths[2].sender, TOLD)?;
    let second = unplug(&mut world, paths[3].receiver, TOLD)?;
    let sent = world.sent(0, 100 * MILLISECOND)?;
    let is_right = sent[0] > 0 && sent[1] > 0 && sent[2] == 0 && sent[3] == 0;
    world.ensure(is_right, || format!("rails: {sent:?}"))?;
    Ok(vec![format!(
        "moved within {:.1} ms",
        milliseconds(first.max(second))
    )])
}

/// Both paths are lost under load; when the ends know.
fn lose_all(world: &mut World) -> Result<Nanos, Violation> {
    world.pass(5 * MILLISECOND)?;
    let paths = world.connections[0].paths.clone();
    world.wait_for_load(paths[0].receiver)?;
    for path in paths {
        world.plug(path.receiver, false, TOLD);
    }
    let is_out = |world: &World| world.is_out(0, 0) && world.is_out(0, 1);
    world.wait(60 * SECOND, "out of service", is_out)?;
    let lost = SIDES.map(|side| world.snapshot(0, side).lost_since);
    let first = lost.into_iter().flatten().min();
    Ok(first.map_or(0, |at| at.nanoseconds()))
}

/// <https://github.com/NVIDIA/nccl/issues/1434>
fn report_16(settings: Settings) -> Result<Figures, Violation> {
    let give_up = EndConfig::default().give_up_ns;
    let mut ended = 0;
    for repair in [Some(give_up - 5 * SECOND), Some(give_up + SECOND), None] {
        let mut world = pair(settings, &[SHARED; 2], steady(200));
        let lost = lose_all(&mut world)?;
        let must_fail = repair.is_none_or(|after| after > give_up);
        world.connections[0].is_excused = must_fail;
        let has_failed = |world: &World| {
            SIDES.map(|side| world.connections[0].ends[side as usize].failed.is_some())
        };
        if let Some(after) = repair {
            world.advance(lost + after)?;
            let is_right = has_failed(&world).contains(&true) == must_fail;
            world.ensure(is_right, || {
                format!("after {after} ns: {:?}", has_failed(&world))
            })?;
            for path in 0..2 {
                let nic = world.connections[0].paths[path].receiver;
                world.plug(nic, true, TOLD);
            }
        }
        if must_fail {
            world.wait(give_up + 10 * SECOND, "an error", |world| {
                has_failed(world) == [true; 2]
            })?;
            ended = world.queue.now() - lost;
        } else {
            world.finish(10 * SECOND)?;
        }
    }
    Ok(vec![format!(
        "an error {:.2} s after the last path was lost, and none if one is back before",
        ended as f64 / 1e9
    )])
}

/// <https://github.com/NVIDIA/nccl/issues/230>
fn report_17(settings: Settings) -> Result<Figures, Violation> {
    let mut worst = [0; 2];
    for seed in settings.seed..settings.seed + 32 {
        let mut world = pair(Settings { seed, ..settings }, &[SHARED; 2], steady(12_000));
        let moment = world.random.below(20 * MILLISECOND);
        world.pass(moment)?;
        let side = seed as usize % 2;
        let nic = world.connections[0].paths[0].at(SIDES[side]);
        world.wait_for_load(nic)?;
        let event = world.queue.now();
        world.fabric.nics[nic].hung = true;
        world.plug(nic, false, TOLD);
        world.pass(QUARANTINE + 2 * SECOND)?;
        worst[side] = world.gap(0, event).max(worst[side]);
        let received = world.connections[0].received;
        world.pass(20 * MILLISECOND)?;
        world.ensure(world.connections[0].received > received, || {
            "it hangs".into()
        })?;
        world.calm(world.queue.now() + 600 * SECOND)?;
        world.pass(60 * SECOND)?;
        world.fabric.nics[nic].hung = false;
        world.plug(nic, true, TOLD);
        world.wait(60 * SECOND + BACK_MAX, "back", |world| world.serves(0, 0))?;
    }
    let world = pair(settings, &[SHARED], steady(1));
    let text = format!(
        "moved within {:.1} ms where the source hangs, {:.1} where the target does",
        milliseconds(worst[0]),
        milliseconds(worst[1])
    );
    let is_met = worst[0] <= SILENT_MAX && worst[1] <= QUARANTINE + SILENT_MAX;
    world.ensure(is_met, || text.clone())?;
    Ok(vec![text])
}

/// <https://github.com/uccl-project/uccl/issues/117>
fn report_22(settings: Settings) -> Result<Figures, Violation> {
    let mut figures = Vec::new();
    for (ppm, paths) in [(1_000, 1), (10_000, 1), (100_000, 1), (10_000, 2)] {
        let plan = Plan::steady(0, 3000, 256 << 10, 40 * MILLISECOND);
        let mut world = pair(settings, &[SHARED; 2], plan);
        for path in 0..paths {
            let nics = world.connections[0].paths[path];
            world.fabric.way(nics.sender, nics.receiver).loss_ppm = ppm;
            world.fabric.way(nics.receiver, nics.sender).loss_ppm = ppm;
        }
        world.pass(60 * SECOND)?;
        world.finish(60 * SECOND)?;
        let (lost, evictions) = (world.nics.lost, world.sum(|count| count.evictions));
        let text = format!(
            "{} % on {paths} of 2 paths: {lost} packets lost, {evictions} evictions, {} queue \
             pairs made anew",
            ppm as f64 / 1e4,
            world.sum(|count| count.queue_pair_faults),
        );
        // One probe may be lost just when that of the other path is not.
        let most = if paths == 2 { 1 } else { 6 };
        world.ensure(lost > 0 && evictions <= most, || text.clone())?;
        figures.push(text);
    }
    Ok(figures)
}

/// <https://github.com/ydb-platform/ydb/pull/44707>
fn report_25(settings: Settings) -> Result<Figures, Violation> {
    let (mut late, worlds) = (0, 100);
    for seed in settings.seed..settings.seed + worlds {
        let mut world = pair(Settings { seed, ..settings }, &[SHARED; 2], steady(3000));
        let moment = world.random.below(20 * MILLISECOND);
        world.pass(moment)?;
        let nics = world.connections[0].paths[0];
        let delay = world.random.between(100 * MILLISECOND, 1500 * MILLISECOND);
        world.fabric.way(nics.sender, nics.receiver).delay = delay;
        world.fabric.nics[nics.receiver].hung = true;
        world.wait_for_load(nics.sender)?;
        let qp = world.newest_qp(end(Side::Receiver), 0);
        let landed = |world: &World| qp.map_or(0, |qp| world.nics.landed(qp));
        world.wait(SECOND, "left", |world| world.is_out(0, 0))?;
        let before = landed(&world);
        world.pass(QUARANTINE + SECOND)?;
        late += landed(&world) - before;
        world.fabric.way(nics.sender, nics.receiver).delay = 0;
        world.fabric.nics[nics.receiver].hung = false;
        world.finish(30 * SECOND)?;
    }
    let world = pair(settings, &[SHARED], steady(1));
    let text = format!("{worlds} moments: {late} writes came after their path was given up");
    world.ensure(late > worlds, || text.clone())?;
    Ok(vec![text])
}

/// <https://github.com/openucx/ucx/issues/7846>
fn report_32(settings: Settings) -> Result<Figures, Violation> {
    let mut worst = 0;
    for seed in settings.seed..settings.seed + 32 {
        let mut world = pair(Settings { seed, ..settings }, &[SHARED; 2], steady(1000));
        let moment = world.random.below(20 * MILLISECOND);
        world.pass(moment)?;
        let side = SIDES[seed as usize % 2];
        let nic = world.connections[0].paths[0].at(side);
        world.wait_for_load(nic)?;
        let event = world.queue.now();
        if let Some(qp) = world.newest_qp(end(side), 0) {
            world.nics.fail(qp, Status::RetryExceeded, event);
            world.wake_owner(qp);
        }
        world.wait(100 * MILLISECOND, "left", |world| world.is_out(0, 0))?;
        world.pass(100 * MILLISECOND)?;
        worst = world.gap(0, event).max(worst);
        let kept = SIDES.map(|side| world.generation(0, side, 1));
        world.ensure(kept == [0, 0], || "the other rail was left".into())?;
        world.wait(BACK_MAX, "back", |world| world.serves(0, 0))?;
    }
    let world = pair(settings, &[SHARED], steady(1));
    let text = format!("moved within {:.1} ms", milliseconds(worst));
    world.ensure(worst <= MOVED_MAX, || text.clone())?;
    Ok(vec![text])
}
