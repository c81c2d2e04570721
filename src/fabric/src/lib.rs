//! Devices that move bytes: the narrow door between the protocol and a NIC.
//!
//! A [`Device`] is one NIC: one port of an RDMA adapter or one software NIC. It registers memory,
//! makes reliable-connected queue pairs and reports events. A [`QueuePair`] takes chains of work,
//! returns completions and can be fenced. The semantics are those of InfiniBand reliable
//! connections, the unpleasant ones included, so that a real NIC and a fake one can both keep them;
//! `conformance` is the list that every device must pass.
//!
//! Read in this order: this file, [`work`], [`soft`], [`verbs`], [`conformance`].

pub mod conformance;
mod copy;
pub mod helpers;
mod meters;
pub mod soft;
pub mod verbs;
pub mod work;

use std::sync::Arc;

pub use copy::copy_words;
pub use meters::BytesMoved;
pub use work::{
    Access, Completion, DeviceError, DeviceEvent, Fault, Opcode, PortState, PostError,
    Registration, SendWork, Status, WriteSource,
};

/// What the planner, NCCL and the reports are told about a NIC. Constant for the life of a device.
#[derive(Clone, Debug)]
pub struct NicInfo {
    /// Unique on the host, for example `soft0` or `mlx5_0`.
    pub name: String,
    /// Identifies the adapter; two ports of one adapter share it.
    pub guid: u64,
    /// Port number on the adapter, from 1.
    pub port: u32,
    /// Nominal speed in Mbit/s.
    pub speed_mbps: u32,
    /// Path of the PCI device in sysfs, if the NIC has one.
    pub pci_path: Option<String>,
    /// Network address in text form, for reports.
    pub address: String,
    /// Largest number of queue pairs.
    pub queue_pairs_max: u32,
    /// Largest payload of one work request in bytes.
    pub message_bytes_max: u64,
    /// Largest payload that can be posted inline, in bytes.
    pub inline_bytes_max: usize,
    /// Whether it acknowledges what comes only while its program polls its queue pairs. Whoever
    /// asks such a NIC whether it is there has to see that it does.
    pub needs_program: bool,
}

/// Sizes a queue pair is made with. A device may round up, never down.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairConfig {
    /// Send work requests outstanding at the most.
    pub send_depth: u32,
    /// Receive work requests outstanding at the most.
    pub receive_depth: u32,
    /// What this end sends.
    pub traffic: Traffic,
}

/// What an end of a connection sends; fabrics may treat them differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Messages.
    Data,
    /// Permission for messages, and what has become of them.
    Control,
}

/// What the other side must know to connect to a queue pair: opaque to everybody but the device
/// kind that made it, and small enough for a control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairAddress(pub [u8; QueuePairAddress::BYTES]);

impl QueuePairAddress {
    /// Size on the wire.
    pub const BYTES: usize = 64;
}

/// One NIC.
pub trait Device: Send + Sync {
    /// Constant properties.
    fn info(&self) -> &NicInfo;

    /// State of the port now; a hint, never proof that a path works.
    fn port_state(&self) -> PortState;

    /// Registers `len` bytes at `address` for use as local and, as far as `access` allows, remote
    /// buffer. Zero-length regions are allowed.
    ///
    /// # Safety
    /// The memory must stay mapped until [`Device::deregister`] has returned for the key.
    unsafe fn register(
        &self,
        address: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Registration, DeviceError>;

    /// Ends a registration. When it has returned, the device touches the memory no more, whatever
    /// work is still outstanding. Unknown keys are ignored.
    fn deregister(&self, registration: Registration);

    /// Makes a queue pair with a completion queue of its own.
    fn create_queue_pair(&self, config: QueuePairConfig)
    -> Result<Box<dyn QueuePair>, DeviceError>;

    /// Has `wake` called, on a thread of the device's, whenever there is a new event. It must not
    /// block.
    fn on_event(&self, wake: Box<dyn Fn() + Send + Sync>);

    /// Next asynchronous event, if any. Events are hints: the reader looks at the true state.
    fn poll_event(&self) -> Option<DeviceEvent>;

    /// What has been moved over the NIC by this process, as far as its queue pairs see it.
    fn bytes_moved(&self) -> BytesMoved;

    /// Makes the NIC behave as if it were broken, to rehearse that; each fault replaces the one
    /// before. Only a device whose faults hurt nobody else can do it.
    fn inject(&self, _: Fault) -> Result<(), DeviceError> {
        Err(DeviceError(format!(
            "{}: only software NICs can be broken by a command; take the link of a real one away \
             (`ip link set IFNAME down`, its switch port, `lab-cut` in the kernel lab)",
            self.info().name
        )))
    }
}

/// Devices are shared by all connections of a process.
pub type SharedDevice = Arc<dyn Device>;

/// One end of a reliable connection, with its completion queue. It has one owner at a time; nothing
/// in it is shared with other queue pairs but the device. Dropping it fences it first.
pub trait QueuePair: Send {
    /// What the peer needs for its [`QueuePair::connect`].
    fn address(&self) -> QueuePairAddress;

    /// Starts connecting to the peer's queue pair; never blocks. Work may be posted at once and is
    /// held until the connection stands. Both ends call it. A connection that cannot be made shows
    /// as [`Status::RetryExceeded`] on posted work.
    fn connect(&mut self, remote: &QueuePairAddress) -> Result<(), DeviceError>;

    /// Posts a chain of work with one doorbell and returns how many were taken from its front:
    /// fewer than given is back-pressure (the send queue is full), not an error. Completions come
    /// in posting order.
    ///
    /// # Safety
    /// Local buffers named by registrations must stay registered until the work has completed, or
    /// a later work has, or the queue pair is in error and drained.
    unsafe fn post_send(&mut self, chain: &[SendWork]) -> Result<usize, PostError>;

    /// Posts `count` receives without buffer, as writes with immediate consume them. A write with
    /// immediate that finds none waits at the target (receiver not ready, retried without end).
    fn post_receives(&mut self, count: u32) -> Result<(), PostError>;

    /// Asks whether the two NICs can reach each other while this queue pair cannot: that tells a
    /// fault of the queue pair from one of its NICs. If so, a completion of [`Opcode::NicProbe`]
    /// comes with this id; else none ever does, which proves nothing. A later question replaces an
    /// open one. A device that has no way to tell takes no notice.
    fn probe_nics(&mut self, _id: u64) {}

    /// Makes progress on the caller's thread and writes completions to the front of `completions`;
    /// returns how many. Never blocks.
    fn poll(&mut self, completions: &mut [Completion]) -> usize;

    /// Moves the queue pair to error. When it has returned, no byte of a remote write lands through
    /// it any more and no local buffer is read; everything outstanding completes as flushed.
    fn set_error(&mut self);

    /// Whether the queue pair is in error, by [`QueuePair::set_error`] or a failure.
    fn is_error(&self) -> bool;

    /// Whether work was accepted that only further calls of [`QueuePair::poll`] will push out; the
    /// owner must then see to it that somebody polls.
    fn has_backlog(&self) -> bool;
}
