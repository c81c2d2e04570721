//! The conformance list of devices, on the software NIC: on the caller's thread alone, with lanes,
//! and mixed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use r2ccl_fabric::SharedDevice;
use r2ccl_fabric::conformance::{BEHAVIOURS, Fixture};
use r2ccl_fabric::soft::{SoftConfig, SoftDevice};

struct Soft {
    devices: (Arc<SoftDevice>, Arc<SoftDevice>),
}

/// A loopback address for each of two NICs.
const VERSION_4: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3)),
];
/// There is only one of version 6.
const VERSION_6: [IpAddr; 2] = [IpAddr::V6(Ipv6Addr::LOCALHOST); 2];

impl Soft {
    fn new(addresses: [IpAddr; 2], lanes: (usize, usize)) -> Self {
        let open = |name: &str, address, lanes| {
            let config = SoftConfig::new(name, address, 10_000);
            SoftDevice::open(SoftConfig {
                lanes: Some(lanes),
                ..config
            })
            .expect("a device")
        };
        Self {
            devices: (
                open("soft0", addresses[0], lanes.0),
                open("soft1", addresses[1], lanes.1),
            ),
        }
    }
}

impl Fixture for Soft {
    fn devices(&self) -> (SharedDevice, SharedDevice) {
        (self.devices.0.clone(), self.devices.1.clone())
    }
}

fn run(lanes: (usize, usize)) {
    run_on(VERSION_4, lanes);
}

fn run_on(addresses: [IpAddr; 2], lanes: (usize, usize)) {
    let fixture = Soft::new(addresses, lanes);
    for behaviour in BEHAVIOURS {
        let start = std::time::Instant::now();
        println!("{} with {lanes:?} lanes", behaviour.name);
        (behaviour.run)(&fixture);
        println!("    {:?}", start.elapsed());
    }
}

#[test]
fn soft_without_lanes() {
    run((0, 0));
}

#[test]
fn soft_over_version_6() {
    run_on(VERSION_6, (1, 1));
}

#[test]
fn soft_with_lanes() {
    run((2, 2));
}

#[test]
fn soft_with_lanes_at_one_end_only() {
    run((4, 0));
}

#[test]
fn soft_with_unequal_lanes() {
    run((1, 3));
}
