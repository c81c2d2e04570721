//! The command `r2ccl`, as a child of a test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The command: `R2CCL_COMMAND`, else the one in the target folder that this test was built into.
pub fn command_path() -> PathBuf {
    if let Some(path) = std::env::var_os("R2CCL_COMMAND") {
        return path.into();
    }
    let test = std::env::current_exe().expect("a test knows its own path");
    // <target>/<profile>/deps/<test>
    let target = test
        .ancestors()
        .nth(3)
        .expect("a test lies in the target folder");
    let modified = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).ok();
    ["debug", "release"]
        .map(|profile| target.join(profile).join("r2ccl"))
        .into_iter()
        .filter_map(|path| Some((modified(&path)?, path)))
        .max()
        .map(|(_, path)| path)
        .unwrap_or_else(|| panic!("no r2ccl below {}: run scripts/build.sh", target.display()))
}

/// `r2ccl bench --json` on a plugin, over software NICs.
pub fn bench(file: &Path, arguments: &str) -> Command {
    let mut command = Command::new(command_path());
    command
        .args(["bench", "--json", "--timeout", "30", "--plugin"])
        .arg(file)
        .args(arguments.split_whitespace())
        .env("R2CCL_FABRIC", "soft")
        .env_remove("NCCL_DEBUG");
    command
}

/// What the command says about a run.
pub fn result(output: &Output, arguments: &str) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        panic!(
            "{arguments}: {}, no JSON ({error})\n{complaint}",
            output.status
        )
    })
}
