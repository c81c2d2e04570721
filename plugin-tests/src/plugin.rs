//! Finding and loading the plugin library, as NCCL does it.

use std::ffi::{CStr, c_char, c_int, c_ulong};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use r2ccl_abi::{
    NCCL_LOG_WARN, NcclLogger, ncclDebugLogLevel, ncclDebugLogger_t, ncclNet_v8_t, ncclNet_v9_t,
    ncclNet_v10_t, ncclNet_v11_t, ncclNet_v12_t,
};

/// The library to test: what `R2CCL_PLUGIN` names, else the newest `libr2ccl.so` of the target
/// folder that this test was built into. Panics, naming the remedy, if there is none.
pub fn path() -> PathBuf {
    product("R2CCL_PLUGIN", "libr2ccl.so")
}

/// The command to test, found as [`path`]: what `R2CCL_COMMAND` names, else the newest `r2ccl`.
pub fn command() -> PathBuf {
    product("R2CCL_COMMAND", "r2ccl")
}

fn product(variable: &str, file: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    let test = std::env::current_exe().expect("a test knows its own path");
    // <target>/<profile>/deps/<test>
    let target = test
        .ancestors()
        .nth(3)
        .expect("a test lies in the target folder");
    ["debug", "release"]
        .map(|profile| target.join(profile).join(file))
        .into_iter()
        .filter_map(|path| Some((modified(&path)?, path)))
        .max()
        .map(|(_, path)| path)
        .unwrap_or_else(|| {
            panic!(
                "no {file} below {}: run scripts/build.sh first",
                target.display()
            )
        })
}

fn modified(path: &Path) -> Option<std::time::SystemTime> {
    path.metadata()
        .and_then(|metadata| metadata.modified())
        .ok()
}

/// The tables of a loaded plugin.
pub struct Plugin {
    /// Table of version 8.
    pub v8: &'static ncclNet_v8_t,
    /// Table of version 9.
    pub v9: &'static ncclNet_v9_t,
    /// Table of version 10.
    pub v10: &'static ncclNet_v10_t,
    /// Table of version 11.
    pub v11: &'static ncclNet_v11_t,
    /// Table of version 12.
    pub v12: &'static ncclNet_v12_t,
}

// SAFETY: the tables are read-only data that stays for the life of the process.
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

/// Loads the plugin once for this process, with two software NICs on loopback addresses.
#[allow(clippy::disallowed_methods)] // This process is the test's, and the plugin reads its own.
pub fn load() -> &'static Plugin {
    static SETTINGS: Once = Once::new();
    SETTINGS.call_once(|| {
        for (name, value) in [
            ("R2CCL_FABRIC", "soft"),
            ("R2CCL_SOFT_NICS", "127.0.0.2,127.0.0.3"),
        ] {
            // SAFETY: nothing that reads the environment without std's lock runs before the
            // library is loaded.
            unsafe { std::env::set_var(name, value) };
        }
    });
    load_as_set()
}

/// Loads the plugin once for this process, with the settings that the environment holds.
pub fn load_as_set() -> &'static Plugin {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        let path = path();
        // SAFETY: the library's initialisers are std's own.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // SAFETY: the types are those of the symbols, and the library is never unloaded.
        let plugin = unsafe {
            Plugin {
                v8: table(&library, c"ncclNetPlugin_v8"),
                v9: table(&library, c"ncclNetPlugin_v9"),
                v10: table(&library, c"ncclNetPlugin_v10"),
                v11: table(&library, c"ncclNetPlugin_v11"),
                v12: table(&library, c"ncclNetPlugin_v12"),
            }
        };
        std::mem::forget(library);
        plugin
    })
}

/// # Safety
/// The symbol is a `T`, and the library is never unloaded.
unsafe fn table<T>(library: &Library, name: &CStr) -> &'static T {
    // SAFETY: the caller vouches for the type.
    let symbol = unsafe { library.get::<*const T>(name.to_bytes_with_nul()) }
        .unwrap_or_else(|error| panic!("{}: {error}", name.to_string_lossy()));
    // SAFETY: the address of a symbol that was found, which stays.
    unsafe { &**symbol }
}

/// Warnings that came through [`logger`].
pub static WARNINGS: AtomicUsize = AtomicUsize::new(0);

/// A logger for `init` that counts warnings and prints nothing.
pub fn logger() -> ncclDebugLogger_t {
    type Fixed =
        unsafe extern "C" fn(ncclDebugLogLevel, c_ulong, *const c_char, c_int, *const c_char);
    unsafe extern "C" fn count(
        level: ncclDebugLogLevel,
        _: c_ulong,
        _: *const c_char,
        _: c_int,
        _: *const c_char,
    ) {
        if level == NCCL_LOG_WARN {
            WARNINGS.fetch_add(1, Ordering::Relaxed);
        }
    }
    // SAFETY: stable Rust cannot define a variadic function. In the calling conventions that NCCL
    // runs on, one that looks at the fixed arguments only need not know of the others.
    Some(unsafe { std::mem::transmute::<Fixed, NcclLogger>(count) })
}
