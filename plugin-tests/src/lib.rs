//! Harness.

pub mod repository;
