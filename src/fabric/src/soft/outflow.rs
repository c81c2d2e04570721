//! The sender's half of a queue pair on its main socket: the send queue, and how it becomes frames.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::device::Inner;
use super::lanes::Lane;
use super::limiter::Appetite;
use super::memory::{Cache, Region};
use super::shared::{LaneWrite, Shared};
use super::sys;
use super::wire::{
    FLAG_ACK_REQUEST, FLAG_IMMEDIATE, HEADER_BYTES, Header, Kind, LANE_WINDOW, Refusal, padding,
    widen,
};
use crate::{Completion, Opcode, SendWork, Status, WriteSource};

/// Frames that one system call hands over at the most.
const FRAMES_PER_CALL: usize = 32;
/// Bytes that one system call hands over at the most: keeps the owner's calls short.
const BYTES_PER_CALL: usize = 1 << 20;
/// An acknowledgement is asked for at least after so many writes.
const ACK_INTERVAL: u32 = 64;
/// Source of padding.
static ZEROS: [u8; 8] = [0; 8];

/// Writes above this size travel by lanes where there are lanes.
pub(super) const MAIN_BYTES_MAX: u32 = 64 * 1024;

struct Entry {
    work: SendWork,
    region: Option<Arc<Region>>,
    ack_request: bool,
    by_lanes: bool,
    /// Key or bounds of the source are wrong.
    bad_source: bool,
}

impl Entry {
    fn payload(&self) -> (*const u8, usize) {
        match &self.work.source {
            _ if self.by_lanes => (ZEROS.as_ptr(), 0),
            WriteSource::Inline { bytes, len } => (bytes.as_ptr(), usize::from(*len)),
            WriteSource::Registered { address, len, .. } => (*address as *const u8, *len as usize),
        }
    }

    fn header(&self, sequence: u64, landed: u64) -> Header {
        let mut flags = 0;
        if self.work.immediate.is_some() {
            flags |= FLAG_IMMEDIATE;
        }
        if self.ack_request {
            flags |= FLAG_ACK_REQUEST;
        }
        Header {
            kind: if self.by_lanes {
                Kind::LaneWrite
            } else {
                Kind::Write
            },
            flags,
            length: self.work.source.len(),
            sequence: sequence as u32,
            acknowledged: landed as u32,
            address: self.work.remote_address,
            key: self.work.rkey,
            immediate: self.work.immediate.unwrap_or(0),
        }
    }
}

/// A frame of the current call.
struct Frame {
    header: [u8; HEADER_BYTES],
    bytes: usize,
    is_write: bool,
}

/// Buffers of the current call; kept, so that nothing is allocated per message.
struct Scratch {
    frames: Vec<Frame>,
    buffers: Vec<libc::iovec>,
    /// Bytes of the first frame that went out earlier.
    skip: usize,
    /// Bytes that may still be gathered.
    room: usize,
}

// SAFETY: the pointers in `buffers` are only used inside the call that has put them there.
unsafe impl Send for Scratch {}

impl Scratch {
    fn append(&mut self, address: *const u8, bytes: usize) {
        if self.skip >= bytes {
            self.skip -= bytes;
            return;
        }
        let skip = std::mem::take(&mut self.skip);
        let bytes = (bytes - skip).min(self.room);
        if bytes > 0 {
            self.room -= bytes;
            self.buffers
                .push(sys::buffer(address.wrapping_add(skip), bytes));
        }
    }

    fn push(&mut self, header: [u8; HEADER_BYTES], payload: (*const u8, usize), is_write: bool) {
        let (address, length) = payload;
        let bytes = HEADER_BYTES + length + padding(length);
        self.frames.push(Frame {
            header,
            bytes,
            is_write,
        });
        // The vector never grows beyond its first capacity, so the header stays where it is.
        let header = self.frames[self.frames.len() - 1].header.as_ptr();
        self.append(header, HEADER_BYTES);
        self.append(address, length);
        self.append(ZEROS.as_ptr(), padding(length));
    }
}

/// What stops the sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFault {
    /// Key or bounds of the next write's source are wrong.
    Source,
    /// The socket is broken.
    Lost,
}

/// The send queue.
pub(super) struct Outflow {
    queue: VecDeque<Entry>,
    depth: usize,
    /// Number of the front of the queue.
    first: u64,
    /// Writes before this one are acknowledged.
    acknowledged: u64,
    /// Bytes of those that have been taken from the queue.
    bytes: u64,
    /// First write that the socket has not taken wholly.
    next: u64,
    /// First write that has not been given to the lanes, where it is one for them.
    lane_next: u64,
    /// The frame that the socket has taken in part: header, bytes taken, whether it is a write.
    partial: Option<([u8; HEADER_BYTES], usize, bool)>,
    /// The last call did not get everything out.
    blocked: bool,
    /// An acknowledgement is to be asked for by a frame of its own.
    ask: bool,
    /// The write without valid source that this was last done for.
    asked_before: Option<u64>,
    unasked: u32,
    ack_interval: u32,
    scratch: Scratch,
    cache: Cache,
    appetite: Appetite,
}

impl Outflow {
    pub(super) fn new(depth: u32) -> Self {
        Self {
            queue: VecDeque::with_capacity(depth as usize),
            depth: depth as usize,
            first: 0,
            acknowledged: 0,
            bytes: 0,
            next: 0,
            lane_next: 0,
            partial: None,
            blocked: false,
            ask: false,
            asked_before: None,
            unasked: 0,
            ack_interval: ACK_INTERVAL.min(depth / 2).max(1),
            scratch: Scratch {
                frames: Vec::with_capacity(FRAMES_PER_CALL + 1),
                buffers: Vec::with_capacity(3 * (FRAMES_PER_CALL + 1)),
                skip: 0,
                room: 0,
            },
            cache: Cache::default(),
            appetite: Appetite::default(),
        }
    }

    fn end(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Bytes of writes that the peer has.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether writes wait for their acknowledgement.
    pub(super) fn has_unacknowledged(&self) -> bool {
        self.acknowledged < self.end()
    }

    /// Whether something waits that only further calls push out.
    pub(super) fn has_backlog(&self) -> bool {
        self.next < self.end() || self.partial.is_some() || self.ask
    }

    /// Whether the socket did not take everything the last time.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Takes work into the queue; false when it is full.
    pub(super) fn push(&mut self, work: &SendWork, shared: &Shared, lanes: u16) -> bool {
        if self.queue.len() >= self.depth {
            return false;
        }
        let mut region = None;
        let mut bad_source = false;
        let mut by_lanes = false;
        let source = match work.source {
            WriteSource::Registered { address, len, lkey } if len > 0 => Some((address, len, lkey)),
            _ => None,
        };
        if let Some((address, len, lkey)) = source {
            let memory = shared.device.memory();
            region = self
                .cache
                .find(memory, lkey, address, u64::from(len), false)
                .cloned();
            bad_source = region.is_none();
            by_lanes = lanes > 0 && len > MAIN_BYTES_MAX;
        }
        self.unasked += 1;
        let ack_request = work.signaled || by_lanes || self.unasked >= self.ack_interval;
        if ack_request {
            self.unasked = 0;
        }
        self.queue.push_back(Entry {
            work: *work,
            region,
            ack_request,
            by_lanes,
            bad_source,
        });
        true
    }

    /// Notes that the peer has all writes before the one that `wire` names.
    pub(super) fn acknowledge(&mut self, wire: u32) -> Result<(), Refusal> {
        let acknowledged = widen(self.acknowledged, wire);
        if acknowledged < self.acknowledged || acknowledged > self.next {
            return Err(Refusal::Invalid);
        }
        self.acknowledged = acknowledged;
        Ok(())
    }

    /// Writes completions of acknowledged work to the front of `completions`.
    pub(super) fn report(&mut self, completions: &mut [Completion]) -> usize {
        let mut count = 0;
        while self.first < self.acknowledged {
            let Some(entry) = self.queue.front() else {
                break;
            };
            if entry.work.signaled {
                let Some(slot) = completions.get_mut(count) else {
                    break;
                };
                *slot = completion(&entry.work, Status::Success);
                count += 1;
            }
            self.bytes += u64::from(entry.work.source.len());
            self.queue.pop_front();
            self.first += 1;
        }
        count
    }

    /// As [`Outflow::report`] for a queue pair in error: `guilty` says which write failed how.
    pub(super) fn flush(
        &mut self,
        guilty: Option<(u64, Status)>,
        completions: &mut [Completion],
    ) -> usize {
        let mut count = self.report(completions);
        while self.first >= self.acknowledged && count < completions.len() {
            let Some(entry) = self.queue.pop_front() else {
                break;
            };
            let status = match guilty {
                Some((sequence, status)) if sequence == self.first => status,
                _ => Status::Flushed,
            };
            completions[count] = completion(&entry.work, status);
            self.first += 1;
            count += 1;
        }
        count
    }

    /// Hands frames to the socket with one system call. `landed` is the acknowledgement to send;
    /// `ack_due` says whether the peer waits for it, and is cleared when it is under way.
    pub(super) fn pump(
        &mut self,
        socket: RawFd,
        shared: &Shared,
        lanes: &[Arc<Lane>],
        landed: u64,
        ack_due: &mut bool,
    ) -> Result<(), SendFault> {
        let limiter = shared.device.limiter();
        let room = limiter.map_or(BYTES_PER_CALL, |limiter| {
            let wanted = self.wanted();
            limiter.take(&mut self.appetite, wanted)
        });
        self.scratch.room = room & !7;
        let (held_from, held_to) = self.gather(shared, lanes, landed, *ack_due);
        let gathered: usize = self.scratch.buffers.iter().map(|it| it.iov_len).sum();
        let sent = if gathered == 0 {
            Ok(0)
        } else {
            // SAFETY: headers and inline payloads lie in this queue, and the regions of the others
            // are held.
            unsafe { sys::send(socket, &mut self.scratch.buffers) }
        };
        for sequence in held_from..held_to {
            if let Some(region) = &self.queue[(sequence - self.first) as usize].region {
                region.release();
            }
        }
        let sent = match sent {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return Err(SendFault::Lost),
        };
        self.blocked = sent < gathered || self.scratch.room < HEADER_BYTES;
        self.advance(sent, ack_due);
        if let Some(limiter) = limiter {
            limiter.give_back(room.saturating_sub(sent));
            if sent < gathered || !self.has_backlog() {
                limiter.satisfy(&mut self.appetite);
            }
        }
        self.check_source()
    }

    /// Nothing more will be sent.
    pub(super) fn stop(&mut self, device: &Inner) {
        device.satisfy(&mut self.appetite);
    }

    /// Bytes that the next call could hand over.
    fn wanted(&self) -> usize {
        let partial = self.partial.map_or(0, |(_, taken, _)| taken);
        let mut bytes = HEADER_BYTES;
        for entry in self.queue.range((self.next - self.first) as usize..) {
            let length = entry.payload().1;
            bytes += HEADER_BYTES + length + padding(length);
            if bytes >= BYTES_PER_CALL + partial {
                break;
            }
        }
        bytes.saturating_sub(partial).min(BYTES_PER_CALL)
    }

    /// Fills the scratch; returns the range of writes whose regions it holds.
    fn gather(
        &mut self,
        shared: &Shared,
        lanes: &[Arc<Lane>],
        landed: u64,
        ack_due: bool,
    ) -> (u64, u64) {
        self.scratch.frames.clear();
        self.scratch.buffers.clear();
        self.scratch.skip = 0;
        let mut cursor = self.next;
        let held_from = cursor;
        match self.partial {
            Some((header, taken, false)) => {
                self.scratch.skip = taken;
                self.scratch.push(header, (ZEROS.as_ptr(), 0), false);
            }
            None if self.ask || (ack_due && cursor == self.end()) => {
                // Acknowledgements are not payload: the rate limit does not hold them back.
                self.scratch.room = self.scratch.room.max(HEADER_BYTES);
                let header = control(Kind::Control, self.ask, self.next, landed);
                self.scratch
                    .push(header.encode(), (ZEROS.as_ptr(), 0), false);
            }
            _ => {}
        }
        while cursor < self.end()
            && self.scratch.room >= HEADER_BYTES
            && self.scratch.frames.len() < FRAMES_PER_CALL
        {
            let entry = &mut self.queue[(cursor - self.first) as usize];
            if entry.by_lanes && cursor >= self.lane_next {
                if cursor - self.acknowledged >= LANE_WINDOW {
                    break;
                }
                self.lane_next = cursor + 1;
                if let Some(write) = lane_write(entry, cursor, lanes.len()) {
                    let busy = shared.push_write(write) as usize;
                    lanes.iter().take(busy).for_each(Lane::kick);
                }
            }
            entry.bad_source |= entry.region.as_ref().is_some_and(|region| !region.hold());
            if entry.bad_source {
                break;
            }
            let header = match self.partial {
                Some((header, taken, true)) if cursor == self.next => {
                    self.scratch.skip = taken;
                    header
                }
                _ => entry.header(cursor, landed).encode(),
            };
            let payload = entry.payload();
            self.scratch.push(header, payload, true);
            cursor += 1;
        }
        (held_from, cursor)
    }

    /// Moves past what the socket has taken.
    fn advance(&mut self, sent: usize, ack_due: &mut bool) {
        let mut left = sent;
        for frame in &self.scratch.frames {
            let earlier = self.partial.map_or(0, |(_, taken, _)| taken);
            if left == 0 {
                break;
            }
            if earlier == 0 {
                // A fresh header carries the acknowledgement of now.
                *ack_due = false;
            }
            let missing = frame.bytes - earlier;
            if left < missing {
                self.partial = Some((frame.header, earlier + left, frame.is_write));
                break;
            }
            left -= missing;
            self.partial = None;
            if frame.is_write {
                self.next += 1;
            } else {
                self.ask = false;
            }
        }
    }

    /// A write without a valid source fails when its turn has come and all before it are done.
    fn check_source(&mut self) -> Result<(), SendFault> {
        if self.next == self.end() || !self.queue[(self.next - self.first) as usize].bad_source {
            return Ok(());
        }
        if self.acknowledged == self.next || self.partial.is_some() {
            return Err(SendFault::Source);
        }
        self.ask |= self.asked_before != Some(self.next);
        self.asked_before = Some(self.next);
        Ok(())
    }

    /// Number of the write that is next to go out.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Tells the peer, if the stream stands between two frames, a last thing before it ends.
    pub(super) fn send_last(&mut self, socket: RawFd, header: &Header) {
        if self.partial.is_none() {
            let bytes = header.encode();
            // SAFETY: the buffer lives for the call. A socket that does not take it is as good as
            // lost, and the peer will see that.
            let _ = unsafe { sys::send(socket, &mut [sys::buffer(bytes.as_ptr(), bytes.len())]) };
        }
    }
}

/// Header of a frame without payload.
pub(super) fn control(kind: Kind, ask: bool, sequence: u64, landed: u64) -> Header {
    Header {
        kind,
        flags: if ask { FLAG_ACK_REQUEST } else { 0 },
        length: 0,
        sequence: sequence as u32,
        acknowledged: landed as u32,
        address: 0,
        key: 0,
        immediate: 0,
    }
}

fn completion(work: &SendWork, status: Status) -> Completion {
    Completion {
        id: work.id,
        status,
        opcode: Opcode::Write,
        byte_len: 0,
        immediate: 0,
    }
}

fn lane_write(entry: &Entry, sequence: u64, lanes: usize) -> Option<LaneWrite> {
    let WriteSource::Registered { address, len, .. } = entry.work.source else {
        return None;
    };
    Some(LaneWrite {
        sequence: sequence as u32,
        region: Arc::clone(entry.region.as_ref()?),
        source: address,
        destination: entry.work.remote_address,
        key: entry.work.rkey,
        total: len,
        missing: len,
        chunk: LaneWrite::chunk_bytes(len, lanes),
    })
}
