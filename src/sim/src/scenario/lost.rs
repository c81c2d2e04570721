//! One NIC of one host is lost under load.

use r2ccl_core::EndConfig;

use super::stage::{SHARED, SIDES, stage};
use super::{Figures, Scenario, Settings};
use crate::check::Violation;
use crate::fabric::Topology;
use crate::plan::Plan;
use crate::queue::{MICROSECOND, MILLISECOND, Nanos, SECOND};
use crate::world::World;

pub(super) const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "nic-lost-8x8",
        about: "8 hosts of 8 NICs, all to all; a NIC loses its link, its host hears of it: \
                connections move within 23 ms in the mean",
        play: |settings| nic_lost(settings, true),
    },
    Scenario {
        name: "nic-lost-8x8-silent",
        about: "the same with nobody told: connections move within 250 ms",
        play: |settings| nic_lost(settings, false),
    },
];

const HOSTS: usize = 8;
const NICS: usize = 8;
/// Mean of the told variant.
const TOLD_MAX: Nanos = 23 * MILLISECOND;
/// Worst of the silent variant.
const SILENT_MAX: Nanos = 250 * MILLISECOND;

/// Every host sends to every other, each message over all NICs.
fn all_to_all(settings: Settings) -> World {
    let mut world = stage(settings, (HOSTS, NICS), Topology::RailOnly);
    for from in 0..HOSTS {
        for to in (0..HOSTS).filter(|&to| to != from) {
            let index = world.connections.len();
            let plan = Plan::steady(index, 100, 512 << 10, 2 * MILLISECOND);
            world.line([from, to], &[SHARED; NICS], plan, EndConfig::default());
        }
    }
    world
}

/// In turn a NIC of each host and rail; each connection that uses it is a sample.
fn nic_lost(settings: Settings, is_told: bool) -> Result<Figures, Violation> {
    let (mut gaps, mut under_way) = (Vec::new(), u64::MAX);
    for rail in 0..NICS {
        let seed = settings.seed.wrapping_add(rail as u64);
        let mut world = all_to_all(Settings { seed, ..settings });
        world.pass(10 * MILLISECOND)?;
        let nic = world.fabric.nic(rail, rail);
        under_way = under_way.min(world.wait_for_load(nic)?);
        let event = world.queue.now();
        if is_told {
            let told = world.random.magnitude(10 * MICROSECOND, MILLISECOND);
            world.plug(nic, false, Some(told));
        } else {
            world.isolate(nic, true);
        }
        world.finish(5 * SECOND)?;
        gaps.extend(judge(&world, rail, event)?);
    }
    gaps.sort_unstable();
    let mean = gaps.iter().sum::<Nanos>() / gaps.len() as u64;
    let (median, p99) = (gaps[gaps.len() / 2], gaps[gaps.len() * 99 / 100]);
    let worst = gaps[gaps.len() - 1];
    let figures = format!(
        "{} affected connections, {under_way} bytes or more under way: back after {:.1} ms in \
         the mean, {:.1} median, {:.1} p99, {:.1} worst",
        gaps.len(),
        milliseconds(mean),
        milliseconds(median),
        milliseconds(p99),
        milliseconds(worst),
    );
    let is_met = if is_told {
        mean <= TOLD_MAX
    } else {
        worst <= SILENT_MAX
    };
    let world = all_to_all(settings);
    world.ensure(is_met, || figures.clone())?;
    Ok(vec![figures])
}

/// Connections that use the NIC have left it, and the others have not noticed.
fn judge(world: &World, rail: usize, event: Nanos) -> Result<Vec<Nanos>, Violation> {
    let nic = world.fabric.nic(rail, rail);
    let mut gaps = Vec::new();
    for index in 0..world.connections.len() {
        if world.uses(index, nic) {
            world.ensure(world.is_out(index, rail), || {
                format!("connection {index} still uses path {rail}")
            })?;
            for other in (0..NICS).filter(|&other| other != rail) {
                let is_left = SIDES
                    .iter()
                    .all(|&side| world.generation(index, side, other) == 0);
                world.ensure(is_left, || format!("connection {index} lost path {other}"))?;
            }
            gaps.push(world.gap(index, event));
        } else {
            world.ensure(world.is_untouched(index), || {
                format!("connection {index} has nothing to do with it, and lost a generation")
            })?;
        }
    }
    world.ensure(gaps.len() == 2 * (HOSTS - 1), || {
        format!("{} connections were affected", gaps.len())
    })?;
    Ok(gaps)
}

/// For people.
pub(super) fn milliseconds(time: Nanos) -> f64 {
    time as f64 / 1e6
}
