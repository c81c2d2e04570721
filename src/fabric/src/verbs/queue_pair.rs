//! A queue pair as its owner sees it: what is outstanding, what waits for the connection, and the
//! fence (PROTOCOL R36, R38).

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ibverbs_sys as sys;

use super::address::Address;
use super::chain::Chain;
use super::connect;
use super::endpoint::{Endpoint, Stage};
use super::greeting::{self, Due, Greeting, KNOCKS_MAX};
use super::status;
use crate::meters::{BytesMoved, Meter};
use crate::{
    Completion, DeviceError, Opcode, PostError, QueuePair, QueuePairAddress, QueuePairConfig,
    SendWork, Status, WriteSource,
};

/// Completions taken from the device in one call.
const POLL_MAX: usize = 32;
/// Marks the ids of receives; ids of sends are their numbers.
const RECEIVE: u64 = 1 << 63;
/// Id of the last receive of a queue pair, which shows that its receive queue is empty.
const RECEIVE_MARKER: u64 = u64::MAX;
/// Id of the first receive, which takes the peer's greeting.
const RECEIVE_GREETING: u64 = RECEIVE | 1;
/// Ids of this end's greeting and of what is sent behind it.
const GREETING: u64 = 1 << 62;
const KNOCK: u64 = GREETING | 1;
/// Places in the send queue beyond the owner's: marker, greeting and knocks.
pub(super) const SPARE_SENDS: u32 = 2 + KNOCKS_MAX;
/// Places in the receive queue beyond the owner's: marker and greeting.
pub(super) const SPARE_RECEIVES: u32 = 2;
/// How long a device may be silent while it drains, before it is told again.
const DRAIN_NUDGE: Duration = Duration::from_millis(1);
/// A device that has not flushed a queue pair by then is taken for hung.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Work that the device has.
struct Sent {
    id: u64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Its success is told.
    Signaled,
    /// Only its failure is told.
    Silent,
    /// Shows that the send queue is empty.
    Marker,
}

/// One end of a reliable connection.
pub(super) struct VerbsQueuePair {
    endpoint: Arc<Endpoint>,
    config: QueuePairConfig,
    chain: Chain,
    entries: Box<[sys::ibv_wc]>,
    /// Oldest first; the last has number `next - 1`.
    outstanding: VecDeque<Sent>,
    next: u64,
    /// Posts in a row that the device was not asked to report.
    unreported: u32,
    /// Taken, but not given to the device: it is not connected.
    held: VecDeque<SendWork>,
    receives: u32,
    /// Completions that are known, but not polled yet; older than those that the device holds.
    known: VecDeque<Completion>,
    in_error: bool,
    /// Somebody has asked for the address.
    is_told: Cell<bool>,
    greeting: Greeting,
    fence: Fence,
    /// The question to the peer's NIC that is open.
    asked: Option<u64>,
    moved: BytesMoved,
    meter: Meter,
}

/// How far the fence has come.
#[derive(Clone, Copy, Default)]
struct Fence {
    is_set: bool,
    sends_are_drained: bool,
    receives_are_drained: bool,
}

impl VerbsQueuePair {
    /// # Errors
    /// The device takes no receive.
    pub(super) fn new(
        endpoint: Arc<Endpoint>,
        config: QueuePairConfig,
        meter: Meter,
    ) -> Result<Self, DeviceError> {
        let made = Self {
            config,
            chain: Chain::default(),
            entries: vec![sys::ibv_wc::default(); POLL_MAX].into(),
            outstanding: VecDeque::with_capacity(config.send_depth as usize + 1),
            next: 0,
            unreported: 0,
            held: VecDeque::new(),
            receives: 0,
            known: VecDeque::new(),
            in_error: false,
            is_told: Cell::new(false),
            greeting: Greeting::default(),
            fence: Fence::default(),
            asked: None,
            moved: BytesMoved::default(),
            meter,
            endpoint,
        };
        made.post_receive(RECEIVE_GREETING).map_err(|error| {
            made.endpoint
                .port
                .error(&format!("no receive posted: {error}"))
        })?;
        Ok(made)
    }

    fn is_sound(&self, work: &SendWork) -> bool {
        match work.source {
            WriteSource::Inline { len, .. } => usize::from(len) <= WriteSource::INLINE_BYTES_MAX,
            WriteSource::Registered { len, .. } => {
                u64::from(len) <= self.endpoint.port.info.message_bytes_max
            }
        }
    }

    fn room(&self) -> usize {
        let taken = self.outstanding.len() + self.held.len();
        (self.config.send_depth as usize).saturating_sub(taken)
    }

    /// Looks at the connection until it stands and nothing waits for it.
    fn progress(&mut self) {
        if self.greeting.is_over() && self.held.is_empty() {
            return;
        }
        match self.endpoint.stage() {
            Stage::Ready => self.greet(),
            Stage::Failed if !self.held.is_empty() => return self.lose(Status::RetryExceeded),
            Stage::New | Stage::Connecting | Stage::Failed => return,
        }
        if self.greeting.has_come && !self.held.is_empty() {
            self.push_held();
        }
    }

    fn greet(&mut self) {
        let Some(due) = self.greeting.poll(Instant::now()) else {
            return;
        };
        let id = match due {
            Due::Greeting => GREETING,
            Due::Knock => KNOCK,
        };
        let work = greeting::work(due);
        self.chain.add(&self.endpoint, id, &work, work.signaled);
        // SAFETY: it has no buffer.
        if let Err((error, _)) = unsafe { self.chain.post(&self.endpoint) } {
            tracing::warn!("{}: the device takes no greeting: {error}", self.name());
            self.endpoint.set_stage(Stage::Failed);
        }
    }

    /// There is no connection: the oldest work tells, the rest is flushed.
    fn lose(&mut self, status: Status) {
        if let Some(work) = self.held.pop_front() {
            self.known
                .push_back(completion(work.id, Opcode::Write, status));
        }
        self.set_error();
    }

    fn push_held(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        // SAFETY: who posted the work has promised for it until it is done.
        let taken = unsafe { self.push(held.make_contiguous()) };
        held.drain(..taken);
        self.held = held;
    }

    /// Gives work to the device, and returns how much of it the device took.
    ///
    /// # Safety
    /// As [`QueuePair::post_send`].
    unsafe fn push(&mut self, works: &[SendWork]) -> usize {
        let mut taken = 0;
        for part in works.chunks(Chain::ROOM) {
            for (number, work) in (self.next..).zip(part) {
                self.unreported += 1;
                // What is never reported would fill the send queue for good.
                let is_due = self.unreported >= (self.config.send_depth / 2).max(1);
                let is_reported = work.signaled || is_due;
                if is_reported {
                    self.unreported = 0;
                }
                self.chain.add(&self.endpoint, number, work, is_reported);
            }
            // SAFETY: the caller's promise.
            let result = unsafe { self.chain.post(&self.endpoint) };
            let count = match &result {
                Ok(()) => part.len(),
                Err((_, count)) => *count,
            };
            for work in &part[..count] {
                let kind = if work.signaled {
                    Kind::Signaled
                } else {
                    Kind::Silent
                };
                self.outstanding.push_back(Sent { id: work.id, kind });
            }
            self.next += count as u64;
            taken += count;
            if let Err((error, _)) = result {
                if error.raw_os_error() == Some(libc::ENOMEM) {
                    // Whatever comes next is reported, since the one that was due may be left out.
                    self.unreported = self.config.send_depth;
                    return taken;
                }
                tracing::warn!("{}: the device takes no work: {error}", self.name());
                self.refuse(&works[taken..]);
                return works.len();
            }
        }
        taken
    }

    /// The device does not take work that is well formed: the queue pair is useless.
    fn refuse(&mut self, works: &[SendWork]) {
        self.set_error();
        for (index, work) in works.iter().enumerate() {
            let status = match index {
                0 => Status::LocalQueuePair,
                _ => Status::Flushed,
            };
            let refused = completion(work.id, Opcode::Write, status);
            self.known.push_back(refused);
        }
    }

    fn name(&self) -> &str {
        &self.endpoint.port.info.name
    }

    /// Takes completions from the device until there are no more or `room` is filled.
    fn take_from_device(&mut self, room: usize) -> usize {
        let room = room.min(self.entries.len());
        // SAFETY: this is the owner.
        let count = unsafe { self.endpoint.poll(&mut self.entries[..room]) };
        for index in 0..count.min(room) {
            let entry = self.entries[index];
            if let Some(completion) = self.read(&entry) {
                self.known.push_back(completion);
            }
        }
        count
    }

    /// What an entry of the completion queue means to the owner.
    fn read(&mut self, entry: &sys::ibv_wc) -> Option<Completion> {
        let code = entry
            .error()
            .map_or(sys::ibv_wc_status::IBV_WC_SUCCESS, |error| error.0);
        let id = entry.wr_id();
        let status = match id & RECEIVE {
            0 => status::of(code),
            _ => status::of_receive(code),
        };
        if matches!(id, RECEIVE_MARKER | RECEIVE_GREETING | GREETING | KNOCK) {
            self.read_own(id, status);
            return None;
        }
        self.in_error |= status != Status::Success;
        if id & RECEIVE != 0 {
            self.receives = self.receives.saturating_sub(1);
            if status == Status::Success {
                self.moved.received += entry.len() as u64;
            }
            return Some(Completion {
                byte_len: entry.len() as u32,
                immediate: entry.imm_data().map_or(0, u32::from_be),
                ..completion(0, Opcode::ReceiveImmediate, status)
            });
        }
        let sent = self.retire(id)?;
        match sent.kind {
            Kind::Marker => {
                self.fence.sends_are_drained = true;
                None
            }
            Kind::Silent if status == Status::Success => None,
            Kind::Silent | Kind::Signaled => Some(completion(sent.id, Opcode::Write, status)),
        }
    }

    /// Takes note of a completion that the owner knows nothing of.
    fn read_own(&mut self, id: u64, status: Status) {
        let is_good = status == Status::Success;
        match id {
            RECEIVE_MARKER => self.fence.receives_are_drained = true,
            RECEIVE_GREETING if is_good => self.greeting.come(Instant::now()),
            GREETING if is_good => self.greeting.is_acknowledged = true,
            // The first work that is posted will say so.
            GREETING if !self.in_error => self.endpoint.set_stage(Stage::Failed),
            _ => {}
        }
    }

    /// Work `number` is done, and all before it.
    fn retire(&mut self, number: u64) -> Option<Sent> {
        let first = self.next - self.outstanding.len() as u64;
        let index = usize::try_from(number.checked_sub(first)?).ok()?;
        if index >= self.outstanding.len() {
            return None;
        }
        self.outstanding.drain(..=index).next_back()
    }

    /// Waits until both queues are empty: a marker that was posted after the change to error has
    /// come back from each.
    fn drain(&mut self) {
        let has_send_marker = self.post_send_marker();
        let has_receive_marker = self.post_receive(RECEIVE_MARKER).is_ok();
        let start = Instant::now();
        let mut is_nudged = false;
        loop {
            let count = self.take_from_device(POLL_MAX);
            let sends =
                self.fence.sends_are_drained || !has_send_marker && self.outstanding.is_empty();
            let receives =
                self.fence.receives_are_drained || !has_receive_marker && self.receives == 0;
            if sends && receives {
                return;
            }
            if count > 0 {
                continue;
            }
            let waited = start.elapsed();
            if waited > DRAIN_NUDGE && !is_nudged {
                // Soft-RoCE does not look at receives that are posted in error until it is told
                // of an error again.
                is_nudged = true;
                let _ = self.endpoint.close();
            }
            if waited > DRAIN_MAX {
                tracing::warn!(
                    "{}: a queue pair in error is not flushed after {DRAIN_MAX:?}: the firmware of \
                     the device may hang",
                    self.name()
                );
                return;
            }
            std::thread::yield_now();
        }
    }

    fn post_send_marker(&mut self) -> bool {
        let work = greeting::work(Due::Knock);
        self.chain.add(&self.endpoint, self.next, &work, true);
        // SAFETY: it has no buffer.
        let is_posted = unsafe { self.chain.post(&self.endpoint) }.is_ok();
        if is_posted {
            let (id, kind) = (0, Kind::Marker);
            self.outstanding.push_back(Sent { id, kind });
            self.next += 1;
        }
        is_posted
    }

    fn post_receive(&self, id: u64) -> io::Result<()> {
        let mut receive = sys::ibv_recv_wr {
            wr_id: id,
            ..Default::default()
        };
        // SAFETY: this is the owner; a receive without buffer.
        unsafe { self.endpoint.post_receive(&mut receive) }
    }
}

fn completion(id: u64, opcode: Opcode, status: Status) -> Completion {
    Completion {
        id,
        status,
        opcode,
        ..Completion::EMPTY
    }
}

impl QueuePair for VerbsQueuePair {
    fn address(&self) -> QueuePairAddress {
        self.is_told.set(true);
        self.endpoint.address.encode()
    }

    fn connect(&mut self, remote: &QueuePairAddress) -> Result<(), DeviceError> {
        let port = &self.endpoint.port;
        let remote = Address::decode(remote).ok_or_else(|| {
            port.error(
                "the peer's NIC is not an RDMA device; set R2CCL_FABRIC to the same value on all \
                 hosts",
            )
        })?;
        if remote.link_layer != self.endpoint.address.link_layer {
            return Err(port.error(
                "one of both ports is InfiniBand, the other Ethernet; choose ports of one kind \
                 with NCCL_IB_HCA",
            ));
        }
        if self.endpoint.stage() != Stage::New {
            return Err(port.error("this queue pair is connected already"));
        }
        self.greeting.goes_first = self.is_told.get();
        connect::start(&self.endpoint, remote)
    }

    unsafe fn post_send(&mut self, chain: &[SendWork]) -> Result<usize, PostError> {
        // What only an event has told is left to the device, whose flush then says so here.
        if self.in_error {
            return Err(PostError::InError);
        }
        let sound = chain.iter().take_while(|work| self.is_sound(work)).count();
        if sound == 0 && !chain.is_empty() {
            return Err(PostError::Malformed);
        }
        self.progress();
        let chain = &chain[..sound.min(self.room())];
        let taken = if !self.greeting.has_come || !self.held.is_empty() {
            self.held.extend(chain);
            chain.len()
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.push(chain) }
        };
        let bytes = chain[..taken].iter().map(|work| work.source.len());
        self.moved.sent += bytes.map(u64::from).sum::<u64>();
        Ok(taken)
    }

    fn post_receives(&mut self, count: u32) -> Result<(), PostError> {
        if self.in_error {
            return Err(PostError::InError);
        }
        if count > self.config.receive_depth - self.receives {
            return Err(PostError::Malformed);
        }
        let mut left = count as usize;
        while left > 0 {
            let part = left.min(Chain::ROOM);
            // SAFETY: this is the owner; receives have no buffer.
            unsafe { self.chain.post_receives(&self.endpoint, RECEIVE, part) }.map_err(
                |error| {
                    tracing::warn!("{}: the device takes no receives: {error}", self.name());
                    PostError::InError
                },
            )?;
            self.receives += part as u32;
            left -= part;
        }
        Ok(())
    }

    fn probe_nics(&mut self, id: u64) {
        // Before that it waits for the peer's program, and nothing speaks against it.
        if self.greeting.has_come && self.endpoint.stage() == Stage::Ready {
            self.asked = Some(id);
            self.endpoint.ask(id);
        }
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        if !self.in_error {
            self.progress();
        }
        if let Some(id) = self.asked.take_if(|id| self.endpoint.has_answer(*id)) {
            self.known
                .push_back(completion(id, Opcode::NicProbe, Status::Success));
        }
        if self.known.len() < completions.len() {
            self.take_from_device(completions.len() - self.known.len());
        }
        if self.in_error && !self.held.is_empty() {
            // The queue pair has failed before the connection stood.
            self.lose(Status::Flushed);
        }
        let count = self.known.len().min(completions.len());
        for (place, completion) in completions.iter_mut().zip(self.known.drain(..count)) {
            *place = completion;
        }
        if count > 0 {
            self.meter.show(self.moved);
        }
        count
    }

    fn set_error(&mut self) {
        self.in_error = true;
        if self.fence.is_set {
            return;
        }
        self.fence.is_set = true;
        match self.endpoint.close() {
            Ok(()) => self.drain(),
            Err(error) => tracing::warn!(
                "{}: a queue pair cannot be moved to error: {error}; the device may be lost",
                self.name()
            ),
        }
        // In posting order: what the device had, then what it never got.
        let lost = self
            .outstanding
            .drain(..)
            .filter(|it| it.kind != Kind::Marker);
        let never_posted = self.held.drain(..).map(|work| work.id);
        for id in lost.map(|sent| sent.id).chain(never_posted) {
            self.known
                .push_back(completion(id, Opcode::Write, Status::Flushed));
        }
    }

    fn is_error(&self) -> bool {
        if !self.in_error {
            self.endpoint.port.context.read_events();
        }
        self.in_error || self.endpoint.has_failed()
    }

    fn has_backlog(&self) -> bool {
        let is_greeting = || {
            let stage = self.endpoint.stage();
            self.greeting.needs_polls() && matches!(stage, Stage::Connecting | Stage::Ready)
        };
        !self.in_error && (!self.held.is_empty() || is_greeting())
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        self.set_error();
    }
}
