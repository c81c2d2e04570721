//! The sending side of a connection.

use std::sync::Arc;

use r2ccl_core::limits::WINDOW;
use r2ccl_core::{RegionId, SegmentWrite, SendStatus, Sender, Seq, Time, WorkId};
use r2ccl_fabric::{SendWork, WriteSource};

use super::error::{Error, Result};
use super::memory::{PeerKeys, Region};
use super::path::Path;
use super::shared::{Fate, News, Shared};
use super::steward::Driven;

/// Owner's part of a sending connection.
pub struct SendConnection {
    shared: Arc<Shared>,
    core: Sender,
    path: Path,
    keys: PeerKeys,
    /// Sends that NCCL has not been told the end of, by sequence.
    open: Box<[Option<OpenSend>; WINDOW]>,
    fate: Fate,
    in_call: bool,
}

#[derive(Clone, Copy)]
struct OpenSend {
    seq: Seq,
    local: Region,
    rkey: u32,
}

impl SendConnection {
    /// Connection over one path whose queue pair is being connected.
    pub fn new(shared: Arc<Shared>, core: Sender, path: Path) -> Self {
        Self {
            shared,
            core,
            path,
            keys: PeerKeys::default(),
            open: Box::new([None; WINDOW]),
            fate: Fate::default(),
            in_call: false,
        }
    }

    /// Starts a send. `None`: no credit yet, or the window is full; NCCL asks again.
    pub fn isend(
        &mut self,
        now: Time,
        region: RegionId,
        address: u64,
        bytes: u64,
        tag: i32,
    ) -> Result<Option<Seq>> {
        let local = self.local_buffer(region, address, bytes)?;
        if self.core.matching(tag).is_none() {
            self.drive();
        }
        self.check()?;
        let Some(matched) = self.core.matching(tag) else {
            return Ok(None);
        };
        let Some(rkey) = self.keys.find(matched.region) else {
            // The key travels on the control connection and may be behind the credit.
            self.read_inbox();
            return Ok(None);
        };
        let offset = address.wrapping_sub(local.address);
        let submitted = self.core.submit_send(now, (local.id, offset), bytes, tag);
        let Some(seq) = submitted.map_err(|error| self.defect(error))? else {
            return Ok(None);
        };
        self.open[seq.slot()] = Some(OpenSend { seq, local, rkey });
        if let Some(cut) = self.core.take_truncation() {
            tracing::warn!(
                "{}: a send of {} bytes met a receive of {}: cut to that, as NCCL's own \
                 transport does; the two sides disagree about the message",
                self.shared.label,
                cut.asked,
                cut.given
            );
        }
        self.transmit();
        Ok(Some(seq))
    }

    /// Whether the send is done, and its size. Progresses the whole connection.
    pub fn test(&mut self, seq_low: u64) -> Result<Option<u64>> {
        let seq = self.open_seq(seq_low)?;
        if self.core.status(seq) == SendStatus::Pending {
            self.drive();
        }
        match self.core.status(seq) {
            SendStatus::Delivered { bytes } => {
                self.open[seq.slot()] = None;
                self.core.release(seq).map_err(|error| self.defect(error))?;
                Ok(Some(u64::from(bytes)))
            }
            SendStatus::Pending => self.check().map(|()| None),
            SendStatus::Unknown => Err(self.defect("an open send is unknown to the core")),
        }
    }

    fn drive(&mut self) {
        self.shared.note_poll();
        let core = &mut self.core;
        self.path.poll(|completion| {
            if let Some(work) = WorkId::from_raw(completion.id) {
                core.handle_completion(work, true);
            }
        });
        self.read_ring();
        self.read_inbox();
        self.transmit();
        if let Some(status) = self.path.failure() {
            self.fate.on_path_failure(status);
        }
    }

    /// Error that ends the connection, if there is one. Whoever asks has read the receiver's last
    /// word before (PROTOCOL R27): what it has confirmed is done, whatever has happened since.
    fn check(&mut self) -> Result<()> {
        self.fate.check(&self.shared)
    }

    /// Sends accepted so far.
    pub fn submitted(&self) -> u64 {
        self.core.snapshot().posted.0
    }

    fn defect(&self, error: impl std::fmt::Display) -> Error {
        Error::Internal(format!("{}: {error}", self.shared.label))
    }

    fn local_buffer(&self, region: RegionId, address: u64, bytes: u64) -> Result<Region> {
        if bytes == 0 {
            return Ok(Region::EMPTY);
        }
        let found = self.shared.regions.find(region);
        found
            .filter(|found| found.contains(address, bytes))
            .ok_or_else(|| {
                Error::Argument(format!(
                    "{}: send of {bytes} bytes at {address:#x} is outside its registration \
                 {found:x?}; register the whole buffer first",
                    self.shared.label
                ))
            })
    }

    fn open_seq(&self, seq_low: u64) -> Result<Seq> {
        let slot = seq_low as usize % WINDOW;
        self.open[slot]
            .map(|open| open.seq)
            .filter(|seq| seq.0 & super::net::SEQ_MASK == seq_low)
            .ok_or_else(|| Error::Argument("this send request is not open any more".into()))
    }

    fn read_ring(&mut self) {
        let Some(ring) = &self.path.ring else { return };
        let (path, generation) = (self.path.id, self.path.generation);
        let counter = self.core.handle_counter(path, generation, ring.counter());
        let mut outcome = counter.map(|_| false);
        while let (Ok(_), Some((slot, _))) = (&outcome, self.core.expected_credit()) {
            outcome = self.core.handle_credit(path, generation, &ring.line(slot));
            if matches!(outcome, Ok(false)) {
                break;
            }
        }
        if let Err(error) = outcome {
            self.fate.on_protocol_error(&self.shared.label, error);
            self.path.fence();
        }
    }

    fn read_inbox(&mut self) {
        for news in self.shared.inbox.take() {
            match news {
                News::RegionKey(region, rkey) => self.keys.insert(region, rkey),
                News::Goodbye(delivered) => {
                    let (path, generation) = (self.path.id, self.path.generation);
                    if self
                        .core
                        .handle_counter(path, generation, delivered)
                        .is_err()
                    {
                        tracing::warn!("{}: goodbye with a wrong count", self.shared.label);
                    }
                    self.fate.on_goodbye();
                }
                News::LinkDown(reason) => self.fate.on_link_down(reason),
                News::Accepted(_) | News::Refused(_) => {}
            }
        }
    }

    fn transmit(&mut self) {
        loop {
            while self.path.has_room() {
                let Some(segment) = self.core.poll_transmit(self.path.id) else {
                    break;
                };
                if let Some(work) = self.work(&segment) {
                    self.path.push(work);
                }
            }
            let was_full = self.path.is_full();
            if !self.path.post() || !was_full {
                break;
            }
        }
        self.shared.note_backlog(self.path.has_backlog());
    }

    fn work(&self, segment: &SegmentWrite) -> Option<SendWork> {
        let open = self.open[segment.seq.slot()].filter(|open| open.seq == segment.seq)?;
        Some(SendWork {
            id: segment.work.raw(),
            source: WriteSource::Registered {
                address: open.local.address.wrapping_add(segment.local_offset),
                len: segment.bytes,
                lkey: open.local.registration.lkey,
            },
            remote_address: segment.remote_address,
            rkey: open.rkey,
            immediate: Some(segment.immediate),
            signaled: segment.signaled,
        })
    }
}

impl Driven for SendConnection {
    fn progress(&mut self) {
        self.drive();
    }

    fn uses(&self, region: RegionId) -> bool {
        self.open
            .iter()
            .flatten()
            .any(|open| open.local.id == region)
    }

    fn fence(&mut self) {
        self.path.fence();
    }

    fn in_call(&mut self) -> &mut bool {
        &mut self.in_call
    }
}
