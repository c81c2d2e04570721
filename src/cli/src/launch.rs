//! `r2ccl run -- COMMAND`: starts a job with the variables that make NCCL take the plugin.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::locate;

/// Options of `r2ccl run`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  r2ccl run -- torchrun --nproc-per-node=8 train.py

Whether NCCL took the plugin is in its log (NCCL_DEBUG=INFO): 'Using network R2CCL'. Use the same on
every host of the job. Settings of R2CCL (r2ccl config) are passed on as they are.")]
pub struct RunArgs {
    /// The plugin's file. Default: R2CCL_PLUGIN, else the one beside this program
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// Only show the variables, as lines for a shell
    #[arg(long)]
    print: bool,
    /// With --print: as JSON
    #[arg(long, requires = "print")]
    json: bool,
    /// Say on standard error what is set and started
    #[arg(short, long)]
    verbose: bool,
    /// The command and its arguments, after --
    #[arg(last = true, required_unless_present = "print", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A variable to set, and why.
struct Variable {
    name: &'static str,
    value: OsString,
    reason: &'static str,
}

/// Runs the command; returns only if it cannot be started.
pub fn run(args: &RunArgs) -> Result<ExitCode, String> {
    let plugin = locate::plugin(args.plugin.as_deref())?;
    let variables = variables(&plugin)?;
    if args.print {
        print(&variables, args.json);
        return Ok(ExitCode::SUCCESS);
    }
    if args.verbose {
        for Variable {
            name,
            value,
            reason,
        } in &variables
        {
            eprintln!("r2ccl: {name}={}  ({reason})", value.to_string_lossy());
        }
    }
    let Some((program, rest)) = args.command.split_first() else {
        return Err("no command: write it after --".into());
    };
    if args.verbose {
        eprintln!("r2ccl: starting {}", program.to_string_lossy());
    }
    let mut command = Command::new(program);
    command.args(rest);
    command.envs(
        variables
            .iter()
            .map(|variable| (variable.name, &variable.value)),
    );
    let error = command.exec();
    Err(format!(
        "cannot start {}: {error}",
        program.to_string_lossy()
    ))
}

/// What NCCL needs. The plugin is named by a suffix and a search path, which every NCCL from 2.19
/// on understands (a full path: only from 2.21 on), if its file is named as NCCL looks for it.
fn variables(plugin: &Path) -> Result<Vec<Variable>, String> {
    let mut variables = Vec::new();
    let folder = plugin.parent().unwrap_or(Path::new("/"));
    let file = plugin
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let suffix = file
        .as_deref()
        .and_then(|name| name.strip_prefix("libnccl-net-"));
    match suffix.and_then(|name| name.strip_suffix(".so")) {
        Some(suffix) => {
            let mut path = folder.as_os_str().to_owned();
            if let Some(old) = std::env::var_os("LD_LIBRARY_PATH").filter(|old| !old.is_empty()) {
                path.push(":");
                path.push(old);
            }
            let reason = "where the plugin lies";
            variables.push(Variable {
                name: "LD_LIBRARY_PATH",
                value: path,
                reason,
            });
            let (value, reason) = (suffix.into(), "the plugin's file is libnccl-net-<this>.so");
            variables.push(Variable {
                name: "NCCL_NET_PLUGIN",
                value,
                reason,
            });
        }
        None => {
            let (value, reason) = (plugin.as_os_str().to_owned(), "the plugin's file");
            variables.push(Variable {
                name: "NCCL_NET_PLUGIN",
                value,
                reason,
            });
        }
    }
    variables.push(Variable {
        name: "NCCL_NET",
        value: "R2CCL".into(),
        reason: "fail rather than fall back to another network in silence",
    });
    variables.push(Variable {
        name: "NCCL_NET_PLUGIN_REF_COUNT",
        value: "1".into(),
        reason: "NCCL 2.28 and 2.29 lose a plugin after the last communicator without it",
    });
    Ok(variables)
}

fn print(variables: &[Variable], json: bool) {
    if json {
        let pairs = variables.iter().map(|variable| {
            let value = variable.value.to_string_lossy().into_owned();
            (variable.name.to_string(), serde_json::Value::String(value))
        });
        println!("{:#}", serde_json::Value::Object(pairs.collect()));
        return;
    }
    for Variable { name, value, .. } in variables {
        println!("export {name}={}", quoted(&value.to_string_lossy()));
    }
}

/// A value as a shell takes it.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%=".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_string();
    }
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(variables: &[Variable], name: &str) -> Option<String> {
        let found = variables.iter().find(|variable| variable.name == name)?;
        Some(found.value.to_string_lossy().into_owned())
    }

    #[test]
    fn a_file_with_nccls_name_is_named_by_its_suffix() {
        let variables = variables(Path::new("/opt/r/libnccl-net-r2ccl.so")).unwrap();
        assert_eq!(
            value(&variables, "NCCL_NET_PLUGIN").as_deref(),
            Some("r2ccl")
        );
        assert_eq!(value(&variables, "NCCL_NET").as_deref(), Some("R2CCL"));
        assert_eq!(
            value(&variables, "NCCL_NET_PLUGIN_REF_COUNT").as_deref(),
            Some("1")
        );
        let path = value(&variables, "LD_LIBRARY_PATH").unwrap();
        assert!(path == "/opt/r" || path.starts_with("/opt/r:"), "{path}");
    }

    #[test]
    fn any_other_file_is_named_by_its_path() {
        let variables = variables(Path::new("/opt/r/libr2ccl.so")).unwrap();
        assert_eq!(
            value(&variables, "NCCL_NET_PLUGIN").as_deref(),
            Some("/opt/r/libr2ccl.so")
        );
        assert_eq!(value(&variables, "LD_LIBRARY_PATH"), None);
    }

    #[test]
    fn values_survive_a_shell() {
        assert_eq!(quoted("/a/b:c"), "/a/b:c");
        assert_eq!(quoted("a b'c"), r"'a b'\''c'");
    }
}
