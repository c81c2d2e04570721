//! Opaque ids for everything that NCCL holds, and the tables behind them.
//!
//! NCCL keeps what we give it as `void*` and may hand back anything: a closed connection, a request
//! that is long done, a pointer of its own. So ids are numbers that are looked up, never addresses
//! that are followed (PROTOCOL R20). An id names its kind: one for a listener is no connection.
//!
//! Each connection has one owner at a time (PROTOCOL R19): the data path takes the owner's lock
//! with one uncontended compare-and-swap, and somebody who comes while it is taken is told "not
//! now". What other threads need while data moves (registrations, the inbox) lies in the shared
//! part, which has a lock of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::error::{Error, Result};
use super::fork;

/// What an id stands for. The values have the top bit set, which no user-space address has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A listening endpoint.
    Listen = 0xA1,
    /// The sending side of a connection.
    Send = 0xA2,
    /// The receiving side of a connection.
    Receive = 0xA3,
    /// A registration on a sending side.
    SendMemory = 0xA4,
    /// A registration on a receiving side.
    ReceiveMemory = 0xA5,
    /// A send in flight.
    SendRequest = 0xA6,
    /// A receive in flight.
    ReceiveRequest = 0xA7,
    /// A send in flight that went ahead of its credit.
    EagerRequest = 0xA8,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Listen,
        Self::Send,
        Self::Receive,
        Self::SendMemory,
        Self::ReceiveMemory,
        Self::SendRequest,
        Self::ReceiveRequest,
        Self::EagerRequest,
    ];

    /// Kind that `id` claims to be.
    pub fn of(id: u64) -> Option<Self> {
        let byte = (id >> 56) as u8;
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// An id: 8 bits kind, 40 bits serial, 16 bits index of the connection's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    /// What it stands for.
    pub kind: Kind,
    /// Tells one use of a slot from the next.
    pub serial: u64,
    /// Slot of the connection or listener.
    pub index: u16,
}

/// Serials are kept in 40 bits.
pub const SERIAL_MASK: u64 = (1 << 40) - 1;

impl Id {
    /// The number that NCCL holds.
    pub fn pack(self) -> u64 {
        (self.kind as u64) << 56 | (self.serial & SERIAL_MASK) << 16 | u64::from(self.index)
    }

    /// Takes a number apart; `None` for what was never an id of ours.
    pub fn unpack(id: u64) -> Option<Self> {
        Some(Self {
            kind: Kind::of(id)?,
            serial: (id >> 16) & SERIAL_MASK,
            index: id as u16,
        })
    }
}

/// Objects of one kind: `O` belongs to whoever drives it, `S` is shared between threads.
pub struct Table<O, S> {
    kind: Kind,
    chunks: [OnceLock<Chunk<O, S>>; CHUNKS],
    free: Mutex<FreeList>,
}

/// Slots are made in chunks, so that they never move.
type Chunk<O, S> = Box<[Slot<O, S>]>;

const CHUNK_SLOTS: usize = 1024;
const CHUNKS: usize = (1 << 16) / CHUNK_SLOTS;

struct Slot<O, S> {
    /// Serial of the current or, if empty, of the next user.
    serial: AtomicU64,
    owner: Mutex<Option<O>>,
    shared: RwLock<Option<Arc<S>>>,
}

#[derive(Default)]
struct FreeList {
    returned: Vec<u16>,
    fresh: usize,
}

/// Exclusive use of an object's owner part.
pub type Owned<'a, O> = parking_lot::MappedMutexGuard<'a, O>;

/// Why an object cannot be driven now.
pub enum Miss {
    /// Somebody else drives it: back-pressure, not an error.
    Busy,
    /// Closed, or never ours.
    Unknown,
}

impl<O, S> Table<O, S> {
    /// Empty table for ids of `kind`.
    pub const fn new(kind: Kind) -> Self {
        Self {
            kind,
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Mutex::new(FreeList {
                returned: Vec::new(),
                fresh: 0,
            }),
        }
    }

    /// Adds an object and returns its id.
    pub fn insert(&self, make: impl FnOnce(u64) -> (O, Arc<S>)) -> Result<u64> {
        let index = self.take_index()?;
        let slot = self
            .slot(index)
            .ok_or_else(|| Error::Internal("slot was not made".into()))?;
        let id = Id {
            kind: self.kind,
            serial: slot.serial.load(Ordering::Acquire),
            index,
        }
        .pack();
        let (owner, shared) = make(id);
        *slot.shared.write() = Some(shared);
        *slot.owner.lock() = Some(owner);
        Ok(id)
    }

    /// Takes an object out; from then on its id is unknown.
    pub fn remove(&self, id: u64) -> Option<(O, Arc<S>)> {
        let (index, slot) = self.find(id)?;
        let mut owner = slot.owner.lock();
        if !self.is_current(id, slot) {
            return None;
        }
        let parts = (owner.take()?, slot.shared.write().take()?);
        slot.serial.fetch_add(1, Ordering::AcqRel);
        drop(owner);
        self.free.lock().returned.push(index);
        Some(parts)
    }

    /// The owner's part, if nobody else has it.
    pub fn try_own(&self, id: u64) -> std::result::Result<Owned<'_, O>, Miss> {
        let (_, slot) = self.find(id).ok_or(Miss::Unknown)?;
        let guard = slot.owner.try_lock().ok_or(Miss::Busy)?;
        self.checked(id, slot, guard).ok_or(Miss::Unknown)
    }

    /// The owner's part, waiting for whoever has it; for calls that are not on the data path.
    pub fn own(&self, id: u64) -> Option<Owned<'_, O>> {
        let (_, slot) = self.find(id)?;
        self.checked(id, slot, slot.owner.lock())
    }

    /// The shared part.
    pub fn shared(&self, id: u64) -> Option<Arc<S>> {
        let (_, slot) = self.find(id)?;
        let shared = slot.shared.read();
        if !self.is_current(id, slot) {
            return None;
        }
        shared.clone()
    }

    /// Full id of the object that lives in slot `index` now.
    pub fn id_at(&self, index: u16) -> Option<u64> {
        let slot = self.slot(index)?;
        let serial = slot.serial.load(Ordering::Acquire);
        Some(
            Id {
                kind: self.kind,
                serial,
                index,
            }
            .pack(),
        )
    }

    fn checked<'a>(
        &self,
        id: u64,
        slot: &Slot<O, S>,
        guard: MutexGuard<'a, Option<O>>,
    ) -> Option<Owned<'a, O>> {
        if !self.is_current(id, slot) {
            return None;
        }
        MutexGuard::try_map(guard, Option::as_mut).ok()
    }

    fn is_current(&self, id: u64, slot: &Slot<O, S>) -> bool {
        Id::unpack(id)
            .is_some_and(|id| id.serial == slot.serial.load(Ordering::Acquire) & SERIAL_MASK)
    }

    fn find(&self, id: u64) -> Option<(u16, &Slot<O, S>)> {
        if fork::is_child() {
            return None;
        }
        let id = Id::unpack(id).filter(|id| id.kind == self.kind)?;
        Some((id.index, self.slot(id.index)?))
    }

    fn slot(&self, index: u16) -> Option<&Slot<O, S>> {
        let index = usize::from(index);
        self.chunks[index / CHUNK_SLOTS]
            .get()?
            .get(index % CHUNK_SLOTS)
    }

    fn take_index(&self) -> Result<u16> {
        let mut free = self.free.lock();
        if let Some(index) = free.returned.pop() {
            return Ok(index);
        }
        let index = u16::try_from(free.fresh).map_err(|_| {
            Error::System(format!(
                "this process has {} connections open, the most",
                1 << 16
            ))
        })?;
        free.fresh += 1;
        self.chunks[usize::from(index) / CHUNK_SLOTS].get_or_init(|| {
            (0..CHUNK_SLOTS)
                .map(|_| Slot {
                    serial: AtomicU64::new(1),
                    owner: Mutex::new(None),
                    shared: RwLock::new(None),
                })
                .collect()
        });
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<u32, u32> {
        Table::new(Kind::Send)
    }

    /// PROTOCOL R20.
    #[test]
    fn a_closed_id_stays_unknown_when_its_slot_is_used_again() {
        let table = table();
        let first = table.insert(|_| (1, Arc::new(10))).unwrap();
        assert_eq!(table.remove(first).unwrap().0, 1);
        let second = table.insert(|_| (2, Arc::new(20))).unwrap();
        assert_ne!(first, second);
        assert_eq!(
            Id::unpack(first).unwrap().index,
            Id::unpack(second).unwrap().index
        );
        assert!(matches!(table.try_own(first), Err(Miss::Unknown)));
        assert!(table.shared(first).is_none() && table.remove(first).is_none());
        assert_eq!(*table.own(second).unwrap(), 2);
    }

    /// PROTOCOL R20.
    #[test]
    fn foreign_numbers_are_unknown() {
        let table = table();
        let id = table.insert(|_| (1, Arc::new(1))).unwrap();
        let other_kind = Id {
            kind: Kind::Receive,
            ..Id::unpack(id).unwrap()
        }
        .pack();
        let local = 0u8;
        for foreign in [0, 1, u64::MAX, other_kind, id + 1, &raw const local as u64] {
            assert!(
                matches!(table.try_own(foreign), Err(Miss::Unknown)),
                "{foreign:#x}"
            );
        }
    }

    /// PROTOCOL R19.
    #[test]
    fn a_second_driver_is_told_not_now() {
        let table = table();
        let id = table.insert(|_| (1, Arc::new(1))).unwrap();
        let guard = table.try_own(id);
        assert!(guard.is_ok());
        assert!(matches!(table.try_own(id), Err(Miss::Busy)));
        assert_eq!(*table.shared(id).unwrap(), 1);
    }
}
