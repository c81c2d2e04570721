//! The target's half of a queue pair: which writes have landed, in which order they complete.

use std::collections::VecDeque;

use super::inflow::{Next, Sink};
use super::memory::Cache;
use super::outflow::Outflow;
use super::shared::Shared;
use super::wire::{FLAG_ACK_REQUEST, FLAG_IMMEDIATE, Header, Kind, LANE_WINDOW, Refusal, widen};
use crate::{Completion, Opcode, Status};

/// A write of which the header is here.
#[derive(Clone, Copy)]
struct Open {
    length: u32,
    immediate: Option<u32>,
    ack_request: bool,
    by_lanes: bool,
}

/// Writes that arrive at this queue pair.
pub(super) struct Arrivals {
    /// Number of the next write whose header is expected.
    expected: u64,
    /// Writes before this one have landed, all of them.
    landed: u64,
    /// Bytes of those.
    bytes: u64,
    /// The writes from `landed` on whose headers are here.
    open: VecDeque<Open>,
    /// The write whose payload is being received on the main socket.
    current: Option<Open>,
    /// Completions that the owner has not fetched.
    ready: VecDeque<Completion>,
    /// Posted receives that no header has claimed.
    unclaimed: u32,
    /// Posted receives that have not completed.
    posted: u32,
    /// The peer waits for an acknowledgement that has not been sent.
    pub(super) ack_due: bool,
    cache: Cache,
}

impl Arrivals {
    pub(super) fn new(receive_depth: u32) -> Self {
        Self {
            expected: 0,
            landed: 0,
            bytes: 0,
            open: VecDeque::with_capacity(LANE_WINDOW as usize),
            current: None,
            ready: VecDeque::with_capacity(receive_depth as usize),
            unclaimed: 0,
            posted: 0,
            ack_due: false,
            cache: Cache::default(),
        }
    }

    /// Writes that have landed: the acknowledgement that goes out.
    pub(super) fn landed(&self) -> u64 {
        self.landed
    }

    /// Bytes of writes that have landed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of the write that is being received.
    pub(super) fn expected(&self) -> u64 {
        self.expected
    }

    /// Receives that have not completed.
    pub(super) fn posted(&self) -> u32 {
        self.posted
    }

    pub(super) fn post(&mut self, count: u32) {
        self.posted += count;
        self.unclaimed += count;
    }

    /// Takes back all receives that have not completed, and returns their number.
    pub(super) fn flush(&mut self) -> u32 {
        self.unclaimed = 0;
        std::mem::take(&mut self.posted)
    }

    /// Writes completions to the front of `completions`.
    pub(super) fn report(&mut self, completions: &mut [Completion]) -> usize {
        let count = self.ready.len().min(completions.len());
        for (to, from) in completions.iter_mut().zip(self.ready.drain(..count)) {
            *to = from;
        }
        count
    }

    /// Completes, in order, the writes of which every byte is in place.
    pub(super) fn settle(&mut self, shared: &Shared) -> Result<(), Refusal> {
        while let Some(&front) = self.open.front() {
            let sequence = self.landed as u32;
            if front.by_lanes {
                let bytes = shared.landed(sequence);
                if bytes < u64::from(front.length) {
                    return Ok(());
                }
                if bytes > u64::from(front.length) {
                    return Err(Refusal::Invalid);
                }
            }
            self.open.pop_front();
            self.complete(front, shared);
        }
        Ok(())
    }

    fn complete(&mut self, write: Open, shared: &Shared) {
        shared.close_write(self.landed as u32);
        self.landed += 1;
        self.bytes += u64::from(write.length);
        self.ack_due |= write.ack_request;
        if let Some(immediate) = write.immediate {
            self.posted -= 1;
            self.ready.push_back(Completion {
                id: 0,
                status: Status::Success,
                opcode: Opcode::ReceiveImmediate,
                byte_len: write.length,
                immediate,
            });
        }
    }

    fn begin(&mut self, header: &Header, shared: &Shared) -> Result<Next, Refusal> {
        let by_lanes = header.kind == Kind::LaneWrite;
        if header.sequence != self.expected as u32 || (by_lanes && !shared.has_lanes()) {
            return Err(Refusal::Invalid);
        }
        let write = Open {
            length: header.length,
            immediate: header.has(FLAG_IMMEDIATE).then_some(header.immediate),
            ack_request: header.has(FLAG_ACK_REQUEST),
            by_lanes,
        };
        let no_receive = write.immediate.is_some() && self.unclaimed == 0;
        if no_receive || self.open.len() >= LANE_WINDOW as usize {
            return Ok(Next::Hold);
        }
        let region = if header.length == 0 {
            None
        } else {
            let bytes = u64::from(header.length);
            let memory = shared.device.memory();
            let found = self
                .cache
                .find(memory, header.key, header.address, bytes, true);
            Some(found.ok_or(Refusal::Access)?)
        };
        if write.immediate.is_some() {
            self.unclaimed -= 1;
        }
        match region {
            Some(region) if !write.by_lanes => {
                let region = region.clone();
                self.current = Some(write);
                Ok(Next::Payload(region))
            }
            _ => {
                self.end(write, shared)?;
                Ok(Next::Done)
            }
        }
    }

    /// The main socket has nothing more for this write.
    fn end(&mut self, write: Open, shared: &Shared) -> Result<(), Refusal> {
        self.expected += 1;
        if write.by_lanes || !self.open.is_empty() {
            self.open.push_back(write);
            return self.settle(shared);
        }
        self.complete(write, shared);
        Ok(())
    }
}

/// What frames on the main socket mean.
pub(super) struct MainSink<'a> {
    pub(super) arrivals: &'a mut Arrivals,
    pub(super) outflow: &'a mut Outflow,
    pub(super) shared: &'a Shared,
    /// The peer refuses this write of ours, for this reason.
    pub(super) refused: Option<(u64, Status)>,
}

impl Sink for MainSink<'_> {
    fn header(&mut self, header: &Header) -> Result<Next, Refusal> {
        self.outflow.acknowledge(header.acknowledged)?;
        match header.kind {
            Kind::Write | Kind::LaneWrite => self.arrivals.begin(header, self.shared),
            Kind::Control => {
                self.arrivals.ack_due |= header.has(FLAG_ACK_REQUEST);
                Ok(Next::Done)
            }
            Kind::Refused => {
                let status = match header.immediate {
                    1 => Status::RemoteAccess,
                    _ => Status::RemoteInvalidRequest,
                };
                let sequence = widen(self.outflow.acknowledged(), header.sequence);
                self.refused = Some((sequence, status));
                Ok(Next::Hold)
            }
            Kind::Chunk => Err(Refusal::Invalid),
        }
    }

    fn landed(&mut self) -> Result<(), Refusal> {
        match self.arrivals.current.take() {
            Some(write) => self.arrivals.end(write, self.shared),
            None => Err(Refusal::Invalid),
        }
    }
}
