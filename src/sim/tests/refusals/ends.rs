//! How a generation ends and another begins.

use core::ops::Range;

use r2ccl_core::wire::path_frame::{Endpoint, PathFrame};
use r2ccl_core::{
    Action, EndConfig, Evidence, FenceOutcome, Generation, Health, HealthSnapshot, ProbeKind,
    ReceiveEnd, Receiver, ReceiverConfig, SendEnd, Time,
};

use super::{GENERATION, MILLISECOND, PATH, at, health, other, post, send_end, statistics};

const ENDPOINT: Endpoint = Endpoint {
    queue_pair: [0; 64],
    memory_address: 0,
    memory_rkey: 0,
};
const SECOND: u64 = 1000;

/// Does what an end wants for a while, with a device and a peer that do their part at once.
fn obey(end: &mut SendEnd, milliseconds: Range<u64>) {
    obey_with(end, milliseconds, |_| true);
}

/// The same; `passes` says which probes do.
fn obey_with(
    end: &mut SendEnd,
    milliseconds: Range<u64>,
    mut passes: impl FnMut(ProbeKind) -> bool,
) {
    for now in milliseconds.map(at) {
        end.handle_timeout(now);
        while let Some(action) = end.poll_action(now) {
            let reply = reply(end, now, action, &mut passes);
            if let Some(frame) = reply {
                end.handle_frame(now, &frame).expect("legal");
            }
        }
    }
}

/// Does what an end wants; what its peer says to that.
fn reply(
    end: &mut SendEnd,
    now: Time,
    action: Action,
    passes: &mut impl FnMut(ProbeKind) -> bool,
) -> Option<PathFrame> {
    match action {
        Action::Fence { path, generation } => {
            end.handle_fenced(now, path, generation, FenceOutcome::Drained);
        }
        Action::Create { path, generation } => {
            end.handle_created(now, path, generation, Some(ENDPOINT));
        }
        Action::Connect {
            path, generation, ..
        } => {
            end.handle_connected(now, path, generation, true);
            return Some(PathFrame::Ready {
                path,
                generation,
                is_proved: true,
                is_active: false,
            });
        }
        Action::Probe {
            path,
            generation,
            kind,
            id,
        } => end.handle_probe(now, path, generation, id, passes(kind)),
        Action::Send(PathFrame::Fence { path, generation }) => {
            let receiver = Receiver::new(ReceiverConfig::default());
            return Some(PathFrame::Answer(receiver.empty_answer(path, generation)));
        }
        Action::Send(PathFrame::Offer {
            path, generation, ..
        }) => {
            return Some(PathFrame::Accept {
                path,
                generation,
                endpoint: ENDPOINT,
            });
        }
        Action::Send(_) | Action::Destroy { .. } => {}
    }
    None
}

fn state(end: &SendEnd) -> HealthSnapshot {
    end.snapshot().paths[PATH.index()].expect("added")
}

/// The present generation ends, at so many milliseconds.
fn lose(end: &mut SendEnd, milliseconds: u64) {
    assert!(state(end).health.is_in_service());
    let generation = state(end).generation;
    end.handle_evidence(at(milliseconds), PATH, generation, Evidence::Error);
}

/// PROTOCOL R50.
pub fn a_frame_is_said_ever_more_slowly() -> bool {
    let mut end = send_end(2);
    lose(&mut end, 1);
    let mut frames = 0;
    for now in (1..10 * SECOND).map(at) {
        end.handle_timeout(now);
        while let Some(action) = end.poll_action(now) {
            let is_fence = matches!(action, Action::Send(PathFrame::Fence { .. }));
            frames += u32::from(is_fence);
        }
    }
    (10..20).contains(&frames)
}

/// PROTOCOL R52: a device does not say whether it is drained.
pub fn an_answer_does_not_wait_for_ever() -> bool {
    let half = Receiver::new(ReceiverConfig::default());
    let mut end = ReceiveEnd::new(EndConfig::default(), half);
    end.add_path(Time::ZERO, PATH, GENERATION, (1, 1))
        .expect("first");
    end.handle_evidence(at(1), PATH, GENERATION, Evidence::Error);
    (1..SECOND).map(at).any(|now| {
        end.handle_timeout(now);
        let mut actions = core::iter::from_fn(|| end.poll_action(now));
        actions.any(|action| matches!(action, Action::Send(PathFrame::Answer(_))))
    })
}

/// PROTOCOL R56.
pub fn a_late_accept_is_dropped() -> bool {
    let mut end = send_end(2);
    lose(&mut end, 1);
    for now in (1..SECOND).map(at) {
        end.handle_timeout(now);
        while let Some(action) = end.poll_action(now) {
            match action {
                Action::Connect { .. } => return false,
                Action::Send(PathFrame::Offer { .. }) => {
                    let late = PathFrame::Accept {
                        path: PATH,
                        generation: GENERATION,
                        endpoint: ENDPOINT,
                    };
                    end.handle_frame(now, &late).expect("legal");
                }
                action => {
                    let said = reply(&mut end, now, action, &mut |_| true);
                    if let Some(frame) = said {
                        end.handle_frame(now, &frame).expect("legal");
                    }
                }
            }
        }
    }
    state(&end).generation == Generation(GENERATION.0 + 1) && health(&end) == Health::Rebuild
}

/// PROTOCOL R58.
pub fn a_stable_path_has_a_short_hold_down() -> bool {
    let config = EndConfig::default();
    let mut end = send_end(1);
    let mut hold_downs = Vec::new();
    // It fails, returns and fails at once, returns and is in service for long, and fails again.
    let stable = 10 * SECOND + config.stable_ns / MILLISECOND;
    let lives = [
        (1, 5 * SECOND),
        (5 * SECOND, 10 * SECOND + stable),
        (10 * SECOND + stable, 0),
    ];
    for (fails, until) in lives {
        lose(&mut end, fails);
        hold_downs.push(state(&end).hold_down_ns);
        obey(&mut end, fails..until);
    }
    let first = config.hold_down_ns;
    hold_downs == [first, 2 * first, first]
}

/// PROTOCOL R58.
pub fn the_hold_down_has_a_longest() -> bool {
    let longest = EndConfig::default().hold_down_max_ns;
    let mut end = send_end(1);
    // The only path is back after a second, whatever its hold-down is.
    for life in 0..10 {
        lose(&mut end, life * 2 * SECOND + 1);
        obey(&mut end, life * 2 * SECOND + 1..(life + 1) * 2 * SECOND);
    }
    state(&end).hold_down_ns == longest
}

/// PROTOCOL R58.
pub fn the_only_path_is_back_soon() -> bool {
    let mut end = send_end(1);
    for life in 0..3 {
        lose(&mut end, life * 5 * SECOND + 1);
        obey(&mut end, life * 5 * SECOND + 1..(life + 1) * 5 * SECOND);
    }
    assert!(state(&end).hold_down_ns > 2 * EndConfig::default().hold_down_ns);
    lose(&mut end, 15 * SECOND);
    obey(&mut end, 15 * SECOND..16 * SECOND + 100);
    health(&end) == Health::Active
}

/// PROTOCOL R58.
pub fn a_queue_pair_is_trusted_after_one_probe() -> bool {
    let mut end = send_end(2);
    post(&mut end, 10);
    let mut is_stuck = true;
    obey_with(&mut end, 0..200, |kind| {
        kind == ProbeKind::NicPair || !core::mem::take(&mut is_stuck)
    });
    assert_eq!(statistics(&end).queue_pair_faults, 1);
    health(&end) == Health::Active
}

/// PROTOCOL R58.
pub fn a_new_path_is_there_at_once() -> bool {
    let mut end = send_end(1);
    end.add_standby(at(1), other(), (1, 1));
    obey(&mut end, 1..100);
    let state = end.snapshot().paths[other().index()].expect("added");
    state.health == Health::Active && 2 * state.weight.0 == state.weight.1
}

/// PROTOCOL R58.
pub fn one_lost_probe_is_no_failure() -> bool {
    let mut end = send_end(2);
    lose(&mut end, 1);
    let mut probes = 0;
    obey_with(&mut end, 1..2 * SECOND, |_| {
        probes += 1;
        probes != 2
    });
    health(&end) == Health::Active && statistics(&end).closed == 1
}
