//! What `r2ccl sim` says to those who run it: how a world failed, and how to see that again.

use std::process::Command;

use r2ccl_plugin_tests::plugin;

/// Worlds within which these deliberate bugs show.
const WORLDS: &str = "100";
/// Deliberate bugs with the exit code of their kind of failure: crash, safety, liveness.
const FAILURES: [(&str, i32); 3] = [
    ("ahead-at-any-size", 2),
    ("done-is-posted", 3),
    ("one-attempt", 4),
];

/// Exit code and last line of `r2ccl` with these arguments.
fn run<'a>(arguments: impl IntoIterator<Item = &'a str>) -> (Option<i32>, String) {
    let output = Command::new(plugin::command())
        .args(arguments)
        .output()
        .expect("the command starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    (output.status.code(), last.to_owned())
}

#[test]
fn exit_codes_tell_failures_apart_and_the_last_line_repeats_them() {
    let (code, last) = run(["sim", "--worlds", WORLDS]);
    assert_eq!(code, Some(0), "{last}");
    for (bug, kind) in FAILURES {
        let (code, last) = run(["sim", "--plant", bug, "--worlds", WORLDS]);
        assert_eq!(code, Some(kind), "{bug}: {last}");
        let again = last.strip_prefix("r2ccl ").expect("a command");
        assert_eq!(run(again.split(' ')), (code, last.clone()), "{bug}");
    }
}
