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
