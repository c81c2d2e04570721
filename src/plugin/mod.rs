//! The C edge: the only `extern "C"` of the product, and the only place where pointers of NCCL's
//! become values of ours.
//!
//! NCCL finds the tables of [`exports`]. A slot leads to a wrapper of `net::vN` that holds only
//! what differs in that version, on to `net::neutral`, which checks the arguments and writes the
//! outputs, and from there to `crate::runtime::net`. `boundary` keeps panics, NULL and foreign
//! pointers away from what lies behind; `result` turns errors into NCCL's codes and log lines.

mod boundary;
pub mod exports;
mod net;
mod result;

/// Commit that this library was built from, or what `build.rs` put in its place.
pub const BUILD_COMMIT: &str = env!("R2CCL_BUILD_COMMIT");
