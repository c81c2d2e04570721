//! One port of an RDMA device as a NIC.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;
use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use super::VerbsConfig;
use super::context::Context;
use super::endpoint::Endpoint;
use super::events;
use super::gid::{Entry, Gid};
use super::prober::Prober;
use super::queue_pair::VerbsQueuePair;
use crate::meters::Meters;
use crate::{
    Access, BytesMoved, Device, DeviceError, DeviceEvent, NicInfo, PortState, QueuePair,
    QueuePairConfig, Registration,
};

/// A port with what all its queue pairs share.
pub(super) struct Port {
    pub(super) context: Arc<Context>,
    pub(super) number: u32,
    pub(super) config: VerbsConfig,
    pub(super) info: NicInfo,
    pub(super) is_ethernet: bool,
    /// The GID that it had when it was found, if it was fit for use then.
    pub(super) home: Option<Entry>,
    /// Made when it is first wanted; `None` where the device has no such thing.
    pub(super) prober: OnceCell<Option<Arc<Prober>>>,
}

impl Port {
    /// Who asks and answers for this port, if the device can do that.
    pub(super) fn prober(&self) -> Option<&Arc<Prober>> {
        let make = || {
            let made = Prober::new(&self.context, self.number, self.config.pkey_index);
            let note = |error: &DeviceError| {
                tracing::info!(
                    "{}: {error}; a fault of a queue pair is taken for one of its NICs",
                    self.info.name
                );
            };
            made.inspect_err(note).ok()
        };
        self.prober.get_or_init(make).as_ref()
    }

    /// A message that names the NIC.
    pub(super) fn error(&self, text: &str) -> DeviceError {
        DeviceError(format!("{}: {text}", self.info.name))
    }

    /// Why the device has not made something.
    pub(super) fn resource_error(&self, what: &str, error: &io::Error) -> DeviceError {
        let remedy = match error.raw_os_error() {
            Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM) => {
                "raise the limit on locked memory (ulimit -l unlimited; memlock of the container), \
                 and see that the device has resources left (rdma resource)"
            }
            _ => "see the kernel's messages, or leave it out with NCCL_IB_HCA=^NAME",
        };
        self.error(&format!("{what} cannot be had: {error}; {remedy}"))
    }

    /// The GID that this port uses now: the one that it had at first, wherever that stands, or else
    /// another of no worse a kind. Addresses come back one after the other when a link is up again.
    pub(super) fn choose_gid(&self) -> Result<Entry, DeviceError> {
        let policy = &self.config.gid;
        let table = self.gid_table()?;
        let is_home = |entry: &&Entry| {
            let home = self.home;
            home.is_some_and(|home| (home.gid, home.version) == (entry.gid, entry.version))
        };
        if let Some(entry) = table.iter().find(is_home) {
            return Ok(*entry);
        }
        let is_choosy = self.home.is_some_and(|home| policy.is_met_by(&home));
        let chosen = choose_gid(table, &self.config, self.is_ethernet);
        chosen
            .filter(|gid| !self.is_ethernet || !is_choosy || policy.is_met_by(gid))
            .ok_or_else(|| self.error(NO_GID))
    }

    fn gid_table(&self) -> Result<Vec<Entry>, DeviceError> {
        let length = self.context.query_port(self.number)?.gid_tbl_len;
        Ok(self.context.gid_table(self.number, length.max(0) as u32))
    }

    /// Where a GID stands in the table now.
    pub(super) fn find_gid(&self, gid: Gid) -> Result<u8, DeviceError> {
        let table = self.gid_table()?;
        let version = Some(self.config.gid.roce_version);
        let same = || table.iter().filter(|entry| entry.gid == gid);
        // The same address stands there once for each version of RoCE.
        let chosen = self
            .config
            .gid
            .index
            .and_then(|index| same().find(|it| it.index == index));
        let found = chosen
            .or_else(|| same().find(|entry| entry.version == version))
            .or_else(|| same().next());
        let index = found.and_then(|entry| u8::try_from(entry.index).ok());
        index.ok_or_else(|| {
            self.error(&format!(
                "the port has lost its address {gid}; see `ip address`"
            ))
        })
    }

    /// Registers memory with the rights `access` of libibverbs.
    ///
    /// # Safety
    /// The memory must stay mapped until it is deregistered.
    pub(super) unsafe fn register(
        &self,
        address: *mut u8,
        bytes: usize,
        access: u32,
    ) -> Result<NonNull<sys::ibv_mr>, DeviceError> {
        let (library, pd) = (self.context.library, self.context.pd.as_ptr());
        // SAFETY: the caller's promise.
        let mr = unsafe {
            match access & RELAXED_ORDERING {
                0 => library.ibv_reg_mr(pd, address.cast(), bytes, access as c_int),
                // This one leaves out the wish where the kernel does not know it.
                _ => library.ibv_reg_mr_iova2(pd, address.cast(), bytes, address as u64, access),
            }
        }?;
        NonNull::new(mr).ok_or_else(|| {
            let error = io::Error::last_os_error();
            self.resource_error(&format!("a registration of {bytes} bytes"), &error)
        })
    }

    pub(super) fn deregister(&self, mr: NonNull<sys::ibv_mr>) {
        // SAFETY: the registration is there, and ends once.
        let result = unsafe { self.context.library.ibv_dereg_mr(mr.as_ptr()) };
        if let Some(error) = result
            .ok()
            .and_then(|code| super::library::check(code).err())
        {
            tracing::warn!("{}: memory cannot be deregistered: {error}", self.info.name);
        }
    }
}

/// What to say where a port has no address.
pub(super) const NO_GID: &str = "the port has no GID: give its network interface an address, or \
     see NCCL_IB_GID_INDEX; `rdma link` and `ip address` show what is there";

/// The GID of a table that a port uses by the rules of `config`.
pub(super) fn choose_gid(
    table: Vec<Entry>,
    config: &VerbsConfig,
    is_ethernet: bool,
) -> Option<Entry> {
    if is_ethernet {
        config.gid.choose(&table)
    } else {
        table.into_iter().find(|entry| entry.index == 0)
    }
}

/// The access flag of the bus that lets the device's writes pass each other.
const RELAXED_ORDERING: u32 = sys::ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;

/// Rights of a registration as libibverbs has them. What is polled by the byte is never relaxed.
fn rights(access: Access, relaxed_ordering: bool) -> u32 {
    let remote = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
        | sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    let relaxed = if relaxed_ordering {
        RELAXED_ORDERING
    } else {
        0
    };
    match access {
        Access::Local => relaxed,
        Access::RemoteData => remote | relaxed,
        Access::RemoteWrite => remote,
    }
}

/// A NIC that libibverbs drives.
pub struct VerbsDevice {
    port: Arc<Port>,
    registrations: Mutex<HashMap<u32, Mr>>,
    meters: Arc<Meters>,
}

/// A registration.
struct Mr(NonNull<sys::ibv_mr>);

// SAFETY: libibverbs may be called from any thread.
unsafe impl Send for Mr {}

impl VerbsDevice {
    pub(super) fn new(port: Port) -> Arc<Self> {
        Arc::new(Self {
            port: Arc::new(port),
            registrations: Mutex::default(),
            meters: Arc::default(),
        })
    }

    pub(super) fn port(&self) -> &Arc<Port> {
        &self.port
    }
}

impl Device for VerbsDevice {
    fn info(&self) -> &NicInfo {
        &self.port.info
    }

    fn port_state(&self) -> PortState {
        match self.port.context.query_port(self.port.number) {
            Ok(port)
                if port.state == sys::ibv_port_state::IBV_PORT_ACTIVE
                    && self.port.choose_gid().is_ok() =>
            {
                PortState::Active
            }
            _ => PortState::Down,
        }
    }

    unsafe fn register(
        &self,
        address: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Registration, DeviceError> {
        if len == 0 {
            // Devices refuse it, and work without bytes names no key.
            return Ok(Registration { lkey: 0, rkey: 0 });
        }
        let port = &self.port;
        let is_relaxed =
            port.config.relaxed_ordering && port.context.library.has_relaxed_ordering();
        let rights = rights(access, is_relaxed);
        // SAFETY: the caller's promise.
        let mr = unsafe { self.port.register(address, len, rights) }?;
        // SAFETY: the registration is there.
        let (lkey, rkey) = unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) };
        self.registrations.lock().insert(lkey, Mr(mr));
        let rkey = if access.is_remote() { rkey } else { 0 };
        Ok(Registration { lkey, rkey })
    }

    fn deregister(&self, registration: Registration) {
        let found = self.registrations.lock().remove(&registration.lkey);
        if let Some(Mr(mr)) = found {
            self.port.deregister(mr);
        }
    }

    fn create_queue_pair(
        &self,
        config: QueuePairConfig,
    ) -> Result<Box<dyn QueuePair>, DeviceError> {
        let endpoint = Arc::new(Endpoint::new(&self.port, config)?);
        Ok(Box::new(VerbsQueuePair::new(
            endpoint,
            config,
            self.meters.add(),
        )?))
    }

    fn on_event(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let watched = events::watch(&self.port.context, self.port.number, wake);
        if let Err(error) = watched {
            tracing::warn!("{}: {error}; faults are found later", self.info().name);
        }
    }

    fn poll_event(&self) -> Option<DeviceEvent> {
        self.port.context.poll_event(self.port.number)
    }

    /// Work that was posted, and writes with immediate that have come: the device tells of no
    /// others.
    fn bytes_moved(&self) -> BytesMoved {
        self.meters.read()
    }
}

impl Drop for VerbsDevice {
    fn drop(&mut self) {
        for (_, Mr(mr)) in self.registrations.get_mut().drain() {
            self.port.deregister(mr);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_is_relaxed() {
        let is_relaxed = |access, wish| rights(access, wish) & RELAXED_ORDERING != 0;
        for access in [Access::Local, Access::RemoteData] {
            assert!(is_relaxed(access, true) && !is_relaxed(access, false));
        }
        assert!(!is_relaxed(Access::RemoteWrite, true));
        assert_eq!(
            rights(Access::RemoteWrite, true),
            rights(Access::RemoteData, false)
        );
        assert_eq!(rights(Access::Local, false), 0);
    }
}
