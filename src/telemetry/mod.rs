//! Log layer.
