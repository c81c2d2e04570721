//! Tests of the table and of reading it.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn read(pairs: &[(&str, &str)]) -> Settings {
    Settings::from_pairs(pairs.iter().copied())
}

#[test]
fn nothing_set_is_all_defaults() {
    let settings = read(&[
        ("PATH", "/bin"),
        ("NCCL_DEBUG", "WARN"),
        ("R2CCL_GIVEUP", " "),
    ]);
    assert_eq!(settings.complaints, []);
    assert!(
        settings
            .describe()
            .iter()
            .all(|row| row.source == Source::Default)
    );
    assert!(
        settings
            .describe()
            .iter()
            .all(|row| row.value == row.default)
    );
    assert_eq!(settings.give_up, Duration::from_secs(60));
    assert_eq!(settings.routing_algorithm, RoutingAlgorithm::Balance);
}

#[test]
fn values_are_read() {
    let settings = read(&[
        ("R2CCL_FABRIC", "Soft"),
        ("R2CCL_SOFT_LANES", "0"),
        ("R2CCL_CONTROL_PORT", "65535"),
        ("R2CCL_GIVEUP", "2500ms"),
        ("R2CCL_LOG", " debug "),
        ("R2CCL_SYSFS", "/tmp/fake"),
        ("R2CCL_ROUTING_ALGO", "3"),
        ("NCCL_SOCKET_FAMILY", "AF_INET6"),
        ("NCCL_SOCKET_IFNAME", "^docker"),
    ]);
    assert_eq!(settings.complaints, []);
    assert_eq!(settings.fabric, Fabric::Soft);
    assert_eq!(settings.soft_lanes, Some(0));
    assert_eq!(settings.control_port, 65535);
    assert_eq!(settings.give_up, Duration::from_millis(2500));
    assert_eq!(settings.log, LogLevel::Debug);
    assert_eq!(settings.sysfs, Path::new("/tmp/fake"));
    assert_eq!(settings.routing_algorithm, RoutingAlgorithm::Planner);
    assert_eq!(settings.socket_family, SocketFamily::V6);
    assert!(
        settings
            .socket_interfaces
            .as_ref()
            .is_some_and(|rule| rule.is_exclusion())
    );
    let row = |name| {
        settings
            .describe()
            .into_iter()
            .find(|row| row.name == name)
            .unwrap()
    };
    assert_eq!(row("R2CCL_GIVEUP").value, "2500ms");
    assert_eq!(row("R2CCL_GIVEUP").source, Source::Environment);
    assert_eq!(row("R2CCL_SOFT_NICS").source, Source::Default);
}

#[test]
fn values_for_rdma_devices_are_read() {
    let settings = read(&[
        ("NCCL_IB_HCA", "=mlx5_0:1"),
        ("NCCL_IB_GID_INDEX", "3"),
        ("NCCL_IB_ADDR_FAMILY", "AF_INET6"),
        ("NCCL_IB_ADDR_RANGE", "fd00::/8"),
        ("NCCL_IB_TC", "0x6a"),
        ("NCCL_IB_SL", "-1"),
        ("NCCL_IB_FIFO_TC", "8"),
        ("NCCL_IB_PCI_RELAXED_ORDERING", "0"),
        ("NCCL_IB_MERGE_VFS", "0"),
        ("NCCL_IB_DEVICE_PCI_ORDER", "0"),
        ("NCCL_IBVERBS_LIB", "libfake.so"),
    ]);
    assert_eq!(settings.complaints, []);
    let allows = |device, port| settings.ib_devices.as_ref().unwrap().allows(device, port);
    assert!(allows("mlx5_0", 1) && !allows("mlx5_0", 2));
    assert_eq!(settings.ib_gid_index, Some(3));
    let range = settings.ib_address_range.unwrap();
    assert_eq!(
        (range.address.to_string(), range.prefix_bits),
        ("fd00::".into(), 8)
    );
    assert_eq!(settings.ib_traffic_class, Some(106));
    assert_eq!(settings.ib_service_level, None);
    assert_eq!(settings.ib_fifo_traffic_class, Some(8));
    assert!(!settings.ib_relaxed_ordering && !settings.ib_merges_functions);
    assert!(!settings.ib_is_in_pci_order);
    assert_eq!(settings.ibverbs_library.as_deref(), Some("libfake.so"));
    let bad = [
        ("NCCL_IB_GID_INDEX", "-2"),
        ("NCCL_IB_GID_INDEX", "256"),
        ("NCCL_IB_ADDR_RANGE", "10.0.0.0"),
        ("NCCL_IB_ADDR_RANGE", "10.0.0.0/33"),
        ("NCCL_IB_ADDR_RANGE", "ten/8"),
        ("NCCL_IB_RETRY_CNT", "8"),
        ("NCCL_IB_TC", "0xg"),
        ("NCCL_IB_ROCE_VERSION_NUM", "3"),
    ];
    for pair in bad {
        assert_eq!(read(&[pair]).complaints.len(), 1, "{pair:?}");
    }
}

#[test]
fn settings_of_nccl_without_effect_are_named() {
    let settings = read(&[
        ("NCCL_IB_QPS_PER_CONNECTION", "4"),
        ("NCCL_IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT", "100"),
        ("NCCL_IB_AR_THRESHOLD", ""),
        ("NCCL_ALGO", "RING"),
    ]);
    assert_eq!(settings.complaints, []);
    let names: Vec<_> = settings.unused.iter().map(|(name, _)| *name).collect();
    let expected = [
        "NCCL_IB_QPS_PER_CONNECTION",
        "NCCL_IB_RESILIENCY_PORT_RECOVERY",
    ];
    assert_eq!(names, expected);
    for (name, _) in super::unused::UNUSED {
        let is_used = super::table::TABLE.iter().any(|row| row.name == *name);
        assert!(!is_used, "{name} is in both lists");
    }
}

#[test]
fn times() {
    let cases = [
        ("60", Some(60_000_000)),
        ("1.5", Some(1_500_000)),
        ("2s", Some(2_000_000)),
        ("1000ms", Some(1_000_000)),
        ("1000001us", Some(1_000_001)),
        ("86400", Some(86_400_000_000)),
        ("86401", None),
        ("999ms", None),
        ("0", None),
        ("-1", None),
        ("1e3", None),
        ("inf", None),
        ("nan", None),
        ("s", None),
        ("1.2.3", None),
        ("10 s", None),
        ("99999999999999999999999999999", None),
    ];
    for (text, micros) in cases {
        let settings = read(&[("R2CCL_GIVEUP", text)]);
        let expected = micros.map_or(Duration::from_secs(60), Duration::from_micros);
        assert_eq!(settings.give_up, expected, "{text}");
        assert_eq!(settings.complaints.is_empty(), micros.is_some(), "{text}");
    }
}

#[test]
fn bad_values_are_reported_with_range_and_default() {
    let cases = [
        (
            "R2CCL_GIVEUP",
            "soon",
            "not a time; allowed: 1s to 86400s; the default (60s) is used",
        ),
        (
            "R2CCL_SOFT_LANES",
            "17",
            "out of range; allowed: auto, 0 to 16; the default (auto)",
        ),
        (
            "R2CCL_CONTROL_PORT",
            "65536",
            "out of range; allowed: 0 to 65535; the default (0)",
        ),
        ("R2CCL_CONTROL_PORT", "http", "not a whole number"),
        (
            "R2CCL_FABRIC",
            "rdma",
            "not one of the values; allowed: auto, verbs, soft;",
        ),
        (
            "R2CCL_ROUTING_ALGO",
            "4",
            "static = 0, hotrepair = 1, balance = 2, planner = 3;",
        ),
        ("R2CCL_SYSFS", "sys", "not an absolute path"),
        ("R2CCL_SOFT_NICS", "eth0@slow", "`slow` after `@`"),
        ("NCCL_SOCKET_FAMILY", "ipv6", "AF_INET6"),
    ];
    for (name, value, part) in cases {
        let settings = read(&[(name, value)]);
        let [complaint] = &settings.complaints[..] else {
            panic!("{name}: {settings:?}")
        };
        assert_eq!(complaint.name, name);
        let start = format!("{name}={value}: ");
        assert!(complaint.message.starts_with(&start), "{complaint}");
        assert!(complaint.message.contains(part), "{complaint}");
        assert!(
            settings
                .describe()
                .iter()
                .all(|row| row.source == Source::Default)
        );
    }
}

#[test]
fn unknown_names_are_reported_with_the_nearest() {
    let cases = [
        ("R2CCL_GIVUP", "did you mean R2CCL_GIVEUP?"),
        ("R2CCL_GIVE_UP", "did you mean R2CCL_GIVEUP?"),
        ("R2CCL_SOFTNICS", "did you mean R2CCL_SOFT_NICS?"),
        ("R2CCL_soft_nics", "did you mean R2CCL_SOFT_NICS?"),
        ("R2CCL_HOSTID", "did you mean R2CCL_HOST_ID?"),
        ("R2CCL_COMPLETELY_DIFFERENT", "`r2ccl config` lists"),
    ];
    for (name, part) in cases {
        let settings = read(&[(name, "1")]);
        let [complaint] = &settings.complaints[..] else {
            panic!("{name}: {settings:?}")
        };
        assert!(complaint.message.starts_with(name), "{complaint}");
        assert!(complaint.message.contains(part), "{complaint}");
    }
    assert_eq!(
        read(&[("NCCL_GIVEUP", "1"), ("R2CC_GIVEUP", "1"), ("R2CCL", "1")]).complaints,
        []
    );
}

#[test]
fn complaints_are_short_and_clean() {
    let long = format!("eth0@{}\n\0", "é".repeat(100_000));
    let settings = read(&[("R2CCL_GIVEUP", &long), (&format!("R2CCL_{long}"), "1")]);
    assert_eq!(settings.complaints.len(), 2);
    for complaint in &settings.complaints {
        assert!(
            complaint.message.len() < 600,
            "{} bytes",
            complaint.message.len()
        );
        assert!(!complaint.message.chars().any(char::is_control));
    }
}

#[test]
fn defaults_and_rows_are_sound() {
    let mut names: Vec<&str> = table::TABLE.iter().map(|row| row.name).collect();
    for row in Settings::defaults().describe() {
        if row.default != "unset" {
            let again = read(&[(row.name, &row.default)]);
            assert_eq!(again.complaints, [], "{}", row.name);
            let shown = again
                .describe()
                .into_iter()
                .find(|other| other.name == row.name)
                .unwrap();
            assert_eq!(
                (shown.value, shown.source),
                (row.default.clone(), Source::Environment)
            );
        }
        assert!(row.meaning.ends_with('.'), "{}: not a sentence", row.name);
        assert!(!row.meaning.contains("  "), "{}: stray spaces", row.name);
        assert_eq!(
            row.name.starts_with("NCCL_"),
            row.stability == Stability::Nccl
        );
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), table::TABLE.len(), "a name stands twice");
}

#[test]
fn what_both_ends_must_share_depends_on_nothing_else() {
    let default = read(&[]);
    let names: Vec<_> = default.shared().into_iter().map(|(name, _)| name).collect();
    let shared = [
        "R2CCL_FENCE",
        "R2CCL_FLAP_DAMPING",
        "R2CCL_HOLD_DOWN",
        "R2CCL_QUARANTINE",
        "R2CCL_ROUTING_ALGO",
    ];
    assert_eq!(names, shared);
    let same = read(&[
        ("R2CCL_ROUTING_ALGO", "2"),
        ("R2CCL_GIVEUP", "5"),
        ("R2CCL_LOG", "off"),
    ]);
    assert_eq!(default.shared(), same.shared());
    let other = read(&[("R2CCL_ROUTING_ALGO", "0")]);
    assert_ne!(default.shared(), other.shared());
}

#[test]
fn document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/CONFIG.md");
    if std::env::var_os("UPDATE_CONFIG_MD").is_some() {
        std::fs::write(&path, markdown()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let advice = "docs/CONFIG.md is not what the table says: UPDATE_CONFIG_MD=1 makes it anew";
    assert!(written == markdown(), "{advice}");
}

/// Names of all settings, and some that are none.
fn any_name() -> impl Strategy<Value = String> {
    let known: Vec<String> = table::TABLE.iter().map(|row| row.name.to_owned()).collect();
    prop_oneof![4 => prop::sample::select(known), 1 => "R2CCL_\\PC{0,12}", 1 => any::<String>()]
}

/// Text near to what the parsers look for, and any other.
fn any_value() -> impl Strategy<Value = String> {
    prop_oneof!["[-0-9a-zA-Z.,*@:^=/ é]{0,24}", any::<String>()]
}

proptest! {
    #[test]
    fn any_environment_is_read(pairs in prop::collection::vec((any_name(), any_value()), 0..8)) {
        let settings = Settings::from_pairs(pairs_of(&pairs));
        let given = settings.describe().iter().filter(|r| r.source == Source::Environment).count();
        prop_assert!(given + settings.complaints.len() <= pairs.len());
        settings.host_identity();
        // What is shown can be set again and then means the same.
        let rows = settings.describe();
        let shown = rows.iter().filter(|row| row.source == Source::Environment);
        let again = Settings::from_pairs(shown.map(|row| (row.name, row.value.as_str())));
        prop_assert_eq!(&again.complaints, &[]);
        prop_assert_eq!(again.shared(), settings.shared());
    }
}

fn pairs_of(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}
