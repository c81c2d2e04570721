//! Questions from NIC to NIC: whether two of them can talk while a queue pair between them cannot.
//!
//! Each port that is used has one datagram queue pair for all its connections. A question is asked
//! for a queue pair, and names it and its peer; the other port answers if it has both, in whatever
//! state they are. The thread that waits for events answers, so that a program which is busy or
//! asleep is not taken for a dead NIC. What is lost or finds no room is no answer, which proves
//! nothing.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ibverbs_sys as sys;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use parking_lot::Mutex;
use sys::ibv_qp_attr_mask as mask;
use sys::ibv_qp_state as state;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::context::Context;
use super::events;
use super::library::{Library, check};
use crate::DeviceError;

/// Questions and answers that may come at a time.
const RECEIVES: usize = 256;
/// And those that may go.
const SENDS: usize = 64;
/// Bytes for each: the device puts the address of the sender before what it sent.
const SLOT_BYTES: usize = 64;
const ADDRESS_BYTES: usize = 40;
/// Keys with this bit are the kernel's.
const KERNEL_KEYS: u32 = 1 << 31;
const MAGIC: [u8; 4] = *b"RCq1";
/// Completions taken in one call.
const POLL_MAX: usize = 16;

/// Where a port takes questions; all zero if it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Desk {
    /// Number of the queue pair.
    pub(super) number: u32,
    /// What a datagram must know to be taken.
    pub(super) key: u32,
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Datagram {
    magic: [u8; 4],
    is_answer: U32,
    /// The queue pair at the end that reads this, and its peer.
    to: U32,
    from: U32,
    id: U64,
}

const _: () = assert!(ADDRESS_BYTES + size_of::<Datagram>() <= SLOT_BYTES);

/// An object of libibverbs, which ends with this.
struct Object<T> {
    raw: NonNull<T>,
    context: Arc<Context>,
    destroy: unsafe fn(&Library, *mut T) -> Result<c_int, DeviceError>,
}

impl<T> Object<T> {
    /// Takes over what libibverbs has made, if it has.
    fn new(
        context: &Arc<Context>,
        made: Result<*mut T, DeviceError>,
        destroy: unsafe fn(&Library, *mut T) -> Result<c_int, DeviceError>,
    ) -> Result<Self, DeviceError> {
        let raw = NonNull::new(made?).ok_or_else(|| refusal(io::Error::last_os_error()))?;
        Ok(Self {
            raw,
            context: context.clone(),
            destroy,
        })
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: it is there, and whatever uses it has ended before.
        let _ = unsafe { (self.destroy)(self.context.library, self.raw.as_ptr()) };
    }
}

/// The other end of a queue pair's connection.
struct Peer {
    way: Object<sys::ibv_ah>,
    desk: Desk,
    queue_pair: u32,
}

/// A queue pair of this port.
struct Known {
    answered: Arc<AtomicU64>,
    peer: Option<Peer>,
}

struct State {
    known: HashMap<u32, Known>,
    /// Places of what may be sent.
    idle: Vec<usize>,
}

type Slot = UnsafeCell<[u8; SLOT_BYTES]>;

/// The datagram queue pair of a port. Whoever posts, polls or touches a slot holds the state.
pub(super) struct Prober {
    /// Where it takes questions.
    pub(super) desk: Desk,
    // In the order in which they may end.
    state: Mutex<State>,
    qp: Object<sys::ibv_qp>,
    cq: Object<sys::ibv_cq>,
    channel: Object<sys::ibv_comp_channel>,
    mr: Object<sys::ibv_mr>,
    slots: Box<[Slot]>,
    context: Arc<Context>,
}

// SAFETY: libibverbs may be called from any thread; posts, polls and slots are locked.
unsafe impl Send for Prober {}
// SAFETY: as above.
unsafe impl Sync for Prober {}

impl Prober {
    /// Makes one for a port and has its questions answered.
    pub(super) fn new(
        context: &Arc<Context>,
        port: u32,
        pkey_index: u16,
    ) -> Result<Arc<Self>, DeviceError> {
        let (library, raw, pd) = (context.library, context.raw.as_ptr(), context.pd.as_ptr());
        let key = getrandom::u32().map_err(|error| DeviceError(error.to_string()))? & !KERNEL_KEYS;
        let slots: Box<[Slot]> = (0..RECEIVES + SENDS)
            .map(|_| Slot::new([0; SLOT_BYTES]))
            .collect();
        let rights = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as c_int;
        let (memory, bytes) = (slots.as_ptr().cast_mut().cast(), size_of_val(&*slots));
        // SAFETY: the context is open; the slots stay until the registration has ended.
        let (mr, channel) = unsafe {
            let mr = library.ibv_reg_mr(pd, memory, bytes, rights);
            let channel = library.ibv_create_comp_channel(raw);
            (
                Object::new(context, mr, Library::ibv_dereg_mr)?,
                Object::new(context, channel, Library::ibv_destroy_comp_channel)?,
            )
        };
        let entries = (RECEIVES + SENDS) as c_int;
        // SAFETY: context and channel are there.
        let cq = unsafe {
            let channel = channel.raw.as_ptr();
            let cq = library.ibv_create_cq(raw, entries, null_mut(), channel, 0);
            Object::new(context, cq, Library::ibv_destroy_cq)?
        };
        let mut attributes = datagrams(cq.raw);
        // SAFETY: protection domain and completion queue are there.
        let qp = unsafe { library.ibv_create_qp(pd, &mut attributes) };
        let qp = Object::new(context, qp, Library::ibv_destroy_qp)?;
        bring_up(&qp, port, pkey_index, key)?;
        // SAFETY: the queue pair is there.
        let number = unsafe { qp.raw.as_ref().qp_num };
        let prober = Arc::new(Self {
            desk: Desk { number, key },
            state: Mutex::new(State {
                known: HashMap::new(),
                idle: (RECEIVES..RECEIVES + SENDS).collect(),
            }),
            qp,
            cq,
            channel,
            mr,
            slots,
            context: context.clone(),
        });
        prober.start()?;
        Ok(prober)
    }

    fn start(self: &Arc<Self>) -> Result<(), DeviceError> {
        // Reading an event that is not there must not wait.
        let flags = fcntl(self.events(), FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
        let set = |flags| fcntl(self.events(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK));
        flags.and_then(set).map_err(|errno| refusal(errno.into()))?;
        let state = self.state.lock();
        for slot in 0..RECEIVES {
            self.post_receive(&state, slot).map_err(refusal)?;
        }
        drop(state);
        self.serve();
        events::serve_prober(self)
    }

    /// The descriptor that becomes readable when [`Prober::serve`] has to be called.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open, and so is its descriptor, for as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.channel.raw.as_ref().fd) }
    }

    /// A queue pair has been made: the id of the last question for it that was answered.
    pub(super) fn add(&self, queue_pair: u32) -> Arc<AtomicU64> {
        let known = Known {
            answered: Arc::default(),
            peer: None,
        };
        let answered = known.answered.clone();
        self.state.lock().known.insert(queue_pair, known);
        answered
    }

    /// The queue pair is connected to `peer`, whose port is found by `way`. May block.
    pub(super) fn introduce(
        &self,
        queue_pair: u32,
        mut way: sys::ibv_ah_attr,
        (peer, desk): (u32, Desk),
    ) -> Result<(), DeviceError> {
        let (library, pd) = (self.context.library, self.context.pd.as_ptr());
        // SAFETY: the protection domain is there.
        let way = unsafe { library.ibv_create_ah(pd, &mut way) };
        let way = Object::new(&self.context, way, Library::ibv_destroy_ah)?;
        if let Some(known) = self.state.lock().known.get_mut(&queue_pair) {
            known.peer = Some(Peer {
                way,
                desk,
                queue_pair: peer,
            });
        }
        Ok(())
    }

    /// The queue pair is about to end.
    pub(super) fn forget(&self, queue_pair: u32) {
        let known = self.state.lock().known.remove(&queue_pair);
        drop(known);
    }

    /// Asks whether the NIC of a queue pair's peer is there; `id` is not 0.
    pub(super) fn ask(&self, queue_pair: u32, id: u64) {
        self.send(&mut self.state.lock(), queue_pair, false, id);
    }

    fn send(&self, state: &mut State, queue_pair: u32, is_answer: bool, id: u64) {
        let peer = state
            .known
            .get(&queue_pair)
            .and_then(|known| known.peer.as_ref());
        let (Some(peer), Some(slot)) = (peer, state.idle.pop()) else {
            return;
        };
        let datagram = Datagram {
            magic: MAGIC,
            is_answer: u32::from(is_answer).into(),
            to: peer.queue_pair.into(),
            from: queue_pair.into(),
            id: id.into(),
        };
        let bytes = size_of::<Datagram>();
        // SAFETY: the slot is idle, and the state is held.
        unsafe { (&mut *self.slots[slot].get())[..bytes].copy_from_slice(datagram.as_bytes()) };
        let mut source = self.place(slot, bytes);
        let mut work = sys::ibv_send_wr {
            wr_id: slot as u64,
            sg_list: &mut source,
            num_sge: 1,
            opcode: sys::ibv_wr_opcode::IBV_WR_SEND,
            send_flags: sys::ibv_send_flags::IBV_SEND_SIGNALED.0,
            ..Default::default()
        };
        work.wr.ud.ah = peer.way.raw.as_ptr();
        work.wr.ud.remote_qpn = peer.desk.number;
        work.wr.ud.remote_qkey = peer.desk.key;
        let mut refused = null_mut();
        // SAFETY: the chain is well formed and the slot stays until its completion; the state is
        // held.
        let is_posted = unsafe {
            let post = self.context.raw.as_ref().ops.post_send;
            post.is_some_and(|post| post(self.qp.raw.as_ptr(), &mut work, &mut refused) == 0)
        };
        if !is_posted {
            state.idle.push(slot);
        }
    }

    /// Answers what has come, and takes note of answers.
    pub(super) fn serve(&self) {
        let (library, channel) = (self.context.library, self.channel.raw.as_ptr());
        let (mut cq, mut nothing) = (null_mut(), null_mut());
        // SAFETY: the channel is open and does not block; each event is acknowledged once.
        unsafe {
            while let Ok(0) = library.ibv_get_cq_event(channel, &mut cq, &mut nothing) {
                let _ = library.ibv_ack_cq_events(cq, 1);
            }
        }
        // SAFETY: the context is open.
        let operations = unsafe { self.context.raw.as_ref().ops };
        let (Some(notify), Some(poll)) = (operations.req_notify_cq, operations.poll_cq) else {
            return;
        };
        let cq = self.cq.raw.as_ptr();
        let mut state = self.state.lock();
        let mut entries = [sys::ibv_wc::default(); POLL_MAX];
        // SAFETY: the queue is there and so is the room; the state is held. What comes after the
        // wish to be told makes an event.
        unsafe {
            notify(cq, 0);
            loop {
                let count = poll(cq, POLL_MAX as c_int, entries.as_mut_ptr());
                let Some(found) = usize::try_from(count).ok().filter(|count| *count > 0) else {
                    return;
                };
                for entry in &entries[..found.min(POLL_MAX)] {
                    self.take(&mut state, entry);
                }
            }
        }
    }

    fn take(&self, state: &mut State, entry: &sys::ibv_wc) {
        let slot = entry.wr_id() as usize;
        if slot >= RECEIVES {
            state.idle.push(slot);
            return;
        }
        if entry.error().is_some() {
            // The queue pair has ended; nothing more comes.
            return;
        }
        // SAFETY: the device has filled the slot and has it no more; the state is held.
        let bytes = unsafe { *self.slots[slot].get() };
        // It can fail only when the queue pair has ended.
        let _ = self.post_receive(state, slot);
        let length = entry.len().saturating_sub(ADDRESS_BYTES);
        let read = Datagram::read_from_prefix(&bytes[ADDRESS_BYTES..]);
        if let Some((datagram, _)) = read.ok().filter(|_| length == size_of::<Datagram>()) {
            self.read(state, &datagram);
        }
    }

    fn read(&self, state: &mut State, datagram: &Datagram) {
        let (own, id) = (datagram.to.get(), datagram.id.get());
        let Some(known) = state.known.get(&own) else {
            return;
        };
        let is_peer = |peer: &Peer| peer.queue_pair == datagram.from.get();
        if datagram.magic != MAGIC || !known.peer.as_ref().is_some_and(is_peer) {
            return;
        }
        if datagram.is_answer.get() != 0 {
            known.answered.store(id, Ordering::Release);
        } else {
            self.send(state, own, true, id);
        }
    }

    /// A part of the memory, as the device knows it.
    fn place(&self, slot: usize, bytes: usize) -> sys::ibv_sge {
        sys::ibv_sge {
            addr: self.slots[slot].get() as u64,
            length: bytes as u32,
            // SAFETY: the registration is there.
            lkey: unsafe { self.mr.raw.as_ref().lkey },
        }
    }

    fn post_receive(&self, _: &State, slot: usize) -> io::Result<()> {
        let mut place = self.place(slot, SLOT_BYTES);
        let mut receive = sys::ibv_recv_wr {
            wr_id: slot as u64,
            sg_list: &mut place,
            num_sge: 1,
            ..Default::default()
        };
        let mut refused = null_mut();
        // SAFETY: the chain is well formed and the slot stays; the state is held.
        let code = unsafe {
            let post = self.context.raw.as_ref().ops.post_recv;
            post.map_or(libc::EOPNOTSUPP, |post| {
                post(self.qp.raw.as_ptr(), &mut receive, &mut refused)
            })
        };
        check(code)
    }
}

fn datagrams(cq: NonNull<sys::ibv_cq>) -> sys::ibv_qp_init_attr {
    sys::ibv_qp_init_attr {
        send_cq: cq.as_ptr(),
        recv_cq: cq.as_ptr(),
        qp_type: sys::ibv_qp_type::IBV_QPT_UD,
        cap: sys::ibv_qp_cap {
            max_send_wr: SENDS as u32,
            max_recv_wr: RECEIVES as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        ..Default::default()
    }
}

/// Brings the queue pair to the state in which it sends and receives.
fn bring_up(
    qp: &Object<sys::ibv_qp>,
    port: u32,
    pkey_index: u16,
    key: u32,
) -> Result<(), DeviceError> {
    let steps = [
        (
            state::IBV_QPS_INIT,
            mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY,
        ),
        (state::IBV_QPS_RTR, mask::IBV_QP_STATE),
        (state::IBV_QPS_RTS, mask::IBV_QP_STATE | mask::IBV_QP_SQ_PSN),
    ];
    for (to, what) in steps {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: to,
            pkey_index,
            port_num: port as u8,
            qkey: key,
            ..Default::default()
        };
        let (library, raw) = (qp.context.library, qp.raw.as_ptr());
        // SAFETY: the queue pair is there.
        let code = unsafe { library.ibv_modify_qp(raw, &mut attributes, what.0 as c_int) };
        check(code?).map_err(refusal)?;
    }
    Ok(())
}

fn refusal(error: io::Error) -> DeviceError {
    DeviceError(format!("the device gives no datagram queue pair: {error}"))
}
