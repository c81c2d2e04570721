//! The users at both ends: what NCCL and its GPUs do.

use r2ccl_core::{PathId, ReceiveBuffer, RegionId, SendStatus, Seq};

use crate::bug::Bug;
use crate::check::Class;
use crate::connection::{OpenReceive, OpenSend, PathNics, Side};
use crate::fabric::NicId;
use crate::memory::{BufferId, Content, Expected, address};
use crate::plan::BYTES_MAX;
use crate::queue::{MICROSECOND, MILLISECOND, Nanos};
use crate::world::{EndId, Event, World};

/// A receive that is not in use.
const NOWHERE: ReceiveBuffer = ReceiveBuffer {
    region: RegionId(0),
    address: 0,
    capacity: 0,
    tag: 0,
};
/// Looks of a GPU at one receive.
const POLLS: u64 = 3;
/// A send without a credit asks after this long.
const STARVED: Nanos = 20 * MILLISECOND;

impl World {
    /// The NIC pairs of a connection, home pair first.
    pub(crate) fn wire(&mut self, hosts: [usize; 2], nics: usize) -> Vec<PathNics> {
        let home = self.random.index(nics);
        let mut pairs = Vec::new();
        for step in 0..nics {
            let index = (home + step) % nics;
            let sender = self.fabric.nic(hosts[0], index);
            let receiver = self.fabric.nic(hosts[1], index);
            pairs.push(PathNics { sender, receiver });
        }
        // Some crossed pairs, where the fabric has them.
        for step in 1..nics {
            let other = (home + step) % nics;
            let sender: NicId = self.fabric.nic(hosts[0], home);
            let receiver = self.fabric.nic(hosts[1], other);
            if pairs.len() < 8 && self.fabric.is_wired(sender, receiver) && self.random.percent(40)
            {
                pairs.push(PathNics { sender, receiver });
            }
        }
        pairs
    }

    /// What the sending user does in one call: see what is done, send what comes next.
    pub(crate) fn progress_sender(&mut self, index: usize) {
        self.read_mailboxes(index);
        self.finish_sends(index);
        if self.start_sends(index) || self.is_unbound(index) {
            self.starve(index);
        } else {
            self.connections[index].starved_since = None;
        }
    }

    /// What an end does before it reports an error: it hears the last word of the other one.
    pub(crate) fn last_look(&mut self, end: EndId) {
        match end.side {
            Side::Sender => {
                self.read_mailboxes(end.connection);
                self.finish_sends(end.connection);
            }
            Side::Receiver => self.finish_receives(end.connection),
        }
    }

    fn read_mailboxes(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        for held in &connection.ends[Side::Sender as usize].held {
            let mailbox = &self.mailboxes[self.owners[held.qp].memory];
            let sender = connection.sender.half_mut();
            loop {
                let line = mailbox.line(sender.expected_credit().0);
                match sender.handle_credit(held.path, held.generation, &line) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        return self.fail(Class::Safety, format!("{index}: credit: {error}"));
                    }
                }
            }
            let counter = mailbox.counter();
            let result = sender.handle_counter(held.path, held.generation, counter);
            if let Err(error) = result {
                return self.fail(Class::Safety, format!("{index}: counter: {error}"));
            }
        }
    }

    /// The bug that takes the NIC's word for the receiver's: sources are overwritten too early.
    fn trust_acknowledgements(&mut self, index: usize) {
        let connection = &self.connections[index];
        for open in &connection.open_sends {
            if connection.postings.are_accepted(&self.nics, open.message) {
                self.memory.fill(open.buffer, Content::POISON);
            }
        }
    }

    fn finish_sends(&mut self, index: usize) {
        if self.bug == Some(Bug::DoneOnAcknowledgement) {
            self.trust_acknowledgements(index);
        }
        let now = self.queue.now();
        let mut position = 0;
        while position < self.connections[index].open_sends.len() {
            let connection = &mut self.connections[index];
            let open = connection.open_sends[position];
            let message = open.message;
            let sender = connection.sender.half();
            let status = open.eager.map_or_else(
                || sender.status(Seq(message as u64)),
                |slot| sender.eager_status(slot),
            );
            let SendStatus::Delivered { bytes } = status else {
                position += 1;
                continue;
            };
            let plan = connection.plan.messages[message];
            // Where no credit has come, nobody knows the room that its receive had.
            let is_bound = open
                .eager
                .is_none_or(|slot| sender.eager_seq(slot).is_some());
            let expected = if is_bound {
                plan.delivered()
            } else {
                plan.bytes
            };
            let result = connection
                .postings
                .done(&self.nics, now, message, |qp| connection.is_over(qp));
            let result = result.and(connection.check_delivered(&self.memory, message));
            connection.open_sends.swap_remove(position);
            let released = if let Some(slot) = open.eager {
                connection.release_eager(&mut self.memory, message, slot)
            } else {
                let seq = Seq(message as u64);
                let released = connection.sender.half_mut().release(seq);
                released.map_err(|error| error.to_string())
            };
            connection.sent += 1;
            connection.free_sources.push(open.buffer);
            // The user writes something else at once.
            self.memory.fill(open.buffer, Content::POISON);
            if let Err(text) = result {
                self.fail(Class::Safety, format!("sender of {index}: {text}"));
            }
            if u64::from(bytes) != expected || released.is_err() {
                let text = format!(
                    "send {message} of {index} done with {bytes} of {expected}: {released:?}"
                );
                self.fail(Class::Safety, text);
            }
        }
    }

    /// True: the next send waits for a credit.
    fn start_sends(&mut self, index: usize) -> bool {
        let now = self.queue.now();
        while self.violation.is_none() {
            let connection = &self.connections[index];
            let at = connection.rest_until;
            let next = self.next_sends(index);
            if next.is_empty() {
                return false;
            }
            if at > now {
                let end = EndId {
                    connection: index,
                    side: Side::Sender,
                };
                self.wake_at(end, at);
                return false;
            }
            if !next
                .into_iter()
                .any(|message| self.send_message(index, message))
            {
                return true;
            }
        }
        false
    }

    /// The messages that may be sent next: one, or where several ranks share the connection that
    /// of each, whoever comes first.
    fn next_sends(&mut self, index: usize) -> Vec<usize> {
        let connection = &self.connections[index];
        if !connection.plan.is_shared {
            let (group, member) = connection.sending;
            let group = connection.plan.groups.get(group);
            let next = group.map(|plan| plan.first + (plan.turn + member) % plan.count);
            return next.into_iter().collect();
        }
        let fronts = connection.ranks.iter().filter_map(|rank| rank.front());
        let mut next: Vec<usize> = fronts.copied().collect();
        let first = self.random.index(next.len().max(1));
        next.rotate_left(first);
        next
    }

    /// True: the message is on its way. False: it has to wait.
    fn send_message(&mut self, index: usize, message: usize) -> bool {
        let time = self.time();
        let connection = &mut self.connections[index];
        let plan = connection.plan.messages[message];
        let buffer = match connection.free_sources.pop() {
            Some(buffer) => buffer,
            None => self.memory.allocate(0),
        };
        let local = (RegionId(buffer as u32), 0);
        let sender = connection.sender.half_mut();
        match sender.submit_send(time, local, plan.bytes, plan.tag) {
            Ok(Some(seq)) => {
                self.memory.fill(buffer, plan.content);
                if seq.0 as usize != message {
                    let text = format!("send {message} of {index} became message {}", seq.0);
                    self.fail(Class::Safety, text);
                }
                self.sent_one(index, (message, buffer), None);
                true
            }
            Ok(None) => {
                let eager = self.send_eager(index, message, buffer);
                if eager.is_some() {
                    self.sent_one(index, (message, buffer), eager);
                } else {
                    self.connections[index].free_sources.push(buffer);
                }
                eager.is_some()
            }
            Err(error) => {
                self.fail(Class::Safety, format!("submit_send of {index}: {error}"));
                false
            }
        }
    }

    /// Whether a send that went ahead of its credit still waits for it.
    fn is_unbound(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let sender = connection.sender.half();
        let mut slots = connection.open_sends.iter().filter_map(|open| open.eager);
        slots.any(|slot| sender.eager_seq(slot).is_none())
    }

    /// A credit is missing: after a while the receiver is asked to say all again.
    fn starve(&mut self, index: usize) {
        let (time, now) = (self.time(), self.queue.now());
        let connection = &mut self.connections[index];
        // Where receives are far between nobody is surprised.
        let starved = STARVED.max(connection.plan.receive_rest / 8);
        let since = *connection.starved_since.get_or_insert(now);
        if now >= since + starved {
            connection.starved_since = Some(now);
            connection.sender.request_credits(time);
        }
        let end = EndId {
            connection: index,
            side: Side::Sender,
        };
        self.wake_at(end, since.max(now) + starved);
    }

    fn sent_one(
        &mut self,
        index: usize,
        (message, buffer): (usize, BufferId),
        eager: Option<usize>,
    ) {
        let now = self.queue.now();
        let connection = &mut self.connections[index];
        connection.open_sends.push(OpenSend {
            message,
            eager,
            buffer,
        });
        connection.starved_since = None;
        let rank = connection.plan.messages[message].tag as usize;
        connection.ranks[rank].pop_front();
        let (group, member) = connection.sending;
        if member + 1 < connection.plan.groups[group].count {
            connection.sending = (group, member + 1);
        } else {
            connection.sending = (group + 1, 0);
            connection.rest_until = now + self.random.below(connection.plan.rest + 1);
        }
    }

    /// What the receiving user does in one call: see what is done, open what comes next, and take
    /// what came ahead of its credit.
    pub(crate) fn progress_receiver(&mut self, index: usize) {
        while self.connections[index].copying.is_empty() {
            self.finish_receives(index);
            let is_given = self.start_receives(index) || self.take_eager(index);
            if !is_given {
                return;
            }
        }
    }

    fn finish_receives(&mut self, index: usize) {
        let now = self.queue.now();
        while let Some(&open) = self.connections[index].open_receives.front() {
            let connection = &mut self.connections[index];
            if !connection.receiver.half().is_done(open.first, open.count) {
                return;
            }
            connection.open_receives.pop_front();
            for member in 0..open.count {
                let connection = &mut self.connections[index];
                let seq = open.first.plus(member as u64);
                let bytes = u64::from(connection.receiver.half().bytes(seq));
                let buffer = open.buffers[member];
                let fences = connection
                    .postings
                    .done(&self.nics, now, seq.0 as usize, |_| false);
                connection.free_buffers.push(buffer);
                connection.received += 1;
                let received = connection.received;
                let bytes = self.memory.close(now, buffer, bytes);
                if let Err(text) = bytes.and(fences) {
                    let text = format!("receive {} of {index}: {text}", seq.0);
                    self.fail(Class::Safety, text);
                }
                self.on_delivered(index, received);
            }
            let released = self.connections[index]
                .receiver
                .half_mut()
                .release(open.first, open.count);
            if let Err(error) = released {
                self.fail(Class::Safety, format!("release of {index}: {error}"));
            }
        }
    }

    /// True: a message that was taken from a slot has found its receive.
    fn start_receives(&mut self, index: usize) -> bool {
        let (time, now) = (self.time(), self.queue.now());
        loop {
            let connection = &mut self.connections[index];
            let Some(&group) = connection.plan.groups.get(connection.receiving) else {
                return false;
            };
            if connection.open_receives.len() >= connection.plan.depth {
                return false;
            }
            if connection.receive_rest_until > now {
                let at = connection.receive_rest_until;
                let side = Side::Receiver;
                let connection = index;
                self.wake_at(EndId { connection, side }, at);
                return false;
            }
            let mut buffers = [0; 8];
            let mut request = [NOWHERE; 8];
            for member in 0..group.count {
                let buffer = match connection.free_buffers.pop() {
                    Some(buffer) => buffer,
                    None => self.memory.allocate(BYTES_MAX),
                };
                let plan = connection.plan.messages[group.first + member];
                buffers[member] = buffer;
                request[member] = ReceiveBuffer {
                    region: RegionId(buffer as u32),
                    address: address(buffer, 0),
                    capacity: plan.capacity,
                    tag: plan.tag,
                };
            }
            match connection
                .receiver
                .half_mut()
                .post_recv(time, &request[..group.count])
            {
                Ok(Some(first)) => {
                    connection.receiving += 1;
                    let open = OpenReceive {
                        first,
                        count: group.count,
                        buffers,
                    };
                    connection.open_receives.push_back(open);
                    let rest = self.random.below(connection.plan.receive_rest + 1);
                    connection.receive_rest_until = now + rest;
                    self.opened(index, group.first, &buffers[..group.count]);
                    if self.give_eagers(index) > 0 {
                        return true;
                    }
                }
                Ok(None) => {
                    connection
                        .free_buffers
                        .extend_from_slice(&buffers[..group.count]);
                    return false;
                }
                Err(error) => {
                    self.fail(Class::Safety, format!("post_recv of {index}: {error}"));
                    return false;
                }
            }
        }
    }

    fn opened(&mut self, index: usize, first: usize, buffers: &[usize]) {
        for (member, &buffer) in buffers.iter().enumerate() {
            let connection = &self.connections[index];
            let plan = connection.plan.messages[first + member];
            let (content, bytes) = (plan.content, plan.delivered());
            self.memory.open(buffer, Expected { content, bytes });
            if connection.plan.polled {
                for _ in 0..self.random.below(POLLS + 1) {
                    let delay = self.random.magnitude(MICROSECOND, 5 * MILLISECOND);
                    self.queue.after(delay, Event::Poll(buffer));
                }
            }
        }
    }

    /// The path of an index that is in range.
    pub(crate) fn path(index: usize) -> PathId {
        PathId::new(index as u8).unwrap_or(PathId::PRIMARY)
    }
}
