//! Settings that cannot be, and hosts without what they ask for.

use std::net::TcpListener;

use nix::sched::{CloneFlags, unshare};
use r2ccl_abi::ncclInvalidUsage;
use r2ccl_plugin_tests::net::{Net, await_warning, until, warnings};
use r2ccl_plugin_tests::peer::connect;
use r2ccl_plugin_tests::process::alone;
use r2ccl_plugin_tests::stream::Witness;

use crate::start_peer;

/// No device, for the reason that holds every part; said every time that NCCL asks, and the
/// process lives.
fn expect_no_device(parts: &[&str]) {
    let net = Net::load();
    for _ in 0..3 {
        let (count, line) = net.devices();
        assert_eq!(count, 0, "{line}");
        for part in parts {
            assert!(line.contains(part), "{part:?} is not in: {line}");
        }
    }
    assert!(net.listen().is_err(), "a listener without a device");
}

#[test]
fn an_unknown_interface_is_named_with_those_that_exist() {
    let settings = [("R2CCL_SOFT_NICS", ""), ("NCCL_SOCKET_IFNAME", "=nosuch0")];
    alone(
        an_unknown_interface_is_named_with_those_that_exist,
        &settings,
        || {
            expect_no_device(&[
                "NCCL_SOCKET_IFNAME==nosuch0",
                "lo (127.0.0.1)",
                "allow one of these",
            ]);
        },
    );
}

#[test]
fn an_unknown_interface_of_a_soft_nic_is_named() {
    let settings = [("R2CCL_SOFT_NICS", "127.0.0.2,nosuch0*2")];
    alone(
        an_unknown_interface_of_a_soft_nic_is_named,
        &settings,
        || {
            expect_no_device(&[
                "R2CCL_SOFT_NICS",
                "nosuch0 is no interface",
                "name one of these",
            ]);
        },
    );
}

#[test]
fn an_address_of_another_host_is_no_soft_nic() {
    let settings = [("R2CCL_SOFT_NICS", "192.0.2.7")];
    alone(an_address_of_another_host_is_no_soft_nic, &settings, || {
        expect_no_device(&[
            "R2CCL_SOFT_NICS",
            "192.0.2.7 is not an address of this host",
        ]);
    });
}

#[test]
fn a_host_without_any_usable_interface_is_told_what_to_do() {
    let settings = [("R2CCL_SOFT_NICS", ""), ("NCCL_SOCKET_IFNAME", "")];
    alone(
        a_host_without_any_usable_interface_is_told_what_to_do,
        &settings,
        || {
            // Of this thread, which makes all calls; loopback is down in a new one.
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                println!("# SKIPPED: no private network namespace ({error}); run as root");
                return;
            }
            expect_no_device(&["no network interface is up", "lo (down)", "ip link set"]);
        },
    );
}

#[test]
fn verbs_are_refused_with_a_remedy() {
    alone(
        verbs_are_refused_with_a_remedy,
        &[("R2CCL_FABRIC", "verbs")],
        || {
            expect_no_device(&["R2CCL_FABRIC=verbs", "set R2CCL_FABRIC=soft"]);
        },
    );
}

#[test]
fn a_control_port_in_use_is_an_error_until_it_is_free() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    drop(taken);
    let settings = [("R2CCL_CONTROL_PORT", port.as_str())];
    alone(
        a_control_port_in_use_is_an_error_until_it_is_free,
        &settings,
        || {
            let port = std::env::var("R2CCL_CONTROL_PORT").expect("set above");
            let taken = TcpListener::bind(format!("127.0.0.1:{port}")).expect("still free");
            let net = Net::load();
            assert_eq!(net.devices().0, 2);
            for _ in 0..2 {
                let refusal = net.listen().expect_err("the port is in use");
                let parts = [port.as_str(), "127.0.0.1", "set R2CCL_CONTROL_PORT"];
                refusal.expect(ncclInvalidUsage, &parts);
            }
            drop(taken);
            Witness::start(net).finish();
        },
    );
}

#[test]
fn unknown_names_and_bad_values_are_reported_once() {
    let settings = [
        ("R2CCL_SOFT_NIC", "127.0.0.2"),
        ("R2CCL_GIVEUPP", "3"),
        ("R2CCL_ENTIRELY_MADE_UP", "1"),
        ("R2CCL_CONTROL_PORT", "70000"),
        ("R2CCL_SOFT_LANES", "many"),
    ];
    alone(
        unknown_names_and_bad_values_are_reported_once,
        &settings,
        || {
            let net = Net::load();
            for _ in 0..3 {
                // Each communicator calls init from version 11 on.
                net.init();
                assert_eq!(net.devices().0, 2);
            }
            Witness::start(net).finish();
            for parts in [
                &[
                    "R2CCL_SOFT_NIC is not a setting",
                    "did you mean R2CCL_SOFT_NICS?",
                ][..],
                &["R2CCL_GIVEUPP", "did you mean R2CCL_GIVEUP?"],
                &["R2CCL_ENTIRELY_MADE_UP", "r2ccl config"],
                &[
                    "R2CCL_CONTROL_PORT=70000",
                    "0 to 65535",
                    "the default (0) is used",
                ],
                &[
                    "R2CCL_SOFT_LANES=many",
                    "auto, 0 to 16",
                    "the default (auto) is used",
                ],
            ] {
                let lines = warnings();
                let lines = lines
                    .iter()
                    .filter(|line| parts.iter().all(|part| line.contains(part)));
                assert_eq!(lines.count(), 1, "{parts:?} in {:#?}", warnings());
            }
        },
    );
}

#[test]
fn sides_with_different_settings_both_say_which() {
    alone(sides_with_different_settings_both_say_which, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        let parts = [
            "R2CCL_ROUTING_ALGO",
            "\"static\"",
            "\"balance\"",
            "set them alike",
        ];

        // The peer listens, then we do: either side of a connection must end.
        let mut peer = start_peer(&[("R2CCL_ROUTING_ALGO", "static")]);
        let handle = peer.listen(1)[0];
        peer.tell("accept");
        let refusal = connect(net, handle).expect_err("the settings differ");
        refusal.expect(ncclInvalidUsage, &parts);
        peer.answer()
            .expect_err("the settings differ")
            .expect(ncclInvalidUsage, &parts);
        drop(peer);

        let mut peer = start_peer(&[("R2CCL_ROUTING_ALGO", "static")]);
        let (listener, handle) = net.listen().expect("a listener");
        let text: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
        peer.tell(&format!("connect {text}"));
        let accepted = until("accept", || net.accept(listener).transpose());
        accepted
            .expect_err("the settings differ")
            .expect(ncclInvalidUsage, &parts);
        peer.answer()
            .expect_err("the settings differ")
            .expect(ncclInvalidUsage, &parts);
        await_warning(&parts);
        net.close_listen(listener);

        // A peer with the same settings is welcome afterwards.
        let mut good = start_peer(&[]);
        assert_eq!(good.connect_to(net, 1).len(), 1);
        witness.finish();
    });
}
