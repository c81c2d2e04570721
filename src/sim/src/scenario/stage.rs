//! What scenarios are made of: worlds in health, and hands that reach into them.

use r2ccl_core::end::EndSnapshot;
use r2ccl_core::{EndConfig, EndStatistics, Health};

use super::Settings;
use crate::check::{Class, Violation};
use crate::connection::{PathNics, Side};
use crate::fabric::{Fabric, NicId, Topology};
use crate::nic::{Nics, QpId, State};
use crate::plan::Plan;
use crate::ports::Role;
use crate::queue::{Nanos, SECOND};
use crate::random::Random;
use crate::setup::Line;
use crate::world::{EndId, Event, Hint, Options, World};

pub(super) const SIDES: [Side; 2] = [Side::Sender, Side::Receiver];

/// A path that takes its part in health.
pub(super) const SHARED: Role = Role {
    share: (1, 1),
    is_standby: false,
};
/// A path that is connected and takes over.
pub(super) const BACKUP: Role = Role {
    share: (0, 1),
    is_standby: false,
};
/// A path that is not connected at set-up.
pub(super) const LATER: Role = Role {
    share: (1, 1),
    is_standby: true,
};

/// A world in health without connections.
pub(super) fn stage(
    settings: Settings,
    (hosts, nics): (usize, usize),
    topology: Topology,
) -> World {
    let mut random = Random::new(settings.seed, 0);
    let fabric = Fabric::even(hosts, nics, topology, &mut random);
    let options = Options {
        seed: settings.seed,
        trace: settings.trace,
        ..Options::default()
    };
    World::bare(options, fabric, Nics::usual(), random)
}

/// Two hosts, one connection with a path on each of `nics` rails.
pub(super) fn pair(settings: Settings, roles: &[Role], plan: Plan) -> World {
    let mut world = stage(settings, (2, roles.len()), Topology::RailOnly);
    world.line([0, 1], roles, plan, EndConfig::default());
    world
}

impl World {
    /// A connection with a path on each rail.
    pub(super) fn line(
        &mut self,
        hosts: [usize; 2],
        roles: &[Role],
        plan: Plan,
        config: EndConfig,
    ) {
        let pairs = (0..roles.len()).map(|index| (index, index));
        self.line_over(hosts, &pairs.collect::<Vec<_>>(), roles, (plan, config));
    }

    /// A connection over pairs of NICs.
    pub(super) fn line_over(
        &mut self,
        hosts: [usize; 2],
        pairs: &[(usize, usize)],
        roles: &[Role],
        (plan, config): (Plan, EndConfig),
    ) {
        let paths = pairs.iter().map(|&(sender, receiver)| PathNics {
            sender: self.fabric.nic(hosts[0], sender),
            receiver: self.fabric.nic(hosts[1], receiver),
        });
        let paths = paths.collect();
        let seed = self.seed.wrapping_add(self.connections.len() as u64);
        self.open(Line {
            hosts,
            paths,
            roles: roles.to_vec(),
            plan,
            config: EndConfig { seed, ..config },
        });
    }

    /// Lets everything happen until `until`.
    pub(super) fn advance(&mut self, until: Nanos) -> Result<(), Violation> {
        while let Some(event) = self.queue.next(until) {
            self.handle(event);
            self.check()?;
        }
        self.queue.pass(until);
        Ok(())
    }

    /// Lets `time` pass.
    pub(super) fn pass(&mut self, time: Nanos) -> Result<(), Violation> {
        self.advance(self.queue.now().saturating_add(time))
    }

    /// Lets everything happen until `is_so`, for `limit` at the most; how long it took.
    pub(super) fn wait(
        &mut self,
        limit: Nanos,
        what: &str,
        mut is_so: impl FnMut(&Self) -> bool,
    ) -> Result<Nanos, Violation> {
        let begin = self.queue.now();
        let until = begin.saturating_add(limit);
        while !is_so(self) {
            let Some(event) = self.queue.next(until) else {
                let lines = self.connections.iter();
                let left: Vec<String> = lines.filter_map(|line| line.unfinished()).collect();
                let text = format!("{what}: not within {} ms; {left:?}", limit / 1_000_000);
                return Err(self.violation(text));
            };
            self.handle(event);
            self.check()?;
        }
        Ok(self.queue.now() - begin)
    }

    /// All messages of all connections arrive.
    pub(super) fn finish(&mut self, limit: Nanos) -> Result<Nanos, Violation> {
        self.wait(limit, "all messages", |world| {
            world.connections.iter().all(|line| line.is_through())
        })
    }

    fn check(&self) -> Result<(), Violation> {
        self.violation.clone().map_or(Ok(()), Err)
    }

    fn violation(&self, text: String) -> Violation {
        Violation {
            class: Class::Liveness,
            at: self.queue.now(),
            text,
        }
    }

    /// Something that must be so.
    pub(super) fn ensure(
        &self,
        is_so: bool,
        text: impl FnOnce() -> String,
    ) -> Result<(), Violation> {
        if is_so {
            Ok(())
        } else {
            Err(self.violation(text()))
        }
    }

    /// Bytes and work requests that are under way between `nic` and others.
    pub(super) fn in_flight(&self, nic: NicId) -> (u64, usize) {
        let of_nic = |qp: QpId| {
            let entry = &self.nics.qps[qp];
            let peer = entry.peer.map(|peer| self.nics.qps[peer].nic);
            entry.state == State::Ready && (entry.nic == nic || peer == Some(nic))
        };
        let all = (0..self.nics.qps.len()).filter(|&qp| of_nic(qp));
        all.fold((0, 0), |(bytes, count), qp| {
            let (more, works) = self.nics.outstanding(qp);
            (bytes + more, count + works)
        })
    }

    /// Waits until bytes are under way at `nic`: a fault has to hit something.
    pub(super) fn wait_for_load(&mut self, nic: NicId) -> Result<u64, Violation> {
        self.wait(SECOND, "bytes under way", |world| {
            world.in_flight(nic).0 > 0
        })?;
        Ok(self.in_flight(nic).0)
    }

    /// A port loses or gets its link; its host hears of it after `told`, or never.
    pub(super) fn plug(&mut self, nic: NicId, up: bool, told: Option<Nanos>) {
        self.struck += 1;
        self.fabric.nics[nic].up = up;
        let hint = if up { Hint::LinkUp } else { Hint::LinkDown };
        if let Some(delay) = told {
            self.queue.after(delay, Event::Hint { nic, hint });
        }
    }

    /// Nothing passes to or from a NIC, or everything does again, and nobody is told.
    pub(super) fn isolate(&mut self, nic: NicId, on: bool) {
        self.struck += 1;
        for other in 0..self.fabric.nics.len() {
            self.fabric.way(nic, other).cut = on;
            self.fabric.way(other, nic).cut = on;
        }
    }

    /// The newest queue pair of a path at one end.
    pub(super) fn newest_qp(&self, end: EndId, path: usize) -> Option<QpId> {
        let held = &self.connections[end.connection].ends[end.side as usize].held;
        let of_path = held.iter().filter(|held| held.path.index() == path);
        of_path
            .max_by_key(|held| held.generation)
            .map(|held| held.qp)
    }

    /// The users of a connection open nothing more until `until`.
    pub(super) fn rest(&mut self, index: usize, until: Nanos) {
        let line = &mut self.connections[index];
        (line.rest_until, line.receive_rest_until) = (until, until);
        for side in SIDES {
            let connection = index;
            self.wake_at(EndId { connection, side }, until);
        }
    }

    /// The users of all connections finish what is open, and then nothing is until `until`.
    pub(super) fn calm(&mut self, until: Nanos) -> Result<(), Violation> {
        for line in &mut self.connections {
            line.receive_rest_until = until;
        }
        self.wait(5 * SECOND, "open messages", |world| {
            let mut lines = world.connections.iter();
            lines.all(|line| line.open_receives.is_empty() && line.open_sends.is_empty())
        })?;
        for index in 0..self.connections.len() {
            self.rest(index, until);
        }
        Ok(())
    }

    /// Bytes that each NIC of a host sends in `time`.
    pub(super) fn sent(&mut self, host: usize, time: Nanos) -> Result<Vec<u64>, Violation> {
        let sent = |world: &Self| -> Vec<u64> {
            let nics = world.fabric.nics.iter().filter(|nic| nic.host == host);
            nics.map(|nic| nic.sent).collect()
        };
        let before = sent(self);
        self.pass(time)?;
        let after = sent(self);
        Ok(after
            .iter()
            .zip(before)
            .map(|(now, then)| now - then)
            .collect())
    }

    /// A device dies with all that it had to report; its host hears of it after `told`.
    pub(super) fn kill_device(&mut self, nic: NicId, told: Nanos) {
        self.struck += 1;
        self.fabric.nics[nic].dead = true;
        for qp in 0..self.nics.qps.len() {
            if self.nics.qps[qp].nic == nic {
                self.nics.lose(qp, self.queue.now());
            }
        }
        let hint = Hint::DeviceLost;
        self.queue.after(told, Event::Hint { nic, hint });
    }

    /// The state of an end.
    pub(super) fn snapshot(&self, index: usize, side: Side) -> EndSnapshot {
        let line = &self.connections[index];
        match side {
            Side::Sender => line.sender.snapshot(),
            Side::Receiver => line.receiver.snapshot(),
        }
    }

    /// Sums over both ends of all connections of what `count` picks.
    pub(super) fn sum(&self, count: impl Fn(&EndStatistics) -> u64) -> u64 {
        let ends = (0..self.connections.len()).flat_map(|index| SIDES.map(|side| (index, side)));
        ends.map(|(index, side)| count(&self.snapshot(index, side).statistics))
            .sum()
    }

    /// Generation of a path at an end.
    pub(super) fn generation(&self, index: usize, side: Side, path: usize) -> u32 {
        let entry = self.snapshot(index, side).paths[path];
        entry.map_or(0, |state| state.generation.0)
    }

    /// Whether a path is in service at both ends.
    pub(super) fn serves(&self, index: usize, path: usize) -> bool {
        SIDES.iter().all(|&side| {
            let entry = self.snapshot(index, side).paths[path];
            entry.is_some_and(|state| state.health.is_in_service())
        })
    }

    /// Whether a path is out of service at both ends.
    pub(super) fn is_out(&self, index: usize, path: usize) -> bool {
        SIDES.iter().all(|&side| {
            let entry = self.snapshot(index, side).paths[path];
            entry.is_some_and(|state| !state.health.is_in_service())
        })
    }

    /// Whether the ends of a connection have lost no generation and suspect nothing.
    pub(super) fn is_untouched(&self, index: usize) -> bool {
        SIDES.iter().all(|&side| {
            let state = self.snapshot(index, side);
            let is_first = |health, generation| health == Health::Active && generation == 0;
            let mut paths = state.paths.iter().flatten();
            state.statistics.closed == 0
                && paths.all(|path| is_first(path.health, path.generation.0))
        })
    }

    /// Whether a connection uses a NIC.
    pub(super) fn uses(&self, index: usize, nic: NicId) -> bool {
        let mut paths = self.connections[index].paths.iter();
        paths.any(|path| path.sender == nic || path.receiver == nic)
    }

    /// The longest time without a delivery from `event` on, minus the usual one before it.
    pub(super) fn gap(&self, index: usize, event: Nanos) -> Nanos {
        let times = &self.connections[index].deliveries;
        let split = times.partition_point(|&at| at <= event);
        let (before, after) = times.split_at(split);
        let mut usual: Vec<Nanos> = before.windows(2).map(|two| two[1] - two[0]).collect();
        usual.sort_unstable();
        let usual = usual.get(usual.len() / 2).copied().unwrap_or(0);
        let mut last = event;
        let mut longest = 0;
        for &at in after {
            longest = longest.max(at - last);
            last = at;
        }
        longest.saturating_sub(usual)
    }
}
