//! The driver's side of a run: starts the hosts, carries the handles between them, gives each step
//! a deadline, and leaves no process behind.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::message::{
    Device, FromHost, Go, Leftover, Link, Measured, Pattern, Plan, ToHost, links,
};
use super::outcome::{End, Failure, Outcome};
use super::wire::{self, Wire};

/// Name of the hidden subcommand that a host runs.
pub const HOST_COMMAND: &str = "bench-host";
/// Time that the other hosts get to end by themselves after one has failed.
const GRACE: Duration = Duration::from_secs(5);
/// A host that sees nothing move gives up by itself and can say where it stood: the driver waits so
/// much longer for its word, also on a machine that is busy with other things.
const LAST_WORD: Duration = Duration::from_secs(3);
/// Longest sleep of the driver between two looks at its deadlines.
const NAP: Duration = Duration::from_millis(100);

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The plugin's file.
    pub plugin: PathBuf,
    /// Table version; the newest by default.
    pub abi: Option<u32>,
    /// Number of hosts, each a process.
    pub hosts: usize,
    /// Channels between two hosts.
    pub channels: usize,
    /// How data moves.
    pub pattern: Pattern,
    /// Devices that channels use in turn; all when empty.
    pub nics: Vec<i32>,
    /// Whether every byte is checked.
    pub check: bool,
    /// Bytes by which buffers are moved off page boundaries.
    pub offset: usize,
    /// Memory for the slots of one connection and direction, in bytes.
    pub window: u64,
    /// Longest time that a step (start, connect, one measurement, close) may go without a sign of
    /// life.
    pub timeout: Duration,
    /// Variables that the hosts get besides this process's own; a name may say `HOST:` before.
    pub environment: Vec<(String, String)>,
    /// A host to kill, and when, counted from the start of the first measurement.
    pub kill: Option<(usize, Duration)>,
}

/// What the hosts found when they loaded the plugin.
#[derive(Clone, Debug, Serialize)]
pub struct Loaded {
    /// Network name.
    pub network: String,
    /// Table version in use.
    pub abi: u32,
    /// The devices of host 0.
    pub devices: Vec<Device>,
}

/// One host.
struct Member {
    child: Child,
    wire: Wire,
    outcome: Option<Outcome>,
}

/// A running set of hosts.
pub struct World {
    members: Vec<Member>,
    links: Vec<Link>,
    timeout: Duration,
    kill: Option<(usize, Duration)>,
    kill_at: Option<Instant>,
    failed_at: Option<Instant>,
    /// What the hosts loaded.
    pub loaded: Loaded,
}

impl World {
    /// Starts the hosts and has them load the plugin.
    pub fn start(setup: &Setup) -> Result<World, Failure> {
        let mut world = World {
            members: Vec::new(),
            links: links(setup.pattern, setup.hosts, setup.channels),
            timeout: setup.timeout + LAST_WORD,
            kill: setup.kill,
            kill_at: None,
            failed_at: None,
            loaded: Loaded {
                network: String::new(),
                abi: 0,
                devices: Vec::new(),
            },
        };
        let comm_id = run_id();
        for host in 0..setup.hosts {
            let plan = world.plan(setup, host, comm_id);
            let member = spawn(setup, host).and_then(|mut member| {
                member.wire.send(&ToHost::Plan(Box::new(plan)))?;
                Ok(member)
            });
            match member {
                Ok(member) => world.members.push(member),
                Err(error) => return Err(cannot_start(host, &error)),
            }
        }
        world.await_ready()?;
        Ok(world)
    }

    fn plan(&self, setup: &Setup, host: usize, comm_id: u64) -> Plan {
        let stall_ms = u64::try_from(setup.timeout.as_millis()).unwrap_or(u64::MAX);
        Plan {
            host,
            hosts: setup.hosts,
            plugin: setup.plugin.clone(),
            abi: setup.abi,
            comm_id,
            pattern: setup.pattern,
            channels: setup.channels,
            links: self.links.clone(),
            nics: setup.nics.clone(),
            check: setup.check,
            offset: setup.offset,
            window: setup.window,
            stall_ms,
        }
    }

    fn await_ready(&mut self) -> Result<(), Failure> {
        let mut first = None;
        self.collect("load the plugin", |host, message, _| match message {
            FromHost::Ready {
                network,
                abi,
                devices,
                ..
            } => {
                if host == 0 {
                    first = Some(Loaded {
                        network,
                        abi,
                        devices,
                    });
                }
                Some(())
            }
            _ => None,
        })?;
        if let Some(loaded) = first {
            self.loaded = loaded;
        }
        Ok(())
    }

    /// Connects all links.
    pub fn connect(&mut self) -> Result<(), Failure> {
        self.tell_all(&ToHost::Connect);
        let links = self.links.clone();
        self.collect("connect", |_, message, members| match message {
            FromHost::Handle { link, bytes } => {
                let target = links
                    .get(link as usize)
                    .and_then(|l| members.get_mut(l.from));
                if let Some(member) = target {
                    // A sender that is gone shows at its own end of the line.
                    let _ = member.wire.send(&ToHost::Handle { link, bytes });
                }
                None
            }
            FromHost::Connected => Some(()),
            _ => None,
        })?;
        Ok(())
    }

    /// Runs one measurement; `progress` gets a host and its bytes by channel now and then.
    pub fn run(
        &mut self,
        go: &Go,
        mut progress: impl FnMut(usize, &[u64]),
    ) -> Result<Vec<Measured>, Failure> {
        self.tell_all(&ToHost::Go(*go));
        self.collect("prepare", |_, message, _| {
            matches!(message, FromHost::Prepared).then_some(())
        })?;
        self.tell_all(&ToHost::Begin);
        if let Some((_, delay)) = self.kill {
            self.kill_at.get_or_insert_with(|| Instant::now() + delay);
        }
        self.collect("measure", |host, message, _| match message {
            FromHost::Progress { channels } => {
                progress(host, &channels);
                None
            }
            FromHost::Done(measured) => Some(measured),
            _ => None,
        })
    }

    /// Closes all connections; what each host still holds then.
    pub fn close(&mut self) -> Result<Vec<Leftover>, Failure> {
        self.tell_all(&ToHost::Close);
        self.collect("close", |_, message, _| match message {
            FromHost::Closed(leftover) => Some(leftover),
            _ => None,
        })
    }

    /// Ends the hosts.
    pub fn exit(mut self) -> Result<(), Failure> {
        self.tell_all(&ToHost::Exit);
        let deadline = Instant::now() + self.timeout;
        let mut failed = Vec::new();
        for (host, member) in self.members.iter_mut().enumerate() {
            let status = wait_until(&mut member.child, deadline);
            let (end, message) = match status {
                Some(status) if status.success() => continue,
                Some(status) => (End::Died, format!("ended with {status}")),
                None => (End::Hung, "did not exit".to_string()),
            };
            failed.push(outcome(host, member.child.id(), end, message, 0));
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(Failure {
            step: "exit",
            outcomes: failed,
        })
    }

    fn tell_all(&mut self, message: &ToHost) {
        for member in &mut self.members {
            // A host that is gone shows when its answer is awaited.
            let _ = member.wire.send(message);
        }
    }

    /// Reads until `take` has returned a value for every host. Fails when a host fails, dies, or
    /// the time is over; then the others get a moment to end by themselves.
    fn collect<T>(
        &mut self,
        step: &'static str,
        mut take: impl FnMut(usize, FromHost, &mut [Member]) -> Option<T>,
    ) -> Result<Vec<T>, Failure> {
        let mut results: Vec<Option<T>> = self.members.iter().map(|_| None).collect();
        let mut deadline = Instant::now() + self.timeout;
        while results.iter().any(Option::is_none) {
            for (host, slot) in results.iter_mut().enumerate() {
                while let Some(message) = self.poll_host(host) {
                    deadline = Instant::now() + self.timeout;
                    if let Some(result) = take(host, message, &mut self.members) {
                        *slot = Some(result);
                    }
                }
            }
            self.kill_if_due();
            let grace_over = self.failed_at.is_some_and(|at| at.elapsed() >= GRACE);
            let over = self.failed_at.is_some()
                && self
                    .members
                    .iter()
                    .zip(&results)
                    .all(|(member, result)| member.outcome.is_some() || result.is_some());
            if over || grace_over || Instant::now() >= deadline {
                let finished: Vec<bool> = results.iter().map(Option::is_some).collect();
                return Err(self.give_up(step, &finished));
            }
            if results.iter().any(Option::is_none) {
                self.sleep();
            }
        }
        // A failure seen while the last answers came in belongs to this step.
        if self.failed_at.is_some() {
            return Err(self.give_up(step, &vec![true; results.len()]));
        }
        Ok(results.into_iter().flatten().collect())
    }

    /// The next message of a host; notes its end.
    fn poll_host(&mut self, host: usize) -> Option<FromHost> {
        let member = &mut self.members[host];
        if member.outcome.is_some() {
            return None;
        }
        let (end, message) = match member.wire.try_receive() {
            Ok(None) => return None,
            Ok(Some(FromHost::Failed { message, by_plugin })) => (
                if by_plugin {
                    End::PluginError
                } else {
                    End::HostError
                },
                message,
            ),
            Ok(Some(message)) => return Some(message),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => ended(member),
            Err(error) => (End::Died, format!("its line broke: {error}")),
        };
        let on_purpose = self.kill.is_some_and(|(victim, _)| victim == host);
        let on_purpose = on_purpose && self.kill_at.is_some_and(|at| Instant::now() >= at);
        let end = if on_purpose && end == End::Died {
            End::KilledOnPurpose
        } else {
            end
        };
        let first = *self.failed_at.get_or_insert_with(Instant::now);
        let after_ms = u64::try_from(first.elapsed().as_millis()).unwrap_or(u64::MAX);
        let pid = self.members[host].child.id();
        self.members[host].outcome = Some(outcome(host, pid, end, message, after_ms));
        None
    }

    fn kill_if_due(&mut self) {
        let Some((victim, _)) = self.kill else { return };
        let due = self.kill_at.is_some_and(|at| Instant::now() >= at);
        if let Some(member) = self
            .members
            .get_mut(victim)
            .filter(|m| due && m.outcome.is_none())
        {
            // Killing a process that has just ended is no error that matters.
            let _ = member.child.kill();
        }
    }

    fn sleep(&self) {
        let streams: Vec<&UnixStream> = self
            .members
            .iter()
            .filter(|member| member.outcome.is_none())
            .map(|member| member.wire.stream())
            .collect();
        let until_kill = self
            .kill_at
            .map(|at| at.saturating_duration_since(Instant::now()));
        let nap = until_kill
            .filter(|nap| !nap.is_zero())
            .unwrap_or(NAP)
            .min(NAP);
        // A poll that fails only makes the driver look sooner.
        let _ = wire::wait_any(&streams, nap);
    }

    /// Kills what is left, and says how each host ended.
    fn give_up(&mut self, step: &'static str, finished: &[bool]) -> Failure {
        let first = self.failed_at.unwrap_or_else(Instant::now);
        let after_ms = u64::try_from(first.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut outcomes = Vec::new();
        for (host, member) in self.members.iter_mut().enumerate() {
            let pid = member.child.id();
            kill(&mut member.child);
            let still_there = || {
                let (end, message) = match (finished.get(host), self.failed_at) {
                    (Some(true), _) => (End::Finished, "had done its part of this step".into()),
                    (_, Some(_)) => (
                        End::Hung,
                        format!("did not end by itself within {after_ms} ms"),
                    ),
                    (_, None) => {
                        let seconds = self.timeout.as_secs();
                        (End::Hung, format!("gave no sign of life for {seconds} s"))
                    }
                };
                outcome(host, pid, end, message, after_ms)
            };
            outcomes.push(member.outcome.take().unwrap_or_else(still_there));
        }
        Failure { step, outcomes }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for member in &mut self.members {
            kill(&mut member.child);
        }
    }
}

/// Kills and buries a child; a child that has ended already is only buried.
fn kill(child: &mut Child) {
    // Both fail only when the child is gone.
    let _ = child.kill();
    let _ = child.wait();
}

/// What the end of a host's line means.
fn ended(member: &mut Member) -> (End, String) {
    let deadline = Instant::now() + Duration::from_secs(1);
    match wait_until(&mut member.child, deadline) {
        Some(status) => (End::Died, format!("the process ended with {status}")),
        None => (End::Died, "it closed its line to the driver".to_string()),
    }
}

/// Waits for the end of a child, but not for ever.
fn wait_until(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => return None,
        }
    }
}

fn outcome(host: usize, pid: u32, end: End, message: String, after_ms: u64) -> Outcome {
    Outcome {
        host: format!("h{host}"),
        pid,
        end,
        message,
        after_ms,
    }
}

fn cannot_start(host: usize, error: &io::Error) -> Failure {
    let message = format!("cannot start: {error}");
    Failure {
        step: "start",
        outcomes: vec![outcome(host, 0, End::HostError, message, 0)],
    }
}

/// Starts a host: this program again, its line to the driver as standard input, its output on our
/// standard error so that a plugin that prints cannot spoil a result.
fn spawn(setup: &Setup, host: usize) -> io::Result<Member> {
    let (ours, theirs) = UnixStream::pair()?;
    let output = io::stderr().as_fd().try_clone_to_owned()?;
    let child = Command::new(std::env::current_exe()?)
        .arg(HOST_COMMAND)
        .env("NCCL_HOSTID", format!("h{host}"))
        .env("R2CCL_HOST_ID", format!("h{host}"))
        .envs(
            setup
                .environment
                .iter()
                .filter_map(|(name, value)| Some((name_on(host, name)?, value))),
        )
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(output))
        .spawn()?;
    Ok(Member {
        child,
        wire: Wire::new(ours)?,
        outcome: None,
    })
}

/// What a variable is called on a host; `None` if it is for another one.
fn name_on(host: usize, name: &str) -> Option<&str> {
    match name.split_once(':') {
        Some((number, name)) => (number.parse() == Ok(host)).then_some(name),
        None => Some(name),
    }
}

/// A number that no other run on this machine has: NCCL's `commId`.
fn run_id() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |time| {
        u64::from(time.subsec_nanos()) + (time.as_secs() << 30)
    });
    nanoseconds ^ (u64::from(std::process::id()) << 40)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_reach_the_hosts_that_they_are_for() {
        assert_eq!(name_on(3, "NAME"), Some("NAME"));
        assert_eq!(name_on(3, "3:NAME"), Some("NAME"));
        assert_eq!(name_on(3, "2:NAME"), None);
    }
}
