//! One end of a connection, driven as NCCL's proxy drives it: eight slots used in turn, only the
//! oldest request tested, a slot used again only after its request is done.

use std::time::Instant;

use super::memory::Slots;
use super::message::Faults;
use crate::net::{Comm, GROUP_MAX, Memory, Net, NetError, ReceiveBuffer, Request};

/// Slots of a connection and direction: `NCCL_STEPS`.
pub const STEPS: usize = 8;
/// Content of a receive slot before a checked message, and of a send slot after it.
const BLANK: u8 = 0xa5;
/// Room beyond the message in checked runs: NCCL's receives are larger than what comes, too.
const SPARE_BYTES: usize = 64;
/// Largest message and receive: NCCL's own limit for one operation.
pub const MESSAGE_MAX: usize = 1 << 30;

/// What a measurement sends and expects.
pub trait Flow {
    /// Bytes of a message.
    fn size(&self, message: u64) -> usize;
    /// Writes the message that is about to be sent.
    fn fill(&mut self, message: u64, slot: &mut [u8]);
    /// Number of received bytes that differ from what the peer sent.
    fn verify(&self, message: u64, bytes: &[u8]) -> u64;
    /// Uses a received message.
    fn take(&mut self, message: u64, bytes: &[u8]);
}

/// State of the slots that both directions share.
struct Ring {
    slots: Slots,
    memory: Memory,
    requests: [Option<Request>; STEPS],
    submitted: u64,
    done: u64,
}

impl Ring {
    fn new(net: &Net, comm: Comm, layout: &Layout) -> Result<Self, String> {
        let slots = Slots::new(layout.count, layout.room, layout.offset)?;
        let memory = net
            .register(comm, slots.base(), slots.mapped())
            .map_err(|error| format!("{error}, for {} bytes", slots.mapped()))?;
        Ok(Ring {
            slots,
            memory,
            requests: [None; STEPS],
            submitted: 0,
            done: 0,
        })
    }

    fn slot(&self, message: u64) -> usize {
        (message % self.slots.count() as u64) as usize
    }

    fn has_room(&self) -> bool {
        self.submitted < self.done + self.slots.count() as u64
    }

    fn oldest(&self) -> Option<Request> {
        (self.done < self.submitted)
            .then(|| self.requests[self.slot(self.done)])
            .flatten()
    }

    fn accepted(&mut self, request: Request) {
        let slot = self.slot(self.submitted);
        self.requests[slot] = Some(request);
        self.submitted += 1;
    }

    fn finished(&mut self) -> usize {
        let slot = self.slot(self.done);
        self.requests[slot] = None;
        self.done += 1;
        slot
    }
}

/// How the slots of one size are laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    count: usize,
    room: usize,
    offset: usize,
}

impl Layout {
    /// Slots for messages of up to `size` bytes: eight, or as many as fit into `window` bytes.
    pub fn new(size: usize, window: u64, offset: usize, check: bool) -> Self {
        let spare = if check { SPARE_BYTES } else { 0 };
        let room = (size + spare).clamp(1, MESSAGE_MAX.max(size));
        let fit = usize::try_from(window).unwrap_or(usize::MAX) / room;
        Layout {
            count: fit.clamp(1, STEPS),
            room,
            offset,
        }
    }
}

/// The sending end.
pub struct Sender {
    /// Index of the connection.
    pub link: u32,
    comm: Comm,
    ring: Option<Ring>,
    filled: bool,
    check: bool,
}

/// The receiving end.
pub struct Receiver {
    /// Index of the connection.
    pub link: u32,
    /// Channel of the connection.
    pub channel: usize,
    /// Bytes received in this measurement.
    pub bytes: u64,
    /// What the check has found in this measurement.
    pub faults: Faults,
    comm: Comm,
    ring: Option<Ring>,
    sizes: [usize; STEPS],
    blanked: bool,
    check: bool,
}

impl Sender {
    /// An end without buffers.
    pub fn new(link: u32, comm: Comm, check: bool) -> Self {
        Sender {
            link,
            comm,
            ring: None,
            filled: false,
            check,
        }
    }

    /// Gets buffers for a measurement; those of the one before are deregistered and unmapped.
    pub fn prepare(&mut self, net: &Net, layout: &Layout) -> Result<(), String> {
        self.release(net).map_err(|error| error.to_string())?;
        self.ring = Some(Ring::new(net, self.comm, layout)?);
        self.filled = false;
        Ok(())
    }

    /// The plugin's communicator.
    pub fn comm(&self) -> Comm {
        self.comm
    }

    /// Messages whose send is done.
    pub fn done(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.done)
    }

    /// Requests outstanding.
    pub fn in_flight(&self) -> u64 {
        self.ring
            .as_ref()
            .map_or(0, |ring| ring.submitted - ring.done)
    }

    /// One visit: offers the next message below `limit`, or else tests the oldest request. Says
    /// whether anything moved.
    pub fn step(&mut self, net: &Net, limit: u64, flow: &mut impl Flow) -> Result<bool, NetError> {
        let Some(ring) = &mut self.ring else {
            return Ok(false);
        };
        if ring.submitted < limit && ring.has_room() {
            let message = ring.submitted;
            let slot = ring.slot(message);
            let size = flow.size(message).min(ring.slots.room());
            if !self.filled {
                flow.fill(message, &mut ring.slots.bytes(slot)[..size]);
                self.filled = true;
            }
            let address = ring.slots.address(slot);
            if let Some(request) = net.isend(self.comm, address, size, 0, ring.memory)? {
                ring.accepted(request);
                self.filled = false;
                return Ok(true);
            }
        }
        let Some(request) = ring.oldest() else {
            return Ok(false);
        };
        if net.test(request, 1, false)?.is_none() {
            return Ok(false);
        }
        let slot = ring.finished();
        if self.check {
            // Done means delivered: a plugin that still reads the slot now sends nonsense.
            ring.slots.bytes(slot).fill(BLANK);
        }
        Ok(true)
    }

    /// Deregisters and unmaps the buffers, as NCCL does before closing, requests in flight or not.
    pub fn release(&mut self, net: &Net) -> Result<(), NetError> {
        match self.ring.take() {
            Some(ring) => net.deregister(self.comm, ring.memory),
            None => Ok(()),
        }
    }

    /// Releases and closes.
    pub fn close(mut self, net: &Net) -> Result<(), NetError> {
        self.release(net)?;
        net.close_send(self.comm)
    }

    /// Where the connection stands, for a report about a run that does not move.
    pub fn state(&self) -> (u64, u64) {
        self.ring
            .as_ref()
            .map_or((0, 0), |ring| (ring.submitted, ring.done))
    }
}

impl Receiver {
    /// An end without buffers.
    pub fn new(link: u32, channel: usize, comm: Comm, check: bool) -> Self {
        Receiver {
            link,
            channel,
            bytes: 0,
            faults: Faults::default(),
            comm,
            ring: None,
            sizes: [0; STEPS],
            blanked: false,
            check,
        }
    }

    /// Gets buffers for a measurement; those of the one before are deregistered and unmapped.
    pub fn prepare(&mut self, net: &Net, layout: &Layout) -> Result<(), String> {
        self.release(net).map_err(|error| error.to_string())?;
        self.ring = Some(Ring::new(net, self.comm, layout)?);
        self.faults = Faults::default();
        self.bytes = 0;
        self.blanked = false;
        Ok(())
    }

    /// The plugin's communicator.
    pub fn comm(&self) -> Comm {
        self.comm
    }

    /// Messages received.
    pub fn done(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.done)
    }

    /// Requests outstanding.
    pub fn in_flight(&self) -> u64 {
        self.ring
            .as_ref()
            .map_or(0, |ring| ring.submitted - ring.done)
    }

    /// One visit: posts the next receive below `limit`, or else tests the oldest. Says whether
    /// anything moved.
    pub fn step(&mut self, net: &Net, limit: u64, flow: &mut impl Flow) -> Result<bool, NetError> {
        if self.post(net, limit, flow)? {
            return Ok(true);
        }
        let Some(ring) = &mut self.ring else {
            return Ok(false);
        };
        let Some(request) = ring.oldest() else {
            return Ok(false);
        };
        let Some(sizes) = net.test(request, 1, true)? else {
            return Ok(false);
        };
        let message = ring.done;
        let slot = ring.finished();
        let size = sizes[0].min(ring.slots.room());
        self.sizes[slot] = size;
        self.bytes += size as u64;
        self.faults.wrong_sizes += u64::from(sizes[0] != flow.size(message));
        let bytes = ring.slots.bytes(slot);
        if self.check {
            let (content, tail) = bytes.split_at(size);
            self.faults.wrong_bytes += flow.verify(message, content);
            self.faults.outside_bytes += tail.iter().filter(|&&b| b != BLANK).count() as u64;
        }
        flow.take(message, &ring.slots.bytes(slot)[..size]);
        Ok(true)
    }

    fn post(&mut self, net: &Net, limit: u64, flow: &impl Flow) -> Result<bool, NetError> {
        let Some(ring) = &mut self.ring else {
            return Ok(false);
        };
        if ring.submitted >= limit || !ring.has_room() {
            return Ok(false);
        }
        let message = ring.submitted;
        let slot = ring.slot(message);
        if self.check && !self.blanked {
            if let Some(before) = message.checked_sub(ring.slots.count() as u64) {
                let size = self.sizes[slot];
                self.faults.late_bytes += late(ring, slot, before, size, flow);
            }
            ring.slots.bytes(slot).fill(BLANK);
            self.blanked = true;
        }
        let buffer = ReceiveBuffer {
            address: ring.slots.address(slot),
            bytes: ring.slots.room(),
            tag: 0,
            memory: ring.memory,
        };
        let request = net.irecv(self.comm, &[buffer])?;
        let posted = request.is_some();
        if let Some(request) = request {
            ring.accepted(request);
            self.blanked = false;
        }
        Ok(posted)
    }

    /// Looks once more at every slot that holds a finished message, and at the guards.
    pub fn look_again(&mut self, flow: &impl Flow) {
        let Some(ring) = &mut self.ring else { return };
        if !self.check {
            return;
        }
        let count = ring.slots.count() as u64;
        // The slot of a message is still its own if no later message was prepared for it.
        let first = (ring.submitted + u64::from(self.blanked)).saturating_sub(count);
        for message in first..ring.done {
            let slot = ring.slot(message);
            let size = self.sizes[slot];
            self.faults.late_bytes += late(ring, slot, message, size, flow);
        }
        for slot in 0..ring.slots.count() {
            self.faults.outside_bytes += ring.slots.outside(slot);
        }
    }

    /// Deregisters and unmaps the buffers, as NCCL does before closing, requests in flight or not.
    pub fn release(&mut self, net: &Net) -> Result<(), NetError> {
        match self.ring.take() {
            Some(ring) => net.deregister(self.comm, ring.memory),
            None => Ok(()),
        }
    }

    /// Releases and closes.
    pub fn close(mut self, net: &Net) -> Result<(), NetError> {
        self.release(net)?;
        net.close_receive(self.comm)
    }

    /// Where the connection stands, for a report about a run that does not move.
    pub fn state(&self) -> (u64, u64) {
        self.ring
            .as_ref()
            .map_or((0, 0), |ring| (ring.submitted, ring.done))
    }
}

/// Bytes of a finished message that have changed since. Wrong bytes were counted on arrival; if
/// there were some, they are counted here again, which changes no verdict.
fn late(ring: &mut Ring, slot: usize, message: u64, size: usize, flow: &impl Flow) -> u64 {
    let (content, tail) = ring.slots.bytes(slot).split_at(size);
    flow.verify(message, content) + tail.iter().filter(|&&byte| byte != BLANK).count() as u64
}

/// Watches that something moves, and finds the longest time between two completions.
pub struct Watch {
    started: Instant,
    /// A time at or shortly before the last movement.
    moved: Instant,
    idle_rounds: u32,
    /// Rounds that have moved something since the clock was read.
    busy_rounds: u32,
    stall_ms: u64,
    /// Longest time without a completion, in nanoseconds, give or take [`BUSY_ROUNDS`].
    pub gap_ns: u64,
}

/// Rounds between two looks at the clock while nothing moves.
const IDLE_ROUNDS: u32 = 1024;
/// Rounds that move something between two looks at the clock, unless there was a pause. There are
/// machines on which a look is a system call.
const BUSY_ROUNDS: u32 = 16;
/// Rounds without movement that make a pause.
const PAUSE_ROUNDS: u32 = 8;

impl Watch {
    /// Starts now.
    pub fn new(stall_ms: u64) -> Self {
        let now = Instant::now();
        Watch {
            started: now,
            moved: now,
            idle_rounds: 0,
            busy_rounds: 0,
            stall_ms,
            gap_ns: 0,
        }
    }

    /// Nanoseconds since the start.
    pub fn nanoseconds(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// When something moved last, or shortly before.
    pub fn moved(&self) -> Instant {
        self.moved
    }

    /// To be called after each round. A round without movement gives the CPU away as NCCL's proxy
    /// does. False when nothing has moved for too long.
    pub fn round(&mut self, moved: bool) -> bool {
        if moved {
            self.busy_rounds += 1;
            let idle_rounds = std::mem::take(&mut self.idle_rounds);
            if idle_rounds < PAUSE_ROUNDS && self.busy_rounds < BUSY_ROUNDS {
                return true;
            }
            self.busy_rounds = 0;
            let now = Instant::now();
            let gap = u64::try_from((now - self.moved).as_nanos()).unwrap_or(u64::MAX);
            self.gap_ns = self.gap_ns.max(gap);
            self.moved = now;
            return true;
        }
        std::thread::yield_now();
        self.idle_rounds += 1;
        if self.idle_rounds < IDLE_ROUNDS {
            return true;
        }
        self.idle_rounds = 0;
        self.moved.elapsed().as_millis() < u128::from(self.stall_ms)
    }
}

/// Most buffers of one grouped receive that a device allows.
pub fn group_max(max_recvs: i32) -> usize {
    usize::try_from(max_recvs).unwrap_or(1).clamp(1, GROUP_MAX)
}
