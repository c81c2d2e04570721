//! The plugin under the load that NCCL's proxy would put on it: `r2ccl bench` on every table
//! version, pattern and number of hosts, with every byte checked; peers that die or leave; and the
//! driver itself on a plugin that makes mistakes, to see that its checks can fail.
//!
//! All processes are children of the command, which kills them when it ends; all addresses are
//! loopback ones.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use r2ccl_plugin_tests::command::{bench, result};
use r2ccl_plugin_tests::plugin;
use serde_json::Value;

/// Sizes that every pattern runs through: nothing, less than a word, odd ones, a page, one byte
/// more than a power of two, and more than a socket buffer.
const SIZES: &str = "0,1,8,127,4K,64K+1,1M";

/// `r2ccl bench --json` on a plugin, over so many software NICs.
fn bench_on(file: &Path, nics: usize, arguments: &str) -> Output {
    let nics: Vec<String> = (0..nics)
        .map(|nic| format!("127.0.0.{}", nic + 2))
        .collect();
    bench(file, arguments)
        .env("R2CCL_SOFT_NICS", nics.join(","))
        .output()
        .expect("the command starts")
}

/// A run on our plugin that must succeed with every byte right; its result.
fn good(nics: usize, arguments: &str) -> Value {
    let output = bench_on(&plugin::path(), nics, arguments);
    let result = result(&output, arguments);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{arguments}: {}\n{result:#}\n{complaint}",
        output.status
    );
    assert_eq!(result["good"], true, "{arguments}: {result:#}");
    assert_eq!(result["network"], "R2CCL");
    result
}

fn messages(result: &Value) -> u64 {
    let rows = result["rows"].as_array().expect("rows");
    rows.iter()
        .map(|row| row["messages"].as_u64().expect("a number"))
        .sum()
}

#[test]
fn every_table_version_moves_every_size() {
    for version in 8..=12 {
        let arguments =
            format!("--abi v{version} --pattern alltoall --check --iterations 20 --sizes {SIZES}");
        let result = good(1, &arguments);
        assert_eq!(result["abi"], version);
        // 7 sizes, 2 connections, 20 messages.
        assert_eq!(messages(&result), 7 * 2 * 20);
    }
}

#[test]
fn every_pattern_with_two_and_three_hosts_and_up_to_four_channels() {
    for pattern in ["pingpong", "stream", "alltoall", "allreduce"] {
        for hosts in [2, 3] {
            for channels in [1, 2, 4] {
                let result = good(
                    2,
                    &format!(
                        "--pattern {pattern} --hosts {hosts} --channels {channels} --check \
                         --iterations 10 --sizes {SIZES}"
                    ),
                );
                assert!(messages(&result) >= 7 * 10 * channels, "{result:#}");
            }
        }
    }
}

#[test]
fn grouped_receives_take_sends_by_tag_in_any_order() {
    for version in [8, 12] {
        for (hosts, channels) in [(2, 1), (2, 3), (3, 2)] {
            let result = good(
                2,
                &format!(
                    "--abi v{version} --pattern grouped --hosts {hosts} --channels {channels} \
                     --check --iterations 100 --sizes 0,8,4K,64K+1"
                ),
            );
            // Groups of one only would be no test: the mean width is above 4.
            let groups = 4 * 100 * (hosts - 1) * channels;
            assert!(messages(&result) > 4 * groups, "{result:#}");
        }
    }
}

#[test]
fn channels_spread_over_several_nics() {
    let result = good(
        4,
        &format!("--pattern alltoall --channels 4 --check --iterations 10 --sizes {SIZES}"),
    );
    assert_eq!(
        result["devices"].as_array().map(Vec::len),
        Some(4),
        "{result:#}"
    );
    good(
        4,
        "--pattern stream --channels 2 --nics 3,1 --check --iterations 10 --sizes 4K,1M",
    );
}

#[test]
fn buffers_need_no_alignment() {
    good(
        1,
        &format!("--pattern stream --offset 13 --check --iterations 20 --sizes {SIZES}"),
    );
    // Word by word into a place that no word of the stream is aligned with, until the buffers of
    // the sockets are full.
    good(
        1,
        "--pattern stream --offset 1 --check --iterations 30 --sizes 1,64K+1,70000",
    );
}

#[test]
fn a_host_may_talk_to_itself() {
    good(
        1,
        &format!("--pattern stream --hosts 1 --check --iterations 20 --sizes {SIZES}"),
    );
}

#[test]
fn more_messages_than_any_window() {
    let result = good(1, "--pattern stream --check --iterations 5000 --sizes 8,4K");
    assert_eq!(messages(&result), 10_000);
}

#[test]
fn a_killed_host_is_an_error_at_once_on_all_others() {
    for arguments in [
        "--pattern stream --sizes 64K --kill 1@300",
        "--pattern stream --sizes 64K --kill 0@300",
        "--pattern allreduce --hosts 3 --channels 2 --sizes 1M --kill 2@300",
        "--pattern pingpong --sizes 8 --kill 1@300",
    ] {
        let output = bench_on(&plugin::path(), 2, arguments);
        let result = result(&output, arguments);
        // Zero means: one was killed, and each of the others got an error from the plugin.
        assert!(output.status.success(), "{arguments}: {result:#}");
        for outcome in result["outcomes"].as_array().expect("outcomes") {
            let after_ms = outcome["after_ms"].as_u64().expect("a number");
            assert!(after_ms < 3000, "{arguments}: {outcome:#}");
        }
    }
}

#[test]
fn fifty_aborts_with_requests_in_flight_leave_nothing_behind() {
    for arguments in ["--sizes 64K", "--sizes 4K --channels 2 --hosts 3"] {
        let result = good(2, &format!("--pattern abort --check {arguments}"));
        let cycles = &result["cycles"][0];
        assert_eq!(cycles["cycles"], 50, "{result:#}");
        assert_eq!(cycles["flat"], true, "{result:#}");
        let in_flight = result["rows"][0]["in_flight"].as_u64().expect("a number");
        assert!(
            in_flight >= 50,
            "only {in_flight} requests were in flight in 50 cycles"
        );
    }
}

/// Compiles the plugin that makes mistakes.
fn faulty(folder: &Path) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = folder.join("libfaulty.so");
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
        ])
        .args(["-shared", "-fPIC", "-I"])
        .arg(tests.join("../nccl-headers"))
        .arg("-o")
        .arg(&file)
        .arg(tests.join("c/faulty_net.c"))
        .output()
        .expect("a C compiler called cc is installed (scripts/setup.sh)");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    file
}

#[test]
fn the_driver_finds_each_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = faulty(folder.path());
    let arguments = "--hosts 1 --pattern stream --sizes 4K --iterations 40 --check --timeout 2 \
                     --env FAULT=";
    let run = |fault: &str| bench_on(&file, 1, &format!("{arguments}{fault}"));
    let fine = run("none");
    assert!(
        fine.status.success(),
        "{}",
        String::from_utf8_lossy(&fine.stderr)
    );
    for (fault, found) in [
        ("wrong", "wrong_bytes"),
        ("stale", "wrong_bytes"),
        ("early", "wrong_bytes"),
        ("late", "late_bytes"),
        ("tail", "outside_bytes"),
        ("outside", "outside_bytes"),
        ("short", "wrong_sizes"),
    ] {
        let output = run(fault);
        let result = result(&output, fault);
        assert_eq!(output.status.code(), Some(1), "{fault}: {result:#}");
        let count = result["rows"][0]["faults"][found].as_u64();
        assert!(count > Some(0), "{fault}: {result:#}");
    }
    for (fault, found) in [
        ("no-size", "its size was not written"),
        ("no-done", "not 0 or 1"),
        ("no-request", "without writing its output"),
        ("error", "returned 2"),
        ("hang", "nothing has moved"),
    ] {
        let output = run(fault);
        let result = result(&output, fault);
        assert_eq!(output.status.code(), Some(1), "{fault}: {result:#}");
        let message = result["outcomes"][0]["message"]
            .as_str()
            .unwrap_or_default();
        assert!(message.contains(found), "{fault}: {result:#}");
    }
}

#[test]
fn a_comparison_with_itself_reaches_no_bar_above_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = faulty(folder.path());
    let compare = |bar: &str| {
        Command::new(plugin::command())
            .args([
                "bench",
                "--json",
                "--hosts",
                "1",
                "--pattern",
                "stream",
                "--sizes",
                "4K",
            ])
            .args([
                "--iterations",
                "20",
                "--pairs",
                "30",
                "--bar",
                bar,
                "--compare",
            ])
            .arg(&file)
            .arg("--with")
            .arg(&file)
            .output()
            .expect("the command starts")
    };
    let output = compare("3.0");
    let result = result(&output, "--bar 3.0");
    assert_eq!(output.status.code(), Some(1), "{result:#}");
    assert_eq!(
        result["sizes"][0]["ratios"].as_array().map(Vec::len),
        Some(30)
    );
    let ratio = &result["sizes"][0]["ratio"];
    let (low, high) = (ratio["low"].as_f64(), ratio["high"].as_f64());
    assert!(
        low <= ratio["median"].as_f64() && ratio["median"].as_f64() <= high,
        "{ratio:#}"
    );
}

#[test]
fn mistakes_in_the_command_are_named_with_a_remedy() {
    let output = Command::new(plugin::command())
        .args(["run", "--plugin", "/nonexistent/plugin.so", "--", "true"])
        .output()
        .expect("the command starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("/nonexistent/plugin.so"), "{complaint}");
    assert!(complaint.contains("scripts/build.sh"), "{complaint}");
}

#[test]
fn run_sets_what_nccl_needs() {
    let output = Command::new(plugin::command())
        .arg("run")
        .arg("--plugin")
        .arg(plugin::path())
        .args([
            "--",
            "sh",
            "-c",
            "echo $NCCL_NET $NCCL_NET_PLUGIN_REF_COUNT $NCCL_NET_PLUGIN",
        ])
        .output()
        .expect("the command starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.starts_with("R2CCL 1 "), "{printed}");
}
