//! Cutting a message into segments.
//!
//! A message is cut once, by the route of the moment at which it is submitted (PROTOCOL R1). The
//! cut is a list of shares, one a path, each a run of segments with consecutive numbers.

use crate::error::ProtocolError;
use crate::ids::PathId;
use crate::limits::{SEGMENT_ALIGN, SEGMENT_BYTES_MAX, SEGMENTS_MAX, SHARES_MAX, STRIPE_BYTES_MIN};
use crate::planted::{Bug, planted};
use crate::route::WeightedPath;

/// Largest payload of a segment on one connection, in bytes: a multiple of 128 from 64 KiB to
/// 16 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSize(u32);

impl SegmentSize {
    /// What the protocol allows at the most.
    pub const MAX: Self = Self(SEGMENT_BYTES_MAX);

    /// Checks a size.
    pub const fn new(bytes: u32) -> Result<Self, ProtocolError> {
        let fits = bytes >= STRIPE_BYTES_MIN && bytes <= SEGMENT_BYTES_MAX;
        if fits && bytes % SEGMENT_ALIGN == 0 {
            Ok(Self(bytes))
        } else {
            Err(ProtocolError::BadSegmentSize(bytes))
        }
    }

    /// Bytes.
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// Bytes of the largest message that can be cut into [`SEGMENTS_MAX`] of these.
    pub const fn message_bytes_max(self) -> u32 {
        self.0 * SEGMENTS_MAX as u32
    }

    /// Segments that `bytes` need; none needs one as well.
    const fn segments(self, bytes: u32) -> u32 {
        if bytes == 0 {
            1
        } else {
            bytes.div_ceil(self.0)
        }
    }
}

/// The part of a message that goes over one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The path.
    pub path: PathId,
    /// Number of its first segment.
    pub first: u8,
    /// How many segments it has.
    pub count: u8,
    /// Where it begins in the message, in bytes.
    pub offset: u32,
    /// Its bytes.
    pub bytes: u32,
}

/// One segment of a cut message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins in the message, in bytes.
    pub offset: u32,
    /// Its bytes.
    pub bytes: u32,
}

/// A message, cut: shares in the order of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    shares: [Share; SHARES_MAX],
    share_count: u8,
    segment_count: u8,
    size: SegmentSize,
}

impl Cut {
    /// The cut of a message without bytes over the primary path.
    pub const EMPTY: Self = Self {
        shares: [Share {
            path: PathId::PRIMARY,
            first: 0,
            count: 1,
            offset: 0,
            bytes: 0,
        }; SHARES_MAX],
        share_count: 1,
        segment_count: 1,
        size: SegmentSize::MAX,
    };

    /// Cuts `bytes` over the paths of a route, into segments of at most `size`. Where a share would
    /// be smaller than [`STRIPE_BYTES_MIN`], paths are left out, the last of `entries` first.
    pub fn new(
        bytes: u32,
        entries: &[WeightedPath],
        size: SegmentSize,
    ) -> Result<Self, ProtocolError> {
        if bytes > size.message_bytes_max() {
            return Err(ProtocolError::MessageTooLarge(u64::from(bytes)));
        }
        let useful = entries.len().min((bytes / STRIPE_BYTES_MIN) as usize);
        let spread = (2..=useful)
            .rev()
            .find_map(|count| Self::spread(bytes, &entries[..count], size));
        Ok(spread.unwrap_or_else(|| {
            let mut builder = Builder::new(size);
            builder.push_until(bytes, entries[0].path);
            builder.cut
        }))
    }

    /// Spreads over all of `entries`; `None` when a share would be too small.
    fn spread(bytes: u32, entries: &[WeightedPath], size: SegmentSize) -> Option<Self> {
        let mut builder = Builder::new(size);
        let mut segments = 0;
        let align = if planted(Bug::CutsAnywhere) {
            1
        } else {
            SEGMENT_ALIGN
        };
        for (path, end) in ends(u64::from(bytes / align), entries) {
            let last = path == entries[entries.len() - 1].path;
            let end = if last { bytes } else { end * align };
            let share = end - builder.end;
            if share < STRIPE_BYTES_MIN && !planted(Bug::SharesMayBeThin) {
                return None;
            }
            segments += size.segments(share);
            builder.push_until(end, path);
        }
        if segments <= SEGMENTS_MAX as u32 {
            return Some(builder.cut);
        }
        Some(Self::spread_whole_segments(bytes, entries, size))
    }

    /// Spreads a message so large that odd shares would need more than [`SEGMENTS_MAX`] segments:
    /// every share but the last is a whole number of segments.
    fn spread_whole_segments(bytes: u32, entries: &[WeightedPath], size: SegmentSize) -> Self {
        let mut builder = Builder::new(size);
        for (path, end) in ends(u64::from(size.segments(bytes)), entries) {
            let mut end = (end * size.bytes()).min(bytes);
            if bytes - end < STRIPE_BYTES_MIN {
                // A remainder that is not worth a path stays with this one.
                end = bytes;
            }
            builder.push_until(end, path);
        }
        builder.cut
    }

    /// Segments of the message, 1 to [`SEGMENTS_MAX`].
    pub const fn segment_count(&self) -> u8 {
        self.segment_count
    }

    /// The shares in the order of their bytes.
    pub fn shares(&self) -> &[Share] {
        &self.shares[..usize::from(self.share_count)]
    }

    /// The share of `path`, if it has one.
    pub fn share(&self, path: PathId) -> Option<&Share> {
        self.shares().iter().find(|share| share.path == path)
    }

    /// Path and place of segment `index` as the message was cut.
    pub fn segment(&self, index: u8) -> Option<(PathId, Segment)> {
        let share = self.shares().iter().rfind(|share| share.first <= index)?;
        let (_, segment) = self.of_path(share.path, index - share.first)?;
        Some((share.path, segment))
    }

    /// The `nth` segment of the share of `path`, with its number in the message.
    pub fn of_path(&self, path: PathId, nth: u8) -> Option<(u8, Segment)> {
        let share = self.share(path).filter(|share| nth < share.count)?;
        let skipped = u32::from(nth) * self.size.bytes();
        let bytes = (share.bytes - skipped).min(self.size.bytes());
        let offset = share.offset + skipped;
        Some((share.first + nth, Segment { offset, bytes }))
    }
}

/// Ends of the parts of `units` by weight, each rounded down but the last, which is all of them.
fn ends(units: u64, entries: &[WeightedPath]) -> impl Iterator<Item = (PathId, u32)> {
    let total: u64 = entries.iter().map(|entry| u64::from(entry.weight)).sum();
    let mut weight = 0;
    entries.iter().map(move |entry| {
        weight += u64::from(entry.weight);
        // At most `units`, which came from a u32.
        (entry.path, (units * weight / total) as u32)
    })
}

/// Lays shares end to end.
struct Builder {
    cut: Cut,
    end: u32,
}

impl Builder {
    fn new(size: SegmentSize) -> Self {
        Self {
            cut: Cut {
                share_count: 0,
                segment_count: 0,
                size,
                ..Cut::EMPTY
            },
            end: 0,
        }
    }

    /// Gives `path` everything up to `end`. An empty share is left out unless it is the first.
    fn push_until(&mut self, end: u32, path: PathId) {
        let bytes = end - self.end;
        if bytes == 0 && self.cut.share_count > 0 {
            return;
        }
        let cut = &mut self.cut;
        // At most 64: the message fits that many.
        let count = cut.size.segments(bytes) as u8;
        let first = cut.segment_count;
        cut.shares[usize::from(cut.share_count)] = Share {
            path,
            first,
            count,
            offset: self.end,
            bytes,
        };
        cut.share_count += 1;
        cut.segment_count = first + count;
        self.end = end;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{Cut, SegmentSize, Share};
    use crate::error::ProtocolError;
    use crate::ids::PathId;
    use crate::limits::{
        MESSAGE_BYTES_MAX, SEGMENT_ALIGN, SEGMENT_BYTES_MAX, SEGMENTS_MAX, STRIPE_BYTES_MIN,
    };
    use crate::route::Route;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn path(index: u8) -> PathId {
        PathId::new(index).expect("in range")
    }

    fn route(weights: &[u32]) -> Route {
        let weights: Vec<_> = (0..).map(path).zip(weights.iter().copied()).collect();
        Route::weighted(&weights).expect("valid")
    }

    /// Path, number of segments and bytes of each share.
    fn shares(bytes: u32, weights: &[u32]) -> Vec<(usize, u8, u32)> {
        let cut = Cut::new(bytes, route(weights).entries(), SegmentSize::MAX).expect("fits");
        let shape = |share: &Share| (share.path.index(), share.count, share.bytes);
        cut.shares().iter().map(shape).collect()
    }

    #[test]
    fn known_cuts() {
        const MIB: u32 = 1 << 20;
        const KIB: u32 = 1 << 10;
        assert_eq!(shares(0, &[1]), [(0, 1, 0)]);
        assert_eq!(shares(1, &[1]), [(0, 1, 1)]);
        assert_eq!(shares(16 * MIB, &[1]), [(0, 1, 16 * MIB)]);
        assert_eq!(shares(16 * MIB + 1, &[1]), [(0, 2, 16 * MIB + 1)]);
        assert_eq!(
            shares(MESSAGE_BYTES_MAX, &[1]),
            [(0, 64, MESSAGE_BYTES_MAX)]
        );
        // Two paths: not worth it, just worth it, and a tail that is no multiple of 128.
        assert_eq!(shares(128 * KIB - 1, &[1, 1]), [(0, 1, 128 * KIB - 1)]);
        assert_eq!(
            shares(128 * KIB, &[1, 1]),
            [(0, 1, 64 * KIB), (1, 1, 64 * KIB)]
        );
        assert_eq!(
            shares(MIB + 77, &[1, 1]),
            [(0, 1, MIB / 2), (1, 1, MIB / 2 + 77)]
        );
        // The light path would get less than 64 KiB and is left out.
        assert_eq!(shares(256 * KIB, &[1, 9]), [(1, 1, 256 * KIB)]);
        assert_eq!(
            shares(MIB, &[0, 1, 3]),
            [(2, 1, 768 * KIB), (1, 1, 256 * KIB)]
        );
        // Odd shares of the largest message would need 66 segments.
        let large = shares(MESSAGE_BYTES_MAX, &[1, 1, 1]);
        assert_eq!(
            large,
            [(0, 21, 336 * MIB), (1, 21, 336 * MIB), (2, 22, 352 * MIB)]
        );
    }

    #[test]
    fn too_large_a_message_is_refused() {
        let bytes = MESSAGE_BYTES_MAX + 1;
        let error = ProtocolError::MessageTooLarge(u64::from(bytes));
        assert_eq!(
            Cut::new(bytes, route(&[1]).entries(), SegmentSize::MAX),
            Err(error)
        );
    }

    proptest! {
        /// PROTOCOL R1: each byte is in one segment, cuts lie at multiples of 128, shares are
        /// worth a path, and no message has more than 64 segments.
        #[test]
        fn every_byte_once(
            bytes in prop_oneof![0..=MESSAGE_BYTES_MAX, 0u32..1 << 20, Just(MESSAGE_BYTES_MAX),
                MESSAGE_BYTES_MAX - 200_000..=MESSAGE_BYTES_MAX],
            size in STRIPE_BYTES_MIN / 128..=SEGMENT_BYTES_MAX / 128,
            weights in prop::collection::vec(1u32..=1 << 20, 1..=8),
        ) {
            let size = SegmentSize::new(size * 128).expect("in range");
            let bytes = bytes.min(size.message_bytes_max());
            let cut = Cut::new(bytes, route(&weights).entries(), size).expect("fits");
            let (mut end, mut number) = (0, 0);
            for share in cut.shares() {
                prop_assert_eq!((share.offset, share.first), (end, number));
                prop_assert!(cut.shares().len() == 1 || share.bytes >= STRIPE_BYTES_MIN);
                for nth in 0..share.count {
                    let (index, segment) = cut.of_path(share.path, nth).expect("counted");
                    prop_assert_eq!((index, segment.offset), (number, end));
                    prop_assert_eq!(cut.segment(index), Some((share.path, segment)));
                    prop_assert!(segment.offset % SEGMENT_ALIGN == 0);
                    prop_assert!(segment.bytes <= size.bytes());
                    prop_assert!(segment.bytes > 0 || bytes == 0);
                    end += segment.bytes;
                    number += 1;
                }
                prop_assert_eq!(cut.of_path(share.path, share.count), None);
            }
            prop_assert_eq!((end, number), (bytes, cut.segment_count()));
            prop_assert!((1..=SEGMENTS_MAX).contains(&usize::from(number)));
        }

        /// Shares follow the weights within two lines (both the message and the share are rounded),
        /// or one segment for the largest messages.
        #[test]
        fn shares_follow_the_weights(bytes in 1u32 << 23..=MESSAGE_BYTES_MAX, heavy in 1u32..=9) {
            let route = route(&[heavy, 1]);
            let cut = Cut::new(bytes, route.entries(), SegmentSize::MAX).expect("fits");
            let ideal = u64::from(bytes) * u64::from(heavy) / u64::from(heavy + 1);
            let got = u64::from(cut.shares()[0].bytes);
            let odd = bytes.div_ceil(SEGMENT_BYTES_MAX) < SEGMENTS_MAX as u32;
            let slack = if odd { 2 * SEGMENT_ALIGN } else { SEGMENT_BYTES_MAX };
            prop_assert!(got.abs_diff(ideal) <= u64::from(slack), "{got} of {ideal}");
        }
    }
}
