//! Deliberate bugs inside the core that no honest world shows: it takes a peer or a caller that
//! breaks the protocol, or an instant that the faults of a world do not give. Each check holds
//! without its bug, and fails with it.
//!
//! One test only: the switch of these bugs is one for the whole process.

mod table;

use r2ccl_core::limits::WINDOW;
use r2ccl_core::planted::{Bug, plant};
use r2ccl_core::wire::credit::Credit;
use r2ccl_core::wire::immediate::Immediate;
use r2ccl_core::wire::path_frame::{Endpoint, PathFrame};
use r2ccl_core::{
    Action, Answer, Arrival, EagerReport, EndConfig, Evidence, FenceOutcome, Generation, Health,
    PathId, ProbeKind, ReceiveBuffer, Receiver, ReceiverConfig, RegionId, Route, SendEnd, Sender,
    SenderConfig, Seq, Time,
};

const PATH: PathId = PathId::PRIMARY;
const GENERATION: Generation = Generation(5);
const MILLISECOND: u64 = 1_000_000;

/// Bugs with what must not be so: false means that it is.
const CHECKS: [(Bug, fn() -> bool); 8] = [
    (Bug::DuplicatesCount, a_segment_counts_once),
    (Bug::CountersAreBelieved, no_counter_beyond_what_was_posted),
    (Bug::ResentIsUnsigned, what_is_said_again_is_signalled),
    (Bug::ReportedTakesMore, a_reported_message_takes_nothing),
    (Bug::TimeGoesBack, time_does_not_go_back),
    (
        Bug::AnswersAreBelieved,
        no_answer_claims_what_was_not_posted,
    ),
    (Bug::HoldDownStays, a_stable_path_has_a_short_hold_down),
    (Bug::OtherProbeClears, a_good_probe_elsewhere_clears_nothing),
];

#[test]
fn deliberate_bugs_fail_their_checks() {
    let mut listed: Vec<_> = table::rows()
        .into_iter()
        .filter(|row| row.shown_by == "check")
        .map(|row| row.name)
        .collect();
    let names = CHECKS.iter().flat_map(|(bug, _)| {
        let names = Bug::ALL.iter().filter(move |(_, known)| known == bug);
        names.map(|(name, _)| (*name).to_owned())
    });
    let mut checked: Vec<_> = names.collect();
    listed.sort_unstable();
    checked.sort_unstable();
    assert_eq!(checked, listed, "docs/PROTOCOL.md says \"check\" of these");
    for (bug, check) in CHECKS {
        plant(None);
        assert!(check(), "{bug:?} is not planted, but its check fails");
        plant(Some(bug));
        assert!(!check(), "{bug:?} passes its check");
    }
}

/// A receiver with two open messages of 100 bytes, opened at 7 and 3 ns.
fn receiver() -> Receiver {
    let mut receiver = Receiver::new(ReceiverConfig::default());
    receiver.add_path(PATH, GENERATION).expect("first");
    receiver.set_credit_path(PATH).expect("known");
    let buffer = ReceiveBuffer {
        region: RegionId(0),
        address: 0,
        capacity: 100,
        tag: 0,
    };
    for nanoseconds in [7, 3] {
        let now = Time::from_nanoseconds(nanoseconds);
        receiver.post_recv(now, &[buffer]).expect("valid");
    }
    receiver
}

/// Segment `index` of `count` of a message, with ten bytes.
fn arrive(receiver: &mut Receiver, seq: u64, index: u8, count: u8) -> Option<Arrival> {
    let immediate = Immediate::new(Seq(seq), index, count, GENERATION).encode();
    receiver
        .handle_arrival(PATH, GENERATION, immediate, 10)
        .ok()
}

/// PROTOCOL R5.
fn a_segment_counts_once() -> bool {
    let mut receiver = receiver();
    let first = arrive(&mut receiver, 0, 0, 2);
    let second = arrive(&mut receiver, 0, 0, 2);
    first == Some(Arrival::Segment(Seq(0)))
        && second == Some(Arrival::Duplicate(Seq(0)))
        && receiver.bytes(Seq(0)) == 10
}

/// PROTOCOL R15.
fn what_is_said_again_is_signalled() -> bool {
    let mut receiver = receiver();
    let first = receiver.poll_transmit().expect("credits");
    receiver.resend_all(PATH, GENERATION);
    let again = receiver.poll_transmit().expect("credits");
    !first.signaled && again.signaled
}

/// PROTOCOL R16.
fn a_reported_message_takes_nothing() -> bool {
    let mut receiver = receiver();
    assert_eq!(
        arrive(&mut receiver, 1, 0, 1),
        Some(Arrival::Delivered(Seq(1)))
    );
    receiver.release(Seq(1), 1).expect("delivered");
    arrive(&mut receiver, 1, 0, 1).is_none()
}

/// PROTOCOL R17.
fn time_does_not_go_back() -> bool {
    let mut receiver = receiver();
    arrive(&mut receiver, 0, 0, 1);
    receiver.snapshot().waiting_since == Some(Time::from_nanoseconds(7))
}

fn sender() -> Sender {
    let mut sender = Sender::new(SenderConfig::default()).expect("valid");
    sender.add_path(PATH, GENERATION).expect("first");
    sender.set_route(Route::single(PATH)).expect("known");
    sender
}

/// PROTOCOL R10.
fn no_counter_beyond_what_was_posted() -> bool {
    sender().handle_counter(PATH, GENERATION, 1).is_err()
}

/// PROTOCOL R18.
fn no_answer_claims_what_was_not_posted() -> bool {
    let mut sender = sender();
    sender.close_path(PATH, GENERATION);
    let mut answer = Answer {
        path: PATH,
        generation: GENERATION,
        is_fenced: true,
        eager: EagerReport::default(),
        first: Seq(0),
        count: 1,
        arrived: [0; WINDOW],
    };
    answer.arrived[0] = 1;
    sender.handle_answer(&answer).is_err()
}

/// PROTOCOL R60.
fn a_good_probe_elsewhere_clears_nothing() -> bool {
    let half = Sender::new(SenderConfig::default()).expect("valid");
    let mut end = SendEnd::new(EndConfig::default(), half);
    end.add_path(Time::ZERO, PATH, GENERATION, (1, 1))
        .expect("first");
    let credit = Credit {
        seq: Seq(0),
        address: 0,
        capacity: 10,
        region: RegionId(0),
        tag: 0,
        group_size: 1,
        group_index: 0,
    };
    let half = end.half_mut();
    half.handle_credit(PATH, GENERATION, &credit.encode(GENERATION))
        .expect("valid");
    half.submit_send(Time::ZERO, (RegionId(0), 0), 10, 0)
        .expect("valid");
    half.poll_transmit(PATH).expect("a segment");
    for now in (0..100).map(|step| Time::from_nanoseconds(step * MILLISECOND)) {
        end.handle_timeout(now);
        while let Some(action) = end.poll_action(now) {
            let Action::Probe { kind, id, .. } = action else {
                continue;
            };
            if kind == ProbeKind::NicPair {
                end.handle_probe(now, PATH, GENERATION, id, true);
                let state = end.snapshot().paths[PATH.index()].expect("added");
                return state.health == Health::Suspect;
            }
        }
    }
    false
}

/// Does what an end wants for a while, with a device and a peer that do their part at once.
fn obey(end: &mut SendEnd, milliseconds: core::ops::Range<u64>) {
    let endpoint = Endpoint {
        queue_pair: [0; 64],
        memory_address: 0,
        memory_rkey: 0,
    };
    for now in milliseconds.map(|step| Time::from_nanoseconds(step * MILLISECOND)) {
        end.handle_timeout(now);
        while let Some(action) = end.poll_action(now) {
            let reply = reply(end, now, action, endpoint);
            if let Some(frame) = reply {
                end.handle_frame(now, &frame).expect("legal");
            }
        }
    }
}

/// Does what an end wants; what its peer says to that.
fn reply(end: &mut SendEnd, now: Time, action: Action, endpoint: Endpoint) -> Option<PathFrame> {
    match action {
        Action::Fence { path, generation } => {
            end.handle_fenced(now, path, generation, FenceOutcome::Drained);
        }
        Action::Create { path, generation } => {
            end.handle_created(now, path, generation, Some(endpoint));
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
            id,
            ..
        } => end.handle_probe(now, path, generation, id, true),
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
                endpoint,
            });
        }
        Action::Send(_) | Action::Destroy { .. } => {}
    }
    None
}

/// PROTOCOL R58.
fn a_stable_path_has_a_short_hold_down() -> bool {
    let config = EndConfig::default();
    let half = Sender::new(SenderConfig::default()).expect("valid");
    let mut end = SendEnd::new(config, half);
    end.add_path(Time::ZERO, PATH, GENERATION, (1, 1))
        .expect("first");
    let mut hold_downs = Vec::new();
    // It fails, returns and fails at once, returns and is in service for long, and fails again.
    let stable = 10_000 + config.stable_ns / MILLISECOND;
    for (fails, until) in [(1, 5_000), (5_000, 10_000 + stable), (10_000 + stable, 0)] {
        let now = Time::from_nanoseconds(fails * MILLISECOND);
        let state = end.snapshot().paths[PATH.index()].expect("added");
        assert!(state.health.is_in_service());
        end.handle_evidence(now, PATH, state.generation, Evidence::Error);
        let state = end.snapshot().paths[PATH.index()].expect("added");
        hold_downs.push(state.hold_down_ns);
        obey(&mut end, fails..until);
    }
    let first = config.hold_down_ns;
    hold_downs == [first, 2 * first, first]
}
