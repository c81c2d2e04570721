//! Tests of the way from `tracing` to a logger as NCCL has it.
//!
//! Each test has a log of its own, in force on its own thread only.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::time::{Duration, Instant};

use super::super::line::LINE_BYTES_MAX;
use super::*;

/// What a logger was called with.
#[derive(Debug, PartialEq)]
struct Call {
    level: u32,
    subsystems: u64,
    function: String,
    line: i32,
    text: String,
}

thread_local! {
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// Arguments as [`NcclLogger`] passes them when the one variadic argument is a pointer: pointers
/// travel in the same registers either way on x86-64 and aarch64 Linux.
type FixedLogger = unsafe extern "C" fn(
    ncclDebugLogLevel,
    c_ulong,
    *const c_char,
    c_int,
    *const c_char,
    *const c_char,
);

fn as_nccl_logger(logger: FixedLogger) -> NcclLogger {
    // SAFETY: see `FixedLogger`.
    unsafe { std::mem::transmute::<FixedLogger, NcclLogger>(logger) }
}

unsafe extern "C" fn capture(
    level: ncclDebugLogLevel,
    subsystems: c_ulong,
    function: *const c_char,
    line: c_int,
    format: *const c_char,
    argument: *const c_char,
) {
    let text = |pointer| {
        // SAFETY: the strings are valid for the call.
        let text = unsafe { CStr::from_ptr(pointer) };
        text.to_str().unwrap().to_owned()
    };
    assert_eq!(text(format), "%s");
    let (function, text) = (text(function), text(argument));
    CALLS.with_borrow_mut(|calls| {
        calls.push(Call {
            level,
            subsystems,
            function,
            line,
            text,
        })
    });
}

unsafe extern "C" fn capture_newer(
    level: ncclDebugLogLevel,
    subsystems: c_ulong,
    _: *const c_char,
    line: c_int,
    _: *const c_char,
    _: *const c_char,
) {
    let (function, text) = ("newer".to_owned(), String::new());
    CALLS.with_borrow_mut(|calls| {
        calls.push(Call {
            level,
            subsystems,
            function,
            line,
            text,
        })
    });
}

fn taken() -> Vec<Call> {
    CALLS.take()
}

fn texts() -> Vec<String> {
    taken().into_iter().map(|call| call.text).collect()
}

/// Runs `act` with a log of its own.
fn with_log(log: LogLevel, act: impl FnOnce(&'static Log)) {
    let own: &'static Log = Box::leak(Box::new(Log::new()));
    let subscriber = Registry::default().with(LogLayer(own));
    tracing::subscriber::with_default(subscriber, || {
        own.set(Some(as_nccl_logger(capture)), log);
        act(own);
    });
}

fn one_of_each_level() {
    tracing::error!("an error");
    tracing::warn!("a warning");
    tracing::info!("an information");
    tracing::debug!("a detail");
    tracing::trace!("a trace");
}

#[test]
fn levels_and_subsystems_are_nccls() {
    with_log(LogLevel::Trace, |_| {
        let first_line = line!() + 1;
        tracing::warn!("first");
        one_of_each_level();
        let calls = taken();
        let first = &calls[0];
        assert_eq!(
            (first.line, first.function.as_str()),
            (first_line as i32, module_path!())
        );
        let seen: Vec<(u32, u64, &str)> = calls[1..]
            .iter()
            .map(|call| (call.level, call.subsystems, call.text.as_str()))
            .collect();
        let expected = [
            (2, 0x11, "NET/R2CCL: an error"),
            (2, 0x11, "NET/R2CCL: a warning"),
            (3, 0x11, "NET/R2CCL: an information"),
            (3, 0x10, "NET/R2CCL: a detail"),
            (5, 0x10, "NET/R2CCL: a trace"),
        ];
        assert_eq!(seen, expected);
    });
}

#[test]
fn settings_say_how_much() {
    let cases = [
        (LogLevel::Off, 0),
        (LogLevel::Error, 1),
        (LogLevel::Warn, 2),
        (LogLevel::Info, 3),
        (LogLevel::Auto, 3),
        (LogLevel::Debug, 4),
        (LogLevel::Trace, 5),
    ];
    with_log(LogLevel::Off, |log| {
        for (level, expected) in cases.into_iter().rev() {
            log.set(Some(as_nccl_logger(capture)), level);
            // Other places than in the last round, so that no allowance runs out.
            match level {
                LogLevel::Error | LogLevel::Off => one_of_each_level(),
                _ => {
                    tracing::error!("an error");
                    tracing::warn!("a warning");
                    tracing::info!("an information");
                    tracing::debug!("a detail");
                    tracing::trace!("a trace");
                }
            }
            assert_eq!(taken().len(), expected, "{level:?}");
        }
        log.set(None, LogLevel::Auto);
        assert_eq!(log.level(), LevelFilter::WARN);
        log.set(None, LogLevel::Debug);
        assert_eq!(log.level(), LevelFilter::DEBUG);
    });
}

#[test]
fn the_newest_logger_counts() {
    with_log(LogLevel::Info, |log| {
        for (logger, name) in [
            (capture_newer as FixedLogger, "newer"),
            (capture, module_path!()),
        ] {
            log.set(Some(as_nccl_logger(logger)), LogLevel::Info);
            log.set(Some(as_nccl_logger(logger)), LogLevel::Info);
            tracing::info!("a line");
            let calls = taken();
            assert_eq!(calls.len(), 1);
            assert_eq!(calls[0].function, name);
        }
    });
}

#[test]
fn a_subscriber_that_is_there_stays() {
    put_in_place();
    put_in_place();
}

#[test]
fn fields_follow_the_message() {
    with_log(LogLevel::Info, |_| {
        let error = std::io::Error::other("no cable");
        tracing::info!(
            nic = "soft0",
            path = 3,
            error = &error as &dyn std::error::Error,
            "down"
        );
        tracing::info!(count = 7);
        tracing::info!("100 % {}", "%s%n");
        let expected = [
            "NET/R2CCL: down nic=soft0 path=3 error=no cable",
            "NET/R2CCL: count=7",
            "NET/R2CCL: 100 % %s%n",
        ];
        assert_eq!(texts(), expected);
    });
}

/// A value whose formatting goes wrong in the way that it says.
struct Bad(bool);

impl fmt::Display for Bad {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("half")?;
        assert!(!self.0, "a panic that a test makes on purpose");
        Err(fmt::Error)
    }
}

#[test]
fn hostile_values_harm_nobody() {
    with_log(LogLevel::Info, |_| {
        tracing::info!("{} whole", Bad(true));
        tracing::info!("{} whole", Bad(false));
        tracing::info!("zero \0 and\nfeed");
        tracing::info!("{}", "é".repeat(100_000));
        let texts = texts();
        assert_eq!(texts[0], "NET/R2CCL: half (a value could not be formatted)");
        assert_eq!(texts[1], "NET/R2CCL: half");
        assert_eq!(texts[2], "NET/R2CCL: zero   and feed");
        assert!(
            texts[3].len() <= LINE_BYTES_MAX && texts[3].ends_with("é…"),
            "{}",
            texts[3]
        );
        assert_eq!(texts.len(), 4);
    });
}

#[test]
fn a_place_that_repeats_itself_is_limited() {
    with_log(LogLevel::Info, |_| {
        let speak = || tracing::warn!("again");
        let start = Instant::now();
        for _ in 0..1000 {
            speak();
        }
        let seen = taken().len() as u64;
        let earned = start.elapsed().as_secs() + 1;
        assert!(
            (5..=5 + earned).contains(&seen),
            "{seen} lines in {earned} s"
        );
        let deadline = start + Duration::from_secs(30);
        let line = loop {
            speak();
            if let Some(call) = taken().pop() {
                break call.text;
            }
            assert!(Instant::now() < deadline, "the place stays silent");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(line.starts_with("NET/R2CCL: again ("), "{line}");
        assert!(line.ends_with(" similar lines suppressed)"), "{line}");
        // Other places are not concerned.
        tracing::warn!("something else");
        assert_eq!(texts(), ["NET/R2CCL: something else"]);
    });
}

#[test]
fn places_that_limit_themselves_are_not_limited() {
    with_log(LogLevel::Info, |_| {
        let settings = crate::config::Settings::from_pairs(
            (0..20).map(|number| (format!("R2CCL_UNKNOWN_{number}"), "1")),
        );
        settings.report_complaints();
        assert_eq!(taken().len(), 20);
    });
}
