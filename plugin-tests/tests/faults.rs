//! NICs that die and come back under a running job, and hosts that stand still. All of that is done
//! from outside, in a network namespace of the test's own; the job checks every byte.
//!
//! Nothing waits for a time: a fault comes when so many bytes have moved since the last one, and
//! the job moves many times as much, so that on any machine several faults hit bytes under way.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use r2ccl_plugin_tests::holdings::{Holdings, assert_as_fast, assert_flat, cycles};
use r2ccl_plugin_tests::job::{Job, STEP_BYTES};
use r2ccl_plugin_tests::network::{Nics, in_own_network, ip, moved};
use r2ccl_plugin_tests::process::shut_down_connections;
use tempfile::TempDir;

/// No single step may take longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any watchdog waits before it acts.
const PAUSE: Duration = Duration::from_millis(500);
/// Of each NIC. A fault takes some time to be made, on a busy machine a good part of a second,
/// while the job goes on.
const RATE: &str = "2G";

/// A job over two NICs, or more, and where its boards are.
fn start(nics: u8, arguments: &str) -> (Job, TempDir) {
    let board = tempfile::tempdir().expect("a folder");
    let job = Job::over(&Nics::new(nics), RATE, board.path(), arguments);
    (job, board)
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

/// A job that is long enough for many faults.
const ALL_REDUCE: &str = "--pattern allreduce --channels 2 --sizes 4M --iterations 60 --check";

/// An all-reduce over so many NICs, the first two of which die and come back in turn, again and
/// again, after what `prepare` does to it. Returns what was said.
fn outlive(nics: u8, prepare: impl FnOnce(&mut Job)) -> String {
    let (mut job, _board) = start(nics, ALL_REDUCE);
    prepare(&mut job);
    let faults: [fn(); 4] = [
        || Nics::cut(1),
        || Nics::heal(1),
        || Nics::cut(2),
        || Nics::heal(2),
    ];
    let struck = plague(&mut job, &faults);
    let said = job.finish();
    assert!(struck >= 8, "{struck} faults only");
    assert!(said.contains("has failed; others take over"), "{said}");
    said
}

/// PROTOCOL R50 to R59: both NICs in turn die and come back, again and again.
#[test]
fn an_all_reduce_outlives_its_nics() {
    if !in_own_network("an_all_reduce_outlives_its_nics") {
        return;
    }
    let said = outlive(2, |_| ());
    let seen = ["soft0: port Down", "soft1: port Down"];
    assert!(seen.iter().all(|seen| said.contains(seen)), "{said}");
}

/// Two NICs die and come back in turn, 20 times or as often as `PLUGIN_TEST_CYCLES` says
/// (`scripts/soak-faults.sh`); what the processes hold does not grow, and the last cycles are as
/// fast as the first.
#[test]
fn cycles_leave_nothing_behind() {
    if !in_own_network("cycles_leave_nothing_behind") {
        return;
    }
    let cycles = cycles(20);
    // A step a cycle, and as much again and half of it for what moves meanwhile.
    let messages = 5 * cycles as u64 * (STEP_BYTES >> 20) / 2;
    let arguments = format!("--pattern stream --sizes 1M --iterations {messages} --check");
    let (mut job, _board) = start(2, &arguments);
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
        held.push(Holdings::of(&job.hosts()));
    }
    while job.step() {}
    let said = job.finish();
    assert!(said.contains("has failed; others take over"), "{said}");
    assert_flat(&held);
    assert_as_fast(&took);
}

/// From now on nothing passes between the hosts but over NICs.
fn cut_control(job: &mut Job) {
    assert!(job.step(), "the job is over too early");
    ip("rule add pref 9 to 127.0.0.1 blackhole");
}

/// PROTOCOL R29: the NICs that are left carry what the ends have to agree on. Nobody is told: as
/// far as they know, the control connection only takes its time.
#[test]
fn nics_carry_what_the_control_connection_does_not() {
    if in_own_network("nics_carry_what_the_control_connection_does_not") {
        outlive(3, cut_control);
    }
}

/// PROTOCOL R29, R31: the same where one end knows at once that it has ended, and dials in vain.
#[test]
fn nics_carry_what_has_no_control_connection() {
    if in_own_network("nics_carry_what_has_no_control_connection") {
        outlive(3, |job| {
            cut_control(job);
            let host = job.hosts()[0];
            assert!(shut_down_connections(host, Ipv4Addr::LOCALHOST) > 0);
        });
    }
}

/// PROTOCOL R31, R50: the control connection is shut down, over which ends agree what becomes of a
/// NIC's work, just when there is much to agree on. It is made anew, and no word is lost or heard
/// twice.
#[test]
fn a_control_connection_that_ends_is_made_anew() {
    if !in_own_network("a_control_connection_that_ends_is_made_anew") {
        return;
    }
    let (mut job, _board) = start(2, ALL_REDUCE);
    let (mut struck, mut found) = (0, 0);
    while job.step() {
        let host = job.hosts().first().copied();
        let shut_down = |host| shut_down_connections(host, Ipv4Addr::LOCALHOST);
        match struck % 4 {
            0 => Nics::cut(1),
            2 => Nics::cut(2),
            which => Nics::heal(which / 2 + 1),
        }
        found += host.map_or(0, shut_down);
        struck += 1;
    }
    let said = job.finish();
    assert!(
        struck >= 8 && found >= 8,
        "{found} connections in {struck} faults"
    );
    assert!(said.contains("has failed; others take over"), "{said}");
}

/// PROTOCOL R60, R61: nobody is told; only the work that does not get on shows it.
#[test]
fn a_silent_hole_is_found_and_left() {
    if !in_own_network("a_silent_hole_is_found_and_left") {
        return;
    }
    let arguments = "--pattern stream --channels 2 --sizes 1M --iterations 400 --check";
    let (mut job, _board) = start(2, arguments);
    let faults: [fn(); 4] = [
        || Nics::swallow(1),
        || Nics::release(1),
        || Nics::swallow(2),
        || Nics::release(2),
    ];
    let struck = plague(&mut job, &faults);
    let said = job.finish();
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
    let arguments = "--pattern stream --sizes 1M --iterations 400 --check";
    let (mut job, _board) = start(2, arguments);
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
    let said = job.finish();
    let seen = lost(&said, ": its queue pair has failed, not its NICs");
    assert!(seen >= 3, "{seen} of {struck} faults were seen\n{said}");
    assert!(!said.contains("port Down"), "{said}");
}

/// Waits until no byte of data has moved for [`PAUSE`].
fn wait_until_nothing_moves() {
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

/// PROTOCOL R61, R62: a host that stands still for longer than every watchdog waits has not failed.
#[test]
fn a_host_that_pauses_goes_on() {
    if !in_own_network("a_host_that_pauses_goes_on") {
        return;
    }
    let (mut job, _board) = start(2, ALL_REDUCE);
    for _ in 0..3 {
        assert!(job.step(), "the job is over too early");
        let host = job.hosts()[0];
        kill(host, Signal::SIGSTOP).expect("a process of ours");
        // The other one finds it silent: its work stands, for as long as nothing moves.
        wait_until_nothing_moves();
        kill(host, Signal::SIGCONT).expect("a process of ours");
    }
    while job.step() {}
    job.finish();
}

/// PROTOCOL R61: three of four NICs are lost for good, one after the other.
#[test]
fn the_last_of_four_nics_carries_everything() {
    if !in_own_network("the_last_of_four_nics_carries_everything") {
        return;
    }
    let arguments = "--pattern stream --channels 2 --sizes 1M --iterations 400 --check";
    let (mut job, _board) = start(4, arguments);
    for nic in [1, 2, 3] {
        assert!(job.step(), "the job is over too early");
        Nics::cut(nic);
    }
    while job.step() {}
    let said = job.finish();
    let lost = (0..3).filter(|nic| said.contains(&format!("soft{nic}: port Down")));
    assert_eq!(lost.count(), 3, "{said}");
}
