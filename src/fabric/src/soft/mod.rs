//! Software NIC: an RDMA-like device made of TCP sockets, with the semantics of InfiniBand
//! reliable connections.
//!
//! Each queue pair has one *main* socket, on which its owner makes progress inside its own calls:
//! small messages and control never wait for another thread. Large writes are cut into chunks that
//! travel on *lanes*, extra sockets which a few I/O threads of the process serve. The target counts
//! landed bytes per write, and completes writes in order when all their bytes are in place.
//!
//! What a queue pair promises:
//! * Work completes in posting order; a write's success means that the peer's queue pair has put
//!   every byte of it and of all writes before it in place.
//! * It makes progress only inside calls of its owner. Who waits for the peer's writes must poll.
//! * With work outstanding, the end of the peer's process or queue pair shows at the next poll, and
//!   a silent network after [`SoftConfig::silence`]: the oldest work ends as retry-exceeded, the
//!   rest as flushed. A peer that is reachable but does not poll is waited for without end.
//! * Without work outstanding nothing is reported, as with InfiniBand: posted receives stay, and
//!   the first work posted after the loss fails at once. So an end that only receives never learns
//!   of a loss from its queue pair; whoever owns it must watch by other means (a control
//!   connection, a heartbeat). Underneath, TCP's keepalive closes the sockets of a vanished host
//!   after [`SoftConfig::silence`], or 3 seconds if that is longer, so that such an end costs
//!   nothing.
//! * A connection that is refused or reset fails at once. One that nobody answers, or whose
//!   listener is too busy to take it, is waited for as long as [`SoftConfig::silence`]: the kernel
//!   repeats it.
//! * A write with immediate that finds no receive holds back what comes behind it on the same
//!   socket, acknowledgements included: post receives for all that the peer may send.
//!
//! Read in this order: [`wire`] (frames), [`device`], [`queue_pair`], then its two halves
//! [`outflow`] and [`arrivals`] over [`inflow`], then [`shared`] and [`lanes`]; [`service`] makes
//! connections and watches links.

mod arrivals;
mod device;
mod fault;
mod greeting;
mod inflow;
mod lanes;
mod limiter;
mod memory;
mod nic_probe;
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
