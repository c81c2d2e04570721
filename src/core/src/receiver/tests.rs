//! Tables for the receiver.
