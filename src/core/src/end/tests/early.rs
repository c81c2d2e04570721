//! A peer that is silent while only credits of early messages are missing.

use super::{FIRST, MS, PATH, at, health, other, send_end};
use crate::end::{Action, EndConfig, Evidence, Failure, ProbeKind, SendEnd};
use crate::health::Health;
use crate::ids::{PathId, RegionId, Seq};
use crate::recovery::FenceOutcome;
use crate::time::Time;
use crate::wire::credit::Credit;

/// When requests fail at the latest: the give-up time, and some time to find every path bad.
const LATEST: u64 = 70_000;

/// An end with a send ahead of its credit.
fn early() -> SendEnd {
    let mut end = send_end(EndConfig::default(), 2);
    let half = end.half_mut();
    let sent = half.submit_eager(Time::ZERO, (RegionId(0), 0), 100, 0);
    assert!(sent.expect("legal").is_some());
    end
}

/// Lets time pass until `to`. While `answers`, probes pass; else the device reports each of them
/// as failed in the end. A device that is told to fence is silent at once.
fn pass(end: &mut SendEnd, from: u64, to: u64, answers: bool) -> Option<(u64, Failure)> {
    for ms in from..to {
        let now = at(ms);
        end.handle_timeout(now);
        while let Some(action) = end.poll_action(now) {
            match action {
                Action::Probe {
                    path,
                    generation,
                    id,
                    ..
                } if answers => end.handle_probe(now, path, generation, id, true),
                Action::Probe {
                    path,
                    generation,
                    kind: ProbeKind::QueuePair,
                    ..
                } => end.handle_evidence(now, path, generation, Evidence::Error),
                Action::Fence { path, generation } => {
                    end.handle_fenced(now, path, generation, FenceOutcome::Drained);
                }
                _ => {}
            }
        }
        if let Some(failure) = end.failure(now) {
            return Some((ms, failure));
        }
    }
    None
}

/// PROTOCOL R62: a send that waits for nothing but its credit fails as well when the peer is gone
/// without a word.
#[test]
fn a_send_that_waits_for_its_credit_fails() {
    let give_up = EndConfig::default().give_up_ns / MS;
    let mut end = early();
    let failed = pass(&mut end, 0, LATEST, false);
    let (when, failure) = failed.expect("given up");
    assert_eq!(failure, Failure::NoFence(PATH), "its own path comes first");
    assert!(when >= give_up, "not before its time: {when}");
}

/// PROTOCOL R62: the same when its own path was settled long ago, and the peer died afterwards.
#[test]
fn it_waits_on_the_next_path_when_its_own_is_settled() {
    let mut end = early();
    end.handle_evidence(at(1), PATH, FIRST, Evidence::Error);
    assert_eq!(pass(&mut end, 1, 100, true), None);
    end.handle_frame(at(100), &super::answer(FIRST, true))
        .expect("legal");
    assert_eq!(pass(&mut end, 100, 10_000, true), None);
    let failed = pass(&mut end, 10_000, 10_000 + LATEST, false);
    assert_eq!(failed.map(|(_, failure)| failure), Some(Failure::NoPath));
    let is_up = |path: PathId| health(&end, path).is_in_service();
    assert!(!is_up(PATH) && !is_up(other()));
}

/// PROTOCOL R62: the same for a send whose group lacks credits.
#[test]
fn a_send_of_a_broken_group_fails() {
    let mut end = send_end(EndConfig::default(), 2);
    let credit = Credit {
        seq: Seq(0),
        address: 0,
        capacity: 100,
        region: RegionId(0),
        tag: 0,
        group_size: 2,
        group_index: 0,
    };
    let half = end.half_mut();
    let taken = half.handle_credit(PATH, FIRST, &credit.encode(FIRST, Seq(0)));
    assert_eq!(taken, Ok(true));
    let submitted = half.submit_send(Time::ZERO, (RegionId(0), 0), 10, 0);
    assert_eq!(submitted, Ok(Some(Seq(0))));
    assert_eq!(half.poll_transmit(PATH), None, "the group is not filled");
    let failed = pass(&mut end, 0, LATEST, false);
    assert_eq!(failed.map(|(_, failure)| failure), Some(Failure::NoPath));
}

/// PROTOCOL R62: a peer that only stands still is waited for: its NIC answers.
#[test]
fn a_peer_that_stands_still_is_waited_for() {
    let mut end = early();
    assert_eq!(pass(&mut end, 0, 10 * LATEST, true), None);
    for path in [PATH, other()] {
        assert_eq!(health(&end, path), Health::Active);
    }
    assert_eq!(end.snapshot().statistics.closed, 0);
}
