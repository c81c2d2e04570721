//! What users of other stacks have met, tried on software NICs. Each test has the number of its
//! report in docs/TESTING.md, where the public source stands; faults are made from outside, in a
//! network namespace of the test's own, unless one end alone is to see them.

use std::time::{Duration, Instant};

use r2ccl_plugin_tests::holdings::{Holdings, assert_flat};
use r2ccl_plugin_tests::job::Job;
use r2ccl_plugin_tests::net::{Net, until};
use r2ccl_plugin_tests::network::{Nics, in_own_network, ip};
use r2ccl_plugin_tests::peer::{self, Peer};
use r2ccl_plugin_tests::process::alone;
use r2ccl_plugin_tests::stream::Stream;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// Of each NIC.
const RATE: &str = "2G";
/// More messages than any test waits for; who uses it ends the job itself.
const ENDLESS: &str = "--pattern stream --sizes 256K --iterations 1000000 --check";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// What every path needs is wrong from the start: the error says so.
#[test]
fn field_report_36_never_worked() {
    if !in_own_network("field_report_36_never_worked") {
        return;
    }
    let (nics, board) = (Nics::new(2), folder());
    (1..=2).for_each(Nics::swallow);
    let list = nics.list(RATE);
    let settings = [("R2CCL_SOFT_NICS", &list[..]), ("R2CCL_GIVEUP", "3")];
    let mut job = Job::start(board.path(), ENDLESS, &settings);
    let (start, output) = (Instant::now(), job.end());
    let said = job.said() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{said}");
    for words in [
        "no path has come back in time",
        "it has never worked: check",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{said}");
}

/// The stream is still there, with every byte right so far, and is ended.
fn stop(mut job: Job) {
    assert!(job.is_running(), "{}", job.said());
    job.kill();
}

/// Lets the job run for so long.
fn wait(job: &mut Job, time: Duration) {
    let start = Instant::now();
    job.wait("the end of the outage", |_| start.elapsed() >= time);
}

fn in_service(job: &Job, nic: &str) -> bool {
    job.number(nic, "paths_in_service") > 0
}

/// Rates of a near and a far NIC, and of either while both are in use, since each congests the
/// other: those of the report in Mbit/s, not Gbit/s.
const NEAR: u64 = 400;
const FAR: u64 = 234;
const SHARED: u64 = 70;

/// What the stream carries in two seconds, in Mbit/s, on NICs that congest each other.
fn carried(job: &mut Job) -> f64 {
    let sent = |job: &Job| ["h0/soft0", "h0/soft1"].map(|nic| job.number(nic, "bytes_sent"));
    let (begin, start) = (sent(job), Instant::now());
    let (mut last, mut is_shared) = (begin, false);
    while start.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(10));
        let now = sent(job);
        let both = (0..2).all(|nic| now[nic] > last[nic] + (64 << 10));
        last = now;
        if both != is_shared {
            is_shared = both;
            for nic in ["h0/soft0", "h0/soft1"] {
                match both {
                    true => job.tell(&format!("chaos {nic} slow {SHARED}M")),
                    false => job.tell(&format!("chaos {nic} restore")),
                }
            }
        }
    }
    let bytes: u64 = (0..2).map(|nic| last[nic] - begin[nic]).sum();
    bytes as f64 * 8.0 / 1e6 / start.elapsed().as_secs_f64()
}

/// The same in the best of three tries: a machine that is busy otherwise takes from one or the
/// other.
fn carries(job: &mut Job, wanted: u64) -> f64 {
    let enough = 0.95 * wanted as f64;
    let mut best: f64 = 0.0;
    for _ in 0..3 {
        best = best.max(carried(job));
        if best >= enough {
            break;
        }
    }
    assert!(best >= enough, "{best:.0} of {wanted} Mbit/s");
    best
}

/// Waits until a NIC sends nothing for a while: what returns takes its share over step by step.
fn await_rest(job: &mut Job, nic: &str) {
    let (mut last, mut since) = (job.number(nic, "bytes_sent"), Instant::now());
    job.wait("the rest of the other NIC", |job| {
        let now = job.number(nic, "bytes_sent");
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_millis(200)
    });
}

/// A far NIC would only be in the way of the near one: it stands by, carries what it can when the
/// near one dies, and nothing again when that is back. Time and again.
#[test]
fn field_report_02_warm_standby() {
    if !in_own_network("field_report_02_warm_standby") {
        return;
    }
    let (_nics, board) = (Nics::new(2), folder());
    let list = format!("10.9.0.1@{NEAR}M,10.9.0.2@{FAR}M");
    let mut job = Job::start(board.path(), ENDLESS, &[("R2CCL_SOFT_NICS", &list)]);
    job.wait("both paths", |job| {
        in_service(job, "h0/soft0") && in_service(job, "h0/soft1")
    });
    for cycle in 0..3 {
        await_rest(&mut job, "h0/soft1");
        let near = carries(&mut job, NEAR);
        Nics::cut(1);
        job.wait("the fault to be found", |job| !in_service(job, "h0/soft0"));
        let far = carries(&mut job, FAR);
        Nics::heal(1);
        job.wait("the return of the NIC", |job| in_service(job, "h0/soft0"));
        println!("cycle {cycle}: near {near:.0} of {NEAR}, far {far:.0} of {FAR} Mbit/s");
    }
    await_rest(&mut job, "h0/soft1");
    carries(&mut job, NEAR);
    stop(job);
}

/// A repair after so long that attempts have become rare: the event of the link cuts their pause
/// short.
#[test]
fn field_report_03_repair_after_long() {
    if !in_own_network("field_report_03_repair_after_long") {
        return;
    }
    let (nics, board) = (Nics::new(2), folder());
    let mut job = Job::over(&nics, RATE, board.path(), ENDLESS);
    assert!(job.step(), "{}", job.said());
    Nics::cut(1);
    let outage = Duration::from_secs(6);
    wait(&mut job, outage);
    Nics::heal(1);
    let start = Instant::now();
    job.wait("the return of the NIC", |job| in_service(job, "h0/soft0"));
    // The next attempt would have come a third of the outage later at the earliest.
    println!("back after {:?}", start.elapsed());
    assert!(start.elapsed() < outage / 4, "{:?}", start.elapsed());
    stop(job);
}

/// Rails that do not reach each other; one NIC of each host dies, and not on the same rail.
#[test]
fn field_report_11_rails_only() {
    if !in_own_network("field_report_11_rails_only") {
        return;
    }
    let (nics, board) = (Nics::new(4), folder());
    for (from, to) in (1..=4).flat_map(|from| (1..=4).map(move |to| (from, to))) {
        if from != to {
            ip(&format!(
                "rule add pref 20 from 10.9.0.{from} to 10.9.0.{to} blackhole"
            ));
        }
    }
    let arguments = "--pattern allreduce --channels 4 --sizes 4M --iterations 120 --check";
    let mut job = Job::over(&nics, RATE, board.path(), arguments);
    for nic in ["h0/soft2", "h1/soft3"] {
        assert!(job.step(), "the job is over too early");
        job.tell(&format!("chaos {nic} kill"));
        job.wait("the fault to be found", |job| {
            job.number(nic, "failovers") > 0
        });
    }
    for nic in ["h0/soft0", "h1/soft0", "h0/soft1", "h1/soft1"] {
        job.wait_for_more(nic, "bytes_sent", 16 * MIB);
    }
    job.finish();
}

/// Without any path a connection waits as long as it is told, not for ever; a repair in that time
/// is in time.
#[test]
fn field_report_16_no_path_left() {
    if !in_own_network("field_report_16_no_path_left") {
        return;
    }
    let (nics, board) = (Nics::new(2), folder());
    let list = nics.list(RATE);
    for (give_up, is_repaired) in [("60s", true), ("1s", false)] {
        let settings = [("R2CCL_SOFT_NICS", &*list), ("R2CCL_GIVEUP", give_up)];
        let mut job = Job::start(board.path(), ENDLESS, &settings);
        assert!(job.step() && job.step(), "{}", job.said());
        (1..=2).for_each(Nics::cut);
        job.wait("the loss of all NICs", |job| {
            let said = job.said();
            said.contains("soft0: port Down") && said.contains("soft1: port Down")
        });
        if is_repaired {
            (1..=2).for_each(Nics::heal);
            assert!(job.step(), "{}", job.said());
            stop(job);
        } else {
            let start = Instant::now();
            let output = job.end();
            assert_eq!(output.status.code(), Some(1), "{}", job.said());
            assert!(job.said().contains("R2CCL_GIVEUP"), "{}", job.said());
            println!("an error {:?} after the last path", start.elapsed());
        }
    }
}

/// A NIC without a carrier when the job starts joins it later, and then carries what another one
/// loses.
#[test]
fn field_report_21_down_at_start() {
    if !in_own_network("field_report_21_down_at_start") {
        return;
    }
    let (_nics, board) = (Nics::new(1), folder());
    ip("link add cable type veth peer name switch");
    ip("addr add 10.9.0.2/32 dev cable");
    ip("link set cable up");
    // Both hosts are here, and find each other without a cable.
    Nics::swallow(2);
    let settings = [("R2CCL_SOFT_NICS", "10.9.0.1@2G,cable@2G")];
    let mut job = Job::start(board.path(), ENDLESS, &settings);
    assert!(job.step(), "{}", job.said());
    assert!(!in_service(&job, "h0/soft1"), "{:#}", job.status());
    Nics::release(2);
    ip("link set switch up");
    job.wait("the late NIC", |job| {
        in_service(job, "h0/soft1") && in_service(job, "h1/soft1")
    });
    let carried = job.number("h0/soft1", "bytes_sent");
    assert!(carried < MIB, "{carried} bytes while the other NIC is well");
    Nics::cut(1);
    job.wait_for_more("h0/soft1", "bytes_sent", 16 * MIB);
    stop(job);
}

/// Links that are down for 0.2 s and 2 s, with every setting at its default.
#[test]
fn field_report_27_flaps() {
    if !in_own_network("field_report_27_flaps") {
        return;
    }
    let (nics, board) = (Nics::new(2), folder());
    let list = nics.list(RATE);
    let settings = [
        ("R2CCL_SOFT_NICS", &*list),
        ("R2CCL_HOLD_DOWN", ""),
        ("R2CCL_FLAP_DAMPING", ""),
    ];
    let mut job = Job::start(board.path(), ENDLESS, &settings);
    for outage_ms in [200, 2000] {
        job.wait("the NIC", |job| in_service(job, "h0/soft0"));
        job.wait_for_more("h0/soft0", "bytes_sent", 16 * MIB);
        let before = job.number("h0/soft0", "failovers");
        Nics::cut(1);
        wait(&mut job, Duration::from_millis(outage_ms));
        Nics::heal(1);
        assert!(job.step(), "{}", job.said());
        assert!(job.number("h0/soft0", "failovers") > before);
    }
    job.wait("the return of the NIC", |job| in_service(job, "h0/soft0"));
    job.wait_for_more("h0/soft0", "bytes_sent", 16 * MIB);
    stop(job);
}

/// Connections that end with their work open, again and again, while NICs die: a process that goes
/// on has lost nothing.
#[test]
fn field_report_33_a_second_life() {
    if !in_own_network("field_report_33_a_second_life") {
        return;
    }
    let (nics, board) = (Nics::new(2), folder());
    let arguments = "--pattern abort --iterations 1000000 --sizes 256K";
    let mut job = Job::over(&nics, RATE, board.path(), arguments);
    assert!(job.step(), "{}", job.said());
    let mut held = Vec::new();
    for cycle in 0..16 {
        let nic = 1 + cycle % 2;
        Nics::cut(nic);
        assert!(job.step(), "{}", job.said());
        Nics::heal(nic);
        assert!(job.step(), "{}", job.said());
        held.push(Holdings::of(&job.hosts()));
    }
    assert_flat(&held);
    stop(job);
}

/// Not a test of its own: what a process that [`peer`] starts runs.
#[test]
fn peer_process() {
    peer::serve();
}

/// The cable is out while both ends are idle; the first message afterwards pays for it no more
/// than a second.
#[test]
fn field_report_35_idle_outage() {
    if !in_own_network("field_report_35_idle_outage") {
        return;
    }
    let settings = [
        ("R2CCL_SOFT_NICS", "10.9.0.1,10.9.0.2"),
        ("R2CCL_BOARD", "off"),
    ];
    alone(field_report_35_idle_outage, &settings, || {
        Nics::new(2);
        let net = Net::load();
        let mut peer = Peer::start("peer_process", &settings);
        let bytes = 64 << 10;
        let mut stream = Stream::sender(net, peer.connect_to(net, 1)[0], bytes);
        let mut move_some = |count: u64| {
            peer.tell(&format!("receive {count} {bytes}"));
            let start = Instant::now();
            stream.run(count).expect("moves");
            let took = start.elapsed();
            peer.answer().expect("all has arrived");
            took
        };
        move_some(100);
        for outage in 0..4 {
            let nic = 1 + outage % 2;
            let steps: [fn(u8); 2] = match outage / 2 {
                0 => [Nics::cut, Nics::heal],
                _ => [Nics::swallow, Nics::release],
            };
            steps[0](nic);
            let start = Instant::now();
            until("the end of the outage", || {
                (start.elapsed() >= Duration::from_millis(600)).then_some(())
            });
            steps[1](nic);
            let took = move_some(1);
            println!("# the first message after an outage of NIC {nic} took {took:?}");
            assert!(took < Duration::from_secs(1), "{took:?}");
            move_some(100);
        }
    });
}
