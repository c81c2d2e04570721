//! First bytes on a fresh control connection, before either side trusts the other.
//!
//! The dialling side sends a [`Hello`], the listening side answers with a [`Reply`]; both carry a
//! nonce, from which (and the secret) the keys of the connection are made. Then both greet. Magic,
//! version and length keep their place in every version of the protocol.
//!
//! | offset | bytes | hello | reply |
//! |---|---|---|---|
//! | 0 | 4 | magic `R2CC` | magic `R2CC` |
//! | 4 | 2 | version | version |
//! | 6 | 1 | 1 | 2 |
//! | 7 | 1 | whose secret: 0 the target's, 1 the dialler's | verdict |
//! | 8 | 8 | instance id of the dialler | instance id of the answering process |
//! | 16 | 8 | instance id that it wants to talk to | instance id of the dialler |
//! | 24 | 8 | round: sessions of this link so far plus 1 | round |
//! | 32 | 16 | nonce | nonce |
//! | 48 | 16 | MAC | MAC |

use super::bytes::Reader;

/// Size of a hello and of a reply.
pub const HELLO_BYTES: usize = 64;
/// Bytes that the MAC covers.
pub const HELLO_CHECKED_BYTES: usize = 48;
/// Size of a nonce.
pub const NONCE_BYTES: usize = 16;

/// First bytes of hello and reply, in every version.
pub const HELLO_MAGIC: [u8; 4] = *b"R2CC";
const KIND_HELLO: u8 = 1;
const KIND_REPLY: u8 = 2;

/// What the dialling side says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Protocol version of the dialler.
    pub version: u16,
    /// Whose secret the MACs are made with.
    pub secret_of: SecretOf,
    /// Instance id of the dialler.
    pub dialler: u64,
    /// Instance id of the process it wants to talk to.
    pub target: u64,
    /// Number that the session will have on this link, from 1: what tells a dial that crossed
    /// another one from a dial after a loss.
    pub round: u64,
    /// Fresh random bytes.
    pub nonce: [u8; NONCE_BYTES],
}

/// Whose secret authenticates a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretOf {
    /// The listening side's: the dialler holds one of its handles.
    Target,
    /// The dialler's: the listening side holds one of its handles.
    Dialler,
}

/// What the listening side thinks of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Welcome,
    /// Another process than the wanted one listens here now. The MAC is zero: it has no secret.
    OtherInstance,
    /// The versions differ.
    OtherVersion,
}

/// What the listening side answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Protocol version of the answering process.
    pub version: u16,
    /// Whether the handshake goes on.
    pub verdict: Verdict,
    /// Instance id of the answering process.
    pub instance: u64,
    /// Instance id of the dialler, from the hello.
    pub dialler: u64,
    /// Round of the hello.
    pub round: u64,
    /// Fresh random bytes.
    pub nonce: [u8; NONCE_BYTES],
}

impl Hello {
    /// The hello as bytes, MAC zero.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let whose = match self.secret_of {
            SecretOf::Target => 0,
            SecretOf::Dialler => 1,
        };
        let ids = [self.dialler, self.target, self.round];
        encode(self.version, [KIND_HELLO, whose], ids, &self.nonce)
    }

    /// Reads a hello; the MAC is the caller's to check. `None`: not a hello.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let (version, whose, ids, nonce) = decode(bytes, KIND_HELLO)?;
        let secret_of = match whose {
            0 => SecretOf::Target,
            1 => SecretOf::Dialler,
            _ => return None,
        };
        let [dialler, target, round] = ids;
        Some(Self {
            version,
            secret_of,
            dialler,
            target,
            round,
            nonce,
        })
    }
}

impl Reply {
    /// The reply as bytes, MAC zero.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let verdict = match self.verdict {
            Verdict::Welcome => 0,
            Verdict::OtherInstance => 1,
            Verdict::OtherVersion => 2,
        };
        let ids = [self.instance, self.dialler, self.round];
        encode(self.version, [KIND_REPLY, verdict], ids, &self.nonce)
    }

    /// Reads a reply; the MAC is the caller's to check. `None`: not a reply.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let (version, verdict, ids, nonce) = decode(bytes, KIND_REPLY)?;
        let verdict = match verdict {
            0 => Verdict::Welcome,
            1 => Verdict::OtherInstance,
            2 => Verdict::OtherVersion,
            _ => return None,
        };
        let [instance, dialler, round] = ids;
        Some(Self {
            version,
            verdict,
            instance,
            dialler,
            round,
            nonce,
        })
    }
}

type Fields = (u16, u8, [u64; 3], [u8; NONCE_BYTES]);

fn encode(
    version: u16,
    kind: [u8; 2],
    ids: [u64; 3],
    nonce: &[u8; NONCE_BYTES],
) -> [u8; HELLO_BYTES] {
    let mut out = [0; HELLO_BYTES];
    out[0..4].copy_from_slice(&HELLO_MAGIC);
    out[4..6].copy_from_slice(&version.to_le_bytes());
    out[6..8].copy_from_slice(&kind);
    for (slot, id) in out[8..32].chunks_exact_mut(8).zip(ids) {
        slot.copy_from_slice(&id.to_le_bytes());
    }
    out[32..48].copy_from_slice(nonce);
    out
}

fn decode(bytes: &[u8; HELLO_BYTES], kind: u8) -> Option<Fields> {
    let mut reader = Reader::new(bytes);
    let magic: [u8; 4] = reader.array()?;
    let version = reader.u16()?;
    let found = reader.u8()?;
    let detail = reader.u8()?;
    let ids = [reader.u64()?, reader.u64()?, reader.u64()?];
    let nonce = reader.array()?;
    (magic == HELLO_MAGIC && found == kind).then_some((version, detail, ids, nonce))
}
