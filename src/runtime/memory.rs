//! Registrations: one per device and buffer, shared by all connections that name the same buffer.
//!
//! NCCL registers its big shared pool on every connection again, so a registration is counted and
//! made once. An entry without references is dropped at once (PROTOCOL R23): CUDA may map other
//! pages at the same address, and a kept entry would then name the wrong memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::{Mutex, RwLock};
use r2ccl_core::limits::PATHS_MAX;
use r2ccl_core::{PathId, RegionId};
use r2ccl_fabric::{Access, Registration, SharedDevice, helpers};

use super::error::{Error, Result};

/// What making a connection may take: queue pair, rings and tables come to some 300 KiB.
const SPARE_BYTES: usize = 2 << 20;

/// Sees that the process can still get memory, at the beginning of calls that allocate. What other
/// threads take meanwhile is a risk that stays.
pub fn check_spare() -> Result<()> {
    if helpers::has_spare(SPARE_BYTES) {
        return Ok(());
    }
    Err(Error::System(format!(
        "less than {} MiB of memory are left to this process: raise its limit (`ulimit -v`, \
         memory of the container) or run fewer processes",
        SPARE_BYTES >> 20
    )))
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
    access: Access,
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
            access,
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
    /// Keys on the device of the primary path.
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

/// The regions of one connection, each registered on the devices of all paths that are in use.
/// Other threads add and remove while data moves.
pub struct Regions {
    access: Access,
    held: RwLock<HeldRegions>,
    /// Paths whose device has refused a buffer, one bit each.
    unfit: AtomicU16,
}

#[derive(Default)]
struct HeldRegions {
    slots: Vec<RegionSlot>,
    /// Registrations on the device of each path in use.
    caches: [Option<Arc<MemoryCache>>; PATHS_MAX],
}

#[derive(Default)]
struct RegionSlot {
    /// Uses of the slot so far: a region id is never used twice, so that an old key at the peer
    /// cannot be taken for a new one.
    uses: u16,
    held: Option<(Region, Leases)>,
}

/// The registrations of one buffer, by path; dropping them ends them.
#[derive(Default)]
pub struct Leases([Option<Lease>; PATHS_MAX]);

/// Key of a region on the device of a path, for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionKey {
    /// The region.
    pub region: RegionId,
    /// The path.
    pub path: PathId,
    /// Its remote key there.
    pub rkey: u32,
}

/// Regions of one connection at the same time; the low half of a region id is the slot.
const REGIONS_MAX: usize = 1 << 16;

impl Regions {
    /// None yet; their devices are allowed `access`, and that of the primary path is in use.
    pub fn new(access: Access, primary: Arc<MemoryCache>) -> Self {
        let regions = Self {
            access,
            held: RwLock::default(),
            unfit: AtomicU16::new(0),
        };
        regions.held.write().caches[PathId::PRIMARY.index()] = Some(primary);
        regions
    }

    /// Adds a buffer; returns it and its keys. Only the device of the primary path must take it:
    /// where another one refuses, for want of locked memory perhaps, its paths are unfit from then
    /// on.
    ///
    /// # Safety
    /// The memory must stay mapped until what [`Regions::remove`] gives for it is dropped.
    pub unsafe fn insert(
        &self,
        address: *mut u8,
        bytes: usize,
    ) -> Result<(Region, Vec<RegionKey>)> {
        let mut held = self.held.write();
        let mut leases = Leases::default();
        for index in 0..PATHS_MAX {
            let Some(cache) = &held.caches[index] else {
                continue;
            };
            // SAFETY: the caller keeps the memory mapped until the leases are dropped.
            match unsafe { cache.lease(address, bytes, self.access) } {
                Ok(lease) => leases.0[index] = Some(lease),
                Err(error) if index == PathId::PRIMARY.index() => return Err(error),
                Err(error) => {
                    tracing::warn!("a NIC can be no backup any more: {error}");
                    self.unfit.fetch_or(1 << index, Ordering::AcqRel);
                    held.caches[index] = None;
                }
            }
        }
        let free = |slot: &RegionSlot| slot.held.is_none() && slot.uses < u16::MAX;
        let free = held.slots.iter().position(free);
        let index = free.unwrap_or(held.slots.len());
        if index == held.slots.len() {
            if index == REGIONS_MAX {
                return Err(Error::System(format!(
                    "{REGIONS_MAX} buffers are registered on one connection, the most"
                )));
            }
            held.slots.push(RegionSlot::default());
        }
        let slot = &mut held.slots[index];
        slot.uses += 1;
        let primary = leases.registration(PathId::PRIMARY);
        let region = Region {
            id: RegionId(u32::from(slot.uses) << 16 | index as u32),
            address: address as u64,
            bytes: bytes as u64,
            registration: primary.unwrap_or(Region::EMPTY.registration),
        };
        let keys = leases.keys(region.id);
        slot.held = Some((region, leases));
        Ok((region, keys))
    }

    /// Registers all buffers on the device of one more path, those to come included. Returns their
    /// keys there.
    pub fn activate(&self, path: PathId, cache: &Arc<MemoryCache>) -> Result<Vec<RegionKey>> {
        if self.is_unfit(path) {
            return Err(Error::System("this NIC has refused a buffer before".into()));
        }
        let mut held = self.held.write();
        let mut keys = Vec::new();
        for (region, leases) in held.slots.iter_mut().filter_map(|slot| slot.held.as_mut()) {
            let lease = &mut leases.0[path.index()];
            if lease.is_none() {
                let (address, bytes) = (region.address as *mut u8, region.bytes as usize);
                // SAFETY: the region is held, so that its memory is mapped until its leases are
                // dropped.
                *lease = Some(unsafe { cache.lease(address, bytes, self.access) }?);
            }
            keys.extend(leases.key(region.id, path));
        }
        held.caches[path.index()] = Some(cache.clone());
        Ok(keys)
    }

    /// Whether the device of a path has refused a buffer: nothing may go over the path.
    pub fn is_unfit(&self, path: PathId) -> bool {
        self.unfit.load(Ordering::Acquire) >> path.index() & 1 == 1
    }

    /// The region of that id.
    pub fn find(&self, id: RegionId) -> Option<Region> {
        self.look(id, |region, _| *region)
    }

    /// Keys of a region on the device of a path.
    pub fn registration(&self, id: RegionId, path: PathId) -> Option<Registration> {
        self.look(id, |_, leases| leases.registration(path))?
    }

    fn look<T>(&self, id: RegionId, look: impl FnOnce(&Region, &Leases) -> T) -> Option<T> {
        let held = self.held.read();
        let (region, leases) = held
            .slots
            .get(id.0 as usize & (REGIONS_MAX - 1))?
            .held
            .as_ref()?;
        (region.id == id).then(|| look(region, leases))
    }

    /// Takes a region out; dropping the leases ends its registrations where they were the last.
    pub fn remove(&self, id: RegionId) -> Option<Leases> {
        let mut held = self.held.write();
        let slot = held.slots.get_mut(id.0 as usize & (REGIONS_MAX - 1))?;
        if slot.held.as_ref()?.0.id != id {
            return None;
        }
        slot.held.take().map(|(_, leases)| leases)
    }

    /// All regions held now.
    pub fn all(&self) -> Vec<Region> {
        let held = self.held.read();
        let regions = held.slots.iter().filter_map(|slot| slot.held.as_ref());
        regions.map(|(region, _)| *region).collect()
    }
}

impl Leases {
    fn registration(&self, path: PathId) -> Option<Registration> {
        self.0[path.index()].as_ref().map(Lease::registration)
    }

    fn key(&self, region: RegionId, path: PathId) -> Option<RegionKey> {
        let rkey = self.registration(path)?.rkey;
        Some(RegionKey { region, path, rkey })
    }

    fn keys(&self, region: RegionId) -> Vec<RegionKey> {
        let paths = (0..PATHS_MAX as u8).filter_map(PathId::new);
        paths.filter_map(|path| self.key(region, path)).collect()
    }
}

/// What the peer registered: its region ids and keys, as its control frames told them.
#[derive(Default)]
pub struct PeerKeys {
    slots: [Vec<Option<(RegionId, u32)>>; PATHS_MAX],
}

impl PeerKeys {
    /// Learns a key. A region has one key only on each path.
    pub fn insert(&mut self, key: RegionKey) {
        let index = key.region.0 as usize & (REGIONS_MAX - 1);
        let slots = &mut self.slots[key.path.index()];
        if index >= slots.len() {
            slots.resize(index + 1, None);
        }
        slots[index] = Some((key.region, key.rkey));
    }

    /// Key of a region on a path, once known.
    pub fn find(&self, region: RegionId, path: PathId) -> Option<u32> {
        match self.slots[path.index()].get(region.0 as usize & (REGIONS_MAX - 1)) {
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

    /// PROTOCOL R23: on every device that is in use, before or after the buffer came.
    #[test]
    fn a_region_is_registered_on_the_devices_of_all_paths_in_use() {
        use r2ccl_fabric::soft::{SoftConfig, SoftDevice};
        let cache = |last| {
            let address = std::net::Ipv4Addr::new(127, 0, 0, last).into();
            let device = SoftDevice::open(SoftConfig::new("soft", address, 1000));
            MemoryCache::new(device.expect("a device"))
        };
        let (first, second) = (cache(1), cache(2));
        let other = PathId::new(1).expect("in range");
        let regions = Regions::new(Access::RemoteWrite, first.clone());
        let mut buffers = [[0_u8; 64]; 2];
        let mut insert = |index: usize| {
            // SAFETY: the buffers outlive the regions.
            unsafe { regions.insert(buffers[index].as_mut_ptr(), 64) }.expect("registered")
        };
        let (before, keys) = insert(0);
        assert_eq!((keys.len(), keys[0].path), (1, PathId::PRIMARY));
        let keys = regions.activate(other, &second).expect("registered");
        let paths: Vec<_> = keys.iter().map(|key| (key.region, key.path)).collect();
        assert_eq!(paths, [(before.id, other)]);
        let (after, keys) = insert(1);
        assert_eq!(keys.len(), 2);
        assert_eq!((first.len(), second.len()), (2, 2));
        for region in [before.id, after.id] {
            assert!(regions.registration(region, other).is_some());
            drop(regions.remove(region).expect("held"));
        }
        assert!(first.is_empty() && second.is_empty());
    }

    /// A device that takes nothing.
    struct Full(SharedDevice);

    impl r2ccl_fabric::Device for Full {
        fn info(&self) -> &r2ccl_fabric::NicInfo {
            self.0.info()
        }

        fn port_state(&self) -> r2ccl_fabric::PortState {
            self.0.port_state()
        }

        unsafe fn register(
            &self,
            _: *mut u8,
            _: usize,
            _: Access,
        ) -> std::result::Result<Registration, r2ccl_fabric::DeviceError> {
            Err(r2ccl_fabric::DeviceError("no locked memory".into()))
        }

        fn deregister(&self, _: Registration) {}

        fn create_queue_pair(
            &self,
            config: r2ccl_fabric::QueuePairConfig,
        ) -> std::result::Result<Box<dyn r2ccl_fabric::QueuePair>, r2ccl_fabric::DeviceError>
        {
            self.0.create_queue_pair(config)
        }

        fn on_event(&self, _: Box<dyn Fn() + Send + Sync>) {}

        fn poll_event(&self) -> Option<r2ccl_fabric::DeviceEvent> {
            None
        }

        fn bytes_moved(&self) -> r2ccl_fabric::BytesMoved {
            self.0.bytes_moved()
        }
    }

    /// PROTOCOL R23.
    #[test]
    fn a_backup_that_takes_no_more_memory_costs_the_backup_only() {
        use r2ccl_fabric::soft::{SoftConfig, SoftDevice};
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let device = SoftDevice::open(SoftConfig::new("soft0", address, 1000)).expect("a device");
        let full = MemoryCache::new(Arc::new(Full(device.clone())));
        let regions = Regions::new(Access::RemoteWrite, MemoryCache::new(device));
        let other = PathId::new(1).expect("in range");
        regions.activate(other, &full).expect("nothing to register");
        let mut buffer = [0_u8; 64];
        // SAFETY: the buffer outlives the regions.
        let inserted = unsafe { regions.insert(buffer.as_mut_ptr(), 64) };
        let (region, keys) = inserted.expect("the primary path has room");
        assert_eq!((keys.len(), regions.is_unfit(other)), (1, true));
        assert_eq!(regions.registration(region.id, other), None);
        assert!(regions.activate(other, &full).is_err(), "it stays unfit");
    }

    #[test]
    fn an_old_key_is_not_taken_for_a_new_region_in_the_same_slot() {
        let (old, new) = (RegionId(1 << 16 | 3), RegionId(2 << 16 | 3));
        let mut keys = PeerKeys::default();
        let path = PathId::PRIMARY;
        let key = |region, rkey| RegionKey { region, path, rkey };
        let find = |keys: &PeerKeys, region| keys.find(region, path);
        keys.insert(key(old, 7));
        assert_eq!((find(&keys, old), find(&keys, new)), (Some(7), None));
        keys.insert(key(new, 8));
        assert_eq!((find(&keys, old), find(&keys, new)), (None, Some(8)));
        assert_eq!(find(&keys, RegionId(9)), None);
        let other = PathId::new(1).expect("in range");
        assert_eq!(keys.find(new, other), None, "of another path");
    }
}
