//! What travels on the sockets of the software NIC: frame headers, the hello, addresses.
//!
//! All numbers are little endian and every frame is a multiple of 8 bytes, so that aligned words of
//! a payload stay aligned in the stream.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::QueuePairAddress;

/// Size of a frame header on every socket.
pub(super) const HEADER_BYTES: usize = 32;

/// Writes by lanes that may be open at one target; the ring that counts their bytes has this size.
pub(super) const LANE_WINDOW: u64 = 256;

/// Largest payload of one work request: 1 GiB.
pub(super) const MESSAGE_BYTES_MAX: u32 = 1 << 30;

/// Largest part of a write that one lane carries in one frame.
pub(super) const CHUNK_BYTES_MAX: u32 = 256 * 1024;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Main socket: a write whose payload follows.
    Write,
    /// Main socket: a write whose payload travels in chunks on the lanes.
    LaneWrite,
    /// Main socket: carries nothing but its acknowledgement and flags.
    Control,
    /// Main socket: write `sequence` is refused; the immediate holds a [`Refusal`].
    Refused,
    /// Lane: part of a write; the payload follows.
    Chunk,
}

/// Why a target refuses a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Key, bounds or rights.
    Access,
    /// The frame makes no sense.
    Invalid,
}

/// The write has an immediate.
pub(super) const FLAG_IMMEDIATE: u8 = 1;
/// The sender waits for the acknowledgement of this and all earlier writes.
pub(super) const FLAG_ACK_REQUEST: u8 = 2;

const FLAGS_KNOWN: u8 = FLAG_IMMEDIATE | FLAG_ACK_REQUEST;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) flags: u8,
    /// Payload bytes, without padding.
    pub(super) length: u32,
    /// Number of the write on its queue pair, modulo 2^32.
    pub(super) sequence: u32,
    /// Writes of the other direction that have landed, modulo 2^32; of a chunk, its offset in the
    /// write.
    pub(super) acknowledged: u32,
    /// Destination in the target's address space.
    pub(super) address: u64,
    /// Key of the destination's region.
    pub(super) key: u32,
    /// Of a chunk, the length of the whole write.
    pub(super) immediate: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = match self.kind {
            Kind::Write => 1,
            Kind::LaneWrite => 2,
            Kind::Control => 3,
            Kind::Refused => 4,
            Kind::Chunk => 5,
        };
        bytes[1] = self.flags;
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.acknowledged.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.address.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.key.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.immediate.to_le_bytes());
        bytes
    }

    /// `None` for anything that this version does not send.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let kind = match bytes[0] {
            1 => Kind::Write,
            2 => Kind::LaneWrite,
            3 => Kind::Control,
            4 => Kind::Refused,
            5 => Kind::Chunk,
            _ => return None,
        };
        let flags = bytes[1];
        if flags & !FLAGS_KNOWN != 0 || bytes[2] != 0 || bytes[3] != 0 {
            return None;
        }
        let header = Self {
            kind,
            flags,
            length: u32_at(bytes, 4),
            sequence: u32_at(bytes, 8),
            acknowledged: u32_at(bytes, 12),
            address: u64_at(bytes, 16),
            key: u32_at(bytes, 24),
            immediate: u32_at(bytes, 28),
        };
        let length_max = match kind {
            Kind::Write | Kind::LaneWrite => MESSAGE_BYTES_MAX,
            Kind::Control | Kind::Refused => 0,
            Kind::Chunk => CHUNK_BYTES_MAX,
        };
        (header.length <= length_max).then_some(header)
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Bytes that fill a payload up to a whole word.
pub(super) fn padding(length: usize) -> usize {
    length.wrapping_neg() & 7
}

/// Reads the 64-bit number that a wire number names, near to one that is known.
pub(super) fn widen(near: u64, wire: u32) -> u64 {
    let distance = wire.wrapping_sub(near as u32) as i32;
    near.wrapping_add_signed(i64::from(distance))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Where a queue pair is reached; the content of a [`QueuePairAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerAddress {
    pub(super) socket: SocketAddr,
    pub(super) number: u32,
    pub(super) secret: u64,
    pub(super) lanes: u16,
}

impl PeerAddress {
    const VERSION: u8 = 1;

    pub(super) fn encode(&self) -> QueuePairAddress {
        let mut bytes = [0; QueuePairAddress::BYTES];
        bytes[0] = Self::VERSION;
        match self.socket.ip() {
            IpAddr::V4(ip) => {
                bytes[1] = 4;
                bytes[16..20].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes[1] = 6;
                bytes[16..32].copy_from_slice(&ip.octets());
            }
        }
        bytes[2..4].copy_from_slice(&self.socket.port().to_le_bytes());
        bytes[4..6].copy_from_slice(&self.lanes.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.secret.to_le_bytes());
        QueuePairAddress(bytes)
    }

    /// `None` for an address of another device kind or version.
    pub(super) fn decode(address: &QueuePairAddress) -> Option<Self> {
        let bytes = &address.0;
        let ip = match (bytes[0], bytes[1]) {
            (Self::VERSION, 4) => {
                IpAddr::V4(Ipv4Addr::new(bytes[16], bytes[17], bytes[18], bytes[19]))
            }
            (Self::VERSION, 6) => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&bytes[16..32]);
                IpAddr::V6(Ipv6Addr::from(octets))
            }
            _ => return None,
        };
        Some(Self {
            socket: SocketAddr::new(ip, u16_at(bytes, 2)),
            number: u32_at(bytes, 32),
            secret: u64_at(bytes, 40),
            lanes: u16_at(bytes, 4),
        })
    }
}

/// First bytes of every socket, from the end that dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// Queue pair that the socket is for, and its secret.
    pub(super) target: u32,
    pub(super) target_secret: u64,
    /// Secret of the queue pair that dials.
    pub(super) source_secret: u64,
    /// 0 for the main socket, k for lane k - 1.
    pub(super) index: u16,
}

impl Hello {
    pub(super) const BYTES: usize = 40;
    const MAGIC: [u8; 8] = *b"R2softN1";

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&Self::MAGIC);
        bytes[8..12].copy_from_slice(&self.target.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.index.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.target_secret.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.source_secret.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        (bytes[..8] == Self::MAGIC).then(|| Self {
            target: u32_at(bytes, 8),
            target_secret: u64_at(bytes, 16),
            source_secret: u64_at(bytes, 24),
            index: u16_at(bytes, 12),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_survives_the_wire_and_nonsense_does_not() {
        let header = Header {
            kind: Kind::LaneWrite,
            flags: FLAG_IMMEDIATE,
            length: 0x0123_4567,
            sequence: 0xfedc_ba98,
            acknowledged: 7,
            address: 0x0102_0304_0506_0708,
            key: 0xdead_beef,
            immediate: 0xcafe_f00d,
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        for (at, value) in [(0, 0), (0, 9), (1, 0x80), (2, 1), (3, 1), (7, 0xff)] {
            let mut bad = bytes;
            bad[at] = value;
            assert_eq!(Header::decode(&bad), None, "byte {at}");
        }
    }

    #[test]
    fn addresses_and_hellos_survive_the_wire() {
        for ip in ["127.0.0.9:7", "[::1]:65535"] {
            let address = PeerAddress {
                socket: ip.parse().expect("a socket address"),
                number: 0x0a0b_0c0d,
                secret: u64::MAX - 1,
                lanes: 4,
            };
            assert_eq!(PeerAddress::decode(&address.encode()), Some(address));
        }
        assert_eq!(PeerAddress::decode(&QueuePairAddress([0; 64])), None);
        let hello = Hello {
            target: 1,
            target_secret: 2,
            source_secret: 3,
            index: 4,
        };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        assert_eq!(
            Hello::decode(b"GET / HTTP/1.1\r\nHost: somebody\r\n........"),
            None
        );
    }

    #[test]
    fn wire_numbers_widen_around_the_wrap() {
        let near = (3 << 32) + 5;
        assert_eq!(widen(near, 6), near + 1);
        assert_eq!(widen(near, u32::MAX), near - 6);
        assert_eq!(widen(u64::from(u32::MAX), 0), 1 << 32);
    }

    #[test]
    fn padding_fills_words() {
        assert_eq!([0, 1, 7, 8, 9].map(padding), [0, 7, 1, 0, 7]);
    }
}
