//! Operators keep the load off paths, and what must then be so (PROTOCOL R63).

use r2ccl_core::limits::{GROUP_MAX, PATHS_MAX};
use r2ccl_core::{EndSnapshot, PathId, Seq};

use crate::check::Class;
use crate::connection::{Connection, Side};
use crate::world::{EndId, World};

/// What the ends of a connection were told, and since when the sender should have obeyed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drains {
    /// What each end was told of each path last.
    orders: [[bool; PATHS_MAX]; 2],
    /// Any end was ever told anything.
    is_any: bool,
    /// The first message that no longer uses a path, while the sender knows and has another.
    left: [Option<Seq>; PATHS_MAX],
}

/// Whether an end knows that it should keep off a path, and has another.
fn is_left(end: &EndSnapshot, path: usize) -> bool {
    let mut others = end.paths.iter().flatten();
    let is_drained = end.paths[path].is_some_and(|state| state.is_drained);
    is_drained && others.any(|other| other.health.is_in_service() && !other.is_drained)
}

impl Connection {
    /// Both ends know what they were told, and neither uses a path that it should keep off.
    pub fn obeys_drains(&self) -> bool {
        let Drains { orders, is_any, .. } = self.drains;
        let ends = [Side::Sender, Side::Receiver].map(|side| self.snapshot(side));
        !is_any
            || (0..self.paths.len()).all(|path| {
                let is_drained = orders[0][path] || orders[1][path];
                let knows = |end: &EndSnapshot| {
                    end.paths[path].is_some_and(|state| state.is_drained == is_drained)
                };
                let id = World::path(path);
                let is_out = [self.sender.is_out(id), self.receiver.is_out(id)];
                let has_answer = |side: usize| {
                    !orders[side][path] || !is_left(&ends[side], path) || is_out[side]
                };
                ends.iter().all(knows) && has_answer(0) && has_answer(1)
            })
    }
}

impl World {
    /// Somebody tells an end of a connection to keep off a path, or to use it again.
    pub(crate) fn drain(&mut self, number: u64, on: bool) {
        let end = self.victim_end(number);
        let path = (number >> 16) as usize % self.connections[end.connection].paths.len();
        self.order(end, path, on);
    }

    fn order(&mut self, end: EndId, path: usize, on: bool) {
        let time = self.time();
        let connection = &mut self.connections[end.connection];
        connection.drains.is_any = true;
        connection.drains.orders[end.side as usize][path] = on;
        connection.drain(end.side, time, Self::path(path), on);
        self.wake_at(end, self.queue.now());
    }

    /// Half of the paths that somebody should keep off may be used again; the others stay so.
    pub(crate) fn undrain_some(&mut self) {
        for connection in 0..self.connections.len() {
            for side in [Side::Sender, Side::Receiver] {
                for path in 0..self.connections[connection].paths.len() {
                    let drains = &self.connections[connection].drains;
                    if drains.orders[side as usize][path] && self.random.percent(50) {
                        self.order(EndId { connection, side }, path, false);
                    }
                }
            }
        }
    }

    /// Notes after a call of the sender which messages may no longer use a path. Those of the
    /// group that is not filled may have been cut before.
    pub(crate) fn look_at_drains(&mut self, end: EndId, snapshot: &EndSnapshot) {
        let connection = &mut self.connections[end.connection];
        if !connection.drains.is_any || end.side != Side::Sender {
            return;
        }
        let filled = connection.sender.half().snapshot().filled;
        for (path, left) in connection.drains.left.iter_mut().enumerate() {
            let first = *left.get_or_insert(filled.plus(GROUP_MAX as u64));
            *left = is_left(snapshot, path).then_some(first);
        }
    }

    /// An end posts on a path; `message`: what was cut for it, perhaps before it was drained.
    pub(crate) fn check_kept_off(&mut self, end: EndId, path: PathId, message: Option<Seq>) {
        let connection = &self.connections[end.connection];
        let drains = &connection.drains;
        if !drains.is_any || !is_left(&connection.snapshot(end.side), path.index()) {
            return;
        }
        let is_late = |seq: Seq| drains.left[path.index()].is_some_and(|first| seq >= first);
        if message.is_none_or(is_late) {
            let text = format!("{end:?} posts {message:?} on {path:?}, which is drained");
            self.fail(Class::Liveness, text);
        }
    }

    /// A sender says that it has nothing under way on a path: all that it posted there has arrived,
    /// or never will. What a receiver posted may still come: it has said it again elsewhere.
    pub(crate) fn check_left(&mut self, end: EndId, path: PathId, serial: u32) {
        let connection = &self.connections[end.connection];
        let held = connection.ends[end.side as usize].held.iter();
        let newest = held
            .filter(|held| held.path == path)
            .max_by_key(|held| held.generation);
        let is_promise = serial % 2 == 1 && end.side == Side::Sender;
        let Some(held) = newest.filter(|_| is_promise) else {
            return;
        };
        let qp = &self.nics.qps[held.qp];
        let has_arrived = |ordinal| self.nics.has_accepted(held.qp, ordinal);
        let now = self.queue.now();
        let can_land = !connection.postings.is_fenced(&self.nics, now, held.qp);
        if can_land && qp.is_ready() && !qp.unanswered_all(has_arrived) {
            let text = format!("{end:?} says that {path:?} is out of use, with work under way");
            self.fail(Class::Liveness, text);
        }
    }
}
