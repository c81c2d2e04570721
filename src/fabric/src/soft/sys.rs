//! The system calls of the software NIC's data path, and its socket options.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::LazyLock;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

/// Bytes of a TCP header's timestamp option with its padding; the kernel takes them off the
/// segment size that `TCP_MAXSEG` sets (`tcp_sync_mss`).
const TIMESTAMP_BYTES: u32 = 12;

/// One small packet may wait for its acknowledgement for up to 40 ms (`TCP_DELACK_MIN` of Linux).
const PACKETS_DELAYED_MAX: u32 = 1;

/// One buffer of a gathering or scattering call.
pub(super) fn buffer(address: *const u8, bytes: usize) -> libc::iovec {
    libc::iovec {
        iov_base: address.cast_mut().cast(),
        iov_len: bytes,
    }
}

fn message(buffers: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: an all-zero msghdr is a valid one without address, buffers and control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = buffers.as_mut_ptr();
    message.msg_iovlen = buffers.len() as _;
    message
}

/// Sends what the socket takes at once; `WouldBlock` when it takes nothing. No SIGPIPE.
///
/// # Safety
/// The buffers must be readable.
pub(super) unsafe fn send(socket: RawFd, buffers: &mut [libc::iovec]) -> io::Result<usize> {
    let message = message(buffers);
    retry(|| {
        // SAFETY: the message points to live buffers, by the contract of this function.
        unsafe { libc::sendmsg(socket, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
    })
}

/// Receives what is there, in ascending order; 0 is the end of the stream.
///
/// # Safety
/// The buffers must be writable.
pub(super) unsafe fn receive(socket: RawFd, buffers: &mut [libc::iovec]) -> io::Result<usize> {
    if let [only] = buffers {
        return retry(|| {
            // SAFETY: the buffer is writable, by the contract of this function.
            unsafe { libc::recv(socket, only.iov_base, only.iov_len, libc::MSG_DONTWAIT) }
        });
    }
    let mut message = message(buffers);
    retry(|| {
        // SAFETY: the message points to writable buffers, by the contract of this function.
        unsafe { libc::recvmsg(socket, &mut message, libc::MSG_DONTWAIT) }
    })
}

fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(bytes) = usize::try_from(call()) {
            return Ok(bytes);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// What the kernel knows of a connection; fields that it does not know are 0.
fn tcp_info(socket: RawFd) -> libc::tcp_info {
    // SAFETY: an all-zero tcp_info is valid; the kernel fills as much as it knows of.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the buffer is as large as `bytes` says. A failure leaves the zeros.
    unsafe {
        libc::getsockopt(
            socket,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut bytes,
        )
    };
    info
}

/// Whether bytes have been under way, unacknowledged by the other host, for `limit` or longer.
pub(super) fn is_silent(socket: RawFd, limit: Duration) -> bool {
    let info = tcp_info(socket);
    (info.tcpi_unacked > 0 || info.tcpi_probes > 0)
        && u128::from(info.tcpi_last_ack_recv) >= limit.as_millis()
}

/// Whether packets of this connection do not get through, judged in less time than
/// [`is_silent`] takes: nothing was acknowledged for `limit`, though more is under way than what
/// may wait for its acknowledgement by right, or nothing at all although the other host has room.
pub(super) fn is_stuck(socket: RawFd, limit: Duration) -> bool {
    let info = tcp_info(socket);
    let has_room = info.tcpi_snd_wnd > 0 && info.tcpi_snd_wnd >= info.tcpi_snd_mss;
    let is_held = info.tcpi_unacked == 0 && info.tcpi_notsent_bytes > 0 && has_room;
    (info.tcpi_unacked > PACKETS_DELAYED_MAX || is_held)
        && u128::from(info.tcpi_last_ack_recv) >= limit.as_millis()
}

/// Whether a socket takes bytes, or its connection has failed.
pub(super) fn is_writable(socket: RawFd) -> bool {
    let mut entry = libc::pollfd {
        fd: socket,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one live entry; the call returns at once.
    let count = unsafe { libc::poll(&mut entry, 1, 0) };
    count > 0
}

/// A TCP socket bound to `address`, ready to dial or listen.
pub(super) fn open(address: IpAddr, mtu: u32) -> io::Result<Socket> {
    let domain = Domain::for_address(SocketAddr::new(address, 0));
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    // Segments of whole words: then the stage rarely has to wait for the rest of a word.
    let headers: u32 = if address.is_ipv4() { 40 } else { 60 };
    let data = mtu.saturating_sub(headers + TIMESTAMP_BYTES) & !7;
    if data > 0 {
        // A hint: without it receiving takes a little longer.
        let _ = socket.set_tcp_mss(data + TIMESTAMP_BYTES);
    }
    socket.bind(&SockAddr::from(SocketAddr::new(address, 0)))?;
    Ok(socket)
}

/// Chooses the plainest congestion control, for sockets whose both ends are on this host: one that
/// paces halves the speed there (measured with BBR: 1.7 instead of 6 GB/s at 64 KiB, 5 instead of 7
/// at 512 KiB), and there is no network to be fair to. Best done before the socket is connected.
pub(super) fn set_local(socket: &Socket) {
    // Without effect the socket is only slower.
    let _ = socket.set_tcp_congestion(b"reno");
}

/// Gives a socket whose other end is on another host the system's congestion control.
pub(super) fn set_remote(socket: &Socket) {
    static SYSTEM: LazyLock<Option<Vec<u8>>> = LazyLock::new(|| {
        let fresh = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).ok()?;
        let mut name = fresh.tcp_congestion().ok()?;
        name.retain(|byte| *byte != 0);
        Some(name)
    });
    if let Some(name) = &*SYSTEM {
        // Without effect the socket keeps the plain one, which works everywhere.
        let _ = socket.set_tcp_congestion(name);
    }
}

/// Receive window to start with. The kernel's own first window holds one segment of the loopback
/// interface at most, and a peer that finds it closed waits for probes (seen on Linux 6.18: whole
/// seconds, with all data read and the window still closed).
const RECEIVE_WINDOW_BYTES: libc::c_int = 1 << 20;

/// Widens the receive window, and leaves it to the kernel to widen it further, which SO_RCVBUF
/// would end: a raised low-water mark makes room for itself. The mark is then taken back.
fn widen_window(socket: &Socket) {
    for mark in [RECEIVE_WINDOW_BYTES, 1] {
        // SAFETY: one int is passed. Without effect the socket is only slower.
        let _ = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const mark).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
    }
}

/// Options of an established socket.
pub(super) fn prepare(socket: &Socket, silence: Duration) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    widen_window(socket);
    // Notices a host that vanished while nothing was under way; the kernel counts whole seconds.
    let third = Duration::from_secs((silence.as_secs() / 3).max(1));
    let keepalive = TcpKeepalive::new()
        .with_time(third)
        .with_interval(third)
        .with_retries(2);
    socket.set_tcp_keepalive(&keepalive)
}

/// MTU of an interface in bytes.
pub(super) fn interface_mtu(name: &str) -> Option<u32> {
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).ok()?;
    // SAFETY: SIOCGIFMTU reads the name and writes the number into the same structure.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &mut request) } < 0 {
        return None;
    }
    // SAFETY: the call filled this member of the union.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

/// An epoll instance.
pub(super) struct Epoll(OwnedFd);

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: no pointers are passed.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Watches `socket` for `events` (EPOLL* bits) and reports `token`.
    pub(super) fn add(&self, socket: RawFd, events: i32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, events, token)
    }

    /// Changes what a watched socket is watched for.
    pub(super) fn change(&self, socket: RawFd, events: i32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, events, token)
    }

    /// Stops watching a socket, if it is watched.
    pub(super) fn remove(&self, socket: RawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, socket, 0, 0);
    }

    fn control(&self, operation: i32, socket: RawFd, events: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: token,
        };
        // SAFETY: the event lives for the call.
        let result = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, socket, &mut event) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Waits for events; without `timeout` for ever. Returns how many were written.
    pub(super) fn wait(
        &self,
        events: &mut [libc::epoll_event],
        timeout: Option<Duration>,
    ) -> usize {
        let timeout_ms = timeout.map_or(-1, |time| {
            // Rounded up: a wait that ends too early would spin until its time has come.
            i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        // SAFETY: the pointer and the length describe the slice.
        let count = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                i32::try_from(events.len()).unwrap_or(i32::MAX),
                timeout_ms,
            )
        };
        usize::try_from(count).unwrap_or(0)
    }
}

/// Wakes a thread out of [`Epoll::wait`].
pub(super) struct Waker(OwnedFd);

impl Waker {
    pub(super) fn new(epoll: &Epoll, token: u64) -> io::Result<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: no pointers are passed.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else has it.
        let waker = Self(unsafe { OwnedFd::from_raw_fd(descriptor) });
        // Edge-triggered: the counter need not be read back.
        epoll.add(waker.0.as_raw_fd(), libc::EPOLLIN | libc::EPOLLET, token)?;
        Ok(waker)
    }

    pub(super) fn wake(&self) {
        let one: u64 = 1;
        // SAFETY: eight readable bytes are passed. It fails only when the counter is full, and
        // then the thread is being woken anyway.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}
