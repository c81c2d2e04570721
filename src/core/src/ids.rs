//! Names of things: newtypes, so that no two kinds of number can be mixed up.

use crate::limits::{
    IMMEDIATE_GENERATION_BITS, IMMEDIATE_SEGMENT_BITS, IMMEDIATE_SEQ_BITS, PATHS_MAX, SEND_DEPTH,
    WINDOW,
};

/// Index of a path in its connection, below [`PATHS_MAX`]; both ends use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathId(u8);

impl PathId {
    /// The path that the connection was made on.
    pub const PRIMARY: Self = Self(0);

    /// Path `index`, or `None` from [`PATHS_MAX`] on.
    pub const fn new(index: u8) -> Option<Self> {
        if (index as usize) < PATHS_MAX {
            Some(Self(index))
        } else {
            None
        }
    }

    /// Position in tables of [`PATHS_MAX`] entries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Counts the re-creations of a path's queue pairs; never repeats in the life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub u32);

impl Generation {
    /// What immediates and credit lines carry of it: the lowest ten bits.
    pub const fn wire(self) -> u16 {
        (self.0 & ((1 << IMMEDIATE_GENERATION_BITS) - 1)) as u16
    }

    /// The generation after this one; `None` when the numbers are used up.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

/// A registered memory region, numbered by the process that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegionId(pub u32);

/// Number of a message in its connection, from 0; does not wrap in practice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seq(pub u64);

impl Seq {
    /// Slot in tables and rings of [`WINDOW`] entries.
    pub const fn slot(self) -> usize {
        (self.0 % WINDOW as u64) as usize
    }

    /// What an immediate carries of it: the lowest ten bits.
    pub const fn wire(self) -> u16 {
        (self.0 & ((1 << IMMEDIATE_SEQ_BITS) - 1)) as u16
    }

    /// `count` messages later.
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// Messages from `earlier` up to `self`; 0 when `earlier` is the later one.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// What a work request carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// One segment of a message.
    Segment,
    /// Credit lines.
    Credits,
    /// A counter word.
    Counter,
    /// A small message ahead of its credit.
    Eager,
}

/// Bits of the posting index in a [`WorkId`].
const INDEX_BITS: u32 = 11;
const SLOT_BITS: u32 = 8;
const PATH_BITS: u32 = 4;
const SLOT_SHIFT: u32 = IMMEDIATE_SEGMENT_BITS;
const INDEX_SHIFT: u32 = SLOT_SHIFT + SLOT_BITS;
const PATH_SHIFT: u32 = INDEX_SHIFT + INDEX_BITS;
const GENERATION_SHIFT: u32 = PATH_SHIFT + PATH_BITS;
const KIND_SHIFT: u32 = GENERATION_SHIFT + u32::BITS;

const _: () = assert!(KIND_SHIFT + 3 == u64::BITS);
const _: () = assert!(WINDOW == 1 << SLOT_BITS && PATHS_MAX == 1 << PATH_BITS);
// Indices of outstanding work requests are told apart without doubt.
const _: () = assert!(SEND_DEPTH < 1 << (INDEX_BITS - 1));

/// Name of a work request of the core: kind, path, generation, position on its queue pair, slot of
/// the message and segment. It is all that an error completion can be trusted to bring back
/// (PROTOCOL R4). Never 0; ids whose three highest bits are 0 are free for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkId(u64);

impl WorkId {
    /// Packs a name. `position` counts the work requests of the queue pair from 0.
    pub(crate) fn new(
        kind: WorkKind,
        path: PathId,
        generation: Generation,
        position: u64,
        seq: Seq,
        segment: u8,
    ) -> Self {
        let kind = match kind {
            WorkKind::Segment => 1,
            WorkKind::Credits => 2,
            WorkKind::Counter => 3,
            WorkKind::Eager => 4u64,
        };
        Self(
            kind << KIND_SHIFT
                | u64::from(generation.0) << GENERATION_SHIFT
                | (path.index() as u64) << PATH_SHIFT
                | (position & ((1 << INDEX_BITS) - 1)) << INDEX_SHIFT
                | (seq.slot() as u64) << SLOT_SHIFT
                | u64::from(segment) & ((1 << IMMEDIATE_SEGMENT_BITS) - 1),
        )
    }

    /// The id as a device carries it.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Reads an id that came back from a device; `None` when it is not one of the core's.
    pub const fn from_raw(raw: u64) -> Option<Self> {
        if raw >> KIND_SHIFT == 0 {
            None
        } else {
            Some(Self(raw))
        }
    }

    /// What the work request carried.
    pub const fn kind(self) -> WorkKind {
        match self.0 >> KIND_SHIFT {
            1 => WorkKind::Segment,
            2 => WorkKind::Credits,
            3 => WorkKind::Counter,
            _ => WorkKind::Eager,
        }
    }

    /// The path it was posted on.
    pub const fn path(self) -> PathId {
        PathId(self.field(PATH_SHIFT, PATH_BITS) as u8)
    }

    /// The generation it was posted in.
    pub const fn generation(self) -> Generation {
        Generation(self.field(GENERATION_SHIFT, u32::BITS) as u32)
    }

    /// Slot of the message, or of the first credit line.
    pub const fn slot(self) -> usize {
        self.field(SLOT_SHIFT, SLOT_BITS) as usize
    }

    /// Index of the segment; 0 for all else.
    pub const fn segment(self) -> u8 {
        self.field(0, IMMEDIATE_SEGMENT_BITS) as u8
    }

    /// How many work requests before work request `posted` (counted from 0) this one was posted,
    /// if it is among the last 2^11 before it.
    pub(crate) const fn age(self, posted: u64) -> u64 {
        let index = self.field(INDEX_SHIFT, INDEX_BITS);
        posted.wrapping_sub(1).wrapping_sub(index) & ((1 << INDEX_BITS) - 1)
    }

    const fn field(self, shift: u32, bits: u32) -> u64 {
        (self.0 >> shift) & ((1 << bits) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Generation, PathId, Seq, WorkId, WorkKind};
    use proptest::prelude::*;

    #[test]
    fn foreign_ids_are_not_ours() {
        assert_eq!(WorkId::from_raw(0), None);
        assert_eq!(WorkId::from_raw(u64::MAX >> 3), None);
    }

    #[test]
    fn paths_end_at_the_limit() {
        assert!(PathId::new(15).is_some());
        assert!(PathId::new(16).is_none());
        assert_eq!(Generation(u32::MAX).next(), None);
    }

    const KINDS: [WorkKind; 4] = [
        WorkKind::Segment,
        WorkKind::Credits,
        WorkKind::Counter,
        WorkKind::Eager,
    ];

    proptest! {
        /// PROTOCOL R4: the id alone names kind, path, generation, slot and segment.
        #[test]
        fn work_ids_name_everything(
            kind in prop::sample::select(&KINDS[..]),
            path in 0u8..16,
            generation: u32,
            position in 0u64..1 << 40,
            age in 0u64..256,
            seq: u64,
            segment in 0u8..64,
        ) {
            let path = PathId::new(path).expect("in range");
            let id = WorkId::new(kind, path, Generation(generation), position, Seq(seq), segment);
            let back = WorkId::from_raw(id.raw()).expect("ours");
            prop_assert_eq!(back.kind(), kind);
            prop_assert_eq!(back.path(), path);
            prop_assert_eq!(back.generation(), Generation(generation));
            prop_assert_eq!(back.slot(), Seq(seq).slot());
            prop_assert_eq!(back.segment(), segment);
            prop_assert_eq!(back.age(position + 1 + age), age);
        }
    }
}
