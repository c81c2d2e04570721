//! What a generation of a path has in memory that is registered for it: at the sender credit lines,
//! the delivered counter and the copy of an eager message, at the receiver the slot that such a
//! message goes to.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use r2ccl_core::EagerWrite;
use r2ccl_core::limits::{CREDIT_BYTES, CREDIT_RING_BYTES, EAGER_BYTES_MAX, EAGER_HEAD_BYTES};
use r2ccl_core::wire::eager::{EAGER_SLOT_BYTES, eager_padded};
use r2ccl_fabric::{WriteSource, copy_words};

use super::error::Result;
use super::memory::MemoryCache;
use super::words::Words;

/// The counter lies behind the lines, on a cache line of its own, and the copy behind that.
const COUNTER_OFFSET: usize = CREDIT_RING_BYTES;
const COPY_OFFSET: usize = COUNTER_OFFSET + 64;
const RING_BYTES: usize = COPY_OFFSET + EAGER_SLOT_BYTES;

/// Memory of the other end that a generation of a path writes to.
#[derive(Clone, Copy, Debug)]
pub struct PeerMemory {
    /// Its first byte in the peer's process.
    pub address: u64,
    /// Its key.
    pub rkey: u32,
}

impl PeerMemory {
    /// Address of the credit line of `slot` in the ring that lies there.
    pub fn line(&self, slot: usize) -> u64 {
        self.address + (slot * CREDIT_BYTES) as u64
    }

    /// Address of its counter.
    pub fn counter(&self) -> u64 {
        self.address + COUNTER_OFFSET as u64
    }

    /// Where an eager payload of `bytes` begins in the slot that lies there.
    fn payload(&self, bytes: u32) -> u64 {
        self.address + payload_offset(bytes) as u64
    }
}

/// Payloads end where the head begins.
fn payload_offset(bytes: u32) -> usize {
    EAGER_BYTES_MAX - eager_padded(bytes).min(EAGER_BYTES_MAX)
}

/// Credit ring, counter and copy of one generation, at the sender.
pub struct Ring(Words);

impl Ring {
    /// Allocates and registers a ring on the device of `cache`.
    pub fn new(cache: &Arc<MemoryCache>) -> Result<Self> {
        Words::new(cache, RING_BYTES).map(Self)
    }

    /// For the peer.
    pub fn memory(&self) -> PeerMemory {
        peer_memory(&self.0)
    }

    /// The delivered counter as the receiver has written it.
    pub fn counter(&self) -> u64 {
        u64::from_le(self.0.word(COUNTER_OFFSET / 8).load(Ordering::Acquire))
    }

    /// Copies the credit line of `slot`.
    pub fn line(&self, slot: usize) -> [u8; CREDIT_BYTES] {
        self.0.copy_backwards(slot * CREDIT_BYTES)
    }

    /// Copies an eager message with its head, and tells what to write and where to.
    ///
    /// # Safety
    /// `payload` must be readable for the bytes of `write`, and the write of the message before
    /// must be complete.
    pub unsafe fn stage(
        &mut self,
        write: &EagerWrite,
        payload: *const u8,
        to: PeerMemory,
    ) -> (WriteSource, u64) {
        let offset = payload_offset(write.bytes);
        let begin = self.0.at(COPY_OFFSET + offset);
        let head = self.0.at(COPY_OFFSET + EAGER_BYTES_MAX);
        // SAFETY: both lie inside the copy, which no NIC reads now; the caller vouches for the
        // payload.
        unsafe {
            begin.copy_from_nonoverlapping(payload, write.bytes as usize);
            head.copy_from_nonoverlapping(write.head.as_ptr(), EAGER_HEAD_BYTES);
        }
        let source = WriteSource::Registered {
            address: begin as u64,
            len: (EAGER_SLOT_BYTES - offset) as u32,
            lkey: self.0.registration().lkey,
        };
        (source, to.payload(write.bytes))
    }
}

/// Slot of one generation for a message ahead of its credit, at the receiver.
pub struct Slot(Words);

impl Slot {
    /// Allocates and registers a slot on the device of `cache`.
    pub fn new(cache: &Arc<MemoryCache>) -> Result<Self> {
        Words::new(cache, EAGER_SLOT_BYTES).map(Self)
    }

    /// For the peer.
    pub fn memory(&self) -> PeerMemory {
        peer_memory(&self.0)
    }

    /// Copies the head.
    pub fn head(&self) -> [u8; EAGER_HEAD_BYTES] {
        self.0.copy_backwards(EAGER_BYTES_MAX)
    }

    /// Copies the first `bytes` of a payload of `payload` bytes, as a NIC would write them.
    ///
    /// # Safety
    /// `destination` must be writable for `bytes`.
    pub unsafe fn copy_out(&self, payload: u32, destination: *mut u8, bytes: u32) {
        let source = self.0.at(payload_offset(payload));
        let bytes = bytes.min(payload) as usize;
        // SAFETY: the payload lies inside the slot, and the sender writes to it again only when
        // this message is delivered; the caller vouches for the destination.
        unsafe { copy_words(destination, source, bytes) };
    }
}

fn peer_memory(words: &Words) -> PeerMemory {
    PeerMemory {
        address: words.address(),
        rkey: words.registration().rkey,
    }
}
