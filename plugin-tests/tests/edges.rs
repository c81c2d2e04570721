//! Which crate may use which, and what the protocol's crate may never do.

use r2ccl_plugin_tests::plugin;
use r2ccl_plugin_tests::repository::{Findings, root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Each crate of ours with the crates of ours that it may use. Arrows point inwards.
const EDGES: [(&str, &[&str]); 8] = [
    ("r2ccl-abi", &[]),
    ("r2ccl-core", &[]),
    ("r2ccl-fabric", &["r2ccl-core"]),
    // The core once more, with bugs for the simulator to find: nothing that ships may use it.
    ("r2ccl-core-planted", &[]),
    ("r2ccl-sim", &["r2ccl-core-planted"]),
    ("r2ccl", &["r2ccl-fabric", "r2ccl-core", "r2ccl-abi"]),
    ("r2ccl-cli", &["r2ccl", "r2ccl-sim", "r2ccl-abi"]),
    // Sees the product from outside: the `.so` and the command, not the crate behind them.
    (
        "r2ccl-plugin-tests",
        &["r2ccl-fabric", "r2ccl-sim", "r2ccl-abi"],
    ),
];

/// What the protocol's crate may use from outside; all of it works without the standard library.
const CORE_USES: [&str; 2] = ["thiserror", "zerocopy"];

fn metadata(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version", "1"])
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {complaint}");
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn crates_only_use_what_lies_further_inside() {
    let allowed: BTreeMap<_, _> = EDGES.into_iter().collect();
    let metadata = metadata(&["--no-deps"]);
    let packages = list(&metadata, "packages");
    assert!(packages.len() >= 6, "only {} packages", packages.len());
    let mut findings = Findings::default();
    for package in packages {
        let name = text(package, "name");
        let Some(allowed) = allowed.get(name) else {
            findings.add(name, 1, "the crate is not in EDGES");
            continue;
        };
        for used in list(package, "dependencies") {
            let used = text(used, "name");
            if used.starts_with("r2ccl") && !allowed.contains(&used) {
                findings.add(name, 1, format!("uses {used}"));
            }
        }
    }
    findings.assert_none(
        "The edges between crates are decided in docs/ARCHITECTURE.md. Move what both sides need \
         further inside, or pass it as a value.",
    );
}

#[test]
fn the_core_is_pure() {
    let lib = std::fs::read_to_string(root().join("src/core/src/lib.rs")).expect("the core");
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        assert!(
            lib.lines().any(|line| line == attribute),
            "src/core/src/lib.rs must say {attribute}: whatever can lose data has neither I/O nor \
             pointers, so that it runs in tests as it runs in jobs"
        );
    }
    let metadata = metadata(&["--no-deps"]);
    let packages = list(&metadata, "packages");
    let core = packages
        .iter()
        .find(|package| text(package, "name") == "r2ccl-core")
        .expect("r2ccl-core is a member");
    for used in list(core, "dependencies") {
        let is_product = used["kind"].is_null();
        let name = text(used, "name");
        assert!(
            !is_product || CORE_USES.contains(&name),
            "r2ccl-core uses {name}: the core takes nothing that needs an operating system"
        );
    }
}

#[test]
fn every_crate_keeps_the_same_rules() {
    let mut findings = Findings::default();
    let metadata = metadata(&["--no-deps"]);
    for package in list(&metadata, "packages") {
        let path = text(package, "manifest_path");
        let manifest = std::fs::read_to_string(path).expect("a manifest");
        for line in ["[lints]\nworkspace = true", "rust-version.workspace = true"] {
            if !manifest.contains(line) {
                findings.add(path, 1, format!("lacks {}", line.replace('\n', ", ")));
            }
        }
        for section in manifest.split("\n[").filter(|section| {
            let head = section.split(']').next().unwrap_or_default();
            head.ends_with("dependencies")
        }) {
            let names: Vec<_> = section
                .lines()
                .skip(1)
                .filter_map(|line| line.split(['=', '.', ' ']).next())
                .filter(|name| name.starts_with(char::is_alphabetic))
                .collect();
            if !names.is_sorted() {
                findings.add(path, 1, format!("unsorted dependencies: {names:?}"));
            }
        }
    }
    findings.assert_none(
        "Lints and the minimum Rust version are the workspace's, dependencies are sorted by name.",
    );
}

#[test]
fn licences_of_dependencies_are_allowed() {
    let deny = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let allowed = deny.split_once("allow = [").expect("a list of licences").1;
    let allowed = allowed.split_once(']').expect("the list ends").0;
    let allowed: Vec<_> = allowed.split('"').skip(1).step_by(2).collect();
    let platform = "--filter-platform=x86_64-unknown-linux-gnu";
    let metadata = metadata(&[platform]);
    let packages = list(&metadata, "packages");
    assert!(packages.len() > 20, "only {} packages", packages.len());
    let mut findings = Findings::default();
    for package in packages {
        let licence = text(package, "license");
        // "A OR B" and the older "A/B" leave the choice, "A AND B" does not; brackets bind an OR.
        let choice = |part: &str| {
            let mut names = part.split(" OR ").flat_map(|part| part.split('/'));
            names.any(|name| allowed.contains(&name.trim_matches(['(', ')', ' '])))
        };
        if !licence.split(" AND ").all(choice) {
            findings.add(text(package, "name"), 1, format!("licence {licence:?}"));
        }
    }
    findings.assert_none("Take another crate, or argue for a new line in deny.toml.");
}

/// The names that a product shows to the dynamic linker.
fn exported(product: &Path) -> Vec<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(product)
        .output()
        .expect("nm runs (Debian: binutils)");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nm {product:?}: {complaint}");
    let names = String::from_utf8_lossy(&output.stdout);
    names.lines().map(str::to_owned).collect()
}

/// The simulator's core has a switch for deliberate bugs. Cargo builds plugin and command together,
/// and must not mix them up.
#[test]
fn no_bug_is_planted_in_the_plugin() {
    let has_switch = |product: &Path| {
        let output = Command::new("nm").arg(product).output().expect("nm runs");
        let names = String::from_utf8_lossy(&output.stdout);
        names.lines().any(|line| line.contains("7planted7PLANTED"))
    };
    let library = plugin::path();
    let command = library.with_file_name("r2ccl");
    assert!(
        has_switch(&command),
        "{command:?} has no switch: this test would not see one"
    );
    assert!(
        !has_switch(&library),
        "{library:?} can be told to break the protocol"
    );
}

#[test]
fn the_command_is_no_plugin() {
    let is_plugin = |name: &String| name.starts_with("nccl");
    let library = plugin::path();
    assert!(
        exported(&library).iter().any(is_plugin),
        "{library:?} has no table: this test would not see one"
    );
    let command = library.with_file_name("r2ccl");
    let found: Vec<_> = exported(&command).into_iter().filter(is_plugin).collect();
    assert!(
        found.is_empty(),
        "{command:?} exports {found:?}: a plugin that it loads would meet the command's own tables"
    );
}
