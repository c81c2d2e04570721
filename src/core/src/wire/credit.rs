//! The 32-byte line by which the receiver permits one message.
//!
//! | bytes | field | little endian |
//! |---|---|---|
//! | 0–7 | address of the buffer in the receiver's process | u64 |
//! | 8–11 | capacity in bytes | u32 |
//! | 12–15 | region of the buffer | u32 |
//! | 16–19 | tag | i32 |
//! | 20–21 | generation mod 2^10 of the path it travels on | u16 |
//! | 22 | receives in the group, 1 to 8, in the upper half; position in it in the lower | u8 |
//! | 23 | how far the delivered counter is behind this message; 255: not said | u8 |
//! | 24–31 | marker: seq + 1, so that a zeroed slot holds no credit | u64 |
//!
//! The marker is the last word, and writes land in order: a line whose marker is the expected one
//! is whole. It may be written again with another counter, which is in one word with what tells its
//! generation.

use super::bytes::take;
use crate::ids::{Generation, RegionId, Seq};
use crate::limits::{CREDIT_BYTES, GROUP_MAX, MESSAGE_BYTES_MAX};
use crate::planted::{Bug, planted};

/// Offset of the marker in a line. A reader that shares the memory with a NIC reads the marker
/// first, then the rest.
pub const MARKER_OFFSET: usize = 24;

const _: () = assert!(MARKER_OFFSET + 8 == CREDIT_BYTES);
const _: () = assert!(GROUP_MAX < 16);

/// Byte of a line that leaves the counter out.
const UNSAID: u8 = u8::MAX;

/// Permission for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The message.
    pub seq: Seq,
    /// Where its bytes go, in the receiver's process.
    pub address: u64,
    /// Room there, in bytes.
    pub capacity: u32,
    /// Region that holds the buffer.
    pub region: RegionId,
    /// Tag that a send of a group must carry.
    pub tag: i32,
    /// Receives in the group, 1 to [`GROUP_MAX`].
    pub group_size: u8,
    /// Position in the group, below `group_size`.
    pub group_index: u8,
}

/// What is wrong with a line that carries the expected number and a live generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreditError {
    /// The group has no member, too many, or this is not one of them.
    #[error("position {index} of a group of {size}")]
    Group {
        /// Position that the line names.
        index: u8,
        /// Size that the line names.
        size: u8,
    },
    /// The line does not continue the group of the line before.
    #[error("message {} does not continue its group", .0.0)]
    GroupBroken(Seq),
    /// The buffer is larger than a message may be.
    #[error("capacity of {0} bytes")]
    Capacity(u32),
    /// The buffer ends beyond the address space.
    #[error("buffer reaches beyond the address space")]
    Address,
}

/// What the line of message `seq` can say of `delivered`, the messages delivered without a gap:
/// none behind its own, and nothing (0) if they are too far back.
pub fn counted(seq: Seq, delivered: Seq) -> Seq {
    let counted = delivered.min(seq);
    if seq.since(counted) < u64::from(UNSAID) {
        counted
    } else {
        Seq(0)
    }
}

/// The marker of message `seq`.
pub const fn marker(seq: Seq) -> u64 {
    seq.0.wrapping_add(1)
}

impl Credit {
    /// The line for a path of `generation`, with the counter, as far as it can say that.
    pub fn encode(&self, generation: Generation, delivered: Seq) -> [u8; CREDIT_BYTES] {
        let lag = self.seq.since(counted(self.seq, delivered));
        let mut line = [0; CREDIT_BYTES];
        line[0..8].copy_from_slice(&self.address.to_le_bytes());
        line[8..12].copy_from_slice(&self.capacity.to_le_bytes());
        line[12..16].copy_from_slice(&self.region.0.to_le_bytes());
        line[16..20].copy_from_slice(&self.tag.to_le_bytes());
        line[20..22].copy_from_slice(&generation.wire().to_le_bytes());
        line[22] = self.group_size << 4 | self.group_index;
        line[23] = u8::try_from(lag).unwrap_or(UNSAID);
        line[MARKER_OFFSET..].copy_from_slice(&marker(self.seq).to_le_bytes());
        line
    }

    /// Reads a line, and the counter on it. `Ok(None)` when it is not the line of message
    /// `expected` written in `generation` (PROTOCOL R9); an error when it is, but makes no sense.
    pub fn decode(
        line: &[u8; CREDIT_BYTES],
        expected: Seq,
        generation: Generation,
    ) -> Result<Option<(Self, Seq)>, CreditError> {
        let found = u64::from_le_bytes(take(line, MARKER_OFFSET));
        let is_other = found != marker(expected) && !planted(Bug::MarkersAreIgnored);
        let is_stale = u16::from_le_bytes(take(line, 20)) != generation.wire();
        if is_other || (is_stale && !planted(Bug::LinesAreOfAnyGeneration)) {
            return Ok(None);
        }
        let credit = Self {
            seq: expected,
            address: u64::from_le_bytes(take(line, 0)),
            capacity: u32::from_le_bytes(take(line, 8)),
            region: RegionId(u32::from_le_bytes(take(line, 12))),
            tag: i32::from_le_bytes(take(line, 16)),
            group_size: line[22] >> 4,
            group_index: line[22] & 0xf,
        };
        credit.check()?;
        let delivered = match line[23] {
            UNSAID => Seq(0),
            _ if planted(Bug::LinesCountToThem) => expected,
            lag => Seq(expected.0.saturating_sub(lag.into())),
        };
        Ok(Some((credit, delivered)))
    }

    fn check(&self) -> Result<(), CreditError> {
        let (index, size) = (self.group_index, self.group_size);
        if usize::from(size) > GROUP_MAX || index >= size {
            return Err(CreditError::Group { index, size });
        }
        if self.capacity > MESSAGE_BYTES_MAX {
            return Err(CreditError::Capacity(self.capacity));
        }
        match self.address.checked_add(u64::from(self.capacity)) {
            Some(_) => Ok(()),
            None => Err(CreditError::Address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Credit, CreditError, MARKER_OFFSET, take};
    use crate::ids::{Generation, RegionId, Seq};
    use proptest::prelude::*;

    const GENERATION: Generation = Generation(1030);

    fn credit() -> Credit {
        Credit {
            seq: Seq(0x0102_0304_0506_0708),
            address: 0x1112_1314_1516_1718,
            capacity: 0x2122_2324,
            region: RegionId(0x3132_3334),
            tag: -2,
            group_size: 8,
            group_index: 7,
        }
    }

    #[test]
    fn the_layout_is_fixed() {
        let expected = [
            0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33,
            0x32, 0x31, 0xfe, 0xff, 0xff, 0xff, 6, 0, 0x87, 5, 9, 7, 6, 5, 4, 3, 2, 1,
        ];
        let delivered = Seq(credit().seq.0 - 5);
        assert_eq!(credit().encode(GENERATION, delivered), expected);
    }

    #[test]
    fn a_zeroed_slot_is_no_credit_for_message_0() {
        assert_eq!(Credit::decode(&[0; 32], Seq(0), Generation(0)), Ok(None));
    }

    /// PROTOCOL R9: only the expected message, only in its generation, only whole.
    #[test]
    fn other_lines_are_not_taken() {
        let seq = credit().seq;
        let line = credit().encode(GENERATION, seq);
        assert_eq!(
            Credit::decode(&line, seq, GENERATION),
            Ok(Some((credit(), seq)))
        );
        assert_eq!(Credit::decode(&line, seq.plus(1), GENERATION), Ok(None));
        assert_eq!(
            Credit::decode(&line, Seq(seq.0 - 256), GENERATION),
            Ok(None)
        );
        assert_eq!(Credit::decode(&line, seq, Generation(1031)), Ok(None));
        for whole in 0..32 {
            let mut torn = Credit {
                seq: Seq(seq.0 ^ (1 << 63) ^ 256),
                ..credit()
            }
            .encode(Generation(1029), seq);
            torn[..whole].copy_from_slice(&line[..whole]);
            assert_eq!(
                Credit::decode(&torn, seq, GENERATION),
                Ok(None),
                "{whole} bytes landed"
            );
        }
    }

    /// PROTOCOL R11: a line counts what was delivered before its own message, or nothing.
    #[test]
    fn a_line_carries_the_counter() {
        let seq = credit().seq;
        let before = |lag| Seq(seq.0 - lag);
        let table = [
            (seq.plus(1), seq),
            (seq, seq),
            (before(1), before(1)),
            (before(254), before(254)),
            (before(255), Seq(0)),
            (before(256), Seq(0)),
        ];
        for (delivered, said) in table {
            let line = credit().encode(GENERATION, delivered);
            let read = Credit::decode(&line, seq, GENERATION);
            assert_eq!(read, Ok(Some((credit(), said))), "{delivered:?}");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        let group = |index, size| Credit {
            group_index: index,
            group_size: size,
            ..credit()
        };
        let table = [
            (group(0, 0), CreditError::Group { index: 0, size: 0 }),
            (group(8, 8), CreditError::Group { index: 8, size: 8 }),
            (group(0, 9), CreditError::Group { index: 0, size: 9 }),
            (
                Credit {
                    capacity: (1 << 30) + 1,
                    ..credit()
                },
                CreditError::Capacity((1 << 30) + 1),
            ),
            (
                Credit {
                    address: u64::MAX,
                    ..credit()
                },
                CreditError::Address,
            ),
        ];
        for (bad, error) in table {
            let line = bad.encode(GENERATION, bad.seq);
            assert_eq!(Credit::decode(&line, bad.seq, GENERATION), Err(error));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_lines_never_panic(line: [u8; 32], generation: u32) {
            let word = u64::from_le_bytes(take(&line, MARKER_OFFSET));
            let result = Credit::decode(&line, Seq(word.wrapping_sub(1)), Generation(generation));
            if let Ok(Some((credit, delivered))) = result {
                prop_assert_eq!(credit.encode(Generation(generation), delivered), line);
            }
        }
    }
}
