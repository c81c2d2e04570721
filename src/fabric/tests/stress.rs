//! Random traffic in both directions at once, every byte checked: sizes, offsets, chains, inline
//! and registered sources, lanes, pauses. `R2CCL_TEST_STRESS_S` makes it run longer, in seconds.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use r2ccl_fabric::soft::{SoftConfig, SoftDevice};
use r2ccl_fabric::{
    Access, Completion, Device, Opcode, QueuePair, QueuePairAddress, QueuePairConfig, Registration,
    SendWork, Status, Traffic, WriteSource,
};

const PATIENCE: Duration = Duration::from_secs(60);
const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Room of a message with its offset and a guard on both sides.
const SLOT_BYTES: usize = MESSAGE_BYTES_MAX + 4096;
/// Messages under way in each direction.
const SLOTS: u64 = 6;
const GUARD: u8 = 0x5a;

/// Numbers that look random (xorshift64*).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from 0 to `most`.
    fn up_to(&mut self, most: usize) -> usize {
        (self.next() % (most as u64 + 1)) as usize
    }
}

/// What both ends know of message `sequence` without talking.
struct Message {
    source_offset: usize,
    offset: usize,
    /// Sizes of the writes that it is made of.
    parts: Vec<usize>,
    inline: bool,
    bytes: Vec<u8>,
}

impl Message {
    fn new(seed: u64, sequence: u64) -> Self {
        let mut random = Random::new(seed ^ sequence.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let inline = random.up_to(5) == 0;
        let most = match random.up_to(9) {
            _ if inline => WriteSource::INLINE_BYTES_MAX,
            0..=2 => 256,
            3..=5 => 9_000,
            6..=7 => 140_000,
            _ => MESSAGE_BYTES_MAX,
        };
        let count = 1 + random.up_to(4);
        let parts: Vec<_> = (0..count).map(|_| random.up_to(most / count)).collect();
        let length: usize = parts.iter().sum();
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&random.next().to_le_bytes());
        }
        bytes.truncate(length);
        Self {
            source_offset: random.up_to(70),
            offset: 64 + random.up_to(140),
            parts,
            inline,
            bytes,
        }
    }
}

/// What one direction shares beside the wire: where a slot's turn has come.
#[derive(Default)]
struct Direction {
    sent: AtomicU64,
    checked: AtomicU64,
    ended: AtomicBool,
}

struct End {
    device: Arc<SoftDevice>,
    queue_pair: Box<dyn QueuePair>,
    source: Vec<u8>,
    target: Vec<u8>,
    keys: [Registration; 2],
    random: Random,
    completed: u64,
    posted: u64,
}

/// What the other end must know.
#[derive(Clone, Copy)]
struct Place {
    address: QueuePairAddress,
    target: u64,
    rkey: u32,
}

impl End {
    fn new(lanes: usize, host: u8, seed: u64) -> Self {
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, host));
        let config = SoftConfig::new(format!("soft{host}"), address, 10_000);
        let device = SoftDevice::open(SoftConfig {
            lanes: Some(lanes),
            ..config
        })
        .expect("a device");
        let config = QueuePairConfig {
            send_depth: 32,
            receive_depth: 2 * SLOTS as u32,
            traffic: Traffic::Data,
        };
        let mut queue_pair = device.create_queue_pair(config).expect("a queue pair");
        queue_pair.post_receives(SLOTS as u32).expect("receives");
        let bytes = SLOT_BYTES * SLOTS as usize;
        let mut source = vec![0; bytes];
        let mut target = vec![GUARD; bytes];
        let keys = [
            (&mut source, Access::Local),
            (&mut target, Access::RemoteWrite),
        ]
        .map(|(memory, access)| {
            // SAFETY: `drop` deregisters the memory before it is freed.
            unsafe { device.register(memory.as_mut_ptr(), bytes, access) }.expect("a region")
        });
        Self {
            device,
            queue_pair,
            source,
            target,
            keys,
            random: Random::new(seed),
            completed: 0,
            posted: 0,
        }
    }

    fn place(&self) -> Place {
        Place {
            address: self.queue_pair.address(),
            target: self.target.as_ptr() as u64,
            rkey: self.keys[1].rkey,
        }
    }

    /// Posts the writes of message `sequence`, as many as are taken from `from` on; returns how
    /// many parts are out.
    fn post(&mut self, message: &Message, sequence: u64, from: usize, to: Place) -> usize {
        let slot = (sequence % SLOTS) as usize * SLOT_BYTES;
        let start = slot + message.source_offset;
        self.source[start..start + message.bytes.len()].copy_from_slice(&message.bytes);
        let mut at = 0;
        let mut chain = Vec::new();
        for (index, &len) in message.parts.iter().enumerate() {
            let source = if message.inline {
                let mut bytes = [0; WriteSource::INLINE_BYTES_MAX];
                bytes[..len].copy_from_slice(&message.bytes[at..at + len]);
                let len = len as u8;
                WriteSource::Inline { bytes, len }
            } else {
                WriteSource::Registered {
                    address: self.source[start + at..].as_ptr() as u64,
                    len: len as u32,
                    lkey: self.keys[0].lkey,
                }
            };
            let last = index + 1 == message.parts.len();
            chain.push(SendWork {
                id: sequence,
                source,
                remote_address: to.target + (slot + message.offset + at) as u64,
                rkey: to.rkey,
                immediate: last.then_some(sequence as u32),
                signaled: last,
            });
            at += len;
        }
        // SAFETY: the source stays registered and unchanged until its slot's next turn, which
        // comes after the message was checked.
        from + unsafe { self.queue_pair.post_send(&chain[from..]) }.expect("the pair works")
    }

    /// Compares what has arrived, and that nothing else has changed.
    fn check(&mut self, message: &Message, sequence: u64) {
        let slot = (sequence % SLOTS) as usize * SLOT_BYTES;
        // The device has written behind the compiler.
        std::hint::black_box(self.target.as_mut_ptr());
        let start = slot + message.offset;
        let end = start + message.bytes.len();
        assert!(
            self.target[start..end] == message.bytes[..],
            "message {sequence}: bytes differ"
        );
        let around = [slot..start, end..(end + 256).min(slot + SLOT_BYTES)];
        for range in around {
            let clean = self.target[range].iter().all(|byte| *byte == GUARD);
            assert!(clean, "message {sequence}: bytes beside it have changed");
        }
        self.target[start..end].fill(GUARD);
    }

    /// Polls once; immediates and lengths that came.
    fn poll(&mut self) -> Vec<(u32, u32)> {
        let mut done = [Completion::EMPTY; 8];
        let most = self.random.up_to(done.len());
        let count = self.queue_pair.poll(&mut done[..most]);
        let mut arrived = Vec::new();
        for completion in &done[..count] {
            assert_eq!(completion.status, Status::Success);
            match completion.opcode {
                Opcode::Write => {
                    assert_eq!(completion.id, self.completed, "out of order");
                    self.completed += 1;
                }
                Opcode::ReceiveImmediate => {
                    arrived.push((completion.immediate, completion.byte_len))
                }
                Opcode::NicProbe => panic!("nobody has asked"),
            }
        }
        arrived
    }

    fn pause(&mut self) {
        match self.random.up_to(200) {
            0 => std::thread::sleep(Duration::from_micros(self.random.up_to(3000) as u64)),
            1..=20 => std::thread::yield_now(),
            _ => {}
        }
    }

    /// Sends until `until`, and goes on until everything has arrived on both sides.
    fn run(&mut self, out: (&Direction, u64), into: (&Direction, u64), to: Place, until: Instant) {
        let mut current: Option<(Message, usize)> = None;
        let mut expected = 0;
        loop {
            let sequence = self.posted;
            let free = sequence < out.0.checked.load(Ordering::Acquire) + SLOTS;
            if current.is_none() && free && Instant::now() < until {
                current = Some((Message::new(out.1, sequence), 0));
            }
            if let Some((message, from)) = current.take() {
                let from = self.post(&message, sequence, from, to);
                if from == message.parts.len() {
                    self.posted += 1;
                    out.0.sent.store(self.posted, Ordering::Release);
                } else {
                    current = Some((message, from));
                }
            }
            for (immediate, bytes) in self.poll() {
                let message = Message::new(into.1, expected);
                let last = *message.parts.last().expect("a part") as u32;
                assert_eq!((immediate, bytes), (expected as u32, last));
                self.check(&message, expected);
                self.queue_pair.post_receives(1).expect("a receive");
                expected += 1;
                into.0.checked.store(expected, Ordering::Release);
            }
            assert!(!self.queue_pair.is_error());
            self.pause();
            let now = Instant::now();
            if now >= until && current.is_none() && self.completed == self.posted {
                out.0.ended.store(true, Ordering::Release);
                let ended = into.0.ended.load(Ordering::Acquire);
                if ended && expected == into.0.sent.load(Ordering::Acquire) {
                    return;
                }
            }
            assert!(
                now < until + PATIENCE,
                "stuck: {} posted, {} done, {expected} here",
                self.posted,
                self.completed
            );
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.queue_pair.set_error();
        for key in self.keys {
            self.device.deregister(key);
        }
    }
}

#[test]
fn random_traffic_arrives_byte_for_byte() {
    let seconds = std::env::var("R2CCL_TEST_STRESS_S").map(|text| text.parse::<f64>());
    let (seconds, seed) = match seconds {
        Ok(seconds) => (seconds.expect("seconds"), u64::from(std::process::id())),
        Err(_) => (5.0, 1),
    };
    for lanes in 0..=3 {
        let seed = seed * 8 + lanes as u64;
        println!("{lanes} lanes, seed {seed}");
        let mut ends = [11, 12].map(|host| End::new(lanes, host, seed ^ u64::from(host)));
        let places = [ends[0].place(), ends[1].place()];
        let ways = [Direction::default(), Direction::default()];
        let until = Instant::now() + Duration::from_secs_f64(seconds / 4.0);
        let [a, b] = &mut ends;
        a.queue_pair.connect(&places[1].address).expect("connects");
        b.queue_pair.connect(&places[0].address).expect("connects");
        std::thread::scope(|scope| {
            for (end, own, other) in [(a, 0, 1), (b, 1, 0)] {
                let ways = &ways;
                scope.spawn(move || {
                    let salt = |way: usize| seed << 1 | way as u64;
                    let (out, into) = ((&ways[own], salt(own)), (&ways[other], salt(other)));
                    end.run(out, into, places[other], until);
                });
            }
        });
        for way in &ways {
            let count = way.checked.load(Ordering::Relaxed);
            assert!(count > SLOTS, "{lanes} lanes: only {count} messages");
        }
    }
}
