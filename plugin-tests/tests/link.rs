//! A link that goes away and comes back, in a network namespace of this test's own: events, port
//! state, and the end of work when the other host falls silent.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use r2ccl_fabric::soft::{SoftConfig, SoftDevice};
use r2ccl_fabric::{
    Completion, Device, DeviceEvent, PortState, QueuePair, QueuePairConfig, SendWork, Status,
    Traffic,
};
use r2ccl_plugin_tests::network::in_own_network;

const PATIENCE: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_millis(300);

/// Switches the loopback interface on or off.
fn switch(up: bool) {
    // SAFETY: the request is zeroed memory with a name; the calls only read and write it.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        assert!(socket >= 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        assert_eq!(libc::ioctl(socket, libc::SIOCGIFFLAGS, &mut request), 0);
        let flags = i32::from(request.ifr_ifru.ifru_flags);
        let flags = if up {
            flags | libc::IFF_UP
        } else {
            flags & !libc::IFF_UP
        };
        request.ifr_ifru.ifru_flags = flags as i16;
        assert_eq!(libc::ioctl(socket, libc::SIOCSIFFLAGS, &request), 0);
        libc::close(socket);
    }
}

fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn device(lanes: usize) -> Arc<SoftDevice> {
    let config = SoftConfig::new("soft0", IpAddr::V4(Ipv4Addr::new(127, 0, 0, 8)), 10_000);
    let config = SoftConfig {
        lanes: Some(lanes),
        silence: SILENCE,
        ..config
    };
    SoftDevice::open(config).expect("a device")
}

/// Two queue pairs of a device, connected with each other.
fn pair(device: &SoftDevice) -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    let config = QueuePairConfig {
        send_depth: 8,
        receive_depth: 8,
        traffic: Traffic::Data,
    };
    let create = || device.create_queue_pair(config).expect("a queue pair");
    let (mut a, mut b) = (create(), create());
    a.connect(&b.address()).expect("connects");
    b.connect(&a.address()).expect("connects");
    (a, b)
}

/// Posts a write without bytes.
fn post(queue_pair: &mut dyn QueuePair, id: u64) {
    // SAFETY: the write is empty.
    let posted = unsafe { queue_pair.post_send(&[SendWork::empty(id)]) };
    assert_eq!(posted, Ok(1));
}

#[test]
fn a_link_that_goes_and_comes_is_an_event() {
    if !in_own_network("a_link_that_goes_and_comes_is_an_event") {
        return;
    }
    switch(true);
    let device = device(0);
    assert_eq!(device.port_state(), PortState::Active);
    for _ in 0..3 {
        switch(false);
        let mut event = None;
        wait("the loss", || {
            event = device.poll_event();
            event.is_some()
        });
        assert_eq!(
            (event, device.port_state()),
            (Some(DeviceEvent::PortDown), PortState::Down)
        );
        switch(true);
        wait("the return", || {
            event = device.poll_event();
            event.is_some()
        });
        assert_eq!(
            (event, device.port_state()),
            (Some(DeviceEvent::PortUp), PortState::Active)
        );
    }
}

#[test]
fn a_black_hole_ends_in_retry_exceeded() {
    if !in_own_network("a_black_hole_ends_in_retry_exceeded") {
        return;
    }
    switch(true);
    let device = device(1);
    let (mut a, mut b) = pair(&device);
    let mut done = [Completion::EMPTY; 1];
    post(a.as_mut(), 1);
    wait("a write in health", || {
        b.poll(&mut []);
        a.poll(&mut done) == 1
    });
    assert_eq!(done[0].status, Status::Success);
    switch(false);
    let start = Instant::now();
    post(a.as_mut(), 2);
    wait("the end of retries", || {
        b.poll(&mut []);
        a.poll(&mut done) == 1
    });
    assert_eq!((done[0].id, done[0].status), (2, Status::RetryExceeded));
    assert!(
        start.elapsed() >= SILENCE,
        "given up after {:?} only",
        start.elapsed()
    );
}

#[test]
fn a_program_that_sleeps_is_not_a_silent_host() {
    if !in_own_network("a_program_that_sleeps_is_not_a_silent_host") {
        return;
    }
    switch(true);
    let device = device(0);
    let (mut a, mut b) = pair(&device);
    post(a.as_mut(), 1);
    // Nobody polls the target for longer than the limit; its host acknowledges all the same.
    let until = Instant::now() + 3 * SILENCE;
    let mut done = [Completion::EMPTY; 1];
    while Instant::now() < until {
        assert_eq!(a.poll(&mut done), 0);
        std::thread::yield_now();
    }
    wait("the write", || {
        b.poll(&mut []);
        a.poll(&mut done) == 1
    });
    assert_eq!(done[0].status, Status::Success);
}
