//! Bodies of frames to bytes and back.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::bytes::{Reader, put_text};
use super::frame::{
    Accept, BODY_BYTES_MAX, Frame, FrameError, NAME_BYTES_MAX, Open, PATHS_MAX, PathEnd,
    REASON_BYTES_MAX,
};
use super::greeting::{Greeting, SETTING_BYTES_MAX, SETTINGS_MAX};
use super::handle::Handle;
use super::path_frame::{PATH_FRAME_BYTES_MAX, PATH_FRAME_KINDS, PathFrame};

const GREETING: u8 = 1;
const ACK: u8 = 2;
const RESET: u8 = 3;
const OPEN: u8 = 16;
const ACCEPT: u8 = 17;
const REFUSE: u8 = 18;
const REGION_KEY: u8 = 19;
const GOODBYE: u8 = 20;

impl Frame {
    /// Kind on the wire.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Greeting(_) => GREETING,
            Self::Ack => ACK,
            Self::Reset { .. } => RESET,
            Self::Open(_) => OPEN,
            Self::Accept(_) => ACCEPT,
            Self::Refuse { .. } => REFUSE,
            Self::RegionKey { .. } => REGION_KEY,
            Self::Goodbye { .. } => GOODBYE,
            Self::Path { frame, .. } => frame.kind(),
        }
    }

    /// Whether the control plane answers the frame itself; it is then not sequenced.
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Greeting(_) | Self::Ack | Self::Reset { .. })
    }

    /// The body as bytes. Text beyond its bound is cut; too many paths or settings are an error.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        let mut out = Vec::new();
        match self {
            Self::Greeting(greeting) => put_greeting(&mut out, greeting)?,
            Self::Ack => {}
            Self::Reset { reason } => put_text(&mut out, reason, REASON_BYTES_MAX),
            Self::Open(open) => put_open(&mut out, open)?,
            Self::Accept(accept) => put_accept(&mut out, accept)?,
            Self::Refuse { to, reason, nics } => {
                put_u64(&mut out, *to);
                out.push(*nics);
                put_text(&mut out, reason, REASON_BYTES_MAX);
            }
            Self::RegionKey {
                to,
                region,
                path,
                rkey,
            } => {
                put_u64(&mut out, *to);
                put_u32(&mut out, *region);
                out.push(*path);
                put_u32(&mut out, *rkey);
            }
            Self::Goodbye { to, count } => {
                put_u64(&mut out, *to);
                put_u64(&mut out, *count);
            }
            Self::Path { to, frame } => {
                put_u64(&mut out, *to);
                let mut body = [0; PATH_FRAME_BYTES_MAX];
                let bytes = frame.encode(&mut body);
                out.extend_from_slice(&body[..bytes]);
            }
        }
        if out.len() > BODY_BYTES_MAX {
            return Err(FrameError::TooLarge(out.len()));
        }
        Ok(out)
    }

    /// Reads a body of the given kind; every byte of it must belong to the frame.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(body);
        let is_known = matches!(kind, GREETING..=RESET | OPEN..=GOODBYE);
        if !is_known && !PATH_FRAME_KINDS.contains(&kind) {
            return Err(FrameError::UnknownKind(kind));
        }
        let frame = read_body(kind, &mut reader).ok_or(FrameError::Malformed(kind))?;
        if reader.is_at_end() {
            Ok(frame)
        } else {
            Err(FrameError::Malformed(kind))
        }
    }
}

fn read_body(kind: u8, reader: &mut Reader<'_>) -> Option<Frame> {
    Some(match kind {
        GREETING => Frame::Greeting(read_greeting(reader)?),
        ACK => Frame::Ack,
        RESET => Frame::Reset {
            reason: reader.text(REASON_BYTES_MAX)?,
        },
        OPEN => Frame::Open(read_open(reader)?),
        ACCEPT => Frame::Accept(read_accept(reader)?),
        REFUSE => Frame::Refuse {
            to: reader.u64()?,
            nics: reader.u8()?,
            reason: reader.text(REASON_BYTES_MAX)?,
        },
        REGION_KEY => Frame::RegionKey {
            to: reader.u64()?,
            region: reader.u32()?,
            path: reader.u8()?,
            rkey: reader.u32()?,
        },
        GOODBYE => Frame::Goodbye {
            to: reader.u64()?,
            count: reader.u64()?,
        },
        _ => Frame::Path {
            to: reader.u64()?,
            frame: Box::new(PathFrame::decode(kind, reader.rest())?),
        },
    })
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// A count that has one byte on the wire.
fn put_count(out: &mut Vec<u8>, count: usize, count_max: usize) -> Result<(), FrameError> {
    match u8::try_from(count) {
        Ok(byte) if count <= count_max => out.push(byte),
        _ => return Err(FrameError::TooLarge(count)),
    }
    Ok(())
}

fn read_count(reader: &mut Reader<'_>, count_max: usize) -> Option<usize> {
    let count = usize::from(reader.u8()?);
    (count <= count_max).then_some(count)
}

fn put_paths(out: &mut Vec<u8>, paths: &[PathEnd]) -> Result<(), FrameError> {
    put_count(out, paths.len(), PATHS_MAX)?;
    for path in paths {
        put_u16(out, path.path);
        put_u16(out, path.generation);
        out.push(path.nic);
        out.extend_from_slice(&path.queue_pair);
        put_u64(out, path.memory_address);
        put_u32(out, path.memory_rkey);
    }
    Ok(())
}

fn read_paths(reader: &mut Reader<'_>) -> Option<Vec<PathEnd>> {
    let end = |reader: &mut Reader<'_>| {
        Some(PathEnd {
            path: reader.u16()?,
            generation: reader.u16()?,
            nic: reader.u8()?,
            queue_pair: reader.array()?,
            memory_address: reader.u64()?,
            memory_rkey: reader.u32()?,
        })
    };
    (0..read_count(reader, PATHS_MAX)?)
        .map(|_| end(reader))
        .collect()
}

fn put_open(out: &mut Vec<u8>, open: &Open) -> Result<(), FrameError> {
    put_u64(out, open.listen_nonce);
    put_u64(out, open.connection);
    put_text(out, &open.nic, NAME_BYTES_MAX);
    out.push(open.nics);
    put_count(out, open.steps.len(), PATHS_MAX)?;
    out.extend_from_slice(&open.steps);
    put_paths(out, &open.paths)
}

fn read_open(reader: &mut Reader<'_>) -> Option<Open> {
    let listen_nonce = reader.u64()?;
    let connection = reader.u64()?;
    let nic = reader.text(NAME_BYTES_MAX)?;
    let nics = reader.u8()?;
    let count = read_count(reader, PATHS_MAX)?;
    let steps = reader.slice(count)?.to_vec();
    let paths = read_paths(reader)?;
    Some(Open {
        listen_nonce,
        connection,
        nic,
        nics,
        steps,
        paths,
    })
}

fn put_accept(out: &mut Vec<u8>, accept: &Accept) -> Result<(), FrameError> {
    put_u64(out, accept.to);
    put_u64(out, accept.connection);
    put_text(out, &accept.nic, NAME_BYTES_MAX);
    out.push(accept.nics);
    put_paths(out, &accept.paths)
}

fn read_accept(reader: &mut Reader<'_>) -> Option<Accept> {
    let to = reader.u64()?;
    let connection = reader.u64()?;
    let nic = reader.text(NAME_BYTES_MAX)?;
    let nics = reader.u8()?;
    let paths = read_paths(reader)?;
    Some(Accept {
        to,
        connection,
        nic,
        nics,
        paths,
    })
}

fn put_greeting(out: &mut Vec<u8>, greeting: &Greeting) -> Result<(), FrameError> {
    put_u64(out, greeting.instance);
    put_u32(out, greeting.pid);
    put_text(out, &greeting.host, NAME_BYTES_MAX);
    put_u64(out, greeting.link);
    put_u64(out, greeting.known_link);
    put_count(out, greeting.addresses.len(), Handle::ADDRESSES_MAX)?;
    for address in &greeting.addresses {
        match address.ip() {
            IpAddr::V4(ip) => {
                out.push(4);
                out.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                out.push(6);
                out.extend_from_slice(&ip.octets());
            }
        }
        put_u16(out, address.port());
    }
    put_u64(out, greeting.fingerprint);
    put_count(out, greeting.settings.len(), SETTINGS_MAX)?;
    for (name, value) in &greeting.settings {
        put_text(out, name, SETTING_BYTES_MAX);
        put_text(out, value, SETTING_BYTES_MAX);
    }
    Ok(())
}

fn read_address(reader: &mut Reader<'_>) -> Option<SocketAddr> {
    let ip = match reader.u8()? {
        4 => IpAddr::from(reader.array::<4>()?),
        6 => IpAddr::from(reader.array::<16>()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, reader.u16()?))
}

fn read_setting(reader: &mut Reader<'_>) -> Option<(String, String)> {
    Some((
        reader.text(SETTING_BYTES_MAX)?,
        reader.text(SETTING_BYTES_MAX)?,
    ))
}

fn read_greeting(reader: &mut Reader<'_>) -> Option<Greeting> {
    let instance = reader.u64()?;
    let pid = reader.u32()?;
    let host = reader.text(NAME_BYTES_MAX)?;
    let link = reader.u64()?;
    let known_link = reader.u64()?;
    let addresses = (0..read_count(reader, Handle::ADDRESSES_MAX)?)
        .map(|_| read_address(reader))
        .collect::<Option<Vec<_>>>()?;
    let fingerprint = reader.u64()?;
    let settings = (0..read_count(reader, SETTINGS_MAX)?)
        .map(|_| read_setting(reader))
        .collect::<Option<Vec<_>>>()?;
    Some(Greeting {
        instance,
        pid,
        host,
        link,
        known_link,
        addresses,
        fingerprint,
        settings,
    })
}
