//! The conformance list of devices, on the software NIC: on the caller's thread alone, with lanes,
//! and mixed.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use r2ccl_fabric::SharedDevice;
use r2ccl_fabric::conformance::{BEHAVIOURS, Fixture};
use r2ccl_fabric::soft::{SoftConfig, SoftDevice};

struct Soft {
    devices: (Arc<SoftDevice>, Arc<SoftDevice>),
}

impl Soft {
    fn new(lanes: (usize, usize)) -> Self {
        let open = |name: &str, last, lanes| {
            let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
            let config = SoftConfig::new(name, address, 10_000);
            SoftDevice::open(SoftConfig {
                lanes: Some(lanes),
                ..config
            })
            .expect("a device")
        };
        Self {
            devices: (open("soft0", 2, lanes.0), open("soft1", 3, lanes.1)),
        }
    }
}

impl Fixture for Soft {
    fn devices(&self) -> (SharedDevice, SharedDevice) {
        (self.devices.0.clone(), self.devices.1.clone())
    }
}

fn run(lanes: (usize, usize)) {
    let fixture = Soft::new(lanes);
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
