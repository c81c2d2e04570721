//! Strangers, forgers and recordings on the control port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parking_lot::Mutex;

use super::super::auth::{self, Key, Secret};
use super::super::session::Session;
use super::kit::{Node, PATIENCE, config, connections, numbered, wait_until};
use r2ccl_core::wire::frame::{Frame, HEADER_BYTES, Header};
use r2ccl_core::wire::greeting::Greeting;
use r2ccl_core::wire::handle::PROTOCOL_VERSION;
use r2ccl_core::wire::hello::{Hello, SecretOf};

/// Writes, and waits until the other side has closed; answers what it said before.
fn talk(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // The other side may have closed in the middle: that is what is waited for.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let closed = stream.read_to_end(&mut answer);
    let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
    assert!(closed.as_ref().err().is_none_or(reset), "{closed:?}");
    answer
}

/// Frames still go both ways between two nodes.
fn assert_unharmed(a: &Node, b: &Node, number: u64) {
    let before = (a.recorder.numbers().len(), b.recorder.numbers().len());
    a.link(b).send(numbered(number)).expect("sent");
    b.link(a).send(numbered(number)).expect("sent");
    a.recorder.wait_frames(before.0 + 1);
    b.recorder.wait_frames(before.1 + 1);
}

/// PROTOCOL R32.
#[test]
fn a_stray_request_is_turned_away() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    assert_unharmed(&a, &b, 1);
    let before = b.plane.counters().strangers;
    assert!(talk(b.address(), b"GET / HTTP/1.1\r\nHost: b\r\n\r\n").is_empty());
    assert!(talk(b.address(), &[0; 5000]).is_empty());
    assert!(
        talk(
            b.address(),
            b"R2CC and then nothing that makes sense, for a while ..........."
        )
        .is_empty()
    );
    wait_until("strangers are counted", || {
        b.plane.counters().strangers == before + 3
    });
    assert_unharmed(&a, &b, 2);
    assert_eq!(b.plane.counters().reconnects, 0);
}

/// PROTOCOL R32.
#[test]
fn silent_connections_are_few_and_do_not_stay() {
    let node = Node::new("a");
    assert!(
        talk(node.address(), b"").is_empty(),
        "closed after the time for a proof"
    );
    assert_eq!(node.plane.counters().strangers, 1);
}

/// PROTOCOL R32.
#[test]
fn half_open_connections_by_the_thousand_cost_nothing() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("a limit");
    let count = (hard as usize / 4).min(2000);
    let (a, b) = (Node::new("a"), Node::new("b"));
    a.link(&b).send(numbered(1)).expect("sent");
    b.recorder.wait_frames(1);
    let open = |_| TcpStream::connect(b.address()).expect("connected");
    let strangers: Vec<_> = (0..count).map(open).collect();
    assert_unharmed(&a, &b, 2);
    let late = Node::new("late");
    assert_unharmed(&late, &b, 3);
    wait_until("all but a few are dropped", || {
        b.plane.counters().strangers as usize >= count - 64
    });
    wait_until("their descriptors are closed", || {
        connections(b.address()).len() <= count + 64 + 4
    });
    assert_eq!(
        a.plane.counters().reconnects + b.plane.counters().reconnects,
        0
    );
    drop(strangers);
}

/// PROTOCOL R32.
#[test]
fn a_hello_without_the_secret_gets_no_answer() {
    let node = Node::new("a");
    let hello = |secret_of| Hello {
        version: PROTOCOL_VERSION,
        secret_of,
        dialler: 77,
        target: node.plane.instance(),
        round: 1,
        nonce: [5; 16],
    };
    for secret_of in [SecretOf::Target, SecretOf::Dialler] {
        let mut bytes = hello(secret_of).encode();
        auth::hello_key(Secret([1; 16])).seal_hello(&mut bytes);
        assert!(talk(node.address(), &bytes).is_empty());
    }
    assert!(node.plane.links_are_empty());
}

/// What a proxy does with the bytes of the dialling side.
type Meddle = dyn Fn(usize, &mut Vec<u8>) + Send + Sync;

/// Carries connections on to `target` and lets `meddle` change what the dialling side says; it is
/// told the connection's number. Ends with the process's listener thread.
fn proxy(target: SocketAddr, meddle: Arc<Meddle>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (Ok(client), Ok(server)) = (stream, TcpStream::connect(target)) else {
                return;
            };
            let back = (server.try_clone(), client.try_clone());
            let (Ok(mut back_from), Ok(mut back_to)) = back else {
                return;
            };
            let meddle = Arc::clone(&meddle);
            std::thread::spawn(move || carry(client, server, |bytes| meddle(number, bytes)));
            std::thread::spawn(move || {
                // Either end may close at any time; the other follows.
                let _ = std::io::copy(&mut back_from, &mut back_to);
                let _ = back_to.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    address
}

fn carry(mut from: TcpStream, mut to: TcpStream, meddle: impl Fn(&mut Vec<u8>)) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let mut bytes = chunk[..count].to_vec();
        meddle(&mut bytes);
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // Closed already is as good.
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// A node that `a` reaches only through a proxy: dials from `a` cross it.
fn behind_proxy(a: &Node, b: &Node, meddle: Arc<Meddle>) -> Arc<crate::runtime::control::Link> {
    let mut handle = b.plane.handle_for(1);
    handle.addresses = vec![proxy(b.address(), meddle)];
    a.plane.link(&handle).expect("a link")
}

/// PROTOCOL R32.
#[test]
fn a_flipped_bit_ends_the_connection_and_loses_nothing() {
    for position in [0, 6, 20, 70, 100, 200, 300, 500, 1000] {
        let (a, b) = (Node::new("a"), Node::new("b"));
        let passed = AtomicUsize::new(0);
        let flips = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&flips);
        let meddle = move |number: usize, bytes: &mut Vec<u8>| {
            let begin = passed.fetch_add(bytes.len(), Ordering::Relaxed);
            if number == 0 && (begin..begin + bytes.len()).contains(&position) {
                bytes[position - begin] ^= 0x10;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        };
        let link = behind_proxy(&a, &b, Arc::new(meddle));
        (0..100).for_each(|number| link.send(numbered(number)).expect("sent"));
        b.recorder.wait_frames(100);
        assert_eq!(
            b.recorder.numbers(),
            (0..100).collect::<Vec<_>>(),
            "at {position}"
        );
        assert_eq!(flips.load(Ordering::Relaxed), 1, "the flip was made");
        let counters = b.plane.counters();
        assert!(
            counters.strangers + counters.forged > 0,
            "at {position}: {counters:?}"
        );
        assert_eq!(link.error(), None);
    }
}

/// PROTOCOL R32.
#[test]
fn a_forged_goodbye_is_not_heard() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let forged = Frame::Goodbye { to: 1, count: 3 };
    let body = forged.encode().expect("encoded");
    let length = (HEADER_BYTES + body.len() + 16) as u32;
    let header = Header {
        length,
        kind: forged.kind(),
        sequence: 1,
        acknowledged: 0,
    };
    let record = [&header.encode()[..], &body, &[7; 16]].concat();
    let meddle = move |number: usize, bytes: &mut Vec<u8>| {
        // The dialling side's frame: a forged one comes before it.
        if number == 0 && bytes.get(4) == Some(&numbered(1).kind()) {
            bytes.splice(0..0, record.iter().copied());
        }
    };
    let link = behind_proxy(&a, &b, Arc::new(meddle));
    wait_until("up", || link.is_up());
    link.send(numbered(1)).expect("sent");
    link.send(numbered(2)).expect("sent");
    b.recorder.wait_frames(2);
    assert_eq!(b.recorder.numbers(), [1, 2]);
    b.recorder
        .wait(|events| (events.frames.len() == 2).then_some(()));
    assert_eq!(b.plane.counters().forged, 1);
}

/// PROTOCOL R32.
#[test]
fn a_recording_is_not_heard_again() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let recording = Arc::new(Mutex::new(Vec::new()));
    let tape = Arc::clone(&recording);
    let link = behind_proxy(
        &a,
        &b,
        Arc::new(move |_, bytes: &mut Vec<u8>| {
            tape.lock().extend_from_slice(bytes);
        }),
    );
    (0..10).for_each(|number| link.send(numbered(number)).expect("sent"));
    b.recorder.wait_frames(10);
    let before = b.plane.counters().strangers;
    let bytes = recording.lock().clone();
    assert!(bytes.len() > 500);
    for _ in 0..3 {
        // The hello is right, so there is a reply; what follows was made with other keys.
        let mut stream = TcpStream::connect(b.address()).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(&bytes[..64]).expect("written");
        stream.read_exact(&mut [0; 64]).expect("a reply");
        stream.write_all(&bytes[64..]).expect("written");
        assert!(
            !matches!(stream.read(&mut [0; 64]), Ok(1..)),
            "nothing but the end"
        );
    }
    wait_until("counted", || b.plane.counters().strangers == before + 3);
    assert_eq!(b.recorder.numbers(), (0..10).collect::<Vec<_>>());
    assert_eq!(b.plane.counters().duplicates, 0);
    assert!(link.is_up() && b.plane.counters().reconnects == 0);
}

#[test]
fn random_bytes_change_nothing() {
    let mut settings = config("a");
    settings.giveup = Duration::from_secs(5);
    let (a, b) = (Node::with(settings), Node::new("b"));
    for round in 0..50 {
        let mut bytes = auth::random::<200>().expect("random").to_vec();
        if round % 2 == 0 {
            bytes[..4].copy_from_slice(b"R2CC");
        }
        talk(b.address(), &bytes);
    }
    assert_eq!(b.plane.counters().strangers, 50);
    assert_unharmed(&a, &b, 1);
}

/// A peer played by hand: says hello as a process that holds the handle would. The connection, and
/// the keys for what it sends and receives.
fn handmade_hello(node: &Node, round: u64) -> (TcpStream, (Key, Key)) {
    let secret = Secret(node.plane.handle_for(1).secret);
    let hello = Hello {
        version: PROTOCOL_VERSION,
        secret_of: SecretOf::Target,
        dialler: 77,
        target: node.plane.instance(),
        round,
        nonce: [round as u8; 16],
    };
    let mut hello = hello.encode();
    auth::hello_key(secret).seal_hello(&mut hello);
    let mut stream = TcpStream::connect(node.address()).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(&hello).expect("written");
    let mut reply = [0; 64];
    stream.read_exact(&mut reply).expect("a reply");
    (stream, auth::record_keys(secret, &hello, &reply))
}

#[test]
fn who_said_a_right_hello_may_go() {
    let node = Node::new("a");
    for round in 1..4 {
        drop(handmade_hello(&node, round));
    }
    wait_until("all are gone", || connections(node.address()).is_empty());
    assert_eq!(node.plane.counters().strangers, 0);
}

/// A peer played by hand: says hello and greets.
fn handmade_session(node: &Node, round: u64) -> Session {
    let (stream, (dialler, listener)) = handmade_hello(node, round);
    let mut session = Session::accepted(stream, node.address()).expect("a session");
    session.set_keys(dialler, listener);
    let settings = config("b").settings;
    let greeting = Frame::Greeting(Greeting {
        instance: 77,
        pid: 1,
        host: "handmade".into(),
        link: 5,
        known_link: 0,
        addresses: Vec::new(),
        fingerprint: super::super::settings::fingerprint(&settings),
        settings,
    });
    session.put_record(greeting.kind(), 0, 0, &greeting.encode().expect("encoded"));
    session
}

fn put_numbered(session: &mut Session, sequence: u64) {
    let frame = numbered(sequence);
    session.put_record(frame.kind(), sequence, 0, &frame.encode().expect("encoded"));
}

/// PROTOCOL R29.
#[test]
fn a_frame_that_comes_again_is_dropped_and_a_gap_ends_the_session() {
    let node = Node::new("a");
    let mut first = handmade_session(&node, 1);
    [1, 2, 2, 1, 3]
        .into_iter()
        .for_each(|sequence| put_numbered(&mut first, sequence));
    first.flush().expect("written");
    node.recorder.wait_frames(3);
    let mut second = handmade_session(&node, 2);
    [2, 3, 4, 6]
        .into_iter()
        .for_each(|sequence| put_numbered(&mut second, sequence));
    second.flush().expect("written");
    node.recorder.wait_frames(4);
    wait_until("the gap ends the session", || {
        !node
            .recorder
            .wait(|events| events.links.first().cloned())
            .is_up()
    });
    assert_eq!(node.recorder.numbers(), [1, 2, 3, 4]);
    assert_eq!(node.plane.counters().duplicates, 4);
}
