//! One end at a time, driven by hand: times, verdicts and repeated frames.

extern crate std;

mod early;
mod quick;
mod vain;

use super::{Action, End, EndConfig, Evidence, Failure, ProbeKind, ReceiveEnd, Routing, SendEnd};
use crate::health::Health;
use crate::ids::{Generation, PathId, RegionId, Seq};
use crate::receiver::{ReceiveBuffer, Receiver, ReceiverConfig};
use crate::recovery::FenceOutcome;
use crate::sender::{Sender, SenderConfig};
use crate::time::Time;
use crate::wire::credit::Credit;
use crate::wire::path_frame::{Endpoint, PathFrame};
use std::vec::Vec;

const PATH: PathId = PathId::PRIMARY;
const FIRST: Generation = Generation(1);
const MS: u64 = 1_000_000;
const ENDPOINT: Endpoint = Endpoint {
    queue_pair: [1; 64],
    memory_address: 2,
    memory_rkey: 3,
};

fn at(ms: u64) -> Time {
    Time::from_nanoseconds(ms * MS)
}

fn other() -> PathId {
    PathId::new(1).expect("in range")
}

fn send_end(config: EndConfig, paths: usize) -> SendEnd {
    let sender = Sender::new(SenderConfig::default()).expect("valid");
    let mut end = End::new(config, sender);
    for path in [PATH, other()].into_iter().take(paths) {
        let share = u32::from(path == PATH);
        end.add_path(Time::ZERO, path, FIRST, (share, 1))
            .expect("first");
    }
    end
}

fn receive_end(paths: usize) -> ReceiveEnd {
    let mut end = End::new(
        EndConfig::default(),
        Receiver::new(ReceiverConfig::default()),
    );
    for path in [PATH, other()].into_iter().take(paths) {
        end.add_path(Time::ZERO, path, FIRST, (1, 1))
            .expect("first");
    }
    end
}

/// Posts one message on the primary path.
fn post(end: &mut SendEnd) {
    post_on(end, PATH);
}

fn post_on(end: &mut SendEnd, path: PathId) {
    let half = end.half_mut();
    let (_, seq) = half.expected_credit();
    let credit = Credit {
        seq,
        address: 0x1000,
        capacity: 100,
        region: RegionId(1),
        tag: 0,
        group_size: 1,
        group_index: 0,
    };
    assert_eq!(
        half.handle_credit(PATH, FIRST, &credit.encode(FIRST, Seq(0))),
        Ok(true)
    );
    let submitted = half.submit_send(Time::ZERO, (RegionId(0), 0), 10, 0);
    assert_eq!(submitted, Ok(Some(seq)));
    half.poll_transmit(path).expect("posted");
}

fn actions<H: super::Half>(end: &mut End<H>, ms: u64) -> Vec<Action> {
    end.handle_timeout(at(ms));
    core::iter::from_fn(|| end.poll_action(at(ms))).collect()
}

/// Runs idle from `from` to `to` by the end's own timeouts; counts what it did.
fn idle<H: super::Half>(end: &mut End<H>, from: u64, to: u64) -> (usize, Vec<(u64, Action)>) {
    let (mut wakes, mut seen, mut now) = (0, Vec::new(), at(from));
    while now <= at(to) {
        end.handle_timeout(now);
        while let Some(action) = end.poll_action(now) {
            seen.push((now.nanoseconds() / MS, action));
        }
        let Some(next) = end.next_timeout() else {
            break;
        };
        wakes += 1;
        now = next.max(now.plus(1000));
    }
    (wakes, seen)
}

fn health<H: super::Half>(end: &End<H>, path: PathId) -> Health {
    end.snapshot().paths[path.index()].expect("added").health
}

fn probes(actions: &[Action]) -> Vec<(PathId, ProbeKind, u32)> {
    let probe = |action: &Action| match action {
        Action::Probe { path, kind, id, .. } => Some((*path, *kind, *id)),
        _ => None,
    };
    actions.iter().filter_map(probe).collect()
}

fn answer(generation: Generation, is_fenced: bool) -> PathFrame {
    let receiver = Receiver::new(ReceiverConfig::default());
    let mut answer = receiver.empty_answer(PATH, generation);
    answer.is_fenced = is_fenced;
    PathFrame::Answer(answer)
}

/// PROTOCOL R50: one error is enough, both ends are told until they know, and nothing undoes it.
#[test]
fn a_fence_is_final_and_repeated() {
    let mut end = send_end(EndConfig::default(), 2);
    end.handle_evidence(at(1), PATH, FIRST, Evidence::Error);
    let fence = Action::Send(PathFrame::Fence {
        path: PATH,
        generation: FIRST,
    });
    let device = Action::Fence {
        path: PATH,
        generation: FIRST,
    };
    assert_eq!(actions(&mut end, 1), [device, fence]);
    end.handle_evidence(at(2), PATH, FIRST, Evidence::Error);
    assert_eq!(actions(&mut end, 2), []);
    let (_, seen) = idle(&mut end, 3, 10_000);
    let repeats = seen.iter().filter(|(_, action)| *action == fence).count();
    assert!((10..30).contains(&repeats), "ever more slowly: {repeats}");
    assert_eq!(health(&end, PATH), Health::Down);
}

/// PROTOCOL R52: the receiver answers each question, but not before its commit point: at the
/// outcome of its fence, or when that takes too long.
#[test]
fn the_receiver_answers_after_its_commit_point() {
    let mut end = receive_end(2);
    let fence = PathFrame::Fence {
        path: PATH,
        generation: FIRST,
    };
    let answers = |actions: Vec<Action>| {
        let is_fenced = |action| match action {
            Action::Send(PathFrame::Answer(answer)) => Some(answer.is_fenced),
            _ => None,
        };
        actions
            .into_iter()
            .filter_map(is_fenced)
            .collect::<Vec<_>>()
    };
    end.handle_frame(at(0), &fence).expect("legal");
    assert_eq!(answers(actions(&mut end, 0)), [false; 0]);
    end.handle_frame(at(20), &fence).expect("legal");
    assert_eq!(answers(actions(&mut end, 49)), [false; 0]);
    assert_eq!(answers(actions(&mut end, 50)), [false], "the deadline");
    end.handle_frame(at(60), &fence).expect("legal");
    assert_eq!(answers(actions(&mut end, 60)), [false]);
    // A device that is gone may still have writes on their way into memory.
    end.handle_fenced(at(70), PATH, FIRST, FenceOutcome::DeviceLost);
    assert_eq!(answers(actions(&mut end, 70)), [false]);
    end.handle_fenced(at(80), PATH, FIRST, FenceOutcome::Drained);
    assert_eq!(answers(actions(&mut end, 80)), [true], "unasked");
}

/// PROTOCOL R53: the quarantine counts from the end of the source's drain, and not at all under
/// the strict setting.
#[test]
fn quarantine_counts_from_the_drain() {
    for is_fence_strict in [false, true] {
        let config = EndConfig {
            is_fence_strict,
            ..EndConfig::default()
        };
        let mut end = send_end(config, 1);
        end.handle_evidence(at(0), PATH, FIRST, Evidence::Error);
        actions(&mut end, 0);
        end.handle_frame(at(5), &answer(FIRST, false))
            .expect("legal");
        end.handle_fenced(at(900), PATH, FIRST, FenceOutcome::Unknown);
        end.handle_fenced(at(1000), PATH, FIRST, FenceOutcome::Drained);
        actions(&mut end, 2999);
        assert!(!end.half().is_settled(PATH));
        actions(&mut end, 3000);
        assert_eq!(end.half().is_settled(PATH), !is_fence_strict);
        end.handle_frame(at(3001), &answer(FIRST, true))
            .expect("legal");
        assert!(end.half().is_settled(PATH));
        assert_eq!(
            end.snapshot().statistics.quarantines,
            u64::from(!is_fence_strict)
        );
    }
}

/// Ends the generation and settles it at once.
fn lose(end: &mut SendEnd, ms: u64, generation: Generation) {
    end.handle_evidence(at(ms), PATH, generation, Evidence::Error);
    end.handle_frame(at(ms), &answer(generation, true))
        .expect("legal");
}

/// Brings the path back; returns the time when it was in service.
fn come_back(end: &mut SendEnd, mut ms: u64, generation: Generation) -> u64 {
    let path = PATH;
    let start = ms;
    while !actions(end, ms).contains(&Action::Create { path, generation }) {
        ms += 1;
        assert!(ms < start + 100, "no attempt");
    }
    end.handle_created(at(ms), path, generation, Some(ENDPOINT));
    let accept = PathFrame::Accept {
        path,
        generation,
        endpoint: ENDPOINT,
    };
    end.handle_frame(at(ms), &accept).expect("legal");
    end.handle_connected(at(ms), path, generation, true);
    let ready = PathFrame::Ready {
        path,
        generation,
        is_proved: true,
        is_active: false,
    };
    end.handle_frame(at(ms), &ready).expect("legal");
    while health(end, path) != Health::Active {
        for (path, _, id) in probes(&actions(end, ms)) {
            end.handle_probe(at(ms), path, generation, id, true);
        }
        ms += 1;
        assert!(ms < start + 200_000, "never proved");
    }
    ms
}

/// PROTOCOL R58: the hold-down doubles with each flap, ends at its longest, and is forgotten
/// after ten stable minutes.
#[test]
fn hold_down_doubles_with_each_flap() {
    let mut end = send_end(EndConfig::default(), 2);
    let (mut ms, mut number) = (1000, 1);
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        lose(&mut end, ms, Generation(number));
        number += 1;
        let back = come_back(&mut end, ms, Generation(number));
        let took = back - ms;
        assert!(
            (seconds * 1000..seconds * 1000 + 100).contains(&took),
            "{took}"
        );
        ms = back + 10_000;
    }
    ms += 600_000;
    lose(&mut end, ms, Generation(number));
    let back = come_back(&mut end, ms, Generation(number + 1));
    assert!((1000..1100).contains(&(back - ms)));
    // With no other path in service it is not doubled.
    end.handle_evidence(at(back), other(), FIRST, Evidence::Error);
    lose(&mut end, back + 1, Generation(number + 1));
    let took = come_back(&mut end, back + 1, Generation(number + 2)) - back;
    assert!((1000..1100).contains(&took), "{took}");
}

/// PROTOCOL R57: attempts go on for ever, with a back-off up to a minute; a knock cuts it short.
#[test]
fn back_off_ends_at_a_minute_and_a_knock_cuts_it() {
    let mut end = send_end(EndConfig::default(), 1);
    lose(&mut end, 1000, FIRST);
    let hours = 48 * 3600 * 1000;
    let (mut wakes, mut now, mut attempts, mut longest) = (0, 1000, 0, 0);
    let mut last = now;
    while now < hours {
        for action in actions(&mut end, now) {
            if let Action::Create { path, generation } = action {
                attempts += 1;
                longest = longest.max(now - last);
                last = now;
                end.handle_created(at(now), path, generation, None);
            }
        }
        wakes += 1;
        let next = end.next_timeout().expect("never gives up").nanoseconds();
        now = next.div_ceil(MS).max(now + 1);
    }
    assert!((2880..4000).contains(&attempts), "{attempts}");
    assert!(
        longest <= 60_000 && wakes < 3 * attempts,
        "{longest} {wakes}"
    );
    // Somebody plugs the cable in.
    let frame = PathFrame::Knock { path: PATH };
    end.handle_frame(at(now), &frame).expect("legal");
    let is_create = |action: &Action| matches!(action, Action::Create { .. });
    let soon = (now..now + 20).find(|&ms| actions(&mut end, ms).iter().any(is_create));
    assert!(soon.is_some());
}

/// PROTOCOL R56: late words about an older attempt change nothing.
#[test]
fn late_words_about_older_attempts_are_dropped() {
    let mut end = receive_end(1);
    let offer = |generation| PathFrame::Offer {
        path: PATH,
        generation: Generation(generation),
        endpoint: ENDPOINT,
    };
    let created = |end: &mut ReceiveEnd, ms, generation| {
        let action = Action::Create {
            path: PATH,
            generation: Generation(generation),
        };
        actions(end, ms).contains(&action)
    };
    end.handle_frame(at(0), &offer(2)).expect("legal");
    assert!(!created(&mut end, 0, 2), "the old generation is alive");
    end.handle_fenced(at(1), PATH, FIRST, FenceOutcome::Drained);
    end.handle_frame(at(2), &offer(2)).expect("legal");
    assert!(created(&mut end, 2, 2));
    end.handle_frame(at(3), &offer(5)).expect("legal");
    assert!(created(&mut end, 3, 5));
    for late in [1, 2, 4] {
        end.handle_frame(at(4), &offer(late)).expect("legal");
    }
    assert!(
        ![1, 2, 4]
            .map(|late| created(&mut end, 4, late))
            .contains(&true)
    );
    end.handle_created(at(5), PATH, Generation(2), Some(ENDPOINT));
    let is_accept = |action: &Action| matches!(action, Action::Send(PathFrame::Accept { .. }));
    assert!(!actions(&mut end, 5).iter().any(is_accept));
    end.handle_created(at(6), PATH, Generation(5), Some(ENDPOINT));
    assert!(actions(&mut end, 6).iter().any(is_accept));
}

/// A stalled path at 200 ms, with its probes.
fn stalled(paths: usize) -> (SendEnd, Vec<(PathId, ProbeKind, u32)>) {
    let mut end = send_end(EndConfig::default(), paths);
    post(&mut end);
    assert!(probes(&actions(&mut end, 1)).is_empty());
    let asked = probes(&actions(&mut end, 100));
    assert_eq!(health(&end, PATH), Health::Suspect);
    (end, asked)
}

fn reply(
    end: &mut SendEnd,
    asked: &[(PathId, ProbeKind, u32)],
    passed: impl Fn(PathId, ProbeKind) -> bool,
) {
    for &(path, kind, id) in asked {
        if passed(path, kind) {
            end.handle_probe(at(110), path, FIRST, id, true);
        }
    }
}

/// PROTOCOL R60: what the two probes prove.
#[test]
fn probes_tell_queue_pair_from_nic() {
    let own = ProbeKind::QueuePair;
    let (mut end, asked) = stalled(2);
    assert_eq!(
        asked.len(),
        3,
        "own queue pair, own NICs, the other path's NICs"
    );
    reply(&mut end, &asked, |_, kind| kind == own);
    assert_eq!(health(&end, PATH), Health::Active);
    assert_eq!(end.snapshot().statistics.transients, 1);

    // A good probe elsewhere does not clear it; the queue pair is made again, without hold-down.
    let (mut end, asked) = stalled(1);
    reply(&mut end, &asked, |_, kind| kind != own);
    assert_eq!(health(&end, PATH), Health::Suspect);
    actions(&mut end, 151);
    assert_eq!(health(&end, PATH), Health::Down);
    assert_eq!(end.snapshot().statistics.queue_pair_faults, 1);
    end.handle_frame(at(151), &answer(FIRST, true))
        .expect("legal");
    assert!(come_back(&mut end, 151, Generation(2)) < 180);
}

/// PROTOCOL R61: nobody leaves a path for one that is no better, or too often.
#[test]
fn eviction_needs_somewhere_better() {
    let (mut end, asked) = stalled(2);
    reply(&mut end, &asked, |path, _| path == other());
    actions(&mut end, 170);
    assert_eq!(health(&end, PATH), Health::Down);
    assert_eq!(end.snapshot().statistics.evictions, 1);

    let (mut end, _) = stalled(2);
    let (_, seen) = idle(&mut end, 110, 2000);
    let asked_again = seen
        .iter()
        .filter(|(_, action)| matches!(action, Action::Probe { .. }));
    assert!(asked_again.count() > 10);
    assert_eq!(health(&end, PATH), Health::Suspect);
    assert!(end.snapshot().statistics.nowhere_better > 5);

    let (mut end, asked) = stalled(2);
    end.evictions_count = EndConfig::default().evictions_max;
    reply(&mut end, &asked, |path, _| path == other());
    actions(&mut end, 170);
    assert_eq!(health(&end, PATH), Health::Suspect);
    assert_eq!(end.snapshot().statistics.evictions_limited, 1);
}

/// PROTOCOL R62: requests wait for the give-up time after the last path was lost, then fail and
/// say why; without requests nothing fails.
#[test]
fn requests_fail_after_the_give_up_time() {
    let give_up = EndConfig::default().give_up_ns / MS;
    let mut end = receive_end(1);
    end.handle_evidence(at(5), PATH, FIRST, Evidence::Error);
    assert_eq!(end.failure(at(5 + give_up)), None, "nobody waits");
    let buffer = ReceiveBuffer {
        region: RegionId(0),
        address: 0,
        capacity: 1,
        tag: 0,
    };
    end.half_mut()
        .post_recv(at(6), &[buffer])
        .expect("legal")
        .expect("room");
    assert_eq!(end.failure(at(4 + give_up)), None);
    assert_eq!(end.failure(at(5 + give_up)), Some(Failure::NoPath));

    // Only messages that the generation held wait for its fence.
    for is_touched in [false, true] {
        let mut end = send_end(EndConfig::default(), 2);
        if is_touched {
            post(&mut end);
        }
        end.handle_evidence(at(5), PATH, FIRST, Evidence::Error);
        assert_eq!(end.failure(at(4 + give_up)), None);
        let failure = is_touched.then_some(Failure::NoFence(PATH));
        assert_eq!(end.failure(at(5 + give_up)), failure);
    }
}

/// PROTOCOL R63: a drained path carries nothing new while another can; the last one goes on.
#[test]
fn drain_and_undrain() {
    let mut end = send_end(
        EndConfig {
            routing: Routing::Balance,
            ..EndConfig::default()
        },
        2,
    );
    let heaviest = |end: &SendEnd| end.route.expect("set").entries()[0].path;
    end.drain(at(1), PATH, true);
    assert_eq!(heaviest(&end), other());
    end.drain(at(2), other(), true);
    assert_eq!(heaviest(&end), other(), "the last one goes on");
    end.handle_evidence(at(2), other(), FIRST, Evidence::Error);
    assert_eq!(heaviest(&end), PATH);
    end.drain(at(3), PATH, false);
    assert_eq!(heaviest(&end), PATH);
}

/// PROTOCOL R63: whichever end is told, both leave the path and both come back, whatever order the
/// words come in.
#[test]
fn the_other_end_drains_too() {
    let (mut end, mut peer) = (send_end(EndConfig::default(), 2), receive_end(2));
    let said = |end: &mut SendEnd| match end.poll_action(at(1)) {
        Some(Action::Send(frame)) => frame,
        other => panic!("{other:?}"),
    };
    let credit_path = |peer: &ReceiveEnd| peer.route.expect("set").entries()[0].path;
    end.drain(at(1), PATH, true);
    let first = said(&mut end);
    end.drain(at(1), PATH, true);
    assert_eq!(end.poll_action(at(1)), None, "no news");
    end.drain(at(1), PATH, false);
    let second = said(&mut end);
    peer.handle_frame(at(2), &first).expect("legal");
    assert_eq!(credit_path(&peer), other());
    peer.handle_frame(at(2), &second).expect("legal");
    assert_eq!(credit_path(&peer), PATH);
    peer.handle_frame(at(2), &first).expect("legal");
    assert_eq!(credit_path(&peer), PATH, "late words do not count");
    let heard = Some(Action::Send(PathFrame::Drained {
        path: PATH,
        serial: 2,
    }));
    assert_eq!(peer.poll_action(at(2)), heard);
    assert_eq!(peer.poll_action(at(2)), None);
    // The answer may be lost: the word comes again, and then no more.
    let again = end.next_timeout().expect("a repetition");
    assert_eq!(end.poll_action(again), Some(Action::Send(second)));
    peer.handle_frame(again, &second).expect("legal");
    let Some(Action::Send(answer)) = peer.poll_action(again) else {
        panic!("no answer");
    };
    end.handle_frame(again, &answer).expect("legal");
    assert_eq!(end.next_timeout(), None);
    // Its own order stands, whatever the other end says.
    peer.drain(at(3), PATH, true);
    end.drain(at(3), PATH, true);
    peer.handle_frame(at(4), &said(&mut end)).expect("legal");
    peer.drain(at(5), PATH, false);
    assert_eq!(credit_path(&peer), other());
}

/// PROTOCOL R63: a drained path is out of use when both ends have nothing under way there, and not
/// before.
#[test]
fn what_is_under_way_on_a_drained_path_finishes() {
    let (mut sender, mut receiver) = (send_end(EndConfig::default(), 2), receive_end(2));
    post(&mut sender);
    let word = |end: &mut SendEnd| match end.poll_action(at(1)) {
        Some(Action::Send(frame)) => Some(frame),
        None => None,
        other => panic!("{other:?}"),
    };
    // Told at the receiver's end, by whom nothing is under way.
    receiver.drain(at(1), PATH, true);
    assert!(receiver.is_leaving());
    let Some(Action::Send(drain)) = receiver.poll_action(at(1)) else {
        panic!("no word");
    };
    sender.handle_frame(at(1), &drain).expect("legal");
    assert_eq!(word(&mut sender), None, "a message is under way");
    assert!(sender.is_leaving() && !receiver.is_out(PATH));
    sender.half_mut().handle_goodbye(1).expect("delivered");
    let answer = word(&mut sender).expect("the answer");
    assert!(!sender.is_leaving());
    receiver.handle_frame(at(2), &answer).expect("legal");
    assert!(receiver.is_out(PATH) && !receiver.is_leaving());
    // A late answer says nothing about a later drain.
    receiver.drain(at(3), PATH, false);
    assert!(!receiver.is_out(PATH) && !receiver.is_leaving());
    receiver.drain(at(3), PATH, true);
    receiver.handle_frame(at(4), &answer).expect("legal");
    assert!(!receiver.is_out(PATH));
}

/// PROTOCOL R15: credits that the sender may have missed come again, on a path that is left: when
/// it asks, and unasked when a generation ends.
#[test]
fn credits_come_again() {
    let mut end = receive_end(2);
    let buffer = ReceiveBuffer {
        region: RegionId(0),
        address: 0,
        capacity: 1,
        tag: 0,
    };
    end.half_mut()
        .post_recv(at(0), &[buffer])
        .expect("legal")
        .expect("room");
    let paths = |end: &mut ReceiveEnd| {
        let writes = core::iter::from_fn(|| end.half_mut().poll_transmit());
        writes.map(|write| write.path).collect::<Vec<_>>()
    };
    let credit_path = paths(&mut end)[0];
    assert_eq!(paths(&mut end), []);
    end.handle_frame(at(1), &PathFrame::Resend).expect("legal");
    assert_eq!(paths(&mut end), [credit_path; 2], "credit and counter");
    end.handle_evidence(at(2), credit_path, FIRST, Evidence::Error);
    let left = if credit_path == PATH { other() } else { PATH };
    assert_eq!(paths(&mut end), [left; 2]);
}
