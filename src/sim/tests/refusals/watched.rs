//! What the watchdog concludes of work, probes and words against a path.

use r2ccl_core::limits::SEND_DEPTH;
use r2ccl_core::wire::eager::EagerHead;
use r2ccl_core::wire::path_frame::PathFrame;
use r2ccl_core::{
    Action, EndConfig, Evidence, Failure, Half, Health, PathId, ProbeKind, ReceiveBuffer,
    ReceiveEnd, Receiver, ReceiverConfig, RegionId, SendEnd, Seq, Time,
};

use super::{
    GENERATION, MILLISECOND, PATH, at, credit, health, other, post, send_end, send_end_with,
    statistics,
};

/// Bytes of a small message.
const SMALL: u32 = 10;

/// A probe that was asked for: of which path, which kind, by which number.
type Asked = (PathId, ProbeKind, u32);

/// What time brings, and the probes that are asked for then.
fn pass(end: &mut SendEnd, milliseconds: u64) -> Vec<Asked> {
    let now = at(milliseconds);
    end.handle_timeout(now);
    let actions = core::iter::from_fn(|| end.poll_action(now));
    let probe = |action| match action {
        Action::Probe { path, kind, id, .. } => Some((path, kind, id)),
        _ => None,
    };
    actions.filter_map(probe).collect()
}

/// Of what was asked, these probes pass.
fn answer(
    end: &mut SendEnd,
    milliseconds: u64,
    asked: &[Asked],
    passes: impl Fn(PathId, ProbeKind) -> bool,
) {
    for &(path, kind, id) in asked {
        if passes(path, kind) {
            end.handle_probe(at(milliseconds), path, GENERATION, id, true);
        }
    }
}

/// An end whose small message makes no progress, suspect at 100 ms.
fn stalled(paths: usize) -> (SendEnd, Vec<Asked>) {
    let mut end = send_end(paths);
    post(&mut end, SMALL);
    pass(&mut end, 1);
    let asked = pass(&mut end, 100);
    assert_eq!(health(&end), Health::Suspect);
    (end, asked)
}

/// An end with two paths of which somebody speaks against the first at 100 ms.
fn hinted() -> (SendEnd, Vec<Asked>) {
    hinted_with(EndConfig::default())
}

fn hinted_with(config: EndConfig) -> (SendEnd, Vec<Asked>) {
    let mut end = send_end_with(config, 2);
    post(&mut end, SMALL);
    pass(&mut end, 99);
    end.handle_evidence(at(100), PATH, GENERATION, Evidence::Hint);
    let asked = pass(&mut end, 100);
    (end, asked)
}

/// PROTOCOL R60.
pub fn large_work_has_its_time() -> bool {
    let mut end = send_end(2);
    // 134 ms at 1 Gb/s.
    post(&mut end, 16 << 20);
    pass(&mut end, 1);
    let asked = pass(&mut end, 100);
    asked.is_empty() && health(&end) == Health::Active
}

/// PROTOCOL R60.
pub fn progress_clears() -> bool {
    let (mut end, _) = stalled(2);
    post(&mut end, SMALL);
    let half = end.half_mut();
    half.handle_counter(PATH, GENERATION, 1).expect("posted");
    pass(&mut end, 110);
    health(&end) == Health::Active
}

/// PROTOCOL R60.
pub fn a_probe_ends() -> bool {
    let (mut end, asked) = stalled(2);
    answer(&mut end, 101, &asked, |path, _| path == other());
    pass(&mut end, 151);
    health(&end) == Health::Down
}

/// PROTOCOL R60.
pub fn a_good_probe_elsewhere_clears_nothing() -> bool {
    let (mut end, asked) = stalled(1);
    answer(&mut end, 101, &asked, |_, kind| kind == ProbeKind::NicPair);
    health(&end) == Health::Suspect
}

/// PROTOCOL R60.
pub fn a_passed_pair_probe_hurries_the_own_one() -> bool {
    let (mut end, asked) = stalled(1);
    answer(&mut end, 110, &asked, |_, kind| kind == ProbeKind::NicPair);
    pass(&mut end, 117);
    assert_eq!(health(&end), Health::Suspect);
    pass(&mut end, 118);
    health(&end) == Health::Down
}

/// PROTOCOL R60: messages of late took 60 ms each, and so may a probe behind them.
pub fn slow_work_is_waited_for() -> bool {
    let mut end = send_end(1);
    for _ in 0..4 {
        post(&mut end, SMALL);
    }
    let mut asked = Vec::new();
    for now in (1..250).step_by(2) {
        let delivered = (now / 60).min(3);
        let counted = end.half_mut().handle_counter(PATH, GENERATION, delivered);
        counted.expect("it was posted");
        asked.extend(pass(&mut end, now));
    }
    assert_eq!(health(&end), Health::Suspect);
    answer(&mut end, 250, &asked, |_, kind| kind == ProbeKind::NicPair);
    pass(&mut end, 290);
    let waits = health(&end) == Health::Suspect;
    pass(&mut end, 2000);
    assert_eq!(health(&end), Health::Down);
    waits
}

/// PROTOCOL R61: no probe passes, perhaps since the other end's program does not look.
pub fn a_silent_peer_is_woken() -> bool {
    let (mut end, _) = stalled(2);
    let now = at(400);
    end.handle_timeout(now);
    let mut actions = core::iter::from_fn(|| end.poll_action(now));
    let is_asked = actions.any(|action| action == Action::Send(PathFrame::Resend));
    assert_eq!(health(&end), Health::Suspect);
    is_asked
}

/// A receiving end with one path and an open receive.
fn receive_end() -> ReceiveEnd {
    let half = Receiver::new(ReceiverConfig::default());
    let mut end = ReceiveEnd::new(EndConfig::default(), half);
    end.add_path(Time::ZERO, PATH, GENERATION, (1, 1))
        .expect("first");
    let buffer = ReceiveBuffer {
        region: RegionId(0),
        address: 0,
        capacity: u64::from(SMALL),
        tag: 0,
    };
    let opened = end.half_mut().post_recv(Time::ZERO, &[buffer]);
    assert_eq!(opened, Ok(Some(Seq(0))));
    end
}

/// PROTOCOL R60.
pub fn a_full_queue_is_not_cleared() -> bool {
    let mut end = receive_end();
    while end.half().outstanding(PATH) < SEND_DEPTH {
        if end.half_mut().poll_transmit().is_none() {
            end.half_mut().resend_all(PATH, GENERATION);
        }
    }
    for now in (1..1000).map(at) {
        end.handle_timeout(now);
        while let Some(action) = end.poll_action(now) {
            if let Action::Probe { path, id, .. } = action {
                end.handle_probe(now, path, GENERATION, id, true);
            }
        }
    }
    end.health(PATH) == Some(Health::Down)
}

/// PROTOCOL R60 and R43: the only message came ahead of its credit and is reported.
pub fn what_is_said_again_is_watched() -> bool {
    let mut end = receive_end();
    let half = end.half_mut();
    let head = EagerHead {
        number: 1,
        frontier: Seq(0),
        bytes: SMALL,
        tag: 0,
    };
    let taken = half.handle_eager(PATH, GENERATION, &head.encode(GENERATION));
    assert_eq!(taken, Ok(true));
    half.poll_eager().expect("its receive");
    half.release(Seq(0), 1).expect("delivered");
    Half::resend(half);
    while half.poll_transmit().is_some() {}
    assert!(!half.is_waiting());
    half.work(PATH).is_waiting
}

/// PROTOCOL R61: when a pause that hit all paths ends, the first to answer is not better.
pub fn the_last_answer_does_not_count() -> bool {
    let (mut end, asked) = stalled(2);
    answer(&mut end, 149, &asked, |path, _| path == other());
    pass(&mut end, 151);
    health(&end) == Health::Suspect && statistics(&end).nowhere_better == 1
}

/// PROTOCOL R61.
pub fn a_hint_is_checked_soon() -> bool {
    let (mut end, asked) = hinted();
    answer(&mut end, 100, &asked, |path, _| path == other());
    assert_eq!(health(&end), Health::Suspect);
    pass(&mut end, 101);
    health(&end) == Health::Down
}

/// PROTOCOL R61.
pub fn a_hint_is_checked_once() -> bool {
    let (mut end, _) = hinted();
    let asked = pass(&mut end, 105);
    assert_eq!(asked.len(), 3);
    answer(&mut end, 106, &asked, |path, _| path == other());
    // The probes of all paths were late by a jitter of a quarter of their time at the most.
    pass(&mut end, 130);
    health(&end) == Health::Suspect
}

/// PROTOCOL R61.
pub fn progress_does_not_clear_a_hint() -> bool {
    let (mut end, _) = hinted();
    post(&mut end, SMALL);
    let half = end.half_mut();
    half.handle_counter(other(), GENERATION, 1).expect("posted");
    pass(&mut end, 104);
    health(&end) == Health::Suspect
}

/// PROTOCOL R62.
pub fn a_broken_group_is_watched() -> bool {
    let mut end = send_end(2);
    let half = end.half_mut();
    let line = credit(0, (0, 2), SMALL).encode(GENERATION, Seq(0));
    assert_eq!(half.handle_credit(PATH, GENERATION, &line), Ok(true));
    let submitted = half.submit_send(Time::ZERO, (RegionId(0), 0), u64::from(SMALL), 0);
    assert_eq!(submitted, Ok(Some(Seq(0))));
    assert_eq!(half.poll_transmit(PATH), None, "the group is not filled");
    half.work(PATH).is_waiting
}

/// PROTOCOL R62.
pub fn silence_ends() -> bool {
    let give_up_ms = EndConfig::default().give_up_ns / MILLISECOND;
    let (mut end, _) = stalled(2);
    let is_early = |end: &SendEnd| end.failure(at(99 + give_up_ms)).is_some();
    // Nobody answers, on either path.
    for milliseconds in (100..100 + give_up_ms).step_by(20) {
        pass(&mut end, milliseconds);
        assert!(!is_early(&end) && health(&end) == Health::Suspect);
    }
    end.failure(at(100 + give_up_ms)) == Some(Failure::NoPath)
}

/// PROTOCOL R61.
pub fn a_hint_is_not_limited() -> bool {
    let (mut end, asked) = hinted_with(EndConfig {
        evictions_max: 0,
        ..EndConfig::default()
    });
    answer(&mut end, 101, &asked, |path, _| path == other());
    pass(&mut end, 105);
    health(&end) == Health::Down
}
