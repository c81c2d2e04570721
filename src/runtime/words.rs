//! Registered memory that a peer's NIC writes to while this process reads it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use r2ccl_fabric::{Access, Registration};

use super::error::{Error, Result};
use super::memory::{Lease, MemoryCache};

const ALIGN: usize = 4096;

/// A block of zeroed words, registered for remote writes. It must outlive the queue pairs through
/// which it is written.
pub struct Words {
    lease: Option<Lease>,
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to this value alone; what a NIC writes is read through atomics only.
unsafe impl Send for Words {}

impl Words {
    /// Allocates and registers `bytes`, a multiple of 8, on the device of `cache`.
    pub fn new(cache: &Arc<MemoryCache>, bytes: usize) -> Result<Self> {
        // SAFETY: the layout has a size above zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout(bytes)?) })
            .ok_or_else(|| Error::System(format!("no memory for a block of {bytes} bytes")))?;
        let mut words = Self {
            lease: None,
            memory,
            bytes,
        };
        // SAFETY: `drop` gives the lease back before it frees the memory.
        words.lease = Some(unsafe { cache.lease(memory.as_ptr(), bytes, Access::RemoteWrite) }?);
        Ok(words)
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// Its keys.
    pub fn registration(&self) -> Registration {
        let none = Registration { lkey: 0, rkey: 0 };
        self.lease.as_ref().map_or(none, Lease::registration)
    }

    /// The byte at `offset`.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes, "outside of the block");
        // SAFETY: inside the allocation, or one behind it.
        unsafe { self.memory.as_ptr().add(offset) }
    }

    /// Copies the `N` bytes at `offset`, both multiples of 8, the last word first: whoever then
    /// finds a marker there has all that was written before it, since a NIC writes in ascending
    /// order.
    pub fn copy_backwards<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut copy = [0; N];
        for (index, word) in copy.chunks_exact_mut(8).enumerate().rev() {
            let value = self.word(offset / 8 + index).load(Ordering::Acquire);
            word.copy_from_slice(&value.to_ne_bytes());
        }
        copy
    }

    /// Word `index`.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.bytes / 8, "outside of the block");
        // SAFETY: the index lies inside the allocation, which is aligned and lives as long as
        // `self`; the peer's NIC writes whole aligned words.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().cast::<u64>().add(index)) }
    }
}

fn layout(bytes: usize) -> Result<Layout> {
    Layout::from_size_align(bytes, ALIGN)
        .map_err(|error| Error::Internal(format!("layout of a block of words: {error}")))
}

impl Drop for Words {
    fn drop(&mut self) {
        self.lease = None;
        if let Ok(layout) = layout(self.bytes) {
            // SAFETY: allocated with this layout, and no device knows the memory any more.
            unsafe { dealloc(self.memory.as_ptr(), layout) };
        }
    }
}
