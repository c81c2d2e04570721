//! The sending side of a connection.

use std::sync::Arc;

use r2ccl_core::limits::{EAGER_SLOTS, WINDOW};
use r2ccl_core::{ProtocolError, RegionId, SegmentWrite, SendStatus, Sender, Seq, Time, WorkId};
use r2ccl_fabric::{SendWork, WriteSource};

use super::error::{Error, Result};
use super::memory::{PeerKeys, Region};
use super::path::Path;
use super::ring::{PeerMemory, Ring};
use super::shared::{Fate, News, Shared};
use super::steward::Driven;

/// Tests right after a send that do not poll: nobody can have answered yet. On two H200s a test
/// comes about every microsecond, and an answer takes several. Behind them every test polls, since
/// NCCL begins its next operation on a connection when the sends of the last one are done.
const UNANSWERED_TESTS: u32 = 3;

/// Owner's part of a sending connection.
pub struct SendConnection {
    shared: Arc<Shared>,
    core: Sender,
    path: Path<Ring>,
    /// Where messages go that are ahead of their credits.
    slots: PeerMemory,
    keys: PeerKeys,
    /// Sends that NCCL has not been told the end of, by sequence.
    open: Box<[Option<OpenSend>; WINDOW]>,
    /// Those that went ahead of their credits, by slot.
    eager: [Option<OpenEager>; EAGER_SLOTS],
    eager_count: u64,
    /// Tests since the last send, and since the last poll.
    tests_since_send: u32,
    tests_since_poll: u32,
    fate: Fate,
    in_call: bool,
}

#[derive(Clone, Copy)]
struct OpenSend {
    seq: Seq,
    local: Region,
    /// Where it goes; `None` until the key is here.
    rkey: Option<u32>,
}

#[derive(Clone, Copy)]
struct OpenEager {
    number: u64,
    local: Region,
}

/// Name of a send.
#[derive(Clone, Copy, Debug)]
pub enum Started {
    /// An ordinary one: its message.
    Message(Seq),
    /// One ahead of its credit: these are counted apart.
    Eager(u64),
}

impl SendConnection {
    /// Connection over one path whose queue pair is being connected.
    pub fn new(shared: Arc<Shared>, core: Sender, path: Path<Ring>, slots: PeerMemory) -> Self {
        Self {
            shared,
            core,
            path,
            slots,
            keys: PeerKeys::default(),
            open: Box::new([None; WINDOW]),
            eager: [None; EAGER_SLOTS],
            eager_count: 0,
            tests_since_send: 0,
            tests_since_poll: 0,
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
    ) -> Result<Option<Started>> {
        let local = self.local_buffer(region, address, bytes)?;
        let offset = address.wrapping_sub(local.address);
        self.tests_since_send = 0;
        if self.core.matching(tag).is_none() {
            let started = self.isend_eager(now, local, offset, bytes, tag)?;
            if started.is_some() {
                return Ok(started);
            }
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
        let submitted = self.core.submit_send(now, (local.id, offset), bytes, tag);
        let Some(seq) = submitted.map_err(|error| self.defect(error))? else {
            return Ok(None);
        };
        let rkey = Some(rkey);
        self.open[seq.slot()] = Some(OpenSend { seq, local, rkey });
        self.report_truncation();
        self.transmit();
        Ok(Some(Started::Message(seq)))
    }

    /// A small message need not wait for its credit (PROTOCOL R40): a copy goes at once.
    fn isend_eager(
        &mut self,
        now: Time,
        local: Region,
        offset: u64,
        bytes: u64,
        tag: i32,
    ) -> Result<Option<Started>> {
        self.read_inbox();
        // What is wrong with the connection is said when the receiver's last word has been read.
        if !self.path.has_room() || !self.fate.is_well(&self.shared) {
            return Ok(None);
        }
        let submitted = self.core.submit_eager(now, (local.id, offset), bytes, tag);
        let Some(write) = submitted.map_err(|error| self.defect(error))? else {
            return Ok(None);
        };
        let payload = local.address.wrapping_add(offset) as *const u8;
        // SAFETY: the caller's buffer is registered (`local_buffer`) and mapped. A slot that the
        // core gives again was released, when its message was delivered.
        let (source, remote_address) =
            unsafe { self.path.memory.stage(&write, payload, self.slots) };
        self.path.push(SendWork {
            id: write.work.raw(),
            source,
            remote_address,
            rkey: self.slots.rkey,
            immediate: None,
            signaled: write.signaled,
        });
        self.eager_count += 1;
        let number = self.eager_count;
        self.eager[write.slot] = Some(OpenEager { number, local });
        self.transmit();
        Ok(Some(Started::Eager(number)))
    }

    fn report_truncation(&mut self) {
        if let Some(cut) = self.core.take_truncation() {
            tracing::warn!(
                "{}: a send of {} bytes met a receive of {}: cut to that, as NCCL's own \
                 transport does; the two sides disagree about the message ({} others were cut, \
                 too)",
                self.shared.label,
                cut.asked,
                cut.given,
                cut.others
            );
        }
    }

    /// Whether the send is done, and its size. Progresses the whole connection.
    pub fn test(&mut self, seq_low: u64) -> Result<Option<u64>> {
        let seq = self.open_seq(seq_low)?;
        let delivered = self.delivered(|core| core.status(seq))?;
        if delivered.is_some() {
            self.open[seq.slot()] = None;
            self.core.release(seq).map_err(|error| self.defect(error))?;
        }
        Ok(delivered)
    }

    /// Like [`SendConnection::test`], for a send that went ahead of its credit.
    pub fn test_eager(&mut self, number_low: u64) -> Result<Option<u64>> {
        let is_asked = |open: &OpenEager| open.number & super::net::SEQ_MASK == number_low;
        let found = self
            .eager
            .iter()
            .position(|open| open.as_ref().is_some_and(is_asked));
        let slot = found.ok_or_else(not_open)?;
        let delivered = self.delivered(|core| core.eager_status(slot))?;
        if delivered.is_some() {
            if let Some(seq) = self.core.eager_seq(slot) {
                self.open[seq.slot()] = None;
            }
            self.eager[slot] = None;
            let released = self.core.release_eager(slot);
            released.map_err(|error| self.defect(error))?;
        }
        Ok(delivered)
    }

    /// Bytes of an open send that is delivered. Progresses the connection while it is not.
    fn delivered(&mut self, status: impl Fn(&Sender) -> SendStatus) -> Result<Option<u64>> {
        if status(&self.core) == SendStatus::Pending {
            if !self.is_turn() {
                self.shared.note_poll();
                return Ok(None);
            }
            self.drive();
        }
        match status(&self.core) {
            SendStatus::Delivered { bytes } => Ok(Some(u64::from(bytes))),
            SendStatus::Pending => self.check().map(|()| None),
            SendStatus::Unknown => Err(self.defect("an open send is unknown to the core")),
        }
    }

    /// Whether a test polls. That costs a software NIC a system call, during which data of another
    /// connection waits.
    fn is_turn(&mut self) -> bool {
        self.tests_since_send += 1;
        self.tests_since_poll += 1;
        self.tests_since_send.max(self.tests_since_poll) > UNANSWERED_TESTS
            || self.path.has_backlog()
    }

    fn drive(&mut self) {
        self.tests_since_poll = 0;
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
            .ok_or_else(not_open)
    }

    fn read_ring(&mut self) {
        if let Err(error) = self.take_ring() {
            self.fate.on_protocol_error(&self.shared.label, error);
            self.path.fence();
        }
    }

    /// Reads the counter before the credits and takes it after them: whatever it counts, its
    /// credit was written before.
    fn take_ring(&mut self) -> std::result::Result<(), ProtocolError> {
        let (path, generation) = (self.path.id, self.path.generation);
        let ring = &self.path.memory;
        let counter = ring.counter();
        while let Some((slot, _)) = self.core.expected_credit() {
            if !self
                .core
                .handle_credit(path, generation, &ring.line(slot))?
            {
                break;
            }
        }
        self.adopt_eagers();
        self.core.handle_counter(path, generation, counter)
    }

    /// Eager sends become ordinary messages, which may have to be sent again.
    fn adopt_eagers(&mut self) {
        for slot in 0..EAGER_SLOTS {
            let (Some(open), Some(seq)) = (self.eager[slot], self.core.eager_seq(slot)) else {
                continue;
            };
            let entry = &mut self.open[seq.slot()];
            if entry.is_none_or(|entry| entry.seq != seq) {
                *entry = Some(OpenSend {
                    seq,
                    local: open.local,
                    rkey: None,
                });
                self.report_truncation();
            }
        }
    }

    fn read_inbox(&mut self) {
        for news in self.shared.inbox.take() {
            match news {
                News::RegionKey(region, rkey) => self.keys.insert(region, rkey),
                News::Goodbye(delivered) => {
                    if self.core.handle_goodbye(delivered).is_err() {
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
        let (core, open, keys) = (&mut self.core, &self.open, &self.keys);
        let path = self.path.id;
        self.path.fill(|| {
            let segment = core.poll_transmit(path)?;
            let open = open[segment.seq.slot()].filter(|open| open.seq == segment.seq);
            let target = open.and_then(|open| {
                let rkey = open.rkey.or_else(|| keys.find(segment.remote_region))?;
                Some((open.local, rkey))
            });
            if target.is_none() {
                // The key travels on the control connection and may be behind the credit.
                let _ = core.return_transmit(&segment);
            }
            target.map(|(local, rkey)| work(&segment, local, rkey))
        });
        self.path.post();
        self.shared.note_backlog(self.path.has_backlog());
    }
}

fn work(segment: &SegmentWrite, local: Region, rkey: u32) -> SendWork {
    SendWork {
        id: segment.work.raw(),
        source: WriteSource::Registered {
            address: local.address.wrapping_add(segment.local_offset),
            len: segment.bytes,
            lkey: local.registration.lkey,
        },
        remote_address: segment.remote_address,
        rkey,
        immediate: Some(segment.immediate),
        signaled: segment.signaled,
    }
}

fn not_open() -> Error {
    Error::Argument("this send request is not open any more".into())
}

impl Driven for SendConnection {
    fn progress(&mut self) {
        self.drive();
    }

    fn uses(&self, region: RegionId) -> bool {
        let ordinary = self.open.iter().flatten().map(|open| open.local);
        let eager = self.eager.iter().flatten().map(|open| open.local);
        ordinary.chain(eager).any(|local| local.id == region)
    }

    fn fence(&mut self) {
        self.path.fence();
    }

    fn in_call(&mut self) -> &mut bool {
        &mut self.in_call
    }
}
