//! RDMA devices through libibverbs: one NIC for each port that is up.
//!
//! Reliable connections only, with what every provider has: no vendor's extensions, no shared
//! receive queues. Types come from `ibverbs-sys`, functions from the library by `dlopen`; posting
//! and polling go through the provider's own table, as the inline functions of the header do.
//!
//! What a queue pair does beyond what the device does:
//! * It connects in the background, since that may block, and holds work until it has heard that
//!   the peer is ready, too.
//! * Its fence moves it to error and waits until a marker behind all work has come back from each
//!   queue: the device handles a queue in order, so nothing that was under way is left.
//! * It never comes back from error: who wants to go on makes a new one.
//! * Inline bytes are copied to registered memory where the device takes none with the post.
//!
//! Events are read for all ports and queue pairs of a device together, by a thread that waits for
//! them or by whoever asks for one, and are acknowledged at once: destroying a queue pair waits for
//! that.
//!
//! Read in this order: [`discover`], [`context`], [`device`], [`endpoint`], [`connect`],
//! [`queue_pair`], [`greeting`], [`events`].

mod address;
mod chain;
mod connect;
mod context;
mod device;
mod discover;
mod endpoint;
mod events;
mod gid;
mod greeting;
mod library;
mod prober;
mod queue_pair;
pub mod raw;
mod status;

use std::path::PathBuf;

use crate::WriteSource;

pub use device::VerbsDevice;
pub use discover::{Found, FoundPort, open_all};
pub use gid::{AddressFamily, AddressRange, Gid, GidPolicy};

/// How NICs of this kind are chosen and connected. The defaults are those of NCCL's own transport.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// Root of sysfs.
    pub sysfs: PathBuf,
    /// Which address of an Ethernet port is used.
    pub gid: GidPolicy,
    /// Traffic class of routed packets, whose upper six bits are the DSCP on Ethernet.
    pub traffic_class: u8,
    /// The same for credits and counters.
    pub control_traffic_class: u8,
    /// Service level.
    pub service_level: u8,
    /// A packet is sent again after 4.096 us * 2^timeout without acknowledgement; 0: never.
    pub timeout: u8,
    /// How often a packet is sent again.
    pub retry_count: u8,
    /// Index in the port's table of partitions.
    pub pkey_index: u16,
    /// Whether the device's writes of data may pass each other on the bus.
    pub relaxed_ordering: bool,
    /// Ports of one adapter and its virtual functions have one PCI path.
    pub merges_functions: bool,
    /// NICs are listed by PCI address, not as libibverbs has them.
    pub is_in_pci_order: bool,
    /// A file to load before the usual libibverbs.
    pub library: Option<String>,
    /// Bytes that a post may carry by itself; what is above goes through registered memory.
    pub inline_bytes_max: usize,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        Self {
            sysfs: PathBuf::from("/sys"),
            gid: GidPolicy::default(),
            traffic_class: 0,
            control_traffic_class: 0,
            service_level: 0,
            timeout: 20,
            retry_count: 7,
            pkey_index: 0,
            relaxed_ordering: true,
            merges_functions: true,
            is_in_pci_order: true,
            library: None,
            inline_bytes_max: WriteSource::INLINE_BYTES_MAX,
        }
    }
}
