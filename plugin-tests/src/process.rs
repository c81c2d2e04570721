//! Tests in processes of their own, each with its own settings, log and limits.

use std::fs::File;
use std::io::{Read, Seek};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::socket::{Shutdown, SockaddrIn, getpeername, shutdown};
use nix::unistd::Pid;

/// Set in a process that runs one test by itself.
const ALONE: &str = "PLUGIN_TEST_ALONE";
/// Longest time that a test may take by itself.
const DEADLINE: Duration = Duration::from_secs(50);
/// Settings of every such process, before a test's own: loopback only.
const SETTINGS: [(&str, &str); 3] = [
    ("R2CCL_FABRIC", "soft"),
    ("R2CCL_SOFT_NICS", "127.0.0.2,127.0.0.3"),
    ("NCCL_SOCKET_IFNAME", "lo"),
];

/// Runs `body` in a process of its own with these settings on top of [`SETTINGS`]; an empty value
/// unsets one. `test` is the test function itself. Fails with the process's output if it fails,
/// is killed by a signal or does not end.
pub fn alone<T: Fn()>(test: T, settings: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let mut output = tempfile::tempfile().expect("a temporary file");
    let clone = |file: &File| Stdio::from(file.try_clone().expect("a descriptor"));
    let mut child = command(name_of(&test), settings)
        .env(ALONE, "1")
        .stdin(Stdio::null())
        .stdout(clone(&output))
        .stderr(clone(&output))
        .spawn()
        .expect("a test can start itself");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break Some(status);
        }
        if start.elapsed() > DEADLINE {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut text = String::new();
    output.rewind().expect("a file");
    let _ = output.read_to_string(&mut text);
    match status {
        Some(status) if status.success() => print!("{}", said(&text)),
        Some(status) if status.signal().is_some() => {
            panic!("the process was ended: {status}\n{text}")
        }
        Some(status) => panic!("{status}\n{text}"),
        None => panic!("not done after {DEADLINE:?}\n{text}"),
    }
}

/// A command that runs one test of this program and nothing else, with clean settings.
pub fn command(test: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_ours = text.starts_with("R2CCL_") || text.starts_with("NCCL_");
        if is_ours && text != "R2CCL_PLUGIN" || text == ALONE {
            command.env_remove(name);
        }
    }
    for (name, value) in SETTINGS.iter().chain(settings) {
        match value.is_empty() {
            true => command.env_remove(name),
            false => command.env(name, value),
        };
    }
    command
}

/// The processes that this one has started and that still run.
pub fn children(process: u32) -> Vec<Pid> {
    let parent = format!("PPid:\t{process}\n");
    let entries = std::fs::read_dir("/proc").expect("proc");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_child = |process: &i32| {
        // One that has just ended has no status.
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        status.is_ok_and(|status| status.contains(&parent) && !status.contains("State:\tZ"))
    };
    let processes = names.filter_map(|name| name.parse().ok());
    processes.filter(is_child).map(Pid::from_raw).collect()
}

/// Shuts down the TCP connections of a process to this address, both ways, behind its back; says
/// how many there were.
pub fn shut_down_connections(process: Pid, address: Ipv4Addr) -> usize {
    // SAFETY: no pointers are passed.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0) };
    assert!(handle >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it is new, and nobody else has it.
    let handle = unsafe { OwnedFd::from_raw_fd(handle as i32) };
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).expect("a process of ours");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let numbers: Vec<i32> = names.filter_map(|name| name.parse().ok()).collect();
    let shut_down = |number: &i32| {
        // SAFETY: no pointers are passed.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, handle.as_raw_fd(), *number, 0) };
        if copy < 0 {
            // Closed meanwhile.
            return false;
        }
        // SAFETY: it is new, and nobody else has it.
        let copy = unsafe { OwnedFd::from_raw_fd(copy as i32) };
        let peer = getpeername::<SockaddrIn>(copy.as_raw_fd());
        peer.is_ok_and(|peer| peer.ip() == address)
            && shutdown(copy.as_raw_fd(), Shutdown::Both).is_ok()
    };
    numbers.iter().filter(|number| shut_down(number)).count()
}

/// Name of a test as the test program knows it: its path without the crate.
fn name_of<T>(_: &T) -> &'static str {
    let path = std::any::type_name::<T>();
    path.split_once("::").map_or(path, |(_, name)| name)
}

/// Lines of a test's own output that begin with `#`: measurements, and what was skipped.
fn said(text: &str) -> String {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect()
}
