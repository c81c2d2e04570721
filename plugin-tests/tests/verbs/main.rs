//! RDMA devices through libibverbs, on the kernel's Soft-RoCE. Needs the kernel lab:
//! `scripts/lab/verbs.sh` runs these tests there.

mod choice;
mod product;
mod queue_pairs;

use std::sync::Arc;

use r2ccl_fabric::conformance::{BEHAVIOURS, Fixture};
use r2ccl_fabric::verbs::{self, VerbsConfig, VerbsDevice};
use r2ccl_fabric::{SharedDevice, Status};

/// Half a second without acknowledgement. With seven retries Soft-RoCE would go on without end.
fn config() -> VerbsConfig {
    VerbsConfig {
        timeout: 14,
        retry_count: 6,
        ..VerbsConfig::default()
    }
}

fn open(name: &str, config: &VerbsConfig) -> Arc<VerbsDevice> {
    let found = verbs::open_all(config, &|device, _| device == name).expect("a search");
    let first = found.ports.into_iter().next();
    let port = first.unwrap_or_else(|| panic!("{name}: {:?}", found.notes));
    port.device
}

/// A NIC of each host, on one wire.
struct Hosts {
    devices: (Arc<VerbsDevice>, Arc<VerbsDevice>),
}

impl Hosts {
    fn new(config: &VerbsConfig) -> Self {
        Self {
            devices: (open("rxe_a0", config), open("rxe_b0", config)),
        }
    }
}

impl Fixture for Hosts {
    fn devices(&self) -> (SharedDevice, SharedDevice) {
        (self.devices.0.clone(), self.devices.1.clone())
    }

    /// Soft-RoCE flushes the guilty work request with all others.
    fn local_fault(&self) -> Status {
        Status::Flushed
    }
}

fn run(config: &VerbsConfig, is_wanted: impl Fn(&str) -> bool) {
    let fixture = Hosts::new(config);
    let wanted = BEHAVIOURS.iter().filter(|it| is_wanted(it.name));
    let mut count = 0;
    for behaviour in wanted {
        let start = std::time::Instant::now();
        println!("{}", behaviour.name);
        (behaviour.run)(&fixture);
        println!("    {:?}", start.elapsed());
        count += 1;
    }
    assert!(count > 1, "no such behaviours");
}

#[test]
#[ignore = "needs the kernel lab"]
fn conformance_between_two_hosts() {
    run(&config(), |_| true);
}

/// What is not taken with the post goes through registered memory.
#[test]
#[ignore = "needs the kernel lab"]
fn conformance_of_a_device_without_inline_bytes() {
    let config = VerbsConfig {
        inline_bytes_max: 0,
        ..config()
    };
    run(&config, |name| {
        name.contains("inline") || name.contains("covers")
    });
}
