//! Speed of two software NICs on loopback, one thread each: `soft_bench [LANES [SECONDS
//! [BYTES...]]]`.
//!
//! Prints one-way bandwidth for several message sizes, eight in flight, and half the round trip of
//! an 8-byte ping-pong. Every message is a write with immediate.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use r2ccl_fabric::soft::{SoftConfig, SoftDevice};
use r2ccl_fabric::{
    Access, Completion, Device, Opcode, QueuePair, QueuePairConfig, Registration, SendWork,
    Traffic, WriteSource,
};

const IN_FLIGHT: u64 = 8;

struct End {
    queue_pair: Box<dyn QueuePair>,
    memory: Vec<u64>,
    registration: Registration,
}

impl End {
    fn new(device: &SoftDevice, bytes: usize) -> Self {
        let mut memory = vec![1u64; bytes / 8];
        let config = QueuePairConfig {
            send_depth: 64,
            receive_depth: 64,
            traffic: Traffic::Data,
        };
        let mut queue_pair = device.create_queue_pair(config).expect("a queue pair");
        queue_pair.post_receives(64).expect("receives");
        let address = memory.as_mut_ptr().cast();
        // SAFETY: the memory lives as long as the queue pair, and the bench ends with both.
        let registration = unsafe { device.register(address, bytes, Access::RemoteWrite) };
        Self {
            queue_pair,
            memory,
            registration: registration.expect("a registration"),
        }
    }

    fn write_to(&self, peer: &End, bytes: usize) -> SendWork {
        SendWork {
            id: 0,
            source: WriteSource::Registered {
                address: self.memory.as_ptr() as u64,
                len: bytes as u32,
                lkey: self.registration.lkey,
            },
            remote_address: peer.memory.as_ptr() as u64,
            rkey: peer.registration.rkey,
            immediate: Some(1),
            signaled: true,
        }
    }

    /// Polls once: writes that completed and immediates that arrived.
    fn poll(&mut self) -> (u64, u64) {
        let mut completions = [Completion::EMPTY; 16];
        let count = self.queue_pair.poll(&mut completions);
        let arrived = completions[..count]
            .iter()
            .filter(|it| it.opcode == Opcode::ReceiveImmediate)
            .count();
        if arrived > 0 {
            self.queue_pair
                .post_receives(arrived as u32)
                .expect("receives");
        }
        assert!(!self.queue_pair.is_error(), "the connection has failed");
        ((count - arrived) as u64, arrived as u64)
    }

    fn post(&mut self, work: &SendWork) {
        // SAFETY: the memory lives as long as the queue pair.
        let posted = unsafe { self.queue_pair.post_send(std::slice::from_ref(work)) };
        assert_eq!(posted, Ok(1));
    }
}

fn ends(lanes: Option<usize>, bytes: usize) -> (End, End, [std::sync::Arc<SoftDevice>; 2]) {
    let open = |name: &str| {
        let config = SoftConfig::new(name, IpAddr::V4(Ipv4Addr::LOCALHOST), 10_000);
        SoftDevice::open(SoftConfig { lanes, ..config }).expect("a device")
    };
    let devices = [open("soft0"), open("soft1")];
    let (mut a, mut b) = (End::new(&devices[0], bytes), End::new(&devices[1], bytes));
    let (of_a, of_b) = (a.queue_pair.address(), b.queue_pair.address());
    a.queue_pair.connect(&of_b).expect("connects");
    b.queue_pair.connect(&of_a).expect("connects");
    (a, b, devices)
}

fn stream(lanes: Option<usize>, bytes: usize, time: Duration) {
    let (mut a, mut b, _devices) = ends(lanes, bytes);
    let work = a.write_to(&b, bytes);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                b.poll();
            }
        });
        let (mut posted, mut done, mut polls) = (0, 0, 0u64);
        let start = Instant::now();
        while start.elapsed() < time {
            while posted - done < IN_FLIGHT {
                a.post(&work);
                posted += 1;
            }
            done += a.poll().0;
            polls += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let rate = done as f64 * bytes as f64 / seconds / 1e9;
        println!("stream {bytes:>8} B x {IN_FLIGHT}: {rate:6.2} GB/s, {polls} polls, {done} done");
    });
}

fn ping_pong(lanes: Option<usize>, bytes: usize, time: Duration) {
    let (mut a, mut b, _devices) = ends(lanes, 4096);
    let there = a.write_to(&b, bytes);
    let back = b.write_to(&a, bytes);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if b.poll().1 > 0 {
                    b.post(&SendWork {
                        signaled: false,
                        ..back
                    });
                }
            }
        });
        let mut halves = Vec::new();
        let start = Instant::now();
        while start.elapsed() < time {
            let before = Instant::now();
            a.post(&SendWork {
                signaled: false,
                ..there
            });
            while a.poll().1 == 0 {}
            halves.push(before.elapsed().as_nanos() as f64 / 2000.0);
        }
        stop.store(true, Ordering::Relaxed);
        halves.sort_by(f64::total_cmp);
        let at = |share: f64| halves[((halves.len() - 1) as f64 * share) as usize];
        println!(
            "ping-pong {bytes} B: half round trip {:.2} us median, {:.2} us p99, {} rounds",
            at(0.5),
            at(0.99),
            halves.len()
        );
    });
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let lanes = arguments.next().and_then(|text| text.parse().ok());
    let seconds = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1.0);
    let time = Duration::from_secs_f64(seconds);
    let mut sizes: Vec<usize> = arguments.filter_map(|text| text.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![8, 4096, 32_768, 65_536, 131_072, 524_288, 1 << 20, 4 << 20];
    }
    for bytes in sizes {
        stream(lanes, bytes, time);
    }
    for bytes in [8, 4096] {
        ping_pong(lanes, bytes, time);
    }
}
