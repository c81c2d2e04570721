//! The NICs of this process, as NCCL sees them.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use r2ccl_fabric::SharedDevice;
use r2ccl_fabric::soft::{SoftConfig, SoftDevice};

use super::error::{Error, Result};
use super::interfaces;
use super::memory::{MemoryCache, check_spare};
use crate::config::{Fabric, Settings};

/// One NIC with all that hangs on it.
pub struct Nic {
    /// The device.
    pub device: SharedDevice,
    /// Its registrations.
    pub cache: Arc<MemoryCache>,
    /// What NCCL is told.
    pub properties: Properties,
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

/// Opens the NICs that the settings ask for.
pub fn open_all(settings: &Settings) -> Result<Vec<Nic>> {
    if settings.fabric == Fabric::Verbs {
        return Err(Error::Usage(
            "R2CCL_FABRIC=verbs: this version has software NICs only; set R2CCL_FABRIC=soft".into(),
        ));
    }
    check_spare()?;
    let host = settings.host_identity();
    let specs = interfaces::soft_nics(settings)?;
    specs
        .into_iter()
        .zip(1..)
        .map(|(spec, number)| {
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
            Nic::new(device)
        })
        .collect()
}

impl Nic {
    fn new(device: SharedDevice) -> Result<Self> {
        let info = device.info();
        let properties = Properties {
            name: leak(&info.name)?,
            pci_path: info.pci_path.as_deref().map(leak).transpose()?,
            guid: info.guid,
            port: clamp(info.port),
            speed_mbps: clamp(info.speed_mbps),
            max_comms: clamp(info.queue_pairs_max),
            max_recvs: r2ccl_core::limits::GROUP_MAX as i32,
            max_p2p_bytes: r2ccl_core::limits::MESSAGE_BYTES_MAX as usize,
            ptr_support: r2ccl_abi::NCCL_PTR_HOST,
        };
        Ok(Self {
            cache: MemoryCache::new(device.clone()),
            device,
            properties,
        })
    }
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
