//! A host: the child process that loads the plugin and drives it, on one thread as NCCL's proxy.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::connect;
use super::link::{Layout, Receiver, Sender, Watch};
use super::message::{Device, FromHost, Go, Leftover, Measured, Pattern, Plan, ToHost};
use super::wire::Wire;
use super::{allreduce, flow, grouped};
use crate::net::{self, Net, NetError, Properties};

/// Time between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(100);

/// Why a host gives up.
#[derive(Debug)]
pub enum RunError {
    /// The plugin returned an error or broke its contract.
    Plugin(NetError),
    /// Anything else, in words.
    Other(String),
}

impl From<NetError> for RunError {
    fn from(error: NetError) -> Self {
        RunError::Plugin(error)
    }
}

impl From<String> for RunError {
    fn from(error: String) -> Self {
        RunError::Other(error)
    }
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        RunError::Other(format!("the driver is gone: {error}"))
    }
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Plugin(error) => error.fmt(f),
            RunError::Other(text) => f.write_str(text),
        }
    }
}

/// A host with its plugin and its ends of the connections.
pub struct Host {
    /// What the driver said in the beginning.
    pub plan: Plan,
    /// The plugin.
    pub net: Net,
    /// Number of its devices.
    pub devices: usize,
    /// Smallest group limit of the devices.
    pub max_recvs: i32,
    /// Sending ends.
    pub senders: Vec<Sender>,
    /// Receiving ends.
    pub receivers: Vec<Receiver>,
    /// Measurements so far, the current one included.
    pub runs: u64,
    /// The line to the driver.
    pub wire: Wire,
    reported: Instant,
}

/// Runs a host to its end; the driver is at the other end of standard input. Exit code of the
/// process.
pub fn main() -> std::process::ExitCode {
    // SAFETY: asks the kernel to kill this process when the driver dies; nothing else changes.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: the driver has put one end of a socket pair here, and nothing else reads it.
    let input = unsafe { OwnedFd::from_raw_fd(0) };
    let Ok(mut wire) = Wire::new(UnixStream::from(input)) else {
        eprintln!("r2ccl: this command is for the driver of 'r2ccl bench' only");
        return std::process::ExitCode::from(2);
    };
    let plan = match wire.receive() {
        Ok(ToHost::Plan(plan)) => *plan,
        _ => return std::process::ExitCode::from(2),
    };
    let (error, wire) = match Host::load(plan, wire) {
        Ok(mut host) => (host.serve().err(), host.wire),
        Err((error, wire)) => (Some(error), wire),
    };
    let Some(error) = error else {
        return std::process::ExitCode::SUCCESS;
    };
    report_failure(wire, &error);
    std::process::ExitCode::FAILURE
}

fn report_failure(mut wire: Wire, error: &RunError) {
    let by_plugin = matches!(error, RunError::Plugin(_));
    // The driver may be gone; then nobody wants to know.
    let _ = wire.send(&FromHost::Failed {
        message: error.to_string(),
        by_plugin,
    });
}

impl Host {
    /// Loads the plugin and tells the driver what it offers.
    fn load(plan: Plan, mut wire: Wire) -> Result<Host, (RunError, Wire)> {
        match Self::open(&plan) {
            Ok((net, ready, devices, max_recvs)) => {
                if let Err(error) = wire.send(&ready) {
                    return Err((error.into(), wire));
                }
                let (senders, receivers) = (Vec::new(), Vec::new());
                let reported = Instant::now();
                let runs = 0;
                Ok(Host {
                    plan,
                    net,
                    devices,
                    max_recvs,
                    senders,
                    receivers,
                    runs,
                    wire,
                    reported,
                })
            }
            Err(error) => Err((error, wire)),
        }
    }

    fn open(plan: &Plan) -> Result<(Net, FromHost, usize, i32), RunError> {
        let mut net = net::load(&plan.plugin, plan.abi).map_err(|error| error.to_string())?;
        net.set_strict(plan.check);
        net.init(plan.comm_id)?;
        let devices = net.devices()?;
        if devices == 0 {
            let file = plan.plugin.display();
            return Err(RunError::Other(format!(
                "{file} reports no device; NCCL_DEBUG=INFO shows the plugin's own words"
            )));
        }
        let mut listed = Vec::new();
        let mut max_recvs = i32::MAX;
        for dev in 0..devices {
            let properties = net.properties(i32::try_from(dev).unwrap_or(i32::MAX))?;
            max_recvs = max_recvs.min(properties.max_recvs);
            let Properties {
                name, speed_mbps, ..
            } = properties;
            listed.push(Device { name, speed_mbps });
        }
        if let Some(nic) = plan
            .nics
            .iter()
            .find(|&&nic| usize::try_from(nic).map_or(true, |nic| nic >= devices))
        {
            let names: Vec<String> = listed.iter().map(Device::to_string).collect();
            let names = names.join(", ");
            return Err(RunError::Other(format!(
                "there is no device {nic}: the plugin has {devices}, counted from 0 ({names})"
            )));
        }
        let (network, abi) = (net.name(), net.abi());
        let ready = FromHost::Ready {
            network,
            abi,
            devices: listed,
            max_recvs,
        };
        Ok((net, ready, devices, max_recvs))
    }

    /// Device that a channel uses on this host.
    pub fn device(&self, channel: usize) -> i32 {
        match self.plan.nics.len() {
            0 => i32::try_from(channel % self.devices).unwrap_or(0),
            count => self.plan.nics[channel % count],
        }
    }

    fn serve(&mut self) -> Result<(), RunError> {
        loop {
            match self.wire.receive()? {
                ToHost::Connect => {
                    connect::all(self)?;
                    self.wire.send(&FromHost::Connected)?;
                }
                ToHost::Go(go) => {
                    let measured = self.measure(&go)?;
                    self.wire.send(&FromHost::Done(measured))?;
                }
                ToHost::Close => {
                    self.close()?;
                    self.wire.send(&FromHost::Closed(leftover()))?;
                }
                ToHost::Exit => {
                    self.net.finalize()?;
                    return Ok(());
                }
                ToHost::Plan(_) | ToHost::Handle { .. } | ToHost::Begin => {
                    return Err(RunError::Other(
                        "a message out of turn from the driver".into(),
                    ));
                }
            }
        }
    }

    fn measure(&mut self, go: &Go) -> Result<Measured, RunError> {
        self.runs += 1;
        self.reported = Instant::now();
        let before = cpu_ns();
        let mut measured = match self.plan.pattern {
            Pattern::Stream | Pattern::Alltoall => flow::stream(self, go),
            Pattern::Pingpong => flow::pingpong(self, go),
            Pattern::Allreduce => allreduce::run(self, go),
            Pattern::Grouped => grouped::run(self, go),
            Pattern::Abort => flow::abort(self, go),
        }?;
        measured.cpu_ns = cpu_ns().saturating_sub(before);
        Ok(measured)
    }

    /// Gives all connections buffers for messages of one size.
    pub fn prepare(&mut self, layout: &Layout) -> Result<(), RunError> {
        for sender in &mut self.senders {
            sender.prepare(&self.net, layout)?;
        }
        for receiver in &mut self.receivers {
            receiver.prepare(&self.net, layout)?;
        }
        Ok(())
    }

    /// Waits until all hosts have their buffers, which takes a while, and starts the clock.
    pub fn begin(&mut self) -> Result<Watch, RunError> {
        self.wire.send(&FromHost::Prepared)?;
        match self.wire.receive()? {
            ToHost::Begin => Ok(Watch::new(self.plan.stall_ms)),
            _ => Err(RunError::Other(
                "a message out of turn from the driver".into(),
            )),
        }
    }

    /// Takes the buffers away again.
    pub fn release(&mut self) -> Result<(), RunError> {
        for sender in &mut self.senders {
            sender.release(&self.net)?;
        }
        for receiver in &mut self.receivers {
            receiver.release(&self.net)?;
        }
        Ok(())
    }

    /// Sums over the receiving ends.
    pub fn sums(&self) -> Measured {
        let bytes = self.receivers.iter().map(|receiver| receiver.bytes).sum();
        Measured {
            bytes,
            ..Measured::default()
        }
    }

    /// What belongs between two rounds: giving the CPU away when idle, the report of progress, and
    /// the error when nothing moves any more.
    pub fn turn(&mut self, watch: &mut Watch, moved: bool) -> Result<(), RunError> {
        if !watch.round(moved) {
            return Err(RunError::Other(self.stalled()));
        }
        let moved_at = watch.moved();
        if moved && moved_at - self.reported >= PROGRESS {
            self.reported = moved_at;
            let mut channels = vec![0; self.plan.channels];
            for receiver in &self.receivers {
                channels[receiver.channel] += receiver.bytes;
            }
            self.wire.send(&FromHost::Progress { channels })?;
        }
        Ok(())
    }

    /// Where every connection with open requests stands.
    fn stalled(&self) -> String {
        let mut text = format!("nothing has moved for {} ms:", self.plan.stall_ms);
        for sender in &self.senders {
            let (submitted, done) = sender.state();
            if submitted == done {
                continue;
            }
            text.push_str(&format!(
                " link {} sent {submitted}, done {done};",
                sender.link
            ));
        }
        for receiver in &self.receivers {
            let (submitted, done) = receiver.state();
            if submitted == done {
                continue;
            }
            let link = receiver.link;
            text.push_str(&format!(
                " link {link} posted {submitted}, received {done};"
            ));
        }
        text
    }

    /// Deregisters and closes everything, in NCCL's order.
    pub fn close(&mut self) -> Result<(), RunError> {
        for sender in self.senders.drain(..) {
            sender.close(&self.net)?;
        }
        for receiver in self.receivers.drain(..) {
            receiver.close(&self.net)?;
        }
        Ok(())
    }
}

/// CPU time of this process so far, all threads, in nanoseconds.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What this process holds, as the kernel lists it.
fn leftover() -> Leftover {
    let count = |path: &str| std::fs::read_dir(path).map_or(0, Iterator::count);
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages
        .and_then(|text| {
            text.split(' ')
                .nth(1)
                .and_then(|field| field.parse::<u64>().ok())
        })
        .unwrap_or(0);
    Leftover {
        descriptors: count("/proc/self/fd"),
        threads: count("/proc/self/task"),
        resident: resident * 4096,
    }
}
