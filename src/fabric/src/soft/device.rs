//! The software NIC itself: configuration, listener, port state, queue-pair numbers.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::Socket;

use super::fault::Faults;
use super::lanes;
use super::limiter::{Appetite, Limiter};
use super::memory::Table;
use super::port;
use super::queue_pair::SoftQueuePair;
use super::service::Service;
use super::shared::Shared;
use super::sys;
use super::wire::MESSAGE_BYTES_MAX;
use crate::meters::{Meter, Meters};
use crate::{
    Access, BytesMoved, Device, DeviceError, DeviceEvent, Fault, NicInfo, PortState, QueuePair,
    QueuePairConfig, Registration, WriteSource,
};

/// Silence of a peer after which work fails: what RC timers of 20 and 7 amount to
/// (8 tries of 4.096 µs × 2^20).
pub const SILENCE_DEFAULT: Duration = Duration::from_secs(34);
/// Largest number of lanes of a queue pair.
pub const LANES_MAX: usize = 64;
/// Queue pairs of one device: each costs a descriptor and one more for each lane.
const QUEUE_PAIRS_MAX: u32 = 16 * 1024;
/// MTU where the interface does not tell: the smallest that is common.
const MTU_DEFAULT: u32 = 1500;
/// Events that wait to be polled; older ones are dropped, since the reader looks at the state.
const EVENTS_MAX: usize = 16;

/// What a software NIC is made from.
#[derive(Clone, Debug)]
pub struct SoftConfig {
    /// Unique on the host, for example `soft0`.
    pub name: String,
    /// Local address that it sends from and listens on.
    pub address: IpAddr,
    /// Interface that carries the address, for messages and link state; `None`: the one that has
    /// the address now.
    pub interface: Option<String>,
    /// Adapter identity for [`NicInfo::guid`].
    pub guid: u64,
    /// Nominal speed in Mbit/s.
    pub speed_mbps: u32,
    /// Path of the PCI device in sysfs, if there is one.
    pub pci_path: Option<String>,
    /// Sends no more payload than so many bytes a second; `None`: as fast as it goes.
    pub rate_limit_bytes_per_s: Option<u64>,
    /// Lanes of each queue pair; `None`: as many as the machine affords.
    pub lanes: Option<usize>,
    /// Silence of a peer after which outstanding work fails with retry-exceeded.
    pub silence: Duration,
}

impl SoftConfig {
    /// A NIC on `address` with defaults for everything else.
    pub fn new(name: impl Into<String>, address: IpAddr, speed_mbps: u32) -> Self {
        Self {
            name: name.into(),
            address,
            interface: None,
            guid: 0,
            speed_mbps,
            pci_path: None,
            rate_limit_bytes_per_s: None,
            lanes: None,
            silence: SILENCE_DEFAULT,
        }
    }
}

/// The part of a device that queue pairs and the service thread share.
pub(super) struct Inner {
    config: SoftConfig,
    info: NicInfo,
    listener: Socket,
    listen_address: SocketAddr,
    mtu: u32,
    lanes: u16,
    memory: Table,
    limiter: Limiter,
    faults: Faults,
    meters: Arc<Meters>,
    queue_pairs: Mutex<HashMap<u32, Arc<Shared>>>,
    next_number: AtomicU32,
    active: AtomicBool,
    events: Mutex<VecDeque<DeviceEvent>>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    strangers: AtomicU64,
}

impl Inner {
    pub(super) fn memory(&self) -> &Table {
        &self.memory
    }

    /// The rate limit, while there is one.
    pub(super) fn limiter(&self) -> Option<&Limiter> {
        self.limiter.is_on().then_some(&self.limiter)
    }

    /// A sender waits for the limit no more.
    pub(super) fn satisfy(&self, appetite: &mut Appetite) {
        self.limiter.satisfy(appetite);
    }

    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(super) fn add_meter(&self) -> Meter {
        self.meters.add()
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    pub(super) fn silence(&self) -> Duration {
        self.config.silence
    }

    pub(super) fn lanes(&self) -> u16 {
        self.lanes
    }

    pub(super) fn listener(&self) -> &Socket {
        &self.listener
    }

    pub(super) fn listen_address(&self) -> SocketAddr {
        self.listen_address
    }

    /// A socket bound to the device's address.
    pub(super) fn open_socket(&self) -> std::io::Result<Socket> {
        sys::open(self.config.address, self.mtu)
    }

    /// Counts a connection that had no business here.
    pub(super) fn count_stranger(&self) {
        self.strangers.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn queue_pair(&self, number: u32) -> Option<Arc<Shared>> {
        self.queue_pairs.lock().get(&number).cloned()
    }

    pub(super) fn remove_queue_pair(&self, number: u32) {
        self.queue_pairs.lock().remove(&number);
    }

    /// Looks at the true state of link and address; a change becomes an event.
    pub(super) fn refresh_port(&self) {
        // Under the lock, so that who looked first does not speak last.
        let mut events = self.events.lock();
        let active = !self.faults.link_is_lost()
            && port::is_active(self.config.address, self.config.interface.as_deref());
        if self.active.swap(active, Ordering::AcqRel) != active {
            if events.len() == EVENTS_MAX {
                events.pop_front();
            }
            events.push_back(if active {
                DeviceEvent::PortUp
            } else {
                DeviceEvent::PortDown
            });
            drop(events);
            if let Some(wake) = self.wake.get() {
                wake();
            }
        }
    }
}

/// A NIC made of TCP sockets on one local address.
pub struct SoftDevice {
    inner: Arc<Inner>,
    service: &'static Service,
    token: u64,
}

impl SoftDevice {
    /// Opens a software NIC: listens on its address, on a port that the kernel chooses.
    pub fn open(config: SoftConfig) -> Result<Arc<Self>, DeviceError> {
        let interface = match &config.interface {
            Some(name) => Some(name.clone()),
            None => port::interface_of(config.address),
        };
        if config.lanes.is_some_and(|lanes| lanes > LANES_MAX) {
            return Err(DeviceError(format!(
                "{}: more than {LANES_MAX} lanes asked for; use fewer",
                config.name
            )));
        }
        let lanes = config.lanes.unwrap_or_else(lanes::automatic_lanes);
        lanes::start_threads(lanes)?;
        let mtu = interface
            .as_deref()
            .and_then(sys::interface_mtu)
            .unwrap_or(MTU_DEFAULT);
        let (listener, listen_address) = listen(config.address, mtu).map_err(|error| {
            let interface = interface.as_deref().unwrap_or("no interface");
            DeviceError(format!(
                "{} cannot listen on {} of {interface}: {error}; name an interface that is up or \
                 an address of this host, and see that the limit on open files is not reached",
                config.name, config.address
            ))
        })?;
        let service = Service::get()?;
        let first_number = getrandom::u32()
            .map_err(|error| DeviceError(format!("{}: no random numbers: {error}", config.name)))?;
        let active = port::is_active(config.address, interface.as_deref());
        let inner = Arc::new(Inner {
            info: nic_info(&config),
            limiter: Limiter::new(config.rate_limit_bytes_per_s),
            faults: Faults::default(),
            meters: Arc::default(),
            config: SoftConfig {
                interface,
                ..config
            },
            listener,
            listen_address,
            mtu,
            lanes: lanes as u16,
            memory: Table::default(),
            queue_pairs: Mutex::new(HashMap::new()),
            next_number: AtomicU32::new(first_number),
            active: AtomicBool::new(active),
            events: Mutex::new(VecDeque::new()),
            wake: OnceLock::new(),
            strangers: AtomicU64::new(0),
        });
        let token = service.listen(&inner, inner.listener.as_raw_fd())?;
        Ok(Arc::new(Self {
            inner,
            service,
            token,
        }))
    }

    /// Connections to the listener that were dropped: no hello in time, or a wrong one. Questions
    /// of other NICs whether this one is there ([`QueuePair::probe_nics`]) are among them.
    pub fn strangers(&self) -> u64 {
        self.inner.strangers.load(Ordering::Relaxed)
    }

    /// Where the device listens.
    pub fn listen_address(&self) -> SocketAddr {
        self.inner.listen_address
    }
}

/// A listener on `address`, on a port that the kernel chooses, and where it listens.
fn listen(address: IpAddr, mtu: u32) -> std::io::Result<(Socket, SocketAddr)> {
    let listener = sys::open(address, mtu)?;
    // Sockets that it accepts inherit this. Those of other hosts get the system's choice later:
    // that way round, since a socket that has once been told to pace does so for good.
    sys::set_local(&listener);
    listener.listen(1024)?;
    let bound = listener.local_addr()?.as_socket();
    Ok((listener, bound.unwrap_or(SocketAddr::new(address, 0))))
}

fn nic_info(config: &SoftConfig) -> NicInfo {
    NicInfo {
        name: config.name.clone(),
        guid: config.guid,
        port: 1,
        speed_mbps: config.speed_mbps,
        pci_path: config.pci_path.clone(),
        address: config.address.to_string(),
        queue_pairs_max: QUEUE_PAIRS_MAX,
        message_bytes_max: u64::from(MESSAGE_BYTES_MAX),
        inline_bytes_max: WriteSource::INLINE_BYTES_MAX,
        needs_program: true,
    }
}

impl Drop for SoftDevice {
    fn drop(&mut self) {
        self.service.remove(self.token);
    }
}

impl Device for SoftDevice {
    fn info(&self) -> &NicInfo {
        &self.inner.info
    }

    fn port_state(&self) -> PortState {
        if self.inner.active.load(Ordering::Acquire) {
            PortState::Active
        } else {
            PortState::Down
        }
    }

    unsafe fn register(
        &self,
        address: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Registration, DeviceError> {
        let key = self
            .inner
            .memory
            .register(address as u64, len as u64, access)
            .map_err(|error| DeviceError(format!("{}: {error}", self.inner.config.name)))?;
        let rkey = if access.is_remote() { key } else { 0 };
        Ok(Registration { lkey: key, rkey })
    }

    fn deregister(&self, registration: Registration) {
        self.inner.memory.deregister(registration.lkey);
    }

    fn create_queue_pair(
        &self,
        config: QueuePairConfig,
    ) -> Result<Box<dyn QueuePair>, DeviceError> {
        let name = &self.inner.config.name;
        if self.inner.faults.link_is_lost() {
            return Err(DeviceError(format!(
                "{name}: its link was taken away by `r2ccl chaos`; `r2ccl chaos {name} restore` \
                 gives it back"
            )));
        }
        let secret = getrandom::u64()
            .map_err(|error| DeviceError(format!("{name}: no random numbers: {error}")))?;
        let mut queue_pairs = self.inner.queue_pairs.lock();
        if queue_pairs.len() >= QUEUE_PAIRS_MAX as usize {
            return Err(DeviceError(format!(
                "{name}: {QUEUE_PAIRS_MAX} queue pairs are in use, which is the limit; use fewer \
                 connections or more NICs"
            )));
        }
        let number = loop {
            let number = self.inner.next_number.fetch_add(1, Ordering::Relaxed);
            if !queue_pairs.contains_key(&number) {
                break number;
            }
        };
        let inner = Arc::clone(&self.inner);
        let shared = Arc::new(Shared::new(inner, number, secret, self.inner.lanes));
        queue_pairs.insert(number, Arc::clone(&shared));
        drop(queue_pairs);
        Ok(Box::new(SoftQueuePair::new(shared, self.service, config)))
    }

    fn on_event(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // The first one stays.
        let _ = self.inner.wake.set(wake);
    }

    fn poll_event(&self) -> Option<DeviceEvent> {
        self.inner.events.lock().pop_front()
    }

    fn bytes_moved(&self) -> BytesMoved {
        self.inner.meters.read()
    }

    fn inject(&self, fault: Fault) -> Result<(), DeviceError> {
        let rate = match fault {
            Fault::Slow { bytes_per_second } => Some(bytes_per_second),
            _ => self.inner.config.rate_limit_bytes_per_s,
        };
        self.inner.limiter.set(rate);
        self.inner.faults.set(fault);
        self.inner.refresh_port();
        Ok(())
    }
}
