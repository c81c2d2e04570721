//! A process's part of the board: shows its NICs there, and does what it finds there for them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use r2ccl_fabric::{Fault, SharedDevice};

use super::board::Board;
use super::order::Order;
use super::record::{Answer, NICS_MAX, NicCommand, NicRecord, ProcessRecord, word};
use crate::config::HostIdentity;

/// How often the board is looked at, and told what has changed.
pub const PERIOD: Duration = Duration::from_millis(50);
/// Name of this program.
const PROGRAM: &str = "/proc/self/comm";

/// What a process is on the board.
pub struct MonitorConfig {
    /// Folder of the boards.
    pub folder: PathBuf,
    /// Whose board.
    pub identity: HostIdentity,
    /// Whether NICs may be broken by a command.
    pub obeys_chaos: bool,
}

/// What else a process knows about one of its NICs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicUsage {
    /// See [`NicRecord::is_up`].
    pub is_up: bool,
    /// See [`NicRecord::connections`].
    pub connections: u32,
    /// See [`NicRecord::paths_in_service`].
    pub paths_in_service: u32,
    /// See [`NicRecord::paths_failed`].
    pub paths_failed: u32,
    /// See [`NicRecord::paths_leaving`].
    pub paths_leaving: u32,
    /// See [`NicRecord::failovers`].
    pub failovers: u64,
    /// See [`NicRecord::failbacks`].
    pub failbacks: u64,
}

/// A place on a board.
struct Place {
    board: Board,
    slot: u64,
    /// What stands there.
    shown: String,
}

struct WatchedNic {
    device: SharedDevice,
    name: String,
    is_drained: bool,
    order: Order,
    ordered: Instant,
    /// A fault was injected, or taken back, that the order wants changed with time.
    fault: Fault,
    answered: u64,
    answer: Answer,
}

/// See the module's page. One thread calls it.
pub struct Monitor {
    config: MonitorConfig,
    nics: Vec<WatchedNic>,
    program: String,
    place: Option<Place>,
    next: Instant,
}

impl Monitor {
    /// Takes a place on the board for a process with these NICs. `None`: without it, which is said.
    pub fn join(config: MonitorConfig, devices: &[SharedDevice]) -> Option<Self> {
        let now = Instant::now();
        let place = match place(&config) {
            Ok(place) => place,
            Err(reason) => {
                give_up(&config, &reason);
                return None;
            }
        };
        let program = std::fs::read_to_string(PROGRAM).unwrap_or_default();
        let nic = |device: &SharedDevice| WatchedNic {
            device: device.clone(),
            name: word(&device.info().name),
            is_drained: false,
            order: Order::Restore,
            ordered: now,
            fault: Fault::Restore,
            answered: 0,
            answer: Answer::None,
        };
        let mut monitor = Self {
            program: word(program.trim()),
            nics: devices.iter().take(NICS_MAX).map(nic).collect(),
            place: Some(place),
            config,
            next: now,
        };
        monitor.skip_old_orders();
        Some(monitor)
    }

    /// Faults are for the processes that were there when they were ordered.
    fn skip_old_orders(&mut self) {
        for command in self.commands() {
            for nic in self.nics.iter_mut().filter(|nic| nic.name == command.name) {
                nic.answered = command.order_serial;
            }
        }
    }

    fn commands(&self) -> Vec<NicCommand> {
        let place = self.place.as_ref();
        let commands = place.and_then(|place| place.board.commands());
        commands.unwrap_or_default()
    }

    /// Looks at the board if it is time to; returns which NICs are drained or used again from now
    /// on. [`Monitor::show`] comes next, when the connections have been told.
    pub fn look(&mut self) -> Option<Vec<(usize, bool)>> {
        let now = Instant::now();
        if self.place.is_none() || now < self.next {
            return None;
        }
        self.next = now + PERIOD;
        let mut drains = Vec::new();
        for command in self.commands() {
            for dev in 0..self.nics.len() {
                drains.extend(self.obey(dev, &command, now));
            }
        }
        self.nics.iter_mut().for_each(|nic| nic.flap(now));
        Some(drains)
    }

    /// When to look again; `None`: never.
    pub fn pause(&self) -> Option<Duration> {
        let left = self.next.saturating_duration_since(Instant::now());
        self.place.is_some().then_some(left)
    }

    /// Does what a NIC is told, if that is news; returns whether it was drained or is used again.
    fn obey(&mut self, dev: usize, command: &NicCommand, now: Instant) -> Option<(usize, bool)> {
        let obeys_chaos = self.config.obeys_chaos;
        let nic = &mut self.nics[dev];
        if nic.name != command.name {
            return None;
        }
        let name = nic.name.clone();
        if command.order_serial > nic.answered {
            nic.answer = if obeys_chaos {
                tracing::warn!("{name}: `r2ccl chaos` orders: {}", command.order);
                nic.order(command.order, now)
            } else {
                Answer::NotAllowed
            };
        }
        let is_new = command.is_drained != nic.is_drained;
        if is_new {
            nic.is_drained = command.is_drained;
            let what = if nic.is_drained {
                "drained: new messages keep off it while there is another path"
            } else {
                "in use again"
            };
            tracing::warn!("{name}: {what}");
        }
        if command.drain_serial > nic.answered {
            nic.answer = Answer::Done;
        }
        nic.answered = nic.answered.max(command.serial());
        is_new.then_some((dev, command.is_drained))
    }

    /// Shows the NICs, of which `usage` tells the rest.
    pub fn show(&mut self, usage: &[NicUsage]) {
        let usage = usage
            .iter()
            .copied()
            .chain(std::iter::repeat(NicUsage::default()));
        let record = ProcessRecord {
            pid: std::process::id(),
            program: self.program.clone(),
            obeys_chaos: self.config.obeys_chaos,
            nics: self
                .nics
                .iter()
                .zip(usage)
                .map(WatchedNic::record)
                .collect(),
        };
        let text = record.encode();
        let Some(place) = self.place.as_mut().filter(|place| place.shown != text) else {
            return;
        };
        match place.board.publish(place.slot, &text) {
            Ok(()) => place.shown = text,
            Err(reason) => {
                give_up(&self.config, &reason);
                self.place = None;
            }
        }
    }
}

impl WatchedNic {
    fn order(&mut self, order: Order, now: Instant) -> Answer {
        let fault = order.fault(Duration::ZERO);
        match self.device.inject(fault) {
            Ok(()) => {
                (self.order, self.ordered, self.fault) = (order, now, fault);
                Answer::Done
            }
            Err(error) => {
                tracing::warn!("{error}");
                Answer::Unsupported
            }
        }
    }

    /// An order may mean another fault by now.
    fn flap(&mut self, now: Instant) {
        let fault = self.order.fault(now.duration_since(self.ordered));
        if fault != self.fault && self.device.inject(fault).is_ok() {
            self.fault = fault;
        }
    }

    fn record((nic, usage): (&Self, NicUsage)) -> NicRecord {
        let traffic = nic.device.bytes_moved();
        NicRecord {
            name: nic.name.clone(),
            is_up: usage.is_up,
            connections: usage.connections,
            paths_in_service: usage.paths_in_service,
            paths_failed: usage.paths_failed,
            bytes_sent: traffic.sent,
            bytes_received: traffic.received,
            paths_leaving: usage.paths_leaving,
            failovers: usage.failovers,
            failbacks: usage.failbacks,
            order: nic.order,
            is_drained: nic.is_drained,
            answered: nic.answered,
            answer: nic.answer,
        }
    }
}

fn place(config: &MonitorConfig) -> Result<Place, String> {
    let board = Board::join(&config.folder, &config.identity)?;
    let slot = board.claim()?;
    Ok(Place {
        board,
        slot,
        shown: String::new(),
    })
}

fn give_up(config: &MonitorConfig, reason: &str) {
    tracing::warn!(
        "no board in {} (R2CCL_BOARD): {reason}; `r2ccl status`, `drain` and `chaos` do not know \
         this process, everything else works",
        config.folder.display()
    );
}
