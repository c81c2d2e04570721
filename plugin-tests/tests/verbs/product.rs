//! The plugin between two hosts on Soft-RoCE, under the load of `r2ccl bench`, every byte checked;
//! and what it says where the devices cannot be used.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use r2ccl_plugin_tests::holdings::{Holdings, assert_as_fast, assert_flat, cycles};
use r2ccl_plugin_tests::plugin;
use r2ccl_plugin_tests::process::children;

use super::queue_pairs::{Healed, lab};

/// Each host has the NICs of its own name.
const HOSTS: &str = "--env 0:NCCL_IB_HCA=rxe_a --env 1:NCCL_IB_HCA=rxe_b";

/// `r2ccl bench` with a prefix, such as a command that takes rights away.
fn bench(prefix: &str, arguments: &str) -> Command {
    let program = plugin::command();
    let mut words: Vec<_> = prefix.split_whitespace().map(Into::into).collect();
    words.push(program.into_os_string());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(["bench", "--timeout", "30", "--plugin"])
        .arg(plugin::path())
        .args(arguments.split_whitespace())
        .env("R2CCL_FABRIC", "verbs")
        .env("NCCL_SOCKET_IFNAME", "lo")
        .env("NCCL_IB_TIMEOUT", "14")
        .env("NCCL_IB_RETRY_CNT", "6")
        .stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    let bytes = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A run that must succeed; what it has printed.
fn good(arguments: &str) -> String {
    let output = bench("", arguments).output().expect("the command starts");
    let text = text(&output);
    assert!(
        output.status.success(),
        "{arguments}: {}\n{text}",
        output.status
    );
    text
}

/// A run that must fail, with all of these words.
fn bad(prefix: &str, arguments: &str, words: &[&str]) {
    let output = bench(prefix, arguments)
        .output()
        .expect("the command starts");
    let text = text(&output);
    assert!(!output.status.success(), "{arguments}: {text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in:\n{text}");
    }
}

#[test]
#[ignore = "needs the kernel lab"]
fn every_pattern_moves_checked_data() {
    for (pattern, sizes) in [
        ("pingpong", "0,1,8,127,4K,64K+1,1M"),
        ("stream", "0,1,4K,64K+1,4M"),
        ("alltoall", "1,64K+1,1M"),
        ("grouped", "8,64K,1M"),
        ("allreduce", "1M,4M"),
    ] {
        let arguments = format!(
            "{HOSTS} --pattern {pattern} --channels 2 --check --iterations 20 --sizes {sizes}"
        );
        let text = good(&arguments);
        assert!(text.contains("rxe_a0") && text.contains("rxe_a1"), "{text}");
        assert!(!text.contains("soft0"), "{text}");
    }
}

/// NCCL's versions see different tables; each moves data between the hosts, in both directions.
#[test]
#[ignore = "needs the kernel lab"]
fn every_version_moves_checked_data() {
    for version in ["v8", "v9", "v10", "v11", "v12"] {
        let arguments = format!(
            "{HOSTS} --abi {version} --pattern alltoall --check --iterations 20 \
             --sizes 0,8,64K+1,1M"
        );
        let text = good(&arguments);
        assert!(text.contains(&format!("(R2CCL, {version})")), "{text}");
        assert!(text.contains("arrived as they were sent"), "{text}");
    }
}

/// What the kernel holds for processes, by kind and device.
fn objects() -> String {
    let output = Command::new("rdma").args(["resource", "show"]).output();
    String::from_utf8_lossy(&output.expect("the lab's rdma").stdout).into_owned()
}

/// Whole jobs, one after the other: what one leaves behind on a device the next would meet.
#[test]
#[ignore = "needs the kernel lab"]
fn jobs_follow_each_other() {
    let before = objects();
    for _ in 0..8 {
        good(&format!(
            "{HOSTS} --check --channels 2 --iterations 2 --sizes 8,64K"
        ));
    }
    assert_eq!(objects(), before);
}

/// One host has two NICs, the other one: also where a channel begins on a NIC that reaches nobody.
#[test]
#[ignore = "needs the kernel lab"]
fn hosts_may_have_unequal_numbers_of_nics() {
    let one_each = "--env 0:NCCL_IB_HCA=rxe_a --env 1:NCCL_IB_HCA==rxe_b0";
    for pattern in ["stream", "alltoall"] {
        let arguments =
            format!("{one_each} --pattern {pattern} --check --iterations 20 --sizes 8,1M");
        let text = good(&arguments);
        assert!(text.contains("arrived as they were sent"), "{text}");
    }
}

#[test]
#[ignore = "needs the kernel lab"]
fn connections_come_and_go_with_requests_open() {
    good(&format!(
        "{HOSTS} --pattern abort --iterations 20 --sizes 64K"
    ));
}

#[test]
#[ignore = "needs the kernel lab"]
fn a_peer_that_is_killed_is_an_error_and_no_hang() {
    good(&format!(
        "{HOSTS} --pattern stream --sizes 64K --kill 1@300"
    ));
}

/// Messages that a device has taken in since it was made.
fn received(device: &str) -> u64 {
    let file = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/rcvd_pkts");
    let text = std::fs::read_to_string(file).expect("a counter");
    text.trim().parse().expect("a number")
}

/// Queue pairs of all devices.
fn queue_pairs() -> u64 {
    let text = objects();
    let words: Vec<_> = text.split_whitespace().collect();
    let counts = words.windows(2).filter(|pair| pair[0] == "qp");
    counts
        .map(|pair| pair[1].parse::<u64>().expect("a number"))
        .sum()
}

/// Arguments of a job over the first NICs that is ended from outside.
const ENDLESS: &str = "--pattern allreduce --nics 0 --sizes 256K --iterations 4000000 --check";

/// A job under way.
struct Job {
    child: Child,
    output: File,
}

impl Job {
    /// Starts one with NCCL's own timers, which are far too long to help.
    fn start(arguments: &str) -> Self {
        let output = tempfile::tempfile().expect("a file");
        let clone = || Stdio::from(output.try_clone().expect("a descriptor"));
        // So that the commands of the lab, which share its one CPU, are not slow.
        let child = bench("nice -n 19", &format!("{HOSTS} {arguments}"))
            .env("NCCL_IB_TIMEOUT", "20")
            .env("NCCL_IB_RETRY_CNT", "7")
            .env("R2CCL_HOLD_DOWN", "50ms")
            .env("R2CCL_FLAP_DAMPING", "0")
            .stdout(clone())
            .stderr(clone())
            .spawn()
            .expect("the command starts");
        Self { child, output }
    }

    /// Waits until a device has taken in so many more packets, while the job runs.
    fn moves(&mut self, device: &str) {
        let until = received(device) + 500;
        let deadline = Instant::now() + Duration::from_secs(20);
        while received(device) < until {
            let is_late = Instant::now() > deadline;
            if is_late || self.child.try_wait().expect("a child").is_some() {
                panic!("nothing reaches {device}\n{}", self.end());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn hosts(&self) -> Vec<Pid> {
        children(self.child.id())
    }

    /// Ends the job, whose bytes were all right so far. What it has said.
    fn end(&mut self) -> String {
        for host in self.hosts() {
            let _ = kill(host, Signal::SIGKILL);
        }
        self.child.wait().expect("a child of ours");
        let mut text = String::new();
        self.output.rewind().expect("a file");
        self.output.read_to_string(&mut text).expect("text");
        text
    }
}

/// PROTOCOL R50 to R61: every way to cut a NIC under a checked all-reduce moves its messages to the
/// other one, and they come back. Done 21 times, or as often as `PLUGIN_TEST_CYCLES` says
/// (`scripts/soak-faults.sh --lab`); what the job holds does not grow. Way `gid` is field report 1.
#[test]
#[ignore = "needs the kernel lab"]
fn a_job_outlives_every_cut() {
    let cycles = cycles(21);
    let mut job = Job::start(ENDLESS);
    let (mut held, mut made, mut took) = (Vec::new(), Vec::new(), Vec::new());
    let ways = ["carrier", "admin", "deaf", "mute", "cut", "rdma", "gid"];
    job.moves("rxe_b0");
    for how in ways.into_iter().cycle().take(cycles) {
        let start = Instant::now();
        let cut = format!("b0 {how}");
        let healed = Healed(&cut);
        lab(&format!("lab-cut {cut}"));
        job.moves("rxe_b1");
        drop(healed);
        job.moves("rxe_b0");
        took.push(start.elapsed());
        println!("{how}: away and back in {:?}", took[took.len() - 1]);
        held.push(Holdings::of(&job.hosts()));
        made.push(queue_pairs());
    }
    let text = job.end();
    assert!(text.contains("has failed; others take over"), "{text}");
    assert_flat(&held);
    assert_as_fast(&took);
    // Those that are over are kept for the time of the quarantine.
    let most = |part: &[u64]| part.iter().copied().max().expect("several");
    let (early, late) = (most(&made[..cycles / 2]), most(&made[cycles / 2..]));
    println!("queue pairs: {early}, then {late}");
    assert!(late <= early + 4, "{made:?}");
}

/// PROTOCOL R60: packets of one queue pair vanish, those of others on the same NICs do not. It is
/// made anew where it was, and no NIC is blamed: the NICs say themselves that they can talk.
#[test]
#[ignore = "needs the kernel lab"]
fn one_queue_pair_at_fault_is_made_anew_on_its_nics() {
    let stream = ENDLESS.replace("allreduce", "stream");
    let mut job = Job::start(&stream);
    for _ in 0..3 {
        job.moves("rxe_b0");
        let healed = Healed("b0");
        lab("lab-cut b0 pair");
        job.moves("rxe_b0");
        drop(healed);
    }
    let text = job.end();
    let seen = text
        .matches("its queue pair has failed, not its NICs")
        .count();
    assert!(seen >= 3, "{seen} faults were seen\n{text}");
}

/// NCCL does not hear of a NIC whose link is down when the job starts. It stands by from when it is
/// up, at its place: between the NICs of its own wire.
#[test]
#[ignore = "needs the kernel lab"]
fn field_report_21_down_at_start() {
    let late = Healed("a1");
    lab("lab-cut a1 admin");
    let mut job = Job::start(ENDLESS);
    job.moves("rxe_b0");
    drop(late);
    for _ in 0..2 {
        let healed = Healed("b0");
        lab("lab-cut b0 carrier");
        job.moves("rxe_b1");
        drop(healed);
        job.moves("rxe_b0");
    }
    let text = job.end();
    assert!(
        text.contains("rxe_a1 is left out: its link is down"),
        "{text}"
    );
    assert!(text.contains("devices: rxe_a0 ("), "{text}");
}

#[test]
#[ignore = "needs the kernel lab"]
fn what_cannot_work_is_named_with_a_remedy() {
    let short = "--iterations 3 --sizes 8";
    let wrong = format!("{short} --env NCCL_IB_HCA=rxe_q");
    bad(
        "",
        &wrong,
        &["devices of this host: rxe_a0, ", "NCCL_IB_HCA"],
    );
    let index = format!("{short} --env NCCL_IB_GID_INDEX=99");
    bad(
        "",
        &index,
        &[
            "rxe_a0 is left out: the port has no GID",
            "NCCL_IB_GID_INDEX",
        ],
    );
    let nobody = "setpriv --reuid 65534 --clear-groups";
    let locked = format!("prlimit --memlock=65536:65536 {nobody}");
    bad(&locked, short, &["rxe_a0: a registration of ", "ulimit -l"]);
    lab("chmod 600 /dev/infiniband/uverbs0 /dev/infiniband/uverbs1");
    let only = format!("{short} --env NCCL_IB_HCA=rxe_a0,rxe_b0");
    bad(
        nobody,
        &only,
        &["rxe_a0, rxe_b0 cannot be opened", "/dev/infiniband/uverbs"],
    );
    lab("chmod 666 /dev/infiniband/uverbs0 /dev/infiniband/uverbs1");
}

/// Values that cannot be used are named, and the job runs on the defaults.
#[test]
#[ignore = "needs the kernel lab"]
fn wrong_values_are_named_and_do_no_harm() {
    let wrong = "--env NCCL_IB_SL=99 --env NCCL_IB_FIFO_TC=many --env NCCL_IB_ADDR_RANGE=10";
    let text = good(&format!("{HOSTS} {wrong} --check --iterations 5 --sizes 8"));
    for name in [
        "NCCL_IB_SL=99",
        "NCCL_IB_FIFO_TC=many",
        "NCCL_IB_ADDR_RANGE=10",
    ] {
        assert!(text.contains(name), "{name}: {text}");
    }
}

/// What both ends must agree on, and what only one of them has.
#[test]
#[ignore = "needs the kernel lab"]
fn ends_that_do_not_fit_are_named() {
    let short = format!("{HOSTS} --iterations 3 --sizes 8");
    let kinds = format!("{short} --env 1:R2CCL_FABRIC=soft");
    bad("", &kinds, &["R2CCL_FABRIC"]);
    let routing = format!("{short} --env 1:R2CCL_ROUTING_ALGO=static");
    bad("", &routing, &["R2CCL_ROUTING_ALGO"]);
    bad("prlimit --nofile=8:8", &short, &["ulimit -n"]);
}

/// What works is used, and TCP is not taken in silence.
#[test]
#[ignore = "needs the kernel lab"]
fn the_job_runs_on_what_works() {
    lab("lab-cut a1 admin");
    let text = good(&format!(
        "{HOSTS} --env R2CCL_FABRIC=auto --check --iterations 5 --sizes 8"
    ));
    lab("lab-heal a1");
    assert!(
        text.contains("rxe_a1 is left out: its link is down"),
        "{text}"
    );
    assert!(text.contains("devices: rxe_a0 ("), "{text}");
    let none = "--env R2CCL_FABRIC=auto --env NCCL_IB_HCA=rxe_q --iterations 5 --sizes 8";
    let text = good(none);
    assert!(text.contains("software NICs over TCP are used"), "{text}");
    assert!(text.contains("soft0"), "{text}");
}
