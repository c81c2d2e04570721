//! Behaviour list.
