//! Grouped receives, as NCCL posts them for ncclSend and ncclRecv over shared connections: one
//! receive of 1 to 8 buffers, each with a tag, and sends of several independent queues (NCCL's
//! sub-operations) that reach the connection in shuffled order.

use super::data;
use super::host::{Host, RunError};
use super::link::group_max;
use super::memory::Slots;
use super::message::{Faults, Go, Measured};
use crate::net::{Comm, GROUP_MAX, Memory, Net, NetError, ReceiveBuffer, Request};

/// Groups under way at once.
const GROUPS: usize = 8;
/// Content of a receive buffer before its message.
const BLANK: u8 = 0xa5;

/// The shape of all groups of a measurement, known to both sides.
#[derive(Clone, Copy)]
struct Shape {
    link: u32,
    base: u64,
    size: usize,
    widest: usize,
    check: bool,
}

impl Shape {
    /// Buffers of a group: all numbers from 1 to the widest occur, in mixed order.
    fn width(&self, group: u64) -> usize {
        1 + (group as usize * 5 + group as usize / self.widest) % self.widest
    }

    /// Bytes of the message of queue `queue` in a group: whole, half, nothing or one byte.
    fn bytes(&self, group: u64, queue: usize) -> usize {
        match (group as usize + queue) % 4 {
            1 => self.size / 2,
            2 => 0,
            3 => self.size.min(1),
            _ => self.size,
        }
    }

    /// Tag of a queue: NCCL uses the sender's rank.
    fn tag(queue: usize) -> i32 {
        100 + 7 * queue as i32
    }

    /// Place of a queue's buffer in the receive.
    fn queue_at(&self, group: u64, place: usize) -> usize {
        (place + group as usize) % self.width(group)
    }

    /// Number of the message in the pattern of `data`.
    fn message(&self, group: u64, queue: usize) -> u64 {
        self.base + group * GROUP_MAX as u64 + queue as u64
    }

    fn slot(group: u64, queue: usize) -> usize {
        (group as usize % GROUPS) * GROUP_MAX + queue
    }
}

/// One end's buffers.
struct Buffers {
    slots: Slots,
    memory: Memory,
}

impl Buffers {
    fn new(net: &Net, comm: Comm, shape: &Shape, offset: usize) -> Result<Self, RunError> {
        let slots = Slots::new(GROUPS * GROUP_MAX, shape.size.max(1), offset)?;
        let memory = net.register(comm, slots.base(), slots.mapped())?;
        Ok(Buffers { slots, memory })
    }
}

/// The sending side: a queue per tag, each in order and testing its oldest request only.
struct Sending {
    comm: Comm,
    shape: Shape,
    buffers: Buffers,
    requests: [Option<Request>; GROUPS * GROUP_MAX],
    next: [u64; GROUP_MAX],
    oldest: [u64; GROUP_MAX],
    filled: [bool; GROUP_MAX],
    turn: usize,
}

impl Sending {
    /// One visit of all queues, in another order each time.
    fn round(&mut self, net: &Net, count: u64) -> Result<bool, NetError> {
        let mut moved = false;
        self.turn = self.turn.wrapping_mul(5).wrapping_add(3);
        for place in 0..self.shape.widest {
            let rotated = (place + self.turn / 8) % self.shape.widest;
            let backwards = self.turn & 64 != 0;
            let queue = if backwards {
                self.shape.widest - 1 - rotated
            } else {
                rotated
            };
            moved |= self.offer(net, queue, count)? || self.test(net, queue)?;
        }
        Ok(moved)
    }

    /// First group from `group` on in which a queue takes part.
    fn joins(&self, queue: usize, mut group: u64, count: u64) -> u64 {
        while group < count && self.shape.width(group) <= queue {
            group += 1;
        }
        group
    }

    fn offer(&mut self, net: &Net, queue: usize, count: u64) -> Result<bool, NetError> {
        let group = self.joins(queue, self.next[queue], count);
        let slot = Shape::slot(group, queue);
        if group >= count || self.requests[slot].is_some() {
            return Ok(false);
        }
        let bytes = self.shape.bytes(group, queue);
        if !self.filled[queue] && self.shape.check {
            let message = self.shape.message(group, queue);
            let content = &mut self.buffers.slots.bytes(slot)[..bytes];
            data::fill(u64::from(self.shape.link), message, content);
            self.filled[queue] = true;
        }
        let address = self.buffers.slots.address(slot);
        let tag = Shape::tag(queue);
        let request = net.isend(self.comm, address, bytes, tag, self.buffers.memory)?;
        let Some(request) = request else {
            return Ok(false);
        };
        self.requests[slot] = Some(request);
        self.next[queue] = group + 1;
        self.filled[queue] = false;
        Ok(true)
    }

    fn test(&mut self, net: &Net, queue: usize) -> Result<bool, NetError> {
        let group = self.joins(queue, self.oldest[queue], self.next[queue]);
        let slot = Shape::slot(group, queue);
        if group >= self.next[queue] {
            return Ok(false);
        }
        let Some(request) = self.requests[slot] else {
            return Ok(false);
        };
        if net.test(request, 1, false)?.is_none() {
            return Ok(false);
        }
        self.requests[slot] = None;
        self.oldest[queue] = group + 1;
        if self.shape.check {
            self.buffers.slots.bytes(slot).fill(BLANK);
        }
        Ok(true)
    }

    fn complete(&self, count: u64) -> bool {
        (0..self.shape.widest).all(|queue| self.joins(queue, self.oldest[queue], count) == count)
    }
}

/// The receiving side.
struct Receiving {
    comm: Comm,
    shape: Shape,
    buffers: Buffers,
    requests: [Option<Request>; GROUPS],
    posted: u64,
    done: u64,
    blanked: bool,
    bytes: u64,
    messages: u64,
    faults: Faults,
}

impl Receiving {
    fn round(&mut self, net: &Net, count: u64) -> Result<bool, NetError> {
        Ok(self.post(net, count)? || self.test(net)?)
    }

    fn post(&mut self, net: &Net, count: u64) -> Result<bool, NetError> {
        let group = self.posted;
        if group >= count || group >= self.done + GROUPS as u64 {
            return Ok(false);
        }
        if self.shape.check && !self.blanked {
            if let Some(before) = group.checked_sub(GROUPS as u64) {
                self.look_again(before);
            }
            for queue in 0..self.shape.width(group) {
                self.buffers
                    .slots
                    .bytes(Shape::slot(group, queue))
                    .fill(BLANK);
            }
            self.blanked = true;
        }
        let mut buffers = Vec::with_capacity(GROUP_MAX);
        for place in 0..self.shape.width(group) {
            let queue = self.shape.queue_at(group, place);
            buffers.push(ReceiveBuffer {
                address: self.buffers.slots.address(Shape::slot(group, queue)),
                bytes: self.buffers.slots.room(),
                tag: Shape::tag(queue),
                memory: self.buffers.memory,
            });
        }
        let Some(request) = net.irecv(self.comm, &buffers)? else {
            return Ok(false);
        };
        self.requests[group as usize % GROUPS] = Some(request);
        self.posted += 1;
        self.blanked = false;
        Ok(true)
    }

    fn test(&mut self, net: &Net) -> Result<bool, NetError> {
        let group = self.done;
        let at = group as usize % GROUPS;
        let Some(request) = self.requests[at] else {
            return Ok(false);
        };
        let width = self.shape.width(group);
        let Some(sizes) = net.test(request, width, true)? else {
            return Ok(false);
        };
        self.requests[at] = None;
        self.done += 1;
        for (place, &size) in sizes.iter().enumerate().take(width) {
            let queue = self.shape.queue_at(group, place);
            self.bytes += size as u64;
            self.messages += 1;
            self.faults.wrong_sizes += u64::from(size != self.shape.bytes(group, queue));
        }
        if self.shape.check {
            self.faults.wrong_bytes += self.wrong(group);
        }
        Ok(true)
    }

    /// Bytes of a finished group that are not what was sent.
    fn wrong(&mut self, group: u64) -> u64 {
        let shape = self.shape;
        let mut wrong = 0;
        for queue in 0..shape.width(group) {
            let bytes = self.buffers.slots.bytes(Shape::slot(group, queue));
            let (content, tail) = bytes.split_at(shape.bytes(group, queue));
            let message = shape.message(group, queue);
            wrong += data::wrong(u64::from(shape.link), message, content);
            wrong += tail.iter().filter(|&&byte| byte != BLANK).count() as u64;
        }
        wrong
    }

    /// Looks once more at a finished group, and at the guards around its buffers.
    fn look_again(&mut self, group: u64) {
        self.faults.late_bytes += self.wrong(group);
        for queue in 0..self.shape.width(group) {
            self.faults.outside_bytes += self.buffers.slots.outside(Shape::slot(group, queue));
        }
    }
}

/// `count` groups on every connection.
pub fn run(host: &mut Host, go: &Go) -> Result<Measured, RunError> {
    host.release()?;
    let (mut sending, mut receiving) = ends(host, go)?;
    let count = go.count;
    let mut watch = host.begin()?;
    loop {
        let mut moved = false;
        for end in &mut sending {
            moved |= end.round(&host.net, count)?;
        }
        for end in &mut receiving {
            moved |= end.round(&host.net, count)?;
        }
        let received = receiving.iter().all(|end| end.done == count);
        if received && sending.iter().all(|end| end.complete(count)) {
            break;
        }
        host.turn(&mut watch, moved)
            .map_err(|error| stalled(error, &sending, &receiving))?;
    }
    let (nanoseconds, gap_ns) = (watch.nanoseconds(), watch.gap_ns);
    let mut measured = Measured {
        nanoseconds,
        gap_ns,
        ..Measured::default()
    };
    for end in &mut receiving {
        if end.shape.check {
            (count.saturating_sub(GROUPS as u64)..count).for_each(|group| end.look_again(group));
        }
        measured.bytes += end.bytes;
        measured.messages += end.messages;
        measured.faults.add(&end.faults);
        host.net.deregister(end.comm, end.buffers.memory)?;
    }
    for end in &sending {
        host.net.deregister(end.comm, end.buffers.memory)?;
    }
    Ok(measured)
}

/// Adds where the queues stand to the report about a run that does not move.
fn stalled(error: RunError, sending: &[Sending], receiving: &[Receiving]) -> RunError {
    let mut text = error.to_string();
    for end in sending {
        let (link, next, oldest) = (end.shape.link, end.next, end.oldest);
        text.push_str(&format!(
            " link {link}: groups sent {next:?}, done {oldest:?};"
        ));
    }
    for end in receiving {
        let (link, posted, done) = (end.shape.link, end.posted, end.done);
        text.push_str(&format!(
            " link {link}: groups posted {posted}, received {done};"
        ));
    }
    RunError::Other(text)
}

fn ends(host: &Host, go: &Go) -> Result<(Vec<Sending>, Vec<Receiving>), RunError> {
    let shape = |link| Shape {
        link,
        base: host.runs << 40,
        size: usize::try_from(go.size).unwrap_or(usize::MAX),
        widest: group_max(host.max_recvs),
        check: host.plan.check,
    };
    let (mut sending, mut receiving) = (Vec::new(), Vec::new());
    for sender in &host.senders {
        let (comm, shape) = (sender.comm(), shape(sender.link));
        sending.push(Sending {
            comm,
            shape,
            buffers: Buffers::new(&host.net, comm, &shape, host.plan.offset)?,
            requests: [None; GROUPS * GROUP_MAX],
            next: [0; GROUP_MAX],
            oldest: [0; GROUP_MAX],
            filled: [false; GROUP_MAX],
            turn: sender.link as usize,
        });
    }
    for receiver in &host.receivers {
        let (comm, shape) = (receiver.comm(), shape(receiver.link));
        receiving.push(Receiving {
            comm,
            shape,
            buffers: Buffers::new(&host.net, comm, &shape, host.plan.offset)?,
            requests: [None; GROUPS],
            posted: 0,
            done: 0,
            blanked: false,
            bytes: 0,
            messages: 0,
            faults: Faults::default(),
        });
    }
    Ok((sending, receiving))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_occurs_and_places_are_a_permutation() {
        for widest in 1..=GROUP_MAX {
            let shape = Shape {
                link: 0,
                base: 0,
                size: 64,
                widest,
                check: true,
            };
            let mut widths = [0u32; GROUP_MAX + 1];
            for group in 0..200 {
                let width = shape.width(group);
                widths[width] += 1;
                let mut queues: Vec<_> = (0..width).map(|p| shape.queue_at(group, p)).collect();
                queues.sort_unstable();
                assert_eq!(queues, (0..width).collect::<Vec<_>>());
            }
            assert!(
                widths[1..=widest].iter().all(|&count| count > 0),
                "{widths:?}"
            );
        }
    }
}
