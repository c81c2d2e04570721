//! The receiving side of a connection.

use r2ccl_core::limits::{GROUP_MAX, SEGMENTS_MAX, SEND_DEPTH, WINDOW};
use r2ccl_core::{
    Generation, PathId, ProtocolError, ReceiveBuffer, Receiver, ReceiverBody, ReceiverWrite,
    RegionId, Seq,
};
use r2ccl_fabric::{Completion, QueuePairConfig, SendWork, Traffic, WriteSource};

use super::batch::Batch;
use super::driver::{Driver, EXTRA_DEPTH, Role};
use super::error::{Error, Result};
use super::path::Path;
use super::ring::{PeerMemory, Slots};
use super::shared::News;
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
    driver: Driver<Receiver>,
    /// Receives that NCCL has not been told the end of, by the sequence of their first buffer.
    open: Box<[Option<OpenReceive>; WINDOW]>,
    open_count: usize,
    batch: Batch,
    in_call: bool,
}

impl Role for Receiver {
    type Memory = Slots;
    const QUEUE_PAIR: QueuePairConfig = QueuePairConfig {
        send_depth: SEND_DEPTH + EXTRA_DEPTH,
        receive_depth: RECEIVES_POSTED,
        traffic: Traffic::Control,
    };

    fn take_arrival(
        &mut self,
        path: PathId,
        generation: Generation,
        completion: &Completion,
    ) -> std::result::Result<(), ProtocolError> {
        self.handle_arrival(path, generation, completion.immediate, completion.byte_len)
            .map(drop)
    }

    /// Messages that came ahead of their credits. Behind a fence nothing lands any more
    /// (PROTOCOL R24).
    fn take_written(&mut self, path: &Path<Slots>) -> std::result::Result<bool, ProtocolError> {
        let mut is_any = false;
        if path.failure().is_some() {
            return Ok(false);
        }
        while let Some(slot) = self.eager_slot(path.id) {
            let head = path.memory.head(slot);
            if !self.handle_eager(path.id, path.generation, &head)? {
                break;
            }
            is_any = true;
        }
        Ok(is_any)
    }
}

#[derive(Clone, Copy)]
struct OpenReceive {
    first: Seq,
    count: usize,
    regions: [RegionId; GROUP_MAX],
}

impl ReceiveConnection {
    /// Connection whose primary path is being connected and has its receives.
    pub fn new(driver: Driver<Receiver>) -> Self {
        Self {
            driver,
            open: Box::new([None; WINDOW]),
            open_count: 0,
            batch: Batch::default(),
            in_call: false,
        }
    }

    /// Its driver, to break what no outsider can.
    #[cfg(test)]
    pub fn driver(&mut self) -> &mut Driver<Receiver> {
        &mut self.driver
    }

    fn core(&mut self) -> &mut Receiver {
        self.driver.end.half_mut()
    }

    /// Posts a receive of 1 to 8 buffers. `None`: the window is full; NCCL asks again.
    pub fn irecv(&mut self, buffers: &[ReceiveBuffer]) -> Result<Option<Seq>> {
        self.driver.shared.note_poll();
        let now = self.driver.time(self.open_count > 0);
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
        let first = self.core().post_recv(now, buffers);
        let first = first
            .map_err(|error| Error::Argument(format!("{}: {error}", self.driver.shared.label)))?;
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
        if !self.driver.end.half().is_done(open.first, open.count) && !self.drive() {
            return Ok(None);
        }
        if !self.driver.end.half().is_done(open.first, open.count) {
            return self.check().map(|()| None);
        }
        let mut bytes = [0_u64; GROUP_MAX];
        for (index, size) in bytes[..open.count].iter_mut().enumerate() {
            *size = u64::from(self.core().bytes(open.first.plus(index as u64)));
        }
        self.open[open.first.slot()] = None;
        self.open_count -= 1;
        let released = self.core().release(open.first, open.count);
        released
            .map_err(|error| Error::Internal(format!("{}: {error}", self.driver.shared.label)))?;
        if self.open_count == 0 {
            self.flush();
            if self.core().has_unsent() {
                // Completions that nobody has polled take the room of the last counter.
                self.drive();
            }
        }
        Ok(Some(Received {
            count: open.count,
            bytes,
        }))
    }

    /// False: nothing has come, and there was nothing else to look at.
    fn drive(&mut self) -> bool {
        self.driver.shared.note_poll();
        let core = self.driver.end.half();
        if core.has_unsent() && self.batch.is_due(core.spare_credits()) {
            self.flush();
        }
        if !self.poll_arrivals() {
            return false;
        }
        if self.open_count == 0 {
            // What had no room in the call that reported the last receive done.
            self.flush();
        }
        self.read_inbox();
        self.driver.attend();
        true
    }

    /// Messages delivered without a gap; the last word of a receiver that closes.
    pub fn delivered(&self) -> u64 {
        self.driver.end.half().delivered()
    }

    /// See [`Driver::poll`].
    fn poll_arrivals(&mut self) -> bool {
        let batch = &mut self.batch;
        let is_any = self.driver.poll(|completion| {
            batch.note_arrival(completion.byte_len);
        });
        if is_any {
            self.take_eagers();
        }
        is_any
    }

    /// Copies messages that came ahead of their credits where they belong (PROTOCOL R41).
    fn take_eagers(&mut self) {
        while let Some(copy) = self.core().poll_eager() {
            self.batch.note_arrival(copy.bytes);
            let Some(path) = self.driver.paths.get_mut(copy.path) else {
                let error = "an early message without its path";
                let label = &self.driver.shared.label;
                return self.driver.fate.on_protocol_error(label, error);
            };
            // SAFETY: the receive is open, so that its buffer is registered (`check_buffer`) and
            // mapped: a registration that ends stops the connection first.
            unsafe { path.memory.copy_out(&copy) };
        }
    }

    /// Posts credits and the counter. They wait for a later call, which NCCL owes as long as a
    /// receive is open, and so share a doorbell; with the last receive they go out at once
    /// (PROTOCOL R26), since NCCL may never call again.
    fn flush(&mut self) {
        self.post_writes();
        self.batch.clear();
        // A counter that finds no room is a backlog, too, once nobody owes us a call.
        let core = self.driver.end.half();
        let is_owed = self.open_count == 0 && core.has_unsent() && core.has_way();
        let has_backlog = self.driver.paths.has_backlog() || is_owed;
        self.driver.shared.note_backlog(has_backlog);
    }

    fn post_writes(&mut self) {
        let core = self.driver.end.half_mut();
        while let Some(write) = core.poll_transmit() {
            let path = self.driver.paths.find(write.path, write.generation);
            let Some((path, ring)) = path.and_then(|path| path.peer.map(|ring| (path, ring)))
            else {
                // Its queue pair has failed, and all is said again elsewhere (PROTOCOL R15).
                continue;
            };
            if !path.has_room() && !path.post() {
                let _ = core.return_transmit(&write);
                break;
            }
            if path.has_room() {
                path.push(work(&write, ring));
            }
        }
        for path in self.driver.paths.iter_mut() {
            path.post();
        }
    }

    fn read_inbox(&mut self) {
        let driver = &mut self.driver;
        for news in driver.shared.inbox.take() {
            match news {
                News::Path(frame) => driver.take_frame(&frame),
                News::Port(dev, change) => driver.take_port(dev, change),
                News::Mail { is_asking } => driver.send_mail(is_asking),
                News::Drain(news) => driver.take_drain(news),
                News::Goodbye(_) => driver.fate.on_goodbye(),
                News::LinkDown(reason) => driver.fate.on_link_down(reason),
                News::RegionKey(_) | News::Accepted(_) | News::Refused(..) => {}
            }
        }
    }

    fn check(&mut self) -> Result<()> {
        self.driver.fate.check(&self.driver.shared)
    }

    fn check_buffer(&self, buffer: &ReceiveBuffer) -> Result<()> {
        if buffer.capacity == 0 {
            return Ok(());
        }
        let region = self.driver.shared.regions.find(buffer.region);
        match region {
            Some(region) if region.contains(buffer.address, buffer.capacity) => Ok(()),
            _ => Err(Error::Argument(format!(
                "{}: receive of {} bytes at {:#x} is outside its registration {region:x?}; \
                 register the whole buffer first",
                self.driver.shared.label, buffer.capacity, buffer.address
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
        self.driver.look_at_all();
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
        self.driver.stop();
    }

    fn in_call(&mut self) -> &mut bool {
        &mut self.in_call
    }
}
