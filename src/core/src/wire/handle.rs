//! The 128-byte handle that `listen` fills and NCCL carries to the other side.
//!
//! It says which process listens, where its control plane is reached and what authenticates a
//! dial. NCCL moves it over its own bootstrap, which is trusted with the secret inside.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `R2CH` |
//! | 4 | 2 | protocol version |
//! | 6 | 1 | number of addresses (bits 0-1), which of them are IPv6 (bits 2-4) |
//! | 7 | 1 | bytes of the host name |
//! | 8 | 8 | nonce: names the listen |
//! | 16 | 16 | secret of the listening process |
//! | 32 | 8 | host id |
//! | 40 | 8 | instance id of the process |
//! | 48 | 4 | process id |
//! | 52 | 56 | addresses (6 or 18 bytes each), then the host name, then zeros |
//! | 108 | 4 | checksum over bytes 0 to 107 |
//! | 112 | 16 | zero: connect state of the sending side |
//!
//! Magic and version keep their place in every version, so that a handle of another version is
//! recognised as such.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::bytes::{Reader, prefix};

/// Version of everything that two processes say to each other: handles, hellos, frames, credits.
pub const PROTOCOL_VERSION: u16 = 6;

const MAGIC: [u8; 4] = *b"R2CH";
const CHECKED_BYTES: usize = 108;
const VARIABLE_OFFSET: usize = 52;

/// What `listen` tells the sending side.
#[derive(Clone, PartialEq, Eq)]
pub struct Handle {
    /// Names the listen within its process; from a good random source.
    pub nonce: u64,
    /// Secret of the listening process: whoever holds it may talk to its control plane.
    pub secret: [u8; Handle::SECRET_BYTES],
    /// Hash of the host's identity.
    pub host_id: u64,
    /// Random number of the listening process; two processes never share one.
    pub instance: u64,
    /// Process id, for messages.
    pub pid: u32,
    /// Printable name of the host, for messages; cut to what fits (16 bytes at the most, 2 beside
    /// three IPv6 addresses).
    pub host: String,
    /// Where the control plane listens; the first three are kept. Scope ids do not travel: they
    /// mean nothing on another host.
    pub addresses: Vec<SocketAddr>,
}

impl core::fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Handle")
            .field("nonce", &self.nonce)
            .field("host_id", &self.host_id)
            .field("instance", &self.instance)
            .field("pid", &self.pid)
            .field("host", &self.host)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

/// Why 128 bytes are not a usable handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// The magic is not ours.
    #[error(
        "the handle was not made by R2CCL (its first bytes are {0:02x?}): both sides must load the \
         same network plugin"
    )]
    Foreign([u8; 4]),
    /// Ours, but from another version of the library.
    #[error(
        "the handle was made by an R2CCL that speaks protocol version {theirs}, this one speaks \
         {ours}: install the same R2CCL on both hosts"
    )]
    Version {
        /// Version in the handle.
        theirs: u16,
        /// [`PROTOCOL_VERSION`].
        ours: u16,
    },
    /// The checksum or a field is wrong.
    #[error("the handle is truncated or corrupt: it was changed on its way between the hosts")]
    Corrupt,
}

impl Handle {
    /// Size on the wire, connect state included: NCCL's `NCCL_NET_HANDLE_MAXSIZE`.
    pub const BYTES: usize = 128;
    /// Where the connect state of the sending side begins; everything from here on is zero in a
    /// fresh handle and ignored by [`Handle::decode`].
    pub const STATE_OFFSET: usize = 112;
    /// Size of the secret.
    pub const SECRET_BYTES: usize = 16;
    /// Most addresses that a handle carries.
    pub const ADDRESSES_MAX: usize = 3;
    /// Most bytes of the host name.
    pub const HOST_BYTES_MAX: usize = 16;

    /// The handle as bytes, connect state zero.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut variable = Vec::with_capacity(CHECKED_BYTES - VARIABLE_OFFSET);
        let mut shape = 0_u8;
        for (index, address) in self.addresses.iter().take(Self::ADDRESSES_MAX).enumerate() {
            match address.ip() {
                IpAddr::V4(ip) => variable.extend_from_slice(&ip.octets()),
                IpAddr::V6(ip) => variable.extend_from_slice(&ip.octets()),
            }
            variable.extend_from_slice(&address.port().to_le_bytes());
            shape += 1;
            shape |= u8::from(address.is_ipv6()) << (2 + index);
        }
        let room = CHECKED_BYTES - VARIABLE_OFFSET - variable.len();
        let host = prefix(&self.host, room.min(Self::HOST_BYTES_MAX));
        variable.extend_from_slice(host.as_bytes());

        let mut out = [0_u8; Self::BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        out[6] = shape;
        out[7] = host.len() as u8;
        out[8..16].copy_from_slice(&self.nonce.to_le_bytes());
        out[16..32].copy_from_slice(&self.secret);
        out[32..40].copy_from_slice(&self.host_id.to_le_bytes());
        out[40..48].copy_from_slice(&self.instance.to_le_bytes());
        out[48..52].copy_from_slice(&self.pid.to_le_bytes());
        out[VARIABLE_OFFSET..VARIABLE_OFFSET + variable.len()].copy_from_slice(&variable);
        let sum = checksum(&out[..CHECKED_BYTES]);
        out[CHECKED_BYTES..Self::STATE_OFFSET].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads a handle; the connect state is not looked at. Fewer than [`Handle::STATE_OFFSET`]
    /// bytes are corrupt, unless the magic already says otherwise.
    pub fn decode(bytes: &[u8]) -> Result<Self, HandleError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.array().ok_or(HandleError::Corrupt)?;
        if magic != MAGIC {
            return Err(HandleError::Foreign(magic));
        }
        let theirs = reader.u16().ok_or(HandleError::Corrupt)?;
        if theirs != PROTOCOL_VERSION {
            let ours = PROTOCOL_VERSION;
            return Err(HandleError::Version { theirs, ours });
        }
        let checked = bytes.get(..CHECKED_BYTES).ok_or(HandleError::Corrupt)?;
        let sum = bytes
            .get(CHECKED_BYTES..Self::STATE_OFFSET)
            .ok_or(HandleError::Corrupt)?;
        if sum != checksum(checked).to_le_bytes() {
            return Err(HandleError::Corrupt);
        }
        Self::fields(&mut reader).ok_or(HandleError::Corrupt)
    }

    /// Everything behind the version.
    fn fields(reader: &mut Reader<'_>) -> Option<Self> {
        let shape = reader.u8()?;
        let host_bytes = usize::from(reader.u8()?);
        let nonce = reader.u64()?;
        let secret = reader.array()?;
        let host_id = reader.u64()?;
        let instance = reader.u64()?;
        let pid = reader.u32()?;
        let mut reader = Reader::new(reader.slice(CHECKED_BYTES - VARIABLE_OFFSET)?);
        let mut addresses = Vec::with_capacity(Self::ADDRESSES_MAX);
        for index in 0..shape & 3 {
            let ip = if shape & (1 << (2 + index)) != 0 {
                IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?))
            } else {
                IpAddr::V4(Ipv4Addr::from(reader.array::<4>()?))
            };
            addresses.push(SocketAddr::new(ip, reader.u16()?));
        }
        let host = core::str::from_utf8(reader.slice(host_bytes)?).ok()?;
        Some(Self {
            nonce,
            secret,
            host_id,
            instance,
            pid,
            host: String::from(host),
            addresses,
        })
    }
}

/// FNV-1a, 32 bits (Fowler, Noll, Vo; draft-eastlake-fnv). Each step is a bijection of the state,
/// so a change of one byte is always found. It guards against accidents; frames have a real MAC.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum: u32, &byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
