//! Handles that are no handles of a listener that listens.

use std::time::Instant;

use r2ccl_abi::{ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError};
use r2ccl_plugin_tests::net::{Handle, Net, until};
use r2ccl_plugin_tests::peer::connect;
use r2ccl_plugin_tests::process::alone;
use r2ccl_plugin_tests::stream::{Stream, Witness};

use crate::start_peer;

/// Bytes of a handle in front of the connect state, which is the sending side's.
const CHECKED_BYTES: usize = 112;

#[test]
fn damaged_and_foreign_handles_are_refused() {
    alone(damaged_and_foreign_handles_are_refused, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        let (listener, good) = net.listen().expect("a listener");
        let refusal = |mut handle: Handle| net.connect(&mut handle).expect_err("a bad handle");

        let mut truncated = good;
        truncated[60..].fill(0);
        refusal(truncated).expect(ncclInvalidUsage, &["truncated or corrupt", "on its way"]);
        let mut foreign = [0x17; 128];
        foreign[..4].copy_from_slice(b"SOCK");
        foreign[CHECKED_BYTES..].fill(0);
        let parts = ["not made by R2CCL", "load the same network plugin"];
        refusal(foreign).expect(ncclInvalidUsage, &parts);
        refusal([0; 128]).expect(ncclInvalidUsage, &["not made by R2CCL"]);
        let mut later = good;
        later[4] = 99;
        let parts = [
            "protocol version 99",
            "install the same R2CCL on both hosts",
        ];
        refusal(later).expect(ncclInvalidUsage, &parts);

        for bit in 0..CHECKED_BYTES * 8 {
            let mut flipped = good;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(refusal(flipped).code, ncclInvalidUsage, "bit {bit}");
        }
        for byte in CHECKED_BYTES..CHECKED_BYTES + 8 {
            let mut stateful = good;
            stateful[byte] = 0x40;
            assert_eq!(refusal(stateful).code, ncclInvalidArgument, "byte {byte}");
        }

        // None of this has used the handle up.
        let mut handle = good;
        let (mut send, mut receive) = (None, None);
        until("a connection", || {
            send = send.or_else(|| net.connect(&mut handle).expect("connects"));
            receive = receive.or_else(|| net.accept(listener).expect("accepts"));
            send.zip(receive)
        });
        net.close_listen(listener);
        witness.finish();
    });
}

#[test]
fn a_closed_listener_is_an_error_at_once() {
    alone(a_closed_listener_is_an_error_at_once, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        let (listener, handle) = net.listen().expect("a listener");
        net.close_listen(listener);
        let start = Instant::now();
        let refusal = connect(net, handle).expect_err("nobody listens");
        refusal.expect(ncclRemoteError, &["the receiver has closed this listener"]);

        // An offer that waits when the listener closes is declined, too.
        let (listener, mut handle) = net.listen().expect("a listener");
        assert!(net.connect(&mut handle).expect("an attempt").is_none());
        net.close_listen(listener);
        let refusal = until("refusal", || net.connect(&mut handle).err());
        refusal.expect(ncclRemoteError, &["the receiver has closed this listener"]);

        let mut peer = start_peer(&[]);
        let (listener, handle) = net.listen().expect("a listener");
        net.close_listen(listener);
        let text: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
        let refusal = peer
            .ask(&format!("connect {text}"))
            .expect_err("nobody listens");
        refusal.expect(ncclRemoteError, &["the receiver has closed this listener"]);
        println!("# closed listeners were found after {:?}", start.elapsed());
        assert!(start.elapsed().as_secs() < 5);
        witness.finish();
    });
}

#[test]
fn a_used_handle_is_refused_and_a_fresh_copy_is_another_connection() {
    alone(
        a_used_handle_is_refused_and_a_fresh_copy_is_another_connection,
        &[],
        || {
            let net = Net::load();
            let witness = Witness::start(net);
            let (listener, fresh) = net.listen().expect("a listener");
            let mut ends = Vec::new();
            for _ in 0..2 {
                let mut handle = fresh;
                let (mut send, mut receive) = (None, None);
                let (send, receive) = until("a connection", || {
                    send = send.or_else(|| net.connect(&mut handle).expect("connects"));
                    receive = receive.or_else(|| net.accept(listener).expect("accepts"));
                    send.zip(receive)
                });
                let refusal = net.connect(&mut handle).expect_err("the handle was used");
                let parts = ["belongs to a connection that was made or given up"];
                refusal.expect(ncclInvalidArgument, &parts);
                ends.push((
                    Stream::sender(net, send, 64),
                    Stream::receiver(net, receive, 64),
                ));
            }
            for (send, receive) in &mut ends {
                until("messages", || {
                    send.step(20).expect("sends");
                    receive.step(20).expect("receives");
                    (send.done == 20 && receive.done == 20).then_some(())
                });
            }
            net.close_listen(listener);
            witness.finish();
        },
    );
}

#[test]
fn a_listener_whose_process_died_is_an_error_at_once() {
    alone(
        a_listener_whose_process_died_is_an_error_at_once,
        &[],
        || {
            let net = Net::load();
            let witness = Witness::start(net);
            let mut peer = start_peer(&[]);
            let handle = peer.listen(1)[0];
            drop(peer);
            let start = Instant::now();
            let refusal = connect(net, handle).expect_err("nobody is there");
            refusal.expect(ncclRemoteError, &["127.0.0.1", "refuses connections"]);
            assert!(start.elapsed().as_secs() < 4);
            witness.finish();
        },
    );
}
