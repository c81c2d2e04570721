//! C's view of the interface: the headers by themselves, and a C program that loads the plugin.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use r2ccl_plugin_tests::plugin;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Compiles one of `plugin-tests/c`; warnings are errors.
fn compile(source: &str, arguments: &[&str], output: &Path) {
    let compiled = Command::new("cc")
        .args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
        ])
        .arg("-I")
        .arg(root().join("nccl-headers"))
        .args(arguments)
        .arg("-o")
        .arg(output)
        .arg(root().join("plugin-tests/c").join(source))
        .arg("-ldl")
        .output()
        .expect("a C compiler called cc is installed (scripts/setup.sh)");
    assert_success(source, &compiled);
}

fn assert_success(what: &str, output: &Output) {
    assert!(
        output.status.success(),
        "{what}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_layout_holds_in_c() {
    compile("layout.c", &["-fsyntax-only"], Path::new("/dev/null"));
}

#[test]
fn each_header_stands_alone() {
    for name in [
        "common", "net_v8", "net_v9", "net_v10", "net_v11", "net_v12", "nccl_net",
    ] {
        let header = root().join(format!("nccl-headers/{name}.h"));
        let compiled = Command::new("cc")
            .args([
                "-std=c11",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-fsyntax-only",
            ])
            .args(["-x", "c", "/dev/null", "-include"])
            .arg(&header)
            .output()
            .expect("a C compiler called cc is installed (scripts/setup.sh)");
        assert_success(name, &compiled);
    }
}

#[test]
fn a_c_program_loads_the_plugin_and_finds_every_table() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("load");
    compile("load.c", &[], &program);
    let run = Command::new(&program)
        .arg(plugin::path())
        .env("R2CCL_FABRIC", "soft")
        .env("R2CCL_SOFT_NICS", "127.0.0.2,127.0.0.3")
        .output()
        .unwrap();
    assert_success("load", &run);
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        "tables v8 to v12 hold\n"
    );
}
