//! The calls of a network plugin, free of NCCL's versions: what `plugin` translates into.
//!
//! Ids are opaque numbers (see [`super::table`]). `Ok(None)` always means "not now, ask again".

use std::sync::Arc;
use std::time::{Duration, Instant};

use r2ccl_core::limits::{GROUP_MAX, MESSAGE_BYTES_MAX};
use r2ccl_core::wire::frame::Frame;
use r2ccl_core::{ReceiveBuffer as Posted, RegionId};

use super::error::{Error, Result};
use super::memory::{Leases, check_spare};
use super::nic::Properties;
use super::send::Started;
use super::shared::Shared;
use super::steward::Driven;
use super::table::{Id, Kind, Miss, Table};
use super::{RECEIVES, Runtime, SENDS};

pub use super::setup::{accept, close_listen, connect, listen};

/// Requests carry the low bits of their sequence: far more than are open at a time.
pub const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
const SEQ_BITS: u32 = 24;
/// Bits of the connection's serial that a request carries.
const CONNECTION_MASK: u64 = (1 << 16) - 1;

/// How long the closing of a receiver waits for its last count to arrive.
const GOODBYE_WAIT: Duration = Duration::from_millis(200);

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Host memory.
    Host,
    /// GPU memory.
    Cuda,
}

/// One buffer of a receive.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveBuffer {
    /// First byte.
    pub address: *mut u8,
    /// Capacity in bytes.
    pub bytes: usize,
    /// Tag of the send it is for; matters in groups.
    pub tag: i32,
    /// Registration that holds it.
    pub mr: u64,
}

/// A finished request.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Entries of `bytes` that count: 1 for a send.
    pub count: usize,
    /// Bytes that moved.
    pub bytes: [usize; GROUP_MAX],
    /// Whether it was a receive.
    pub is_receive: bool,
}

/// Number of NICs that NCCL may choose. A host without any usable one has 0, which makes NCCL look
/// elsewhere; the error says why.
pub fn devices() -> Result<usize> {
    Ok(Runtime::get()?.listed().count())
}

/// Properties of a NIC.
pub fn properties(dev: i32) -> Result<&'static Properties> {
    let runtime = Runtime::get()?;
    Ok(&runtime.nic(runtime.dev_of(dev)?)?.properties)
}

/// Registers a buffer on a connection.
///
/// # Safety
/// The memory must stay mapped until it is deregistered.
pub unsafe fn register(comm: u64, address: *mut u8, bytes: usize, kind: MemoryKind) -> Result<u64> {
    if kind == MemoryKind::Cuda {
        return Err(Error::Usage(
            "the NICs of this host cannot reach GPU memory: NCCL was told so (ptrSupport), \
             pass host memory"
                .into(),
        ));
    }
    check_spare()?;
    let (shared, kind) = match Kind::of(comm) {
        Some(Kind::Send) => (SENDS.shared(comm), Kind::SendMemory),
        _ => (RECEIVES.shared(comm), Kind::ReceiveMemory),
    };
    let shared = shared.ok_or_else(unknown_connection)?;
    if address.is_null() || (address as usize).checked_add(bytes).is_none() {
        return Err(Error::Argument(format!(
            "a buffer of {bytes} bytes cannot lie at {address:?}"
        )));
    }
    // SAFETY: the caller keeps the memory mapped until `deregister`, which drops the leases.
    let (region, keys) = unsafe { shared.regions.insert(address, bytes) }?;
    if kind == Kind::ReceiveMemory {
        shared.announce(&keys);
    }
    let index = comm as u16;
    Ok(Id {
        kind,
        serial: u64::from(region.id.0),
        index,
    }
    .pack())
}

/// Ends a registration: when this has returned, no byte of the buffer is read or written through
/// us. With requests open on it the connection stops first (PROTOCOL R24), since NCCL frees the
/// memory right after, also when it aborts.
pub fn deregister(comm: u64, mr: u64) -> Result<()> {
    let removed = match Kind::of(comm) {
        Some(Kind::Send) => release(&SENDS, comm, mr, Kind::SendMemory),
        Some(Kind::Receive) => release(&RECEIVES, comm, mr, Kind::ReceiveMemory),
        _ => None,
    };
    removed.map(drop).ok_or_else(|| {
        Error::Argument("this memory handle is not registered on this connection".into())
    })
}

fn release<O: Driven>(table: &Table<O, Shared>, comm: u64, mr: u64, kind: Kind) -> Option<Leases> {
    let id = Id::unpack(mr).filter(|id| id.kind == kind && id.index == comm as u16)?;
    let region = RegionId(id.serial as u32);
    let mut connection = table.own(comm)?;
    if connection.uses(region) {
        connection.fence();
    }
    table.shared(comm)?.regions.remove(region)
}

/// Starts a send.
pub fn isend(
    comm: u64,
    address: *const u8,
    bytes: usize,
    tag: i32,
    mr: u64,
) -> Result<Option<u64>> {
    check_size(bytes)?;
    let region = region_of(comm, mr, Kind::SendMemory, bytes)?;
    let started = drive(&SENDS, comm, |connection| {
        connection.isend(region, address as u64, bytes as u64, tag)
    })?;
    Ok(started.map(|started| match started {
        Started::Message(seq) => request(comm, Kind::SendRequest, seq.0),
        Started::Eager(number) => request(comm, Kind::EagerRequest, number),
    }))
}

/// Posts a receive of one buffer or a group.
pub fn irecv(comm: u64, buffers: &[ReceiveBuffer]) -> Result<Option<u64>> {
    if buffers.is_empty() || buffers.len() > GROUP_MAX {
        return Err(Error::Argument(format!(
            "a receive of {} buffers; 1 to {GROUP_MAX} are possible",
            buffers.len()
        )));
    }
    let none = Posted {
        region: RegionId(0),
        address: 0,
        capacity: 0,
        tag: 0,
    };
    let mut posted = [none; GROUP_MAX];
    for (buffer, entry) in buffers.iter().zip(&mut posted) {
        check_size(buffer.bytes)?;
        *entry = Posted {
            region: region_of(comm, buffer.mr, Kind::ReceiveMemory, buffer.bytes)?,
            address: buffer.address as u64,
            capacity: buffer.bytes as u64,
            tag: buffer.tag,
        };
    }
    let posted = &posted[..buffers.len()];
    let seq = drive(&RECEIVES, comm, |connection| connection.irecv(posted))?;
    Ok(seq.map(|seq| request(comm, Kind::ReceiveRequest, seq.0)))
}

/// Makes received GPU data visible to the GPU. Host memory needs none of it: `None` says that the
/// data is visible already.
pub fn iflush(comm: u64) -> Result<Option<u64>> {
    RECEIVES
        .shared(comm)
        .map(|_| None)
        .ok_or_else(unknown_connection)
}

/// Whether a request is done. Progresses its whole connection.
pub fn test(request: u64) -> Result<Option<Done>> {
    let unknown = || Error::Argument("this request was never made here".into());
    let id = Id::unpack(request).ok_or_else(unknown)?;
    match id.kind {
        Kind::SendRequest | Kind::EagerRequest => {
            let comm = connection_of(&SENDS, &id)?;
            let number = id.serial & SEQ_MASK;
            let sent = drive(&SENDS, comm, |send| match id.kind {
                Kind::EagerRequest => send.test_eager(number),
                _ => send.test(number),
            })?;
            Ok(sent.map(|bytes| {
                let mut sizes = [0; GROUP_MAX];
                sizes[0] = bytes as usize;
                Done {
                    count: 1,
                    bytes: sizes,
                    is_receive: false,
                }
            }))
        }
        Kind::ReceiveRequest => {
            let comm = connection_of(&RECEIVES, &id)?;
            let received = drive(&RECEIVES, comm, |receive| {
                receive.test(id.serial & SEQ_MASK)
            })?;
            Ok(received.map(|received| Done {
                count: received.count,
                bytes: received.bytes.map(|bytes| bytes as usize),
                is_receive: true,
            }))
        }
        _ => Err(unknown()),
    }
}

/// Closes a sending side; requests that are open end with it.
pub fn close_send(comm: u64) -> Result<()> {
    let (connection, shared) = SENDS.remove(comm).ok_or_else(unknown_connection)?;
    say_goodbye(&shared, connection.submitted());
    Ok(())
}

/// Closes a receiving side, after its last count is on the way (PROTOCOL R25).
pub fn close_receive(comm: u64) -> Result<()> {
    let (mut connection, shared) = RECEIVES.remove(comm).ok_or_else(unknown_connection)?;
    connection.progress();
    say_goodbye(&shared, connection.delivered());
    shared.link.flush(Instant::now() + GOODBYE_WAIT);
    Ok(())
}

fn say_goodbye(shared: &Arc<Shared>, count: u64) {
    shared.watch.steward.remove_connection(shared.connection);
    let to = shared.peer_connection;
    // Without a link there is nobody left to tell.
    let _ = shared.link.send(Frame::Goodbye { to, count });
}

fn check_size(bytes: usize) -> Result<()> {
    if bytes as u64 <= u64::from(MESSAGE_BYTES_MAX) {
        return Ok(());
    }
    Err(Error::Argument(format!(
        "a message of {bytes} bytes; {MESSAGE_BYTES_MAX} are the most (maxP2pBytes)"
    )))
}

/// Runs one call on a connection, as its owner. A call that panics leaves the mark behind: what
/// state the connection is in nobody knows then, so every later call on it is refused
/// (PROTOCOL R28).
fn drive<O: Driven, R>(
    table: &'static Table<O, Shared>,
    comm: u64,
    call: impl FnOnce(&mut O) -> Result<Option<R>>,
) -> Result<Option<R>> {
    let mut connection = match table.try_own(comm) {
        Ok(connection) => connection,
        Err(Miss::Busy) => return Ok(None),
        Err(Miss::Unknown) => return Err(unknown_connection()),
    };
    if *connection.in_call() {
        connection.fence();
        return Err(Error::Internal(
            "a defect of this library has stopped this connection; see the first message".into(),
        ));
    }
    *connection.in_call() = true;
    let outcome = call(&mut connection);
    *connection.in_call() = false;
    outcome
}

/// Id of the connection that a request belongs to.
fn connection_of<O>(table: &Table<O, Shared>, request: &Id) -> Result<u64> {
    let comm = table.id_at(request.index).filter(|comm| {
        let serial = Id::unpack(*comm).map_or(0, |id| id.serial);
        serial & CONNECTION_MASK == request.serial >> SEQ_BITS
    });
    comm.ok_or_else(|| Error::Argument("the connection of this request is closed".into()))
}

fn request(comm: u64, kind: Kind, seq: u64) -> u64 {
    let connection = Id::unpack(comm).map_or(0, |id| id.serial) & CONNECTION_MASK;
    Id {
        kind,
        serial: connection << SEQ_BITS | seq & SEQ_MASK,
        index: comm as u16,
    }
    .pack()
}

/// Region behind a memory handle. NCCL passes an ordinary one with empty messages, but needs none.
fn region_of(comm: u64, mr: u64, kind: Kind, bytes: usize) -> Result<RegionId> {
    match Id::unpack(mr) {
        Some(id) if id.kind == kind && id.index == comm as u16 => Ok(RegionId(id.serial as u32)),
        _ if mr == 0 && bytes == 0 => Ok(RegionId(0)),
        _ => Err(Error::Argument(
            "the memory handle does not belong to this connection; register the buffer on it first"
                .into(),
        )),
    }
}

fn unknown_connection() -> Error {
    Error::Argument("this connection is closed or was never made here".into())
}
