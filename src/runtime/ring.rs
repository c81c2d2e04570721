//! The memory of a sender that its receiver writes to: credit lines and the delivered counter.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use r2ccl_core::limits::{CREDIT_BYTES, WINDOW};
use r2ccl_fabric::Access;

use super::error::{Error, Result};
use super::memory::{Lease, MemoryCache};

/// One credit ring and counter word: one generation of one path. It must outlive its queue pair.
pub struct Ring {
    lease: Option<Lease>,
    memory: NonNull<u8>,
}

/// The counter lies behind the lines, on a cache line of its own.
const COUNTER_OFFSET: usize = WINDOW * CREDIT_BYTES;
const RING_BYTES: usize = COUNTER_OFFSET + 64;
const RING_ALIGN: usize = 4096;
const LINE_WORDS: usize = CREDIT_BYTES / 8;

// SAFETY: the memory belongs to the ring alone and is read through atomics only.
unsafe impl Send for Ring {}

impl Ring {
    /// Allocates and registers a ring on the device of `cache`.
    pub fn new(cache: &Arc<MemoryCache>) -> Result<Self> {
        // SAFETY: the layout has a size above zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout()?) })
            .ok_or_else(|| Error::System(format!("no memory for a ring of {RING_BYTES} bytes")))?;
        let mut ring = Self {
            lease: None,
            memory,
        };
        // SAFETY: `drop` gives the lease back before it frees the memory.
        ring.lease =
            Some(unsafe { cache.lease(memory.as_ptr(), RING_BYTES, Access::RemoteWrite) }?);
        Ok(ring)
    }

    /// Address of the first credit line.
    pub fn credits_address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// Key for the peer.
    pub fn rkey(&self) -> u32 {
        self.lease
            .as_ref()
            .map_or(0, |lease| lease.registration().rkey)
    }

    /// Address of the credit line of `slot` in a ring at `base`.
    pub fn line_address(base: u64, slot: usize) -> u64 {
        base + (slot % WINDOW * CREDIT_BYTES) as u64
    }

    /// Address of the counter of a ring at `base`.
    pub fn counter_address(base: u64) -> u64 {
        base + COUNTER_OFFSET as u64
    }

    /// The delivered counter as the receiver has written it.
    pub fn counter(&self) -> u64 {
        u64::from_le(self.word(COUNTER_OFFSET / 8).load(Ordering::Acquire))
    }

    /// Copies a credit line, its sequence first: whoever then finds the expected sequence has the
    /// whole line, since a NIC writes it in ascending order and the sequence stands last.
    pub fn line(&self, slot: usize) -> [u8; CREDIT_BYTES] {
        let first = slot % WINDOW * LINE_WORDS;
        let mut line = [0; CREDIT_BYTES];
        for index in (0..LINE_WORDS).rev() {
            let word = self.word(first + index).load(Ordering::Acquire);
            line[index * 8..][..8].copy_from_slice(&word.to_ne_bytes());
        }
        line
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < RING_BYTES / 8);
        // SAFETY: the index lies inside the allocation, which is aligned and lives as long as
        // `self`; the peer's NIC writes whole aligned words.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().cast::<u64>().add(index)) }
    }
}

fn layout() -> Result<Layout> {
    Layout::from_size_align(RING_BYTES, RING_ALIGN)
        .map_err(|error| Error::Internal(format!("layout of the credit ring: {error}")))
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.lease = None;
        if let Ok(layout) = layout() {
            // SAFETY: allocated with this layout, and no device knows the memory any more.
            unsafe { dealloc(self.memory.as_ptr(), layout) };
        }
    }
}
