//! Software NIC: an RDMA-like device made of TCP sockets, with the semantics of InfiniBand
//! reliable connections.
//!
//! Each queue pair has one *main* socket, on which its owner makes progress inside its own calls:
//! small messages and control never wait for another thread. Large writes are cut into chunks that
//! travel on *lanes*, extra sockets which a few I/O threads of the process serve. The target counts
//! landed bytes per write, and completes writes in order when all their bytes are in place.
//!
//! Read in this order: [`wire`] (frames), [`device`], [`queue_pair`], then its two halves
//! [`outflow`] and [`arrivals`] over [`inflow`], then [`shared`] and [`lanes`]; [`service`] makes
//! connections and watches links.

mod arrivals;
mod copy;
mod device;
mod greeting;
mod inflow;
mod lanes;
mod limiter;
mod memory;
mod outflow;
mod port;
mod queue_pair;
mod service;
mod shared;
mod sys;
#[cfg(test)]
mod tests;
mod wire;

pub use device::{LANES_MAX, SILENCE_DEFAULT, SoftConfig, SoftDevice};
