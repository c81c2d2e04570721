//! Everything that crosses between two processes, as bytes.

mod bytes;
mod codec;
pub mod credit;
pub mod eager;
pub mod frame;
pub mod greeting;
pub mod handle;
pub mod hello;
pub mod immediate;
pub mod path_frame;

#[cfg(test)]
mod tests;
