//! The objects of a queue pair: completion queue, queue pair, room for inline bytes. Its owner
//! posts and polls; a helper thread may change its state meanwhile; who lets go last destroys it.

use std::ffi::c_int;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use ibverbs_sys as sys;
use sys::ibv_qp_attr_mask as mask;

use super::address::Address;
use super::device::Port;
use super::library::check;
use super::prober::Prober;
use super::queue_pair::{SPARE_RECEIVES, SPARE_SENDS};
use crate::{DeviceError, QueuePairConfig, Traffic, WriteSource};

/// Bytes that a post may carry by itself.
const INLINE_BYTES: usize = WriteSource::INLINE_BYTES_MAX;

/// How far the connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// Receives may be posted.
    New,
    /// A helper is about it.
    Connecting,
    /// Writes may be posted.
    Ready,
    /// There will be no connection.
    Failed,
}

impl Stage {
    fn from_number(number: u8) -> Self {
        let all = [Self::New, Self::Connecting, Self::Ready, Self::Failed];
        all.into_iter()
            .find(|stage| *stage as u8 == number)
            .unwrap_or(Self::Failed)
    }
}

type Post<W> = unsafe extern "C" fn(*mut sys::ibv_qp, *mut W, *mut *mut W) -> c_int;
type Poll = unsafe extern "C" fn(*mut sys::ibv_cq, c_int, *mut sys::ibv_wc) -> c_int;

/// Registered copies of inline bytes, for devices that take fewer than we use.
struct Bounce {
    mr: NonNull<sys::ibv_mr>,
    slots: NonNull<[u8; INLINE_BYTES]>,
    count: usize,
}

/// Queue pair and completion queue of one end of a connection.
pub(super) struct Endpoint {
    pub(super) port: Arc<Port>,
    qp: NonNull<sys::ibv_qp>,
    cq: NonNull<sys::ibv_cq>,
    post_send: Post<sys::ibv_send_wr>,
    post_receive: Post<sys::ibv_recv_wr>,
    poll: Poll,
    bounce: Option<Bounce>,
    pub(super) traffic: Traffic,
    /// Set by events of the device.
    failed: Arc<AtomicBool>,
    stage: AtomicU8,
    /// The owner has fenced it: nobody needs to connect it any more.
    is_closed: AtomicBool,
    /// What the peer is told.
    pub(super) address: Address,
    prober: Option<Arc<Prober>>,
    /// The last question to the peer's NIC that was answered.
    answered: Arc<AtomicU64>,
}

// SAFETY: libibverbs may be called from any thread. Posting and polling are the owner's alone, by
// `&mut` of the queue pair that holds this.
unsafe impl Send for Endpoint {}
// SAFETY: as above.
unsafe impl Sync for Endpoint {}

impl Endpoint {
    /// Makes the objects, with places in each queue for what the owner knows nothing of.
    pub(super) fn new(port: &Arc<Port>, config: QueuePairConfig) -> Result<Self, DeviceError> {
        let context = &port.context;
        let gid = port.choose_gid()?.gid;
        let first_packet = random_24_bits(port)?;
        let attributes = context.query_port(port.number)?;
        let send = config.send_depth + SPARE_SENDS;
        let receive = config.receive_depth + SPARE_RECEIVES;
        let cq = create_cq(port, send + receive)?;
        let created = create_qp(port, cq, send, receive).inspect_err(|_| destroy_cq(port, cq));
        let (qp, inline_bytes) = created?;
        // SAFETY: queue pair and context are there; the table is constant.
        let (number, operations) = unsafe { (qp.as_ref().qp_num, context.raw.as_ref().ops) };
        let prober = port.prober().cloned();
        let answered = prober.as_ref().map(|prober| prober.add(number));
        let mut endpoint = Self {
            port: port.clone(),
            qp,
            cq,
            post_send: operations.post_send.unwrap_or(refuse_post),
            post_receive: operations.post_recv.unwrap_or(refuse_post),
            poll: operations.poll_cq.unwrap_or(refuse_poll),
            bounce: None,
            traffic: config.traffic,
            failed: Arc::default(),
            stage: AtomicU8::new(Stage::New as u8),
            is_closed: AtomicBool::new(false),
            address: Address {
                number,
                first_packet,
                lid: attributes.lid,
                mtu: attributes.active_mtu as u8,
                link_layer: attributes.link_layer,
                gid,
                desk: prober.as_ref().map(|prober| prober.desk),
            },
            prober,
            answered: answered.unwrap_or_default(),
        };
        context.watch(qp, cq, &endpoint.failed);
        if inline_bytes < INLINE_BYTES {
            endpoint.bounce = Some(Bounce::new(port, send as usize)?);
        }
        endpoint.initialise()?;
        Ok(endpoint)
    }

    /// From the state in which it was made to the one in which receives may be posted.
    fn initialise(&self) -> Result<(), DeviceError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_INIT,
            qp_access_flags: sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0,
            pkey_index: self.port.config.pkey_index,
            port_num: self.port.number as u8,
            ..Default::default()
        };
        let what = mask::IBV_QP_STATE
            | mask::IBV_QP_PKEY_INDEX
            | mask::IBV_QP_PORT
            | mask::IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attributes, what).map_err(|error| {
            self.port.error(&format!(
                "a queue pair cannot be initialised: {error}; see that NCCL_IB_PKEY ({}) is an \
                 index of the port's partition table",
                self.port.config.pkey_index
            ))
        })
    }

    /// Changes the state. May block, but for the change to error.
    pub(super) fn modify(
        &self,
        attributes: &mut sys::ibv_qp_attr,
        what: sys::ibv_qp_attr_mask,
    ) -> io::Result<()> {
        let library = self.port.context.library;
        // SAFETY: the queue pair is there; libibverbs allows this from any thread.
        let code = unsafe { library.ibv_modify_qp(self.qp.as_ptr(), attributes, what.0 as c_int) };
        check(code.map_err(io::Error::other)?)
    }

    pub(super) fn stage(&self) -> Stage {
        Stage::from_number(self.stage.load(Ordering::Acquire))
    }

    pub(super) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    /// Moves the queue pair to error, from which nothing brings it back.
    pub(super) fn close(&self) -> io::Result<()> {
        self.is_closed.store(true, Ordering::Release);
        let mut attributes = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_ERR,
            ..Default::default()
        };
        self.modify(&mut attributes, mask::IBV_QP_STATE)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Whether the device has told of a failure, as far as its events have been read.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The port of `remote`, the peer, is found by `way`: from now on it can be asked. May block.
    pub(super) fn introduce(&self, way: sys::ibv_ah_attr, remote: &Address) {
        let (Some(prober), Some(desk)) = (&self.prober, remote.desk) else {
            return;
        };
        let introduced = prober.introduce(self.address.number, way, (remote.number, desk));
        if let Err(error) = introduced {
            tracing::debug!("{}: {error}", self.port.info.name);
        }
    }

    /// Asks the peer's NIC whether it is there; see [`Endpoint::has_answer`].
    pub(super) fn ask(&self, id: u64) {
        if let Some(prober) = &self.prober {
            prober.ask(self.address.number, id);
        }
    }

    /// Whether the last question that was answered is this one.
    pub(super) fn has_answer(&self, id: u64) -> bool {
        self.answered.load(Ordering::Acquire) == id
    }

    /// Copies inline bytes of work `sequence` to where the device can read them. `None`: it takes
    /// them with the post.
    pub(super) fn bounce(&self, sequence: u64, bytes: &[u8]) -> Option<sys::ibv_sge> {
        let bounce = self.bounce.as_ref()?;
        let slot = (sequence % bounce.count as u64) as usize;
        // SAFETY: the slot is one of `count`, and its last work is done: no more than that are
        // outstanding. The device only reads.
        let address = unsafe {
            let slot = bounce.slots.add(slot).cast::<u8>();
            slot.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            slot.as_ptr() as u64
        };
        Some(sys::ibv_sge {
            addr: address,
            length: bytes.len() as u32,
            // SAFETY: the registration is there.
            lkey: unsafe { bounce.mr.as_ref().lkey },
        })
    }

    /// Posts a chain of work; on failure, the number of the error and the first that was not
    /// taken.
    ///
    /// # Safety
    /// Only the owner posts. The chain is well formed and its buffers stay until it is done.
    pub(super) unsafe fn post_send(
        &self,
        chain: &mut sys::ibv_send_wr,
    ) -> Result<(), (io::Error, *mut sys::ibv_send_wr)> {
        let mut refused = null_mut();
        // SAFETY: the caller's promise.
        let code = unsafe { (self.post_send)(self.qp.as_ptr(), chain, &mut refused) };
        check(code).map_err(|error| (error, refused))
    }

    /// Posts a chain of receives; they go in whole, or the queue pair is useless.
    ///
    /// # Safety
    /// Only the owner posts. The chain is well formed.
    pub(super) unsafe fn post_receive(&self, chain: &mut sys::ibv_recv_wr) -> io::Result<()> {
        let mut refused = null_mut();
        // SAFETY: the caller's promise.
        check(unsafe { (self.post_receive)(self.qp.as_ptr(), chain, &mut refused) })
    }

    /// Takes completions; returns how many.
    ///
    /// # Safety
    /// Only the owner polls.
    pub(super) unsafe fn poll(&self, entries: &mut [sys::ibv_wc]) -> usize {
        let room = entries.len() as c_int;
        // SAFETY: the queue is there and so is the room.
        let count = unsafe { (self.poll)(self.cq.as_ptr(), room, entries.as_mut_ptr()) };
        usize::try_from(count).unwrap_or(0)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let context = &self.port.context;
        context.forget(self.qp, self.cq);
        if let Some(prober) = &self.prober {
            prober.forget(self.address.number);
        }
        // SAFETY: nobody else has the queue pair any more, and its events are acknowledged.
        let _ = unsafe { context.library.ibv_destroy_qp(self.qp.as_ptr()) };
        destroy_cq(&self.port, self.cq);
        if let Some(bounce) = self.bounce.take() {
            bounce.free(&self.port);
        }
    }
}

impl Bounce {
    fn new(port: &Port, count: usize) -> Result<Self, DeviceError> {
        let memory = vec![[0; INLINE_BYTES]; count].into_boxed_slice();
        let slots: NonNull<[u8; INLINE_BYTES]> = NonNull::from(Box::leak(memory)).cast();
        // SAFETY: the memory is there until `free`.
        let mr = unsafe { port.register(slots.as_ptr().cast(), count * INLINE_BYTES, 0) };
        match mr {
            Ok(mr) => Ok(Self { mr, slots, count }),
            Err(error) => {
                free_slots(slots, count);
                Err(error)
            }
        }
    }

    fn free(self, port: &Port) {
        port.deregister(self.mr);
        free_slots(self.slots, self.count);
    }
}

fn free_slots(slots: NonNull<[u8; INLINE_BYTES]>, count: usize) {
    let slots = std::ptr::slice_from_raw_parts_mut(slots.as_ptr(), count);
    // SAFETY: this is the memory that `Bounce::new` has leaked.
    drop(unsafe { Box::from_raw(slots) });
}

fn create_cq(port: &Port, entries: u32) -> Result<NonNull<sys::ibv_cq>, DeviceError> {
    let context = port.context.raw.as_ptr();
    let entries = entries as c_int;
    // SAFETY: the context is open.
    let cq = unsafe {
        let library = port.context.library;
        library.ibv_create_cq(context, entries, null_mut(), null_mut(), 0)
    }?;
    NonNull::new(cq).ok_or_else(|| {
        let error = io::Error::last_os_error();
        port.resource_error(&format!("a completion queue of {entries} entries"), &error)
    })
}

fn destroy_cq(port: &Port, cq: NonNull<sys::ibv_cq>) {
    // SAFETY: no queue pair uses it any more.
    let _ = unsafe { port.context.library.ibv_destroy_cq(cq.as_ptr()) };
}

/// The queue pair, and how many bytes a post may carry.
fn create_qp(
    port: &Port,
    cq: NonNull<sys::ibv_cq>,
    send: u32,
    receive: u32,
) -> Result<(NonNull<sys::ibv_qp>, usize), DeviceError> {
    let mut error = io::Error::from_raw_os_error(libc::EINVAL);
    // A device that cannot take so many inline bytes may refuse rather than take fewer.
    for inline in [INLINE_BYTES.min(port.config.inline_bytes_max), 0] {
        let mut attributes = sys::ibv_qp_init_attr {
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            qp_type: sys::ibv_qp_type::IBV_QPT_RC,
            cap: sys::ibv_qp_cap {
                max_send_wr: send,
                max_recv_wr: receive,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline as u32,
            },
            ..Default::default()
        };
        let library = port.context.library;
        // SAFETY: protection domain and completion queue are there.
        let qp = unsafe { library.ibv_create_qp(port.context.pd.as_ptr(), &mut attributes) }?;
        if let Some(qp) = NonNull::new(qp) {
            return Ok((qp, attributes.cap.max_inline_data as usize));
        }
        error = io::Error::last_os_error();
    }
    let what = format!("a queue pair of {send} sends and {receive} receives");
    Err(port.resource_error(&what, &error))
}

/// Numbers of packets begin anywhere, so that a late packet of an older queue pair does not fit.
fn random_24_bits(port: &Port) -> Result<u32, DeviceError> {
    let random = getrandom::u32();
    random
        .map(|number| number >> 8)
        .map_err(|error| port.error(&format!("no random numbers: {error}")))
}

/// Stands in for functions that a provider lacks.
unsafe extern "C" fn refuse_post<W>(
    _: *mut sys::ibv_qp,
    chain: *mut W,
    refused: *mut *mut W,
) -> c_int {
    // SAFETY: the caller gives a place for the pointer.
    unsafe { *refused = chain };
    libc::EOPNOTSUPP
}

unsafe extern "C" fn refuse_poll(_: *mut sys::ibv_cq, _: c_int, _: *mut sys::ibv_wc) -> c_int {
    -1
}
