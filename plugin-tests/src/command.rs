//! The command `r2ccl`, as a child of a test.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::plugin;

/// `r2ccl bench --json` on a plugin, over software NICs.
pub fn bench(file: &Path, arguments: &str) -> Command {
    let mut command = Command::new(plugin::command());
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
