//! Lines of JSON over a socket pair, blocking or not.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest line: a plan with a million links is far below.
const LINE_MAX: usize = 256 << 20;

/// One end of a conversation.
pub struct Wire {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Wire {
    /// Takes over a connected socket, which becomes non-blocking.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Wire {
            stream,
            received: Vec::new(),
        })
    }

    /// The socket, for `poll`.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends one message, waiting as long as the other end is slow.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&self.stream, PollFlags::POLLOUT, None)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next message if one is there; `UnexpectedEof` when the other end is gone.
    pub fn try_receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let message = serde_json::from_slice(&self.received[..end])?;
                self.received.drain(..=end);
                return Ok(Some(message));
            }
            if self.received.len() > LINE_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a line without an end",
                ));
            }
            let mut chunk = [0u8; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next message, asleep until it comes.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        loop {
            if let Some(message) = self.try_receive()? {
                return Ok(message);
            }
            wait(&self.stream, PollFlags::POLLIN, None)?;
        }
    }
}

/// Sleeps until the socket is ready or the time is over.
fn wait(stream: &UnixStream, flags: PollFlags, limit: Option<Duration>) -> io::Result<()> {
    let mut fds = [PollFd::new(stream.as_fd(), flags)];
    let timeout = limit.map_or(PollTimeout::NONE, timeout);
    match poll(&mut fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sleeps until one of the sockets is readable or closed, or the time is over.
pub fn wait_any(streams: &[&UnixStream], limit: Duration) -> io::Result<()> {
    let mut fds: Vec<PollFd> = streams
        .iter()
        .map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN))
        .collect();
    match poll(&mut fds, timeout(limit)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Rounds up, so that a deadline is not polled for again and again in its last millisecond.
fn timeout(limit: Duration) -> PollTimeout {
    let milliseconds = limit.as_micros().div_ceil(1000);
    PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX)
}
