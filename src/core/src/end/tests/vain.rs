//! Completions that were lost on a queue pair that works otherwise.

use super::{FIRST, MS, PATH, at, health, other, post, post_on, receive_end, send_end};
use crate::end::{Action, End, EndConfig, Half};
use crate::health::Health;
use crate::ids::RegionId;
use crate::limits::SEND_DEPTH;
use crate::receiver::ReceiveBuffer;
use crate::route::Route;
use crate::time::Time;

/// Lets time pass until `to`, with all probes passing at once.
fn pass_all<H: Half>(end: &mut End<H>, from: u64, to: u64) {
    let mut now = at(from);
    while now <= at(to) {
        end.handle_timeout(now);
        while let Some(action) = end.poll_action(now) {
            if let Action::Probe {
                path,
                generation,
                id,
                ..
            } = action
            {
                end.handle_probe(now, path, generation, id, true);
            }
        }
        now = now.plus(MS);
    }
}

/// PROTOCOL R60: what was acknowledged and does not become delivered, although all was said again,
/// has not been heard of.
#[test]
fn probes_that_pass_in_vain_condemn_the_path() {
    let mut end = send_end(EndConfig::default(), 2);
    post(&mut end);
    pass_all(&mut end, 1, 300);
    assert!(end.snapshot().statistics.transients > 1);
    assert_eq!(health(&end, PATH), Health::Active, "not at once");
    pass_all(&mut end, 300, 1000);
    assert_eq!(health(&end, PATH), Health::Down);
    assert_eq!(health(&end, other()), Health::Active);
    assert_eq!(end.snapshot().statistics.queue_pair_faults, 1);

    // Progress begins the count anew.
    let mut end = send_end(EndConfig::default(), 2);
    for second in 0..8 {
        post(&mut end);
        pass_all(&mut end, second * 300 + 1, second * 300 + 300);
        let half = end.half_mut();
        half.handle_counter(PATH, FIRST, second + 1)
            .expect("posted");
    }
    assert_eq!(health(&end, PATH), Health::Active);
}

/// PROTOCOL R60: a path whose messages only wait for an older one elsewhere is not to blame.
#[test]
fn only_the_oldest_message_blames_its_path() {
    let mut end = send_end(EndConfig::default(), 2);
    let route = Route::single(other());
    end.half_mut().set_route(route).expect("added");
    post_on(&mut end, other());
    end.half_mut()
        .set_route(Route::single(PATH))
        .expect("added");
    post(&mut end);
    pass_all(&mut end, 1, 1000);
    assert_eq!(health(&end, other()), Health::Down);
    assert_eq!(health(&end, PATH), Health::Active);
}

/// PROTOCOL R60: a send queue that stays full when a probe behind all its work has passed is none.
#[test]
fn a_full_queue_behind_a_passed_probe_condemns_the_path() {
    let mut end = receive_end(1);
    let buffer = ReceiveBuffer {
        region: RegionId(0),
        address: 0,
        capacity: 1,
        tag: 0,
    };
    let opened = end.half_mut().post_recv(Time::ZERO, &[buffer]);
    assert!(matches!(opened, Ok(Some(_))));
    pass_all(&mut end, 1, 2000);
    assert_eq!(health(&end, PATH), Health::Active, "the sender may rest");
    while end.half().outstanding(PATH) < SEND_DEPTH {
        if end.half_mut().poll_transmit().is_none() {
            end.half_mut().resend_all(PATH, FIRST);
        }
    }
    pass_all(&mut end, 2000, 3000);
    assert_eq!(health(&end, PATH), Health::Down);
}
