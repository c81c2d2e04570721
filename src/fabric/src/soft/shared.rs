//! What a queue pair shares with the service thread and its lanes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use socket2::Socket;

use super::device::Inner;
use super::memory::Region;
use super::wire::{CHUNK_BYTES_MAX, LANE_WINDOW, Refusal};

/// Smallest part that a write is cut into for the lanes.
const CHUNK_BYTES_MIN: u32 = 64 * 1024;
/// Chunks start at multiples of this, so that LL128 lines stay whole.
const CHUNK_ALIGNMENT: u32 = 128;

/// A connected socket whose hello was right.
pub(super) struct Arrival {
    /// 0 for the main socket, k for lane k - 1.
    pub(super) index: u16,
    /// Secret of the queue pair that dialled.
    pub(super) source_secret: u64,
    pub(super) socket: Socket,
}

/// What a lane has found wrong; the owner of the queue pair acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneFault {
    /// The source of an own write is no longer registered.
    Source { sequence: u32 },
    /// The peer's write is to be refused.
    Refused { sequence: u32, refusal: Refusal },
}

/// A write that the lanes carry, or what is left of it.
pub(super) struct LaneWrite {
    pub(super) sequence: u32,
    pub(super) region: Arc<Region>,
    pub(super) source: u64,
    pub(super) destination: u64,
    pub(super) key: u32,
    /// Bytes of the whole write.
    pub(super) total: u32,
    /// Bytes that no lane has taken.
    pub(super) missing: u32,
    pub(super) chunk: u32,
}

impl LaneWrite {
    /// How large the chunks of a write of `bytes` are, so that all lanes get a share.
    pub(super) fn chunk_bytes(bytes: u32, lanes: usize) -> u32 {
        let lanes = u32::try_from(lanes).unwrap_or(u32::MAX).max(1);
        let share = bytes.div_ceil(lanes).next_multiple_of(CHUNK_ALIGNMENT);
        share.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
    }

    /// Cuts the next chunk off the front.
    fn split(&mut self) -> Chunk {
        let bytes = self.chunk.min(self.missing);
        let chunk = Chunk {
            sequence: self.sequence,
            region: Arc::clone(&self.region),
            source: self.source,
            destination: self.destination,
            key: self.key,
            offset: self.total - self.missing,
            total: self.total,
            bytes,
        };
        self.source += u64::from(bytes);
        self.destination = self.destination.wrapping_add(u64::from(bytes));
        self.missing -= bytes;
        chunk
    }
}

/// What one lane sends as one frame.
pub(super) struct Chunk {
    pub(super) sequence: u32,
    pub(super) region: Arc<Region>,
    pub(super) source: u64,
    pub(super) destination: u64,
    pub(super) key: u32,
    /// Where in the write the chunk starts.
    pub(super) offset: u32,
    /// Bytes of the whole write.
    pub(super) total: u32,
    pub(super) bytes: u32,
}

/// The part of a queue pair that other threads see.
pub(super) struct Shared {
    pub(super) device: Arc<Inner>,
    pub(super) number: u32,
    pub(super) secret: u64,
    /// The queue pair is fenced: nobody may touch memory for it.
    stopped: AtomicBool,
    arrivals: Mutex<Vec<Arrival>>,
    arrived: AtomicBool,
    /// A socket could not be made or was lost.
    broken: AtomicBool,
    /// `fault` holds something.
    faulty: AtomicBool,
    fault: Mutex<Option<LaneFault>>,
    writes: Mutex<VecDeque<LaneWrite>>,
    /// Bytes that lanes have landed, by sequence modulo the window.
    landed: Box<[AtomicU64]>,
    /// Oldest sequence that may still land.
    base: AtomicU32,
}

impl Shared {
    pub(super) fn new(device: Arc<Inner>, number: u32, secret: u64, lanes: u16) -> Self {
        let window = if lanes > 0 { LANE_WINDOW as usize } else { 0 };
        Self {
            device,
            number,
            secret,
            stopped: AtomicBool::new(false),
            arrivals: Mutex::new(Vec::new()),
            arrived: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            faulty: AtomicBool::new(false),
            fault: Mutex::new(None),
            writes: Mutex::new(VecDeque::with_capacity(window)),
            landed: (0..window).map(|_| AtomicU64::new(0)).collect(),
            base: AtomicU32::new(0),
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// First half of the fence; the second is to wait for every lane.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.writes.lock().clear();
        self.arrivals.lock().clear();
    }

    /// Hands a socket over; more than the queue pair could use are dropped.
    pub(super) fn deliver(&self, arrival: Arrival) {
        let mut arrivals = self.arrivals.lock();
        let known = arrivals.iter().any(|other| other.index == arrival.index);
        if !known && !self.is_stopped() {
            arrivals.push(arrival);
            self.arrived.store(true, Ordering::Release);
        }
    }

    /// Sockets that have come since the last call.
    pub(super) fn take_arrivals(&self) -> Option<Vec<Arrival>> {
        self.arrived
            .swap(false, Ordering::AcqRel)
            .then(|| std::mem::take(&mut *self.arrivals.lock()))
    }

    pub(super) fn has_arrivals(&self) -> bool {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Notes that a socket could not be made or was lost.
    pub(super) fn set_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Notes a fault. Of refusals the one of the oldest write counts, else the first fault.
    pub(super) fn set_fault(&self, fault: LaneFault) {
        let base = self.base.load(Ordering::Acquire);
        let age = |sequence: u32| sequence.wrapping_sub(base);
        let mut slot = self.fault.lock();
        let counts = match (&*slot, &fault) {
            (None, _) => true,
            (
                Some(LaneFault::Refused { sequence: old, .. }),
                LaneFault::Refused { sequence: new, .. },
            ) => age(*new) < age(*old),
            _ => false,
        };
        if counts {
            *slot = Some(fault);
        }
        self.faulty.store(true, Ordering::Release);
    }

    pub(super) fn fault(&self) -> Option<LaneFault> {
        if !self.faulty.load(Ordering::Acquire) {
            return None;
        }
        *self.fault.lock()
    }

    /// Queues a write for the lanes and returns how many of them it keeps busy.
    pub(super) fn push_write(&self, write: LaneWrite) -> u32 {
        let chunks = write.missing.div_ceil(write.chunk);
        self.writes.lock().push_back(write);
        chunks
    }

    /// Next chunk for a lane that has nothing to send.
    pub(super) fn next_chunk(&self) -> Option<Chunk> {
        let mut writes = self.writes.lock();
        let front = writes.front_mut()?;
        let chunk = front.split();
        if front.missing == 0 {
            writes.pop_front();
        }
        Some(chunk)
    }

    /// Whether writes may come by lanes.
    pub(super) fn has_lanes(&self) -> bool {
        !self.landed.is_empty()
    }

    /// Whether a lane may still deliver bytes of a write.
    pub(super) fn is_open(&self, sequence: u32) -> bool {
        let ahead = sequence.wrapping_sub(self.base.load(Ordering::Acquire));
        u64::from(ahead) < self.landed.len() as u64
    }

    /// Counts bytes that a lane has put in place.
    pub(super) fn add_landed(&self, sequence: u32, bytes: u32) {
        if let Some(count) = self
            .landed
            .get(sequence as usize % self.landed.len().max(1))
        {
            count.fetch_add(u64::from(bytes), Ordering::Release);
        }
    }

    /// Bytes of a write that the lanes have put in place.
    pub(super) fn landed(&self, sequence: u32) -> u64 {
        self.landed
            .get(sequence as usize % self.landed.len().max(1))
            .map_or(0, |count| count.load(Ordering::Acquire))
    }

    /// Closes the oldest write: all its bytes are in place.
    pub(super) fn close_write(&self, sequence: u32) {
        if let Some(count) = self
            .landed
            .get(sequence as usize % self.landed.len().max(1))
        {
            count.store(0, Ordering::Relaxed);
            self.base.store(sequence.wrapping_add(1), Ordering::Release);
        }
    }
}
