//! The log function that the plugin gets in NCCL's place: lines go to standard error.
//!
//! NCCL's logger is C-variadic, and stable Rust cannot define such a function. [`log_line`] is
//! therefore defined with *fixed* parameters and handed over under the variadic type. Why that is
//! sound enough on x86-64 and aarch64 Linux, the only targets that get it:
//!
//! * Both ABIs pass the variadic integers and pointers exactly where a fixed function with the same
//!   parameters expects them: the next integer registers, then the stack in 8-byte slots. Floating
//!   point arguments use registers of their own, so `f64` parameters after the integers take them
//!   in order whatever the mixture.
//! * Where the caller passed fewer arguments than declared, the function reads leftover registers
//!   and at most 56 bytes of the stack above its frame, which are its callers' and mapped. They are
//!   forwarded to `snprintf` and looked at only if the format asks for them, hence if they were
//!   passed.
//! * The call crosses a shared-object border through a pointer; no compiler sees both sides.
//!
//! `long double`, structures by value and more than eight integers are not supported; NCCL plugins
//! use none of them in log lines. On other targets the format is printed as it stands.

use std::ffi::{CStr, c_char, c_int, c_ulong};
use std::io::Write;
use std::sync::OnceLock;

use r2ccl_abi::{ncclDebugLogLevel, ncclDebugLogger_t};

/// Longest line in bytes; NCCL keeps about as much.
const LINE_BYTES: usize = 1024;

/// The variadic type of the logger, without the `Option`.
type Variadic =
    unsafe extern "C" fn(ncclDebugLogLevel, c_ulong, *const c_char, c_int, *const c_char, ...);

/// The logger as the plugin takes it.
pub(super) fn pointer() -> ncclDebugLogger_t {
    let fixed = log_line as *const ();
    // SAFETY: see the head of this module.
    Some(unsafe { std::mem::transmute::<*const (), Variadic>(fixed) })
}

/// Most verbose level that is printed: `NCCL_DEBUG`, by default WARN.
fn level_max() -> ncclDebugLogLevel {
    static LEVEL: OnceLock<ncclDebugLogLevel> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let name = std::env::var("NCCL_DEBUG").unwrap_or_default();
        match name.to_ascii_uppercase().as_str() {
            "NONE" => r2ccl_abi::NCCL_LOG_NONE,
            "VERSION" => r2ccl_abi::NCCL_LOG_VERSION,
            "INFO" => r2ccl_abi::NCCL_LOG_INFO,
            "ABORT" => r2ccl_abi::NCCL_LOG_ABORT,
            "TRACE" => r2ccl_abi::NCCL_LOG_TRACE,
            _ => r2ccl_abi::NCCL_LOG_WARN,
        }
    })
}

fn level_name(level: ncclDebugLogLevel) -> &'static str {
    match level {
        r2ccl_abi::NCCL_LOG_WARN => "WARN",
        r2ccl_abi::NCCL_LOG_INFO => "INFO",
        r2ccl_abi::NCCL_LOG_TRACE => "TRACE",
        _ => "LOG",
    }
}

/// Writes one line: host, process, level, for a warning the place, and the text.
fn print(level: ncclDebugLogLevel, place: *const c_char, line: c_int, text: &CStr) {
    let host = std::env::var("NCCL_HOSTID").unwrap_or_else(|_| "host".into());
    let process = std::process::id();
    let text = text.to_string_lossy();
    let level_text = level_name(level);
    let mut out = format!("{host}:{process} {level_text} {text}");
    if level == r2ccl_abi::NCCL_LOG_WARN && !place.is_null() {
        // SAFETY: the plugin passes NULL or a C string.
        let place = unsafe { CStr::from_ptr(place) }.to_string_lossy();
        out.push_str(&format!(" [{place}:{line}]"));
    }
    out.push('\n');
    // A closed standard error must not disturb a run.
    let _ = std::io::stderr().write_all(out.as_bytes());
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn log_line(
    level: ncclDebugLogLevel,
    _flags: c_ulong,
    place: *const c_char,
    line: c_int,
    format: *const c_char,
    i0: usize,
    i1: usize,
    i2: usize,
    i3: usize,
    i4: usize,
    i5: usize,
    i6: usize,
    i7: usize,
    f0: f64,
    f1: f64,
    f2: f64,
    f3: f64,
) {
    if level > level_max() || format.is_null() {
        return;
    }
    let mut text = [0 as c_char; LINE_BYTES];
    // SAFETY: the buffer has room for the bytes named, the format and what it asks for come from
    // the plugin as for any printf; see the head of this module for the rest.
    let written = unsafe {
        libc::snprintf(
            text.as_mut_ptr(),
            text.len(),
            format,
            i0,
            i1,
            i2,
            i3,
            i4,
            i5,
            i6,
            i7,
            f0,
            f1,
            f2,
            f3,
        )
    };
    if written >= 0 {
        // SAFETY: snprintf has put a NUL inside the buffer.
        print(level, place, line, unsafe { CStr::from_ptr(text.as_ptr()) });
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe extern "C" fn log_line(
    level: ncclDebugLogLevel,
    _flags: c_ulong,
    place: *const c_char,
    line: c_int,
    format: *const c_char,
) {
    if level <= level_max() && !format.is_null() {
        // SAFETY: a format is a C string.
        print(level, place, line, unsafe { CStr::from_ptr(format) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trick of this module on the machine at hand: integers, strings and doubles, mixed and
    /// more than fit into registers, arrive in order.
    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn fixed_parameters_take_variadic_arguments() {
        unsafe extern "C" fn fixed(
            out: *mut c_char,
            _: c_ulong,
            _: *const c_char,
            _: c_int,
            format: *const c_char,
            i0: usize,
            i1: usize,
            i2: usize,
            i3: usize,
            f0: f64,
            f1: f64,
        ) {
            // SAFETY: `out` has room for 128 bytes.
            unsafe { libc::snprintf(out, 128, format, i0, i1, i2, i3, f0, f1) };
        }
        type Variadic =
            unsafe extern "C" fn(*mut c_char, c_ulong, *const c_char, c_int, *const c_char, ...);
        let pointer = fixed as *const ();
        // SAFETY: what this test is about.
        let variadic = unsafe { std::mem::transmute::<*const (), Variadic>(pointer) };
        let mut out = [0 as c_char; 128];
        // SAFETY: arguments fit the format.
        let text = unsafe {
            variadic(
                out.as_mut_ptr(),
                0,
                std::ptr::null(),
                0,
                c"%d %s %.1f %lu %c %.2f".as_ptr(),
                -7 as c_int,
                c"word".as_ptr(),
                1.5f64,
                1usize << 40,
                c_int::from(b'x'),
                0.25f64,
            );
            CStr::from_ptr(out.as_ptr())
        };
        assert_eq!(text.to_str(), Ok("-7 word 1.5 1099511627776 x 0.25"));
    }
}
