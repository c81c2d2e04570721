//! Which ports and addresses are taken, and what is said of the others.

use r2ccl_fabric::Device;
use r2ccl_fabric::verbs::{AddressFamily, Found, GidPolicy, VerbsConfig, open_all};

use super::config;
use super::queue_pairs::lab;

fn names(found: &Found) -> Vec<&str> {
    let names = found.ports.iter().map(|port| &*port.device.info().name);
    names.collect()
}

fn search(config: &VerbsConfig, allows: &dyn Fn(&str, u32) -> bool) -> Found {
    open_all(config, allows).expect("a search")
}

#[test]
#[ignore = "needs the kernel lab"]
fn all_active_ports_are_listed_with_what_is_known_of_them() {
    let found = search(&config(), &|_, _| true);
    assert_eq!(names(&found), ["rxe_a0", "rxe_b0", "rxe_a1", "rxe_b1"]);
    assert_eq!(found.notes, [""; 0]);
    let addresses = ["10.10.0.1", "10.10.0.2", "10.10.1.1", "10.10.1.2"];
    for (port, address) in found.ports.iter().zip(addresses) {
        let info = port.device.info();
        assert!(port.is_up, "{}", info.name);
        assert_eq!((info.address.as_str(), info.port), (address, 1));
        assert_eq!(info.speed_mbps, 10_000);
        assert_eq!(info.pci_path, None);
        assert!(info.queue_pairs_max > 1000 && info.message_bytes_max >= 1 << 23);
    }
    let guids = found.ports.iter().map(|port| port.device.info().guid);
    let mut guids: Vec<_> = guids.collect();
    guids.sort_unstable();
    guids.dedup();
    assert_eq!(guids.len(), 4, "{guids:x?}");
}

#[test]
#[ignore = "needs the kernel lab"]
fn wishes_choose_among_them() {
    let found = search(&config(), &|device, port| {
        device.ends_with('1') && port == 1
    });
    assert_eq!(names(&found), ["rxe_a1", "rxe_b1"]);
    let found = search(&config(), &|device, _| device == "mlx5_0");
    assert_eq!(names(&found), [""; 0]);
    assert!(found.notes[0].contains("rxe_a0") && found.notes[0].contains("NCCL_IB_HCA"));
}

#[test]
#[ignore = "needs the kernel lab"]
fn ports_that_are_down_stand_by() {
    lab("lab-cut a1 admin");
    let found = search(&config(), &|_, _| true);
    let alone = search(&config(), &|device, _| device == "rxe_a1");
    lab("lab-heal a1");
    assert_eq!(names(&found), ["rxe_a0", "rxe_b0", "rxe_a1", "rxe_b1"]);
    let up: Vec<_> = found.ports.iter().map(|port| port.is_up).collect();
    assert_eq!(up, [true, true, false, true]);
    let note = "rxe_a1 is left out: its link is down; it stands by from when it is up";
    assert_eq!(found.notes, [note]);
    assert!(alone.ports.is_empty() && alone.notes[1].contains("no RDMA port"));
}

#[test]
#[ignore = "needs the kernel lab"]
fn addresses_follow_the_policy() {
    let with = |gid: GidPolicy| {
        let config = VerbsConfig { gid, ..config() };
        search(&config, &|device, _| device == "rxe_a0")
    };
    let default = GidPolicy::default();
    let version_1 = with(GidPolicy {
        roce_version: 1,
        ..default
    });
    assert_eq!(version_1.ports[0].device.info().address, "10.10.0.1");
    assert!(
        version_1.notes[0].contains("RoCE version 1"),
        "{:?}",
        version_1.notes
    );
    let link_local = with(GidPolicy {
        index: Some(0),
        ..default
    });
    assert!(
        link_local.ports[0]
            .device
            .info()
            .address
            .starts_with("fe80::")
    );
    assert_eq!(link_local.notes, [""; 0]);
    let version_6 = with(GidPolicy {
        family: AddressFamily::V6,
        ..default
    });
    assert!(
        version_6.ports[0]
            .device
            .info()
            .address
            .starts_with("fe80::")
    );
    assert!(
        version_6.notes[0].contains("NCCL_IB_GID_INDEX"),
        "{:?}",
        version_6.notes
    );
    let absent = with(GidPolicy {
        index: Some(99),
        ..default
    });
    assert!(absent.ports.is_empty() && absent.notes[0].contains("no GID"));
}
