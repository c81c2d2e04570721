//! Small messages that go ahead of their credit: what the users at both ends do with them.
//!
//! The sender copies such a message to a staging buffer, from which its NIC reads. It lands in a
//! slot of the receiver's, of which each generation of a path has eight, with its head behind it.
//! The receiver looks at the heads, and copies what has found its receive, line by line while time
//! passes; until that is done nothing else happens at this end.

use r2ccl_core::limits::{CREDIT_BYTES, CREDIT_LINES_MAX};
use r2ccl_core::{Condition, EagerCopy, EagerWrite, RegionId, Seq};

use crate::bug::Bug;
use crate::check::Class;
use crate::connection::{Connection, Side};
use crate::memory::{BufferId, Content, LINE_BYTES, Memory, Payload, address, lines};
use crate::nic::{Body, Packet, Work};
use crate::queue::{MICROSECOND, Nanos};
use crate::world::{EndId, Event, World};

/// Lines that are copied without a pause, at the most.
const BURST: usize = 8;

/// Bytes of credit lines, as many of them as count, for an offset of the ring.
type Lines = (usize, [u8; CREDIT_BYTES * CREDIT_LINES_MAX], usize);

/// A copy from a slot to a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Copying {
    copy: EagerCopy,
    /// The slots of the generation that it lies in.
    slots: usize,
    /// The next line.
    line: u64,
    /// Pause after each burst.
    pause: Nanos,
}

/// What became of messages that went ahead of their credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EagerCounts {
    /// They were sent so.
    pub sent: u64,
    /// The receiver took them from their slot before their receive was opened.
    pub before: u64,
    /// The same, after it was opened.
    pub after: u64,
    /// They were lost with their path and sent once more in the ordinary way.
    pub lost: u64,
    /// Writes to slots that landed when their generation was over at the receiver.
    pub late: u64,
}

impl EagerCounts {
    /// Adds those of another world.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.before += other.before;
        self.after += other.after;
        self.lost += other.lost;
        self.late += other.late;
    }
}

/// Where a slot lies. One bug knows too few of them.
fn place_of(slot: usize, bug: Option<Bug>) -> usize {
    if bug == Some(Bug::SlotIsReused) {
        slot % 2
    } else {
        slot
    }
}

impl Connection {
    /// A send was reported done: then all its bytes are at the receiver.
    pub fn check_delivered(&self, memory: &Memory, message: usize) -> Result<(), String> {
        if message as u64 >= self.receiver.half().opened() {
            return Err(format!("message {message} was done before its receive"));
        }
        let open = self.open_receives.iter().find_map(|open| {
            let member = message.checked_sub(open.first.0 as usize)?;
            (member < open.count).then(|| open.buffers[member])
        });
        if open.is_some_and(|buffer| !memory.is_whole(buffer)) {
            return Err(format!("message {message} was done before it had arrived"));
        }
        Ok(())
    }

    /// The send that went ahead of its credit is done: it has become the message that it was meant
    /// to be, or its receiver has counted it and closed.
    pub fn release_eager(
        &mut self,
        memory: &mut Memory,
        message: usize,
        slot: usize,
    ) -> Result<(), String> {
        let sender = self.sender.half_mut();
        let seq = sender.eager_seq(slot);
        let is_counted = seq.is_none() && self.counted.is_some_and(|count| message < count);
        if seq != Some(Seq(message as u64)) && !is_counted {
            return Err(format!("it became message {seq:?}"));
        }
        if let Some(staging) = self.staging[slot] {
            memory.fill(staging, Content::POISON);
        }
        sender
            .release_eager(slot)
            .map_err(|error| error.to_string())
    }
}

impl World {
    /// Sums of the cores, at the end.
    pub(crate) fn count_lost(&mut self) {
        for connection in &self.connections {
            let statistics = connection.sender.half().snapshot().statistics;
            self.eager.sent += statistics.eager_sends;
            self.eager.lost += statistics.eager_lost;
        }
    }

    /// The sending user has no credit for a message: it may go ahead, in the slot that is returned.
    /// `None`: it has to wait.
    pub(crate) fn send_eager(
        &mut self,
        index: usize,
        message: usize,
        buffer: BufferId,
    ) -> Option<usize> {
        let time = self.time();
        let connection = &mut self.connections[index];
        let plan = connection.plan.messages[message];
        if !plan.may_be_eager {
            return None;
        }
        let local = (RegionId(buffer as u32), 0);
        let sender = connection.sender.half_mut();
        match sender.submit_eager(time, local, plan.bytes, plan.tag) {
            Ok(Some(write)) => {
                let count = sender.snapshot().statistics.eager_sends;
                self.memory.fill(buffer, plan.content);
                self.say(|| format!("{index}: message {message} goes ahead: {write:?}"));
                self.post_eager(index, &write, plan.content);
                self.on_ahead(index, count);
                Some(write.slot)
            }
            Ok(None) => None,
            Err(error) => {
                self.fail(Class::Safety, format!("submit_eager of {index}: {error}"));
                None
            }
        }
    }

    fn post_eager(&mut self, index: usize, write: &EagerWrite, content: Content) {
        let connection = &mut self.connections[index];
        let Some(held) = connection.held(Side::Sender, write.path, write.generation) else {
            let text = format!("{index} posts on a generation that is gone: {write:?}");
            return self.fail(Class::Safety, text);
        };
        let memory = &mut self.memory;
        let is_shared = self.bug == Some(Bug::StagingIsShared);
        let place = if is_shared { 0 } else { write.slot };
        let staging = *connection.staging[place].get_or_insert_with(|| memory.allocate(0));
        memory.fill(staging, content);
        let mut head = write.head;
        // The first word is the frontier, low byte first.
        match self.bug {
            Some(Bug::FrontierIsIgnored) => head[..8].fill(0),
            Some(Bug::EagerIsOvertaken) => head[0] = head[0].saturating_add(1),
            _ => {}
        }
        let body = Body::Eager {
            local: address(staging, 0),
            bytes: write.bytes,
            slots: held.remote,
            slot: place_of(write.slot, self.bug),
            head,
        };
        let work = Work {
            id: write.work.raw(),
            signaled: write.signaled,
            body,
        };
        let end = EndId {
            connection: index,
            side: Side::Sender,
        };
        self.check_kept_off(end, write.path, None);
        self.post_work(end, held, work);
    }

    /// A part of a message lands in a slot.
    pub(crate) fn land_eager(&mut self, packet: &Packet) {
        let Body::Eager {
            bytes,
            slots,
            slot,
            head,
            ..
        } = packet.work.body
        else {
            return;
        };
        let Some(qp) = self.nics.qps[packet.from].peer else {
            return;
        };
        let owner = self.owners[qp];
        if slots != owner.memory as u64 || owner.end.side != Side::Receiver {
            let text = format!("a write to slots {slots} came on queue pair {qp}");
            return self.fail(Class::Safety, text);
        }
        let entry = &mut self.slots[owner.memory][slot];
        if let Some(part) = packet.payload {
            entry.land(bytes, part);
        }
        if packet.part + 1 == packet.parts {
            entry.head = head;
        }
        let connection = &self.connections[owner.end.connection];
        let mut held = connection.ends[Side::Receiver as usize].held.iter();
        let receiver = connection.receiver.half();
        let is_counted = held.find(|held| held.qp == qp).is_some_and(|held| {
            receiver.generation(held.path) == Some(held.generation)
                && receiver.condition(held.path) != Some(Condition::Retired)
        });
        self.eager.late += u64::from(!is_counted);
        self.wake_owner(qp);
    }

    /// Looks into the slots. True: a message has found its receive.
    pub(crate) fn take_eager(&mut self, index: usize) -> bool {
        self.keep_dropped(index);
        let mut taken = 0;
        for entry in 0..self.connections[index].ends[Side::Receiver as usize]
            .held
            .len()
        {
            while self.take_head(index, entry) {
                taken += 1;
            }
        }
        let given = self.give_eagers(index);
        self.eager.after += given;
        self.eager.before += taken - given;
        given > 0
    }

    /// Takes the next message from the slots of a queue pair, if it is there.
    fn take_head(&mut self, index: usize, entry: usize) -> bool {
        let connection = &mut self.connections[index];
        let held = &mut connection.ends[Side::Receiver as usize].held[entry];
        let receiver = connection.receiver.half_mut();
        let Some(slot) = receiver.eager_slot(held.path) else {
            return false;
        };
        let slots = self.owners[held.qp].memory;
        let place = place_of(slot, self.bug);
        let slot = &self.slots[slots][place];
        match receiver.handle_eager(held.path, held.generation, &slot.head) {
            Ok(false) => false,
            Ok(true) => {
                held.taken += 1;
                if self.bug == Some(Bug::EagerSurvivesFence) {
                    connection.kept = Some((held.path, held.generation, slot.clone()));
                }
                self.say(|| format!("{index}: taken from slot {place} of {slots}"));
                true
            }
            Err(error) => {
                self.fail(Class::Safety, format!("handle_eager of {index}: {error}"));
                false
            }
        }
    }

    /// Gives the messages that were taken from slots to their receives, where these are open: the
    /// copies begin. Returns how many.
    pub(crate) fn give_eagers(&mut self, index: usize) -> u64 {
        let mut given = 0;
        let receiver = |world: &mut Self| world.connections[index].receiver.half_mut().poll_eager();
        while let Some(copy) = receiver(self) {
            given += 1;
            self.give_eager(index, copy);
        }
        given
    }

    fn give_eager(&mut self, index: usize, copy: EagerCopy) {
        self.say(|| format!("{index}: given: {copy:?}"));
        let connection = &mut self.connections[index];
        let generation = connection.receiver.half().generation(copy.path);
        let held = generation.and_then(|of| connection.held(Side::Receiver, copy.path, of));
        connection.kept = None;
        if let Err(text) = connection.postings.take(copy.seq.0 as usize) {
            self.fail(Class::Safety, format!("{index}: {text}"));
        }
        let Some(held) = held else {
            let text = format!("{index}: the slot of {copy:?} is gone");
            return self.fail(Class::Safety, text);
        };
        if copy.bytes == 0 {
            return;
        }
        let pause = self.random.magnitude(100, 20 * MICROSECOND);
        let copying = &mut self.connections[index].copying;
        if copying.is_empty() {
            let end = EndId {
                connection: index,
                side: Side::Receiver,
            };
            self.queue.after(pause, Event::Copy(end));
        }
        copying.push_back(Copying {
            copy,
            slots: self.owners[held.qp].memory,
            line: 0,
            pause,
        });
    }

    /// Whether an end does nothing but copy.
    pub(crate) fn is_copying(&self, end: EndId) -> bool {
        end.side == Side::Receiver
            && !self.connections[end.connection].copying.is_empty()
            && self.bug != Some(Bug::CopyIsNotAwaited)
    }

    /// The copy goes on.
    pub(crate) fn copy(&mut self, end: EndId) {
        if self.is_stuck(end, Event::Copy(end)) {
            return;
        }
        let now = self.queue.now();
        let Some(&(mut copying)) = self.connections[end.connection].copying.front() else {
            return;
        };
        let copy = copying.copy;
        let count = lines(copy.bytes.into());
        let slot = place_of(copy.slot, self.bug);
        for _ in 0..1 + self.random.index(BURST) {
            let place = copying.line;
            if place == count {
                break;
            }
            let part = Payload {
                content: self.slots[copying.slots][slot].read(copy.payload, place),
                place,
                bytes: (u64::from(copy.bytes) - place * LINE_BYTES).min(LINE_BYTES),
            };
            let at = copy.address + place * LINE_BYTES;
            if let Err(text) = self.memory.land(now, at, part) {
                self.fail(Class::Safety, format!("copy from a slot: {text}"));
            }
            copying.line += 1;
        }
        let connection = &mut self.connections[end.connection];
        connection.copying.pop_front();
        if copying.line < count {
            connection.copying.push_front(copying);
        }
        if let Some(next) = connection.copying.front() {
            self.queue.after(next.pause, Event::Copy(end));
            return;
        }
        for event in core::mem::take(&mut connection.deferred) {
            self.queue.after(0, event);
        }
        self.wake_at(end, now);
    }

    /// What happens to an end that copies has to wait.
    pub(crate) fn defer(&mut self, event: Event) -> Option<Event> {
        let end = match &event {
            Event::Frame(end, _)
            | Event::Fence(end, ..)
            | Event::Created(end, ..)
            | Event::Connected(end, ..)
            | Event::Probed(end, ..)
            | Event::Told(end, ..)
            | Event::PeerGone(end) => *end,
            _ => return Some(event),
        };
        if self.is_copying(end) {
            self.connections[end.connection].deferred.push(event);
            return None;
        }
        Some(event)
    }

    /// The bug that keeps what was dropped with its generation: it turns up in another slot.
    fn keep_dropped(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let receiver = connection.receiver.half();
        let is_newest = |path, generation| receiver.generation(path) == Some(generation);
        let live = connection.ends[Side::Receiver as usize]
            .held
            .iter()
            .find(|held| {
                is_newest(held.path, held.generation)
                    && receiver.condition(held.path) == Some(Condition::Live)
            });
        let Some((path, generation, mut slot)) = connection.kept.clone() else {
            return;
        };
        let is_over =
            !is_newest(path, generation) || receiver.condition(path) == Some(Condition::Retired);
        let Some(held) = live.filter(|_| is_over) else {
            return;
        };
        let Some(free) = receiver.eager_slot(held.path) else {
            return;
        };
        slot.head[16..20].copy_from_slice(&held.generation.0.to_le_bytes());
        slot.head[24..].copy_from_slice(&(held.taken + 1).to_le_bytes());
        self.slots[self.owners[held.qp].memory][free] = slot;
        connection.kept = None;
    }

    /// The credit lines that are written from `first` on. One bug leaves those out that were
    /// written once and whose message is delivered.
    pub(crate) fn without_held(&mut self, end: EndId, first: Seq, lines: Lines) -> Lines {
        let (offset, mut bytes, count) = lines;
        let connection = &mut self.connections[end.connection];
        let told = connection.credited;
        connection.credited = told.max(first.plus((count / CREDIT_BYTES) as u64));
        if self.bug != Some(Bug::HeldCreditIsForgotten) {
            return lines;
        }
        let known = Seq(connection.receiver.half().delivered()).min(told);
        let known = known.0.saturating_sub(first.0) as usize * CREDIT_BYTES;
        let skipped = known.min(count);
        bytes.copy_within(skipped.., 0);
        (offset + skipped, bytes, count - skipped)
    }
}
