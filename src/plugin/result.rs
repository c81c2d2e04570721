//! Errors on their way out: NCCL's code for the class, a warning for the message.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::runtime::error::Error;
use r2ccl_abi::{
    ncclInternalError, ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError, ncclResult_t,
    ncclSystemError,
};

/// Warnings that one entry may print in a window.
const BURST: u64 = 5;
/// Length of a window, seconds.
const WINDOW_S: u64 = 10;
/// Bits of `CallSite::state` that hold the count of the window; the rest hold its number.
const COUNT_BITS: u32 = 32;

/// NCCL's code for an error. Any of them, out of the data path, ends the communicator: what can be
/// retried must have been answered with "not yet" before it gets here.
pub fn code(error: &Error) -> ncclResult_t {
    match error {
        Error::Argument(_) => ncclInvalidArgument,
        Error::Usage(_) => ncclInvalidUsage,
        Error::System(_) => ncclSystemError,
        Error::Remote(_) => ncclRemoteError,
        Error::Internal(_) => ncclInternalError,
    }
}

/// One entry of the interface, with its allowance of warnings.
pub struct CallSite {
    name: &'static str,
    /// Number of the current window and the errors seen in it.
    state: AtomicU64,
}

impl CallSite {
    /// Names an entry as NCCL names its slot.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            state: AtomicU64::new(0),
        }
    }

    /// Prints an error, unless this entry has printed enough of late. NCCL shows the line with its
    /// own prefix and returns the last one from `ncclGetLastError`.
    #[cold]
    pub fn warn(&self, error: &Error) {
        static START: OnceLock<Instant> = OnceLock::new();
        let now_s = START.get_or_init(Instant::now).elapsed().as_secs();
        match self.admit(now_s) {
            Admission::Print => tracing::warn!("{}: {error}", self.name),
            Admission::PrintLast => tracing::warn!(
                "{}: {error} (further errors of this call are not shown for up to {WINDOW_S} s)",
                self.name
            ),
            Admission::Drop => {}
        }
    }

    fn admit(&self, now_s: u64) -> Admission {
        let window = now_s / WINDOW_S;
        let mut seen = 0;
        let advance = |state: u64| {
            seen = if state >> COUNT_BITS == window {
                state & ((1 << COUNT_BITS) - 1)
            } else {
                0
            };
            Some(window << COUNT_BITS | (seen + 1).min(BURST + 1))
        };
        // The closure always answers, so this cannot fail.
        let _ = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
        match seen + 1 {
            count if count < BURST => Admission::Print,
            BURST => Admission::PrintLast,
            _ => Admission::Drop,
        }
    }
}

/// What becomes of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Print,
    PrintLast,
    Drop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_code() {
        let text = String::new;
        let codes = [
            Error::Argument(text()),
            Error::Usage(text()),
            Error::System(text()),
            Error::Remote(text()),
            Error::Internal(text()),
        ]
        .map(|error| code(&error));
        assert_eq!(codes, [4, 5, 2, 6, 3]);
    }

    #[test]
    fn a_burst_is_printed_and_the_rest_dropped_until_the_window_ends() {
        let site = CallSite::new("isend");
        for _ in 1..BURST {
            assert_eq!(site.admit(3), Admission::Print);
        }
        assert_eq!(site.admit(4), Admission::PrintLast);
        for _ in 0..100 {
            assert_eq!(site.admit(WINDOW_S - 1), Admission::Drop);
        }
        assert_eq!(site.admit(WINDOW_S), Admission::Print);
    }
}
