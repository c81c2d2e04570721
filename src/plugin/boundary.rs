//! What stands between C and the runtime: panic guard, outputs, pointers, ids.
//!
//! Nothing that NCCL holds of ours is an address. An object's id goes out as a pointer that is
//! never followed, so a stale or foreign one is found by looking it up, not by a crash.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::result::{self, CallSite};
use crate::runtime::error::{Error, Result};
use r2ccl_abi::{ncclInternalError, ncclInvalidArgument, ncclResult_t, ncclSuccess};

// An id of 64 bits has to fit into a pointer and back.
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

/// Runs the body of an entry: an error becomes a code and a warning, a panic an internal error.
/// No panic may unwind into C.
pub fn guard(site: &'static CallSite, body: impl FnOnce() -> Result<()>) -> ncclResult_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => ncclSuccess,
        Ok(Err(error)) => report(site, &error),
        Err(payload) => {
            let text = payload
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no message");
            report(
                site,
                &Error::Internal(format!("defect in R2CCL, please report it: {text}")),
            )
        }
    }
}

/// Like [`guard`], for the calls with which NCCL decides whether to use a plugin: an error is
/// printed and success is returned. NCCL 2.28.3 to 2.29.3 answers a failed `init` of an older
/// table by jumping through a NULL pointer; no devices is the safe way of saying no.
pub fn guard_selection(site: &'static CallSite, body: impl FnOnce() -> Result<()>) -> ncclResult_t {
    guard(site, body);
    ncclSuccess
}

/// Like [`guard`], for the calls of a teardown: an error there would make NCCL stop half-way and
/// leak the rest. Only what is no object of ours is refused, since nothing can leak by that.
pub fn guard_teardown(site: &'static CallSite, body: impl FnOnce() -> Result<()>) -> ncclResult_t {
    let code = guard(site, body);
    if code == ncclInvalidArgument {
        code
    } else {
        ncclSuccess
    }
}

#[cold]
fn report(site: &'static CallSite, error: &Error) -> ncclResult_t {
    // The log layer is ours too, so it gets a guard of its own.
    match catch_unwind(AssertUnwindSafe(|| site.warn(error))) {
        Ok(()) => result::code(error),
        Err(_) => ncclInternalError,
    }
}

/// An output argument. NCCL's memory is uninitialised or holds what an earlier call left there, so
/// it is written before anything can fail: each entry presets its outputs first of all.
pub struct Output<T>(NonNull<T>);

impl<T: Copy> Output<T> {
    /// Writes the value that stands if the call fails, or says that there is nowhere to write.
    ///
    /// # Safety
    /// `pointer` must be NULL, misaligned, or valid for writing a `T` as long as the output lives.
    pub unsafe fn preset(pointer: *mut T, value: T, name: &str) -> Result<Self> {
        // SAFETY: the caller vouches for the pointer.
        let output = unsafe { Self::optional(pointer) };
        let output = output.ok_or_else(|| refused_pointer(pointer.addr(), name))?;
        output.write(value);
        Ok(output)
    }

    /// An output that the caller may leave out by passing NULL.
    ///
    /// # Safety
    /// As for [`Output::preset`].
    pub unsafe fn optional(pointer: *mut T) -> Option<Self> {
        NonNull::new(pointer)
            .filter(|pointer| pointer.is_aligned())
            .map(Self)
    }

    /// Writes the output.
    pub fn write(&self, value: T) {
        // SAFETY: whoever made the output vouched that the pointer is valid for writing.
        unsafe { self.0.write(value) }
    }
}

/// An array that NCCL passes in.
///
/// # Safety
/// `pointer` must be NULL, misaligned, or valid for reading `count` values of `T` that nobody
/// writes to during the call.
pub unsafe fn input_array<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(refused_pointer(pointer.addr(), name));
    }
    // SAFETY: not NULL, aligned, and the caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// The id behind an opaque pointer. Whether it names anything is for the runtime to say.
pub fn id_of(pointer: *mut c_void, name: &str) -> Result<u64> {
    match pointer.addr() {
        0 => Err(refused_pointer(0, name)),
        address => Ok(address as u64),
    }
}

/// The opaque pointer that carries an id.
pub fn pointer_of(id: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(id as usize)
}

#[cold]
fn refused_pointer(address: usize, name: &str) -> Error {
    match address {
        0 => Error::Argument(format!("{name} is NULL")),
        _ => Error::Argument(format!(
            "{name} is {address:#x}, which is no pointer to its type"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    static SITE: CallSite = CallSite::new("test");

    #[test]
    fn a_panic_becomes_an_internal_error() {
        assert_eq!(guard(&SITE, || panic!("text")), ncclInternalError);
        assert_eq!(guard(&SITE, || panic!("number {}", 1)), ncclInternalError);
        assert_eq!(
            guard(&SITE, || std::panic::panic_any(7_u8)),
            ncclInternalError
        );
    }

    #[test]
    fn selection_never_fails_and_teardown_only_for_foreign_objects() {
        let system = || Err(Error::System(String::new()));
        let argument = || Err(Error::Argument(String::new()));
        assert_eq!(guard_selection(&SITE, system), ncclSuccess);
        assert_eq!(guard_selection(&SITE, || panic!("text")), ncclSuccess);
        assert_eq!(guard_teardown(&SITE, system), ncclSuccess);
        assert_eq!(guard_teardown(&SITE, argument), ncclInvalidArgument);
    }

    #[test]
    fn outputs_are_written_at_once_and_bad_pointers_refused() {
        let mut value = 0xAAAA_AAAA_u32;
        // SAFETY: NULL, misaligned, and then a live variable.
        let (null, odd, good) = unsafe {
            (
                Output::preset(null_mut::<u32>(), 0, "value"),
                Output::<u32>::preset(std::ptr::without_provenance_mut(1), 0, "value"),
                Output::preset(&raw mut value, 1, "value"),
            )
        };
        assert!(matches!(null, Err(Error::Argument(text)) if text == "value is NULL"));
        assert!(matches!(odd, Err(Error::Argument(_))));
        assert!(good.is_ok());
        assert_eq!(value, 1);
    }

    #[test]
    fn ids_survive_the_way_through_a_pointer() {
        for id in [1, 0xA2FF_0000_0000_0001, u64::MAX] {
            assert_eq!(id_of(pointer_of(id), "comm").unwrap(), id);
        }
        assert!(id_of(null_mut(), "comm").is_err());
    }
}
