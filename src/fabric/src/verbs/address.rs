//! What a queue pair tells its peer, in the 64 bytes that a frame has for it.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::gid::Gid;
use super::prober::Desk;
use crate::QueuePairAddress;

/// Begins every address of this kind: addresses of other kinds of device are refused.
const MAGIC: [u8; 4] = *b"RCv1";

/// Ethernet, as `IBV_LINK_LAYER_ETHERNET` has it.
pub(super) const ETHERNET: u8 = 2;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    magic: [u8; 4],
    number: U32,
    first_packet: U32,
    lid: U16,
    mtu: u8,
    link_layer: u8,
    gid: [u8; 16],
    desk_number: U32,
    desk_key: U32,
    reserved: [u8; 24],
}

const _: () = assert!(size_of::<Layout>() == QueuePairAddress::BYTES);

/// One end of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Number of the queue pair.
    pub(super) number: u32,
    /// Sequence number of the first packet that it sends.
    pub(super) first_packet: u32,
    /// Local identifier; counts on InfiniBand.
    pub(super) lid: u16,
    /// Largest packet, as `ibv_mtu` counts.
    pub(super) mtu: u8,
    /// InfiniBand or Ethernet.
    pub(super) link_layer: u8,
    /// Address of the port.
    pub(super) gid: Gid,
    /// Where the port takes questions, if it does.
    pub(super) desk: Option<Desk>,
}

impl Address {
    pub(super) fn encode(&self) -> QueuePairAddress {
        let desk = self.desk.unwrap_or_default();
        let layout = Layout {
            magic: MAGIC,
            number: self.number.into(),
            first_packet: self.first_packet.into(),
            lid: self.lid.into(),
            mtu: self.mtu,
            link_layer: self.link_layer,
            gid: self.gid.0,
            desk_number: desk.number.into(),
            desk_key: desk.key.into(),
            reserved: [0; 24],
        };
        QueuePairAddress(zerocopy::transmute!(layout))
    }

    /// `None` for what no device of this kind has sent.
    pub(super) fn decode(address: &QueuePairAddress) -> Option<Self> {
        let layout: Layout = zerocopy::transmute!(address.0);
        let desk = Desk {
            number: layout.desk_number.get(),
            key: layout.desk_key.get(),
        };
        let decoded = Self {
            number: layout.number.get(),
            first_packet: layout.first_packet.get(),
            lid: layout.lid.get(),
            mtu: layout.mtu,
            link_layer: layout.link_layer,
            gid: Gid(layout.gid),
            desk: Some(desk).filter(|desk| *desk != Desk::default()),
        };
        let is_sound = layout.magic == MAGIC
            && (1..=5).contains(&decoded.mtu)
            && decoded.number < 1 << 24
            && decoded.first_packet < 1 << 24
            && desk.number < 1 << 24;
        is_sound.then_some(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Address = Address {
        number: 0x12_3456,
        first_packet: 0xab_cdef,
        lid: 0x1122,
        mtu: 3,
        link_layer: ETHERNET,
        gid: Gid([7; 16]),
        desk: Some(Desk {
            number: 0x11,
            key: 0x22,
        }),
    };

    #[test]
    fn addresses_are_encoded_byte_by_byte() {
        let bytes = SAMPLE.encode().0;
        let mut expected = [0; 64];
        expected[..16].copy_from_slice(&[
            b'R', b'C', b'v', b'1', 0x56, 0x34, 0x12, 0, 0xef, 0xcd, 0xab, 0, 0x22, 0x11, 3, 2,
        ]);
        expected[16..32].fill(7);
        (expected[32], expected[36]) = (0x11, 0x22);
        assert_eq!(bytes, expected);
        assert_eq!(Address::decode(&QueuePairAddress(bytes)), Some(SAMPLE));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let with = |at: usize, value: u8| {
            let mut bytes = SAMPLE.encode().0;
            bytes[at] = value;
            Address::decode(&QueuePairAddress(bytes))
        };
        for (at, value) in [(0, b'S'), (7, 1), (11, 1), (14, 0), (14, 6), (35, 1)] {
            assert_eq!(with(at, value), None, "byte {at}");
        }
        assert_eq!(Address::decode(&QueuePairAddress([0; 64])), None);
    }
}
