//! A job of `r2ccl bench` under way, with a board of its own, and the commands that look at it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::command::{bench, result};
use crate::network::{Nics, moved};
use crate::plugin;
use crate::process::children;

/// No single condition may take longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that the loopback interface moves in a step of a job.
pub const STEP_BYTES: u64 = 16 << 20;

/// Two hosts, `h0` which sends in a stream and `h1`, each with the software NICs `soft0` and
/// `soft1`, unless the settings say other ones.
pub struct Job {
    child: Option<Child>,
    log: tempfile::NamedTempFile,
    board: PathBuf,
}

impl Job {
    /// Starts one with its boards in `board`.
    pub fn start(board: &Path, arguments: &str, settings: &[(&str, &str)]) -> Self {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let errors = log.reopen().expect("a descriptor");
        let child = bench(&plugin::path(), arguments)
            .env("R2CCL_SOFT_NICS", "127.0.0.2@1G,127.0.0.3@1G")
            .env("NCCL_SOCKET_IFNAME", "lo")
            .env("R2CCL_HOLD_DOWN", "50ms")
            .env("R2CCL_FLAP_DAMPING", "0")
            .env("R2CCL_LOG", "info")
            .env("R2CCL_CHAOS", "1")
            .env("R2CCL_BOARD", board)
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("the command starts");
        Self {
            child: Some(child),
            log,
            board: board.to_owned(),
        }
    }

    /// Starts one over NICs of this network, so fast each.
    pub fn over(nics: &Nics, rate: &str, board: &Path, arguments: &str) -> Self {
        Self::start(board, arguments, &[("R2CCL_SOFT_NICS", &nics.list(rate))])
    }

    /// The command `r2ccl` on the job's boards.
    pub fn command(&self, arguments: &str) -> Output {
        Command::new(plugin::command())
            .args(arguments.split_whitespace())
            .env("R2CCL_BOARD", &self.board)
            .output()
            .expect("the command starts")
    }

    /// The same, which must succeed.
    pub fn tell(&self, arguments: &str) {
        let output = self.command(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "r2ccl {arguments}: {shown}{said}\n{}",
            self.said()
        );
    }

    /// What `r2ccl status` shows.
    pub fn status(&self) -> Value {
        result(&self.command("status --json"), "status")
    }

    /// A number of a NIC such as `h0/soft0`; 0 while nobody shows it.
    pub fn number(&self, nic: &str, field: &str) -> u64 {
        let (host, name) = nic.split_once('/').expect("HOST/NAME");
        let status = self.status();
        let hosts = status["hosts"].as_array().expect("a list");
        let processes = hosts
            .iter()
            .filter(|it| it["host"] == host)
            .flat_map(|it| it["processes"].as_array().expect("a list"));
        let nics = processes.flat_map(|it| it["nics"].as_array().expect("a list"));
        let numbers = nics
            .filter(|it| it["name"] == name)
            .map(|it| it[field].as_u64().expect("a number"));
        numbers.sum()
    }

    /// Waits for a condition, while the job runs.
    pub fn wait(&mut self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            let has_ended = !self.is_running();
            if has_ended || start.elapsed() > PATIENCE {
                let (status, said) = (self.status(), self.said());
                let shown = has_ended.then(|| self.end());
                panic!("waited in vain for {what}: {shown:?}\n{status:#}\n{said}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a number of a NIC has grown by `more` from now on.
    pub fn wait_for_more(&mut self, nic: &str, field: &str, more: u64) {
        let wanted = self.number(nic, field) + more;
        self.wait(&format!("{wanted} {field} of {nic}"), |job| {
            job.number(nic, field) >= wanted
        });
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        let child = self.child.as_mut().expect("it runs");
        child.try_wait().expect("a child of ours").is_none()
    }

    /// Waits until the job has moved one step more in this network; false when it has ended.
    pub fn step(&mut self) -> bool {
        let until = moved() + STEP_BYTES;
        let start = Instant::now();
        while moved() < until {
            if !self.is_running() {
                return false;
            }
            let said = || format!("the job stands\n{}", self.said());
            assert!(start.elapsed() < PATIENCE, "{}", said());
            std::thread::yield_now();
        }
        true
    }

    /// The processes that play hosts: the children of the command.
    pub fn hosts(&self) -> Vec<Pid> {
        children(self.child.as_ref().expect("it runs").id())
    }

    /// What it has logged.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    /// Waits for the end; every byte must be right. Returns the log.
    pub fn finish(mut self) -> String {
        let output = self.end();
        let said = self.said();
        assert!(output.status.success(), "{}\n{said}", output.status);
        let result = result(&output, "the job");
        assert_eq!(result["good"], true, "{result:#}\n{said}");
        said
    }

    /// Waits for the end, whatever it is.
    pub fn end(&mut self) -> Output {
        let child = self.child.take().expect("it runs");
        child.wait_with_output().expect("a child of ours")
    }

    /// Ends it with SIGKILL, hosts first.
    pub fn kill(&mut self) {
        if self.child.is_none() {
            return;
        }
        for host in self.hosts() {
            let _ = kill(host, Signal::SIGKILL);
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.kill();
    }
}
