//! A shaped NIC keeps its rate: no less, and not a byte more.

use super::*;

/// Rate of the shaped NIC in bytes a second: 400 Mb/s.
const LIMIT: u64 = 50_000_000;

/// Moves half a second's bytes over two queue pairs of one shaped NIC, both ends polled by this
/// thread each `pause_us`; returns the bytes a second, and the longest time without a poll.
fn shaped(lanes: usize, pause_us: u64) -> (f64, Duration) {
    const WRITES: usize = 96;
    let config = SoftConfig::new("slow", IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)), 400);
    let config = SoftConfig {
        lanes: Some(lanes),
        rate_limit_bytes_per_s: Some(LIMIT),
        ..config
    };
    let opened = Instant::now();
    let device = SoftDevice::open(config).expect("a device");
    let mut memory = vec![0u64; BYTES / 8];
    // SAFETY: the queue pairs are fenced and the region ends before the memory is freed.
    let registration =
        unsafe { device.register(memory.as_mut_ptr().cast(), BYTES, Access::RemoteWrite) };
    let registration = registration.expect("a registration");
    let address = memory.as_ptr() as u64;
    let work = SendWork {
        id: 0,
        source: WriteSource::Registered {
            address,
            len: BYTES as u32,
            lkey: registration.lkey,
        },
        remote_address: address,
        rkey: registration.rkey,
        immediate: None,
        signaled: true,
    };
    let mut pairs: Vec<_> = (0..2)
        .map(|_| {
            let (mut a, mut b) = (queue_pair(&device), queue_pair(&device));
            a.connect(&b.address()).expect("connects");
            b.connect(&a.address()).expect("connects");
            (a, b)
        })
        .collect();
    let (mut posted, mut done) = (0, 0);
    let mut start = Instant::now();
    let (mut polled, mut gap) = (start, Duration::ZERO);
    wait("all writes", || {
        gap = gap.max(polled.elapsed());
        polled = Instant::now();
        for (a, b) in &mut pairs {
            let chain = &[work; 8][..(WRITES - posted).min(8)];
            // SAFETY: the region outlives the queue pairs.
            posted += unsafe { a.post_send(chain) }.expect("posts");
            done += a.poll(&mut [Completion::EMPTY; 8]);
            b.poll(&mut []);
        }
        if done == 0 {
            // The time to connect does not count.
            start = Instant::now();
        }
        std::thread::sleep(Duration::from_micros(pause_us));
        done == WRITES
    });
    let (elapsed, most) = (start.elapsed(), opened.elapsed());
    drop(pairs);
    device.deregister(registration);
    let bytes = (WRITES * BYTES) as f64;
    let allowed = LIMIT as f64 * most.as_secs_f64() + 64.0 * 1024.0;
    assert!(
        bytes <= allowed,
        "{bytes} B in {most:?} are more than allowed"
    );
    // The two writes that were under way at the start may have gone out before it.
    let sent = ((WRITES - 2) * BYTES) as f64;
    (sent / elapsed.as_secs_f64(), gap)
}

#[test]
fn a_shaped_nic_keeps_its_rate_exactly() {
    for (lanes, pause_us) in [(0, 0), (0, 2000), (2, 0)] {
        // On a machine that leaves this thread no time, socket buffers run dry: such a run says
        // nothing, and of the others the best one counts.
        let mut quiet = 0;
        let enough = (0..10).any(|_| {
            let (rate, gap) = shaped(lanes, pause_us);
            println!("{lanes} lanes, polls each {pause_us} µs, at worst {gap:?}: {rate:.0} B/s");
            quiet += usize::from(gap < Duration::from_millis(8));
            rate >= 0.95 * LIMIT as f64
        });
        assert!(
            enough || quiet < 3,
            "{lanes} lanes: never 95 % of {LIMIT} B/s"
        );
    }
}
