//! Protocol core.
