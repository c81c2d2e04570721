//! Memory that is not registered where it is used, and registrations that end while in use.

use std::time::{Duration, Instant};

use r2ccl_abi::ncclInvalidArgument;
use r2ccl_plugin_tests::net::{Buffer, Id, Net, Outcome, until};
use r2ccl_plugin_tests::peer::Peer;
use r2ccl_plugin_tests::process::alone;
use r2ccl_plugin_tests::stream::Witness;

use crate::start_peer;

const BYTES: usize = 4096;

/// A connection inside this process with a registered buffer at each end.
struct Ends {
    net: Net,
    send: Id,
    receive: Id,
    memory: Box<[u8; 2 * BYTES]>,
    send_mr: Id,
    receive_mr: Id,
}

impl Ends {
    fn new(net: Net) -> Self {
        let (send, receive) = net.pair().expect("a connection");
        let memory = Box::new([0; 2 * BYTES]);
        let address = memory.as_ptr().expose_provenance();
        let send_mr = net.register(send, address, BYTES).expect("a registration");
        let receive_mr = net
            .register(receive, address + BYTES, BYTES)
            .expect("a registration");
        Self {
            net,
            send,
            receive,
            memory,
            send_mr,
            receive_mr,
        }
    }

    fn source(&self) -> Buffer {
        let address = self.memory.as_ptr().expose_provenance();
        Buffer {
            address,
            bytes: BYTES,
            tag: 0,
            mr: self.send_mr,
        }
    }

    fn sink(&self) -> Buffer {
        Buffer {
            address: self.source().address + BYTES,
            mr: self.receive_mr,
            ..self.source()
        }
    }

    /// One message from end to end, which must be right.
    fn exchange(&mut self, mark: u8) {
        let (source, sink) = (self.source(), self.sink());
        self.memory[..BYTES].fill(mark);
        let receive = until("receive", || {
            self.net.irecv(self.receive, &[sink]).expect("posts")
        });
        let send = self.net.send(self.send, source, receive);
        self.net.finish(&[receive, send]).expect("a message");
        assert!(self.memory[BYTES..].iter().all(|byte| *byte == mark));
    }
}

/// The outcome of a call: while the library looks after the connection itself it says "not now".
fn settled(call: impl Fn() -> Outcome<Option<Id>>) -> Outcome<Option<Id>> {
    until("an outcome", || {
        let outcome = call();
        (!matches!(outcome, Ok(None))).then_some(outcome)
    })
}

fn refused<T: std::fmt::Debug>(what: &str, outcome: Outcome<T>, parts: &[&str]) {
    let refusal = outcome.expect_err(what);
    assert_eq!(
        refusal.code, ncclInvalidArgument,
        "{what}: {}",
        refusal.line
    );
    // The entry's allowance of lines may be used up, which is tested elsewhere.
    for part in parts.iter().filter(|_| !refusal.line.is_empty()) {
        assert!(
            refusal.line.contains(part),
            "{what}: {part:?} is not in: {}",
            refusal.line
        );
    }
}

#[test]
fn memory_is_used_only_as_it_was_registered() {
    alone(memory_is_used_only_as_it_was_registered, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        let (mut ends, other) = (Ends::new(net), Ends::new(net));
        let (source, sink) = (ends.source(), ends.sink());
        let with = |buffer: Buffer, mr| Buffer { mr, ..buffer };
        let comms = (ends.send, ends.receive);
        let send = |buffer| settled(|| net.isend(comms.0, buffer));
        let receive_all = |buffers: &[Buffer]| settled(|| net.irecv(comms.1, buffers));
        let receive = |buffer| receive_all(&[buffer]);

        let none = ["not registered"];
        refused("send, none", send(with(source, 0)), &none);
        refused("receive, none", receive(with(sink, 0)), &none);
        let foreign = [
            "does not belong to this connection",
            "register the buffer on it first",
        ];
        refused(
            "send, other connection",
            send(with(source, other.send_mr)),
            &foreign,
        );
        refused(
            "receive, other connection",
            receive(with(sink, other.receive_mr)),
            &foreign,
        );
        refused(
            "send, other end",
            send(with(source, ends.receive_mr)),
            &foreign,
        );

        let outside = [
            "outside its registration",
            "register the whole buffer first",
        ];
        let moved = |buffer: Buffer, by: isize| Buffer {
            address: buffer.address.wrapping_add_signed(by),
            ..buffer
        };
        let longer = |buffer: Buffer| Buffer {
            bytes: buffer.bytes + 1,
            ..buffer
        };
        for by in [-1, 1, BYTES as isize, -(BYTES as isize)] {
            refused("send, moved", send(moved(source, by)), &outside);
            refused("receive, moved", receive(moved(sink, by)), &outside);
        }
        refused("send, longer", send(longer(source)), &outside);
        refused("receive, longer", receive(longer(sink)), &outside);
        let one_bad = [sink, moved(sink, 1)].map(|buffer| Buffer {
            bytes: 64,
            ..buffer
        });
        let one_bad = [one_bad[0], moved(one_bad[1], BYTES as isize - 64)];
        refused("receive, one of two", receive_all(&one_bad), &outside);
        refused(
            "deregistered twice",
            {
                net.deregister(other.send, other.send_mr)
                    .expect("the first time");
                net.deregister(other.send, other.send_mr)
            },
            &["is not registered on this connection"],
        );

        // A refusal changes nothing: the same connection moves data.
        ends.exchange(0x5A);
        let address = source.address;
        for (comm, mr) in [(ends.send, ends.send_mr), (ends.receive, ends.receive_mr)] {
            net.deregister(comm, mr).expect("a registration");
        }
        refused("send, ended", send(source), &outside);
        refused("receive, ended", receive(sink), &outside);
        ends.send_mr = net.register(ends.send, address, BYTES).expect("again");
        ends.receive_mr = net
            .register(ends.receive, address + BYTES, BYTES)
            .expect("again");
        refused("send, old handle", send(source), &outside);
        ends.exchange(0xA5);
        witness.finish();
    });
}

/// Watches memory for a while, during which the peer goes on sending and calls of other
/// connections go on; nothing may change in it.
fn watch(memory: &[u64], witness: &Witness) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        for (index, word) in memory.iter().enumerate() {
            // SAFETY: a live reference; read as memory that somebody else may write to.
            let word = unsafe { std::ptr::from_ref(word).read_volatile() };
            assert_eq!(word, !0, "word {index} was written after deregMr");
        }
        witness.goes_on();
    }
}

fn abort(lanes: &str) {
    let settings = [("R2CCL_SOFT_LANES", lanes)];
    let net = Net::load();
    let witness = Witness::start(net);
    for _ in 0..4 {
        let mut peer: Peer = start_peer(&settings);
        let comm = peer.connect_from(net);
        let (bytes, slots) = (8 << 20, 4);
        let mut memory = vec![0_u64; bytes * slots / 8];
        let address = memory.as_ptr().expose_provenance();
        let mr = net
            .register(comm, address, bytes * slots)
            .expect("a registration");
        peer.tell(&format!("flood {bytes}"));
        peer.answer().expect("it sends");
        let post = |slot: usize| {
            let buffer = Buffer {
                address: address + slot * bytes,
                bytes,
                tag: 5,
                mr,
            };
            until("receive", || net.irecv(comm, &[buffer]).expect("posts"))
        };
        let requests: Vec<Id> = (0..slots).map(post).collect();
        // Some of it is there, most is not.
        until("first bytes", || {
            net.test(requests[0]).expect("it goes on");
            // SAFETY: a live reference; read as memory that somebody else writes to.
            (unsafe { memory.as_ptr().read_volatile() } != 0).then_some(())
        });
        let start = Instant::now();
        net.deregister(comm, mr).expect("an abort is no error");
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        memory.fill(!0);
        watch(&memory, &witness);
        let refusal = until("the end", || net.test(requests[3]).err());
        assert!(!refusal.line.is_empty());
        net.close_receive(comm);
        watch(&memory[..bytes / 8], &witness);
    }
    witness.finish();
}

#[test]
fn nothing_is_written_after_a_registration_has_ended() {
    let settings = [("R2CCL_SOFT_LANES", "0")];
    alone(
        nothing_is_written_after_a_registration_has_ended,
        &settings,
        || abort("0"),
    );
}

#[test]
fn nothing_is_written_by_lanes_after_a_registration_has_ended() {
    let settings = [("R2CCL_SOFT_LANES", "2")];
    alone(
        nothing_is_written_by_lanes_after_a_registration_has_ended,
        &settings,
        || abort("2"),
    );
}
