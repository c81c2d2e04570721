//! Declarations of the NCCL plugin ABI.
