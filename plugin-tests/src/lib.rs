//! Harness.

pub mod command;
pub mod holdings;
pub mod job;
pub mod net;
pub mod network;
pub mod peer;
pub mod plugin;
pub mod process;
pub mod repository;
pub mod stream;
pub mod table;
