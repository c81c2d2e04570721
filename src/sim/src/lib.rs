//! A world in which the protocol must not lose a byte: deterministic, in virtual time, from one
//! seed.
//!
//! A [`World`] has hosts with NICs, a fabric, control connections, memory and users, and drives
//! the very core that ships. Faults are drawn from a swarm: a few kinds in each world, in any
//! number, at any moment. First they may strike; then everything is repaired and the world must
//! come to rest: all messages through, all paths back in service.
//!
//! | part | file |
//! |---|---|
//! | what happens when | `queue.rs`, `random.rs` |
//! | wiring, NICs, reliable queue pairs | `fabric.rs`, `nic.rs`, `queue_pair.rs`, `numbers.rs` |
//! | control frames | `control.rs` |
//! | memory that knows what it holds | `memory.rs` |
//! | users: what is sent and received | `plan.rs`, `user.rs` |
//! | the driver between core and NICs | `setup.rs`, `drive.rs`, `helper.rs` |
//! | small messages ahead of their credit | `eager.rs`, `slot.rs` |
//! | its frames and ports | `frames.rs`, `ports.rs` |
//! | faults, and what else makes a world | `fault.rs`, `inject.rs`, `endings.rs`, `character.rs` |
//! | what must hold | `check.rs`, `memory.rs`, `rules.rs`, `times.rs`, `drain.rs` |
//! | whether the checkers see anything | `bug.rs`, `coverage.rs` |
//! | scenarios by name instead of chance | `scenario/` |
//! | two paths, two messages, two faults: all instants | `small.rs` |
//! | the same in all orders of a few events | `interleave.rs`, `window.rs` |
//!
//! Nothing here reads a clock or starts a thread; equal seeds give equal worlds.

#![forbid(unsafe_code)]

mod bug;
mod character;
mod check;
mod connection;
mod control;
mod coverage;
mod drain;
mod drive;
mod eager;
mod endings;
mod fabric;
mod fault;
mod frames;
mod helper;
mod inject;
mod interleave;
mod memory;
mod nic;
mod numbers;
mod plan;
mod ports;
mod queue;
mod queue_pair;
mod random;
mod rules;
mod scenario;
mod setup;
mod slot;
mod small;
mod sweep;
mod times;
mod user;
mod window;
mod world;

pub use bug::Bug;
pub use check::{Class, Violation};
pub use coverage::Coverage;
pub use eager::EagerCounts;
pub use fault::Kind;
pub use interleave::{Schedule, Tally, searches};
pub use scenario::{Figures, Scenario, Settings, scenarios};
pub use small::{Script, run_small, scripts};
pub use sweep::{Failure, Totals, run_one};
pub use world::{Options, Outcome, World};
