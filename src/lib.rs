//! R2CCL: an NCCL network plugin that keeps a job running when network cards die.
//!
//! NCCL loads this library as `libnccl-net-r2ccl.so` and finds the tables that [`plugin`] exports.
//! Every call goes through [`plugin`] (the C edge) to [`runtime`] (connections, memory, threads),
//! which drives the protocol of `r2ccl-core` over the devices of `r2ccl-fabric`. [`monitor`] shows
//! people what goes on and takes their commands. [`config`] is the only reader of the environment,
//! [`telemetry`] the only way out for log lines.

pub mod config;
pub mod monitor;
pub mod plugin;
pub mod runtime;
pub mod telemetry;
