//! Peers that die, stop, leave or close, and who is told.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use r2ccl_abi::ncclRemoteError;
use r2ccl_plugin_tests::net::{Net, until};
use r2ccl_plugin_tests::process::alone;
use r2ccl_plugin_tests::stream::{Stream, Witness};

use crate::start_peer;

/// From the death of a peer to the error of whoever waits for it.
const AT_ONCE: Duration = Duration::from_secs(1);

#[test]
fn a_killed_peer_is_an_error_at_once() {
    alone(a_killed_peer_is_an_error_at_once, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        let mut longest = Duration::ZERO;
        for bytes in [8, 1 << 20] {
            for sending in [true, false] {
                let mut peer = start_peer(&[]);
                let mut stream = match sending {
                    true => Stream::sender(net, peer.connect_to(net, 1)[0], bytes),
                    false => Stream::receiver(net, peer.connect_from(net), bytes),
                };
                peer.tell(&format!("flood {bytes}"));
                stream.run(30).expect("moves");
                peer.signal(Signal::SIGKILL);
                let start = Instant::now();
                let refusal = stream.run_until_error();
                longest = longest.max(start.elapsed());
                refusal.expect(
                    ncclRemoteError,
                    &["has died", "process ", "control connection"],
                );
                stream.close();
                witness.goes_on();
            }
        }
        println!("# a killed peer was told as an error after {longest:?} at the most");
        assert!(longest < AT_ONCE, "{longest:?}");
        witness.finish();
    });
}

#[test]
fn a_peer_that_is_stopped_for_two_seconds_goes_on_afterwards() {
    alone(
        a_peer_that_is_stopped_for_two_seconds_goes_on_afterwards,
        &[],
        || {
            let net = Net::load();
            let witness = Witness::start(net);
            let mut peers = [start_peer(&[]), start_peer(&[])];
            let send = peers[0].connect_to(net, 1)[0];
            let receive = peers[1].connect_from(net);
            let mut ends = [
                Stream::sender(net, send, 64 << 10),
                Stream::receiver(net, receive, 64 << 10),
            ];
            for (peer, end) in peers.iter_mut().zip(&mut ends) {
                peer.tell("flood 65536");
                end.run(50).expect("moves");
                peer.signal(Signal::SIGSTOP);
            }
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(2) {
                ends.iter_mut()
                    .for_each(|end| end.step(u64::MAX).expect("a stopped peer is no error"));
                std::thread::yield_now();
            }
            let stuck = [ends[0].done, ends[1].done];
            witness.goes_on();
            for (peer, end) in peers.iter().zip(&mut ends) {
                peer.signal(Signal::SIGCONT);
                end.run(200).expect("goes on");
            }
            assert!(stuck[0] < ends[0].done && stuck[1] < ends[1].done);
            witness.finish();
        },
    );
}

#[test]
fn a_process_may_end_right_after_its_last_message() {
    alone(a_process_may_end_right_after_its_last_message, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        for bytes in [8, 4096, 256 << 10, 4 << 20] {
            for _ in 0..3 {
                // The receiver leaves: every send that it has reported must finish here.
                let mut peer = start_peer(&[]);
                let mut stream = Stream::sender(net, peer.connect_to(net, 1)[0], bytes);
                peer.tell(&format!("receive 20 {bytes} exit"));
                stream.run(20).expect("the last counts have arrived");
                peer.ended();
                stream.close();
                // The sender leaves: its sends are done, so they are here.
                let mut peer = start_peer(&[]);
                let mut stream = Stream::receiver(net, peer.connect_from(net), bytes);
                peer.tell(&format!("send 20 {bytes} exit"));
                stream.run(20).expect("what was done has arrived");
                peer.ended();
                stream.close();
            }
            witness.goes_on();
        }
        witness.finish();
    });
}

#[test]
fn either_side_may_close_with_requests_in_flight() {
    alone(either_side_may_close_with_requests_in_flight, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        let bytes = 1 << 20;
        for sending in [true, false] {
            // We close first: the peer gets an error that says so.
            let mut peer = start_peer(&[]);
            let mut stream = match sending {
                true => Stream::sender(net, peer.connect_to(net, 1)[0], bytes),
                false => Stream::receiver(net, peer.connect_from(net), bytes),
            };
            peer.tell(&format!("flood {bytes}"));
            peer.answer().expect("it floods");
            stream.run(3).expect("moves");
            stream.close();
            let refusal = peer.answer().expect_err("the other side has closed");
            refusal.expect(ncclRemoteError, &["the peer closed its end"]);
            // The peer closes first, with receives or sends of ours open.
            let mut peer = start_peer(&[]);
            let mut stream = match sending {
                true => Stream::sender(net, peer.connect_to(net, 1)[0], bytes),
                false => Stream::receiver(net, peer.connect_from(net), bytes),
            };
            peer.tell(&format!(
                "{} 3 {bytes}",
                if sending { "receive" } else { "send" }
            ));
            stream.run(3).expect("moves");
            peer.tell("close");
            let refusal = stream.run_until_error();
            refusal.expect(ncclRemoteError, &["the peer closed its end"]);
            stream.close();
            witness.goes_on();
        }
        witness.finish();
    });
}

#[test]
fn an_error_stops_its_communicator_and_no_other() {
    alone(an_error_stops_its_communicator_and_no_other, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        let (mut victim, mut healthy) = (start_peer(&[]), start_peer(&[]));
        let (mut third, bytes) = (start_peer(&[]), 4096);
        // Two connections of this thread, one of another thread to a third process.
        let mut hit = Stream::sender(net, victim.connect_to(net, 1)[0], bytes);
        let mut same = Stream::sender(net, healthy.connect_to(net, 1)[0], bytes);
        healthy.tell("flood 4096");
        victim.tell("flood 4096");
        let (signal, wait) = std::sync::mpsc::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            let mut other = Stream::sender(net, third.connect_to(net, 1)[0], bytes);
            third.tell("flood 4096");
            other.run(50).expect("moves");
            ready.send(()).expect("the test waits");
            until("the error", || {
                other.step(u64::MAX).expect("another communicator goes on");
                wait.try_recv().ok()
            });
            other.run(50).expect("another communicator goes on");
        });
        is_ready.recv().expect("the other communicator works");
        until("messages", || {
            hit.step(u64::MAX).expect("moves");
            same.step(u64::MAX).expect("moves");
            (hit.done > 50 && same.done > 50).then_some(())
        });
        victim.signal(Signal::SIGKILL);
        let first = hit.run_until_error();
        first.expect(ncclRemoteError, &["has died"]);
        let second = same.run_until_error();
        second.expect(ncclRemoteError, &["has died"]);
        signal.send(()).expect("the other thread lives");
        other.join().expect("the other communicator is well");
        // After an abort the thread may begin anew.
        hit.close();
        same.close();
        let mut fresh = start_peer(&[]);
        let mut stream = Stream::sender(net, fresh.connect_to(net, 1)[0], bytes);
        fresh.tell("flood 4096");
        stream.run(50).expect("a new communicator works");
        witness.finish();
    });
}
