//! The 32 bits that come with each segment.

use crate::error::ProtocolError;
use crate::ids::{Generation, Seq};
use crate::limits::{IMMEDIATE_GENERATION_BITS, IMMEDIATE_SEGMENT_BITS, IMMEDIATE_SEQ_BITS};

const INDEX_SHIFT: u32 = IMMEDIATE_SEQ_BITS;
const COUNT_SHIFT: u32 = INDEX_SHIFT + IMMEDIATE_SEGMENT_BITS;
const GENERATION_SHIFT: u32 = COUNT_SHIFT + IMMEDIATE_SEGMENT_BITS;

/// An immediate, taken apart (PROTOCOL R3): seq mod 2^10 in bits 0–9, segment index in 10–15,
/// segment count minus one in 16–21, generation mod 2^10 in 22–31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immediate {
    /// Lowest ten bits of the message's number.
    pub seq: u16,
    /// Which segment, below `count`.
    pub index: u8,
    /// Segments of the message, 1 to 64.
    pub count: u8,
    /// Lowest ten bits of the generation it was posted in.
    pub generation: u16,
}

impl Immediate {
    /// The immediate of segment `index` of the `count` segments of message `seq`.
    pub const fn new(seq: Seq, index: u8, count: u8, generation: Generation) -> Self {
        Self {
            seq: seq.wire(),
            index,
            count,
            generation: generation.wire(),
        }
    }

    /// Packs the fields; bits beyond a field's width are cut off.
    pub const fn encode(self) -> u32 {
        field(self.seq as u32, 0, IMMEDIATE_SEQ_BITS)
            | field(self.index as u32, INDEX_SHIFT, IMMEDIATE_SEGMENT_BITS)
            | field(
                self.count.wrapping_sub(1) as u32,
                COUNT_SHIFT,
                IMMEDIATE_SEGMENT_BITS,
            )
            | field(
                self.generation as u32,
                GENERATION_SHIFT,
                IMMEDIATE_GENERATION_BITS,
            )
    }

    /// Takes an immediate apart; an index beyond the count is an error.
    pub const fn decode(bits: u32) -> Result<Self, ProtocolError> {
        let index = extract(bits, INDEX_SHIFT, IMMEDIATE_SEGMENT_BITS) as u8;
        let count = extract(bits, COUNT_SHIFT, IMMEDIATE_SEGMENT_BITS) as u8 + 1;
        if index >= count {
            return Err(ProtocolError::SegmentBeyondCount { index, count });
        }
        Ok(Self {
            seq: extract(bits, 0, IMMEDIATE_SEQ_BITS) as u16,
            index,
            count,
            generation: Self::generation_of(bits),
        })
    }

    /// Generation in an immediate whose other fields may make no sense.
    pub const fn generation_of(bits: u32) -> u16 {
        extract(bits, GENERATION_SHIFT, IMMEDIATE_GENERATION_BITS) as u16
    }
}

const fn field(value: u32, shift: u32, bits: u32) -> u32 {
    (value & ((1 << bits) - 1)) << shift
}

const fn extract(word: u32, shift: u32, bits: u32) -> u32 {
    (word >> shift) & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::Immediate;
    use crate::error::ProtocolError;
    use crate::ids::{Generation, Seq};
    use proptest::prelude::*;

    #[test]
    fn bits_are_where_they_belong() {
        let table = [
            (Immediate::new(Seq(0), 0, 1, Generation(0)), 0),
            (Immediate::new(Seq(1), 0, 1, Generation(0)), 1),
            (Immediate::new(Seq(1023), 0, 1, Generation(0)), 0x3ff),
            (
                Immediate::new(Seq(1024), 1, 2, Generation(0)),
                1 << 10 | 1 << 16,
            ),
            (
                Immediate::new(Seq(0), 63, 64, Generation(0)),
                0x3f << 10 | 0x3f << 16,
            ),
            (Immediate::new(Seq(0), 0, 1, Generation(1025)), 1 << 22),
        ];
        for (immediate, bits) in table {
            assert_eq!(immediate.encode(), bits, "{immediate:?}");
            assert_eq!(Immediate::decode(bits), Ok(immediate));
        }
    }

    #[test]
    fn an_index_beyond_the_count_is_refused() {
        let bits = Immediate {
            seq: 0,
            index: 3,
            count: 3,
            generation: 0,
        }
        .encode();
        let error = ProtocolError::SegmentBeyondCount { index: 3, count: 3 };
        assert_eq!(Immediate::decode(bits), Err(error));
    }

    proptest! {
        #[test]
        fn every_word_decodes_to_itself_or_an_error(bits: u32) {
            if let Ok(immediate) = Immediate::decode(bits) {
                prop_assert_eq!(immediate.encode(), bits);
                prop_assert!(immediate.index < immediate.count && immediate.count <= 64);
            }
        }
    }
}
