//! Ends of connections that move checked messages, and a pair of them that tells whether the rest
//! of a process goes on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::net::{Buffer, Id, Net, Outcome, until};

/// Messages that an end keeps in flight.
const WINDOW: usize = 8;

/// One end of a connection with its buffers; message `k` has a content of its own.
pub struct Stream {
    net: Net,
    /// The communicator.
    pub comm: Id,
    is_sender: bool,
    slot_words: usize,
    memory: Vec<u64>,
    mr: Id,
    requests: VecDeque<Id>,
    posted: u64,
    /// Messages finished.
    pub done: u64,
}

impl Stream {
    /// The sending end `comm`, for messages of `bytes`, a multiple of 8.
    pub fn sender(net: Net, comm: Id, bytes: usize) -> Self {
        Self::new(net, comm, bytes, true)
    }

    /// The receiving end `comm`.
    pub fn receiver(net: Net, comm: Id, bytes: usize) -> Self {
        Self::new(net, comm, bytes, false)
    }

    fn new(net: Net, comm: Id, bytes: usize, is_sender: bool) -> Self {
        let slot_words = bytes / 8;
        let memory = vec![0_u64; slot_words * WINDOW];
        let address = memory.as_ptr().expose_provenance();
        let mr = net
            .register(comm, address, bytes * WINDOW)
            .expect("a registration");
        Self {
            net,
            comm,
            is_sender,
            slot_words,
            memory,
            mr,
            requests: VecDeque::new(),
            posted: 0,
            done: 0,
        }
    }

    /// Posts a message if there is room and fewer than `limit` were posted, and tests the oldest.
    pub fn step(&mut self, limit: u64) -> Outcome<()> {
        if self.posted < limit && self.requests.len() < WINDOW {
            self.post()?;
        }
        let Some(oldest) = self.requests.front() else {
            return Ok(());
        };
        if let Some(sizes) = self.net.test(*oldest)? {
            assert_eq!(
                sizes[0] as usize,
                self.slot_words * 8,
                "size of message {}",
                self.done
            );
            if !self.is_sender {
                self.check();
            }
            self.requests.pop_front();
            self.done += 1;
        }
        Ok(())
    }

    /// Moves `count` more messages.
    pub fn run(&mut self, count: u64) -> Outcome<()> {
        let limit = self.done + count;
        until("messages", || match self.step(limit) {
            Ok(()) => (self.done == limit).then_some(Ok(())),
            Err(refusal) => Some(Err(refusal)),
        })
    }

    /// Goes on until the first error, which must come.
    pub fn run_until_error(&mut self) -> crate::net::Refusal {
        until("an error", || self.step(u64::MAX).err())
    }

    fn slot(&self, message: u64) -> usize {
        message as usize % WINDOW * self.slot_words
    }

    fn post(&mut self) -> Outcome<()> {
        let at = self.slot(self.posted);
        let seed = word(self.posted, 0);
        for (index, place) in (0..).zip(&mut self.memory[at..at + self.slot_words]) {
            *place = if self.is_sender {
                word(seed, index)
            } else {
                !0
            };
        }
        let buffer = Buffer {
            address: self.memory[at..].as_ptr().expose_provenance(),
            bytes: self.slot_words * 8,
            tag: 5,
            mr: self.mr,
        };
        let request = match self.is_sender {
            true => self.net.isend(self.comm, buffer)?,
            false => self.net.irecv(self.comm, &[buffer])?,
        };
        if let Some(request) = request {
            self.requests.push_back(request);
            self.posted += 1;
        }
        Ok(())
    }

    fn check(&self) {
        let at = self.slot(self.done);
        let seed = word(self.done, 0);
        for (index, found) in (0..).zip(&self.memory[at..at + self.slot_words]) {
            // SAFETY: a live reference; the NIC has written here behind the compiler's back.
            let found = unsafe { std::ptr::from_ref(found).read_volatile() };
            assert_eq!(
                found,
                word(seed, index),
                "word {index} of message {}",
                self.done
            );
        }
    }

    /// Ends registration and connection, with or without requests in flight.
    pub fn close(self) {
        self.net
            .deregister(self.comm, self.mr)
            .expect("a registration of this connection");
        match self.is_sender {
            true => self.net.close_send(self.comm),
            false => self.net.close_receive(self.comm),
        }
    }
}

fn word(seed: u64, index: u64) -> u64 {
    (seed ^ 0x9E37_79B9_7F4A_7C15)
        .wrapping_mul(0xBF58_476D_1CE4_E5B9)
        .wrapping_add(index << 7 | 1)
}

/// A connection inside this process on a thread of its own, and thus in another group than those of
/// the test: whatever happens to these, it goes on.
pub struct Witness {
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Witness {
    /// Starts it; the first messages have been moved.
    pub fn start(net: Net) -> Self {
        let (done, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counter, end) = (done.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let (send, receive) = net.pair().expect("a connection");
            let mut ends = [
                Stream::sender(net, send, 4096),
                Stream::receiver(net, receive, 4096),
            ];
            while !end.load(Ordering::Relaxed) {
                for stream in &mut ends {
                    stream.step(u64::MAX).expect("another connection goes on");
                }
                counter.store(ends[1].done, Ordering::Relaxed);
                std::thread::yield_now();
            }
            ends.into_iter().for_each(Stream::close);
        });
        let witness = Self {
            done,
            stop,
            thread: Some(thread),
        };
        witness.goes_on();
        witness
    }

    /// Waits for 20 more messages.
    pub fn goes_on(&self) {
        let begin = self.done.load(Ordering::Relaxed);
        let ended = || self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        until("another connection", || {
            assert!(!ended(), "the other connection has ended");
            (self.done.load(Ordering::Relaxed) >= begin + 20).then_some(())
        });
    }

    /// Sees that it goes on, and ends it.
    pub fn finish(mut self) {
        self.goes_on();
        self.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.take().map(JoinHandle::join);
        assert!(
            matches!(joined, Some(Ok(()))),
            "the other connection failed"
        );
    }
}
