//! Harness.

pub mod plugin;
pub mod repository;
pub mod table;
