//! Lanes: extra sockets that carry large writes, served by a few threads of the process.
//!
//! A lane has one lock, which its thread holds only across one round of non-blocking calls. Who has
//! closed the lane knows that it touches no memory any more.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::Socket;

use super::inflow::{Inflow, Next, Progress, Sink};
use super::limiter::Appetite;
use super::memory::Cache;
use super::shared::{Chunk, LaneFault, Shared};
use super::sys::{self, Epoll, Waker};
use super::wire::{HEADER_BYTES, Header, Kind, Refusal, padding};
use crate::DeviceError;

/// Threads that automatic choice starts at the most.
const THREADS_MAX: usize = 8;
/// Lanes of one queue pair that automatic choice makes at the most.
const LANES_MAX: usize = 4;
/// Up to this many cores the caller's thread is faster alone.
const CORES_WITHOUT_LANES: usize = 3;
/// How long an idle thread looks for work before it sleeps. A large message of NCCL's ring comes
/// every few hundred microseconds, and a thread that sleeps between two of them costs each a
/// wake-up at both ends: on two H200s all-reduce of 4 MiB is 1.4 times as fast with 200 as with 50.
const SPIN: Duration = Duration::from_micros(200);
/// How long a thread waits when the rate limit holds its lanes back.
const THROTTLED_WAIT: Duration = Duration::from_millis(1);
/// What one receive call may take in beside chunks that go straight to their destination.
const STAGE_BYTES: usize = 64 * 1024;
const WAKE_TOKEN: u64 = 0;
static ZEROS: [u8; 8] = [0; 8];

/// Lanes that a queue pair gets when the configuration does not say.
pub(super) fn automatic_lanes() -> usize {
    automatic_threads(cores()).min(LANES_MAX)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn automatic_threads(cores: usize) -> usize {
    if cores <= CORES_WITHOUT_LANES {
        0
    } else {
        (cores / 4).clamp(1, THREADS_MAX)
    }
}

/// The threads of the process that serve lanes.
static WORKERS: Mutex<Vec<Arc<Worker>>> = Mutex::new(Vec::new());
static NEXT_WORKER: AtomicUsize = AtomicUsize::new(0);

/// Sees to it that queue pairs can have `lanes` lanes on threads of their own.
pub(super) fn start_threads(lanes: usize) -> Result<(), DeviceError> {
    let mut workers = WORKERS.lock();
    let wanted = lanes
        .max(automatic_threads(cores()))
        .min(THREADS_MAX.max(lanes));
    while lanes > 0 && workers.len() < wanted {
        let worker = Worker::start(workers.len()).map_err(|error| {
            DeviceError(format!(
                "cannot start I/O thread {} of the software NIC: {error}; raise the limits on \
                 threads and open files, or use fewer lanes",
                workers.len()
            ))
        })?;
        workers.push(worker);
    }
    Ok(())
}

struct Worker {
    epoll: Epoll,
    waker: Waker,
    sleeping: AtomicBool,
    next_token: AtomicU64,
    lanes: Mutex<HashMap<u64, Arc<Lane>>>,
    /// Lanes that have got something to send.
    inbox: Mutex<Vec<Arc<Lane>>>,
}

impl Worker {
    fn start(number: usize) -> io::Result<Arc<Self>> {
        let epoll = Epoll::new()?;
        let waker = Waker::new(&epoll, WAKE_TOKEN)?;
        let worker = Arc::new(Self {
            epoll,
            waker,
            sleeping: AtomicBool::new(false),
            next_token: AtomicU64::new(WAKE_TOKEN + 1),
            lanes: Mutex::new(HashMap::new()),
            inbox: Mutex::new(Vec::with_capacity(256)),
        });
        let own = Arc::clone(&worker);
        std::thread::Builder::new()
            .name(format!("r2ccl-lane-{number}"))
            .spawn(move || own.run())?;
        Ok(worker)
    }

    fn run(&self) {
        let mut active: Vec<Arc<Lane>> = Vec::new();
        let mut idle_since = None;
        loop {
            for lane in self.inbox.lock().drain(..) {
                lane.queued.store(false, Ordering::SeqCst);
                add(&mut active, &lane);
            }
            let mut throttled = false;
            let mut busy = false;
            active.retain(|lane| {
                let turn = lane.turn();
                busy |= turn == Turn::More;
                throttled |= turn == Turn::Throttled;
                turn != Turn::Idle
            });
            let timeout = if busy {
                idle_since = None;
                Some(Duration::ZERO)
            } else if throttled {
                Some(THROTTLED_WAIT)
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() < SPIN {
                std::hint::spin_loop();
                Some(Duration::ZERO)
            } else {
                None
            };
            if self.wait(timeout, &mut active) {
                idle_since = None;
            }
        }
    }

    /// Adds lanes whose sockets are ready to `active`; true if there were any.
    fn wait(&self, timeout: Option<Duration>, active: &mut Vec<Arc<Lane>>) -> bool {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        let mut timeout = timeout;
        if timeout != Some(Duration::ZERO) {
            self.sleeping.store(true, Ordering::SeqCst);
            if !self.inbox.lock().is_empty() {
                timeout = Some(Duration::ZERO);
            }
        }
        let count = self.epoll.wait(&mut events, timeout);
        self.sleeping.store(false, Ordering::SeqCst);
        if count > 0 {
            let lanes = self.lanes.lock();
            for event in &events[..count] {
                let token = event.u64;
                if let Some(lane) = lanes.get(&token) {
                    add(active, lane);
                }
            }
        }
        count > 0
    }
}

fn add(lanes: &mut Vec<Arc<Lane>>, lane: &Arc<Lane>) {
    if !lanes.iter().any(|other| Arc::ptr_eq(other, lane)) {
        lanes.push(Arc::clone(lane));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Waits for its socket or for something to send.
    Idle,
    /// Wants another turn.
    More,
    /// Waits for the rate limit, or for the end of a fault.
    Throttled,
}

/// What a lane is sending.
struct Outgoing {
    chunk: Chunk,
    header: [u8; HEADER_BYTES],
    taken: usize,
}

struct State {
    /// `None` when the lane is closed.
    socket: Option<Socket>,
    inflow: Inflow,
    cache: Cache,
    /// Sequence and bytes of the chunk that is arriving.
    incoming: Option<(u32, u32)>,
    outgoing: Option<Outgoing>,
    appetite: Appetite,
}

/// One extra socket of a queue pair.
pub(super) struct Lane {
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    token: u64,
    /// It lies in its worker's inbox.
    queued: AtomicBool,
    state: Mutex<State>,
}

impl Lane {
    /// Gives a connected socket to one of the threads.
    pub(super) fn start(shared: Arc<Shared>, socket: Socket) -> io::Result<Arc<Self>> {
        let worker = {
            let workers = WORKERS.lock();
            let turn = NEXT_WORKER.fetch_add(1, Ordering::Relaxed);
            let index = turn % workers.len().max(1);
            Arc::clone(workers.get(index).ok_or(io::ErrorKind::NotFound)?)
        };
        let token = worker.next_token.fetch_add(1, Ordering::Relaxed);
        let descriptor = socket.as_raw_fd();
        let lane = Arc::new(Self {
            shared,
            worker,
            token,
            queued: AtomicBool::new(false),
            state: Mutex::new(State {
                socket: Some(socket),
                inflow: Inflow::new(STAGE_BYTES),
                cache: Cache::default(),
                incoming: None,
                outgoing: None,
                appetite: Appetite::default(),
            }),
        });
        lane.worker.lanes.lock().insert(token, Arc::clone(&lane));
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        if let Err(error) = lane.worker.epoll.add(descriptor, events, token) {
            lane.close();
            return Err(error);
        }
        Lane::kick(&lane);
        Ok(lane)
    }

    /// Tells the lane's thread that there may be something to send.
    pub(super) fn kick(lane: &Arc<Self>) {
        if lane.queued.swap(true, Ordering::SeqCst) {
            return;
        }
        lane.worker.inbox.lock().push(Arc::clone(lane));
        if lane.worker.sleeping.swap(false, Ordering::SeqCst) {
            lane.worker.waker.wake();
        }
    }

    /// Closes the lane. When it has returned, the lane touches no memory any more.
    pub(super) fn close(&self) {
        {
            let mut state = self.state.lock();
            state.socket = None;
            state.outgoing = None;
            self.shared.device.satisfy(&mut state.appetite);
        }
        self.worker.lanes.lock().remove(&self.token);
    }

    /// Asks `question` of the socket, if it is there.
    pub(super) fn ask(&self, question: impl FnOnce(RawFd) -> bool) -> bool {
        let state = self.state.lock();
        let socket = state.socket.as_ref();
        socket.is_some_and(|socket| question(socket.as_raw_fd()))
    }

    fn turn(&self) -> Turn {
        let mut state = self.state.lock();
        if self.shared.is_stopped() {
            return Turn::Idle;
        }
        let faults = self.shared.device.faults();
        let received = if faults.cuts_receiving() {
            Turn::Throttled
        } else {
            state.receive(&self.shared)
        };
        let sent = if faults.cuts_sending() {
            Turn::Throttled
        } else {
            state.send(&self.shared)
        };
        match (received, sent) {
            (Turn::More, _) | (_, Turn::More) => Turn::More,
            (Turn::Throttled, _) | (_, Turn::Throttled) => Turn::Throttled,
            (Turn::Idle, Turn::Idle) => Turn::Idle,
        }
    }
}

impl State {
    fn receive(&mut self, shared: &Shared) -> Turn {
        let Some(socket) = &self.socket else {
            return Turn::Idle;
        };
        let mut sink = LaneSink {
            shared,
            cache: &mut self.cache,
            current: &mut self.incoming,
        };
        let result = self.inflow.progress(socket.as_raw_fd(), &mut sink);
        match result {
            Ok(Progress::More) => Turn::More,
            Ok(Progress::Idle | Progress::Held) => Turn::Idle,
            Ok(Progress::Closed) => {
                shared.set_broken();
                self.socket = None;
                Turn::Idle
            }
            Err(refusal) => {
                // The lane stops here; the owner acts when all earlier writes have landed.
                let sequence = self.incoming.map_or(0, |(sequence, _)| sequence);
                shared.set_fault(LaneFault::Refused { sequence, refusal });
                Turn::Idle
            }
        }
    }

    fn send(&mut self, shared: &Shared) -> Turn {
        let Some(socket) = &self.socket else {
            return Turn::Idle;
        };
        if self.outgoing.is_none() {
            self.outgoing = shared.next_chunk().map(Outgoing::new);
        }
        let limiter = shared.device.limiter();
        let Some(outgoing) = &mut self.outgoing else {
            limiter.inspect(|limiter| limiter.satisfy(&mut self.appetite));
            return Turn::Idle;
        };
        let missing = outgoing.missing();
        let room = limiter.map_or(missing, |limiter| limiter.take(&mut self.appetite, missing));
        if room == 0 {
            return Turn::Throttled;
        }
        if !outgoing.chunk.region.hold() {
            let sequence = outgoing.chunk.sequence;
            shared.set_fault(LaneFault::Source { sequence });
            self.socket = None;
            return Turn::Idle;
        }
        let result = outgoing.send(socket, room);
        outgoing.chunk.region.release();
        match result {
            Ok(sent) => {
                if let Some(limiter) = limiter {
                    limiter.give_back(room - sent.min(room));
                    if sent < room {
                        limiter.satisfy(&mut self.appetite);
                    }
                }
                if sent == missing {
                    self.outgoing = None;
                }
                if sent == room { Turn::More } else { Turn::Idle }
            }
            Err(error) => {
                if let Some(limiter) = limiter {
                    limiter.give_back(room);
                    limiter.satisfy(&mut self.appetite);
                }
                if error.kind() != io::ErrorKind::WouldBlock {
                    shared.set_broken();
                    self.socket = None;
                }
                Turn::Idle
            }
        }
    }
}

impl Outgoing {
    fn new(chunk: Chunk) -> Self {
        let header = Header {
            kind: Kind::Chunk,
            flags: 0,
            length: chunk.bytes,
            sequence: chunk.sequence,
            acknowledged: chunk.offset,
            address: chunk.destination,
            key: chunk.key,
            immediate: chunk.total,
        };
        Self {
            chunk,
            header: header.encode(),
            taken: 0,
        }
    }

    fn missing(&self) -> usize {
        let payload = self.chunk.bytes as usize;
        HEADER_BYTES + payload + padding(payload) - self.taken
    }

    /// Sends at most `room` bytes; the region must be in use.
    fn send(&mut self, socket: &Socket, room: usize) -> io::Result<usize> {
        let payload = self.chunk.bytes as usize;
        let parts = [
            (self.header.as_ptr(), HEADER_BYTES),
            (self.chunk.source as *const u8, payload),
            (ZEROS.as_ptr(), padding(payload)),
        ];
        let (mut skip, mut room) = (self.taken, room);
        let buffers = &mut parts.map(|(address, bytes)| {
            let skipped = skip.min(bytes);
            skip -= skipped;
            let taken = (bytes - skipped).min(room);
            room -= taken;
            sys::buffer(address.wrapping_add(skipped), taken)
        });
        // SAFETY: header and padding are ours, and the region of the payload is in use.
        let sent = unsafe { sys::send(socket.as_raw_fd(), buffers) }?;
        self.taken += sent;
        Ok(sent)
    }
}

/// What frames on a lane mean.
struct LaneSink<'a> {
    shared: &'a Shared,
    cache: &'a mut Cache,
    current: &'a mut Option<(u32, u32)>,
}

impl Sink for LaneSink<'_> {
    fn header(&mut self, header: &Header) -> Result<Next, Refusal> {
        *self.current = Some((header.sequence, header.length));
        let valid = header.kind == Kind::Chunk && header.length > 0;
        if !valid || !self.shared.is_open(header.sequence) {
            return Err(Refusal::Invalid);
        }
        let memory = self.shared.device.memory();
        // The bounds of the whole write count: of a bad one nothing may land.
        let (offset, total) = (u64::from(header.acknowledged), u64::from(header.immediate));
        let start = header.address.checked_sub(offset).ok_or(Refusal::Access)?;
        if offset + u64::from(header.length) > total {
            return Err(Refusal::Invalid);
        }
        let found = self.cache.find(memory, header.key, start, total, true);
        Ok(Next::Payload(Arc::clone(found.ok_or(Refusal::Access)?)))
    }

    fn landed(&mut self) -> Result<(), Refusal> {
        let (sequence, bytes) = self.current.take().ok_or(Refusal::Invalid)?;
        self.shared.add_landed(sequence, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_cores_get_no_lanes() {
        assert_eq!([1, 2, 3].map(automatic_threads), [0, 0, 0]);
        assert_eq!([4, 8, 16, 32, 128].map(automatic_threads), [1, 2, 4, 8, 8]);
    }
}
