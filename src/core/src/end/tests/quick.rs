//! How soon probes decide.

use super::{FIRST, PATH, Vec, actions, at, health, other, post, probes, reply, send_end, stalled};
use crate::end::{EndConfig, Evidence, ProbeKind, SendEnd};
use crate::health::Health;
use crate::ids::PathId;

/// PROTOCOL R60: once the NICs are known to talk, their queue pair has little time left.
#[test]
fn a_passed_pair_probe_hurries_the_own_one() {
    let (mut end, asked) = stalled(1);
    reply(&mut end, &asked, |_, kind| kind == ProbeKind::NicPair);
    actions(&mut end, 117);
    assert_eq!(health(&end, PATH), Health::Suspect);
    actions(&mut end, 118);
    assert_eq!(health(&end, PATH), Health::Down);
    assert_eq!(end.snapshot().statistics.queue_pair_faults, 1);
}

/// An end with two paths of which somebody speaks against the first at 100 ms, with its probes.
fn hinted() -> (SendEnd, Vec<(PathId, ProbeKind, u32)>) {
    let mut end = send_end(EndConfig::default(), 2);
    post(&mut end);
    actions(&mut end, 99);
    end.handle_evidence(at(100), PATH, FIRST, Evidence::Hint);
    let asked = probes(&actions(&mut end, 100));
    (end, asked)
}

/// Answers what `passes` at once.
fn answer_at_once(
    end: &mut SendEnd,
    asked: &[(PathId, ProbeKind, u32)],
    passes: impl Fn(PathId, ProbeKind) -> bool,
) {
    for &(path, kind, id) in asked {
        if passes(path, kind) {
            end.handle_probe(at(100), path, FIRST, id, true);
        }
    }
}

/// PROTOCOL R61: where somebody spoke against a path, its NICs have to answer soon; messages that
/// were on their way do not speak for it.
#[test]
fn a_word_against_a_path_is_checked_soon() {
    let (mut end, asked) = hinted();
    answer_at_once(&mut end, &asked, |path, _| path == other());
    let half = end.half_mut();
    half.handle_counter(other(), FIRST, 1).expect("posted");
    post(&mut end);
    actions(&mut end, 100);
    assert_eq!(health(&end, PATH), Health::Suspect);
    actions(&mut end, 101);
    assert_eq!(health(&end, PATH), Health::Down);
    assert_eq!(end.snapshot().statistics.hinted_evictions, 1);

    // The other path is as busy as this host.
    let (mut end, asked) = hinted();
    actions(&mut end, 103);
    assert_eq!(health(&end, PATH), Health::Suspect);
    answer_at_once(&mut end, &asked, |path, _| path == other());
    actions(&mut end, 104);
    assert_eq!(health(&end, PATH), Health::Down);

    // It was wrong.
    let (mut end, asked) = hinted();
    answer_at_once(&mut end, &asked, |_, _| true);
    actions(&mut end, 110);
    assert_eq!(health(&end, PATH), Health::Active);

    // Nobody answers soon: the next probes have the usual time.
    let (mut end, _) = hinted();
    let asked = probes(&actions(&mut end, 105));
    assert_eq!(asked.len(), 3);
    assert_eq!(health(&end, PATH), Health::Suspect);
    assert_eq!(end.snapshot().statistics.nowhere_better, 1);
    answer_at_once(&mut end, &asked, |path, _| path == other());
    actions(&mut end, 130);
    assert_eq!(health(&end, PATH), Health::Suspect);
}

/// PROTOCOL R61: when a pause that hit all paths ends, the first to answer is not better.
#[test]
fn an_answer_at_the_last_moment_is_no_reason_to_leave() {
    let (mut end, asked) = stalled(2);
    for &(path, _, id) in asked.iter().filter(|(path, ..)| *path == other()) {
        end.handle_probe(at(149), path, FIRST, id, true);
    }
    actions(&mut end, 151);
    assert_eq!(health(&end, PATH), Health::Suspect);
    assert_eq!(end.snapshot().statistics.nowhere_better, 1);
}
