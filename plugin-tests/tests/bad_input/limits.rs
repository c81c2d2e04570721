//! Limits of the process: requests, descriptors, threads, memory.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use r2ccl_abi::ncclSystemError;
use r2ccl_plugin_tests::net::{Buffer, Id, Net, await_warning, until};
use r2ccl_plugin_tests::process::alone;
use r2ccl_plugin_tests::stream::{Stream, Witness};

use crate::start_peer;

/// NCCL's window: 32 requests of 8 buffers each.
const WINDOW: usize = 256;
const SLOT: usize = 64;

#[test]
fn requests_beyond_the_window_are_taken_later() {
    alone(requests_beyond_the_window_are_taken_later, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        let (send, receive) = net.pair().expect("a connection");
        let memory: Vec<u8> = (0..2 * WINDOW * SLOT)
            .map(|index| (index / SLOT) as u8)
            .collect();
        let address = memory.as_ptr().expose_provenance();
        let half = WINDOW * SLOT;
        let send_mr = net.register(send, address, half).expect("a registration");
        let receive_mr = net
            .register(receive, address + half, half)
            .expect("a registration");
        let source = |k: usize| Buffer {
            address: address + (WINDOW - 1 - k % WINDOW) * SLOT,
            bytes: SLOT,
            tag: 0,
            mr: send_mr,
        };
        let sink = |k: usize| Buffer {
            address: address + half + k % WINDOW * SLOT,
            mr: receive_mr,
            ..source(k)
        };
        // Nothing is tested, so nothing leaves the window.
        let mut requests: Vec<Id> = Vec::new();
        for k in 0..WINDOW {
            // Also while the library looks after the connection itself it says "not now".
            let posted = || net.irecv(receive, &[sink(k)]).expect("no error");
            requests.push(until("a receive", posted));
        }
        for k in 0..10 {
            assert_eq!(
                net.irecv(receive, &[sink(k)]).expect("no error"),
                None,
                "receive {k}"
            );
        }
        for k in 0..WINDOW {
            requests.push(net.send(send, source(k), requests[WINDOW - 1]));
        }
        for k in 0..10 {
            assert_eq!(
                net.isend(send, source(k)).expect("no error"),
                None,
                "send {k}"
            );
        }
        net.finish(&requests).expect("all of them");
        for k in 0..WINDOW {
            let at = half + k * SLOT;
            // SAFETY: inside the buffer; the NIC has written there.
            let found = unsafe { memory.as_ptr().add(at).read_volatile() };
            assert_eq!(found, (WINDOW - 1 - k) as u8, "message {k}");
        }
        let again = until("room again", || {
            net.irecv(receive, &[sink(0)]).expect("no error")
        });
        let requests = [again, net.send(send, source(0), again)];
        net.finish(&requests).expect("one more");
        witness.finish();
    });
}

#[test]
fn thirty_two_groups_of_eight_are_outstanding() {
    alone(thirty_two_groups_of_eight_are_outstanding, &[], || {
        let net = Net::load();
        let (send, receive) = net.pair().expect("a connection");
        let memory: Vec<u8> = (0..2 * WINDOW * SLOT)
            .map(|index| (index / SLOT) as u8)
            .collect();
        let address = memory.as_ptr().expose_provenance();
        let half = WINDOW * SLOT;
        let send_mr = net.register(send, address, half).expect("a registration");
        let receive_mr = net
            .register(receive, address + half, half)
            .expect("a registration");
        let sink = |k: usize| Buffer {
            address: address + half + k * SLOT,
            bytes: SLOT,
            tag: 100 + (k % 8) as i32,
            mr: receive_mr,
        };
        for _ in 0..3 {
            let mut requests: Vec<Id> = (0..32)
                .map(|group| {
                    let buffers: Vec<Buffer> = (0..8).map(|k| sink(group * 8 + k)).collect();
                    until("32 groups", || net.irecv(receive, &buffers).expect("posts"))
                })
                .collect();
            let more: Vec<Buffer> = (0..8).map(sink).collect();
            assert_eq!(net.irecv(receive, &more).expect("no error"), None);
            for k in 0..WINDOW {
                // The other way round inside each group.
                let k = k / 8 * 8 + 7 - k % 8;
                let buffer = Buffer {
                    address: address + k * SLOT,
                    mr: send_mr,
                    ..sink(k)
                };
                requests.push(net.send(send, buffer, requests[31]));
            }
            net.finish(&requests).expect("all of them");
            for k in 0..WINDOW {
                // SAFETY: inside the buffer; the NIC has written there.
                let found = unsafe { memory.as_ptr().add(half + k * SLOT).read_volatile() };
                assert_eq!(found, k as u8, "buffer {k}");
            }
        }
    });
}

/// Lets the process have `more` descriptors than it has now.
fn allow_descriptors(more: usize) {
    allow_many_descriptors();
    let entries = std::fs::read_dir("/proc/self/fd").expect("proc").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let taken: Vec<u64> = numbers.collect();
    // The last one is that of the folder itself and free again; the limit is on the number.
    let is_free = |number: &u64| {
        std::fs::read_link(format!("/proc/self/fd/{number}")).is_err() || !taken.contains(number)
    };
    let limit = (0..).filter(is_free).nth(more).expect("numbers do not end");
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, limit, hard).expect("a limit");
}

fn allow_many_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(4096), hard).expect("a limit");
}

#[test]
fn each_missing_descriptor_is_an_error_until_there_are_enough() {
    alone(
        each_missing_descriptor_is_an_error_until_there_are_enough,
        &[],
        || {
            let net = Net::load();
            let (mut devices, mut listeners, mut connections) = (0, 0, 0);
            let mut made = None;
            // More and more of them, until everything is there. Each entry prints so many lines and
            // no more.
            for more in 0..64 {
                allow_descriptors(more);
                let (count, line) = net.devices();
                if count == 2 {
                    break;
                }
                devices += 1;
                let is_told = line.contains("limit") && line.contains("open files");
                assert!(line.is_empty() || is_told, "{line}");
            }
            for more in 0..64 {
                allow_descriptors(more);
                let Err(refusal) = net.listen() else { break };
                listeners += 1;
                assert_eq!(refusal.code, ncclSystemError);
                if !refusal.line.is_empty() {
                    refusal.expect(ncclSystemError, &["raise the limit on open files"]);
                }
            }
            for more in 0..64 {
                allow_descriptors(more);
                match net.pair() {
                    Ok(pair) => {
                        made = Some(pair);
                        break;
                    }
                    Err(refusal) => {
                        connections += 1;
                        refusal.expect(refusal.code, &["raise the limit on open files"]);
                    }
                }
            }
            println!("# refused without descriptors: {devices}, {listeners}, {connections} times");
            assert!(devices > 0 && listeners > 0 && connections > 0);
            // A socket that the other side had no descriptor for has waited in the kernel.
            allow_many_descriptors();
            let (send, receive) = made.expect("with enough descriptors");
            let mut ends = [
                Stream::sender(net, send, 64),
                Stream::receiver(net, receive, 64),
            ];
            until("messages", || {
                ends.iter_mut().for_each(|end| end.step(10).expect("moves"));
                ends.iter().all(|end| end.done == 10).then_some(())
            });
            Witness::start(net).finish();
        },
    );
}

#[test]
fn a_process_without_descriptors_keeps_its_connections() {
    alone(
        a_process_without_descriptors_keeps_its_connections,
        &[],
        || {
            let net = Net::load();
            let witness = Witness::start(net);
            let mut peer = start_peer(&[]);
            let handle = peer.listen(1)[0];
            allow_descriptors(0);
            for _ in 0..3 {
                let refusal = net.pair().expect_err("no descriptors");
                refusal.expect(refusal.code, &["raise the limit on open files"]);
                witness.goes_on();
            }
            // To another process: said at once, and made as soon as it can be.
            let mut state = handle;
            assert_eq!(net.connect(&mut state).expect("an attempt"), None);
            await_warning(&["127.0.0.1", "raise the limit on open files"]);
            witness.goes_on();
            allow_many_descriptors();
            peer.tell("accept");
            let send = until("connect", || net.connect(&mut state).expect("an attempt"));
            peer.answer().expect("accepts");
            peer.tell("receive 50 64");
            Stream::sender(net, send, 64).run(50).expect("moves");
            peer.answer().expect("moves");
            witness.finish();
        },
    );
}

#[test]
fn a_listener_without_descriptors_says_so_and_recovers() {
    alone(
        a_listener_without_descriptors_says_so_and_recovers,
        &[],
        || {
            let net = Net::load();
            let witness = Witness::start(net);
            let (listener, handle) = net.listen().expect("a listener");
            let mut peer = start_peer(&[]);
            peer.listen(1);
            allow_descriptors(0);
            let text: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
            peer.tell(&format!("connect {text}"));
            await_warning(&["cannot accept", "raise the limit on open files"]);
            assert_eq!(net.accept(listener).expect("no error"), None);
            witness.goes_on();
            allow_many_descriptors();
            let receive = until("accept", || net.accept(listener).expect("accepts"));
            peer.answer().expect("connects");
            peer.tell("send 50 64");
            Stream::receiver(net, receive, 64).run(50).expect("moves");
            peer.answer().expect("moves");
            witness.finish();
        },
    );
}

#[test]
fn a_process_that_may_have_no_threads_is_told() {
    alone(a_process_that_may_have_no_threads_is_told, &[], || {
        // Root is above this limit.
        let net = Net::load();
        // SAFETY: numbers only; glibc changes all threads.
        if unsafe { libc::geteuid() == 0 && libc::setuid(65_534) != 0 } {
            println!("# SKIPPED: cannot become another user");
            return;
        }
        let (_, hard) = getrlimit(Resource::RLIMIT_NPROC).expect("a limit");
        let allow = |threads| setrlimit(Resource::RLIMIT_NPROC, threads, hard).expect("a limit");
        allow(1);
        if std::thread::Builder::new().spawn(|| ()).is_ok() {
            println!("# SKIPPED: the limit on threads does not hold here");
            return;
        }
        for _ in 0..2 {
            let (count, line) = net.devices();
            assert_eq!(count, 0);
            assert!(
                line.contains("thread") && line.contains("raise the limit"),
                "{line}"
            );
        }
        allow(hard);
        assert_eq!(net.devices().0, 2);
        allow(1);
        for _ in 0..2 {
            let refusal = net.listen().expect_err("no threads");
            refusal.expect(ncclSystemError, &["thread", "raise the limit on threads"]);
        }
        allow(hard);
        Witness::start(net).finish();
    });
}

/// Whether the plugin's threads have all begun and sleep. One that has just been made still needs
/// thread-local memory, and the C library ends the process where there is none.
fn threads_have_begun() -> Option<()> {
    /// The test harness, the test and the witness; a thread has its parent's name at first.
    const OTHERS: usize = 3;
    let tasks = std::fs::read_dir("/proc/self/task")
        .expect("proc")
        .flatten();
    let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status"));
    let (ours, others): (Vec<_>, Vec<_>) = tasks
        .filter_map(|task| status(task).ok())
        .partition(|status| status.starts_with("Name:\tr2ccl-"));
    let all_sleep = ours.iter().all(|status| status.contains("State:\tS"));
    (all_sleep && others.len() == OTHERS).then_some(())
}

#[test]
fn a_process_without_memory_is_told() {
    alone(a_process_without_memory_is_told, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        until("all threads", threads_have_begun);
        let status = std::fs::read_to_string("/proc/self/statm").expect("proc");
        let pages = status
            .split(' ')
            .next()
            .and_then(|pages| pages.parse().ok());
        let now = pages.map_or(0, |pages: u64| pages * 4096);
        let (_, hard) = getrlimit(Resource::RLIMIT_AS).expect("a limit");
        let allow = |bytes| setrlimit(Resource::RLIMIT_AS, bytes, hard).expect("a limit");
        let mut made = Vec::new();
        for more in [0, 100_000, 3 << 20, 8 << 20] {
            allow(now + more);
            let told = ["of memory are left", "ulimit -v"];
            // What ends in the background gives memory back at any time.
            let refusal = loop {
                match net.pair() {
                    Ok(pair) => made.push(pair),
                    Err(refusal) => {
                        refusal.expect(refusal.code, &told);
                        let (send, address) = (made[0].0, made.as_ptr().expose_provenance());
                        match net.register(send, address, 16) {
                            Ok(mr) => net.deregister(send, mr).expect("a registration"),
                            Err(refusal) => break refusal,
                        }
                    }
                }
                assert!(made.len() < 10_000, "the limit does not hold");
            };
            refusal.expect(ncclSystemError, &told);
            witness.goes_on();
        }
        allow(hard);
        for (send, receive) in made {
            net.close_send(send);
            net.close_receive(receive);
        }
        Witness::start(net).finish();
        witness.finish();
    });
}
