//! A fabric that is bad all day, with all NICs in health.

use r2ccl_core::EndConfig;

use super::outage::HOUR;
use super::stage::{SHARED, stage};
use super::{Figures, Scenario, Settings};
use crate::check::Violation;
use crate::fabric::Topology;
use crate::plan::Plan;
use crate::queue::{MILLISECOND, Nanos, SECOND};
use crate::world::World;

pub(super) const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "congestion-24h",
        about: "24 hours with pauses of up to 2 s that hit all paths of a host, 0.1 % loss and \
                slow phases: no NIC is left, no request fails",
        play: |settings| congestion(settings, 24),
    },
    Scenario {
        name: "congestion-1h",
        about: "one hour of that",
        play: |settings| congestion(settings, 1),
    },
];

const NICS: usize = 4;
const LOSS_PPM: u32 = 1000;
const PAUSE_MAX: Nanos = 2 * SECOND;
/// From one pause to the next at the most.
const PERIOD: Nanos = 40 * SECOND;

fn congestion(settings: Settings, hours: u64) -> Result<Figures, Violation> {
    let mut world = stage(settings, (2, NICS), Topology::RailOnly);
    let end = hours * HOUR;
    for hosts in [[0, 1], [1, 0]] {
        let index = world.connections.len();
        let mut plan = Plan::steady(index, (end / SECOND) as usize, 256 << 10, SECOND / 8);
        (plan.depth, plan.receive_rest) = (2, 4 * SECOND);
        world.line(hosts, &[SHARED; NICS], plan, EndConfig::default());
    }
    set_loss(&mut world, LOSS_PPM);
    let (mut pauses, mut hit, mut slow) = (0, 0, 0);
    while world.queue.now() < end {
        let rest = world.random.between(PAUSE_MAX, PERIOD);
        world.pass(rest)?;
        if world.random.percent(10) {
            slow += 1;
            slow_phase(&mut world)?;
        }
        pauses += 1;
        hit += u64::from(pause(&mut world)?);
    }
    set_loss(&mut world, 0);
    world.wait(200 * SECOND, "all paths in service", |world| {
        world.connections.iter().all(|line| line.is_back())
    })?;
    let sum = |world: &World| {
        world
            .connections
            .iter()
            .map(|line| line.received as u64)
            .sum()
    };
    let received: u64 = sum(&world);
    let (lost, evictions) = (world.nics.lost, world.sum(|count| count.evictions));
    let text = format!(
        "{received} messages, {pauses} pauses ({hit} with bytes under way), {slow} slow phases, \
         {lost} packets lost: {evictions} paths left, {} queue pairs made anew, {} suspicions \
         cleared, {} times nowhere better",
        world.sum(|count| count.queue_pair_faults),
        world.sum(|count| count.transients),
        world.sum(|count| count.nowhere_better),
    );
    world.ensure(evictions == 0, || format!("a healthy NIC was left: {text}"))?;
    let is_seen = hit > pauses / 4 && slow > 0 && lost > 0 && received > hours * 500;
    world.ensure(is_seen, || format!("too little happened: {text}"))?;
    Ok(vec![text])
}

fn set_loss(world: &mut World, ppm: u32) {
    for from in 0..world.fabric.nics.len() {
        for to in 0..world.fabric.nics.len() {
            world.fabric.way(from, to).loss_ppm = ppm;
        }
    }
}

/// All NICs of a host wait; whether bytes were under way there at the end.
fn pause(world: &mut World) -> Result<bool, Violation> {
    let host = world.random.index(2);
    let lasts = world.random.magnitude(10 * MILLISECOND, PAUSE_MAX);
    let until = world.queue.now() + lasts;
    let nics = (0..NICS).map(|index| world.fabric.nic(host, index));
    let nics: Vec<usize> = nics.collect();
    for &nic in &nics {
        world.fabric.nics[nic].held_until = until;
    }
    world.advance(until - 1)?;
    let is_hit = nics.iter().any(|&nic| world.in_flight(nic).0 > 0);
    world.pass(1)?;
    Ok(is_hit)
}

/// Some NICs of a host are slow and late for a while.
fn slow_phase(world: &mut World) -> Result<(), Violation> {
    let host = world.random.index(2);
    let (first, delay) = (
        world.random.index(NICS),
        world.random.below(8 * MILLISECOND),
    );
    let nics = (first..NICS).map(|index| world.fabric.nic(host, index));
    let nics: Vec<usize> = nics.collect();
    let lasts = world.random.between(SECOND, 30 * SECOND);
    for (speed, delay, time) in [(80, delay, lasts), (1_250, 0, 0)] {
        for &nic in &nics {
            world.fabric.nics[nic].speed = speed;
            for to in 0..world.fabric.nics.len() {
                world.fabric.way(nic, to).delay = delay;
            }
        }
        world.pass(time)?;
    }
    Ok(())
}
