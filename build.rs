//! Link arguments of the plugin library and the stamp that says what it was built from.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=R2CCL_BUILD_COMMIT");
    // NCCL unloads plugins while threads of theirs may still run; a pinned library cannot vanish
    // under them, and its `static`s survive a reload.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnccl-net-r2ccl.so");
    println!("cargo::rustc-env=R2CCL_BUILD_COMMIT={}", commit());
}

/// Commit from the environment, or of the checkout for a release build. A development build is not
/// stamped: it would be made anew after each commit.
fn commit() -> String {
    if let Ok(commit) = std::env::var("R2CCL_BUILD_COMMIT") {
        return commit;
    }
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return "development".into();
    }
    // The log of HEAD grows with each commit and checkout.
    if Path::new(".git/logs/HEAD").exists() {
        println!("cargo::rerun-if-changed=.git/logs/HEAD");
    }
    Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map(|commit| commit.trim().to_owned())
        .filter(|commit| !commit.is_empty())
        .unwrap_or_else(|| "unknown".into())
}
