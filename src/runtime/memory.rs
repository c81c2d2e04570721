//! Registrations: one per device and buffer, shared by all connections that name the same buffer.
//!
//! NCCL registers its big shared pool on every connection again, so a registration is counted and
//! made once. An entry without references is dropped at once (PROTOCOL R23): CUDA may map other
//! pages at the same address, and a kept entry would then name the wrong memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use r2ccl_core::RegionId;
use r2ccl_fabric::{Access, Registration, SharedDevice};

use super::error::{Error, Result};

/// What making a connection may take: queue pair, rings and tables come to some 300 KiB.
const SPARE_BYTES: usize = 2 << 20;

/// Sees that the process can still get memory, at the beginning of calls that allocate. Rust ends
/// the process when an ordinary allocation fails, so the limit is to be found by one that may. What
/// other threads take meanwhile is a risk that stays.
pub fn check_spare() -> Result<()> {
    let mut spare = Vec::<u8>::new();
    let reserved = spare.try_reserve_exact(SPARE_BYTES);
    // Seen by somebody, so that it is not left out.
    std::hint::black_box(spare.as_ptr());
    reserved.map_err(|_| {
        Error::System(format!(
            "less than {} MiB of memory are left to this process: raise its limit (`ulimit -v`, \
             memory of the container) or run fewer processes",
            SPARE_BYTES >> 20
        ))
    })
}

/// All registrations of one device.
pub struct MemoryCache {
    device: SharedDevice,
    entries: Mutex<HashMap<Buffer, Entry>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Buffer {
    address: usize,
    bytes: usize,
    remote: bool,
}

struct Entry {
    registration: Registration,
    references: usize,
}

/// One reference to a registration; dropping the last one ends it.
pub struct Lease {
    cache: Arc<MemoryCache>,
    buffer: Buffer,
    registration: Registration,
}

impl MemoryCache {
    /// Empty cache of `device`.
    pub fn new(device: SharedDevice) -> Arc<Self> {
        Arc::new(Self {
            device,
            entries: Mutex::default(),
        })
    }

    /// Registers the buffer, or counts one more user of the same one.
    ///
    /// # Safety
    /// The memory must stay mapped until the lease is dropped.
    pub unsafe fn lease(
        self: &Arc<Self>,
        address: *mut u8,
        bytes: usize,
        access: Access,
    ) -> Result<Lease> {
        let buffer = Buffer {
            address: address as usize,
            bytes,
            remote: access == Access::RemoteWrite,
        };
        let mut entries = self.entries.lock();
        let registration = match entries.entry(buffer) {
            Slot::Occupied(mut entry) => {
                entry.get_mut().references += 1;
                entry.get().registration
            }
            Slot::Vacant(entry) => {
                // SAFETY: the caller keeps the memory mapped until the lease is dropped, and the
                // registration ends with the last lease.
                let registration = unsafe { self.device.register(address, bytes, access) }
                    .map_err(|error| Error::System(error.to_string()))?;
                entry.insert(Entry {
                    registration,
                    references: 1,
                });
                registration
            }
        };
        drop(entries);
        Ok(Lease {
            cache: self.clone(),
            buffer,
            registration,
        })
    }

    /// Registrations held now.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether nothing is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Lease {
    /// Keys of the region.
    pub fn registration(&self) -> Registration {
        self.registration
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut entries = self.cache.entries.lock();
        if let Slot::Occupied(mut entry) = entries.entry(self.buffer) {
            entry.get_mut().references -= 1;
            if entry.get().references == 0 {
                // Under the lock: a new registration of the same buffer must not overtake this.
                self.cache.device.deregister(entry.remove().registration);
            }
        }
    }
}

/// A registered buffer as one connection sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Name on this connection, also on the wire.
    pub id: RegionId,
    /// First byte.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Keys on the connection's device.
    pub registration: Registration,
}

impl Region {
    /// Stands for the buffer of an empty message, which needs none.
    pub const EMPTY: Self = Self {
        id: RegionId(0),
        address: 0,
        bytes: 0,
        registration: Registration { lkey: 0, rkey: 0 },
    };

    /// Whether `bytes` bytes at `address` lie inside.
    pub fn contains(&self, address: u64, bytes: u64) -> bool {
        address >= self.address
            && bytes <= self.bytes
            && address - self.address <= self.bytes - bytes
    }
}

/// The regions of one connection. Other threads add and remove while data moves.
#[derive(Default)]
pub struct Regions {
    slots: RwLock<Vec<RegionSlot>>,
}

#[derive(Default)]
struct RegionSlot {
    /// Uses of the slot so far: a region id is never used twice, so that an old key at the peer
    /// cannot be taken for a new one.
    uses: u16,
    held: Option<(Region, Lease)>,
}

/// Regions of one connection at the same time; the low half of a region id is the slot.
const REGIONS_MAX: usize = 1 << 16;

impl Regions {
    /// Adds a buffer.
    pub fn insert(&self, lease: Lease) -> Result<Region> {
        let mut slots = self.slots.write();
        let free = slots
            .iter()
            .position(|slot| slot.held.is_none() && slot.uses < u16::MAX);
        let index = free.unwrap_or(slots.len());
        if index == slots.len() {
            if index == REGIONS_MAX {
                return Err(Error::System(format!(
                    "{REGIONS_MAX} buffers are registered on one connection, the most"
                )));
            }
            slots.push(RegionSlot::default());
        }
        let slot = &mut slots[index];
        slot.uses += 1;
        let region = Region {
            id: RegionId(u32::from(slot.uses) << 16 | index as u32),
            address: lease.buffer.address as u64,
            bytes: lease.buffer.bytes as u64,
            registration: lease.registration(),
        };
        slot.held = Some((region, lease));
        Ok(region)
    }

    /// The region of that id.
    pub fn find(&self, id: RegionId) -> Option<Region> {
        let slots = self.slots.read();
        let (region, _) = slots
            .get(id.0 as usize & (REGIONS_MAX - 1))?
            .held
            .as_ref()?;
        (region.id == id).then_some(*region)
    }

    /// Takes a region out; dropping the lease ends the registration if it was the last.
    pub fn remove(&self, id: RegionId) -> Option<Lease> {
        let mut slots = self.slots.write();
        let slot = slots.get_mut(id.0 as usize & (REGIONS_MAX - 1))?;
        if slot.held.as_ref()?.0.id != id {
            return None;
        }
        slot.held.take().map(|(_, lease)| lease)
    }

    /// All regions held now.
    pub fn all(&self) -> Vec<Region> {
        self.slots
            .read()
            .iter()
            .filter_map(|slot| slot.held.as_ref())
            .map(|held| held.0)
            .collect()
    }
}

/// What the peer registered: its region ids and keys, as its control frames told them.
#[derive(Default)]
pub struct PeerKeys {
    slots: Vec<Option<(RegionId, u32)>>,
}

impl PeerKeys {
    /// Learns the key of a region. A region id comes with one key only.
    pub fn insert(&mut self, region: RegionId, rkey: u32) {
        let index = region.0 as usize & (REGIONS_MAX - 1);
        if index >= self.slots.len() {
            self.slots.resize(index + 1, None);
        }
        self.slots[index] = Some((region, rkey));
    }

    /// Key of a region, once known.
    pub fn find(&self, region: RegionId) -> Option<u32> {
        match self.slots.get(region.0 as usize & (REGIONS_MAX - 1)) {
            Some(Some((known, rkey))) if *known == region => Some(*rkey),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_holds_what_lies_inside_and_nothing_else() {
        let region = Region {
            id: RegionId(1),
            address: 1000,
            bytes: 24,
            registration: Registration { lkey: 1, rkey: 1 },
        };
        assert!(region.contains(1000, 24) && region.contains(1023, 1) && region.contains(1024, 0));
        for (address, bytes) in [
            (999, 1),
            (1000, 25),
            (1024, 1),
            (u64::MAX, 2),
            (1001, u64::MAX),
        ] {
            assert!(!region.contains(address, bytes), "{address} {bytes}");
        }
    }

    /// PROTOCOL R23.
    #[test]
    fn the_last_users_end_is_the_end_of_a_registration() {
        use r2ccl_fabric::soft::{SoftConfig, SoftDevice};
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let device = SoftDevice::open(SoftConfig::new("soft0", address, 1000)).expect("a device");
        let cache = MemoryCache::new(device);
        let mut buffer = [0_u8; 64];
        let mut lease = |bytes| {
            // SAFETY: the buffer outlives the leases.
            unsafe { cache.lease(buffer.as_mut_ptr(), bytes, Access::RemoteWrite) }
                .expect("a lease")
        };
        let (first, second, other) = (lease(64), lease(64), lease(32));
        let old = first.registration();
        assert_eq!(old, second.registration());
        assert_ne!(old, other.registration());
        drop((first, other));
        assert_eq!(cache.len(), 1, "it has a user still");
        drop(second);
        assert!(cache.is_empty());
        assert_ne!(
            lease(64).registration(),
            old,
            "an old key opens a new registration"
        );
    }

    #[test]
    fn an_old_key_is_not_taken_for_a_new_region_in_the_same_slot() {
        let (old, new) = (RegionId(1 << 16 | 3), RegionId(2 << 16 | 3));
        let mut keys = PeerKeys::default();
        keys.insert(old, 7);
        assert_eq!((keys.find(old), keys.find(new)), (Some(7), None));
        keys.insert(new, 8);
        assert_eq!((keys.find(old), keys.find(new)), (None, Some(8)));
        assert_eq!(keys.find(RegionId(9)), None);
    }
}
