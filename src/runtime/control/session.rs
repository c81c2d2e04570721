//! One TCP connection to a peer: bytes in, bytes out, cut into hellos and authenticated records.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use r2ccl_core::wire::frame::{HEADER_BYTES, Header, MAC_BYTES};
use r2ccl_core::wire::hello::{HELLO_BYTES, Hello};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::auth::Key;
use crate::runtime::fork::ClosedInChildren;

/// Bytes taken from a socket at a time.
const READ_BYTES: usize = 16 * 1024;
/// Output beyond this waits for the socket to drain.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Unacknowledged bytes end a connection after this time, so that it is dialled again.
const USER_TIMEOUT: Duration = Duration::from_secs(5);
/// A silent peer is asked by the kernel after this time, three times at [`KEEPALIVE_INTERVAL`].
const KEEPALIVE_TIME: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);

/// How far a connection has come.
pub(super) enum Phase {
    /// Dialled: the three-way handshake of TCP goes on.
    Connecting,
    /// Accepted: the hello is awaited.
    Hello,
    /// Dialled: the reply is awaited; the hello as sent is needed for the keys.
    Reply(Hello, [u8; HELLO_BYTES]),
    /// Keys are there: the other side's greeting is awaited.
    Greeting,
    /// Records flow.
    Up,
    /// Everything is said: closes when the output is written.
    Closing,
}

/// Keys of a connection and the numbers of the next records.
struct Records {
    send: Key,
    receive: Key,
    sent: u64,
    received: u64,
}

/// A record that came in, checked.
pub(super) struct Record {
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
}

/// What came is no record of the other side.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Forged;

/// See the module's page.
pub(super) struct Session {
    /// Before the stream, so that it goes first.
    _closed_in_children: ClosedInChildren,
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) phase: Phase,
    /// Whether this side dialled.
    pub(super) dialled: bool,
    /// Instance id of the other side; 0 while it is not known.
    pub(super) peer: u64,
    /// Number of this session on its link.
    pub(super) round: u64,
    /// Whether the other side has ended the connection.
    pub(super) withdrawn: bool,
    /// Whether the socket is watched for room to write.
    pub(super) watched_for_room: bool,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    records: Option<Records>,
}

impl Session {
    /// Starts to dial.
    pub(super) fn dial(address: SocketAddr, peer: u64, round: u64) -> io::Result<Self> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let mut session = Self::new(TcpStream::from(socket), address, Phase::Connecting)?;
        session.dialled = true;
        session.peer = peer;
        session.round = round;
        Ok(session)
    }

    /// Takes an accepted connection.
    pub(super) fn accepted(stream: TcpStream, address: SocketAddr) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Self::new(stream, address, Phase::Hello)
    }

    fn new(stream: TcpStream, address: SocketAddr, phase: Phase) -> io::Result<Self> {
        let socket = socket2::SockRef::from(&stream);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_TIME)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(3);
        socket.set_tcp_keepalive(&keepalive)?;
        Ok(Self {
            _closed_in_children: ClosedInChildren::new(&stream),
            stream,
            address,
            phase,
            dialled: false,
            peer: 0,
            round: 0,
            withdrawn: false,
            watched_for_room: false,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            records: None,
        })
    }

    /// From now on records are made and checked with these keys.
    pub(super) fn set_keys(&mut self, send: Key, receive: Key) {
        self.records = Some(Records {
            send,
            receive,
            sent: 0,
            received: 0,
        });
    }

    /// Reads once. `Ok(0)`: the other side has closed; `WouldBlock`: nothing there.
    pub(super) fn fill(&mut self) -> io::Result<usize> {
        let mut chunk = [0; READ_BYTES];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(bytes) => {
                    self.input.extend_from_slice(&chunk[..bytes]);
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What has come and was not taken yet.
    pub(super) fn input(&self) -> &[u8] {
        &self.input
    }

    /// Takes a hello or reply, once it is whole.
    pub(super) fn take_hello(&mut self) -> Option<[u8; HELLO_BYTES]> {
        let hello = *self.input.first_chunk()?;
        self.input.drain(..HELLO_BYTES);
        Some(hello)
    }

    /// Takes a record, once it is whole.
    pub(super) fn take_record(&mut self) -> Result<Option<Record>, Forged> {
        let records = self.records.as_mut().ok_or(Forged)?;
        let Some(head) = self.input.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = Header::decode(head).ok_or(Forged)?;
        let length = header.length as usize;
        let Some(record) = self.input.get(..length) else {
            return Ok(None);
        };
        let (checked, mac) = record.split_at(length - MAC_BYTES);
        if !records.receive.verify(records.received, checked, mac) {
            return Err(Forged);
        }
        records.received += 1;
        let body = checked[HEADER_BYTES..].to_vec();
        self.input.drain(..length);
        Ok(Some(Record { header, body }))
    }

    /// Appends bytes as they are.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Appends a record.
    pub(super) fn put_record(&mut self, kind: u8, sequence: u64, acknowledged: u64, body: &[u8]) {
        let Some(records) = self.records.as_mut() else {
            return;
        };
        let length = (HEADER_BYTES + body.len() + MAC_BYTES) as u32;
        let begin = self.output.len();
        let header = Header {
            length,
            kind,
            sequence,
            acknowledged,
        };
        self.output.extend_from_slice(&header.encode());
        self.output.extend_from_slice(body);
        let mac = records.send.mac(records.sent, &self.output[begin..]);
        self.output.extend_from_slice(&mac);
        records.sent += 1;
    }

    /// Whether more output is better held back.
    pub(super) fn is_full(&self) -> bool {
        self.output.len() - self.written >= OUTPUT_BYTES_MAX
    }

    /// Whether output waits to be written.
    pub(super) fn has_output(&self) -> bool {
        self.written < self.output.len()
    }

    /// Writes as much as the socket takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.has_output() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.output.drain(..self.written);
                    self.written = 0;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }
}

impl std::os::fd::AsFd for Session {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
