//! The 32-byte head of a small message that goes ahead of its credit.
//!
//! Each generation of each path has [`EAGER_SLOTS`] slots in the receiver's memory, taken in turn.
//! A slot is room for the largest payload, then the head. One write brings both; the payload is
//! padded to 8 bytes in front, so that it ends where the head begins.
//!
//! | bytes | field | little endian |
//! |---|---|---|
//! | 0–7 | frontier: credits that the sender has taken, all of them used | u64 |
//! | 8–11 | bytes of the message | u32 |
//! | 12–15 | tag | i32 |
//! | 16–19 | generation of the path | u32 |
//! | 20–23 | zero | |
//! | 24–31 | marker: number of the eager message in its generation, from 1 | u64 |
//!
//! The marker is the last word, and writes land in order: when the expected one is there, all is.

use super::bytes::take;
use crate::ids::{Generation, Seq};
use crate::limits::{EAGER_BYTES_MAX, EAGER_HEAD_BYTES, EAGER_SLOTS};

/// Offset of the marker in a head.
pub const EAGER_MARKER_OFFSET: usize = 24;

/// Bytes of one slot: the largest payload and the head.
pub const EAGER_SLOT_BYTES: usize = EAGER_BYTES_MAX + EAGER_HEAD_BYTES;

/// Bytes of the slots of one generation.
pub const EAGER_RING_BYTES: usize = EAGER_SLOTS * EAGER_SLOT_BYTES;

const _: () = assert!(EAGER_MARKER_OFFSET + 8 == EAGER_HEAD_BYTES);

/// Slot of an eager message.
pub const fn eager_slot(number: u64) -> usize {
    (number % EAGER_SLOTS as u64) as usize
}

/// Bytes that a payload of `bytes` takes in front of the head.
pub const fn eager_padded(bytes: u32) -> usize {
    (bytes as usize).next_multiple_of(8)
}

/// What a receiver has to know about a message that came ahead of its credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EagerHead {
    /// Number of the eager message in its generation, from 1.
    pub number: u64,
    /// The message takes none of the receives before this one: their credits were all used when
    /// it was sent.
    pub frontier: Seq,
    /// Payload.
    pub bytes: u32,
    /// Tag that its receive must have.
    pub tag: i32,
}

impl EagerHead {
    /// The head for a path of `generation`.
    pub fn encode(&self, generation: Generation) -> [u8; EAGER_HEAD_BYTES] {
        let mut head = [0; EAGER_HEAD_BYTES];
        head[0..8].copy_from_slice(&self.frontier.0.to_le_bytes());
        head[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        head[12..16].copy_from_slice(&self.tag.to_le_bytes());
        head[16..20].copy_from_slice(&generation.0.to_le_bytes());
        head[EAGER_MARKER_OFFSET..].copy_from_slice(&self.number.to_le_bytes());
        head
    }

    /// Reads a head; `None` when it is not number `expected`, written in `generation`.
    pub fn decode(
        head: &[u8; EAGER_HEAD_BYTES],
        expected: u64,
        generation: Generation,
    ) -> Option<Self> {
        let number = u64::from_le_bytes(take(head, EAGER_MARKER_OFFSET));
        let is_expected = number == expected && u32::from_le_bytes(take(head, 16)) == generation.0;
        is_expected.then(|| Self {
            number,
            frontier: Seq(u64::from_le_bytes(take(head, 0))),
            bytes: u32::from_le_bytes(take(head, 8)),
            tag: i32::from_le_bytes(take(head, 12)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{EagerHead, eager_padded};
    use crate::ids::{Generation, Seq};

    #[test]
    fn a_head_comes_back_under_its_number_and_generation_only() {
        let head = EagerHead {
            number: 7,
            frontier: Seq(1 << 40),
            bytes: 4096,
            tag: -3,
        };
        let line = head.encode(Generation(5));
        assert_eq!(EagerHead::decode(&line, 7, Generation(5)), Some(head));
        assert_eq!(EagerHead::decode(&line, 8, Generation(5)), None);
        assert_eq!(EagerHead::decode(&line, 7, Generation(5 + 1024)), None);
        assert_eq!(EagerHead::decode(&[0; 32], 1, Generation(0)), None);
    }

    #[test]
    fn payloads_end_at_the_head() {
        assert_eq!([0, 1, 8, 9].map(eager_padded), [0, 8, 8, 16]);
    }
}
