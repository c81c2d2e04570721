//! The protocol as plain values: no I/O, no clock, no pointers, no threads.
//!
//! A connection carries messages in one direction, from a [`Sender`] to a [`Receiver`]. Both are
//! driven the same way and by whoever owns the connection at the moment:
//!
//! * *commands* say what the user wants ([`Sender::submit_send`], [`Receiver::post_recv`]);
//!   `Ok(None)` means "not now" and is never an error;
//! * *inputs* say what happened (`handle_*`): lines found in the credit ring, counter words,
//!   completions, arrivals;
//! * *outputs* are pulled (`poll_transmit`): each is one RDMA write to post. A full queue is no
//!   error: what could not be posted is handed back with `return_transmit`, newest first;
//! * *queries* (`status`, `is_done`, `snapshot`) change nothing.
//!
//! All memory is taken when a value is made. Every operation is O(1) but for bounded loops over a
//! group, the paths of a route, or messages that each loop passes once. Nothing that the peer or
//! the fabric can send causes a panic: it is accepted, dropped and counted, or a
//! [`ProtocolError`] after which the connection is beyond repair.
//!
//! The rules are numbered in `docs/PROTOCOL.md`; comments cite them as "PROTOCOL R7".

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod end;
pub mod error;
pub mod health;
pub mod ids;
pub mod limits;
pub mod paths;
#[cfg(not(feature = "planted"))]
mod planted;
#[cfg(feature = "planted")]
pub mod planted;
pub mod receiver;
pub mod recovery;
pub mod route;
pub mod segment;
pub mod sender;
pub mod time;
mod turns;
pub mod wire;

pub use end::{
    Action, End, EndConfig, EndSnapshot, EndStatistics, Evidence, Failure, Half, HealthSnapshot,
    ProbeKind, ReceiveEnd, Routing, SendEnd, Work,
};
pub use error::ProtocolError;
pub use health::Health;
pub use ids::{Generation, PathId, RegionId, Seq, WorkId, WorkKind};
pub use paths::{Condition, PathSnapshot};
pub use receiver::{
    Arrival, EagerCopy, ReceiveBuffer, Receiver, ReceiverBody, ReceiverConfig, ReceiverSnapshot,
    ReceiverStatistics, ReceiverWrite,
};
pub use recovery::{Answer, EagerReport, FenceOutcome};
pub use route::Route;
pub use sender::{
    EagerWrite, Match, SegmentWrite, SendStatus, Sender, SenderConfig, SenderSnapshot,
    SenderStatistics, Truncation,
};
pub use time::Time;
