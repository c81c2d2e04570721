//! How links end: death, loss, and sides that do not fit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use r2ccl_core::wire::handle::PROTOCOL_VERSION;

use super::kit::{Node, config, cut, numbered, wait_until};
use crate::runtime::control::{Link, LinkError};
use crate::runtime::error::Error;

/// The plane stops as a killed process does: sockets close, nothing is said.
fn assert_death(victim: &Node, witness: &Node, link: &Arc<Link>) {
    let start = Instant::now();
    victim.plane.stop();
    let error = witness.recorder.wait_down();
    let took = start.elapsed();
    assert!(matches!(error, LinkError::PeerDead(_)), "{error:?}");
    assert!(took < Duration::from_secs(1), "took {took:?}");
    let text = error.to_string();
    assert!(
        text.contains("refuses") && text.contains("process"),
        "{text}"
    );
    assert_eq!(link.error(), Some(error));
    assert!(!link.is_up());
    assert!(matches!(link.send(numbered(0)), Err(Error::Remote(_))));
    assert!(!link.flush(Instant::now()) || link.error().is_none());
    let again = witness.plane.link(&victim.plane.handle_for(9));
    assert!(
        matches!(again, Err(Error::Remote(_))),
        "a dead process stays dead"
    );
    witness
        .recorder
        .wait(|events| (events.downs.len() == 1).then_some(()));
}

/// PROTOCOL R31.
#[test]
fn death_of_the_dialled_side_is_seen_at_once() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let link = a.link(&b);
    link.send(numbered(1)).expect("sent");
    b.recorder.wait_frames(1);
    wait_until("up", || link.is_up());
    assert_death(&b, &a, &link);
}

/// PROTOCOL R31.
#[test]
fn death_of_the_dialling_side_is_seen_at_once() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    a.link(&b).send(numbered(1)).expect("sent");
    let link = b.recorder.wait(|events| events.links.first().cloned());
    assert_death(&a, &b, &link);
}

/// A forked child that does nothing and lives as long as this value.
struct IdleChild(nix::unistd::Pid);

impl IdleChild {
    fn fork() -> Self {
        // SAFETY: the child calls nothing but `prctl` and `pause`, which need no locks.
        match unsafe { nix::unistd::fork() }.expect("forked") {
            nix::unistd::ForkResult::Parent { child } => Self(child),
            nix::unistd::ForkResult::Child => loop {
                // SAFETY: as above; the child dies with its parent.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::pause();
                }
            },
        }
    }
}

impl Drop for IdleChild {
    fn drop(&mut self) {
        // It is gone when both fail.
        let _ = nix::sys::signal::kill(self.0, nix::sys::signal::Signal::SIGKILL);
        let _ = nix::sys::wait::waitpid(self.0, None);
    }
}

/// PROTOCOL R34.
#[test]
fn death_is_seen_although_a_forked_child_lives_on() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let link = a.link(&b);
    link.send(numbered(1)).expect("sent");
    b.recorder.wait_frames(1);
    wait_until("up", || link.is_up());
    let child = IdleChild::fork();
    assert_death(&b, &a, &link);
    drop(child);
}

/// PROTOCOL R31.
#[test]
fn a_cut_is_not_death() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    a.link(&b).send(numbered(1)).expect("sent");
    let link = b.recorder.wait(|events| events.links.first().cloned());
    for round in 1..=5 {
        wait_until("a connection to cut", || {
            cut(b.address()) + cut(a.address()) > 0
        });
        wait_until("it is made again", || {
            b.plane.counters().reconnects >= round
        });
        link.send(numbered(round)).expect("sent");
        a.recorder.wait_frames(round as usize);
    }
    assert_eq!((link.error(), a.link(&b).error()), (None, None));
}

/// PROTOCOL R31.
#[test]
fn a_peer_that_never_answers_is_lost_in_the_end() {
    let mut settings = config("a");
    settings.giveup = Duration::from_millis(200);
    let (a, b) = (Node::with(settings), Node::new("b"));
    let start = Instant::now();
    let (silent, link) = a.silent_link(&b);
    let address = silent.local_addr().expect("an address");
    // On a busy machine it may be lost already.
    let _ = link.send(numbered(1));
    let error = a.recorder.wait_down();
    assert!(start.elapsed() >= Duration::from_millis(200));
    let text = error.to_string();
    assert!(matches!(error, LinkError::Lost(_)), "{text}");
    assert!(
        text.contains(&address.to_string()) && text.contains("R2CCL_GIVEUP"),
        "{text}"
    );
    assert!(a.link(&b).error().is_none(), "a lost link is begun anew");
}

/// PROTOCOL R31: also who has never been reached is dead when all its addresses refuse.
#[test]
fn a_listener_that_is_gone_is_dead_at_once() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    b.plane.stop();
    // It may be dead already.
    let _ = a.link(&b).send(numbered(1));
    let error = a.recorder.wait_down();
    assert!(matches!(error, LinkError::PeerDead(_)), "{error}");
    let address = b.address().to_string();
    assert!(error.to_string().contains(&address), "{error}");
}

/// PROTOCOL R31.
#[test]
fn another_process_at_the_address_is_told_apart() {
    let (a, c) = (Node::new("a"), Node::new("c"));
    let mut handle = c.plane.handle_for(1);
    handle.instance += 1;
    a.plane.link(&handle).expect("a link");
    let text = a.recorder.wait_down().to_string();
    assert!(text.contains("another process"), "{text}");
    assert!(c.plane.links_are_empty());
}

/// A process that lost a link and begins it anew is played by a second plane with its identity.
#[test]
fn a_link_that_one_side_lost_begins_anew_on_both() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let old = a.link(&b);
    old.send(numbered(1)).expect("sent");
    let seen = b.recorder.wait(|events| events.links.first().cloned());

    let mut same = config("a");
    same.instance = Some(a.plane.instance());
    let anew = Node::with(same);
    let fresh = anew.link(&b);
    fresh.send(numbered(2)).expect("sent");
    b.recorder.wait_frames(2);
    assert_eq!(b.recorder.numbers(), [1, 2]);
    assert!(matches!(seen.error(), Some(LinkError::Lost(_))));
    let back = b.recorder.wait(|events| events.links.get(1).cloned());
    back.send(numbered(3)).expect("sent");
    anew.recorder.wait_frames(1);
    assert_eq!(fresh.error(), None);
    assert!(matches!(a.recorder.wait_down(), LinkError::Lost(_)));
}

#[test]
fn whoever_was_taken_for_dead_is_told() {
    let (a, b) = (Node::new("a"), Node::new("b"));
    a.link(&b).send(numbered(1)).expect("sent");
    b.recorder.wait_frames(1);
    a.plane.stop();
    assert!(matches!(b.recorder.wait_down(), LinkError::PeerDead(_)));
    let mut same = config("a");
    same.instance = Some(a.plane.instance());
    let ghost = Node::with(same);
    ghost.link(&b);
    let error = ghost.recorder.wait_down();
    assert!(
        matches!(error, LinkError::Lost(_)) && error.to_string().contains("died"),
        "{error}"
    );
}

/// PROTOCOL R33.
#[test]
fn differing_settings_are_named_on_both_sides() {
    let mut settings = config("b");
    settings.settings = vec![
        ("R2CCL_ACK".into(), "nic".into()),
        ("R2CCL_ROUTING_ALGO".into(), "2".into()),
    ];
    let (a, b) = (Node::new("a"), Node::with(settings));
    let link = a.link(&b);
    for node in [&a, &b] {
        let error = node.recorder.wait_down();
        let text = error.to_string();
        assert!(matches!(error, LinkError::Mismatch(_)), "{text}");
        for part in [
            "R2CCL_ACK",
            "\"nic\" on b",
            "\"delivered\" on a",
            "R2CCL_ROUTING_ALGO",
        ] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
    }
    assert!(matches!(link.send(numbered(1)), Err(Error::Usage(_))));
    assert!(matches!(
        a.plane.link(&b.plane.handle_for(1)),
        Err(Error::Usage(_))
    ));
}

/// PROTOCOL R33.
#[test]
fn differing_versions_are_named_on_both_sides() {
    let mut settings = config("b");
    settings.version = PROTOCOL_VERSION + 1;
    let (a, b) = (Node::new("a"), Node::with(settings));
    a.link(&b);
    for node in [&a, &b] {
        let error = node.recorder.wait_down();
        let text = error.to_string();
        assert!(matches!(error, LinkError::Mismatch(_)), "{text}");
        let versions = [PROTOCOL_VERSION, PROTOCOL_VERSION + 1];
        assert!(
            versions
                .iter()
                .all(|version| text.contains(&version.to_string())),
            "{text}"
        );
    }
}
