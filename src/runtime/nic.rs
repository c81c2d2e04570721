//! The NICs of this process, as NCCL sees them.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use r2ccl_core::limits::{GROUP_MAX, MESSAGE_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENTS_MAX};
use r2ccl_fabric::SharedDevice;
use r2ccl_fabric::soft::{SoftConfig, SoftDevice};
use r2ccl_fabric::verbs::{self, GidPolicy, VerbsConfig};

use super::error::{Error, Result};
use super::interfaces::{self, SoftNicSpec};
use super::memory::{MemoryCache, check_spare};
use super::shared::Tally;
use crate::config::{Fabric, Settings};

/// One NIC with all that hangs on it.
pub struct Nic {
    /// The device.
    pub device: SharedDevice,
    /// Its registrations.
    pub cache: Arc<MemoryCache>,
    /// What paths over it have been through.
    pub tally: Arc<Tally>,
    /// What NCCL is told.
    pub properties: Properties,
    /// NUMA node of its PCI device, if it has one and the system says.
    pub numa_node: Option<u32>,
    /// Whether NCCL is told of it at all: not of one whose link was down at the start, which its
    /// own transport would not list either. Such a NIC stands by.
    pub is_listed: bool,
}

/// What NCCL is told about a NIC. Strings live as long as the library.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// Unique name.
    pub name: &'static CStr,
    /// Path of the PCI device in sysfs; without one NCCL hangs the NIC below the first CPU.
    pub pci_path: Option<&'static CStr>,
    /// Identifies the adapter.
    pub guid: u64,
    /// Port on the adapter.
    pub port: i32,
    /// Mbit/s.
    pub speed_mbps: i32,
    /// Connections at the most.
    pub max_comms: i32,
    /// Buffers in one grouped receive.
    pub max_recvs: i32,
    /// Largest message in bytes.
    pub max_p2p_bytes: usize,
    /// Bits of `NCCL_PTR_*`.
    pub ptr_support: i32,
}

/// The NICs of this process, and what an operator should know about the choice.
pub struct Opened {
    /// In NCCL's order, at least one of them listed, with those that are not in between: NICs of
    /// equal rank at two hosts stay together.
    pub nics: Vec<Nic>,
    /// Full sentences.
    pub notes: Vec<String>,
}

/// Opens the NICs that the settings ask for.
pub fn open_all(settings: &Settings) -> Result<Opened> {
    check_spare()?;
    match settings.fabric {
        Fabric::Soft => open_soft(settings, Vec::new()),
        Fabric::Verbs => open_verbs(settings).map_err(|error| {
            Error::System(format!(
                "R2CCL_FABRIC=verbs: {error}; or set R2CCL_FABRIC=soft for software NICs"
            ))
        }),
        Fabric::Auto => {
            let reason = match obstacle(settings) {
                Some(reason) => reason,
                None => match open_verbs(settings) {
                    Ok(opened) => return Ok(opened),
                    Err(error) => format!("the RDMA devices of this host cannot be used ({error})"),
                },
            };
            let note = format!(
                "{reason}: software NICs over TCP are used; R2CCL_FABRIC=soft silences this, \
                 R2CCL_FABRIC=verbs makes it an error"
            );
            open_soft(settings, vec![note])
        }
    }
}

/// Why RDMA devices need not even be looked for.
fn obstacle(settings: &Settings) -> Option<String> {
    if settings.ib_is_disabled {
        return Some("NCCL_IB_DISABLE is set".into());
    }
    let devices = std::fs::read_dir(settings.sysfs.join("class/infiniband"));
    let is_empty = devices.map_or(true, |mut devices| devices.next().is_none());
    is_empty.then(|| "no RDMA device found".into())
}

fn open_verbs(settings: &Settings) -> Result<Opened> {
    let allows = |device: &str, port: u32| {
        let rule = settings.ib_devices.as_ref();
        rule.is_none_or(|rule| rule.allows(device, port))
    };
    let found = verbs::open_all(&verbs_config(settings), &allows)
        .map_err(|error| Error::System(error.to_string()))?;
    if found.ports.is_empty() {
        return Err(Error::System(found.notes.join("; ")));
    }
    let nics = found
        .ports
        .into_iter()
        .map(|port| Nic::new(port.device, port.is_up));
    Ok(Opened {
        nics: nics.collect::<Result<_>>()?,
        notes: found.notes,
    })
}

fn verbs_config(settings: &Settings) -> VerbsConfig {
    let traffic_class = settings.ib_traffic_class.unwrap_or(0);
    VerbsConfig {
        sysfs: settings.sysfs.clone(),
        gid: GidPolicy {
            index: settings.ib_gid_index.map(u32::from),
            roce_version: settings.ib_roce_version,
            family: settings.ib_address_family,
            range: settings.ib_address_range,
        },
        traffic_class,
        control_traffic_class: settings.ib_fifo_traffic_class.unwrap_or(traffic_class),
        service_level: settings.ib_service_level.unwrap_or(0),
        timeout: settings.ib_timeout,
        retry_count: settings.ib_retry_count,
        pkey_index: settings.ib_pkey_index,
        relaxed_ordering: settings.ib_relaxed_ordering,
        merges_functions: settings.ib_merges_functions,
        is_in_pci_order: settings.ib_is_in_pci_order,
        library: settings.ibverbs_library.clone(),
        ..VerbsConfig::default()
    }
}

fn open_soft(settings: &Settings, notes: Vec<String>) -> Result<Opened> {
    let host = settings.host_identity();
    let specs = interfaces::soft_nics(settings)?;
    let open = |(spec, number): (SoftNicSpec, u64)| {
        let device = SoftDevice::open(SoftConfig {
            // Equal in all processes of a host and different between hosts and NICs: NCCL takes
            // NICs of equal guid and port for one.
            guid: host.id.wrapping_add(number),
            interface: Some(spec.interface),
            lanes: settings.soft_lanes.map(|lanes| lanes as usize),
            rate_limit_bytes_per_s: spec.rate_limit_bytes_per_s,
            ..SoftConfig::new(spec.name, spec.address, spec.speed_mbps)
        })
        .map_err(|error| Error::System(error.to_string()))?;
        Nic::new(device, true)
    };
    let nics = specs.into_iter().zip(1..).map(open);
    Ok(Opened {
        nics: nics.collect::<Result<_>>()?,
        notes,
    })
}

impl Nic {
    fn new(device: SharedDevice, is_listed: bool) -> Result<Self> {
        let info = device.info();
        let properties = Properties {
            name: leak(&info.name)?,
            pci_path: info.pci_path.as_deref().map(leak).transpose()?,
            guid: info.guid,
            port: clamp(info.port),
            speed_mbps: clamp(info.speed_mbps),
            max_comms: clamp(info.queue_pairs_max),
            max_recvs: GROUP_MAX as i32,
            max_p2p_bytes: message_bytes_max(info.message_bytes_max),
            ptr_support: r2ccl_abi::NCCL_PTR_HOST,
        };
        let numa_node = info.pci_path.as_deref().and_then(numa_node);
        Ok(Self {
            cache: MemoryCache::new(device.clone()),
            device,
            tally: Arc::default(),
            properties,
            numa_node,
            is_listed,
        })
    }
}

/// What sysfs says beside a PCI device; it says -1 for none. In a path whose functions are merged
/// the function is 0, and that one is always there.
fn numa_node(pci_path: &str) -> Option<u32> {
    let text = std::fs::read_to_string(format!("{pci_path}/numa_node")).ok()?;
    text.trim().parse().ok()
}

/// The largest message: as many segments as there may be, of what the device moves at once.
fn message_bytes_max(device_bytes_max: u64) -> usize {
    let segment = device_bytes_max.min(u64::from(SEGMENT_BYTES_MAX));
    let most = segment.saturating_mul(SEGMENTS_MAX as u64);
    most.min(u64::from(MESSAGE_BYTES_MAX)) as usize
}

fn clamp(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// NCCL keeps the pointers for the life of the library, and there is one string a NIC.
fn leak(text: &str) -> Result<&'static CStr> {
    let text = CString::new(text)
        .map_err(|_| Error::System(format!("the name {text:?} holds a zero byte")))?;
    Ok(Box::leak(text.into_boxed_c_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(pairs: &[(&str, &str)]) -> Result<Opened> {
        let sysfs = tempfile::tempdir().expect("a folder");
        let device = sysfs.path().join("class/infiniband/mlx5_77");
        std::fs::create_dir_all(device).expect("a folder");
        let root = sysfs.path().to_str().expect("a path");
        let common = [("R2CCL_SYSFS", root), ("NCCL_SOCKET_IFNAME", "lo")];
        open_all(&Settings::from_pairs(common.iter().chain(pairs).copied()))
    }

    #[test]
    fn tcp_is_never_taken_in_silence() {
        let notes = |pairs: &[(&str, &str)]| opened(pairs).expect("software NICs").notes;
        let none = notes(&[("R2CCL_SYSFS", "/nowhere")]);
        assert!(none[0].starts_with("no RDMA device found"), "{none:?}");
        let disabled = notes(&[("NCCL_IB_DISABLE", "1")]);
        assert!(disabled[0].contains("NCCL_IB_DISABLE"), "{disabled:?}");
        assert!(notes(&[("R2CCL_FABRIC", "soft")]).is_empty());
        // No such device is on any host.
        let unusable = notes(&[("NCCL_IB_HCA", "=mlx5_77")]);
        assert!(unusable[0].contains("cannot be used"), "{unusable:?}");
        assert!(unusable[0].contains("R2CCL_FABRIC=verbs"), "{unusable:?}");
    }

    #[test]
    fn rdma_that_was_asked_for_is_an_error_if_there_is_none() {
        let pairs = [("R2CCL_FABRIC", "verbs"), ("NCCL_IB_HCA", "=mlx5_77")];
        let error = opened(&pairs).err().expect("no such device");
        assert!(matches!(error, Error::System(_)), "{error}");
    }

    #[test]
    fn small_devices_move_small_messages() {
        assert_eq!(message_bytes_max(8 << 20), 512 << 20);
        assert_eq!(message_bytes_max(1 << 31), MESSAGE_BYTES_MAX as usize);
        assert_eq!(message_bytes_max(u64::MAX), MESSAGE_BYTES_MAX as usize);
    }
}
