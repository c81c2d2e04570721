//! Where lines go: NCCL's logger, or the error output while there is none.

use std::ffi::{c_int, c_ulong};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use r2ccl_abi::{
    NCCL_INIT, NCCL_LOG_INFO, NCCL_LOG_TRACE, NCCL_LOG_WARN, NCCL_NET, ncclDebugLogLevel,
};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;

use super::layer::LogLayer;
use super::line::Line;
use crate::config::{LogLevel, settings};

pub use r2ccl_abi::NcclLogger;

/// What NCCL's lines of ours start with, as those of its own transports do.
const NCCL_PREFIX: &str = "NET/R2CCL: ";

/// Levels from silence to everything.
const LEVELS: [LevelFilter; 6] = [
    LevelFilter::OFF,
    LevelFilter::ERROR,
    LevelFilter::WARN,
    LevelFilter::INFO,
    LevelFilter::DEBUG,
    LevelFilter::TRACE,
];

/// The log of this process.
static LOG: Log = Log::new();

/// Sends log lines to NCCL's logger, or with `None` to the error output, from now on; `R2CCL_LOG`
/// sets how much. May be called any number of times: the newest logger counts, since the library
/// can outlive one user of it. `None` is for the CLI, and for the time after the last `finalize`.
/// Reads the settings, so it must not be called before NCCL's `init`.
pub fn install(logger: Option<NcclLogger>) {
    LOG.set(logger, settings().log);
    put_in_place();
}

/// Puts the layer into the process, once. A program that has a subscriber of its own keeps it.
fn put_in_place() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        // An error says that the program has a subscriber already: then our lines go there.
        let _ = tracing::subscriber::set_global_default(Registry::default().with(LogLayer(&LOG)));
    });
}

/// A destination and a level, both changeable at any time.
pub(super) struct Log {
    /// The logger, or null.
    logger: AtomicPtr<()>,
    /// The level in force, as its place in [`LEVELS`].
    level: AtomicU8,
}

impl Log {
    /// A log that is silent until it is set.
    pub const fn new() -> Self {
        Self {
            logger: AtomicPtr::new(std::ptr::null_mut()),
            level: AtomicU8::new(0),
        }
    }

    /// Sets destination and level.
    pub fn set(&self, logger: Option<NcclLogger>, log: LogLevel) {
        let place = logger.map_or(std::ptr::null_mut(), |logger| logger as *mut ());
        self.logger.store(place, Ordering::Release);
        let level = match log {
            LogLevel::Off => 0,
            LogLevel::Error => 1,
            LogLevel::Auto if logger.is_none() => 2,
            LogLevel::Warn => 2,
            LogLevel::Auto | LogLevel::Info => 3,
            LogLevel::Debug => 4,
            LogLevel::Trace => 5,
        };
        if self.level.swap(level, Ordering::Relaxed) != level {
            // What call sites learned about the old level is out of date.
            tracing::callsite::rebuild_interest_cache();
        }
    }

    /// The level in force.
    pub fn level(&self) -> LevelFilter {
        let place = usize::from(self.level.load(Ordering::Relaxed));
        LEVELS.get(place).copied().unwrap_or(LevelFilter::OFF)
    }

    /// Writes one line, without a lock of ours; `suppressed` lines like it were left out before.
    pub fn write(&self, event: &Event<'_>, suppressed: u64) {
        let logger = self.logger();
        let level = *event.metadata().level();
        let mut line = Line::new(match (logger, level) {
            (Some(_), _) => NCCL_PREFIX,
            (None, Level::ERROR) => "r2ccl: error: ",
            (None, Level::WARN) => "r2ccl: warning: ",
            (None, _) => "r2ccl: ",
        });
        line.push_event(event);
        line.finish(suppressed);
        match logger {
            Some(logger) => call(logger, event, &line),
            // In one piece, so that lines of several processes do not mix; a closed output is no
            // reason to disturb anybody.
            None => {
                let _ = line.with_line_feed(|bytes| std::io::stderr().write_all(bytes));
            }
        }
    }

    fn logger(&self) -> Option<NcclLogger> {
        let place = self.logger.load(Ordering::Acquire);
        // SAFETY: `set` is the only writer and stores null or a function of exactly this type.
        (!place.is_null()).then(|| unsafe { std::mem::transmute::<*mut (), NcclLogger>(place) })
    }
}

/// NCCL's level and subsystems for a level of ours. NCCL shows `INFO` by default for `INIT` but not
/// for `NET`: what a user should see carries both, what is for debugging only the second.
fn nccl_level(level: Level) -> (ncclDebugLogLevel, c_ulong) {
    match level {
        Level::ERROR | Level::WARN => (NCCL_LOG_WARN, NCCL_INIT | NCCL_NET),
        Level::INFO => (NCCL_LOG_INFO, NCCL_INIT | NCCL_NET),
        Level::DEBUG => (NCCL_LOG_INFO, NCCL_NET),
        Level::TRACE => (NCCL_LOG_TRACE, NCCL_NET),
    }
}

fn call(logger: NcclLogger, event: &Event<'_>, line: &Line) {
    let metadata = event.metadata();
    let (level, subsystems) = nccl_level(*metadata.level());
    let function = Line::new(metadata.target());
    let number = metadata
        .line()
        .and_then(|line| c_int::try_from(line).ok())
        .unwrap_or(0);
    // SAFETY: NCCL's logger may be called from any thread, and stays valid while NCCL is loaded;
    // the strings live through the call; the format takes exactly one string.
    unsafe {
        logger(
            level,
            subsystems,
            function.as_c_str().as_ptr(),
            number,
            c"%s".as_ptr(),
            line.as_c_str().as_ptr(),
        );
    }
}

#[cfg(test)]
mod tests;
