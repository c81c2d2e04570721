//! Threads, progress, memory and connections: everything between the C boundary and the devices.
//!
//! Read in this order: [`net`] (the calls), [`setup`] (how a connection comes to be), [`send`] and
//! [`receive`] (how it moves messages), [`path`] (one queue pair), [`table`] (ids and ownership),
//! [`memory`] (registrations), [`control`] (the other process), [`steward`] (who acts when NCCL
//! does not call).

pub mod batch;
mod causes;
pub mod control;
pub mod driver;
pub mod error;
mod fences;
pub mod fork;
pub mod group;
pub mod interfaces;
mod mailbox;
pub mod memory;
pub mod net;
pub mod nic;
mod order;
pub mod path;
pub mod paths;
pub mod receive;
pub mod ring;
pub mod send;
pub mod setup;
pub mod shared;
pub mod starvation;
pub mod steward;
pub mod table;
pub mod words;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Once};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;
use r2ccl_core::Time;
use r2ccl_core::wire::handle::PROTOCOL_VERSION;

use control::ControlPlane;
use error::{Error, Result};
use nic::Nic;
use receive::ReceiveConnection;
use send::SendConnection;
use shared::Shared;
use steward::Steward;
use table::{Kind, Table};

use crate::monitor::watch::{Monitor, MonitorConfig};

/// Sending sides of this process.
pub static SENDS: Table<SendConnection, Shared> = Table::new(Kind::Send);
/// Receiving sides of this process.
pub static RECEIVES: Table<ReceiveConnection, Shared> = Table::new(Kind::Receive);

/// What a process has once. It is made by the first call that needs it, whichever that is, since
/// NCCL may unload and load the library without calling `init` again.
pub struct Runtime {
    nics: Vec<Nic>,
    steward: Arc<Steward>,
    control: OnceCell<Arc<ControlPlane>>,
}

static RUNTIME: OnceCell<Runtime> = OnceCell::new();
/// What is odd about the settings is said once, before the first device is opened.
static REPORTED: Once = Once::new();
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Runtime {
    /// The runtime of this process. A failure is tried again at the next call.
    pub fn get() -> Result<&'static Self> {
        if fork::is_child() {
            return Err(Error::System(
                "this process was forked from one that uses NCCL with R2CCL and has none of its \
                 threads: start it by spawn, or before the first communicator is made"
                    .into(),
            ));
        }
        RUNTIME.get_or_try_init(|| {
            fork::watch();
            let settings = crate::config::settings();
            REPORTED.call_once(|| settings.report_complaints());
            let opened = nic::open_all(settings)?;
            for note in &opened.notes {
                tracing::warn!("{note}");
            }
            Ok(Self {
                nics: opened.nics,
                steward: Arc::default(),
                control: OnceCell::new(),
            })
        })
    }

    /// All NICs.
    pub fn nics(&self) -> &[Nic] {
        &self.nics
    }

    /// Numbers of the NICs that NCCL sees, in the order of its device numbers.
    pub fn listed(&self) -> impl Iterator<Item = i32> {
        let numbers = (0..).zip(&self.nics);
        numbers.filter_map(|(number, nic)| nic.is_listed.then_some(number))
    }

    /// Number of the NIC that is NCCL's device `device`.
    pub fn dev_of(&self, device: i32) -> Result<i32> {
        let index = usize::try_from(device).ok();
        let dev = index.and_then(|index| self.listed().nth(index));
        dev.ok_or_else(|| {
            let count = self.listed().count();
            Error::Argument(format!("there is no device {device}; there are {count}"))
        })
    }

    /// The NIC with the number `dev`.
    pub fn nic(&self, dev: i32) -> Result<&Nic> {
        usize::try_from(dev)
            .ok()
            .and_then(|dev| self.nics.get(dev))
            .ok_or_else(|| Error::Internal(format!("NIC {dev} of {}", self.nics.len())))
    }

    /// The control plane, started when the first connection needs it.
    pub fn control(&self) -> Result<&Arc<ControlPlane>> {
        self.control.get_or_try_init(|| {
            let settings = crate::config::settings();
            let host = settings.host_identity();
            let config = control::Config {
                addresses: interfaces::control_addresses(settings)?
                    .into_iter()
                    .map(|address| SocketAddr::new(address, settings.control_port))
                    .collect(),
                host: host.name,
                host_id: host.id,
                settings: settings.shared(),
                giveup: settings.give_up,
                instance: None,
                version: PROTOCOL_VERSION,
            };
            let control = ControlPlane::start(config, self.steward.clone())?;
            self.steward.set_control(control.clone());
            for nic in &self.nics {
                let steward = self.steward.clone();
                nic.device.on_event(Box::new(move || steward.wake()));
            }
            self.steward.set_nics(&self.nics, self.monitor());
            Ok(control)
        })
    }

    /// This process's part of the board, unless there is to be none.
    fn monitor(&self) -> Option<Monitor> {
        let settings = crate::config::settings();
        let config = MonitorConfig {
            folder: settings.board.clone()?,
            identity: settings.host_identity(),
            obeys_chaos: settings.obeys_chaos,
        };
        let devices: Vec<_> = self.nics.iter().map(|nic| nic.device.clone()).collect();
        Monitor::join(config, &devices)
    }

    /// Whoever acts when NCCL does not call.
    pub fn steward(&self) -> &Arc<Steward> {
        &self.steward
    }
}

/// The time so many nanoseconds after the library was first used, from now on.
pub fn time_until(due_ns: u64) -> Duration {
    let now_ns = now().nanoseconds();
    Duration::from_nanos(due_ns.saturating_sub(now_ns))
}

/// Time since the library was first used.
pub fn now() -> Time {
    Time::from_nanoseconds(u64::try_from(STARTED.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
