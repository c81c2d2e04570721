//! Tests of the choice of interfaces.

use super::*;

/// A host from lines `name flags address…`, where flags are of `u` (up), `c` (carrier), `l`
/// (loopback). The kernel's numbers follow the order; addresses of version 6 come last, as
/// getifaddrs gives them.
fn host(lines: &[&str]) -> Vec<LocalAddress> {
    let mut all = Vec::new();
    for (line, index) in lines.iter().zip(1..) {
        let mut words = line.split_whitespace();
        let (name, flags) = (words.next().unwrap(), words.next().unwrap());
        let local = LocalAddress {
            name: name.to_owned(),
            index,
            address: None,
            is_up: flags.contains('u'),
            has_carrier: flags.contains('c'),
            is_loopback: flags.contains('l'),
        };
        let with = |text: &str| Some(text.parse().unwrap());
        all.extend(words.map(|text| LocalAddress {
            address: with(text),
            ..local.clone()
        }));
        all.push(local);
    }
    all.sort_by_key(|local| {
        local
            .address
            .map_or(0, |address| 1 + u8::from(address.is_ipv6()))
    });
    all
}

fn chosen(all: &[LocalAddress], rule: &str, family: SocketFamily) -> String {
    let rule = (!rule.is_empty()).then(|| InterfaceRule::new(rule));
    let found = choose(all, rule.as_ref(), family);
    let words: Vec<String> = found
        .iter()
        .map(|(local, address)| format!("{}={address}", local.name))
        .collect();
    words.join(" ")
}

const LO: &str = "lo ucl 127.0.0.1 ::1";

#[test]
fn automatic_order_is_nccls() {
    let cases: &[(&[&str], &str)] = &[
        (&[LO], "lo=127.0.0.1"),
        (&[LO, "docker0 uc 172.17.0.1"], "docker0=172.17.0.1"),
        (&[LO, "virbr0 uc 192.168.122.1"], "lo=127.0.0.1"),
        (&["virbr0 uc 192.168.122.1"], "virbr0=192.168.122.1"),
        (
            &[LO, "docker0 uc 172.17.0.1", "eth0 uc 10.0.0.1"],
            "eth0=10.0.0.1",
        ),
        (
            &[LO, "eth0 uc 10.0.0.1", "ens5 uc 10.1.0.1"],
            "eth0=10.0.0.1 ens5=10.1.0.1",
        ),
        (
            &[
                LO,
                "eth0 uc 10.0.0.1",
                "ib1 uc 10.2.0.1",
                "ibp3 uc 10.3.0.1",
            ],
            "ib1=10.2.0.1 ibp3=10.3.0.1",
        ),
        (&[LO, "ib0 u 10.2.0.1", "eth0 uc 10.0.0.1"], "eth0=10.0.0.1"),
        (&[LO, "ib0 uc", "eth0 c 10.0.0.1"], "lo=127.0.0.1"),
        (&["eth0 c 10.0.0.1"], ""),
        (&[], ""),
    ];
    for (lines, expected) in cases {
        assert_eq!(
            chosen(&host(lines), "", SocketFamily::Any),
            *expected,
            "{lines:?}"
        );
    }
}

#[test]
fn rules_choose_among_usable_interfaces() {
    let all = host(&[
        LO,
        "eth0 uc 10.0.0.1 10.0.0.7",
        "eth1 u 10.0.1.1",
        "docker0 uc 172.17.0.1",
    ]);
    let cases = [
        ("eth", "eth0=10.0.0.1"),
        ("=lo", "lo=127.0.0.1"),
        ("lo,eth", "lo=127.0.0.1 eth0=10.0.0.1"),
        ("docker", "docker0=172.17.0.1"),
        // Loopback only if there is nothing else.
        ("^docker", "eth0=10.0.0.1"),
        ("^=docker0", "eth0=10.0.0.1"),
        ("^docker,eth", "lo=127.0.0.1"),
        ("^lo", "eth0=10.0.0.1 docker0=172.17.0.1"),
        ("eth1", ""),
        ("wlan", ""),
        ("^d,e,l", ""),
    ];
    for (rule, expected) in cases {
        assert_eq!(chosen(&all, rule, SocketFamily::Any), expected, "{rule}");
    }
}

#[test]
fn families_and_link_local_addresses() {
    use SocketFamily::{Any, V4, V6};
    let all = host(&[
        LO,
        "eth0 uc 10.0.0.1 fe80::1 fd00::1",
        "eth1 uc fe80::2",
        "eth2 uc fd00::3",
    ]);
    let cases = [
        ("", Any, "eth0=10.0.0.1 eth2=fd00::3"),
        ("", V4, "eth0=10.0.0.1"),
        ("", V6, "eth0=fd00::1 eth2=fd00::3"),
        ("eth1", Any, "eth1=fe80::2"),
        ("eth1", V4, ""),
        ("eth1,eth2", Any, "eth2=fd00::3"),
        ("=lo", V6, "lo=::1"),
    ];
    for (rule, family, expected) in cases {
        assert_eq!(chosen(&all, rule, family), expected, "{rule:?} {family:?}");
    }
    let only = host(&["eth0 uc fe80::1"]);
    assert_eq!(chosen(&only, "", Any), "eth0=fe80::1");
}

fn placed(all: &[LocalAddress], text: &str) -> Result<String> {
    let settings = Settings::from_pairs([("R2CCL_SOFT_NICS", text)]);
    assert_eq!(settings.complaints, []);
    let (local, address) = place(all, &settings.soft_nics[0].place, SocketFamily::Any)?;
    Ok(format!("{}={address}", local.name))
}

#[test]
fn soft_nics_stand_on_local_addresses_only() {
    let all = host(&[
        LO,
        "eth0 uc 10.0.0.1 10.0.0.7",
        "eth1 u 10.0.1.1",
        "eth2 c 10.0.2.1",
        "e3 uc",
        "e4 uc fe80::1 fd00::4",
    ]);
    let good = [
        ("eth0", "eth0=10.0.0.1"),
        ("10.0.0.7", "eth0=10.0.0.7"),
        ("eth1", "eth1=10.0.1.1"),
        ("127.0.0.1", "lo=127.0.0.1"),
        ("127.0.0.9", "lo=127.0.0.9"),
        ("::1", "lo=::1"),
        ("e4", "e4=fd00::4"),
        ("fe80::1", "e4=fe80::1"),
    ];
    for (text, expected) in good {
        assert_eq!(placed(&all, text).unwrap(), expected);
    }
    let bad = [
        ("eth", "eth is no interface of this host"),
        ("eth2", "eth2 is down"),
        ("e3", "e3 has no address"),
        ("10.0.0.9", "10.0.0.9 is not an address of this host"),
        (
            "10.0.2.1",
            "10.0.2.1 is not an address of this host, or its interface is down",
        ),
        ("::2", "::2 is not"),
    ];
    let hosts = "lo (127.0.0.1), eth0 (10.0.0.1), eth1 (no carrier), eth2 (down), e3 (no address)";
    for (text, part) in bad {
        let error = placed(&all, text).unwrap_err();
        assert!(matches!(error, Error::Usage(_)), "{error:?}");
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("R2CCL_SOFT_NICS: {part}")),
            "{message}"
        );
        assert!(message.contains(hosts), "{message}");
    }
    let without_loopback = host(&["eth0 uc 10.0.0.1"]);
    assert!(placed(&without_loopback, "127.0.0.2").is_err());
}

/// A made-up tree with speeds of interfaces.
fn sysfs(speeds: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (interface, speed) in speeds {
        let directory = root.path().join("class/net").join(interface);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("speed"), speed).unwrap();
    }
    root
}

fn settings(root: &Path, pairs: &[(&str, &str)]) -> Settings {
    let root = root.display().to_string();
    let all = pairs
        .iter()
        .copied()
        .chain([("R2CCL_SYSFS", root.as_str())]);
    let settings = Settings::from_pairs(all);
    assert_eq!(settings.complaints, []);
    settings
}

#[test]
fn speeds_that_make_no_sense_are_unknown() {
    let cases = [
        ("100000\n", Some(100_000)),
        ("1", Some(1)),
        ("-1\n", None),
        ("0", None),
        ("4294967295", None),
        ("", None),
        ("fast", None),
    ];
    for (text, expected) in cases {
        let root = sysfs(&[("eth0", text)]);
        assert_eq!(speed_mbps(root.path(), "eth0"), expected, "{text:?}");
        assert_eq!(speed_mbps(root.path(), "eth1"), None);
    }
}

#[test]
fn loopback_of_this_host() {
    let root = sysfs(&[]);
    let lo = settings(root.path(), &[("NCCL_SOCKET_IFNAME", "=lo")]);
    let interfaces = select(&lo).unwrap();
    let [interface] = &interfaces[..] else {
        panic!("{interfaces:?}")
    };
    assert_eq!(
        (interface.name.as_str(), interface.is_loopback),
        ("lo", true)
    );
    assert!(interface.address.is_loopback() && interface.index > 0);
    assert_eq!(interface.speed_mbps, None);
    assert_eq!(control_addresses(&lo).unwrap(), [interface.address]);
    let [nic] = &soft_nics(&lo).unwrap()[..] else {
        panic!("one interface, one NIC")
    };
    assert_eq!(
        (nic.name.as_str(), nic.speed_mbps),
        ("soft0", SPEED_UNKNOWN_MBPS)
    );
    assert_eq!(
        (nic.address, nic.rate_limit_bytes_per_s),
        (interface.address, None)
    );
}

#[test]
fn soft_nics_as_they_were_written() {
    let root = sysfs(&[("lo", "25000")]);
    let list = "127.0.0.2@10G,lo*2,127.0.0.3*2@2.5G";
    let nics = soft_nics(&settings(root.path(), &[("R2CCL_SOFT_NICS", list)])).unwrap();
    let shown: Vec<String> = nics
        .iter()
        .map(|nic| {
            let SoftNicSpec {
                name,
                interface,
                address,
                speed_mbps,
                ..
            } = nic;
            let limit = nic.rate_limit_bytes_per_s;
            format!("{name} {interface} {address} {speed_mbps} {limit:?}")
        })
        .collect();
    let expected = [
        "soft0 lo 127.0.0.2 10000 Some(1250000000)",
        "soft1 lo 127.0.0.1 25000 None",
        "soft2 lo 127.0.0.1 25000 None",
        "soft3 lo 127.0.0.3 2500 Some(312500000)",
        "soft4 lo 127.0.0.3 2500 Some(312500000)",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn nothing_usable_says_what_there_is() {
    let root = sysfs(&[]);
    let unknown = settings(root.path(), &[("NCCL_SOCKET_IFNAME", "^=e,^x,nosuch")]);
    assert!(select(&unknown).is_ok());
    let unknown = settings(root.path(), &[("NCCL_SOCKET_IFNAME", "nosuch,=lo")]);
    for error in [
        select(&unknown).unwrap_err(),
        soft_nics(&unknown).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Usage(_)));
        let message = error.to_string();
        assert!(
            message.starts_with("NCCL_SOCKET_IFNAME=nosuch,=lo allows no"),
            "{message}"
        );
        assert!(message.contains("lo (127.0.0.1)"), "{message}");
        assert!(
            message.ends_with("allow one of these or unset it"),
            "{message}"
        );
    }
    let automatic = settings(root.path(), &[("NCCL_SOCKET_FAMILY", "AF_INET6")]);
    let error = nothing_chosen(&[], &automatic);
    assert!(matches!(error, Error::System(_)));
    assert!(error.to_string().contains("AF_INET6"), "{error}");
    assert!(
        error.to_string().contains("there are no interfaces"),
        "{error}"
    );
}

#[test]
fn long_lists_are_cut() {
    let lines: Vec<String> = (0..40)
        .map(|number| format!("eth{number} uc 10.0.0.1"))
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let list = list(&host(&lines));
    assert!(list.ends_with(" and 24 more"), "{list}");
    assert!(list.len() < 600);
}
