//! Whether two software NICs can reach each other, asked apart from the queue pairs between them.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::{SockAddr, Socket};

use super::device::Inner;
use super::sys;

/// Packets of a queue pair that are under way without an acknowledgement for so long are not on
/// their way any more: the kernel at the other end answers whatever its programs do. A third of the
/// time after which the work of a queue pair is suspect.
pub(super) const STUCK: Duration = Duration::from_millis(8);

/// A connection to the other NIC's listener that is being made and says nothing. The kernel answers
/// for the other end, as the hardware of a real NIC would.
pub(super) struct NicProbe {
    /// Names the question.
    pub id: u64,
    socket: Socket,
}

impl NicProbe {
    /// Asks. `None`: there is no way to the other NIC.
    pub(super) fn start(device: &Inner, to: SocketAddr, id: u64) -> Option<Self> {
        let socket = device.open_socket().ok()?;
        match socket.connect(&SockAddr::from(to)) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(_) => return None,
        }
        Some(Self { id, socket })
    }

    /// Whether the other NIC has answered; `None` as long as nothing is known.
    pub(super) fn result(&self) -> Option<bool> {
        let is_over = sys::is_writable(self.socket.as_raw_fd());
        is_over.then(|| matches!(self.socket.take_error(), Ok(None)))
    }
}
