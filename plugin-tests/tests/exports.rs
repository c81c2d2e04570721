//! The file that NCCL loads: what it exports, what it needs, and of which age.

use std::collections::BTreeSet;
use std::process::Command;

use r2ccl_plugin_tests::plugin;

/// Newest glibc whose symbols may be used: hosts that old must be able to load the plugin.
const GLIBC_NEWEST: (u32, u32) = (2, 34);

/// Output of a tool of binutils about the plugin.
fn about(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool)
        .args(arguments)
        .arg(plugin::path())
        .output()
        .unwrap_or_else(|error| panic!("{tool} (package binutils): {error}"));
    assert!(
        output.status.success(),
        "{tool}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn exactly_the_five_tables_are_exported() {
    let listing = about("nm", &["-D", "--defined-only"]);
    let exported: BTreeSet<&str> = listing
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    let expected = r2ccl_abi::NET_SYMBOLS.map(|name| name.to_str().unwrap());
    assert_eq!(exported, BTreeSet::from(expected));
}

#[test]
fn no_rdma_library_is_needed() {
    let dynamic = about("readelf", &["--dynamic", "--wide"]);
    let needed: Vec<&str> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .collect();
    assert!(
        needed.iter().any(|line| line.contains("libc.so.6")),
        "{needed:?}"
    );
    for line in needed {
        let system = [
            "libc.so.6",
            "libgcc_s.so.1",
            "libm.so.6",
            "libdl.so.2",
            "libpthread.so.0",
        ];
        let system = system
            .into_iter()
            .chain(["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"]);
        assert!(
            system
                .into_iter()
                .any(|name| line.contains(&format!("[{name}]"))),
            "{line}"
        );
    }
}

#[test]
fn the_library_has_its_name_and_stays_loaded() {
    let dynamic = about("readelf", &["--dynamic", "--wide"]);
    assert!(
        dynamic.contains("[libnccl-net-r2ccl.so]"),
        "no SONAME in:\n{dynamic}"
    );
    assert!(
        dynamic.contains("NODELETE"),
        "not linked with -z nodelete:\n{dynamic}"
    );
}

#[test]
fn symbols_of_glibc_are_old_enough() {
    let symbols = about("readelf", &["--dyn-syms", "--wide"]);
    let versions: BTreeSet<(u32, u32)> = symbols
        .split("GLIBC_")
        .skip(1)
        .map(|rest| {
            let version = rest
                .split(|c: char| c != '.' && !c.is_ascii_digit())
                .next()
                .unwrap();
            let mut parts = version.split('.').map(|part| part.parse().unwrap());
            (parts.next().unwrap(), parts.next().unwrap())
        })
        .collect();
    let newest = *versions.last().expect("a library of Rust's uses glibc");
    assert!(
        newest <= GLIBC_NEWEST,
        "needs glibc {}.{}",
        newest.0,
        newest.1
    );
}

#[test]
fn it_loads_with_all_symbols_resolved_and_none_made_global() {
    let plugin = plugin::load();
    assert!(std::ptr::from_ref(plugin.v8).cast::<u8>() != std::ptr::from_ref(plugin.v12).cast());
    // RTLD_LOCAL: the tables do not become visible to the rest of the process.
    for name in r2ccl_abi::NET_SYMBOLS {
        // SAFETY: looks a name up and uses nothing of it.
        assert!(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null());
    }
}
