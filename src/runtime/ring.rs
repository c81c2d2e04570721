//! What a generation of a path has in memory that is registered for it: a mailbox at both ends, at
//! the sender credit lines, the delivered counter and copies of eager messages, at the receiver the
//! slots that such messages go to.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use r2ccl_core::limits::{CREDIT_BYTES, CREDIT_RING_BYTES, EAGER_BYTES_MAX, EAGER_HEAD_BYTES};
use r2ccl_core::wire::eager::{EAGER_RING_BYTES, EAGER_SLOT_BYTES, eager_padded};
use r2ccl_core::{EagerCopy, EagerWrite};
use r2ccl_fabric::{WriteSource, copy_words};

use super::error::Result;
use super::mailbox::MAILBOX_BYTES;
use super::memory::MemoryCache;
use super::words::Words;

/// The lines lie behind the mailbox, the counter behind them, on a cache line of its own, and the
/// copies behind that.
const LINES_OFFSET: usize = MAILBOX_BYTES;
const COUNTER_OFFSET: usize = LINES_OFFSET + CREDIT_RING_BYTES;
const COPIES_OFFSET: usize = COUNTER_OFFSET + 64;
const RING_BYTES: usize = COPIES_OFFSET + EAGER_RING_BYTES;
/// At the receiver the slots lie behind the mailbox.
const SLOTS_OFFSET: usize = MAILBOX_BYTES;

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
        self.address + (LINES_OFFSET + slot * CREDIT_BYTES) as u64
    }

    /// Address of its counter.
    pub fn counter(&self) -> u64 {
        self.address + COUNTER_OFFSET as u64
    }

    /// Where an eager payload of `bytes` begins in `slot` of those that lie there.
    fn payload(&self, slot: usize, bytes: u32) -> u64 {
        self.address + (SLOTS_OFFSET + payload_offset(slot, bytes)) as u64
    }
}

/// Memory of one generation of a path that the peer writes to.
pub trait PathMemory: Sized + Send + 'static {
    /// Allocates and registers it on the device of `cache`.
    fn new(cache: &Arc<MemoryCache>) -> Result<Self>;

    /// All of it; it begins with the mailbox.
    fn words(&self) -> &Words;

    /// For the peer.
    fn memory(&self) -> PeerMemory {
        PeerMemory {
            address: self.words().address(),
            rkey: self.words().registration().rkey,
        }
    }
}

/// Where the head of an eager message begins.
fn head_offset(slot: usize) -> usize {
    slot * EAGER_SLOT_BYTES + EAGER_BYTES_MAX
}

/// Payloads end where the head begins.
fn payload_offset(slot: usize, bytes: u32) -> usize {
    head_offset(slot) - eager_padded(bytes).min(EAGER_BYTES_MAX)
}

/// Credit ring, counter and copies of one generation, at the sender.
pub struct Ring(Words);

impl PathMemory for Ring {
    fn new(cache: &Arc<MemoryCache>) -> Result<Self> {
        Words::new(cache, RING_BYTES).map(Self)
    }

    fn words(&self) -> &Words {
        &self.0
    }
}

impl Ring {
    /// The delivered counter as the receiver has written it.
    pub fn counter(&self) -> u64 {
        u64::from_le(self.0.word(COUNTER_OFFSET / 8).load(Ordering::Acquire))
    }

    /// Copies the credit line of `slot`.
    pub fn line(&self, slot: usize) -> [u8; CREDIT_BYTES] {
        self.0.copy_backwards(LINES_OFFSET + slot * CREDIT_BYTES)
    }

    /// Copies an eager message with its head, and tells what to write and where to.
    ///
    /// # Safety
    /// `payload` must be readable for the bytes of `write`, and the message before in its slot must
    /// be delivered.
    pub unsafe fn stage(
        &mut self,
        write: &EagerWrite,
        payload: *const u8,
        to: PeerMemory,
    ) -> (WriteSource, u64) {
        let offset = payload_offset(write.slot, write.bytes);
        let head_offset = head_offset(write.slot);
        let begin = self.0.at(COPIES_OFFSET + offset);
        let head = self.0.at(COPIES_OFFSET + head_offset);
        // SAFETY: both lie inside the copy, which no NIC reads now; the caller vouches for the
        // payload.
        unsafe {
            begin.copy_from_nonoverlapping(payload, write.bytes as usize);
            head.copy_from_nonoverlapping(write.head.as_ptr(), EAGER_HEAD_BYTES);
        }
        let source = WriteSource::Registered {
            address: begin as u64,
            len: (head_offset + EAGER_HEAD_BYTES - offset) as u32,
            lkey: self.0.registration().lkey,
        };
        (source, to.payload(write.slot, write.bytes))
    }
}

/// Slots of one generation for messages ahead of their credits, at the receiver.
pub struct Slots(Words);

impl PathMemory for Slots {
    fn new(cache: &Arc<MemoryCache>) -> Result<Self> {
        Words::new(cache, SLOTS_OFFSET + EAGER_RING_BYTES).map(Self)
    }

    fn words(&self) -> &Words {
        &self.0
    }
}

impl Slots {
    /// Copies the head in `slot`.
    pub fn head(&self, slot: usize) -> [u8; EAGER_HEAD_BYTES] {
        self.0.copy_backwards(SLOTS_OFFSET + head_offset(slot))
    }

    /// Copies an eager message to its buffer, as a NIC would write it.
    ///
    /// # Safety
    /// The buffer must be registered and mapped.
    pub unsafe fn copy_out(&self, copy: &EagerCopy) {
        let offset = SLOTS_OFFSET + payload_offset(copy.slot, copy.payload);
        let source = self.0.at(offset);
        let bytes = copy.bytes.min(copy.payload) as usize;
        // SAFETY: the payload lies inside its slot, and the sender writes there again only when
        // this message is delivered; the caller vouches for the destination.
        unsafe { copy_words(copy.address as *mut u8, source, bytes) };
    }
}
