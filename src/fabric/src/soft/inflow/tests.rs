//! The receiving half over a socket pair, fed in pieces as unpleasant as a network can make them.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::super::memory::{Cache, Table};
use super::*;
use crate::Access;

/// Where payloads go; guarded on both sides.
struct Target {
    words: Vec<u64>,
    table: Table,
    key: u32,
}

const GUARD_BYTES: usize = 64;

impl Target {
    fn new(bytes: usize) -> Self {
        let mut words = vec![0u64; (bytes + 2 * GUARD_BYTES) / 8 + 2];
        let table = Table::default();
        let bytes = words.len() as u64 * 8;
        let key = table.register(words.as_mut_ptr() as u64, bytes, Access::RemoteWrite);
        let key = key.expect("a key");
        Self { words, table, key }
    }

    fn address(&self, offset: usize) -> u64 {
        self.words.as_ptr() as u64 + (GUARD_BYTES + offset) as u64
    }

    /// All bytes, read so that the compiler does not take them for unchanged.
    fn bytes(&self) -> Vec<u8> {
        let words = self.words.iter().map(|word| {
            // SAFETY: a reference is a valid pointer.
            unsafe { std::ptr::from_ref(word).read_volatile() }
        });
        words.flat_map(u64::to_ne_bytes).collect()
    }
}

/// Takes every write, and counts.
struct Taker<'a> {
    target: &'a Target,
    landed: usize,
    headers: usize,
}

impl Sink for Taker<'_> {
    fn header(&mut self, header: &Header) -> Result<Next, Refusal> {
        self.headers += 1;
        if header.length == 0 {
            return Ok(Next::Done);
        }
        let (address, bytes) = (header.address, u64::from(header.length));
        let mut cache = Cache::default();
        let region = cache.find(&self.target.table, header.key, address, bytes, true);
        Ok(Next::Payload(Arc::clone(region.ok_or(Refusal::Access)?)))
    }

    fn landed(&mut self) -> Result<(), Refusal> {
        self.landed += 1;
        Ok(())
    }
}

/// A frame with its payload, and an empty frame behind it.
fn stream(target: &Target, offset: usize, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        kind: Kind::Write,
        flags: 0,
        length: payload.len() as u32,
        sequence: 0,
        acknowledged: 0,
        address: target.address(offset),
        key: target.key,
        immediate: 0,
    };
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len() + padding(payload.len()), 0);
    let end = Header {
        kind: Kind::Control,
        length: 0,
        ..header
    };
    bytes.extend_from_slice(&end.encode());
    bytes
}

/// Bytes that can be received now.
fn readable(socket: &UnixStream) -> libc::c_int {
    let mut bytes = 0;
    // SAFETY: FIONREAD writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &mut bytes) };
    assert_eq!(result, 0);
    bytes
}

/// Sends `bytes` cut as `pieces` says, and wants the socket empty after each piece: what stays in
/// a socket keeps its window closed, and a sender behind a closed window cannot complete a word.
fn feed(bytes: &[u8], mut pieces: impl FnMut(usize) -> usize, taker: &mut Taker<'_>) {
    let (mut near, far) = UnixStream::pair().expect("a socket pair");
    let mut inflow = Inflow::new(64 * 1024);
    let mut at = 0;
    while at < bytes.len() {
        let piece = pieces(at).clamp(1, bytes.len() - at);
        near.write_all(&bytes[at..at + piece]).expect("sends");
        at += piece;
        while inflow.progress(far.as_raw_fd(), taker).expect("frames") == Progress::More {}
        let left = readable(&far);
        assert_eq!(left, 0, "left in the socket after {at} bytes");
    }
    drop(near);
    let end = inflow.progress(far.as_raw_fd(), taker);
    assert_eq!(end.expect("no frame"), Progress::Closed);
}

fn check(offset: usize, length: usize, pieces: impl FnMut(usize) -> usize) {
    let target = Target::new(length + 8);
    let payload: Vec<u8> = (0..length)
        .map(|at| (at * 7 + at / 251 + 1) as u8)
        .collect();
    let bytes = stream(&target, offset, &payload);
    let mut taker = Taker {
        target: &target,
        landed: 0,
        headers: 0,
    };
    feed(&bytes, pieces, &mut taker);
    assert_eq!((taker.landed, taker.headers), (1, 2));
    let memory = target.bytes();
    let start = GUARD_BYTES + offset;
    assert!(memory[start..start + length] == payload, "offset {offset}");
    let around = memory[..start].iter().chain(&memory[start + length..]);
    assert!(around.into_iter().all(|byte| *byte == 0));
}

/// Tiny pieces at both ends and wherever the way of the bytes changes, large ones between.
fn tiny_near_the_marks(length: usize, tiny: impl Fn(usize) -> usize) -> impl Fn(usize) -> usize {
    let end = HEADER_BYTES + length;
    let marks = [
        0,
        STAGE_AFTER_LARGE_BYTES,
        end / 2,
        end.saturating_sub(DIRECT_BYTES_MIN),
        end,
    ];
    move |at| {
        let from = |mark: &usize| mark.saturating_sub(64);
        if marks
            .iter()
            .any(|mark| (from(mark)..mark + 64).contains(&at))
        {
            return tiny(at);
        }
        let next = marks.iter().map(from).filter(|mark| *mark > at).min();
        // Not a multiple of anything.
        next.map_or(usize::MAX, |next| (next - at).min(30_011))
    }
}

#[test]
fn tiny_pieces_land_and_nothing_stays_in_the_socket() {
    let polled = 40_000;
    let direct = POLLED_BYTES_MAX + 2 * DIRECT_BYTES_MIN + 5;
    for length in [1, 8, 9, 100, polled, direct] {
        for offset in 0..8 {
            for tiny in 1..=9 {
                check(offset, length, tiny_near_the_marks(length, |_| tiny));
            }
            check(
                offset,
                length,
                tiny_near_the_marks(length, |at| at * 2_654_435_761 % 9 + 1),
            );
        }
    }
}

#[test]
fn words_are_never_torn() {
    assert_eq!(whole_words(0x1000, 100, 100), 100);
    assert_eq!(whole_words(0x1000, 107, 100), 100);
    assert_eq!(whole_words(0x1000, 99, 100), 96);
    assert_eq!(whole_words(0x1003, 4, 100), 0);
    assert_eq!(whole_words(0x1003, 5, 100), 5);
    assert_eq!(whole_words(0x1003, 14, 100), 13);
}

/// A TCP socket pair whose receive buffer stays as small as it starts: one segment of the loopback
/// interface that is not read to its last byte closes the window.
fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.10:0").expect("listens");
    let near = TcpStream::connect(listener.local_addr().expect("its address")).expect("connects");
    let (far, _) = listener.accept().expect("accepts");
    let far_options = socket2::SockRef::from(&far);
    far_options
        .set_recv_buffer_size(64 * 1024)
        .expect("a small buffer");
    near.set_nonblocking(true).expect("does not block");
    near.set_nodelay(true).expect("sends at once");
    (near, far)
}

#[test]
fn a_window_that_has_closed_opens_again() {
    let length = 4 * 1024 * 1024 + 3;
    for offset in [0, 1, 7] {
        let target = Target::new(length + 8);
        let bytes = stream(&target, offset, &vec![0xa5; length]);
        let mut taker = Taker {
            target: &target,
            landed: 0,
            headers: 0,
        };
        let (mut near, far) = tcp_pair();
        let mut inflow = Inflow::new(64 * 1024);
        let (mut at, deadline) = (0, Instant::now() + Duration::from_secs(5));
        while taker.headers < 2 {
            // As much as goes until the window closes, in odd pieces.
            while at < bytes.len() {
                let piece = 65_483.min(bytes.len() - at);
                match near.write(&bytes[at..at + piece]) {
                    Ok(sent) => at += sent,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
            inflow
                .progress(far.as_raw_fd(), &mut taker)
                .expect("frames");
            assert!(Instant::now() < deadline, "stuck with {at} bytes sent");
        }
        assert_eq!(taker.landed, 1);
    }
}
