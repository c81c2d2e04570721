//! Registered memory of a device: keys, bounds and rights (PROTOCOL R35), and the end of a
//! registration (PROTOCOL R38).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::RwLock;

use crate::{Access, DeviceError};

/// Low bits of a key: index of the slot. The others change with each use of the slot.
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// A registered region.
pub(super) struct Region {
    key: u32,
    address: u64,
    bytes: u64,
    remote_write: bool,
    live: AtomicBool,
    users: AtomicU32,
}

impl Region {
    /// Whether `bytes` at `address` lie inside the region.
    pub(super) fn contains(&self, address: u64, bytes: u64) -> bool {
        address
            .checked_sub(self.address)
            .and_then(|offset| offset.checked_add(bytes))
            .is_some_and(|end| end <= self.bytes)
    }

    /// Starts a use of the memory. The deregistration waits for its end, so it lasts no longer
    /// than one copy or one non-blocking system call. `None` when the region is gone.
    pub(super) fn enter(&self) -> Option<Use<'_>> {
        self.hold().then(|| Use(self))
    }

    /// As [`Region::enter`], ended by [`Region::release`]; false when the region is gone.
    pub(super) fn hold(&self) -> bool {
        // The order of these two against the two in `Table::deregister` must be total: either the
        // user sees the end of the region, or the deregistration sees the user.
        self.users.fetch_add(1, Ordering::SeqCst);
        let live = self.live.load(Ordering::SeqCst);
        if !live {
            self.release();
        }
        live
    }

    /// Ends a use that [`Region::hold`] has started.
    pub(super) fn release(&self) {
        self.users.fetch_sub(1, Ordering::Release);
    }
}

/// A use of a region's memory.
pub(super) struct Use<'a>(&'a Region);

impl Drop for Use<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

#[derive(Default)]
struct Slots {
    regions: Vec<Option<Arc<Region>>>,
    /// Upper bits of the key that the slot gets next.
    tags: Vec<u32>,
    /// Oldest first, so that a key comes back as late as possible.
    free: VecDeque<u32>,
}

/// The registrations of one device.
#[derive(Default)]
pub(super) struct Table {
    slots: RwLock<Slots>,
}

impl Table {
    /// Returns the key of the new region.
    pub(super) fn register(
        &self,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u32, DeviceError> {
        if address.checked_add(bytes).is_none() {
            return Err(DeviceError(format!(
                "memory region of {bytes} bytes at {address:#x} wraps around the address space"
            )));
        }
        let mut slots = self.slots.write();
        let index = match slots.free.pop_front() {
            Some(index) => index,
            None if slots.regions.len() as u32 <= INDEX_MASK => {
                let first_tag = getrandom::u32().map_err(|error| {
                    DeviceError(format!("no random numbers for a memory key: {error}"))
                })?;
                slots.regions.push(None);
                slots.tags.push(first_tag);
                slots.regions.len() as u32 - 1
            }
            None => {
                return Err(DeviceError(format!(
                    "no memory key left: {} regions are registered; deregister unused ones",
                    slots.regions.len()
                )));
            }
        };
        let tag = &mut slots.tags[index as usize];
        *tag = tag.wrapping_add(1);
        if *tag << INDEX_BITS == 0 {
            // Keeps key 0 free: it means "no key".
            *tag = tag.wrapping_add(1);
        }
        let key = *tag << INDEX_BITS | index;
        slots.regions[index as usize] = Some(Arc::new(Region {
            key,
            address,
            bytes,
            remote_write: access.is_remote(),
            live: AtomicBool::new(true),
            users: AtomicU32::new(0),
        }));
        Ok(key)
    }

    /// Ends the region of `key` and waits until nobody uses its memory.
    pub(super) fn deregister(&self, key: u32) {
        let region = {
            let mut slots = self.slots.write();
            let index = key & INDEX_MASK;
            let Some(slot) = slots.regions.get_mut(index as usize) else {
                return;
            };
            let Some(region) = slot.take_if(|region| region.key == key) else {
                return;
            };
            slots.free.push_back(index);
            region
        };
        region.live.store(false, Ordering::SeqCst);
        while region.users.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
    }

    fn find(&self, key: u32) -> Option<Arc<Region>> {
        let slots = self.slots.read();
        let region = slots.regions.get((key & INDEX_MASK) as usize)?.as_ref()?;
        (region.key == key).then(|| Arc::clone(region))
    }
}

/// Regions that a queue pair or lane used lately: saves the table's shared lock.
#[derive(Default)]
pub(super) struct Cache {
    recent: [Option<Arc<Region>>; 8],
}

impl Cache {
    /// The region of `key` if `bytes` at `address` lie inside it and, for a `remote` writer, the
    /// rights allow it.
    pub(super) fn find(
        &mut self,
        table: &Table,
        key: u32,
        address: u64,
        bytes: u64,
        remote: bool,
    ) -> Option<&Arc<Region>> {
        let slot = &mut self.recent[key as usize % 8];
        let hit = slot
            .as_ref()
            .is_some_and(|region| region.key == key && region.live.load(Ordering::Relaxed));
        if !hit {
            *slot = table.find(key);
        }
        slot.as_ref()
            .filter(|region| region.contains(address, bytes) && (region.remote_write || !remote))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rights_and_keys_are_checked() {
        let table = Table::default();
        let mut cache = Cache::default();
        let key = table
            .register(0x1000, 0x100, Access::RemoteWrite)
            .expect("a key");
        let local = table.register(0x2000, 0, Access::Local).expect("a key");
        assert!(cache.find(&table, key, 0x1000, 0x100, true).is_some());
        assert!(cache.find(&table, key, 0x10ff, 1, true).is_some());
        for (address, bytes) in [
            (0xfff, 1),
            (0x1000, 0x101),
            (0x1100, 1),
            (u64::MAX, 1),
            (0x1001, u64::MAX),
        ] {
            assert!(
                cache.find(&table, key, address, bytes, true).is_none(),
                "{address:#x}"
            );
        }
        assert!(cache.find(&table, local, 0x2000, 0, false).is_some());
        assert!(cache.find(&table, local, 0x2000, 0, true).is_none());
        assert!(cache.find(&table, key ^ 1 << 31, 0x1000, 1, true).is_none());
        assert!(cache.find(&table, 0, 0x1000, 1, true).is_none());
        assert!(table.register(u64::MAX, 2, Access::Local).is_err());
    }

    #[test]
    fn an_ended_registration_is_gone_from_caches_and_its_key_does_not_come_back() {
        let table = Table::default();
        let mut cache = Cache::default();
        let first = table
            .register(0x1000, 8, Access::RemoteWrite)
            .expect("a key");
        let held = Arc::clone(
            cache
                .find(&table, first, 0x1000, 8, true)
                .expect("the region"),
        );
        table.deregister(first);
        table.deregister(first);
        assert!(held.enter().is_none());
        assert!(cache.find(&table, first, 0x1000, 8, true).is_none());
        let second = table
            .register(0x1000, 8, Access::RemoteWrite)
            .expect("a key");
        assert_eq!(first & INDEX_MASK, second & INDEX_MASK);
        assert_ne!(first, second);
        assert!(cache.find(&table, first, 0x1000, 8, true).is_none());
    }

    #[test]
    fn deregistration_waits_for_users() {
        let table = Table::default();
        let mut cache = Cache::default();
        let key = table.register(0x1000, 8, Access::Local).expect("a key");
        let region = Arc::clone(
            cache
                .find(&table, key, 0x1000, 8, false)
                .expect("the region"),
        );
        let usage = region.enter().expect("a use");
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                table.deregister(key);
                ended.store(true, Ordering::SeqCst);
            });
            while region.live.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert!(!ended.load(Ordering::SeqCst));
            drop(usage);
        });
        assert!(ended.load(Ordering::SeqCst));
    }
}
