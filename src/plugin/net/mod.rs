//! The network interface: one neutral implementation, and a thin file for each version.
//!
//! What NCCL does that one would not expect, and where it is met:
//!
//! * An error from isend, irecv, test or iflush ends the communicator, there is no retry:
//!   runtime: whatever can recover is "not now", `NULL` or `done = 0`.
//! * `*request`, `*done`, `*comm` and properties are uninitialised on entry, `*request` may be 1:
//!   `Output::preset` first in each entry, `get_properties`.
//! * Only the oldest request is tested: runtime: a test progresses its whole connection.
//! * Connect and accept must not block and get the same writable handle again: `connect`,
//!   `accept`.
//! * A non-NULL irecvConsumed is called for every receive, an error of it is fatal: `v8::TABLE`.
//! * A failed init of an older table crashes 2.28.3 to 2.29.3, finalize gets any context:
//!   `guard_selection`, `finalize`.
//! * The library is unloaded and loaded again, not always with a new init: `-z nodelete` in
//!   `build.rs`, `init`.
//! * Fallback to another network is silent: `r2ccl run` sets `NCCL_NET`; `devices` warns why
//!   there are none.
//! * Any exported tuner, profiler, GIN or RMA symbol becomes active: `exports`, and a test of the
//!   file.
//! * The configuration lives on NCCL's stack or is NULL, profiler handles may be NULL: `init`,
//!   `v10`.
//! * A DMA-BUF descriptor is closed right after its registration: `regMrDmaBuf` is NULL.
//! * RegMr and deregMr run beside the data path of the same communicator: runtime: registrations
//!   have a lock of their own.
//! * Sizes of test and iflush are `int` in every version: `test`, `iflush`.
//! * An abort closes communicators with requests in flight: `close_send`, `close_recv`.
//! * An error of a teardown stops it half-way: `guard_teardown`.
//! * Version 12 moves the fields behind `vProps`: `v12`, layout assertions of `r2ccl-abi`.
//! * INFO lines that carry only NET are hidden: `telemetry` adds INIT.

mod neutral;
pub mod v10;
pub mod v11;
pub mod v12;
pub mod v8;
pub mod v9;
