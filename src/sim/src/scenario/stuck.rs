//! One queue pair swallows what is posted on it, while everything else between its NICs works.

use super::lost::milliseconds;
use super::stage::{SHARED, SIDES, pair};
use super::{Figures, Scenario, Settings};
use crate::check::Violation;
use crate::connection::Side;
use crate::plan::Plan;
use crate::queue::{MILLISECOND, Nanos, SECOND};
use crate::world::{EndId, World};

pub(super) const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "one-queue-pair-stuck",
        about: "nothing leaves one queue pair of a sender: its messages arrive within 50 ms, and \
                it is made anew between the same NICs",
        play: one_queue_pair_stuck,
    },
    Scenario {
        name: "credit-black-hole",
        about: "a receiver's credits vanish, after it has waited for long: the sender has them \
                within 250 ms",
        play: credit_black_hole,
    },
];

/// Worst gap with one queue pair stuck.
const STUCK_MAX: Nanos = 50 * MILLISECOND;
/// Worst gap with credits lost.
const CREDIT_MAX: Nanos = 250 * MILLISECOND;
/// Worlds of each scenario, with faults at different moments.
const WORLDS: u64 = 64;

/// Largest and mean of some gaps, for people; an error if the largest is too large.
fn report(world: &World, gaps: &[Nanos], limit: Nanos) -> Result<Figures, Violation> {
    let worst = gaps.iter().copied().max().unwrap_or(0);
    let mean = gaps.iter().sum::<Nanos>() / gaps.len().max(1) as u64;
    let figures = format!(
        "{} worlds: back after {:.1} ms in the mean, {:.1} worst",
        gaps.len(),
        milliseconds(mean),
        milliseconds(worst),
    );
    world.ensure(worst <= limit, || figures.clone())?;
    Ok(vec![figures])
}

fn one_queue_pair_stuck(settings: Settings) -> Result<Figures, Violation> {
    let mut gaps = Vec::new();
    for seed in settings.seed..settings.seed + WORLDS {
        let plan = Plan::steady(0, 300, 256 << 10, 2 * MILLISECOND);
        let mut world = pair(Settings { seed, ..settings }, &[SHARED; 2], plan);
        let path = (seed % 2) as usize;
        let moment = world.random.below(50 * MILLISECOND);
        world.pass(10 * MILLISECOND + moment)?;
        let nic = world.connections[0].paths[path].sender;
        world.wait_for_load(nic)?;
        let event = world.queue.now();
        let (connection, side) = (0, Side::Sender);
        if let Some(qp) = world.newest_qp(EndId { connection, side }, path) {
            world.nics.qps[qp].black_hole = true;
        }
        world.pass(500 * MILLISECOND)?;
        gaps.push(world.gap(0, event));
        let kept = SIDES.map(|side| world.generation(0, side, 1 - path));
        world.ensure(kept == [0, 0], || "the other path was left".into())?;
        world.ensure(world.generation(0, side, path) == 1, || {
            "not made anew, or more than once".into()
        })?;
        world.wait(3 * SECOND, "back in service", |world| world.serves(0, path))?;
        world.ensure(world.sum(|count| count.evictions) == 0, || {
            "the NIC was blamed".into()
        })?;
        if seed + 1 == settings.seed + WORLDS {
            return report(&world, &gaps, STUCK_MAX);
        }
    }
    Ok(Vec::new())
}

/// The sender rests, so that the receiver waits long for it and becomes patient; then what the
/// receiver writes is lost: of one queue pair, or of all between two NICs.
fn credit_black_hole(settings: Settings) -> Result<Figures, Violation> {
    let mut gaps = Vec::new();
    for seed in settings.seed..settings.seed + WORLDS {
        let plan = Plan::steady(0, 400, 128 << 10, MILLISECOND);
        let mut world = pair(Settings { seed, ..settings }, &[SHARED; 2], plan);
        world.pass(10 * MILLISECOND)?;
        let until = world.queue.now() + 2 * SECOND + world.random.below(300 * MILLISECOND);
        world.connections[0].rest_until = until;
        world.advance(until)?;
        let path = lose_credits(&mut world, seed % 2 == 0);
        let received = world.connections[0].received;
        world.pass(SECOND)?;
        world.ensure(world.connections[0].received > received, || {
            "nothing arrives any more".into()
        })?;
        world.ensure(world.generation(0, Side::Receiver, path) > 0, || {
            "no credit was lost".into()
        })?;
        gaps.push(world.gap(0, until));
        if seed + 1 == settings.seed + WORLDS {
            return report(&world, &gaps, CREDIT_MAX);
        }
    }
    Ok(Vec::new())
}

/// Nothing that the receiver writes on its path for credits arrives; which path that is.
fn lose_credits(world: &mut World, of_queue_pair: bool) -> usize {
    let path = world.connections[0].receiver.half().credit_path();
    let path = path.map_or(0, |path| path.index());
    let (connection, side) = (0, Side::Receiver);
    let nics = world.connections[0].paths[path];
    if let Some(qp) = world
        .newest_qp(EndId { connection, side }, path)
        .filter(|_| of_queue_pair)
    {
        world.nics.qps[qp].black_hole = true;
    } else {
        world.fabric.way(nics.receiver, nics.sender).cut = true;
    }
    path
}
