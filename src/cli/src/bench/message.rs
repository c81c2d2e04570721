//! What the driver (parent) and the hosts (children) say to each other: one JSON line each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Hosts in pairs: one message there, one back; measures half the round trip
    Pingpong,
    /// Every host sends to the next one, the last one only receives
    Stream,
    /// Every host sends to every other host
    Alltoall,
    /// Ring all-reduce of 32-bit floats, summed by the CPU
    Allreduce,
    /// One receive takes 1 to 8 messages by tag, sent in shuffled order
    Grouped,
    /// Connect, stop in the middle, close with requests in flight; again and again
    Abort,
}

/// One directed connection of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    /// Index of the connection in the run.
    pub id: u32,
    /// Sending host.
    pub from: usize,
    /// Receiving host.
    pub to: usize,
    /// Channel, from 0.
    pub channel: usize,
}

/// What a host needs to know before it loads the plugin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Index of this host.
    pub host: usize,
    /// Number of hosts.
    pub hosts: usize,
    /// The plugin's file.
    pub plugin: PathBuf,
    /// Table version to use; the newest by default.
    pub abi: Option<u32>,
    /// Equal on all hosts of a run, different between runs: NCCL's `commId`.
    pub comm_id: u64,
    /// How data moves.
    pub pattern: Pattern,
    /// Channels between two hosts.
    pub channels: usize,
    /// All connections of the run, of all hosts.
    pub links: Vec<Link>,
    /// Devices that channels use in turn; all by default.
    pub nics: Vec<i32>,
    /// Whether every byte is checked.
    pub check: bool,
    /// Bytes by which buffers are moved off page boundaries.
    pub offset: usize,
    /// Memory for the slots of one connection and direction, in bytes.
    pub window: u64,
    /// Longest time without any movement, in milliseconds.
    pub stall_ms: u64,
}

/// From the driver to a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToHost {
    /// Load the plugin.
    Plan(Box<Plan>),
    /// Listen and connect all links of the plan.
    Connect,
    /// The handle of a link on which this host is the sender.
    Handle {
        /// Link.
        link: u32,
        /// The 128 bytes.
        bytes: Vec<u8>,
    },
    /// Get ready to run one size.
    Go(Go),
    /// All hosts are ready: begin.
    Begin,
    /// Close all connections.
    Close,
    /// Finalize and exit.
    Exit,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Go {
    /// Bytes of a message, or of the vector of an all-reduce.
    pub size: u64,
    /// Messages per link, round trips, all-reduces or groups.
    pub count: u64,
}

/// One device of the plugin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Device {
    /// Name as NCCL shows it.
    pub name: String,
    /// Speed in Mbit/s, as the plugin reports it.
    pub speed_mbps: i32,
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} ({} Gb/s)",
            self.name,
            f64::from(self.speed_mbps) / 1e3
        )
    }
}

/// From a host to the driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromHost {
    /// The plugin is loaded.
    Ready {
        /// Network name of the plugin.
        network: String,
        /// Table version in use.
        abi: u32,
        /// Its devices.
        devices: Vec<Device>,
        /// Smallest group limit (`maxRecvs`) of the devices.
        max_recvs: i32,
    },
    /// The handle of a link on which this host listens.
    Handle {
        /// Link.
        link: u32,
        /// The 128 bytes.
        bytes: Vec<u8>,
    },
    /// All links are connected.
    Connected,
    /// Ready for a measurement.
    Prepared,
    /// State of a running measurement.
    Progress {
        /// Bytes received so far, by channel.
        channels: Vec<u64>,
    },
    /// A measurement has ended.
    Done(Measured),
    /// All connections are closed.
    Closed(Leftover),
    /// The host gives up; it exits after this.
    Failed {
        /// Why, in words.
        message: String,
        /// Whether the plugin itself returned an error code.
        by_plugin: bool,
    },
}

/// What a host saw in one measurement.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// From the first call to the last completion.
    pub nanoseconds: u64,
    /// Bytes received, over all links.
    pub bytes: u64,
    /// Messages received, over all links.
    pub messages: u64,
    /// Half round trips of a ping-pong: median.
    pub p50_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// Longest time between two completions of this host.
    pub gap_ns: u64,
    /// CPU time of the process, plugin threads included.
    pub cpu_ns: u64,
    /// What the check found.
    pub faults: Faults,
    /// Requests still outstanding at the end (only when the run is meant to be cut short).
    pub in_flight: u64,
    /// Whether the plugin reported an error in a run that the other side cuts short.
    pub cut: bool,
}

/// What the check found wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Bytes that differ on arrival.
    pub wrong_bytes: u64,
    /// Bytes that changed after the receive was reported done.
    pub late_bytes: u64,
    /// Bytes written outside the buffer.
    pub outside_bytes: u64,
    /// Receives that reported another size than was sent.
    pub wrong_sizes: u64,
}

impl Faults {
    /// Adds what another host or link found.
    pub fn add(&mut self, other: &Faults) {
        self.wrong_bytes += other.wrong_bytes;
        self.late_bytes += other.late_bytes;
        self.outside_bytes += other.outside_bytes;
        self.wrong_sizes += other.wrong_sizes;
    }

    /// All faults in one number.
    pub fn total(&self) -> u64 {
        self.wrong_bytes + self.late_bytes + self.outside_bytes + self.wrong_sizes
    }
}

/// What a host still holds after closing.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Leftover {
    /// Open file descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Resident memory in bytes.
    pub resident: u64,
}

/// The connections of a run.
pub fn links(pattern: Pattern, hosts: usize, channels: usize) -> Vec<Link> {
    let mut pairs = Vec::new();
    for from in 0..hosts {
        for to in 0..hosts {
            let wanted = match pattern {
                Pattern::Pingpong => from != to && from / 2 == to / 2,
                Pattern::Stream | Pattern::Grouped => to == from + 1,
                Pattern::Allreduce => to == (from + 1) % hosts && hosts > 1,
                Pattern::Alltoall | Pattern::Abort => from != to,
            };
            // One host alone talks to itself, over the plugin all the same.
            let alone = hosts == 1 && pattern != Pattern::Pingpong;
            if wanted || (alone && pattern != Pattern::Allreduce) {
                pairs.push((from, to));
            }
        }
    }
    let mut links = Vec::new();
    for (from, to) in pairs {
        for channel in 0..channels {
            let id = u32::try_from(links.len()).unwrap_or(u32::MAX);
            links.push(Link {
                id,
                from,
                to,
                channel,
            });
        }
    }
    links
}
