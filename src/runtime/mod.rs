//! Threads, progress, memory and connections: everything between the C boundary and the devices.

pub mod error;
