//! Scenarios by name; `r2ccl sim --list` prints what they are about.

use r2ccl_sim::{Scenario, Settings};

/// Plays a scenario with its usual seed.
fn play(name: &str) {
    let scenario = Scenario::named(name).expect("a scenario of that name");
    match scenario.play(Settings::default()) {
        Ok(figures) => println!("{name}: {}", figures.join("; ")),
        Err(failure) => panic!("r2ccl sim --scenario {name}: {failure:?}"),
    }
}

#[test]
fn nic_lost_8x8() {
    play("nic-lost-8x8");
}

#[test]
fn nic_lost_8x8_silent() {
    play("nic-lost-8x8-silent");
}

#[test]
fn one_queue_pair_stuck() {
    play("one-queue-pair-stuck");
}

#[test]
fn credit_black_hole() {
    play("credit-black-hole");
}

#[test]
fn outage_48h() {
    play("outage-48h");
}

#[test]
fn outage_48h_no_event() {
    play("outage-48h-no-event");
}

#[test]
fn outage_48h_all_paths() {
    play("outage-48h-all-paths");
}

#[test]
fn congestion_1h() {
    play("congestion-1h");
}

/// CI runs the hour above.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes long without optimization")]
fn congestion_24h() {
    play("congestion-24h");
}
