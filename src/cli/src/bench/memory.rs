//! The memory that messages come from and go to.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Untouched bytes on either side of every slot, to see writes outside it.
pub const GUARD_BYTES: usize = 64;
/// Their content.
const GUARD: u8 = 0xc7;
/// Page size that slots are aligned to.
const PAGE: usize = 4096;

/// A page-aligned mapping of its own, cut into slots of equal size. Freed memory is unmapped, so
/// that a plugin which still writes there is found at once.
///
/// The plugin writes into slots while this type holds only the raw address: slices are made only
/// of slots that no request covers.
pub struct Slots {
    base: NonNull<u8>,
    mapped: usize,
    stride: usize,
    shift: usize,
    room: usize,
    count: usize,
}

impl Slots {
    /// `count` slots with room for `room` bytes each, `offset` bytes off the page boundary. All
    /// pages are touched.
    pub fn new(count: usize, room: usize, offset: usize) -> Result<Self, String> {
        let shift = GUARD_BYTES.next_multiple_of(PAGE).max(PAGE) + offset;
        let stride = (shift + room + GUARD_BYTES).next_multiple_of(PAGE);
        let bytes = stride.checked_mul(count).and_then(NonZeroUsize::new);
        let bytes = bytes.ok_or("a buffer of this size does not fit into the address space")?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses.
        let base = unsafe { mmap_anonymous(None, bytes, protection, flags) }
            .map_err(|error| format!("cannot map {bytes} bytes of buffers: {error}"))?;
        let slots = Slots {
            base: base.cast(),
            mapped: bytes.get(),
            stride,
            shift,
            room,
            count,
        };
        for slot in 0..count {
            slots.guards(slot, |guard| guard.fill(GUARD));
        }
        Ok(slots)
    }

    /// Number of slots.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of a slot.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Start of the whole mapping, for registration.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes of the whole mapping.
    pub fn mapped(&self) -> usize {
        self.mapped
    }

    /// Address of a slot.
    pub fn address(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.count, "slot {slot} of {}", self.count);
        // SAFETY: slot < count, so that stride * slot + shift lies inside the mapping.
        unsafe { self.base.as_ptr().add(slot * self.stride + self.shift) }
    }

    /// The bytes of a slot that no request covers.
    pub fn bytes(&mut self, slot: usize) -> &mut [u8] {
        // SAFETY: the mapping holds `room` bytes from the slot's address on; the plugin has
        // reported its request done, so nothing else may touch them.
        unsafe { std::slice::from_raw_parts_mut(self.address(slot), self.room) }
    }

    /// Number of guard bytes around a slot that have changed; they are restored.
    pub fn outside(&mut self, slot: usize) -> u64 {
        let mut changed = 0;
        self.guards(slot, |guard| {
            changed += guard.iter().filter(|&&byte| byte != GUARD).count() as u64;
            guard.fill(GUARD);
        });
        changed
    }

    fn guards(&self, slot: usize, mut visit: impl FnMut(&mut [u8])) {
        let address = self.address(slot);
        // SAFETY: `shift` leaves at least a page before the slot and the stride leaves
        // GUARD_BYTES behind it; requests never cover guards.
        unsafe {
            visit(std::slice::from_raw_parts_mut(
                address.sub(GUARD_BYTES),
                GUARD_BYTES,
            ));
            visit(std::slice::from_raw_parts_mut(
                address.add(self.room),
                GUARD_BYTES,
            ));
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`. The link has ended its registration before.
        // An error cannot be handled and leaves the memory mapped, which harms nobody.
        let _ = unsafe { munmap(self.base.cast(), self.mapped) };
    }
}
