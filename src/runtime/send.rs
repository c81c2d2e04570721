//! The sending side of a connection.

use r2ccl_core::limits::{EAGER_BYTES_MAX, EAGER_SLOTS, SEND_DEPTH, WINDOW};
use r2ccl_core::{
    EagerWrite, Generation, PathId, ProtocolError, RegionId, SegmentWrite, SendStatus, Sender, Seq,
    Time,
};
use r2ccl_fabric::{Completion, QueuePairConfig, Registration, SendWork, Traffic, WriteSource};

use super::driver::{Driver, EXTRA_DEPTH, Role};
use super::error::{Error, Result};
use super::memory::{PeerKeys, Region};
use super::path::Path;
use super::ring::Ring;
use super::shared::News;
use super::starvation::Starvation;
use super::steward::Driven;

/// Tests right after a send that do not poll: nobody can have answered yet. On two H200s a test
/// comes about every microsecond, and an answer takes several. Behind them every test polls, since
/// NCCL begins its next operation on a connection when the sends of the last one are done.
const UNANSWERED_TESTS: u32 = 3;

/// Owner's part of a sending connection.
pub struct SendConnection {
    driver: Driver<Sender>,
    keys: PeerKeys,
    /// Sends that NCCL has not been told the end of, by sequence.
    open: Box<[Option<OpenSend>; WINDOW]>,
    /// Those that went ahead of their credits, by slot.
    eager: [Option<OpenEager>; EAGER_SLOTS],
    eager_count: u64,
    /// Tests since the last send, and since the last poll.
    tests_since_send: u32,
    tests_since_poll: u32,
    starvation: Starvation,
    in_call: bool,
}

#[derive(Clone, Copy)]
struct OpenSend {
    seq: Seq,
    local: Region,
}

#[derive(Clone, Copy)]
struct OpenEager {
    number: u64,
    local: Region,
}

impl Role for Sender {
    type Memory = Ring;
    const QUEUE_PAIR: QueuePairConfig = QueuePairConfig {
        send_depth: SEND_DEPTH + EXTRA_DEPTH,
        receive_depth: 0,
        traffic: Traffic::Data,
    };

    /// Nobody writes to a sender with immediate.
    fn take_arrival(
        &mut self,
        _: PathId,
        _: Generation,
        _: &Completion,
    ) -> std::result::Result<(), ProtocolError> {
        Ok(())
    }

    /// Credits and the counter. Reads the counter before the credits and takes it after them:
    /// whatever it counts, its credit was written before.
    fn take_written(&mut self, path: &Path<Ring>) -> std::result::Result<bool, ProtocolError> {
        let (id, generation) = (path.id, path.generation);
        let ring = &path.memory;
        let before = self.delivered();
        let counter = ring.counter();
        let mut is_any = false;
        while self.handle_credit(id, generation, &ring.line(self.expected_credit().0))? {
            is_any = true;
        }
        self.handle_counter(id, generation, counter)?;
        Ok(is_any || self.delivered() != before)
    }
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
    /// Connection whose primary path is being connected.
    pub fn new(driver: Driver<Sender>) -> Self {
        Self {
            driver,
            keys: PeerKeys::default(),
            open: Box::new([None; WINDOW]),
            eager: [None; EAGER_SLOTS],
            eager_count: 0,
            tests_since_send: 0,
            tests_since_poll: 0,
            starvation: Starvation::default(),
            in_call: false,
        }
    }

    /// Starts a send. `None`: no credit yet, or the window is full; NCCL asks again.
    pub fn isend(
        &mut self,
        region: RegionId,
        address: u64,
        bytes: u64,
        tag: i32,
    ) -> Result<Option<Started>> {
        let is_called = self.core().is_busy();
        let now = self.driver.time(is_called);
        let local = self.local_buffer(region, address, bytes)?;
        let offset = address.wrapping_sub(local.address);
        self.tests_since_send = 0;
        if self.core().matching(tag).is_none() {
            if bytes <= EAGER_BYTES_MAX as u64 {
                let started = self.isend_eager(now, local, offset, bytes, tag)?;
                if started.is_some() {
                    return Ok(started);
                }
            }
            self.starvation.note_refusal(now);
            if !self.drive() {
                return Ok(None);
            }
        }
        self.check()?;
        let submitted = self.core().submit_send(now, (local.id, offset), bytes, tag);
        let Some(seq) = submitted.map_err(|error| self.defect(error))? else {
            return Ok(None);
        };
        self.starvation.end();
        self.open[seq.slot()] = Some(OpenSend { seq, local });
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
        if !self.driver.fate.is_well(&self.driver.shared) {
            return Ok(None);
        }
        let submitted = self
            .core()
            .submit_eager(now, (local.id, offset), bytes, tag);
        let Some(write) = submitted.map_err(|error| self.defect(error))? else {
            return Ok(None);
        };
        let payload = local.address.wrapping_add(offset) as *const u8;
        // SAFETY: the caller's buffer is registered (`local_buffer`) and mapped.
        unsafe { self.push_eager(&write, payload) };
        self.eager_count += 1;
        let number = self.eager_count;
        self.eager[write.slot] = Some(OpenEager { number, local });
        self.transmit();
        Ok(Some(Started::Eager(number)))
    }

    /// Copies an eager message and adds its write to the chain. Over a path that has just failed it
    /// does not go, as if it had been lost on the way.
    ///
    /// # Safety
    /// `payload` must be readable for the bytes of `write`.
    unsafe fn push_eager(&mut self, write: &EagerWrite, payload: *const u8) {
        let path = self.driver.paths.find(write.path, write.generation);
        let Some(path) = path.filter(|path| path.has_room()) else {
            return;
        };
        let Some(slots) = path.peer else {
            return;
        };
        // SAFETY: the caller vouches for the payload. A slot that the core gives again was
        // released, when its message was delivered.
        let (source, remote_address) = unsafe { path.memory.stage(write, payload, slots) };
        path.push(SendWork {
            id: write.work.raw(),
            source,
            remote_address,
            rkey: slots.rkey,
            immediate: None,
            signaled: write.signaled,
        });
    }

    /// Its driver, to break what no outsider can.
    #[cfg(test)]
    pub fn driver(&mut self) -> &mut Driver<Sender> {
        &mut self.driver
    }

    fn core(&mut self) -> &mut Sender {
        self.driver.end.half_mut()
    }

    fn report_truncation(&mut self) {
        if let Some(cut) = self.core().take_truncation() {
            tracing::warn!(
                "{}: a send of {} bytes met a receive of {}: cut to that, as NCCL's own \
                 transport does; the two sides disagree about the message ({} others were cut, \
                 too)",
                self.driver.shared.label,
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
            let released = self.core().release(seq);
            released.map_err(|error| self.defect(error))?;
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
            if let Some(seq) = self.core().eager_seq(slot) {
                self.open[seq.slot()] = None;
            }
            self.eager[slot] = None;
            self.starvation.end();
            let released = self.core().release_eager(slot);
            released.map_err(|error| self.defect(error))?;
        }
        Ok(delivered)
    }

    /// Bytes of an open send that is delivered. Progresses the connection while it is not.
    fn delivered(&mut self, status: impl Fn(&Sender) -> SendStatus) -> Result<Option<u64>> {
        if status(self.driver.end.half()) == SendStatus::Pending {
            if !self.is_turn() {
                self.driver.shared.note_poll();
                return Ok(None);
            }
            if !self.drive() {
                return Ok(None);
            }
        }
        match status(self.driver.end.half()) {
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
            || self.driver.paths.has_backlog()
    }

    /// False: nothing has come, and there was nothing else to look at.
    fn drive(&mut self) -> bool {
        self.tests_since_poll = 0;
        self.driver.shared.note_poll();
        if !self.driver.poll(|_| ()) {
            return false;
        }
        let now = self.driver.time(true);
        self.adopt_eagers();
        self.read_inbox();
        let is_waiting = self.eager.iter().flatten().next().is_some();
        if self.starvation.is_due(now, is_waiting) {
            // A credit may have been lost with its path (PROTOCOL R15, R43).
            self.driver.end.request_credits(now);
            self.driver.stir();
        }
        self.transmit();
        self.driver.attend();
        true
    }

    /// Error that ends the connection, if there is one. Whoever asks has read the receiver's last
    /// word before (PROTOCOL R27): what it has confirmed is done, whatever has happened since.
    fn check(&mut self) -> Result<()> {
        self.driver.fate.check(&self.driver.shared)
    }

    /// Sends accepted so far.
    pub fn submitted(&self) -> u64 {
        self.driver.end.half().snapshot().posted.0
    }

    fn defect(&self, error: impl std::fmt::Display) -> Error {
        Error::Internal(format!("{}: {error}", self.driver.shared.label))
    }

    fn local_buffer(&self, region: RegionId, address: u64, bytes: u64) -> Result<Region> {
        if bytes == 0 {
            return Ok(Region::EMPTY);
        }
        let found = self.driver.shared.regions.find(region);
        found
            .filter(|found| found.contains(address, bytes))
            .ok_or_else(|| {
                Error::Argument(format!(
                    "{}: send of {bytes} bytes at {address:#x} is outside its registration \
                 {found:x?}; register the whole buffer first",
                    self.driver.shared.label
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

    /// Eager sends become ordinary messages, which may have to be sent again.
    fn adopt_eagers(&mut self) {
        for slot in 0..EAGER_SLOTS {
            let (Some(open), Some(seq)) = (self.eager[slot], self.core().eager_seq(slot)) else {
                continue;
            };
            let entry = &mut self.open[seq.slot()];
            if entry.is_none_or(|entry| entry.seq != seq) {
                let local = open.local;
                *entry = Some(OpenSend { seq, local });
                self.report_truncation();
            }
        }
    }

    fn read_inbox(&mut self) {
        let driver = &mut self.driver;
        for news in driver.shared.inbox.take() {
            match news {
                News::RegionKey(key) => self.keys.insert(key),
                News::Path(frame) => driver.take_frame(&frame),
                News::Port(dev, change) => driver.take_port(dev, change),
                News::Mail { is_asking } => driver.send_mail(is_asking),
                News::Drain(news) => driver.take_drain(news),
                News::Goodbye(delivered) => {
                    if driver.end.half_mut().handle_goodbye(delivered).is_err() {
                        let label = &driver.shared.label;
                        tracing::warn!("{label}: goodbye with a wrong count");
                    }
                    driver.fate.on_goodbye();
                }
                News::LinkDown(reason) => driver.fate.on_link_down(reason),
                News::Accepted(_) | News::Refused(..) => {}
            }
        }
    }

    fn transmit(&mut self) {
        let (core, regions) = (self.driver.end.half_mut(), &self.driver.shared.regions);
        let (open, keys) = (&self.open, &self.keys);
        for path in self.driver.paths.iter_mut() {
            let id = path.id;
            path.fill(|| {
                let segment = core.poll_transmit(id)?;
                let open = open[segment.seq.slot()].filter(|open| open.seq == segment.seq);
                let target = open.and_then(|open| {
                    let rkey = match segment.remote_region {
                        RegionId(0) => 0,
                        region => keys.find(region, id)?,
                    };
                    let registration = if id == PathId::PRIMARY || segment.bytes == 0 {
                        open.local.registration
                    } else {
                        regions.registration(open.local.id, id)?
                    };
                    Some((open.local.address, registration, rkey))
                });
                if target.is_none() {
                    // The key travels on the control connection and may be behind the credit.
                    let _ = core.return_transmit(&segment);
                }
                target.map(|target| work(&segment, target))
            });
            path.post();
        }
        let has_backlog = self.driver.paths.has_backlog();
        self.driver.shared.note_backlog(has_backlog);
    }
}

fn work(
    segment: &SegmentWrite,
    (address, registration, rkey): (u64, Registration, u32),
) -> SendWork {
    SendWork {
        id: segment.work.raw(),
        source: WriteSource::Registered {
            address: address.wrapping_add(segment.local_offset),
            len: segment.bytes,
            lkey: registration.lkey,
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
        self.driver.look_at_all();
        self.drive();
    }

    fn uses(&self, region: RegionId) -> bool {
        let ordinary = self.open.iter().flatten().map(|open| open.local);
        let eager = self.eager.iter().flatten().map(|open| open.local);
        ordinary.chain(eager).any(|local| local.id == region)
    }

    fn fence(&mut self) {
        self.driver.stop();
    }

    fn in_call(&mut self) -> &mut bool {
        &mut self.in_call
    }
}
