//! One queue pair of one generation, with the work that waits for room in its send queue.

use r2ccl_core::wire::path_frame::Endpoint;
use r2ccl_core::{Generation, PathId, ProbeKind};
use r2ccl_fabric::{
    Completion, DeviceError, Opcode, PostError, QueuePair, QueuePairAddress, SendWork, Status,
};

use super::mailbox;
use super::ring::{PathMemory, PeerMemory};
use super::shared::Counted;

/// Work requests posted with one doorbell at the most.
const CHAIN_MAX: usize = 32;
/// Ids of probes, and that of mails; those of the core have higher bits.
const PROBE: u64 = 1 << 32;
const MAIL: u64 = 1 << 33;

/// A path of a connection at this end, with memory `M` of its own that the peer writes to. Fields
/// drop in order: the queue pair goes before that memory.
pub struct Path<M> {
    /// Which path.
    pub id: PathId,
    /// Which life of it.
    pub generation: Generation,
    address: [u8; QueuePairAddress::BYTES],
    /// `None` while a helper stops it.
    queue_pair: Option<Box<dyn QueuePair>>,
    chain: Vec<SendWork>,
    completions: [Completion; CHAIN_MAX],
    /// The send queue had no room for the whole chain.
    is_stuck: bool,
    failure: Option<Status>,
    is_failure_told: bool,
    /// Mails that were written, whether the last one still is, and the one read last.
    mails: u64,
    is_mailing: bool,
    mail_read: u64,
    /// Memory of the other end; `None` until it is connected.
    pub peer: Option<PeerMemory>,
    /// A [`super::ring::Ring`] or [`super::ring::Slots`].
    pub memory: M,
    _counted: Counted,
}

impl<M> Path<M> {
    /// Path over a queue pair that is being connected.
    pub fn new(
        id: PathId,
        generation: Generation,
        queue_pair: Box<dyn QueuePair>,
        (memory, counted): (M, Counted),
    ) -> Self {
        Self {
            id,
            generation,
            address: queue_pair.address().0,
            queue_pair: Some(queue_pair),
            chain: Vec::with_capacity(CHAIN_MAX),
            completions: [Completion::EMPTY; CHAIN_MAX],
            is_stuck: false,
            failure: None,
            is_failure_told: false,
            mails: 0,
            is_mailing: false,
            mail_read: 0,
            peer: None,
            memory,
            _counted: counted,
        }
    }

    /// Starts connecting to the other end.
    pub fn connect(&mut self, remote: &Endpoint) -> Result<(), DeviceError> {
        self.peer = Some(PeerMemory {
            address: remote.memory_address,
            rkey: remote.memory_rkey,
        });
        match &mut self.queue_pair {
            Some(queue_pair) => queue_pair.connect(&QueuePairAddress(remote.queue_pair)),
            None => Err(DeviceError("this queue pair is being stopped".into())),
        }
    }

    /// Sends a probe: a write of no bytes that comes back as number `id`. One that finds no room
    /// never comes back. The NICs may answer although the queue pair cannot.
    pub fn probe(&mut self, id: u32, kind: ProbeKind) {
        if let Some(queue_pair) = self.queue_pair.as_mut() {
            if kind == ProbeKind::NicPair {
                queue_pair.probe_nics(PROBE + u64::from(id));
            }
        }
        if self.has_room() {
            self.push(SendWork::empty(PROBE + u64::from(id)));
            self.post();
        }
    }

    /// Whether [`Path::push`] may be called.
    pub fn has_room(&self) -> bool {
        !self.is_full() && self.failure.is_none()
    }

    /// Adds what `next` gives to the chain, and posts it whenever it has its full length. The last
    /// part stays for [`Path::post`].
    pub fn fill(&mut self, mut next: impl FnMut() -> Option<SendWork>) {
        loop {
            while self.has_room() {
                let Some(work) = next() else { return };
                self.push(work);
            }
            if self.failure.is_some() || !self.post() {
                return;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.chain.len() == CHAIN_MAX
    }

    /// Adds work to the next chain.
    pub fn push(&mut self, work: SendWork) {
        debug_assert!(self.has_room());
        self.chain.push(work);
    }

    /// Posts the chain; what the send queue has no room for stays for the next call. Returns
    /// whether all of it went out.
    pub fn post(&mut self) -> bool {
        self.is_stuck = false;
        let Some(queue_pair) = self.queue_pair.as_mut() else {
            self.chain.clear();
            return true;
        };
        if self.chain.is_empty() {
            return true;
        }
        // SAFETY: every buffer in the chain lies in a region of this connection. A region with
        // open requests is only deregistered after the queue pair was set to error, and the
        // device itself stops touching a region whose registration has ended.
        match unsafe { queue_pair.post_send(&self.chain) } {
            Ok(taken) => {
                self.chain.drain(..taken);
            }
            // The flushed completions tell why.
            Err(PostError::InError) => self.chain.clear(),
            Err(PostError::Malformed) => {
                self.fail(Status::LocalLength);
                self.chain.clear();
            }
        }
        self.is_stuck = !self.chain.is_empty();
        !self.is_stuck
    }

    /// Polls the queue pair once and calls `on_completion` for each success; a failure is kept.
    /// Returns whether there was anything.
    pub fn poll(&mut self, mut on_completion: impl FnMut(&Completion)) -> bool {
        let Some(queue_pair) = self.queue_pair.as_mut() else {
            return false;
        };
        let count = queue_pair.poll(&mut self.completions);
        for index in 0..count {
            let completion = self.completions[index];
            match completion.status {
                Status::Success if completion.id == MAIL => self.is_mailing = false,
                Status::Success => on_completion(&completion),
                status => self.fail(status),
            }
        }
        count > 0
    }

    /// Gives the queue pair receives for `count` more writes with immediate.
    pub fn post_receives(&mut self, count: u32) {
        let queue_pair = self.queue_pair.as_mut();
        if queue_pair.is_some_and(|queue_pair| queue_pair.post_receives(count).is_err()) {
            self.fail(Status::Flushed);
        }
    }

    /// The first failure, a flush only if nothing else was seen: a flush is never the cause.
    pub fn failure(&self) -> Option<Status> {
        self.failure
    }

    /// The failure, once.
    pub fn news_of_failure(&mut self) -> Option<Status> {
        let is_news = !std::mem::replace(&mut self.is_failure_told, self.failure.is_some());
        self.failure.filter(|_| is_news)
    }

    /// Stops the queue pair: nothing lands through it and nothing is read any more, unless it is
    /// away: then whoever has taken it sees to that.
    pub fn fence(&mut self) {
        if let Some(queue_pair) = &mut self.queue_pair {
            queue_pair.set_error();
        }
        self.fail(Status::Flushed);
    }

    /// Takes the queue pair away, to be stopped elsewhere. Until it is back nothing is posted and
    /// nothing comes; its memory must not go.
    pub fn lend(&mut self) -> Option<Box<dyn QueuePair>> {
        self.fail(Status::Flushed);
        self.queue_pair.take()
    }

    /// Takes the queue pair back.
    pub fn restore(&mut self, queue_pair: Box<dyn QueuePair>) {
        self.queue_pair = Some(queue_pair);
    }

    /// Whether the queue pair is away.
    pub fn is_lent(&self) -> bool {
        self.queue_pair.is_none()
    }

    /// Whether somebody must call again for posted work to leave this host.
    pub fn has_backlog(&self) -> bool {
        let is_busy = self.queue_pair.as_ref().is_some_and(|it| it.has_backlog());
        self.failure.is_none() && (self.is_stuck || is_busy)
    }

    fn fail(&mut self, status: Status) {
        match self.failure {
            None => self.failure = Some(status),
            Some(Status::Flushed) if status != Status::Flushed => self.failure = Some(status),
            Some(_) => {}
        }
    }
}

impl<M: PathMemory> Path<M> {
    /// Writes a mail to the peer; false if it cannot go now.
    pub fn send_mail(&mut self, mail: &[u8]) -> bool {
        let Some(peer) = self.peer.filter(|_| self.has_room() && !self.is_mailing) else {
            return false;
        };
        self.mails += 1;
        self.is_mailing = true;
        // SAFETY: the write of the mail before has completed.
        let source = unsafe { mailbox::stage(self.memory.words(), self.mails, mail) };
        self.push(SendWork {
            id: MAIL,
            source,
            remote_address: peer.address,
            rkey: peer.rkey,
            immediate: None,
            signaled: true,
        });
        self.post();
        true
    }

    /// The peer's latest mail, once.
    pub fn take_mail(&mut self) -> Option<Vec<u8>> {
        let (number, mail) = mailbox::read(self.memory.words(), self.mail_read)?;
        self.mail_read = number;
        Some(mail)
    }

    /// This end, for the peer.
    pub fn endpoint(&self) -> Endpoint {
        let memory = self.memory.memory();
        Endpoint {
            queue_pair: self.address,
            memory_address: memory.address,
            memory_rkey: memory.rkey,
        }
    }
}

/// The number of a probe, from the id of its work request.
pub fn probe_id(work: u64) -> u32 {
    work as u32
}

/// Whether a failure lies with the request and not with the path (PROTOCOL R22): a bad key, length
/// or bound would fail on every other path as well.
pub fn is_request_error(status: Status) -> bool {
    matches!(
        status,
        Status::LocalLength
            | Status::LocalProtection
            | Status::RemoteAccess
            | Status::RemoteInvalidRequest
    )
}

/// Whether a completion is a write with immediate of the peer.
pub fn is_arrival(completion: &Completion) -> bool {
    completion.opcode == Opcode::ReceiveImmediate
}
