//! Processes and connections come to an end: death, an exit in order, a goodbye, an abort.

use crate::bug::Bug;
use crate::check::Class;
use crate::connection::{Connection, Side};
use crate::nic::{State, Status};
use crate::queue::{MICROSECOND, MILLISECOND, Nanos, SECOND};
use crate::world::{EndId, Event, World};
use r2ccl_core::wire::path_frame::PathFrame;

/// How often somebody who waits for queue pairs to be silent looks again.
const LOOK: Nanos = MILLISECOND;
/// How often a goodbye is said again, and for how long (PROTOCOL R25).
const GOODBYE_STEP: Nanos = 20 * MILLISECOND;
const GOODBYES: u32 = 10;
/// Longer than the time after which requests fail: somebody who is alone and has none does not.
const ALONE: Nanos = 70 * SECOND;

/// When somebody leaves who has been told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// At once, or in the next call.
    Now,
    /// When all messages are through on this side.
    WhenThrough,
}

impl Leave {
    /// Mostly in order.
    pub fn drawn(number: u64) -> Self {
        if number % 4 == 0 {
            Self::Now
        } else {
            Self::WhenThrough
        }
    }
}

impl Connection {
    /// All messages are reported at one end.
    pub fn is_through_at(&self, side: Side) -> bool {
        let count = self.plan.messages.len();
        match side {
            Side::Sender => self.sent == count,
            Side::Receiver => self.received == count,
        }
    }

    /// A request is open at one end.
    pub fn has_open(&self, side: Side) -> bool {
        match side {
            Side::Sender => !self.open_sends.is_empty(),
            Side::Receiver => !self.open_receives.is_empty(),
        }
    }

    /// A send that the receiver has counted in its goodbye, and that is not done yet. Where it
    /// counts some of several early ones, nobody can say which (PROTOCOL R43).
    pub fn counted_send(&self) -> Option<usize> {
        let count = self.counted.filter(|_| !self.postings.is_strict())?;
        let is_all = count >= self.sent + self.open_sends.len();
        let counted = self.open_sends.iter().filter(|open| {
            let sender = self.sender.half();
            let is_known = open
                .eager
                .is_none_or(|slot| sender.eager_seq(slot).is_some());
            open.message < count && (is_known || is_all)
        });
        counted.map(|open| open.message).next()
    }
}

impl World {
    /// The requests of an end fail.
    pub(crate) fn end_failed(&mut self, end: EndId, text: String) {
        let connection = &self.connections[end.connection];
        let wrong = if !connection.is_excused {
            Some("failed")
        } else if !connection.has_open(end.side) {
            Some("failed without requests")
        } else if end.side == Side::Sender && connection.counted_send().is_some() {
            Some("failed although its sends were counted")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.fail(Class::Liveness, format!("{end:?} {wrong}: {text}"));
        }
        self.say(|| format!("{end:?} failed: {text}"));
        self.close(end, text);
    }

    /// An end does nothing any more; its memory is given back when its queue pairs are silent.
    fn close(&mut self, end: EndId, text: String) {
        self.state(end).failed.get_or_insert(text);
        if end.side == Side::Receiver {
            self.connections[end.connection].copying.clear();
        }
        self.deregister(end);
    }

    /// A process dies: its queue pairs are silent, and its peers hear of it.
    pub(crate) fn kill(&mut self, host: usize) {
        self.hosts[host].alive = false;
        let now = self.queue.now();
        for qp in 0..self.nics.qps.len() {
            let end = self.owners[qp].end;
            if self.connections[end.connection].host(end.side) == host {
                self.nics.lose(qp, now);
            }
        }
        for connection in 0..self.connections.len() {
            for side in [Side::Sender, Side::Receiver] {
                let entry = &mut self.connections[connection];
                if entry.host(side) == host {
                    // Of the dead nobody expects anything.
                    entry.deserted = entry.deserted.filter(|&alone| alone != side);
                    self.leave_alone(EndId {
                        connection,
                        side: side.other(),
                    });
                }
            }
        }
    }

    /// The peer of an end is gone; in half of all worlds nobody hears of it.
    fn leave_alone(&mut self, end: EndId) {
        self.connections[end.connection].excuse();
        if !self.character.is_silent {
            let delay = self.random.magnitude(MICROSECOND, SECOND);
            return self.queue.after(delay, Event::PeerGone(end));
        }
        let there = self.connections[end.connection].host(end.side);
        self.connections[end.connection].deserted = self.hosts[there].alive.then_some(end.side);
        self.alone_until = self.queue.now() + ALONE;
        self.wake_at(end, self.queue.now());
    }

    /// A user aborts, or gives a buffer back that requests are open on: the connection stops, and
    /// then its memory is deregistered (PROTOCOL R24).
    pub(crate) fn abort(&mut self, connection: usize, at_sender: bool) {
        let side = if at_sender {
            Side::Sender
        } else {
            Side::Receiver
        };
        let end = EndId { connection, side };
        self.connections[connection].excuse();
        self.close(end, "aborted".into());
        let other = EndId {
            connection,
            side: side.other(),
        };
        self.leave_alone(other);
    }

    /// The memory of an end is deregistered, as soon as all its queue pairs are in error and what
    /// its NICs have accepted has landed. Where a command hangs, that waits.
    pub(crate) fn deregister(&mut self, end: EndId) {
        let now = self.queue.now();
        let mut is_silent = self.bug == Some(Bug::DeregistersFirst);
        if !is_silent {
            let held = self.state(end).held.clone();
            for held in &held {
                let entry = &self.nics.qps[held.qp];
                if entry.state == State::Ready && !self.fabric.nics[entry.nic].hung {
                    self.nics.fail(held.qp, Status::Flushed, now);
                }
            }
            let mut silent = held.iter().map(|held| self.nics.qps[held.qp].fenced_at);
            is_silent = silent.all(|at| at.is_some());
        }
        if !is_silent {
            return self.queue.after(LOOK, Event::Deregister(end));
        }
        let connection = &self.connections[end.connection];
        match end.side {
            Side::Sender => {
                let sources = connection.open_sends.iter().map(|open| open.buffer);
                for buffer in sources.chain(connection.staging.into_iter().flatten()) {
                    self.memory.deregister(buffer);
                }
            }
            Side::Receiver => {
                for open in &connection.open_receives {
                    for &buffer in &open.buffers[..open.count] {
                        self.memory.deregister(buffer);
                    }
                }
            }
        }
    }

    /// The other process is known to be gone. What it had confirmed is done (PROTOCOL R27); whoever
    /// still needs it fails, and nobody else.
    pub(crate) fn peer_gone(&mut self, end: EndId) {
        let host = self.connections[end.connection].host(end.side);
        let host = &mut self.hosts[host];
        if host.alive && host.paused {
            return host.waiting.push(Event::PeerGone(end));
        }
        if !host.alive || self.state(end).failed.is_some() {
            return;
        }
        self.last_look(end);
        if !self.connections[end.connection].is_through_at(end.side) {
            self.close(end, "the peer is gone".into());
        }
    }

    /// Somebody was told to leave who may do so now.
    pub(crate) fn check_leaving(&mut self, end: EndId) {
        let host = self.connections[end.connection].host(end.side);
        let is_ready = |world: &Self, end: EndId, leave| {
            leave == Leave::Now || world.connections[end.connection].is_through_at(end.side)
        };
        let leaving = self.connections[end.connection].leaving;
        if let Some(leave) = leaving.filter(|_| end.side == Side::Receiver) {
            if is_ready(self, end, leave) {
                self.part(end);
            }
        }
        let Some(leave) = self.hosts[host].leaving else {
            return;
        };
        let mut own = (0..self.connections.len()).flat_map(|connection| {
            [Side::Sender, Side::Receiver].map(|side| EndId { connection, side })
        });
        let is_all_ready = own.all(|end| {
            let is_elsewhere = self.connections[end.connection].host(end.side) != host;
            is_elsewhere || is_ready(self, end, leave)
        });
        if is_all_ready {
            self.hosts[host].leaving = None;
            self.kill(host);
        }
    }

    /// The receiver closes: it says how many messages it has.
    fn part(&mut self, end: EndId) {
        let connection = &mut self.connections[end.connection];
        connection.leaving = None;
        let count = connection.receiver.half().delivered();
        connection.excuse();
        connection.receiver.close(count);
        self.perform_actions(end);
        self.queue.after(
            GOODBYE_STEP,
            Event::Goodbye {
                end,
                count,
                left: GOODBYES,
            },
        );
        self.state(end).failed = Some("closed".into());
        let delay = self.random.magnitude(MICROSECOND, 200 * MILLISECOND);
        let is_quick = self.random.percent(50);
        self.queue
            .after(if is_quick { 0 } else { delay }, Event::Deregister(end));
        let there = self.connections[end.connection].host(Side::Sender);
        if self.hosts[there].alive {
            self.connections[end.connection].deserted = Some(Side::Sender);
            self.alone_until = self.queue.now() + ALONE;
        }
    }

    /// The goodbye is said again until it is heard, for a while.
    pub(crate) fn say_goodbye(&mut self, end: EndId, count: u64, left: u32) {
        let host = self.connections[end.connection].host(end.side);
        let is_heard = self.connections[end.connection].counted.is_some();
        if left == 0 || is_heard || !self.hosts[host].alive {
            return;
        }
        self.send(end, PathFrame::Goodbye { count });
        let left = left - 1;
        self.queue
            .after(GOODBYE_STEP, Event::Goodbye { end, count, left });
    }
}
