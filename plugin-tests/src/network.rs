//! Tests in a network of their own, which they may cut to pieces.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set in a process that has one.
const CHILD: &str = "PLUGIN_TEST_NETWORK";

/// Runs `test` of this program again in a process with a network of its own; true in that process.
pub fn in_own_network(test: &str) -> bool {
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

/// Runs `ip` in this network.
pub fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.expect("ip is installed (scripts/setup.sh --dev)");
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {arguments}: {complaint}");
}

/// Addresses `10.9.0.1` and on that are NICs, on the loopback interface but outside of its own
/// network; [`Nics::cut`] and the like take them by their last number.
pub struct Nics(u8);

impl Nics {
    /// Makes so many.
    pub fn new(count: u8) -> Self {
        ip("link set lo up");
        // Rules that are made later come before what is local.
        ip("rule add pref 100 lookup local");
        ip("rule del pref 0");
        (1..=count).for_each(Self::heal);
        Self(count)
    }

    /// The setting that makes software NICs of them, so fast each.
    pub fn list(&self, rate: &str) -> String {
        let each = (1..=self.0).map(|nic| format!("10.9.0.{nic}@{rate}"));
        each.collect::<Vec<_>>().join(",")
    }

    /// Takes the address away; the plugin hears of it.
    pub fn cut(nic: u8) {
        ip(&format!("addr del 10.9.0.{nic}/32 dev lo"));
    }

    /// Gives it back.
    pub fn heal(nic: u8) {
        ip(&format!("addr add 10.9.0.{nic}/32 dev lo"));
    }

    /// Nothing reaches it any more, and nobody is told.
    pub fn swallow(nic: u8) {
        ip(&format!("rule add pref 10 to 10.9.0.{nic} blackhole"));
    }

    /// Ends the last [`Nics::swallow`].
    pub fn release(_: u8) {
        ip("rule del pref 10");
    }
}

/// Bytes that the loopback interface of this network has moved.
pub fn moved() -> u64 {
    let text = std::fs::read_to_string("/proc/net/dev").expect("proc");
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("lo:"));
    let first = line.and_then(|line| line.split(':').nth(1)?.split_whitespace().next());
    first.and_then(|bytes| bytes.parse().ok()).expect("a count")
}
