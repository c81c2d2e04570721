//! Tools of the behaviours: a connected pair of ends with memory, and loops with a deadline.

use std::time::{Duration, Instant};

use super::Fixture;
use crate::{
    Access, Completion, Opcode, QueuePair, QueuePairConfig, Registration, SendWork, SharedDevice,
    Status, Traffic, WriteSource,
};

/// Depths that the behaviours use unless they say otherwise.
pub(super) const DEPTHS: QueuePairConfig = QueuePairConfig {
    send_depth: 64,
    receive_depth: 256,
    traffic: Traffic::Data,
};

/// One end: a queue pair, and a region that the peer may write.
pub(super) struct End {
    pub(super) device: SharedDevice,
    pub(super) queue_pair: Box<dyn QueuePair>,
    pub(super) memory: Memory,
    pub(super) registration: Registration,
    pub(super) done: Vec<Completion>,
}

/// Zeroed memory, aligned to 8 bytes, that others may change at any time.
pub(super) struct Memory {
    words: *mut u64,
    bytes: usize,
}

impl Memory {
    pub(super) fn new(bytes: usize) -> Self {
        let words = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
        Self {
            words: Box::into_raw(words).cast(),
            bytes,
        }
    }

    pub(super) fn address(&self) -> u64 {
        self.words as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, at: usize) -> u8 {
        assert!(at < self.bytes);
        // SAFETY: inside the allocation.
        unsafe { self.words.cast::<u8>().add(at).read_volatile() }
    }

    pub(super) fn read(&self, at: usize, bytes: usize) -> Vec<u8> {
        assert!(at + bytes <= self.bytes);
        let mut copy = vec![0; bytes];
        // SAFETY: inside the allocation; the caller knows that nobody writes these bytes now.
        unsafe {
            let source = self.words.cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(source, copy.as_mut_ptr(), bytes);
        }
        copy
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.bytes);
        // SAFETY: inside the allocation; the caller knows that nobody else uses these bytes now.
        unsafe {
            let destination = self.words.cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), destination, bytes.len());
        }
    }

    pub(super) fn fill(&mut self, value: u8) {
        // SAFETY: the whole allocation.
        unsafe { self.words.cast::<u8>().write_bytes(value, self.bytes) };
    }

    pub(super) fn holds_only(&self, value: u8) -> bool {
        self.read(0, self.bytes).iter().all(|byte| *byte == value)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let slice = std::ptr::slice_from_raw_parts_mut(self.words, self.bytes.div_ceil(8));
        // SAFETY: this is the allocation that `new` made.
        drop(unsafe { Box::from_raw(slice) });
    }
}

impl End {
    pub(super) fn new(device: SharedDevice, depths: QueuePairConfig, bytes: usize) -> Self {
        let memory = Memory::new(bytes);
        let queue_pair = device.create_queue_pair(depths).expect("a queue pair");
        // SAFETY: `drop` deregisters the memory before it is freed.
        let registration =
            unsafe { device.register(memory.address() as *mut u8, bytes, Access::RemoteWrite) };
        let registration = registration.expect("a registration");
        Self {
            device,
            queue_pair,
            memory,
            registration,
            done: Vec::new(),
        }
    }

    /// A signalled write of `bytes` from offset `from` here to offset `to` there.
    pub(super) fn write(&self, to: &End, from: usize, at: usize, bytes: usize) -> SendWork {
        SendWork {
            id: 0,
            source: WriteSource::Registered {
                address: self.memory.address() + from as u64,
                len: bytes as u32,
                lkey: self.registration.lkey,
            },
            remote_address: to.memory.address() + at as u64,
            rkey: to.registration.rkey,
            immediate: None,
            signaled: true,
        }
    }

    /// Posts work that must be taken at once.
    pub(super) fn post(&mut self, work: SendWork) {
        // SAFETY: the region lives as long as this end, and `drop` fences first.
        let posted = unsafe { self.queue_pair.post_send(&[work]) };
        assert_eq!(posted, Ok(1), "the send queue has room");
    }

    /// Collects what has completed; true if there was anything.
    pub(super) fn poll(&mut self) -> bool {
        let mut completions = [Completion::EMPTY; 16];
        let count = self.queue_pair.poll(&mut completions);
        self.done.extend_from_slice(&completions[..count]);
        count > 0
    }

    /// Own writes that have completed: id and status.
    pub(super) fn sent(&self) -> Vec<(u64, Status)> {
        let own = self.done.iter().filter(|it| {
            it.opcode == Opcode::Write || (it.status != Status::Success && it.id != 0)
        });
        own.map(|it| (it.id, it.status)).collect()
    }

    /// Immediates and sizes that have arrived.
    pub(super) fn received(&self) -> Vec<(u32, u32)> {
        let arrived = self
            .done
            .iter()
            .filter(|it| it.opcode == Opcode::ReceiveImmediate && it.status == Status::Success);
        arrived.map(|it| (it.immediate, it.byte_len)).collect()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.queue_pair.set_error();
        self.device.deregister(self.registration);
    }
}

/// A connected pair of ends with `bytes` of memory each.
pub(super) fn pair(fixture: &dyn Fixture, bytes: usize) -> (End, End) {
    let (mut a, mut b) = unconnected(fixture, DEPTHS, bytes);
    connect(&mut a, &mut b);
    (a, b)
}

/// A pair of ends that do not know each other yet.
pub(super) fn unconnected(
    fixture: &dyn Fixture,
    depths: QueuePairConfig,
    bytes: usize,
) -> (End, End) {
    let (one, other) = fixture.devices();
    (End::new(one, depths, bytes), End::new(other, depths, bytes))
}

/// Tells both ends of each other.
pub(super) fn connect(a: &mut End, b: &mut End) {
    let (of_a, of_b) = (a.queue_pair.address(), b.queue_pair.address());
    a.queue_pair.connect(&of_b).expect("connects");
    b.queue_pair.connect(&of_a).expect("connects");
}

/// Polls both ends until `condition` holds.
pub(super) fn drive(
    fixture: &dyn Fixture,
    a: &mut End,
    b: &mut End,
    what: &str,
    mut condition: impl FnMut(&End, &End) -> bool,
) {
    let deadline = Instant::now() + fixture.patience();
    while !condition(a, b) {
        let busy = a.poll() | b.poll();
        if !busy {
            std::thread::yield_now();
        }
        assert!(
            Instant::now() < deadline,
            "{what}: not within {:?}; {} and {} completions, the last {:?} and {:?}",
            fixture.patience(),
            a.done.len(),
            b.done.len(),
            a.done.last(),
            b.done.last()
        );
    }
}

/// Polls both ends for a short while, for things that must not happen.
pub(super) fn drive_a_while(a: &mut End, b: &mut End) {
    let until = Instant::now() + Duration::from_millis(30);
    while Instant::now() < until {
        a.poll();
        b.poll();
        std::thread::yield_now();
    }
}

/// Bytes that differ from place to place and from `seed` to `seed`.
pub(super) fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}
