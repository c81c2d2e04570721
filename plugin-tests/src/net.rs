//! The calls of the newest table as a test wants them: ids as numbers, outcomes as values, and the
//! line of the log that came with a refusal. All calls are as NCCL makes them.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_ulong};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use r2ccl_abi::{
    NCCL_LOG_WARN, NCCL_PTR_HOST, NcclLogger, ncclDebugLogLevel, ncclResult_t, ncclSuccess,
};

use crate::plugin::{self, Plugin};
use crate::table::{Opaque, Table};

/// How long a test waits for anything that must happen.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// An object of the plugin's.
pub type Id = usize;
/// A connection handle.
pub type Handle = [u8; 128];

/// A call that failed.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// NCCL's code.
    pub code: ncclResult_t,
    /// What the log said; empty once the call has used up its allowance of lines.
    pub line: String,
}

impl Refusal {
    /// Fails unless the code is this one and the line holds every part.
    pub fn expect(&self, code: ncclResult_t, parts: &[&str]) {
        assert_eq!(self.code, code, "{}", self.line);
        for part in parts {
            assert!(
                self.line.contains(part),
                "{part:?} is not in: {}",
                self.line
            );
        }
    }
}

/// Outcome of a call.
pub type Outcome<T> = Result<T, Refusal>;

/// One buffer of a receive.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// First byte.
    pub address: usize,
    /// Capacity.
    pub bytes: usize,
    /// Tag.
    pub tag: c_int,
    /// Registration.
    pub mr: Id,
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// All warnings that the log has taken so far.
pub fn warnings() -> Vec<String> {
    LINES.lock().expect("no test panics in the log").clone()
}

/// Waits for a warning that holds every part.
pub fn await_warning(parts: &[&str]) {
    until("a warning", || {
        let found = |line: &&String| parts.iter().all(|part| line.contains(part));
        warnings().iter().find(found).map(drop)
    });
}

/// Repeats a call until it gives something.
pub fn until<T>(what: &str, mut call: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = call() {
            return value;
        }
        assert!(
            start.elapsed() < DEADLINE,
            "{what}: nothing; warnings: {:#?}",
            warnings()
        );
        std::thread::yield_now();
    }
}

/// NCCL's logger with the one argument that the plugin always passes: its format is `%s`.
fn logger() -> NcclLogger {
    type Fixed = unsafe extern "C" fn(
        ncclDebugLogLevel,
        c_ulong,
        *const c_char,
        c_int,
        *const c_char,
        *const c_char,
    );
    unsafe extern "C" fn keep(
        level: ncclDebugLogLevel,
        _: c_ulong,
        _: *const c_char,
        _: c_int,
        _: *const c_char,
        text: *const c_char,
    ) {
        if level == NCCL_LOG_WARN {
            // SAFETY: the plugin's line.
            let line = unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned();
            eprintln!("{line}");
            LAST.set(line.clone());
            LINES.lock().expect("no test panics in the log").push(line);
        }
    }
    // SAFETY: in the calling conventions that NCCL runs on, arguments of a variadic function that
    // fit into registers are passed as those of any other.
    unsafe { std::mem::transmute::<Fixed, NcclLogger>(keep) }
}

/// The plugin in this process.
#[derive(Clone, Copy)]
pub struct Net {
    plugin: &'static Plugin,
}

impl Net {
    /// Loads the plugin with the settings of the environment, and gives it a log.
    pub fn load() -> Self {
        let net = Self {
            plugin: plugin::load_as_set(),
        };
        net.init();
        net
    }

    /// Slot `init`, which NCCL calls for each communicator.
    pub fn init(self) {
        let mut ctx = null_mut();
        // SAFETY: as NCCL calls it.
        let code = unsafe { self.table().init(&raw mut ctx, Some(logger())) };
        assert_eq!(code, ncclSuccess);
    }

    fn table(self) -> &'static dyn Table {
        self.plugin.v12
    }

    fn call<T>(self, call: impl FnOnce() -> (ncclResult_t, T)) -> Outcome<T> {
        LAST.take();
        match call() {
            (code, value) if code == ncclSuccess => Ok(value),
            (code, _) => Err(Refusal {
                code,
                line: LAST.take(),
            }),
        }
    }

    /// Number of devices, and what the log said meanwhile.
    pub fn devices(self) -> (usize, String) {
        LAST.take();
        let mut count = -1;
        // SAFETY: as NCCL calls it.
        assert_eq!(unsafe { self.table().devices(&raw mut count) }, ncclSuccess);
        (usize::try_from(count).expect("written"), LAST.take())
    }

    /// A listener and its handle.
    pub fn listen(self) -> Outcome<(Id, Handle)> {
        let (mut handle, mut comm) = ([0xEE; 128], null_mut());
        let place: Opaque = (&raw mut handle).cast();
        self.call(|| {
            // SAFETY: as NCCL calls it.
            let code = unsafe { self.table().listen(0, place, &raw mut comm) };
            (code, comm.addr())
        })
        .map(|comm| (comm, handle))
    }

    /// One call of connect, from another device than [`Net::listen`] uses if there is one.
    pub fn connect(self, handle: &mut Handle) -> Outcome<Option<Id>> {
        let device = c_int::from(self.devices().0 > 1);
        let mut comm = null_mut();
        let place: Opaque = std::ptr::from_mut(handle).cast();
        self.call(|| {
            // SAFETY: as NCCL calls it.
            let code = unsafe {
                self.table()
                    .connect(device, place, &raw mut comm, null_mut())
            };
            (code, some(comm))
        })
    }

    /// One call of accept.
    pub fn accept(self, listener: Id) -> Outcome<Option<Id>> {
        let mut comm = null_mut();
        self.call(|| {
            let listener = without_provenance_mut(listener);
            // SAFETY: as NCCL calls it.
            let code = unsafe { self.table().accept(listener, &raw mut comm, null_mut()) };
            (code, some(comm))
        })
    }

    /// Both ends of a new connection inside this process: sending side, receiving side.
    pub fn pair(self) -> Outcome<(Id, Id)> {
        let (listener, mut handle) = self.listen()?;
        let (mut send, mut receive) = (None, None);
        let made = until("a connection", || {
            let step = (|| {
                send = send.map_or_else(|| self.connect(&mut handle), |send| Ok(Some(send)))?;
                receive = receive.map_or_else(|| self.accept(listener), |id| Ok(Some(id)))?;
                Ok(send.zip(receive))
            })();
            step.transpose()
        });
        self.close_listen(listener);
        if made.is_err() {
            send.into_iter().for_each(|id| self.close_send(id));
            receive.into_iter().for_each(|id| self.close_receive(id));
        }
        made
    }

    /// Registers host memory.
    pub fn register(self, comm: Id, address: usize, bytes: usize) -> Outcome<Id> {
        let mut mr = null_mut();
        self.call(|| {
            let (comm, data) = (without_provenance_mut(comm), with_exposed(address));
            // SAFETY: the test keeps the memory until it has ended the registration.
            let code = unsafe {
                self.table()
                    .reg_mr(comm, data, bytes, NCCL_PTR_HOST, &raw mut mr)
            };
            (code, mr.addr())
        })
    }

    /// Ends a registration.
    pub fn deregister(self, comm: Id, mr: Id) -> Outcome<()> {
        let (comm, mr) = (without_provenance_mut(comm), without_provenance_mut(mr));
        // SAFETY: as NCCL calls it.
        self.call(|| (unsafe { self.table().dereg_mr(comm, mr) }, ()))
    }

    /// One attempt to send.
    pub fn isend(self, comm: Id, buffer: Buffer) -> Outcome<Option<Id>> {
        let mut request = null_mut();
        self.call(|| {
            let Buffer {
                address,
                bytes,
                tag,
                mr,
            } = buffer;
            let (comm, mr) = (without_provenance_mut(comm), without_provenance_mut(mr));
            let (data, bytes, request_place) =
                (with_exposed(address), bytes as i64, &raw mut request);
            // SAFETY: the buffer is registered, or the call must find that it is not.
            let code = unsafe {
                self.table()
                    .isend(comm, data, bytes, tag, mr, request_place)
            };
            (code, some(request))
        })
    }

    /// Sends as soon as there is a credit. Meanwhile `waiting`, a receive that needs this send to
    /// be done, is tested: NCCL tests every receive that is open, and the plugin counts on it.
    pub fn send(self, comm: Id, buffer: Buffer, waiting: Id) -> Id {
        until("send", || {
            let request = self.isend(comm, buffer).expect("a send");
            if request.is_none() {
                let done = self.test(waiting).expect("a receive that is open");
                assert_eq!(done, None, "done without this send");
            }
            request
        })
    }

    /// One attempt to post a receive; up to eight buffers.
    pub fn irecv(self, comm: Id, buffers: &[Buffer]) -> Outcome<Option<Id>> {
        let (mut data, mut mrs) = ([null_mut(); 8], [null_mut(); 8]);
        let (mut sizes, mut tags) = ([0; 8], [0; 8]);
        for (index, buffer) in buffers.iter().enumerate() {
            data[index] = with_exposed(buffer.address);
            sizes[index] = buffer.bytes as i64;
            tags[index] = buffer.tag;
            mrs[index] = without_provenance_mut(buffer.mr);
        }
        let mut request = null_mut();
        self.call(|| {
            let (comm, count) = (without_provenance_mut(comm), buffers.len() as c_int);
            let (data, tags, mrs) = (data.as_mut_ptr(), tags.as_mut_ptr(), mrs.as_mut_ptr());
            let (sizes, request_place) = (Some(&sizes[..]), &raw mut request);
            // SAFETY: arrays of `count` entries; the buffers as above.
            let code = unsafe {
                self.table()
                    .irecv(comm, count, data, sizes, tags, mrs, request_place)
            };
            (code, some(request))
        })
    }

    /// Tests a request; the sizes once it is done.
    pub fn test(self, request: Id) -> Outcome<Option<[c_int; 8]>> {
        let (mut done, mut sizes) = (-1, [-1; 8]);
        self.call(|| {
            let request = without_provenance_mut(request);
            // SAFETY: as NCCL calls it.
            let code = unsafe {
                self.table()
                    .test(request, &raw mut done, sizes.as_mut_ptr())
            };
            (code, (done == 1).then_some(sizes))
        })
    }

    /// Tests requests, oldest first, until all are done.
    pub fn finish(self, requests: &[Id]) -> Outcome<()> {
        let mut open = requests.to_vec();
        let start = Instant::now();
        while !open.is_empty() {
            let mut refusal = None;
            open.retain(|request| match self.test(*request) {
                Ok(done) => done.is_none(),
                Err(error) => {
                    refusal.get_or_insert(error);
                    true
                }
            });
            if let Some(error) = refusal {
                return Err(error);
            }
            let (left, all) = (open.len(), requests.len());
            assert!(
                start.elapsed() < DEADLINE,
                "{left} of {all} requests never end, such as {:x?}",
                open.first()
            );
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Closes a sending side.
    pub fn close_send(self, comm: Id) {
        // SAFETY: as NCCL calls it.
        let code = unsafe { self.table().close_send(without_provenance_mut(comm)) };
        assert_eq!(code, ncclSuccess);
    }

    /// Closes a receiving side.
    pub fn close_receive(self, comm: Id) {
        // SAFETY: as NCCL calls it.
        let code = unsafe { self.table().close_recv(without_provenance_mut(comm)) };
        assert_eq!(code, ncclSuccess);
    }

    /// Closes a listener.
    pub fn close_listen(self, listener: Id) {
        // SAFETY: as NCCL calls it.
        let code = unsafe { self.table().close_listen(without_provenance_mut(listener)) };
        assert_eq!(code, ncclSuccess);
    }
}

fn some(pointer: Opaque) -> Option<Id> {
    (!pointer.is_null()).then_some(pointer.addr())
}

fn with_exposed(address: usize) -> Opaque {
    std::ptr::with_exposed_provenance_mut(address)
}
