//! Whether two software NICs can reach each other, asked apart from the queue pairs between them.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use socket2::{SockAddr, Socket};

use super::device::Inner;
use super::sys;

/// Packets of a queue pair that are under way without an acknowledgement for so long are not on
/// their way any more: the kernel at the other end answers whatever its programs do. A third of the
/// time after which the work of a queue pair is suspect.
const STUCK: Duration = Duration::from_millis(8);
/// The same, from the question on, for a few small packets. The other kernel puts its
/// acknowledgement off for up to 40 ms (`TCP_DELACK_MIN` of Linux) while its program does not look
/// at what has come; but whoever asks rouses that program (see
/// [`NicInfo::needs_program`](crate::NicInfo::needs_program)).
const STUCK_ROUSED: Duration = Duration::from_millis(5);

/// A connection to the other NIC's listener that is being made and says nothing. The kernel answers
/// for the other end, as the hardware of a real NIC would.
pub(super) struct NicProbe {
    /// Names the question.
    pub id: u64,
    socket: Socket,
    asked: Instant,
    /// Of the queue pair, before the question.
    was_stuck: bool,
}

impl NicProbe {
    /// Asks. `of_any` asks the sockets of the queue pair. `None`: there is no way to the other NIC.
    pub(super) fn start(
        device: &Inner,
        to: SocketAddr,
        id: u64,
        of_any: impl Fn(fn(RawFd) -> bool) -> bool,
    ) -> Option<Self> {
        let socket = device.open_socket().ok()?;
        match socket.connect(&SockAddr::from(to)) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(_) => return None,
        }
        Some(Self {
            id,
            socket,
            asked: Instant::now(),
            was_stuck: of_any(|socket| sys::is_stuck(socket, STUCK)),
        })
    }

    /// Whether the NICs answer although the queue pair's packets do not get through; `None` as long
    /// as nothing is known.
    pub(super) fn result(&self, of_any: impl Fn(fn(RawFd) -> bool) -> bool) -> Option<bool> {
        if !self.was_stuck && self.asked.elapsed() < STUCK_ROUSED
            || !sys::is_writable(self.socket.as_raw_fd())
        {
            return None;
        }
        let is_reachable = matches!(self.socket.take_error(), Ok(None));
        let is_stuck = self.was_stuck || of_any(|socket| sys::is_silent(socket, STUCK_ROUSED));
        Some(is_reachable && is_stuck)
    }
}
