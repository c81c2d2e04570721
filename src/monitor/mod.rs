//! What a process tells people about its NICs while it runs, and what it is told.
//!
//! [`board`] is the file that all processes of a host and user share; [`record`] is what stands on
//! it; [`order`] is what a NIC can be told; [`watch`] is this process's part, which the steward
//! calls on a timer. Whatever is wrong with the board, traffic does not notice: nothing on the data
//! path looks at it.

pub mod board;
pub mod order;
pub mod record;
pub mod watch;
