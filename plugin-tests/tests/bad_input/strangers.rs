//! Strangers on the ports of a process: they are dropped, counted, and cost the others nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use r2ccl_plugin_tests::net::{Handle, Net, await_warning, until};
use r2ccl_plugin_tests::process::alone;
use r2ccl_plugin_tests::stream::{Stream, Witness};

use crate::start_peer;

/// Where this process listens: software NICs and control plane.
fn listening() -> Vec<SocketAddr> {
    let own: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .expect("proc")
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("proc");
    let address = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        if *state != "0A" || !own.contains(&format!("socket:[{inode}]")) {
            return None;
        }
        let (ip, port) = local.split_once(':')?;
        let ip = u32::from_str_radix(ip, 16).ok()?.to_le_bytes();
        Some(SocketAddr::from((ip, u16::from_str_radix(port, 16).ok()?)))
    };
    table.lines().filter_map(address).collect()
}

/// Bytes that follow a fixed rule but look like none.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..count).map(|_| next()).collect()
}

/// A hello of the control plane with everything right but its MAC.
fn forged_hello(handle: &Handle) -> Vec<u8> {
    let mut hello = b"R2CC".to_vec();
    hello.extend_from_slice(&handle[4..6]);
    hello.extend_from_slice(&[1, 0]);
    hello.extend_from_slice(&noise(3, 8));
    // The instance of the process, as the handle tells it.
    hello.extend_from_slice(&handle[40..48]);
    hello.extend_from_slice(&1_u64.to_le_bytes());
    hello.extend(noise(4, 32));
    hello
}

/// A hello of a software NIC for a queue pair whose secret the stranger does not know.
fn forged_nic_hello() -> Vec<u8> {
    let mut hello = b"R2softN1".to_vec();
    hello.extend(noise(5, 4));
    hello.extend([0; 4]);
    hello.extend(noise(6, 24));
    hello
}

/// What strangers say; each once on each port.
fn speeches(handle: &Handle) -> Vec<Vec<u8>> {
    let http = b"GET / HTTP/1.1\r\nHost: somebody\r\nUser-Agent: a long one, for the hello\r\n\r\n";
    let mut huge = vec![0xFF; 4096];
    huge[..4].copy_from_slice(b"R2CC");
    let mut after_hello = forged_hello(handle);
    // A frame of a length that cannot be.
    after_hello.extend(u32::MAX.to_le_bytes());
    after_hello.extend(noise(7, 500));
    let mut write = forged_nic_hello();
    // A frame of the NIC: a write of 1 GiB with immediate, to an address that is mapped.
    write.extend([1, 1, 0, 0, 0, 0, 0, 0x40]);
    write.extend(noise(8, 24));
    vec![
        http.to_vec(),
        huge,
        noise(1, 64),
        noise(2, 100_000),
        forged_hello(handle),
        after_hello,
        forged_nic_hello(),
        write,
        handle.to_vec(),
        Vec::new(),
    ]
}

/// Waits until the other side has closed.
fn await_close(mut stream: TcpStream) {
    let timeout = Some(Duration::from_millis(5));
    stream.set_read_timeout(timeout).expect("a socket");
    until("a stranger is dropped", || {
        match stream.read(&mut [0; 256]) {
            Ok(0) => Some(()),
            Ok(_) => None,
            Err(error) => {
                let waits = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
                (!waits.contains(&error.kind())).then_some(())
            }
        }
    });
}

#[test]
fn whatever_strangers_say_they_are_dropped() {
    alone(whatever_strangers_say_they_are_dropped, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        let (listener, handle) = net.listen().expect("a listener");
        let ports = listening();
        assert_eq!(ports.len(), 3, "two NICs and the control plane: {ports:?}");
        let mut streams = Vec::new();
        for speech in speeches(&handle) {
            for port in &ports {
                let mut stream = TcpStream::connect(port).expect("it listens");
                // It may be dropped while it speaks.
                let _ = stream.write_all(&speech);
                streams.push(stream);
            }
            witness.goes_on();
        }
        streams.into_iter().for_each(await_close);
        await_warning(&[
            "control port",
            "not from an R2CCL process",
            "nothing was harmed",
        ]);
        net.close_listen(listener);
        witness.finish();
    });
}

#[test]
fn hundreds_of_silent_strangers_keep_nobody_out() {
    alone(hundreds_of_silent_strangers_keep_nobody_out, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        let (mut send, mut receive) = (Vec::new(), Vec::new());
        let mut silent = Vec::new();
        for port in listening() {
            for _ in 0..300 {
                silent.push(TcpStream::connect(port).expect("it listens"));
            }
        }
        // While they sit there: new connections inside and with another process.
        let mut peer = start_peer(&[]);
        for _ in 0..3 {
            let pair = net.pair().expect("a connection");
            send.push(Stream::sender(net, pair.0, 4096));
            receive.push(Stream::receiver(net, pair.1, 4096));
        }
        until("messages", || {
            send.iter_mut()
                .chain(&mut receive)
                .for_each(|end| end.step(50).expect("moves"));
            receive.iter().all(|end| end.done == 50).then_some(())
        });
        let comm = peer.connect_from(net);
        peer.tell("send 50 4096");
        Stream::receiver(net, comm, 4096).run(50).expect("moves");
        peer.answer().expect("moves");
        witness.goes_on();
        silent.into_iter().for_each(await_close);
        witness.finish();
    });
}
