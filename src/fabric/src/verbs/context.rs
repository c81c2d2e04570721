//! An opened RDMA device, which all its ports and their queue pairs share: protection domain,
//! queries, and the one reader of its asynchronous events.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ibverbs_sys as sys;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use parking_lot::Mutex;

use super::events;
use super::gid::{self, Entry, Gid};
use super::library::{Library, check};
use crate::{DeviceError, DeviceEvent};

/// Events of a port that wait to be polled; older ones are dropped, since the reader looks at the
/// state.
const EVENTS_MAX: usize = 16;

/// An opened device.
pub(super) struct Context {
    pub(super) library: &'static Library,
    pub(super) raw: NonNull<sys::ibv_context>,
    pub(super) pd: NonNull<sys::ibv_pd>,
    /// The kernel's name, such as `mlx5_0`.
    pub(super) name: String,
    pub(super) attributes: sys::ibv_device_attr,
    /// Folder of the device in sysfs.
    pub(super) folder: PathBuf,
    events: Mutex<Events>,
}

// SAFETY: libibverbs may be called from any thread; what is ours beside it is locked.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What the events of a device have told.
#[derive(Default)]
struct Events {
    ports: HashMap<u32, VecDeque<DeviceEvent>>,
    /// By the addresses of queue pair and completion queue: whether they have failed.
    failed: HashMap<usize, Arc<AtomicBool>>,
}

/// Names of a list of devices, with the list.
pub(super) struct DeviceList {
    library: &'static Library,
    list: *mut *mut sys::ibv_device,
    count: usize,
}

impl DeviceList {
    /// The devices that libibverbs finds now.
    pub(super) fn get(library: &'static Library) -> Result<Self, DeviceError> {
        let mut count: c_int = 0;
        // SAFETY: the library writes the number there.
        let list = unsafe { library.ibv_get_device_list(&mut count) }?;
        let error = io::Error::last_os_error();
        if list.is_null() && error.raw_os_error() != Some(libc::ENOSYS) {
            return Err(DeviceError(format!(
                "RDMA devices cannot be listed: {error}; see that /sys/class/infiniband and \
                 /dev/infiniband are visible in this container"
            )));
        }
        // Without a list the kernel has no RDMA at all.
        let count = if list.is_null() {
            0
        } else {
            count.max(0) as usize
        };
        Ok(Self {
            library,
            list,
            count,
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = NonNull<sys::ibv_device>> + '_ {
        // SAFETY: the list has that many entries.
        let entry = |index| NonNull::new(unsafe { *self.list.add(index) });
        (0..self.count).filter_map(entry)
    }

    /// Name of a device of this list.
    pub(super) fn name(&self, device: NonNull<sys::ibv_device>) -> Result<String, DeviceError> {
        // SAFETY: the device is of the list, and the name is a string of its own.
        let name = unsafe {
            let name = self.library.ibv_get_device_name(device.as_ptr())?;
            CStr::from_ptr(name)
        };
        Ok(name.to_string_lossy().into_owned())
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        if !self.list.is_null() {
            // SAFETY: opened devices outlive the list, and nobody uses the others any more.
            let _ = unsafe { self.library.ibv_free_device_list(self.list) };
        }
    }
}

impl Context {
    /// Opens a device of a list. The error is to be read behind its name.
    pub(super) fn open(
        library: &'static Library,
        device: NonNull<sys::ibv_device>,
        name: String,
        sysfs: &Path,
    ) -> Result<Arc<Self>, DeviceError> {
        // SAFETY: the device is of a list that is still there.
        let raw = NonNull::new(unsafe { library.ibv_open_device(device.as_ptr()) }?);
        let raw = raw.ok_or_else(|| open_error(&io::Error::last_os_error()))?;
        // SAFETY: the context is open.
        let pd = unsafe { library.ibv_alloc_pd(raw.as_ptr()) };
        let pd = pd.map(|pd| NonNull::new(pd).ok_or_else(io::Error::last_os_error));
        let pd = match pd {
            Ok(Ok(pd)) => pd,
            Ok(Err(error)) => {
                close(library, raw);
                return Err(open_error(&error));
            }
            Err(missing) => {
                close(library, raw);
                return Err(missing);
            }
        };
        let mut context = Self {
            library,
            raw,
            pd,
            folder: sysfs.join("class/infiniband").join(&name),
            name,
            attributes: sys::ibv_device_attr::default(),
            events: Mutex::default(),
        };
        // SAFETY: the context is open and the structure is written whole.
        let code = unsafe { library.ibv_query_device(raw.as_ptr(), &mut context.attributes) }?;
        check(code).map_err(|error| open_error(&error))?;
        context
            .stop_blocking()
            .map_err(|error| open_error(&error))?;
        Ok(Arc::new(context))
    }

    /// Reading an event that is not there must not wait.
    fn stop_blocking(&self) -> io::Result<()> {
        let events = self.events();
        let flags = OFlag::from_bits_retain(fcntl(events, FcntlArg::F_GETFL)?);
        fcntl(events, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(())
    }

    /// State and limits of a port, as they are now.
    pub(super) fn query_port(&self, port: u32) -> Result<sys::ibv_port_attr, DeviceError> {
        let mut attributes = sys::ibv_port_attr::default();
        let place = (&raw mut attributes).cast();
        // SAFETY: the function behind this name writes an older and shorter form of the structure.
        let code = unsafe {
            self.library
                .ibv_query_port(self.raw.as_ptr(), port as u8, place)
        }?;
        check(code).map_err(|error| {
            DeviceError(format!(
                "{}: port {port} cannot be queried: {error}",
                self.name
            ))
        })?;
        Ok(attributes)
    }

    /// The GIDs of a port, without empty places.
    pub(super) fn gid_table(&self, port: u32, length: u32) -> Vec<Entry> {
        let entries = self.attributes.phys_port_cnt as usize * length as usize;
        let mut table = vec![sys::ibv_gid_entry::default(); entries];
        let entry_bytes = size_of::<sys::ibv_gid_entry>();
        let context = self.raw.as_ptr();
        // SAFETY: the table has so many entries of that size.
        let found = unsafe {
            let place = table.as_mut_ptr();
            self.library
                ._ibv_query_gid_table(context, place, entries, 0, entry_bytes)
        };
        let Some(found) = found.ok().and_then(|found| usize::try_from(found).ok()) else {
            return gid::read_table(&self.folder.join(format!("ports/{port}")), length);
        };
        let of_port = table
            .iter()
            .take(found)
            .filter(|entry| entry.port_num == port);
        let entry = |entry: &sys::ibv_gid_entry| Entry {
            index: entry.gid_index,
            // SAFETY: all forms of the union are plain bytes.
            gid: Gid(unsafe { entry.gid.raw }),
            version: u8::try_from(entry.gid_type)
                .ok()
                .filter(|it| (1..=2).contains(it)),
        };
        of_port.map(entry).collect()
    }

    /// Has `flag` set when the device tells of the failure of the queue pair or its completion
    /// queue.
    pub(super) fn watch(
        &self,
        qp: NonNull<sys::ibv_qp>,
        cq: NonNull<sys::ibv_cq>,
        flag: &Arc<AtomicBool>,
    ) {
        let failed = &mut self.events.lock().failed;
        failed.insert(qp.as_ptr() as usize, flag.clone());
        failed.insert(cq.as_ptr() as usize, flag.clone());
    }

    /// Ends [`Context::watch`]; must come before the objects are destroyed.
    pub(super) fn forget(&self, qp: NonNull<sys::ibv_qp>, cq: NonNull<sys::ibv_cq>) {
        let failed = &mut self.events.lock().failed;
        failed.remove(&(qp.as_ptr() as usize));
        failed.remove(&(cq.as_ptr() as usize));
    }

    /// The next event of a port.
    pub(super) fn poll_event(&self, port: u32) -> Option<DeviceEvent> {
        let mut events = self.events.lock();
        self.read(&mut events);
        events.ports.get_mut(&port)?.pop_front()
    }

    /// The descriptor that becomes readable with an event.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open, and so is its descriptor, for as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().async_fd) }
    }

    /// Whether an event of a port waits to be polled.
    pub(super) fn has_event(&self, port: u32) -> bool {
        let events = self.events.lock();
        events
            .ports
            .get(&port)
            .is_some_and(|queue| !queue.is_empty())
    }

    /// Takes in what the device has to say, so that flags of [`Context::watch`] are up to date.
    pub(super) fn read_events(&self) {
        // Somebody else is about it: then the flags are as good as up to date.
        if let Some(mut events) = self.events.try_lock() {
            self.read(&mut events);
        }
    }

    fn read(&self, known: &mut Events) {
        let mut is_news = false;
        loop {
            let mut event = sys::ibv_async_event::default();
            // SAFETY: the context is open; the descriptor does not block.
            let code = unsafe {
                self.library
                    .ibv_get_async_event(self.raw.as_ptr(), &mut event)
            };
            if !matches!(code, Ok(0)) {
                break;
            }
            is_news |= known.take(&event, u32::from(self.attributes.phys_port_cnt));
            // At once: destroying a queue pair waits for it.
            // SAFETY: the event was got above and is acknowledged once.
            let _ = unsafe { self.library.ibv_ack_async_event(&mut event) };
        }
        if is_news {
            // Whoever has read it may be interested in another port, or in a queue pair alone.
            events::rouse();
        }
    }
}

impl Events {
    /// Takes an event in; whether a port has something new to tell.
    fn take(&mut self, event: &sys::ibv_async_event, ports: u32) -> bool {
        // SAFETY: the kind of event says which form of the union is set; all are plain words.
        let (port, object) = unsafe { (event.element.port_num, event.element.qp as usize) };
        match event.event_type {
            sys::IBV_EVENT_PORT_ERR => self.put(port as u32, DeviceEvent::PortDown),
            sys::IBV_EVENT_PORT_ACTIVE => self.put(port as u32, DeviceEvent::PortUp),
            // A port without its address carries nothing: whoever reads this looks for it.
            sys::IBV_EVENT_GID_CHANGE => self.put(port as u32, DeviceEvent::PortDown),
            sys::IBV_EVENT_DEVICE_FATAL => {
                (1..=ports).for_each(|port| self.put(port, DeviceEvent::Fatal));
            }
            sys::IBV_EVENT_QP_FATAL
            | sys::IBV_EVENT_QP_REQ_ERR
            | sys::IBV_EVENT_QP_ACCESS_ERR
            | sys::IBV_EVENT_CQ_ERR => {
                if let Some(flag) = self.failed.get(&object) {
                    flag.store(true, Ordering::Release);
                }
                return false;
            }
            // LIDs and keys: they are looked up at every connect.
            _ => return false,
        }
        true
    }

    fn put(&mut self, port: u32, event: DeviceEvent) {
        let queue = self.ports.entry(port).or_default();
        if queue.len() == EVENTS_MAX {
            queue.pop_front();
        }
        queue.push_back(event);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: queue pairs and registrations hold the context; none is left.
        let _ = unsafe { self.library.ibv_dealloc_pd(self.pd.as_ptr()) };
        close(self.library, self.raw);
    }
}

fn close(library: &Library, raw: NonNull<sys::ibv_context>) {
    // SAFETY: the context is open, and nobody uses it any more.
    let _ = unsafe { library.ibv_close_device(raw.as_ptr()) };
}

/// Why a device cannot be opened, to be read behind its name.
fn open_error(error: &io::Error) -> DeviceError {
    let remedy = match error.raw_os_error() {
        // libibverbs does not tell these apart.
        Some(libc::EACCES | libc::EPERM | libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "this process needs read and write rights on /dev/infiniband/uverbs*, and a container \
             needs those files; if there are none, load the module ib_uverbs"
        }
        _ => "see the kernel's messages, or leave it out with NCCL_IB_HCA=^NAME",
    };
    DeviceError(format!("cannot be opened: {error}; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: sys::ibv_event_type, element: usize) -> sys::ibv_async_event {
        let mut event = sys::ibv_async_event {
            event_type: kind,
            ..Default::default()
        };
        event.element.qp = element as *mut sys::ibv_qp;
        event
    }

    fn queued(events: &Events, port: u32) -> Vec<DeviceEvent> {
        events
            .ports
            .get(&port)
            .map(|queue| queue.iter().copied().collect())
            .unwrap_or_default()
    }

    #[test]
    fn events_go_to_their_port() {
        let mut events = Events::default();
        assert!(events.take(&event(sys::IBV_EVENT_PORT_ERR, 2), 2));
        assert!(events.take(&event(sys::IBV_EVENT_PORT_ACTIVE, 2), 2));
        assert!(!events.take(&event(sys::IBV_EVENT_LID_CHANGE, 1), 2));
        assert_eq!(queued(&events, 1), []);
        assert_eq!(
            queued(&events, 2),
            [DeviceEvent::PortDown, DeviceEvent::PortUp]
        );
        events.take(&event(sys::IBV_EVENT_GID_CHANGE, 1), 2);
        events.take(&event(sys::IBV_EVENT_DEVICE_FATAL, 0), 2);
        assert_eq!(
            queued(&events, 1),
            [DeviceEvent::PortDown, DeviceEvent::Fatal]
        );
        for _ in 0..EVENTS_MAX {
            events.take(&event(sys::IBV_EVENT_PORT_ERR, 2), 2);
        }
        assert_eq!(queued(&events, 2), [DeviceEvent::PortDown; EVENTS_MAX]);
    }

    #[test]
    fn failures_reach_their_queue_pair_alone() {
        let kinds = [
            sys::IBV_EVENT_QP_FATAL,
            sys::IBV_EVENT_QP_REQ_ERR,
            sys::IBV_EVENT_QP_ACCESS_ERR,
            sys::IBV_EVENT_CQ_ERR,
        ];
        for kind in kinds {
            let mut events = Events::default();
            let [one, other] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
            events.failed.insert(0x1000, one.clone());
            events.failed.insert(0x2000, other.clone());
            events.take(&event(kind, 0x1000), 1);
            events.take(&event(sys::IBV_EVENT_COMM_EST, 0x2000), 1);
            let flags = [one, other].map(|flag| flag.load(Ordering::Acquire));
            assert_eq!(flags, [true, false], "event {kind}");
        }
    }

    #[test]
    fn what_keeps_a_device_closed_comes_with_a_remedy() {
        let text = |code| open_error(&io::Error::from_raw_os_error(code)).to_string();
        for code in [libc::EACCES, libc::ENOENT] {
            assert!(text(code).contains("rights"), "{}", text(code));
        }
        assert!(text(libc::EIO).contains("NCCL_IB_HCA"));
    }
}
