//! The network interface: one neutral implementation, and a thin file for each version.

mod neutral;
pub mod v10;
pub mod v11;
pub mod v12;
pub mod v8;
pub mod v9;
