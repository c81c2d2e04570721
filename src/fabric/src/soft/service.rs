//! The one thread of the process that accepts and dials sockets and watches links.
//!
//! Only events wake it, and deadlines of connections that are being made. Who connects must say a
//! right hello within a short time; strangers are bounded in number and cost nobody else anything
//! (PROTOCOL R39).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::{SockAddr, Socket};

use super::device::Inner;
use super::greeting::{admit, finish_dial};
use super::port;
use super::shared::Shared;
use super::sys::{self, Epoll, Waker};
use super::wire::Hello;
use crate::DeviceError;

/// Connections of one device that have not said their hello: as many as a crowd of queue pairs
/// makes at once, so that nobody has to go.
const PENDING_MAX: usize = 256;
/// Time to say hello.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// Time that nobody shortens: on a busy host the thread that says hello may have to wait so long.
const HELLO_GRACE: Duration = Duration::from_millis(500);
/// Pause of a listener when as many as may wait are waiting.
const CROWD_PAUSE: Duration = Duration::from_millis(2);
/// Pause of a listener when the process is out of descriptors.
const LISTEN_PAUSE: Duration = Duration::from_millis(100);
/// Pause of a listener that nothing reaches, as somebody wants it.
const FAULT_PAUSE: Duration = Duration::from_millis(20);
const WAKE_TOKEN: u64 = 0;
const LINK_TOKEN: u64 = 1;
const FIRST_TOKEN: u64 = 2;

enum Watched {
    /// The listener of a device; paused until then, if out of descriptors.
    Listener {
        device: Weak<Inner>,
        paused_until: Option<Instant>,
    },
    /// An accepted connection that has not said its hello.
    Pending {
        device: Weak<Inner>,
        socket: Socket,
        hello: PartialHello,
        deadline: Instant,
    },
    /// A connection that is being made.
    Dial {
        shared: Weak<Shared>,
        socket: Socket,
        hello: Hello,
        deadline: Instant,
    },
}

impl Watched {
    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Listener { paused_until, .. } => *paused_until,
            Self::Pending { deadline, .. } | Self::Dial { deadline, .. } => Some(*deadline),
        }
    }
}

struct PartialHello {
    bytes: [u8; Hello::BYTES],
    count: usize,
}

struct State {
    watched: HashMap<u64, Watched>,
    next_token: u64,
}

impl State {
    fn insert(&mut self, watched: Watched) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.watched.insert(token, watched);
        token
    }
}

/// Handle of the thread.
pub(super) struct Service {
    epoll: Epoll,
    waker: Waker,
    links: OwnedFd,
    state: Mutex<State>,
}

static SERVICE: Mutex<Option<&'static Service>> = Mutex::new(None);

impl Service {
    /// The thread of this process, started at the first call.
    pub(super) fn get() -> Result<&'static Self, DeviceError> {
        let mut slot = SERVICE.lock();
        if let Some(service) = *slot {
            return Ok(service);
        }
        let service = Self::start().map_err(|error| {
            DeviceError(format!(
                "cannot start the service thread of the software NICs: {error}; raise the limits \
                 on threads and open files"
            ))
        })?;
        *slot = Some(service);
        Ok(service)
    }

    fn start() -> io::Result<&'static Self> {
        let epoll = Epoll::new()?;
        let waker = Waker::new(&epoll, WAKE_TOKEN)?;
        let links = port::watch()?;
        epoll.add(links.as_raw_fd(), libc::EPOLLIN, LINK_TOKEN)?;
        let state = State {
            watched: HashMap::new(),
            next_token: FIRST_TOKEN,
        };
        let service = Arc::new(Self {
            epoll,
            waker,
            links,
            state: Mutex::new(state),
        });
        let own = Arc::clone(&service);
        std::thread::Builder::new()
            .name("r2ccl-soft-nic".into())
            .spawn(move || own.run())?;
        // Lives as long as the process, as its thread does.
        let forever: &'static Arc<Self> = Box::leak(Box::new(service));
        Ok(forever)
    }

    /// Accepts connections for `device` until [`Service::remove`].
    pub(super) fn listen(&self, device: &Arc<Inner>, listener: RawFd) -> Result<u64, DeviceError> {
        let watched = Watched::Listener {
            device: Arc::downgrade(device),
            paused_until: None,
        };
        let token = self.state.lock().insert(watched);
        self.epoll
            .add(listener, libc::EPOLLIN, token)
            .map_err(|error| {
                self.remove(token);
                DeviceError(format!(
                    "{}: cannot watch the listener: {error}",
                    device.name()
                ))
            })?;
        Ok(token)
    }

    /// Forgets what `token` stands for.
    pub(super) fn remove(&self, token: u64) {
        let watched = self.state.lock().watched.remove(&token);
        let Some(Watched::Listener { device, .. }) = &watched else {
            return;
        };
        if let Some(device) = device.upgrade() {
            self.epoll.remove(device.listener().as_raw_fd());
        }
    }

    /// Starts a connection; its socket goes to `shared` when it stands.
    pub(super) fn dial(
        &self,
        shared: &Arc<Shared>,
        to: SocketAddr,
        hello: Hello,
    ) -> io::Result<()> {
        if shared.device.faults().is_cut() {
            // The words of the dial go nowhere; the queue pair's own deadline counts.
            return Ok(());
        }
        let socket = shared.device.open_socket()?;
        if port::interface_of(to.ip()).is_some() {
            sys::set_local(&socket);
        }
        let descriptor = socket.as_raw_fd();
        match socket.connect(&SockAddr::from(to)) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let deadline = Instant::now() + shared.device.silence();
        let shared = Arc::downgrade(shared);
        let watched = Watched::Dial {
            shared,
            socket,
            hello,
            deadline,
        };
        // Under the lock, so that the thread cannot see and close the socket in between.
        let mut state = self.state.lock();
        let token = state.insert(watched);
        if let Err(error) = self.epoll.add(descriptor, libc::EPOLLOUT, token) {
            state.watched.remove(&token);
            return Err(error);
        }
        drop(state);
        // It may have to wait for an earlier deadline now.
        self.waker.wake();
        Ok(())
    }

    fn run(&self) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        loop {
            let deadline = {
                let state = self.state.lock();
                state.watched.values().filter_map(Watched::deadline).min()
            };
            let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let count = self.epoll.wait(&mut events, timeout);
            for event in &events[..count] {
                match event.u64 {
                    WAKE_TOKEN => {}
                    LINK_TOKEN => self.links_changed(),
                    token => self.ready(token),
                }
            }
            self.expire(Instant::now());
        }
    }

    fn links_changed(&self) {
        port::drain(&self.links);
        let devices: Vec<_> = {
            let state = self.state.lock();
            let listeners = state.watched.values().filter_map(|watched| match watched {
                Watched::Listener { device, .. } => device.upgrade(),
                _ => None,
            });
            listeners.collect()
        };
        for device in devices {
            device.refresh_port();
        }
    }

    /// Drops what has taken too long, and resumes paused listeners.
    fn expire(&self, now: Instant) {
        let mut late = Vec::new();
        let mut resumed = Vec::new();
        {
            let mut state = self.state.lock();
            for (token, watched) in &mut state.watched {
                if watched.deadline().is_none_or(|deadline| deadline > now) {
                    continue;
                }
                if let Watched::Listener {
                    device,
                    paused_until,
                } = watched
                {
                    *paused_until = None;
                    resumed.extend(device.upgrade().map(|device| (*token, device)));
                } else {
                    late.push(*token);
                }
            }
        }
        for (token, device) in resumed {
            // Should it fail, the listener is gone anyway.
            let _ = self
                .epoll
                .change(device.listener().as_raw_fd(), libc::EPOLLIN, token);
        }
        for token in late {
            let watched = self.state.lock().watched.remove(&token);
            watched.inspect(drop_connection);
        }
    }

    fn ready(&self, token: u64) {
        // Taken out, so that nothing is dropped or called under the lock.
        let mut state = self.state.lock();
        if let Some(Watched::Listener { device, .. }) = state.watched.get(&token) {
            let device = device.upgrade();
            drop(state);
            device.inspect(|device| self.accept(token, device));
            return;
        }
        let watched = state.watched.remove(&token);
        drop(state);
        match watched {
            Some(Watched::Dial {
                shared,
                socket,
                hello,
                ..
            }) => {
                self.epoll.remove(socket.as_raw_fd());
                if let Some(shared) = shared.upgrade() {
                    finish_dial(&shared, socket, hello);
                }
            }
            Some(Watched::Pending {
                device,
                socket,
                hello,
                deadline,
            }) => {
                if let Some(device) = device.upgrade() {
                    self.listen_to(Some(token), &device, socket, hello, deadline);
                }
            }
            Some(Watched::Listener { .. }) | None => {}
        }
    }

    fn accept(&self, token: u64, device: &Arc<Inner>) {
        if device.faults().is_cut() {
            self.pause(token, device, FAULT_PAUSE);
            return;
        }
        while self.make_room(token, device) {
            match device.listener().accept() {
                Ok((socket, _)) => {
                    let hello = PartialHello {
                        bytes: [0; Hello::BYTES],
                        count: 0,
                    };
                    if socket.set_nonblocking(true).is_ok() {
                        let deadline = Instant::now() + HELLO_TIME;
                        self.listen_to(None, device, socket, hello, deadline);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    let raw = error.raw_os_error();
                    let exhausted =
                        [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM].map(Some);
                    if exhausted.contains(&raw) {
                        tracing::warn!(nic = device.name(), %error, "cannot accept; raise limits");
                        self.pause(token, device, LISTEN_PAUSE);
                        return;
                    }
                }
            }
        }
    }

    /// Sees to it that one more connection may wait for its hello; else pauses the listener, and
    /// connections wait in the kernel. Whoever means it says hello at once, but many queue pairs
    /// may connect at the same time: only who has had a while is turned out for others.
    fn make_room(&self, token: u64, device: &Arc<Inner>) -> bool {
        let own = Arc::downgrade(device);
        let mut state = self.state.lock();
        let pending = state
            .watched
            .iter()
            .filter_map(|(token, watched)| match watched {
                Watched::Pending {
                    device, deadline, ..
                } if device.ptr_eq(&own) => Some((*deadline, *token)),
                _ => None,
            });
        let pending: Vec<_> = pending.collect();
        let oldest = pending.iter().min();
        let Some((deadline, oldest)) = oldest.filter(|_| pending.len() >= PENDING_MAX) else {
            return true;
        };
        let is_late = *deadline < Instant::now() + HELLO_TIME - HELLO_GRACE;
        let evicted = if is_late {
            state.watched.remove(oldest)
        } else {
            None
        };
        drop(state);
        if evicted.inspect(drop_connection).is_none() {
            self.pause(token, device, CROWD_PAUSE);
        }
        is_late
    }

    /// The listener stays readable, so look away for a while.
    fn pause(&self, token: u64, device: &Inner, time: Duration) {
        let _ = self.epoll.change(device.listener().as_raw_fd(), 0, token);
        let until = Instant::now() + time;
        if let Some(Watched::Listener { paused_until, .. }) =
            self.state.lock().watched.get_mut(&token)
        {
            *paused_until = Some(until);
        }
    }

    /// Reads a hello, or what is there of it.
    fn listen_to(
        &self,
        token: Option<u64>,
        device: &Arc<Inner>,
        socket: Socket,
        mut hello: PartialHello,
        deadline: Instant,
    ) {
        let rest = &mut hello.bytes[hello.count..];
        let mut buffers = [sys::buffer(rest.as_ptr(), rest.len())];
        // SAFETY: the buffer is the rest of the hello.
        match unsafe { sys::receive(socket.as_raw_fd(), &mut buffers) } {
            Ok(0) => device.count_stranger(),
            Ok(count) if count == rest.len() => {
                if token.is_some() {
                    self.epoll.remove(socket.as_raw_fd());
                }
                admit(device, socket, &hello.bytes);
            }
            Ok(count) => {
                hello.count += count;
                self.keep_pending(token, device, socket, hello, deadline);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.keep_pending(token, device, socket, hello, deadline);
            }
            Err(_) => device.count_stranger(),
        }
    }

    fn keep_pending(
        &self,
        token: Option<u64>,
        device: &Arc<Inner>,
        socket: Socket,
        hello: PartialHello,
        deadline: Instant,
    ) {
        let descriptor = socket.as_raw_fd();
        let watched = Watched::Pending {
            device: Arc::downgrade(device),
            socket,
            hello,
            deadline,
        };
        let mut state = self.state.lock();
        if let Some(token) = token {
            state.watched.insert(token, watched);
            return;
        }
        let token = state.insert(watched);
        drop(state);
        if self.epoll.add(descriptor, libc::EPOLLIN, token).is_err() {
            self.remove(token);
        }
    }
}

/// Accounts for a connection that is given up.
fn drop_connection(watched: &Watched) {
    match watched {
        Watched::Pending { device, .. } => {
            device.upgrade().inspect(|device| device.count_stranger());
        }
        Watched::Dial { shared, .. } => {
            shared.upgrade().inspect(|shared| shared.set_broken());
        }
        Watched::Listener { .. } => {}
    }
}
