//! The receiving side of a connection.

use std::sync::Arc;

use r2ccl_core::limits::{GROUP_MAX, SEGMENTS_MAX, WINDOW};
use r2ccl_core::{
    ProtocolError, ReceiveBuffer, Receiver, ReceiverBody, ReceiverWrite, RegionId, Seq, Time,
    WorkId,
};
use r2ccl_fabric::{SendWork, WriteSource};

use super::batch::Batch;
use super::error::{Error, Result};
use super::path::{Path, is_arrival};
use super::ring::{PeerMemory, Slots};
use super::shared::{Fate, News, Shared};
use super::steward::Driven;

/// Receives that a queue pair holds: enough for a full window of ordinary messages and a few of
/// the largest; each arrival is made good in the poll that sees it.
pub const RECEIVES_POSTED: u32 = (2 * WINDOW + 8 * SEGMENTS_MAX) as u32;

/// A finished receive.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Buffers in the group.
    pub count: usize,
    /// Bytes that arrived, one entry a buffer.
    pub bytes: [u64; GROUP_MAX],
}

/// Owner's part of a receiving connection.
pub struct ReceiveConnection {
    shared: Arc<Shared>,
    core: Receiver,
    path: Path<Slots>,
    ring: PeerMemory,
    /// Receives that NCCL has not been told the end of, by the sequence of their first buffer.
    open: Box<[Option<OpenReceive>; WINDOW]>,
    fate: Fate,
    open_count: usize,
    batch: Batch,
    in_call: bool,
}

#[derive(Clone, Copy)]
struct OpenReceive {
    first: Seq,
    count: usize,
    regions: [RegionId; GROUP_MAX],
}

impl ReceiveConnection {
    /// Connection over one path whose queue pair is being connected and has
    /// [`RECEIVES_POSTED`] receives.
    pub fn new(shared: Arc<Shared>, core: Receiver, path: Path<Slots>, ring: PeerMemory) -> Self {
        Self {
            shared,
            core,
            path,
            ring,
            open: Box::new([None; WINDOW]),
            fate: Fate::default(),
            open_count: 0,
            batch: Batch::default(),
            in_call: false,
        }
    }

    /// Posts a receive of 1 to 8 buffers. `None`: the window is full; NCCL asks again.
    pub fn irecv(&mut self, now: Time, buffers: &[ReceiveBuffer]) -> Result<Option<Seq>> {
        self.shared.note_poll();
        if self.open_count == 0 {
            // After a pause the message may be here already: then its credit is in no hurry.
            self.poll_arrivals();
        }
        self.read_inbox();
        self.check()?;
        let mut regions = [RegionId(0); GROUP_MAX];
        for (buffer, region) in buffers.iter().zip(&mut regions) {
            self.check_buffer(buffer)?;
            self.batch.note_receive(buffer.capacity);
            *region = buffer.region;
        }
        let first = self
            .core
            .post_recv(now, buffers)
            .map_err(|error| Error::Argument(format!("{}: {error}", self.shared.label)))?;
        if let Some(first) = first {
            self.open[first.slot()] = Some(OpenReceive {
                first,
                count: buffers.len(),
                regions,
            });
            self.open_count += 1;
            self.take_eagers();
        }
        Ok(first)
    }

    /// Whether the receive is done, and its sizes. Progresses the whole connection.
    pub fn test(&mut self, seq_low: u64) -> Result<Option<Received>> {
        let open = self.open_receive(seq_low)?;
        if !self.core.is_done(open.first, open.count) {
            self.drive();
        }
        if !self.core.is_done(open.first, open.count) {
            return self.check().map(|()| None);
        }
        let mut bytes = [0_u64; GROUP_MAX];
        for (index, size) in bytes[..open.count].iter_mut().enumerate() {
            *size = u64::from(self.core.bytes(open.first.plus(index as u64)));
        }
        self.open[open.first.slot()] = None;
        self.open_count -= 1;
        self.core
            .release(open.first, open.count)
            .map_err(|error| Error::Internal(format!("{}: {error}", self.shared.label)))?;
        if self.open_count == 0 {
            self.flush();
            if self.core.has_unsent() {
                // Completions that nobody has polled take the room of the last counter.
                self.drive();
            }
        }
        Ok(Some(Received {
            count: open.count,
            bytes,
        }))
    }

    fn drive(&mut self) {
        self.shared.note_poll();
        let is_starved = self.core.is_sender_starved();
        if self.core.has_unsent() && self.batch.is_due(is_starved) {
            self.flush();
        }
        self.poll_arrivals();
        if self.open_count == 0 {
            // What had no room in the call that reported the last receive done.
            self.flush();
        }
        self.read_inbox();
        if let Some(status) = self.path.failure() {
            self.fate.on_path_failure(status);
        }
    }

    /// Messages delivered without a gap; the last word of a receiver that closes.
    pub fn delivered(&self) -> u64 {
        self.core.delivered()
    }

    fn poll_arrivals(&mut self) {
        let (path, generation) = (self.path.id, self.path.generation);
        let mut arrivals = 0;
        let mut broken = None;
        let (core, batch) = (&mut self.core, &mut self.batch);
        self.path.poll(|completion| {
            if !is_arrival(completion) {
                if let Some(work) = WorkId::from_raw(completion.id) {
                    core.handle_completion(work, true);
                }
                return;
            }
            arrivals += 1;
            let (immediate, bytes) = (completion.immediate, completion.byte_len);
            batch.note_arrival(bytes);
            if let Err(error) = core.handle_arrival(path, generation, immediate, bytes) {
                broken.get_or_insert(error);
            }
        });
        if arrivals > 0 {
            self.path.post_receives(arrivals);
        }
        match broken {
            Some(error) => self.on_protocol_error(error),
            None => self.take_eagers(),
        }
    }

    /// Looks for messages that came ahead of their credits, and copies them where they belong
    /// (PROTOCOL R41). Behind a fence nothing lands any more (PROTOCOL R24).
    fn take_eagers(&mut self) {
        if self.path.failure().is_some() {
            return;
        }
        if let Err(error) = self.read_slots() {
            return self.on_protocol_error(error);
        }
        while let Some(copy) = self.core.poll_eager() {
            self.batch.note_arrival(copy.bytes);
            // SAFETY: the receive is open, so that its buffer is registered (`check_buffer`) and
            // mapped: a registration that ends stops the connection first.
            unsafe { self.path.memory.copy_out(&copy) };
        }
    }

    fn read_slots(&mut self) -> std::result::Result<(), ProtocolError> {
        let path = &self.path;
        while let Some(slot) = self.core.eager_slot(path.id) {
            let head = path.memory.head(slot);
            if !self.core.handle_eager(path.id, path.generation, &head)? {
                break;
            }
        }
        Ok(())
    }

    fn on_protocol_error(&mut self, error: ProtocolError) {
        self.fate.on_protocol_error(&self.shared.label, error);
        self.path.fence();
    }

    /// Posts credits and the counter. They wait for a later call, which NCCL owes as long as a
    /// receive is open, and so share a doorbell; with the last receive they go out at once
    /// (PROTOCOL R26), since NCCL may never call again.
    fn flush(&mut self) {
        let (core, ring) = (&mut self.core, self.ring);
        self.path
            .fill(|| core.poll_transmit().map(|write| work(&write, ring)));
        self.path.post();
        self.batch.clear();
        // A counter that finds no room is a backlog, too, once nobody owes us a call.
        let is_owed = self.open_count == 0 && self.core.has_unsent();
        let has_failed = self.path.failure().is_some();
        self.shared
            .note_backlog(self.path.has_backlog() || is_owed && !has_failed);
    }

    fn read_inbox(&mut self) {
        for news in self.shared.inbox.take() {
            match news {
                News::Goodbye(_) => self.fate.on_goodbye(),
                News::LinkDown(reason) => self.fate.on_link_down(reason),
                News::RegionKey(..) | News::Accepted(_) | News::Refused(_) => {}
            }
        }
    }

    fn check(&mut self) -> Result<()> {
        self.fate.check(&self.shared)
    }

    fn check_buffer(&self, buffer: &ReceiveBuffer) -> Result<()> {
        if buffer.capacity == 0 {
            return Ok(());
        }
        let region = self.shared.regions.find(buffer.region);
        match region {
            Some(region) if region.contains(buffer.address, buffer.capacity) => Ok(()),
            _ => Err(Error::Argument(format!(
                "{}: receive of {} bytes at {:#x} is outside its registration {region:x?}; \
                 register the whole buffer first",
                self.shared.label, buffer.capacity, buffer.address
            ))),
        }
    }

    fn open_receive(&self, seq_low: u64) -> Result<OpenReceive> {
        self.open[seq_low as usize % WINDOW]
            .filter(|open| open.first.0 & super::net::SEQ_MASK == seq_low)
            .ok_or_else(|| Error::Argument("this receive request is not open any more".into()))
    }
}

fn work(write: &ReceiverWrite, ring: PeerMemory) -> SendWork {
    let (bytes, len) = write.payload();
    SendWork {
        id: write.work.raw(),
        source: WriteSource::Inline {
            bytes,
            len: len as u8,
        },
        remote_address: match write.body {
            ReceiverBody::Credits { slot, .. } => ring.line(slot),
            ReceiverBody::Counter { .. } => ring.counter(),
        },
        rkey: ring.rkey,
        immediate: None,
        signaled: write.signaled,
    }
}

impl Driven for ReceiveConnection {
    fn progress(&mut self) {
        self.drive();
        self.flush();
    }

    fn uses(&self, region: RegionId) -> bool {
        self.open
            .iter()
            .flatten()
            .any(|open| open.regions[..open.count].contains(&region))
    }

    fn fence(&mut self) {
        self.path.fence();
    }

    fn in_call(&mut self) -> &mut bool {
        &mut self.in_call
    }
}
