//! Where the plugin's file is.

use std::path::{Path, PathBuf};

/// Variable that names the plugin's file for this program.
pub const VARIABLE: &str = "R2CCL_PLUGIN";
/// Names under which builds leave the plugin, the installed one first.
const NAMES: [&str; 2] = ["libnccl-net-r2ccl.so", "libr2ccl.so"];

/// The plugin to use: the one that was named, else `R2CCL_PLUGIN`, else the one beside this program
/// (or in `../lib` of it).
pub fn plugin(named: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = named {
        return existing(path, "--plugin");
    }
    if let Some(path) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        return existing(Path::new(&path), VARIABLE);
    }
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("."));
    for place in [folder.to_path_buf(), folder.join("../lib")] {
        for name in NAMES {
            let path = place.join(name);
            if path.is_file() {
                return absolute(&path);
            }
        }
    }
    Err(format!(
        "no plugin found: neither {} nor {} lies beside this program ({}).\n\
         Name it with --plugin FILE or {VARIABLE}=FILE, or build it with scripts/build.sh",
        NAMES[0],
        NAMES[1],
        folder.display()
    ))
}

/// A path that does not depend on the working directory.
pub fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn existing(path: &Path, source: &str) -> Result<PathBuf, String> {
    if path.is_file() {
        return absolute(path);
    }
    Err(format!(
        "{source} names {}, and there is no such file.\n\
         Build the plugin with scripts/build.sh, or correct the path",
        path.display()
    ))
}
