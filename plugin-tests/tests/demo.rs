//! The demonstration shows what it says: NICs die and come back, and no sum is wrong.

use std::process::Command;

use r2ccl_plugin_tests::command::result;
use r2ccl_plugin_tests::plugin;
use serde_json::Value;

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn nics_die_and_come_back_in_the_demonstration() {
    let folder = tempfile::tempdir().expect("a folder");
    let picture = folder.path().join("picture.svg");
    let output = Command::new(plugin::command())
        .args(["demo", "--json", "--seconds", "2", "--kills", "2", "--plot"])
        .arg(&picture)
        .env("R2CCL_PLUGIN", plugin::path())
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let shown = result(&output, "demo");
    assert_eq!(
        (&shown["good"], &shown["wrong"]),
        (&true.into(), &0.into()),
        "{shown:#}"
    );
    let alive: Vec<_> = list(&shown["phases"])
        .iter()
        .map(|phase| phase["nics_alive"].as_u64())
        .collect();
    assert_eq!(alive, [Some(4), Some(3), Some(2), Some(4)]);
    for phase in list(&shown["phases"]) {
        let rates = list(&phase["gbit_per_s_per_nic"]).iter();
        let carry = rates.map(|rate| rate.as_f64().expect("a number") > 0.002);
        let dead = 4 - phase["nics_alive"].as_u64().expect("a number") as usize;
        let expected = [true, dead < 1, dead < 2, true];
        assert_eq!(carry.collect::<Vec<_>>(), expected, "{phase:#}");
    }
    let back = list(&shown["back_after_s"]);
    assert!(
        back.len() == 2 && back.iter().all(Value::is_f64),
        "{back:?}"
    );
    let drawn = std::fs::read_to_string(&picture).expect("a picture");
    assert!(
        drawn.starts_with("<svg") && drawn.contains("soft1 dies"),
        "{drawn:.200}"
    );
}

#[test]
fn what_the_demonstration_cannot_do_is_said_at_once() {
    for (arguments, reason) in [
        (&["--kills", "4"][..], "1..=3"),
        (&["--seconds", "1"], "2..=60"),
        (&["--plugin", "/nowhere"], "/nowhere"),
    ] {
        let output = Command::new(plugin::command())
            .arg("demo")
            .args(arguments)
            .output()
            .expect("the command starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}
