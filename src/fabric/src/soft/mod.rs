//! Software NIC.
