//! Faults that a NIC is told to have, seen from both ends of a queue pair.

use super::*;
use crate::{DeviceEvent, Fault, PortState};

/// Long enough for a write that is not held back to arrive, many times.
const HOLD: Duration = Duration::from_millis(50);
/// After this the faulty end of a connection gives up.
const SILENCE: Duration = Duration::from_millis(300);

/// The NIC that has the faults, another one, and a queue pair between them.
struct Bench {
    faulty: Arc<SoftDevice>,
    other: Arc<SoftDevice>,
    pair: [Box<dyn QueuePair>; 2],
    memory: Vec<u64>,
    registrations: [Registration; 2],
}

impl Bench {
    fn new(lanes: usize) -> Self {
        let open = |last| {
            let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
            SoftDevice::open(SoftConfig {
                lanes: Some(lanes),
                silence: SILENCE,
                ..SoftConfig::new(format!("soft{last}"), address, 10_000)
            })
            .expect("a device")
        };
        let (faulty, other) = (open(9), open(8));
        let pair = connected(&faulty, &other);
        let mut memory = vec![0u64; BYTES / 8];
        // SAFETY: `drop` fences the queue pair and ends the registrations before the memory goes.
        let registrations = [&faulty, &other].map(|device| unsafe {
            let address = memory.as_mut_ptr().cast();
            let registered = device.register(address, BYTES, Access::RemoteWrite);
            registered.expect("a registration")
        });
        let mut bench = Self {
            faulty,
            other,
            pair,
            memory,
            registrations,
        };
        bench.post();
        wait("the first write", || bench.poll() == 1);
        bench
    }

    /// Posts a write of [`BYTES`] at the faulty NIC.
    fn post(&mut self) {
        let address = self.memory.as_ptr() as u64;
        let work = SendWork {
            source: WriteSource::Registered {
                address,
                len: BYTES as u32,
                lkey: self.registrations[0].lkey,
            },
            remote_address: address,
            rkey: self.registrations[1].rkey,
            ..SendWork::empty(1)
        };
        // SAFETY: the region outlives the queue pair.
        assert_eq!(unsafe { self.pair[0].post_send(&[work]) }, Ok(1));
    }

    /// Polls both ends; returns how many writes are done.
    fn poll(&mut self) -> usize {
        self.pair[1].poll(&mut []);
        let mut done = [Completion::EMPTY; 4];
        let count = self.pair[0].poll(&mut done);
        for done in &done[..count] {
            assert_eq!(done.status, Status::Success);
        }
        count
    }

    /// No write is done for a while.
    fn is_held(&mut self) {
        let start = Instant::now();
        while start.elapsed() < HOLD {
            assert_eq!(self.poll(), 0);
        }
    }

    fn inject(&self, fault: Fault) {
        self.faulty.inject(fault).expect("a software NIC");
    }

    /// Writes that the faulty NIC has sent, as it knows, and that the other one has received.
    fn moved(&self) -> (u64, u64) {
        let writes = |bytes: u64| bytes / BYTES as u64;
        let (from, to) = (self.faulty.bytes_moved(), self.other.bytes_moved());
        (writes(from.sent), writes(to.received))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.pair.iter_mut().for_each(|end| end.set_error());
        self.faulty.deregister(self.registrations[0]);
        self.other.deregister(self.registrations[1]);
    }
}

fn connected(one: &SoftDevice, other: &SoftDevice) -> [Box<dyn QueuePair>; 2] {
    let (mut a, mut b) = (queue_pair(one), queue_pair(other));
    a.connect(&b.address()).expect("connects");
    b.connect(&a.address()).expect("connects");
    [a, b]
}

#[test]
fn a_cut_holds_one_way_only() {
    for lanes in [0, 2] {
        let mut bench = Bench::new(lanes);
        assert_eq!(bench.moved(), (1, 1));
        bench.inject(Fault::CutSend);
        bench.post();
        bench.is_held();
        assert_eq!(bench.moved(), (1, 1), "{lanes} lanes");
        bench.inject(Fault::CutReceive);
        wait("the arrival", || {
            assert_eq!(bench.poll(), 0);
            bench.moved().1 == 2
        });
        bench.is_held();
        assert_eq!(bench.moved(), (1, 2), "{lanes} lanes");
        bench.inject(Fault::BlackHole);
        bench.post();
        bench.is_held();
        assert_eq!(bench.moved(), (1, 2), "{lanes} lanes");
        assert_eq!(bench.faulty.port_state(), PortState::Active);
        assert!(bench.faulty.poll_event().is_none(), "nobody is told");
        bench.inject(Fault::Restore);
        let mut done = 0;
        wait("both writes", || {
            done += bench.poll();
            done == 2
        });
        assert_eq!(bench.moved(), (3, 3), "{lanes} lanes");
    }
}

#[test]
fn a_killed_nic_says_so_and_comes_back() {
    let mut bench = Bench::new(0);
    bench.inject(Fault::Kill);
    assert_eq!(bench.faulty.port_state(), PortState::Down);
    assert_eq!(bench.faulty.poll_event(), Some(DeviceEvent::PortDown));
    let config = QueuePairConfig {
        send_depth: 8,
        receive_depth: 8,
        traffic: Traffic::Data,
    };
    let refused = bench.faulty.create_queue_pair(config);
    let refusal = refused.err().expect("no link").to_string();
    assert!(refusal.contains("r2ccl chaos soft9 restore"), "{refusal}");
    bench.post();
    bench.is_held();
    bench.inject(Fault::Restore);
    assert_eq!(bench.faulty.poll_event(), Some(DeviceEvent::PortUp));
    wait("the write", || bench.poll() == 1);
    works(&bench.faulty);
}

/// PROTOCOL R36: whoever waits for a peer that nothing reaches is told in the end.
#[test]
fn a_silent_nic_fails_its_own_work() {
    let mut bench = Bench::new(0);
    bench.inject(Fault::BlackHole);
    bench.post();
    let mut fresh = connected(&bench.faulty, &bench.other);
    // SAFETY: the write is empty.
    assert_eq!(unsafe { fresh[0].post_send(&[SendWork::empty(7)]) }, Ok(1));
    for end in [&mut bench.pair[0], &mut fresh[0]] {
        let mut done = [Completion::EMPTY; 1];
        wait("the failure", || end.poll(&mut done) == 1);
        assert_eq!(done[0].status, Status::RetryExceeded);
    }
}

/// How exactly the rate is kept is the limiter's own test.
#[test]
fn a_slow_nic_is_fast_again_at_once() {
    let mut bench = Bench::new(0);
    // A write would take longer than any wait here.
    let bytes_per_second = 4096;
    bench.inject(Fault::Slow { bytes_per_second });
    bench.post();
    bench.is_held();
    bench.inject(Fault::Restore);
    wait("the write", || bench.poll() == 1);
}
