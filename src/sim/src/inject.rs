//! Faults strike and end.

use crate::connection::Side;
use crate::endings::Leave;
use crate::fabric::NicId;
use crate::fault::{Kind, When, lateness};
use crate::helper::HANG_STEP;
use crate::nic::{QpId, State, Status};
use crate::queue::{MICROSECOND, MILLISECOND, Nanos, SECOND};
use crate::world::{EndId, Event, Hint, World};

/// Longest time from a link until its port has an address.
const ADDRESS_LATE_MAX: Nanos = 3 * SECOND;

impl World {
    /// Lets the faults that wait for a time wait for it.
    pub(crate) fn arm_faults(&mut self) {
        for index in 0..self.faults.len() {
            if let When::At(at) = self.faults[index].when {
                self.queue.at(at, Event::Strike(index));
            }
        }
    }

    /// An event is about to happen: some faults wait for that.
    pub(crate) fn on_event(&mut self) {
        for index in 0..self.faults.len() {
            if self.faults[index].when == When::Event(self.handled) {
                self.strike(index);
            }
        }
    }

    /// A connection has received `messages`: some faults wait for that.
    pub(crate) fn on_delivered(&mut self, connection: usize, messages: usize) {
        let now = self.queue.now();
        self.connections[connection].deliveries.push(now);
        for index in 0..self.faults.len() {
            let When::Delivered(of, count, soon) = self.faults[index].when else {
                continue;
            };
            if of == connection && messages >= count && !self.armed[index] {
                self.armed[index] = true;
                self.queue.after(soon, Event::Strike(index));
            }
        }
    }

    /// A connection has sent `count` messages ahead of their credit: some faults wait for that.
    pub(crate) fn on_ahead(&mut self, connection: usize, count: u64) {
        for index in 0..self.faults.len() {
            let When::Ahead(of, nth, soon) = self.faults[index].when else {
                continue;
            };
            if of == connection && count > u64::from(nth) && !self.armed[index] {
                self.armed[index] = true;
                self.queue.after(soon, Event::Strike(index));
            }
        }
    }

    /// Some end has given up a generation: some faults wait for that.
    pub(crate) fn on_recovery(&mut self) {
        for index in 0..self.faults.len() {
            let When::Recovery(nth, soon) = self.faults[index].when else {
                continue;
            };
            if nth <= self.recoveries && !self.armed[index] {
                self.armed[index] = true;
                self.queue.after(soon, Event::Strike(index));
            }
        }
        self.recoveries += 1;
    }

    /// An end of some connection.
    pub(crate) fn victim_end(&self, number: u64) -> EndId {
        EndId {
            connection: (number >> 8) as usize % self.connections.len(),
            side: if number % 2 == 0 {
                Side::Sender
            } else {
                Side::Receiver
            },
        }
    }

    /// A NIC that some connection uses.
    fn victim_nic(&self, number: u64) -> NicId {
        let connection = &self.connections[(number >> 8) as usize % self.connections.len()];
        let paths = &connection.paths;
        // The home path more often than the others.
        let choice = (number >> 16) as usize % (paths.len() + 2);
        let path = paths[if choice < paths.len() { choice } else { 0 }];
        if number % 2 == 0 {
            path.sender
        } else {
            path.receiver
        }
    }

    /// Both NICs of a path that some connection uses, in either order.
    fn victim_pair(&self, number: u64) -> (NicId, NicId) {
        let connection = &self.connections[(number >> 8) as usize % self.connections.len()];
        let choice = (number >> 16) as usize % (connection.paths.len() + 2);
        let path = connection.paths[if choice < connection.paths.len() {
            choice
        } else {
            0
        }];
        if number % 2 == 0 {
            (path.sender, path.receiver)
        } else {
            (path.receiver, path.sender)
        }
    }

    /// A queue pair that is in use.
    fn victim_qp(&self, number: u64) -> Option<QpId> {
        let live: Vec<QpId> = (0..self.nics.qps.len())
            .filter(|&qp| self.nics.qps[qp].state == State::Ready)
            .collect();
        live.get(number as usize % live.len().max(1)).copied()
    }

    /// A fault strikes.
    pub(crate) fn strike(&mut self, index: usize) {
        if self.is_healed {
            return;
        }
        let fault = self.faults[index];
        self.record(fault.kind, fault.victim.0);
        self.struck += 1;
        self.say(|| format!("{fault:?}"));
        self.apply(index, true);
        if fault.kind == Kind::Flapping {
            let period = self.random.magnitude(20 * MICROSECOND, 400 * MILLISECOND);
            let times = self.random.between(2, 12) as u32;
            self.queue.after(
                period,
                Event::Flap {
                    index,
                    times,
                    period,
                    up: true,
                },
            );
        } else if fault.lasts != Nanos::MAX && !fault.kind.is_once() {
            self.queue.after(fault.lasts, Event::Relent(index));
        }
    }

    /// A fault ends.
    pub(crate) fn relent(&mut self, index: usize) {
        if !self.is_healed {
            self.apply(index, false);
        }
    }

    /// A flapping port changes once more.
    pub(crate) fn flap(&mut self, index: usize, times: u32, period: Nanos, up: bool) {
        if self.is_healed {
            return;
        }
        self.set_link(self.victim_nic(self.faults[index].victim.0), up);
        if times > 0 || !up {
            let (times, up) = (times.saturating_sub(1), !up);
            self.queue.after(
                period,
                Event::Flap {
                    index,
                    times,
                    period,
                    up,
                },
            );
        }
    }

    fn apply(&mut self, index: usize, on: bool) {
        let fault = self.faults[index];
        let (one, two) = fault.victim;
        let nic = self.victim_nic(one);
        let (from, to) = self.victim_pair(one);
        match fault.kind {
            Kind::LinkDown | Kind::Flapping => self.set_link(nic, !on),
            Kind::BothEnds => {
                self.set_link(from, !on);
                self.set_link(to, !on);
            }
            Kind::OneWay => self.each_way_from(nic, |way| way.cut = on),
            Kind::PairBlackHole => {
                self.fabric.way(from, to).cut = on;
                self.fabric.way(to, from).cut = on && two % 2 == 0;
            }
            Kind::QueuePairBlackHole => {
                if let Some(qp) = self.victim_qp(one).filter(|_| on) {
                    self.nics.qps[qp].black_hole = true;
                }
            }
            Kind::LargeLoss => self.each_way_from(nic, |way| way.large_lost = on),
            Kind::CompletionsLost => self.fabric.nics[nic].eats_completions = on,
            Kind::AcksLost => self.fabric.way(from, to).acks_lost = on,
            Kind::Stuck => self
                .fabric
                .set_stuck(if on { 1 << (6 + two % 12) } else { 0 }),
            Kind::FenceHangs => self.fabric.nics[nic].hung = on,
            Kind::FenceHangsAtBoth => {
                self.fabric.nics[from].hung = on;
                self.fabric.nics[to].hung = on;
            }
            Kind::DeviceDead => self.set_dead(nic, on),
            Kind::OwnError => self.own_error(one, two, on),
            Kind::ControlChaos | Kind::ControlDown => self.control_fault(index, on),
            Kind::Slow => self.slow(nic, two % (5 * MILLISECOND), on),
            Kind::LateWrites => {
                // Mostly those of the sender.
                let pair = self.victim_pair(if two % 4 == 0 { one } else { one & !1 });
                self.late_writes(pair, lateness(two), on);
                let words = (two >> 12) % (20 * MILLISECOND);
                self.late_words(pair, if two & 12 == 0 { 0 } else { words }, on);
            }
            Kind::LatePackets => {
                let delay = if on { lateness(two) } else { 0 };
                self.fabric.way(from, to).delay = delay;
            }
            Kind::NoReceives => {
                let count = self.connections.len();
                self.connections[one as usize % count].is_starved = on;
            }
            Kind::Paused => self.pause(one as usize % self.hosts.len(), on),
            Kind::Killed | Kind::Abort | Kind::Exit | Kind::Goodbye => self.end(index),
            Kind::Speed => self.change_speed(nic, two, on),
            Kind::Connect => self.connect_late(),
            Kind::Drain => self.drain(one, on),
            Kind::AllPathsDown => {
                let host = self.fabric.nics[nic].host;
                self.each_nic(|world, id| world.fabric.nics[id].host == host, !on);
            }
            Kind::SwitchLoss => {
                let rail = self.fabric.nics[nic].index;
                self.each_nic(|world, id| world.fabric.nics[id].index == rail, !on);
            }
            Kind::RandomLoss => {
                let ppm = if on { 1 << (8 + two % 9) } else { 0 };
                self.each_way_from(nic, |way| way.loss_ppm = ppm);
            }
        }
    }

    /// Somebody leaves for good.
    fn end(&mut self, index: usize) {
        let fault = self.faults[index];
        let (one, two) = fault.victim;
        let (host, connection) = (
            one as usize % self.hosts.len(),
            one as usize % self.connections.len(),
        );
        match fault.kind {
            Kind::Killed => self.kill(host),
            Kind::Exit => self.hosts[host].leaving = Some(Leave::drawn(two)),
            Kind::Goodbye => self.connections[connection].leaving = Some(Leave::drawn(two)),
            _ => self.abort(connection, two % 2 == 0),
        }
        self.wake_host(host);
    }

    fn change_speed(&mut self, nic: NicId, number: u64, on: bool) {
        let parts = [1, 4, 8, 32, 64][number as usize % 5];
        let entry = &mut self.fabric.nics[nic];
        let usual = entry.usual_speed;
        entry.speed = if on {
            (usual * parts / 16).max(64)
        } else {
            usual
        };
    }

    fn slow(&mut self, nic: NicId, delay: Nanos, on: bool) {
        let entry = &mut self.fabric.nics[nic];
        let usual = entry.usual_speed;
        entry.speed = if on { (usual / 16).max(64) } else { usual };
        let delay = if on { delay } else { 0 };
        self.each_way_from(nic, |way| way.delay = delay);
    }

    fn late_writes(&mut self, (from, to): (NicId, NicId), delay: Nanos, on: bool) {
        self.fabric.way(from, to).delay = if on { delay } else { 0 };
        self.fabric.nics[to].hung = on;
    }

    /// All that the host of `to` says to that of `from` is late, but not so late as to be a stall.
    fn late_words(&mut self, (from, to): (NicId, NicId), delay: Nanos, on: bool) {
        let (source, target) = (self.fabric.nics[to].host, self.fabric.nics[from].host);
        let of = |world: &Self, host| -> Vec<NicId> {
            let nics = 0..world.fabric.nics.len();
            nics.filter(|&nic| world.fabric.nics[nic].host == host)
                .collect()
        };
        for source in of(self, source) {
            for target in of(self, target) {
                self.fabric.way(source, target).delay = if on { delay } else { 0 };
            }
        }
    }

    fn own_error(&mut self, one: u64, two: u64, on: bool) {
        if let Some(qp) = self.victim_qp(one).filter(|_| on) {
            let statuses = Status::ERRORS;
            let status = statuses[two as usize % statuses.len()];
            self.nics.fail(qp, status, self.queue.now());
            self.wake_owner(qp);
        }
    }

    fn control_fault(&mut self, index: usize, on: bool) {
        let fault = self.faults[index];
        let (one, two) = fault.victim;
        let connection = &self.connections[one as usize % self.connections.len()];
        let pair = [connection.hosts[0], connection.hosts[1]];
        for (from, to) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            let way = self.control.way(from, to);
            if fault.kind == Kind::ControlDown {
                way.down = on;
            } else {
                way.loss_ppm = if on { 1 << (10 + two % 10) } else { 0 };
                way.double_ppm = if on { 1 << (10 + two / 16 % 10) } else { 0 };
                way.delay_max = if on { 1 << (10 + two / 256 % 16) } else { 0 };
            }
        }
    }

    fn each_way_from(&mut self, nic: NicId, change: impl Fn(&mut crate::fabric::Way)) {
        for to in 0..self.fabric.nics.len() {
            change(self.fabric.way(nic, to));
        }
    }

    fn each_nic(&mut self, which: impl Fn(&Self, NicId) -> bool, up: bool) {
        for nic in 0..self.fabric.nics.len() {
            if which(self, nic) {
                self.set_link(nic, up);
            }
        }
    }

    /// A port changes; mostly its host is told, after a while.
    pub(crate) fn set_link(&mut self, nic: NicId, up: bool) {
        if self.fabric.nics[nic].up == up {
            return;
        }
        self.fabric.nics[nic].up = up;
        if up {
            self.move_address(nic);
        }
        if self.random.percent(80) {
            let hint = if up { Hint::LinkUp } else { Hint::LinkDown };
            let delay = self.random.magnitude(MICROSECOND, 2 * MILLISECOND);
            self.queue.after(delay, Event::Hint { nic, hint });
        }
    }

    /// A port that comes back may have another address, and none at first.
    pub(crate) fn move_address(&mut self, nic: NicId) {
        if !self.character.moves_addresses {
            return;
        }
        let entry = &mut self.fabric.nics[nic];
        (entry.address, entry.nameless) = (entry.address + 1, true);
        let delay = self.random.magnitude(MICROSECOND, ADDRESS_LATE_MAX);
        self.queue.after(delay, Event::Address(nic));
    }

    fn set_dead(&mut self, nic: NicId, dead: bool) {
        self.fabric.nics[nic].dead = dead;
        for qp in 0..self.nics.qps.len() {
            if dead && self.nics.qps[qp].nic == nic {
                self.nics.lose(qp, self.queue.now());
                self.fence_again(qp);
            }
        }
        if self.random.percent(60) {
            let hint = if dead { Hint::DeviceLost } else { Hint::LinkUp };
            let delay = self.random.magnitude(MICROSECOND, 5 * MILLISECOND);
            self.queue.after(delay, Event::Hint { nic, hint });
        }
    }

    /// What came back of a fence may be lost with its device: its helper asks until it hears.
    fn fence_again(&mut self, qp: QpId) {
        let end = self.owners[qp].end;
        let held = self.state(end).held.iter().find(|held| held.qp == qp);
        if let Some(held) = held.filter(|held| held.fence_wanted) {
            let event = Event::Fence(end, held.path, held.generation);
            self.queue.after(HANG_STEP, event);
        }
    }

    /// A process stands still, or goes on with all that has waited for it.
    pub(crate) fn pause(&mut self, host: usize, on: bool) {
        self.hosts[host].paused = on;
        if !on {
            for event in core::mem::take(&mut self.hosts[host].waiting) {
                self.queue.after(0, event);
            }
            self.wake_host(host);
        }
    }
}
