//! NICs that die and come back under a running job, and hosts that stand still. All of that is done
//! from outside, in a network namespace of the test's own; the job checks every byte.
//!
//! Nothing waits for a time: a fault comes when so many bytes have moved since the last one, and
//! the job moves many times as much, so that on any machine several faults hit bytes under way.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use r2ccl_plugin_tests::command::{bench, result};
use r2ccl_plugin_tests::network::in_own_network;
use r2ccl_plugin_tests::plugin;
use serde_json::Value;

/// No single step may take longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any watchdog waits before it acts.
const PAUSE: Duration = Duration::from_millis(500);
/// Bytes that the loopback interface moves between two faults.
const STEP_BYTES: u64 = 16 << 20;
/// Of each NIC. A fault takes some time to be made, on a busy machine a good part of a second,
/// while the job goes on.
const RATE: &str = "2G";

/// Runs `ip` in this network.
fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.expect("ip is installed (scripts/setup.sh --dev)");
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {arguments}: {complaint}");
}

/// Addresses that are NICs, on the loopback interface but outside of its own network.
struct Nics(u8);

impl Nics {
    fn new(count: u8) -> Self {
        ip("link set lo up");
        // Rules that are made later come before what is local.
        ip("rule add pref 100 lookup local");
        ip("rule del pref 0");
        (1..=count).for_each(Self::heal);
        Self(count)
    }

    fn list(&self) -> String {
        let each = (1..=self.0).map(|nic| format!("10.9.0.{nic}@{RATE}"));
        each.collect::<Vec<_>>().join(",")
    }

    /// Takes the address away; the plugin hears of it.
    fn cut(nic: u8) {
        ip(&format!("addr del 10.9.0.{nic}/32 dev lo"));
    }

    fn heal(nic: u8) {
        ip(&format!("addr add 10.9.0.{nic}/32 dev lo"));
    }

    /// Nothing reaches it any more, and nobody is told.
    fn swallow(nic: u8) {
        ip(&format!("rule add pref 10 to 10.9.0.{nic} blackhole"));
    }

    fn release(_: u8) {
        ip("rule del pref 10");
    }
}

/// The port of the side that has dialled, of the only connection within `10.9.0.NIC`.
fn dialled_port(nic: u8) -> u16 {
    let established = "01";
    let address = format!("{:08X}", u32::from_le_bytes([10, 9, 0, nic]));
    let text = std::fs::read_to_string("/proc/net/tcp").expect("proc");
    let mut ends: Vec<(u16, u16)> = Vec::new();
    for line in text.lines().skip(1) {
        let words: Vec<_> = line.split_whitespace().collect();
        let end = |word: &str| {
            let (host, port) = word.split_once(':').expect("an address");
            let port = u16::from_str_radix(port, 16).expect("a port");
            (host == address).then_some(port)
        };
        if let (Some(own), Some(other), true) =
            (end(words[1]), end(words[2]), words[3] == established)
        {
            ends.push((own, other));
        }
    }
    let [(one, other), _] = ends[..] else {
        panic!("not one connection: {ends:?}\n{text}");
    };
    // The other side listens on its port.
    let is_listening = |port: u16| {
        let entry = format!(": {address}:{port:04X} 00000000:0000 0A");
        text.contains(&entry)
    };
    if is_listening(one) { other } else { one }
}

/// Bytes that the loopback interface of this network has moved.
fn moved() -> u64 {
    let text = std::fs::read_to_string("/proc/net/dev").expect("proc");
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("lo:"));
    let first = line.and_then(|line| line.split(':').nth(1)?.split_whitespace().next());
    first.and_then(|bytes| bytes.parse().ok()).expect("a count")
}

/// A job under way.
struct Job {
    child: Child,
    log: tempfile::NamedTempFile,
}

impl Job {
    fn start(nics: &Nics, arguments: &str) -> Self {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let errors = log.reopen().expect("a descriptor");
        let child = bench(&plugin::path(), arguments)
            .env("R2CCL_SOFT_NICS", nics.list())
            .env("NCCL_SOCKET_IFNAME", "lo")
            .env("R2CCL_HOLD_DOWN", "50ms")
            .env("R2CCL_FLAP_DAMPING", "0")
            .env("R2CCL_LOG", "info")
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("the command starts");
        Self { child, log }
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_none()
    }

    /// Waits until the job has moved one step more; false when it has ended.
    fn step(&mut self) -> bool {
        let until = moved() + STEP_BYTES;
        let start = Instant::now();
        while moved() < until {
            if !self.is_running() {
                return false;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "the job stands\n{}",
                self.said()
            );
            std::thread::yield_now();
        }
        true
    }

    /// The processes that play hosts: the children of the command.
    fn hosts(&self) -> Vec<Pid> {
        let id = self.child.id();
        let file = format!("/proc/{id}/task/{id}/children");
        let text = std::fs::read_to_string(file).expect("proc");
        let hosts = text.split_whitespace().filter_map(|pid| pid.parse().ok());
        hosts.map(Pid::from_raw).collect()
    }

    /// Waits until no byte of data has moved for [`PAUSE`].
    fn wait_until_nothing_moves(&self) {
        let (mut last, mut since) = (moved(), Instant::now());
        let start = Instant::now();
        while since.elapsed() < PAUSE {
            let now = moved();
            // Words of watchdogs and control connections are few.
            if now > last + 100_000 {
                (last, since) = (now, Instant::now());
            }
            assert!(start.elapsed() < PATIENCE, "the job goes on");
            std::thread::yield_now();
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    /// The job has ended well, with every byte right; its result and its log.
    fn finish(self, arguments: &str) -> (Value, String) {
        let said = self.said();
        let output = self.child.wait_with_output().expect("a child of ours");
        assert!(
            output.status.success(),
            "{arguments}: {}\n{said}",
            output.status
        );
        let result = result(&output, arguments);
        assert_eq!(result["good"], true, "{result:#}\n{said}");
        (result, said)
    }
}

/// Faults in turn, each behind a step of the job, until it has ended. Returns how many struck while
/// it ran.
fn plague(job: &mut Job, faults: &[fn()]) -> usize {
    let mut struck = 0;
    for fault in faults.iter().cycle() {
        if !job.step() {
            break;
        }
        fault();
        struck += 1;
    }
    struck
}

/// PROTOCOL R50 to R59: both NICs in turn die and come back, again and again.
#[test]
fn an_all_reduce_outlives_its_nics() {
    if !in_own_network("an_all_reduce_outlives_its_nics") {
        return;
    }
    let nics = Nics::new(2);
    let arguments = "--pattern allreduce --channels 2 --sizes 4M --iterations 60 --check";
    let mut job = Job::start(&nics, arguments);
    let faults: [fn(); 4] = [
        || Nics::cut(1),
        || Nics::heal(1),
        || Nics::cut(2),
        || Nics::heal(2),
    ];
    let struck = plague(&mut job, &faults);
    let (_, said) = job.finish(arguments);
    assert!(struck >= 8, "{struck} faults only");
    let seen = [
        "soft0: port Down",
        "soft1: port Down",
        "has failed; others take over",
    ];
    assert!(seen.iter().all(|seen| said.contains(seen)), "{said}");
}

/// What a process holds.
#[derive(Clone, Copy, Debug, Default)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    resident_kib: usize,
}

impl Holdings {
    fn of(process: Pid) -> Self {
        let folder = format!("/proc/{process}");
        let count = |name: &str| {
            let entries = std::fs::read_dir(format!("{folder}/{name}"));
            entries.expect("a process of ours").count()
        };
        let status = std::fs::read_to_string(format!("{folder}/status")).expect("proc");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        Self {
            descriptors: count("fd"),
            threads: count("task"),
            resident_kib: number.expect("a number"),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            resident_kib: self.resident_kib.max(other.resident_kib),
        }
    }
}

/// Two NICs die and come back in turn, 20 times or as often as `PLUGIN_TEST_CYCLES` says
/// (`scripts/soak-faults.sh`); what the processes hold does not grow, and the last cycles are as
/// fast as the first.
#[test]
fn cycles_leave_nothing_behind() {
    if !in_own_network("cycles_leave_nothing_behind") {
        return;
    }
    let nics = Nics::new(2);
    let given = std::env::var("PLUGIN_TEST_CYCLES").ok();
    let cycles = given.map_or(20, |text| text.parse().expect("a number"));
    // A step a cycle, and as much again and half of it for what moves meanwhile.
    let messages = 5 * cycles as u64 * (STEP_BYTES >> 20) / 2;
    let arguments = format!("--pattern stream --sizes 1M --iterations {messages} --check");
    let mut job = Job::start(&nics, &arguments);
    assert!(job.step(), "the job is over too early");
    let (mut held, mut took) = (Vec::new(), Vec::new());
    for cycle in 0..cycles {
        let start = Instant::now();
        // The other NIC has just come back, so that this step can only be made when it is in use.
        let nic = 1 + cycle as u8 % 2;
        Nics::cut(nic);
        assert!(job.step(), "the job is over too early\n{}", job.said());
        Nics::heal(nic);
        took.push(start.elapsed());
        let all = job.hosts().into_iter().map(Holdings::of);
        held.push(all.fold(Holdings::default(), Holdings::max));
    }
    while job.step() {}
    let (_, said) = job.finish(&arguments);
    assert!(said.contains("has failed; others take over"), "{said}");
    let quarter = cycles / 4;
    let most = |part: &[Holdings]| {
        part.iter()
            .copied()
            .fold(Holdings::default(), Holdings::max)
    };
    let (early, late) = (
        most(&held[quarter..2 * quarter]),
        most(&held[3 * quarter..]),
    );
    println!("{cycles} cycles: {early:?}, then {late:?}");
    // Queue pairs that are over are kept for a while, more or less of them.
    assert!(
        late.descriptors <= early.descriptors + 16,
        "{early:?} {late:?}"
    );
    assert_eq!(late.threads, early.threads, "{early:?} {late:?}");
    assert!(
        late.resident_kib <= early.resident_kib + 8192,
        "{early:?} {late:?}"
    );
    let usual = |part: &mut [Duration]| {
        part.sort_unstable();
        part[part.len() / 2]
    };
    let (first, last) = took.split_at_mut(cycles / 2);
    let (first, last) = (usual(first), usual(last));
    println!("a cycle took {first:?}, then {last:?}");
}

/// PROTOCOL R60, R61: nobody is told; only the work that does not get on shows it.
#[test]
fn a_silent_hole_is_found_and_left() {
    if !in_own_network("a_silent_hole_is_found_and_left") {
        return;
    }
    let nics = Nics::new(2);
    let arguments = "--pattern stream --channels 2 --sizes 1M --iterations 400 --check";
    let mut job = Job::start(&nics, arguments);
    let faults: [fn(); 4] = [
        || Nics::swallow(1),
        || Nics::release(1),
        || Nics::swallow(2),
        || Nics::release(2),
    ];
    let struck = plague(&mut job, &faults);
    let (_, said) = job.finish(arguments);
    assert!(struck >= 6, "{struck} faults only");
    assert!(said.contains("has failed; others take over"), "{said}");
    assert!(!said.contains("port Down"), "{said}");
}

/// PROTOCOL R60: packets of one queue pair vanish, those of others on the same NICs do not. It is
/// made anew where it was, and no NIC is blamed.
#[test]
fn one_queue_pair_at_fault_is_made_anew_on_its_nics() {
    if !in_own_network("one_queue_pair_at_fault_is_made_anew_on_its_nics") {
        return;
    }
    let nics = Nics::new(2);
    let arguments = "--pattern stream --sizes 1M --iterations 400 --check";
    let mut job = Job::start(&nics, arguments);
    let lost = |said: &str, how: &str| {
        let line = format!("h0/soft0 -> h1/soft0: path 0 over soft0{how}");
        let lines = said.lines().filter(|text| text.contains(&line));
        lines.filter(|text| text.starts_with("h0")).count()
    };
    let mut struck = 0;
    while job.step() {
        let port = dialled_port(1);
        for side in ["sport", "dport"] {
            ip(&format!(
                "rule add pref 10 ipproto tcp {side} {port} blackhole"
            ));
        }
        struck += 1;
        while job.is_running() && lost(&job.said(), "") < struck {
            std::thread::yield_now();
        }
    }
    let (_, said) = job.finish(arguments);
    let seen = lost(&said, ": its queue pair has failed, not its NICs");
    assert!(seen >= 3, "{seen} of {struck} faults were seen\n{said}");
    assert!(!said.contains("port Down"), "{said}");
}

/// PROTOCOL R61, R62: a host that stands still for longer than every watchdog waits has not failed.
#[test]
fn a_host_that_pauses_goes_on() {
    if !in_own_network("a_host_that_pauses_goes_on") {
        return;
    }
    let nics = Nics::new(2);
    let arguments = "--pattern allreduce --channels 2 --sizes 4M --iterations 60 --check";
    let mut job = Job::start(&nics, arguments);
    for _ in 0..3 {
        assert!(job.step(), "the job is over too early");
        let host = job.hosts()[0];
        kill(host, Signal::SIGSTOP).expect("a process of ours");
        // The other one finds it silent: its work stands, for as long as nothing moves.
        job.wait_until_nothing_moves();
        kill(host, Signal::SIGCONT).expect("a process of ours");
    }
    while job.step() {}
    job.finish(arguments);
}

/// PROTOCOL R61: three of four NICs are lost for good, one after the other.
#[test]
fn the_last_of_four_nics_carries_everything() {
    if !in_own_network("the_last_of_four_nics_carries_everything") {
        return;
    }
    let nics = Nics::new(4);
    let arguments = "--pattern stream --channels 2 --sizes 1M --iterations 400 --check";
    let mut job = Job::start(&nics, arguments);
    for nic in [1, 2, 3] {
        assert!(job.step(), "the job is over too early");
        Nics::cut(nic);
    }
    while job.step() {}
    let (_, said) = job.finish(arguments);
    let lost = (0..3).filter(|nic| said.contains(&format!("soft{nic}: port Down")));
    assert_eq!(lost.count(), 3, "{said}");
}
