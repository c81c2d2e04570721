//! The calls of the table, one method each, with outputs poisoned before and checked after.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use r2ccl_abi as abi;

use super::logger;
use super::table::{Table, member};
use super::{Comm, GROUP_MAX, Handle, ListenComm, Memory, Net, NetError, Properties};
use super::{ReceiveBuffer, Request, Sizes, text};

/// What outputs hold before a call: a pointer into nowhere that a plugin must overwrite. Real NCCL
/// leaves the pointer of an old request there.
const POISON: usize = 0x0bad_0bad_0bad_0ba0;
/// The same for `done` and `sizes`.
const POISON_INT: c_int = -0x0bad_0bad;
/// Entries of the array that `test` gets: more than a plugin may write, to see if it does.
const SIZES: usize = GROUP_MAX + 4;

type Result<T> = std::result::Result<T, NetError>;

/// Calls a slot that the loader has found to be there; gives an error for any code but success.
macro_rules! call {
    ($name:literal, $slot:expr, $($argument:expr),*) => {
        match $slot {
            // SAFETY: the slot has the type of its table version, outputs are live locals or
            // memory that the caller of the method vouches for.
            Some(function) => check($name, unsafe { function($($argument),*) }),
            None => Err(NetError::contract($name, "the slot is NULL")),
        }
    };
}

fn check(call: &'static str, code: abi::ncclResult_t) -> Result<()> {
    match code {
        abi::ncclSuccess => Ok(()),
        code => Err(NetError::Returned { call, code }),
    }
}

fn poison() -> *mut c_void {
    POISON as *mut c_void
}

/// Takes an output that may be NULL ("not now"), and refuses one that was never written.
fn written(call: &'static str, output: *mut c_void) -> Result<Option<*mut c_void>> {
    if output as usize == POISON {
        return Err(NetError::contract(
            call,
            "success without writing its output",
        ));
    }
    Ok((!output.is_null()).then_some(output))
}

/// [`written`], where NULL is no answer.
fn required(call: &'static str, output: *mut c_void) -> Result<*mut c_void> {
    written(call, output)?.ok_or_else(|| NetError::contract(call, "success with NULL"))
}

impl Net {
    /// `init`, as for one communicator. `commId` must be equal on all hosts of a run.
    pub fn init(&mut self, comm_id: u64) -> Result<()> {
        let log = logger::pointer();
        match self.table {
            Table::V8(table) => call!("init", table.init, log),
            Table::V9(table) => call!("init", table.init, log),
            Table::V10(table) => call!("init", table.init, log, None),
            Table::V11(table) => {
                let mut config = abi::ncclNetCommConfig_v11_t { trafficClass: -1 };
                call!(
                    "init",
                    table.init,
                    &mut self.context,
                    comm_id,
                    &mut config,
                    log,
                    None
                )
            }
            Table::V12(table) => {
                let mut config = abi::ncclNetCommConfig_v12_t { trafficClass: -1 };
                call!(
                    "init",
                    table.init,
                    &mut self.context,
                    comm_id,
                    &mut config,
                    log,
                    None
                )
            }
        }
    }

    /// `finalize`, where the table has one (v11 and later).
    pub fn finalize(&mut self) -> Result<()> {
        match self.table {
            Table::V11(table) => call!("finalize", table.finalize, self.context),
            Table::V12(table) => call!("finalize", table.finalize, self.context),
            _ => Ok(()),
        }
    }

    /// Number of devices.
    pub fn devices(&self) -> Result<usize> {
        let mut count = POISON_INT;
        call!("devices", member!(&self.table, devices), &mut count)?;
        if count == POISON_INT {
            return Err(NetError::contract(
                "devices",
                "success without writing its output",
            ));
        }
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// What device `dev` says of itself.
    pub fn properties(&self, dev: i32) -> Result<Properties> {
        /// Reads the properties of one version; `$p2p` names the field that v8 lacks.
        macro_rules! read {
            ($table:expr, $type:ty $(, $p2p:ident)?) => {{
                let mut memory = MaybeUninit::<$type>::uninit();
                // SAFETY: any bytes are a value of this plain C structure. They are poison, as the
                // plugin must write every field.
                let mut properties = unsafe {
                    std::ptr::write_bytes(memory.as_mut_ptr(), 0x5a, 1);
                    memory.assume_init()
                };
                call!("getProperties", $table.getProperties, dev, &mut properties)?;
                const UNWRITTEN: usize = 0x5a5a_5a5a_5a5a_5a5a;
                if properties.name as usize == UNWRITTEN
                    || properties.pciPath as usize == UNWRITTEN
                    || properties.netDeviceType != abi::NCCL_NET_DEVICE_HOST
                {
                    let fault = "name, pciPath or netDeviceType was not written";
                    return Err(NetError::contract("getProperties", fault));
                }
                $(
                    if !(1..=abi::NCCL_MAX_NET_SIZE_BYTES).contains(&(properties.$p2p as u64)) {
                        let fault = format!("maxP2pBytes is {}", properties.$p2p);
                        return Err(NetError::contract("getProperties", fault));
                    }
                )?
                Properties {
                    // SAFETY: written by the plugin, and strings live as long as the library.
                    name: unsafe { text(properties.name) },
                    speed_mbps: properties.speed,
                    max_recvs: properties.maxRecvs,
                }
            }};
        }
        Ok(match self.table {
            Table::V8(table) => read!(table, abi::ncclNetProperties_v8_t),
            Table::V9(table) => read!(table, abi::ncclNetProperties_v9_t, maxP2pBytes),
            Table::V10(table) => read!(table, abi::ncclNetProperties_v10_t, maxP2pBytes),
            Table::V11(table) => read!(table, abi::ncclNetProperties_v11_t, maxP2pBytes),
            Table::V12(table) => read!(table, abi::ncclNetProperties_v12_t, maxP2pBytes),
        })
    }

    /// Opens a listening communicator on `dev`; the handle is for the peer's
    /// [`connect`](Self::connect).
    pub fn listen(&self, dev: i32) -> Result<(ListenComm, Handle)> {
        let mut handle: Handle = [0x5a; abi::HANDLE_BYTES];
        let mut comm = poison();
        let bytes = handle.as_mut_ptr().cast();
        match self.table {
            Table::V8(table) => call!("listen", table.listen, dev, bytes, &mut comm),
            Table::V9(table) => call!("listen", table.listen, dev, bytes, &mut comm),
            Table::V10(table) => call!("listen", table.listen, dev, bytes, &mut comm),
            Table::V11(table) => call!("listen", table.listen, self.context, dev, bytes, &mut comm),
            Table::V12(table) => call!("listen", table.listen, self.context, dev, bytes, &mut comm),
        }?;
        Ok((ListenComm(required("listen", comm)?), handle))
    }

    /// One attempt to connect; `None` means: call again with the same handle, which the plugin may
    /// have written to.
    pub fn connect(&self, dev: i32, handle: &mut Handle) -> Result<Option<Comm>> {
        let mut comm = poison();
        let mut device = null_mut();
        let bytes: *mut c_void = handle.as_mut_ptr().cast();
        let (comm_out, device_out) = (&mut comm, &mut device);
        match self.table {
            Table::V8(t) => call!("connect", t.connect, dev, bytes, comm_out, device_out),
            Table::V9(t) => call!("connect", t.connect, dev, bytes, comm_out, device_out),
            Table::V10(t) => {
                let mut config = abi::ncclNetCommConfig_v10_t { trafficClass: -1 };
                call!(
                    "connect",
                    t.connect,
                    dev,
                    &mut config,
                    bytes,
                    comm_out,
                    device_out
                )
            }
            Table::V11(t) => {
                call!(
                    "connect",
                    t.connect,
                    self.context,
                    dev,
                    bytes,
                    comm_out,
                    device_out
                )
            }
            Table::V12(t) => {
                call!(
                    "connect",
                    t.connect,
                    self.context,
                    dev,
                    bytes,
                    comm_out,
                    device_out
                )
            }
        }?;
        Self::connected("connect", comm, device)
    }

    /// One attempt to accept; `None` means: call again.
    pub fn accept(&self, listen: ListenComm) -> Result<Option<Comm>> {
        let mut comm = poison();
        let mut device = null_mut();
        call!(
            "accept",
            member!(&self.table, accept),
            listen.0,
            &mut comm,
            &mut device
        )?;
        Self::connected("accept", comm, device)
    }

    fn connected(
        call: &'static str,
        comm: *mut c_void,
        device: *mut abi::ncclNetDeviceHandle_v7_t,
    ) -> Result<Option<Comm>> {
        if !device.is_null() {
            return Err(NetError::contract(
                call,
                "a device handle from a CPU-driven network",
            ));
        }
        Ok(written(call, comm)?.map(Comm))
    }

    /// Registers host memory. It must stay mapped until [`deregister`](Self::deregister).
    pub fn register(&self, comm: Comm, address: *mut u8, bytes: usize) -> Result<Memory> {
        let mut memory = poison();
        let slot = member!(&self.table, regMr);
        call!(
            "regMr",
            slot,
            comm.0,
            address.cast(),
            bytes,
            abi::NCCL_PTR_HOST,
            &mut memory
        )?;
        Ok(Memory(required("regMr", memory)?))
    }

    /// Ends a registration.
    pub fn deregister(&self, comm: Comm, memory: Memory) -> Result<()> {
        call!("deregMr", member!(&self.table, deregMr), comm.0, memory.0)
    }

    /// Offers a message; `None` means: offer it again later. The bytes belong to the plugin until
    /// [`test`](Self::test) says done.
    pub fn isend(
        &self,
        comm: Comm,
        address: *mut u8,
        bytes: usize,
        tag: i32,
        memory: Memory,
    ) -> Result<Option<Request>> {
        let mut request = poison();
        let (comm, data, mr, out) = (comm.0, address.cast(), memory.0, &mut request);
        match self.table {
            Table::V8(table) => {
                let bytes = c_int::try_from(bytes)
                    .map_err(|_| NetError::contract("isend", "v8 cannot express this size"))?;
                call!("isend", table.isend, comm, data, bytes, tag, mr, out)
            }
            Table::V9(table) => call!("isend", table.isend, comm, data, bytes, tag, mr, out),
            Table::V10(t) => call!(
                "isend",
                t.isend,
                comm,
                data,
                bytes,
                tag,
                mr,
                null_mut(),
                out
            ),
            Table::V11(t) => call!(
                "isend",
                t.isend,
                comm,
                data,
                bytes,
                tag,
                mr,
                null_mut(),
                out
            ),
            Table::V12(t) => call!(
                "isend",
                t.isend,
                comm,
                data,
                bytes,
                tag,
                mr,
                null_mut(),
                out
            ),
        }?;
        Ok(written("isend", request)?.map(Request))
    }

    /// Posts a receive of 1 to 8 buffers; `None` means: post it again later.
    pub fn irecv(&self, comm: Comm, buffers: &[ReceiveBuffer]) -> Result<Option<Request>> {
        let count = buffers.len().min(GROUP_MAX);
        let mut data = [null_mut::<c_void>(); GROUP_MAX];
        let mut sizes = [0usize; GROUP_MAX];
        let mut int_sizes = [0 as c_int; GROUP_MAX];
        let mut tags = [0 as c_int; GROUP_MAX];
        let mut memories = [null_mut::<c_void>(); GROUP_MAX];
        for (i, buffer) in buffers.iter().take(count).enumerate() {
            data[i] = buffer.address.cast();
            sizes[i] = buffer.bytes;
            int_sizes[i] = c_int::try_from(buffer.bytes).unwrap_or(c_int::MAX);
            tags[i] = buffer.tag;
            memories[i] = buffer.memory.0;
        }
        let mut request = poison();
        let (comm, n, out) = (comm.0, count as c_int, &mut request);
        let (data, tags, mrs) = (data.as_mut_ptr(), tags.as_mut_ptr(), memories.as_mut_ptr());
        let (sizes, profiler) = (sizes.as_mut_ptr(), null_mut());
        match self.table {
            Table::V8(t) => {
                call!(
                    "irecv",
                    t.irecv,
                    comm,
                    n,
                    data,
                    int_sizes.as_mut_ptr(),
                    tags,
                    mrs,
                    out
                )
            }
            Table::V9(t) => call!("irecv", t.irecv, comm, n, data, sizes, tags, mrs, out),
            Table::V10(t) => {
                call!(
                    "irecv", t.irecv, comm, n, data, sizes, tags, mrs, profiler, out
                )
            }
            Table::V11(t) => {
                call!(
                    "irecv", t.irecv, comm, n, data, sizes, tags, mrs, profiler, out
                )
            }
            Table::V12(t) => {
                call!(
                    "irecv", t.irecv, comm, n, data, sizes, tags, mrs, profiler, out
                )
            }
        }?;
        Ok(written("irecv", request)?.map(Request))
    }

    /// Asks for the end of a request that covers `count` buffers (1 for a send). After `Some` the
    /// request is gone. The sizes are those of a receive; for a send they mean nothing.
    pub fn test(&self, request: Request, count: usize, receive: bool) -> Result<Option<Sizes>> {
        let mut done = POISON_INT;
        let fill = if self.strict { POISON_INT } else { 0 };
        let mut sizes = [fill; SIZES];
        call!(
            "test",
            member!(&self.table, test),
            request.0,
            &mut done,
            sizes.as_mut_ptr()
        )?;
        match done {
            0 => return Ok(None),
            1 => {}
            other => {
                return Err(NetError::contract(
                    "test",
                    format!("done is {other}, not 0 or 1"),
                ));
            }
        }
        if sizes[count.min(GROUP_MAX)..]
            .iter()
            .any(|&size| size != fill)
        {
            let fault = format!("it wrote more than {count} entries of sizes");
            return Err(NetError::contract("test", fault));
        }
        let mut result: Sizes = [0; GROUP_MAX];
        if receive {
            for (out, &size) in result.iter_mut().zip(&sizes[..count.min(GROUP_MAX)]) {
                *out = usize::try_from(size).map_err(|_| {
                    NetError::contract("test", "a receive is done and its size was not written")
                })?;
            }
        }
        Ok(Some(result))
    }

    /// Closes the sending end.
    pub fn close_send(&self, comm: Comm) -> Result<()> {
        call!("closeSend", member!(&self.table, closeSend), comm.0)
    }

    /// Closes the receiving end.
    pub fn close_receive(&self, comm: Comm) -> Result<()> {
        call!("closeRecv", member!(&self.table, closeRecv), comm.0)
    }

    /// Closes a listening communicator; NCCL does it as soon as accept has succeeded.
    pub fn close_listen(&self, listen: ListenComm) -> Result<()> {
        call!("closeListen", member!(&self.table, closeListen), listen.0)
    }
}
