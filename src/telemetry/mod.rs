//! The way out for log lines: `tracing` inside, NCCL's logger (or the error output) outside.
//!
//! [`install`] is called with the logger that NCCL hands to `init`. Whoever has something to say
//! uses the macros of `tracing`; nothing here blocks the caller, panics or allocates per line.

mod allowance;
mod layer;
mod line;
mod logger;

pub use logger::{NcclLogger, install};
