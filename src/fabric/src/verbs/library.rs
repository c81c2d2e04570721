//! libibverbs by `dlopen`: a slot for each function that we call. The plugin must load where the
//! library is absent, and one that lacks a function fails at the call, not at the load.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io;

use ibverbs_sys as sys;
use libloading::os::unix::Library as Handle;
use once_cell::sync::OnceCell;

use crate::DeviceError;

/// Name by which the dynamic linker finds it.
const FILE: &str = "libibverbs.so.1";

/// Makes the structure of slots, and a method for each that calls it.
macro_rules! slots {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        /// The functions of libibverbs. Loaded once and never unloaded.
        pub(super) struct Library {
            $($name: Option<unsafe extern "C" fn($($type),*) -> $result>,)*
        }

        impl Library {
            /// # Safety
            /// The handle must be that of libibverbs, and stay open.
            unsafe fn resolve(handle: &Handle) -> Self {
                Self {
                    // SAFETY: the types are those of the library's header, as ibverbs-sys has
                    // translated it.
                    $($name: unsafe {
                        handle.get(concat!(stringify!($name), "\0").as_bytes()).ok().map(|it| *it)
                    },)*
                }
            }

            $(
                /// The library's function of this name.
                ///
                /// # Safety
                /// As the library's manual asks.
                pub(super) unsafe fn $name(
                    &self,
                    $($argument: $type),*
                ) -> Result<$result, DeviceError> {
                    let function = self.$name.ok_or_else(|| missing(stringify!($name)))?;
                    // SAFETY: the caller's promise.
                    Ok(unsafe { function($($argument),*) })
                }
            )*
        }
    };
}

slots! {
    _ibv_query_gid_table(
        context: *mut sys::ibv_context, entries: *mut sys::ibv_gid_entry, most: usize,
        flags: u32, entry_bytes: usize
    ) -> isize;
    ibv_ack_async_event(event: *mut sys::ibv_async_event) -> ();
    ibv_ack_cq_events(cq: *mut sys::ibv_cq, count: c_uint) -> ();
    ibv_alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd;
    ibv_close_device(context: *mut sys::ibv_context) -> c_int;
    ibv_create_ah(pd: *mut sys::ibv_pd, way: *mut sys::ibv_ah_attr) -> *mut sys::ibv_ah;
    ibv_create_comp_channel(context: *mut sys::ibv_context) -> *mut sys::ibv_comp_channel;
    ibv_create_cq(
        context: *mut sys::ibv_context, entries: c_int, user: *mut c_void,
        channel: *mut sys::ibv_comp_channel, vector: c_int
    ) -> *mut sys::ibv_cq;
    ibv_create_qp(
        pd: *mut sys::ibv_pd, attributes: *mut sys::ibv_qp_init_attr
    ) -> *mut sys::ibv_qp;
    ibv_dealloc_pd(pd: *mut sys::ibv_pd) -> c_int;
    ibv_dereg_mr(mr: *mut sys::ibv_mr) -> c_int;
    ibv_destroy_ah(way: *mut sys::ibv_ah) -> c_int;
    ibv_destroy_comp_channel(channel: *mut sys::ibv_comp_channel) -> c_int;
    ibv_destroy_cq(cq: *mut sys::ibv_cq) -> c_int;
    ibv_destroy_qp(qp: *mut sys::ibv_qp) -> c_int;
    ibv_fork_init() -> c_int;
    ibv_free_device_list(list: *mut *mut sys::ibv_device) -> ();
    ibv_get_async_event(
        context: *mut sys::ibv_context, event: *mut sys::ibv_async_event
    ) -> c_int;
    ibv_get_cq_event(
        channel: *mut sys::ibv_comp_channel, cq: *mut *mut sys::ibv_cq, user: *mut *mut c_void
    ) -> c_int;
    ibv_get_device_list(count: *mut c_int) -> *mut *mut sys::ibv_device;
    ibv_get_device_name(device: *mut sys::ibv_device) -> *const c_char;
    ibv_modify_qp(qp: *mut sys::ibv_qp, attributes: *mut sys::ibv_qp_attr, mask: c_int) -> c_int;
    ibv_open_device(device: *mut sys::ibv_device) -> *mut sys::ibv_context;
    ibv_query_device(
        context: *mut sys::ibv_context, attributes: *mut sys::ibv_device_attr
    ) -> c_int;
    ibv_query_port(
        context: *mut sys::ibv_context, port: u8, attributes: *mut sys::_compat_ibv_port_attr
    ) -> c_int;
    ibv_reg_mr(
        pd: *mut sys::ibv_pd, address: *mut c_void, bytes: usize, access: c_int
    ) -> *mut sys::ibv_mr;
    ibv_reg_mr_iova2(
        pd: *mut sys::ibv_pd, address: *mut c_void, bytes: usize, base: u64, access: c_uint
    ) -> *mut sys::ibv_mr;
}

fn missing(name: &str) -> DeviceError {
    DeviceError(format!(
        "{FILE} has no function {name}: it is too old or not libibverbs; install a current \
         libibverbs (package libibverbs1 or rdma-core)"
    ))
}

impl Library {
    /// The library of this process, opened at the first call: `wanted` if that can be loaded. A
    /// failure is tried again at the next.
    pub(super) fn get(wanted: Option<&str>) -> Result<&'static Self, DeviceError> {
        static LIBRARY: OnceCell<Library> = OnceCell::new();
        LIBRARY.get_or_try_init(|| {
            let library = Self::open_first(wanted)?;
            library.prepare_for_fork();
            Ok(library)
        })
    }

    fn open_first(wanted: Option<&str>) -> Result<Self, DeviceError> {
        let Some(wanted) = wanted else {
            return Self::open(FILE);
        };
        Self::open(wanted).or_else(|error| {
            tracing::warn!("NCCL_IBVERBS_LIB: {error}; {FILE} is taken");
            Self::open(FILE)
        })
    }

    /// Whether registrations may relax the order of the device's writes.
    pub(super) fn has_relaxed_ordering(&self) -> bool {
        self.ibv_reg_mr_iova2.is_some()
    }

    fn open(file: &str) -> Result<Self, DeviceError> {
        // SAFETY: the initialisers of libibverbs do nothing that concerns this process.
        let handle = unsafe { Handle::new(file) }.map_err(|error| {
            DeviceError(format!(
                "RDMA devices need {file}, which cannot be loaded ({error}); install it (package \
                 libibverbs1 and ibverbs-providers, or rdma-core) or set R2CCL_FABRIC=soft"
            ))
        })?;
        // SAFETY: this is libibverbs, and the handle is never closed.
        let library = unsafe { Self::resolve(&handle) };
        std::mem::forget(handle);
        Ok(library)
    }

    /// Without this, on kernels before 5.12, a child process that touches registered memory takes
    /// the page away from the device.
    fn prepare_for_fork(&self) {
        // SAFETY: no device is open yet in this library, as far as we are concerned.
        let result = unsafe { self.ibv_fork_init() };
        if let Some(error) = result.map_or(None, |code| check(code).err()) {
            tracing::warn!(
                "libibverbs cannot protect registered memory from fork ({error}); start processes \
                 by spawn, not fork, while NCCL is in use"
            );
        }
    }
}

/// The result of a function that returns 0, an error number, or -1 with the number in `errno`.
pub(super) fn check(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code if code > 0 => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_library_is_named_with_a_remedy() {
        let error = Library::open("libibverbs-is-not-here.so.1").err();
        let text = error.expect("an error").to_string();
        assert!(text.contains("libibverbs-is-not-here.so.1"), "{text}");
        assert!(text.contains("R2CCL_FABRIC=soft"), "{text}");
    }

    #[test]
    fn an_absent_function_fails_at_the_call() {
        let library = Library::open("libc.so.6").expect("a library that is not libibverbs");
        // SAFETY: the function is absent and never called.
        let error = unsafe { library.ibv_fork_init() }.expect_err("an error");
        assert!(error.to_string().contains("ibv_fork_init"), "{error}");
    }

    #[test]
    fn results_of_both_conventions_are_read() {
        assert!(check(0).is_ok());
        let code = |result: io::Result<()>| result.expect_err("an error").raw_os_error();
        assert_eq!(code(check(libc::EINVAL)), Some(libc::EINVAL));
        // SAFETY: an unknown descriptor is refused, which sets errno.
        let result = unsafe { libc::close(-1) };
        assert_eq!(code(check(result)), Some(libc::EBADF));
    }
}
