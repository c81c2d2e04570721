//! The network interface without its versions: arguments checked, outputs written, ids taken out of
//! pointers and put back. What has one signature in all versions (or in the first that has it) goes
//! into the tables as it is; the wrappers of `vN` hold what differs.
//!
//! All functions share one contract, the one that NCCL keeps: a pointer is NULL or leads to what
//! the header names, for the time of the call. Objects of ours (communicators, registrations,
//! requests, contexts) may be anything, they are never followed.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::plugin::boundary::{
    Output, guard, guard_selection, guard_teardown, id_of, input_array, pointer_of,
};
use crate::plugin::result::CallSite;
use crate::runtime::error::{Error, Result};
use crate::runtime::net::{self, MemoryKind, ReceiveBuffer};
use crate::runtime::nic::Properties;
use crate::{plugin, telemetry};
use r2ccl_abi::{
    HANDLE_BYTES, MAX_NET_SIZE, NCCL_NET_TRAFFIC_CLASS_UNDEF, NCCL_PTR_CUDA, NCCL_PTR_HOST,
    ncclDebugLogger_t, ncclNetCommConfig_v10_t, ncclNetDeviceHandle_v7_t, ncclResult_t,
    ncclSuccess,
};
use r2ccl_core::limits::{GROUP_MAX, MESSAGE_BYTES_MAX};

/// Name of the network as NCCL knows it (`NCCL_NET=R2CCL`).
pub const NAME: &std::ffi::CStr = c"R2CCL";

// NCCL cuts its own messages at the size that is our limit.
const _: () = assert!(MESSAGE_BYTES_MAX as u64 == MAX_NET_SIZE);

/// Opaque pointer, as C has it.
pub type Opaque = *mut c_void;
/// Where a call returns an opaque pointer.
pub type OpaqueOut = *mut *mut c_void;
/// Where connect and accept would return a device side.
pub type DeviceSideOut = *mut *mut ncclNetDeviceHandle_v7_t;

/// A size as some version passes it.
pub trait ByteCount: Copy {
    /// Bytes; what no size can be (a negative number) becomes a size that is always refused.
    fn bytes(self) -> usize;
}

impl ByteCount for c_int {
    fn bytes(self) -> usize {
        usize::try_from(self).unwrap_or(usize::MAX)
    }
}

impl ByteCount for usize {
    fn bytes(self) -> usize {
        self
    }
}

/// Connects the log to NCCL's, whichever version asks and however often. Nothing else happens here:
/// some releases unload and load the library without calling this again, so the first call that
/// needs the runtime makes it. Never fails: a host on which nothing can be driven has no devices.
///
/// `ctx`, NULL before version 11, stays without a context, since nothing is kept for a
/// communicator. The profiler callback of the versions from 10 on stays unused.
pub unsafe fn init(
    ctx: OpaqueOut,
    comm_id: Option<u64>,
    config: *const ncclNetCommConfig_v10_t,
    logger: ncclDebugLogger_t,
) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("init");
    guard_selection(&SITE, || {
        // SAFETY: NULL or NCCL's variable.
        if let Some(ctx) = unsafe { Output::optional(ctx) } {
            ctx.write(null_mut());
        }
        telemetry::install(logger);
        // SAFETY: NULL or a structure on NCCL's stack, of which nothing is kept.
        let traffic_class = unsafe { config.as_ref() }.map(|config| config.trafficClass);
        tracing::info!(
            "version {} ({}), communicator {:#x}, traffic class {}",
            env!("CARGO_PKG_VERSION"),
            plugin::BUILD_COMMIT,
            comm_id.unwrap_or(0),
            traffic_class.unwrap_or(NCCL_NET_TRAFFIC_CLASS_UNDEF)
        );
        Ok(())
    })
}

/// Ends a context. NCCL 2.28.3 to 2.29.3 calls this after a failed init with whatever the pointer
/// held, and 2.28.3 goes on using the context of a parent afterwards, so no value is looked at.
pub unsafe extern "C" fn finalize(_ctx: Opaque) -> ncclResult_t {
    ncclSuccess
}

/// Number of devices; none when the host or the settings do not let us have any, which makes NCCL
/// go on to the next plugin.
pub unsafe extern "C" fn devices(ndev: *mut c_int) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("devices");
    let code = guard(&SITE, || {
        // SAFETY: NULL or NCCL's variable.
        let ndev = unsafe { Output::preset(ndev, 0, "ndev") }?;
        ndev.write(c_int::try_from(net::devices()?).unwrap_or(c_int::MAX));
        Ok(())
    });
    if ndev.is_null() { code } else { ncclSuccess }
}

/// Properties of a device, laid out by `fill`. Every byte of the structure is written.
pub unsafe fn get_properties<P: Copy>(
    dev: c_int,
    props: *mut P,
    fill: fn(c_int, &'static Properties) -> P,
) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("getProperties");
    guard(&SITE, || {
        if !props.is_null() && props.is_aligned() {
            // SAFETY: leads to NCCL's structure, of which zeroes are a valid value: plain numbers
            // and pointers.
            unsafe { props.write_bytes(0, 1) };
        }
        let filled = net::properties(dev).map(|properties| fill(dev, properties));
        // SAFETY: NULL, misaligned or NCCL's structure.
        match (unsafe { Output::optional(props) }, filled) {
            (None, _) => Err(Error::Argument("props is no pointer to properties".into())),
            (Some(props), filled) => filled.map(|filled| props.write(filled)),
        }
    })
}

/// The 128 bytes of a handle.
///
/// # Safety
/// `handle` is NULL or leads to 128 initialised bytes that nobody else uses during the call.
unsafe fn handle_bytes<'a>(handle: Opaque) -> Result<&'a mut [u8; HANDLE_BYTES]> {
    // SAFETY: as above; bytes have no alignment.
    unsafe { handle.cast::<[u8; HANDLE_BYTES]>().as_mut() }
        .ok_or_else(|| Error::Argument("handle is NULL".into()))
}

/// Opens a listener. The handle is filled whole: it travels to the peer as it is.
pub unsafe extern "C" fn listen(
    dev: c_int,
    handle: Opaque,
    listen_comm: OpaqueOut,
) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("listen");
    guard(&SITE, || {
        // SAFETY: NULL or NCCL's variable.
        let listen_comm = unsafe { Output::preset(listen_comm, null_mut(), "listenComm") }?;
        if !handle.is_null() {
            // SAFETY: leads to 128 bytes of NCCL's, which may be uninitialised until here.
            unsafe { handle.cast::<u8>().write_bytes(0, HANDLE_BYTES) };
        }
        // SAFETY: NULL or initialised just now.
        let handle = unsafe { handle_bytes(handle) }?;
        listen_comm.write(pointer_of(net::listen(dev, handle)?));
        Ok(())
    })
}

/// Goes on with connecting. Never blocks: NULL means "call again", with the same buffer, in which
/// the tail of the handle keeps the state of the attempt. The peer's `accept` may come later.
pub unsafe extern "C" fn connect(
    dev: c_int,
    handle: Opaque,
    send_comm: OpaqueOut,
    send_dev_comm: DeviceSideOut,
) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("connect");
    guard(&SITE, || {
        // SAFETY: both NULL or NCCL's variables.
        let send_comm = unsafe {
            no_device_side(send_dev_comm);
            Output::preset(send_comm, null_mut(), "sendComm")
        }?;
        // SAFETY: NULL or a handle, whose bytes `listen` has written.
        let handle = unsafe { handle_bytes(handle) }?;
        if let Some(id) = net::connect(dev, handle)? {
            send_comm.write(pointer_of(id));
        }
        Ok(())
    })
}

/// Goes on with accepting; like [`connect`], it never blocks.
pub unsafe extern "C" fn accept(
    listen_comm: Opaque,
    recv_comm: OpaqueOut,
    recv_dev_comm: DeviceSideOut,
) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("accept");
    guard(&SITE, || {
        // SAFETY: both NULL or NCCL's variables.
        let recv_comm = unsafe {
            no_device_side(recv_dev_comm);
            Output::preset(recv_comm, null_mut(), "recvComm")
        }?;
        if let Some(id) = net::accept(id_of(listen_comm, "listenComm")?)? {
            recv_comm.write(pointer_of(id));
        }
        Ok(())
    })
}

/// The transport has no device side. NCCL would read one from any other value than NULL; it may
/// also not ask, by passing NULL itself.
///
/// # Safety
/// `device_side` is NULL or leads to a variable of NCCL's.
unsafe fn no_device_side(device_side: DeviceSideOut) {
    // SAFETY: the caller vouches for the pointer.
    if let Some(device_side) = unsafe { Output::optional(device_side) } {
        device_side.write(null_mut());
    }
}

fn memory_kind(kind: c_int) -> Result<MemoryKind> {
    match kind {
        NCCL_PTR_HOST => Ok(MemoryKind::Host),
        NCCL_PTR_CUDA => Ok(MemoryKind::Cuda),
        _ => Err(Error::Argument(format!(
            "type {kind} is neither host (1) nor CUDA (2) memory"
        ))),
    }
}

/// Checks that a range of memory can exist.
fn check_range(data: Opaque, bytes: usize) -> Result<()> {
    if data.is_null() {
        return Err(Error::Argument("data is NULL".into()));
    }
    match data.addr().checked_add(bytes) {
        Some(_) if isize::try_from(bytes).is_ok() => Ok(()),
        _ => Err(Error::Argument(format!(
            "size {bytes} does not fit behind address {data:p}"
        ))),
    }
}

/// Registers memory. Runs on another thread than the data path of the same communicator.
pub unsafe extern "C" fn reg_mr(
    comm: Opaque,
    data: Opaque,
    bytes: usize,
    kind: c_int,
    mhandle: OpaqueOut,
) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("regMr");
    guard(&SITE, || {
        // SAFETY: NULL or NCCL's variable.
        let mhandle = unsafe { Output::preset(mhandle, null_mut(), "mhandle") }?;
        let comm = id_of(comm, "comm")?;
        check_range(data, bytes)?;
        let kind = memory_kind(kind)?;
        // SAFETY: NCCL keeps memory mapped until it has ended the registration.
        let id = unsafe { net::register(comm, data.cast(), bytes, kind) }?;
        mhandle.write(pointer_of(id));
        Ok(())
    })
}

/// Ends a registration.
pub unsafe extern "C" fn dereg_mr(comm: Opaque, mhandle: Opaque) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("deregMr");
    guard_teardown(&SITE, || {
        net::deregister(id_of(comm, "comm")?, id_of(mhandle, "mhandle")?)
    })
}

/// Checks one buffer of a message. A message of no bytes needs neither buffer nor registration:
/// NCCL passes some for an empty slice, and nothing of them is touched.
fn check_buffer(data: Opaque, bytes: usize, mhandle: Opaque) -> Result<()> {
    if bytes > MESSAGE_BYTES_MAX as usize {
        return Err(Error::Argument(format!(
            "the size is negative or above {MESSAGE_BYTES_MAX} bytes ({bytes:#x})"
        )));
    }
    if bytes > 0 && mhandle.is_null() {
        return Err(Error::Argument(
            "mhandle is NULL: the memory is not registered".into(),
        ));
    }
    if bytes > 0 {
        check_range(data, bytes)
    } else {
        Ok(())
    }
}

/// Starts a send. `*request` stays NULL when it cannot be taken now; NCCL's slot still holds an old
/// request, so it is written in any case. Any tag is good: it is compared and nothing else.
pub unsafe extern "C" fn isend(
    send_comm: Opaque,
    data: Opaque,
    bytes: usize,
    tag: c_int,
    mhandle: Opaque,
    request: OpaqueOut,
) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("isend");
    guard(&SITE, || {
        // SAFETY: NULL or NCCL's variable.
        let request = unsafe { Output::preset(request, null_mut(), "request") }?;
        let comm = id_of(send_comm, "sendComm")?;
        check_buffer(data, bytes, mhandle)?;
        if let Some(id) = net::isend(comm, data.cast(), bytes, tag, mhandle.addr() as u64)? {
            request.write(pointer_of(id));
        }
        Ok(())
    })
}

/// The buffers of a group, in an array on the stack.
struct Group {
    buffers: [ReceiveBuffer; GROUP_MAX],
    count: usize,
}

impl Group {
    /// Reads and checks the arrays of a receive or a flush. A flush has no tags, and a receive of
    /// one buffer may come without.
    ///
    /// # Safety
    /// Each array is NULL or leads to `n` entries.
    unsafe fn read<S: ByteCount>(
        n: c_int,
        data: *const Opaque,
        sizes: *const S,
        tags: Option<*const c_int>,
        mhandles: *const Opaque,
    ) -> Result<Self> {
        let count = usize::try_from(n).unwrap_or(0);
        if !(1..=GROUP_MAX).contains(&count) {
            return Err(Error::Argument(format!(
                "n is {n}, not between 1 and {GROUP_MAX}"
            )));
        }
        // SAFETY: the caller vouches for the arrays.
        let (data, sizes, mhandles) = unsafe {
            (
                input_array(data, count, "data")?,
                input_array(sizes, count, "sizes")?,
                input_array(mhandles, count, "mhandles")?,
            )
        };
        let tags = match tags {
            Some(tags) if count > 1 || !tags.is_null() => {
                // SAFETY: as above.
                unsafe { input_array(tags, count, "tags") }?
            }
            _ => &[0; GROUP_MAX],
        };
        let empty = ReceiveBuffer {
            address: null_mut(),
            bytes: 0,
            tag: 0,
            mr: 0,
        };
        let mut buffers = [empty; GROUP_MAX];
        for (index, buffer) in buffers[..count].iter_mut().enumerate() {
            let bytes = sizes[index].bytes();
            check_buffer(data[index], bytes, mhandles[index])?;
            *buffer = ReceiveBuffer {
                address: data[index].cast(),
                bytes,
                tag: tags[index],
                mr: mhandles[index].addr() as u64,
            };
        }
        Ok(Self { buffers, count })
    }

    fn buffers(&self) -> &[ReceiveBuffer] {
        &self.buffers[..self.count]
    }
}

/// Starts a receive. `*request` may hold 1 on entry ("the completion is of no interest"): a hint
/// that we do not take, since delivery has to be confirmed all the same.
pub unsafe fn irecv<S: ByteCount>(
    recv_comm: Opaque,
    n: c_int,
    data: *const Opaque,
    sizes: *const S,
    tags: *const c_int,
    mhandles: *const Opaque,
    request: OpaqueOut,
) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("irecv");
    guard(&SITE, || {
        // SAFETY: NULL or NCCL's variable.
        let request = unsafe { Output::preset(request, null_mut(), "request") }?;
        let comm = id_of(recv_comm, "recvComm")?;
        // SAFETY: NULL or arrays of `n` entries.
        let group = unsafe { Group::read(n, data, sizes, Some(tags), mhandles) }?;
        if let Some(id) = net::irecv(comm, group.buffers())? {
            request.write(pointer_of(id));
        }
        Ok(())
    })
}

/// Makes received bytes visible to the GPU. `*request` stays NULL when there is nothing to do,
/// which NCCL takes as "visible". The sizes are `int` in every version.
pub unsafe extern "C" fn iflush(
    recv_comm: Opaque,
    n: c_int,
    data: *mut Opaque,
    sizes: *mut c_int,
    mhandles: *mut Opaque,
    request: OpaqueOut,
) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("iflush");
    guard(&SITE, || {
        // SAFETY: NULL or NCCL's variable.
        let request = unsafe { Output::preset(request, null_mut(), "request") }?;
        let comm = id_of(recv_comm, "recvComm")?;
        // SAFETY: NULL or arrays of `n` entries.
        unsafe { Group::read(n, data, sizes, None, mhandles) }?;
        if let Some(id) = net::iflush(comm)? {
            request.write(pointer_of(id));
        }
        Ok(())
    })
}

/// Makes progress on the whole communicator of a request and says whether this one is done. The
/// sizes are `int` in every version; `sizes` may be NULL, else it has an entry for a send and one
/// for each buffer of a receive.
pub unsafe extern "C" fn test(
    request: Opaque,
    done: *mut c_int,
    sizes: *mut c_int,
) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("test");
    guard(&SITE, || {
        // SAFETY: NULL or NCCL's variable.
        let done = unsafe { Output::preset(done, 0, "done") }?;
        let Some(outcome) = net::test(id_of(request, "request")?)? else {
            return Ok(());
        };
        if !sizes.is_null() {
            for (index, bytes) in outcome.bytes.iter().take(outcome.count).enumerate() {
                let bytes = c_int::try_from(*bytes).unwrap_or(c_int::MAX);
                // SAFETY: NCCL's array has an entry for each buffer of the request.
                unsafe { sizes.add(index).write(bytes) };
            }
        }
        done.write(1);
        Ok(())
    })
}

/// Closes a sending communicator, with or without requests in flight.
pub unsafe extern "C" fn close_send(send_comm: Opaque) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("closeSend");
    guard_teardown(&SITE, || net::close_send(id_of(send_comm, "sendComm")?))
}

/// Closes a receiving communicator, with or without requests in flight.
pub unsafe extern "C" fn close_recv(recv_comm: Opaque) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("closeRecv");
    guard_teardown(&SITE, || net::close_receive(id_of(recv_comm, "recvComm")?))
}

/// Closes a listener, which need never have been accepted from.
pub unsafe extern "C" fn close_listen(listen_comm: Opaque) -> ncclResult_t {
    static SITE: CallSite = CallSite::new("closeListen");
    guard_teardown(&SITE, || {
        net::close_listen(id_of(listen_comm, "listenComm")?)
    })
}
