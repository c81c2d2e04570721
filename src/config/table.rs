//! The one table of settings.

use std::path::PathBuf;
use std::time::Duration;

use r2ccl_fabric::verbs::{AddressFamily, AddressRange};

use super::hca_rule::{HcaRule, HcaRules};
use super::interface_rule::{InterfaceRule, InterfaceRules};
use super::kind::{
    AutoOr, Choice, Directory, Kind, OptionalAddressRange, OptionalText, OrMinusOne, OrOff,
    Seconds, Whole,
};
use super::soft_nics::{SoftNicList, SoftNicRequest};
use super::{Complaint, Stability};

/// One row of the table.
pub(super) struct Setting {
    /// Name of the environment variable.
    pub name: &'static str,
    /// How settled it is.
    pub stability: Stability,
    /// Whether both ends of a connection must have the same value.
    pub is_shared: bool,
    /// One paragraph.
    pub meaning: &'static str,
    /// Type with unit.
    pub type_text: fn() -> String,
    /// What may be set.
    pub range: fn() -> String,
    /// Reads the text into its field.
    pub store: fn(&mut Settings, &str) -> Result<(), String>,
    /// Writes the field as text.
    pub show: fn(&Settings) -> String,
}

/// Whether a setting concerns one process or both ends of a connection.
#[derive(PartialEq)]
enum Scope {
    Own,
    Shared,
}

/// Makes [`Settings`] and [`TABLE`] from the declarations below.
macro_rules! settings {
    ($(
        $name:literal, $field:ident: $type:ty = $default:expr;
        $kind:expr, $stability:ident, $scope:ident;
        $meaning:literal;
    )*) => {
        /// Plain values of all settings, and what was wrong with those that were given.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $(#[doc = concat!("`", $name, "`: ", $meaning)] pub $field: $type,)*
            /// Unknown names and bad values that were found while reading.
            pub complaints: Vec<Complaint>,
            /// Settings of NCCL that were given and have no effect, each with the reason.
            pub unused: Vec<(&'static str, &'static str)>,
            /// Names whose value came from outside.
            pub(super) given: Vec<&'static str>,
        }

        impl Settings {
            /// Every setting at its default.
            pub fn defaults() -> Self {
                Self {
                    $($field: $default,)*
                    complaints: Vec::new(),
                    unused: Vec::new(),
                    given: Vec::new(),
                }
            }
        }

        pub(super) static TABLE: &[Setting] = &[$(
            Setting {
                name: $name,
                stability: Stability::$stability,
                is_shared: matches!(Scope::$scope, Scope::Shared),
                meaning: $meaning,
                type_text: || $kind.type_text(),
                range: || $kind.range(),
                store: |settings, text| {
                    settings.$field = $kind.parse(text)?;
                    Ok(())
                },
                show: |settings| $kind.show(&settings.$field),
            },
        )*];
    };
}

/// Which kind of device carries the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// RDMA if the host has it, else software NICs.
    Auto,
    /// RDMA devices through libibverbs.
    Verbs,
    /// Software NICs over TCP.
    Soft,
}

const FABRICS: Choice<Fabric> = Choice(&[
    (Fabric::Auto, &["auto"]),
    (Fabric::Verbs, &["verbs"]),
    (Fabric::Soft, &["soft"]),
]);

/// How messages are spread over paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingAlgorithm {
    /// The primary path only.
    Static,
    /// One designated backup.
    HotRepair,
    /// All surviving paths by capacity.
    Balance,
    /// Balance, plus relays.
    Planner,
}

const ROUTING_ALGORITHMS: Choice<RoutingAlgorithm> = Choice(&[
    (RoutingAlgorithm::Static, &["static", "0"]),
    (RoutingAlgorithm::HotRepair, &["hotrepair", "1"]),
    (RoutingAlgorithm::Balance, &["balance", "2"]),
    (RoutingAlgorithm::Planner, &["planner", "3"]),
]);

/// What makes sure that nothing of a path that failed can land any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// The target, or a silent source and time.
    Auto,
    /// The target only.
    Strict,
}

const FENCES: Choice<Fence> = Choice(&[(Fence::Auto, &["auto"]), (Fence::Strict, &["strict"])]);

const SWITCH: Choice<bool> = Choice(&[(true, &["1", "on"]), (false, &["0", "off"])]);

/// Which lines are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// `Info` for NCCL's logger, which filters itself, `Warn` for the error output.
    Auto,
    /// Nothing.
    Off,
    /// Failures.
    Error,
    /// And what an operator should look at.
    Warn,
    /// And what happens once.
    Info,
    /// And what happens per connection.
    Debug,
    /// And what happens per message.
    Trace,
}

const LOG_LEVELS: Choice<LogLevel> = Choice(&[
    (LogLevel::Auto, &["auto"]),
    (LogLevel::Off, &["off"]),
    (LogLevel::Error, &["error"]),
    (LogLevel::Warn, &["warn"]),
    (LogLevel::Info, &["info"]),
    (LogLevel::Debug, &["debug"]),
    (LogLevel::Trace, &["trace"]),
]);

/// Which addresses of an interface are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFamily {
    /// Version 4 before version 6.
    Any,
    /// IP version 4.
    V4,
    /// IP version 6.
    V6,
}

const SOCKET_FAMILIES: Choice<SocketFamily> = Choice(&[
    (SocketFamily::Any, &["any"]),
    (SocketFamily::V4, &["AF_INET"]),
    (SocketFamily::V6, &["AF_INET6"]),
]);

const GID_FAMILIES: Choice<AddressFamily> = Choice(&[
    (AddressFamily::V4, &["AF_INET"]),
    (AddressFamily::V6, &["AF_INET6"]),
]);

/// NCCL's 2 differs from 1 only in a warning.
const RELAXED_ORDERINGS: Choice<bool> = Choice(&[(true, &["2", "1"]), (false, &["0"])]);

const YES_OR_NO: Choice<bool> = Choice(&[(false, &["0"]), (true, &["1"])]);

settings! {
    "R2CCL_FABRIC", fabric: Fabric = Fabric::Auto;
    FABRICS, Stable, Own;
    "Which kind of NIC carries the data. `verbs` takes RDMA devices through libibverbs, `soft` \
     software NICs over TCP. `auto` takes RDMA devices if the host has any that work, and else \
     software NICs, with a warning that says why.";

    "R2CCL_SOFT_NICS", soft_nics: Vec<SoftNicRequest> = Vec::new();
    SoftNicList, Stable, Own;
    "The software NICs of this process, in the order in which NCCL sees them. Each entry names a \
     network interface (exactly) or a local address; `*COUNT` makes several equal NICs of it, \
     `@RATE` limits each of them to so many bits a second (`10G`, `2.5G`, `800M`), in each \
     direction, and is then also the speed that NCCL is told. Both parts are optional and may \
     come in either order: `127.0.0.2@10G,eth0*4`, `eth1*2@1G`, `eth1@1G*2`. NICs on one \
     interface share its bandwidth. `auto` makes one NIC for each interface that \
     `NCCL_SOCKET_IFNAME` allows, with the interface's speed, or 10 Gbit/s where the system does \
     not know it.";

    "R2CCL_SOFT_LANES", soft_lanes: Option<u32> = None;
    AutoOr(Whole::<u32>::new(0, 16)), Experimental, Own;
    "Extra TCP sockets of a software NIC's connection that carry bulk data on threads of their \
     own. `auto` chooses by the number of CPU cores; 0 leaves everything to the one socket that \
     is served on the caller's thread.";

    "R2CCL_HOST_ID", host_id: Option<String> = None;
    OptionalText, Stable, Own;
    "Identity of the host, and its name in reports. Processes with equal identity are taken to be \
     on one host; hosts must differ. Unset, `NCCL_HOSTID` counts, and without that the kernel's \
     boot id together with the host name.";

    "R2CCL_CONTROL_PORT", control_port: u16 = 0;
    Whole::<u16>::new(0, 65535), Stable, Own;
    "TCP port on which a process takes control connections. 0 lets the system choose, which is \
     right unless a firewall stands between the hosts: processes of one host cannot share a port.";

    "R2CCL_GIVEUP", give_up: Duration = Duration::from_secs(60);
    Seconds { range: 1..=86_400 }, Stable, Own;
    "How long requests of a connection wait after its last usable path was lost, or has fallen \
     silent, before they fail. A peer process that died is noticed at once and does not wait.";

    "R2CCL_ROUTING_ALGO", routing_algorithm: RoutingAlgorithm = RoutingAlgorithm::Balance;
    ROUTING_ALGORITHMS, Stable, Shared;
    "How messages are spread over paths: `static` uses the primary path only and waits for its \
     repair, `hotrepair` has one designated backup that takes everything, `balance` spreads the \
     lost share over all surviving paths, `planner` adds relays (this build: as `balance`).";

    "R2CCL_QUEUE_PAIRS", queue_pairs: u32 = 4096;
    Whole::<u32>::new(0, 1 << 24), Stable, Own;
    "With how many queue pairs of this process on a NIC its sending connections make no more \
     backups over it ahead of a fault; they make them when the fault is there. One costs the host \
     some 200 KB.";

    "R2CCL_HOLD_DOWN", hold_down: Duration = Duration::from_secs(1);
    Seconds { range: 0..=3600 }, Stable, Shared;
    "How long a path that comes back must prove itself before it takes messages again. It doubles, \
     up to a minute, for a path that fails within a minute of its return.";

    "R2CCL_FLAP_DAMPING", flap_damping: bool = true;
    SWITCH, Testing, Shared;
    "Whether the hold-down doubles for paths that come and go. Tests of many cycles turn it off.";

    "R2CCL_QUARANTINE", quarantine: Duration = Duration::from_secs(2);
    Seconds { range: 1..=3600 }, Stable, Shared;
    "How long a packet may be under way at the most once its source is silent. A path that could \
     not be stopped at its target counts as stopped this long after its source, and nothing that \
     belonged to a path that is over is used again sooner.";

    "R2CCL_FENCE", fence: Fence = Fence::Auto;
    FENCES, Stable, Shared;
    "What must stop a path that failed before its messages go another way: `auto` takes the target \
     or, where that cannot be reached, the source and `R2CCL_QUARANTINE`; `strict` waits for the \
     target alone.";

    "R2CCL_LOG", log: LogLevel = LogLevel::Auto;
    LOG_LEVELS, Stable, Own;
    "Which lines are handed to the log. Under NCCL they go to NCCL's logger, which filters by \
     `NCCL_DEBUG` and `NCCL_DEBUG_SUBSYS` (debug and trace lines belong to `NET`); without NCCL \
     they go to the error output. `auto` is `info` under NCCL and `warn` without.";

    "R2CCL_BOARD", board: Option<PathBuf> = Some(PathBuf::from("/dev/shm"));
    OrOff(Directory), Stable, Own;
    "Folder of the boards, in which processes show `r2ccl status` what their NICs do and find what \
     `r2ccl drain` and `r2ccl chaos` tell them: one small file for each host identity and user. It \
     must be in memory or on a local disk. A board that cannot be used is reported once and \
     disturbs nothing.";

    "R2CCL_CHAOS", obeys_chaos: bool = false;
    YES_OR_NO, Testing, Own;
    "With 1, `r2ccl chaos` may break the software NICs of this process, to rehearse faults.";

    "R2CCL_SYSFS", sysfs: PathBuf = PathBuf::from("/sys");
    Directory, Testing, Own;
    "Root of the tree from which the state of interfaces and devices is read. Tests put a made-up \
     tree there.";

    "NCCL_SOCKET_IFNAME", socket_interfaces: Option<InterfaceRule> = None;
    InterfaceRules, Nccl, Own;
    "Network interfaces for control connections and, unless `R2CCL_SOFT_NICS` says otherwise, for \
     software NICs, in NCCL's syntax: `eth,ib` takes names that start so, `=eth0` exactly these, \
     `^docker` all but those that start so, `^=docker0` all but exactly these. Unset, interfaces \
     that start with `ib` are taken, else any but `docker*`, `lo*` and `virbr*`, else `docker*`, \
     else `lo*`. Only interfaces that are up and have an address count. With `^`, the loopback \
     interface is taken only if nothing else is left.";

    "NCCL_SOCKET_FAMILY", socket_family: SocketFamily = SocketFamily::Any;
    SOCKET_FAMILIES, Nccl, Own;
    "Which addresses of an interface are used; `any` prefers IP version 4. Link-local addresses \
     of version 6 are used only when there are no others.";

    "NCCL_HOSTID", nccl_host_id: Option<String> = None;
    OptionalText, Nccl, Own;
    "Identity of the host if `R2CCL_HOST_ID` is not set.";

    "NCCL_IB_DISABLE", ib_is_disabled: bool = false;
    YES_OR_NO, Nccl, Own;
    "With 1, `R2CCL_FABRIC=auto` takes no RDMA devices.";

    "NCCL_IB_HCA", ib_devices: Option<HcaRule> = None;
    HcaRules, Nccl, Own;
    "RDMA devices and ports, in NCCL's syntax: `mlx5` takes devices whose names start so, \
     `=mlx5_0:1,mlx5_1` exactly these, `^mlx5_3` all but those whose names start so, `^=mlx5_3` \
     all but exactly this. Without a port all ports of a device are meant. What NCCL reads behind \
     the port (rail and plane) is accepted and has no effect. Only ports that are up count.";

    "NCCL_IB_GID_INDEX", ib_gid_index: Option<u8> = None;
    OrMinusOne(Whole::<u8>::new(0, 255)), Nccl, Own;
    "Index of the GID that an Ethernet port uses. With -1 it is chosen by `NCCL_IB_ADDR_FAMILY`, \
     `NCCL_IB_ADDR_RANGE` and `NCCL_IB_ROCE_VERSION_NUM`, which is better: an index changes its \
     meaning when addresses come and go.";

    "NCCL_IB_ROCE_VERSION_NUM", ib_roce_version: u8 = 2;
    Whole::<u8>::new(1, 2), Nccl, Own;
    "Version of RoCE whose GID an Ethernet port uses.";

    "NCCL_IB_ADDR_FAMILY", ib_address_family: AddressFamily = AddressFamily::V4;
    GID_FAMILIES, Nccl, Own;
    "Family of the address whose GID an Ethernet port uses.";

    "NCCL_IB_ADDR_RANGE", ib_address_range: Option<AddressRange> = None;
    OptionalAddressRange, Nccl, Own;
    "Range of the addresses whose GIDs an Ethernet port may use, such as `10.1.0.0/16`; counts if \
     it is of the family of `NCCL_IB_ADDR_FAMILY`.";

    "NCCL_IB_TC", ib_traffic_class: Option<u8> = None;
    OrMinusOne(Whole::<u8>::new(0, 255)), Nccl, Own;
    "Traffic class of RDMA packets; on Ethernet its upper six bits are the DSCP. -1 is 0; what a \
     communicator asks for (`trafficClass`) is not looked at.";

    "NCCL_IB_FIFO_TC", ib_fifo_traffic_class: Option<u8> = None;
    OrMinusOne(Whole::<u8>::new(0, 255)), Nccl, Own;
    "The same for what a receiver sends: credits, counters and acknowledgements. -1 is \
     `NCCL_IB_TC`.";

    "NCCL_IB_SL", ib_service_level: Option<u8> = None;
    OrMinusOne(Whole::<u8>::new(0, 15)), Nccl, Own;
    "Service level of RDMA packets; -1 is 0.";

    "NCCL_IB_TIMEOUT", ib_timeout: u8 = 20;
    Whole::<u8>::new(0, 31), Nccl, Own;
    "An RDMA packet is sent again when it is not acknowledged within 4.096 us times 2 to the power \
     of this: 20 is 4.3 s, 18 is 1.1 s, 14 is 67 ms. With 0 it is waited for without end.";

    "NCCL_IB_RETRY_CNT", ib_retry_count: u8 = 7;
    Whole::<u8>::new(0, 7), Nccl, Own;
    "How often an RDMA packet is sent again before the path counts as lost. Soft-RoCE takes 7 for \
     without end.";

    "NCCL_IB_PKEY", ib_pkey_index: u16 = 0;
    Whole::<u16>::new(0, 65535), Nccl, Own;
    "Index in the port's table of partitions.";

    "NCCL_IB_PCI_RELAXED_ORDERING", ib_relaxed_ordering: bool = true;
    RELAXED_ORDERINGS, Nccl, Own;
    "Whether a device's writes to the buffers of messages may pass each other on the PCI bus, \
     if libibverbs is new enough (1.8) to pass the wish on: 0 no, 1 and 2 yes. What this library \
     polls itself (credits, counters, slots of small messages) is never relaxed.";

    "NCCL_IB_MERGE_VFS", ib_merges_functions: bool = true;
    YES_OR_NO, Nccl, Own;
    "Whether NCCL is told one PCI path for all virtual functions of an adapter.";

    "NCCL_IB_DEVICE_PCI_ORDER", ib_is_in_pci_order: bool = true;
    YES_OR_NO, Nccl, Own;
    "Whether RDMA devices are listed by PCI address, as NCCL does since 2.29.7; with 0 as \
     libibverbs lists them, as before.";

    "NCCL_IBVERBS_LIB", ibverbs_library: Option<String> = None;
    OptionalText, Nccl, Own;
    "A file to load before `libibverbs.so.1`, which is taken if that fails.";
}
