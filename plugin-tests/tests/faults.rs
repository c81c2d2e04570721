//! NICs that die and come back under a running job. Their addresses are taken away and given back
//! from outside, in a network namespace of the test's own; the job checks every byte.
//!
//! Nothing waits for a time: a fault comes when so many bytes have moved since the last one, and
//! the job moves many times as much, so that on any machine several faults hit bytes under way.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use r2ccl_plugin_tests::command::{bench, result};
use r2ccl_plugin_tests::plugin;
use serde_json::Value;

const CHILD: &str = "PLUGIN_TEST_NETWORK";
/// No single step may take longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that the loopback interface moves between two faults.
const STEP_BYTES: u64 = 64 << 20;

/// Runs `test` of this file again in a process with a network of its own; true in that process.
fn in_own_network(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1");
    // SAFETY: unshare is a plain system call, allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let is_alone = libc::unshare(libc::CLONE_NEWNET) == 0
                || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) == 0;
            let error = std::io::Error::last_os_error;
            is_alone.then_some(()).ok_or_else(error)
        });
    }
    match command.status() {
        Ok(status) => assert!(status.success(), "{test} has failed in its own network"),
        Err(error) => println!("skipped: no network namespace to be had here: {error}"),
    }
    false
}

/// Addresses that are NICs, as aliases of the loopback interface, outside of its own network.
struct Nics(u8);

impl Nics {
    fn new(count: u8) -> Self {
        flags("lo", true);
        (1..=count).for_each(Self::heal);
        Self(count)
    }

    fn list(&self) -> String {
        let each = (1..=self.0).map(|nic| format!("10.9.0.{nic}"));
        each.collect::<Vec<_>>().join(",")
    }

    fn heal(nic: u8) {
        let label = format!("lo:{nic}");
        address(&label, [10, 9, 0, nic]);
        flags(&label, true);
    }

    fn cut(nic: u8) {
        flags(&format!("lo:{nic}"), false);
    }
}

/// A request about the interface or alias `name`.
fn ioctl(name: &str, code: libc::Ioctl, fill: impl FnOnce(&mut libc::ifreq)) {
    // SAFETY: the request is zeroed memory with a name; the calls only read and write it.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        assert!(socket >= 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        for (target, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *target = byte as libc::c_char;
        }
        fill(&mut request);
        let result = libc::ioctl(socket, code, &raw mut request);
        let error = std::io::Error::last_os_error();
        libc::close(socket);
        assert_eq!(result, 0, "{name}: {error}");
    }
}

fn flags(name: &str, is_up: bool) {
    let flags = if is_up {
        libc::IFF_UP | libc::IFF_RUNNING
    } else {
        0
    };
    ioctl(name, libc::SIOCSIFFLAGS, |request| {
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
    });
}

fn address(name: &str, ip: [u8; 4]) {
    // A network of one address: the interface answers for no other.
    for (code, bytes) in [(libc::SIOCSIFADDR, ip), (libc::SIOCSIFNETMASK, [255; 4])] {
        // SAFETY: an all-zero sockaddr_in is valid, and the request has room for it.
        ioctl(name, code, |request| unsafe {
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            address.sin_family = libc::AF_INET as libc::sa_family_t;
            address.sin_addr.s_addr = u32::from_ne_bytes(bytes);
            let target = &raw mut request.ifr_ifru.ifru_addr;
            target.cast::<libc::sockaddr_in>().write(address);
        });
    }
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

    /// Waits until the job has moved one step more; false when it has ended.
    fn step(&mut self) -> bool {
        let until = moved() + STEP_BYTES;
        let start = Instant::now();
        while moved() < until {
            if self.child.try_wait().expect("a child of ours").is_some() {
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
