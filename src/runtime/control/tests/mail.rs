//! Links whose control connection never answers, and whose mails others carry.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::kit::{Node, config, numbered};
use crate::runtime::control::{Link, LinkError};

const FRAMES: u64 = 500;

/// Two nodes that take each other's TCP connections for silence.
struct Pair {
    nodes: [Node; 2],
    links: [Arc<Link>; 2],
    _silent: [std::net::TcpListener; 2],
}

impl Pair {
    fn new(giveup: Duration) -> Self {
        let [a, b] = ["a", "b"].map(|host| {
            let mut config = config(host);
            config.giveup = giveup;
            Node::with(config)
        });
        let ((one, ab), (two, ba)) = (a.silent_link(&b), b.silent_link(&a));
        Self {
            nodes: [a, b],
            links: [ab, ba],
            _silent: [one, two],
        }
    }

    /// Carries what is due; every `lost`-th mail is lost, and every third comes twice.
    fn carry(&self, lost: usize, carried: &mut usize) {
        for (side, node) in self.nodes.iter().enumerate() {
            let due = node
                .recorder
                .wait(|events| Some(std::mem::take(&mut events.mails)));
            for (link, is_asking) in due {
                *carried += 1;
                assert!(Arc::ptr_eq(&link, &self.links[side]));
                let mail = link.write_mail(is_asking);
                let other = &self.links[1 - side];
                if *carried % 3 == 0 {
                    other.take_mail(mail.clone());
                }
                if *carried % lost != 0 {
                    other.take_mail(mail);
                }
            }
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }

    fn has_all(&self, count: u64) -> bool {
        let numbers = |node: &Node| node.recorder.numbers().len() as u64;
        self.nodes.iter().all(|node| numbers(node) >= count)
    }
}

/// PROTOCOL R29: mails alone suffice, although some are lost and some come twice.
#[test]
fn frames_come_once_and_in_order_by_mail() {
    let pair = Pair::new(Duration::from_secs(60));
    let (mut carried, start) = (0, Instant::now());
    for number in 0..FRAMES {
        for link in &pair.links {
            link.send(numbered(number)).expect("sent");
        }
        if number % 50 == 0 {
            pair.carry(4, &mut carried);
        }
    }
    while !pair.has_all(FRAMES) {
        assert!(start.elapsed() < super::kit::PATIENCE, "{carried} mails");
        pair.carry(4, &mut carried);
    }
    for node in &pair.nodes {
        assert_eq!(node.recorder.numbers(), (0..FRAMES).collect::<Vec<_>>());
        assert_eq!(node.plane.counters().forged, 0);
    }
}

/// PROTOCOL R31: a peer that is heard over NICs is not given up; one that is not, is.
#[test]
fn a_peer_that_is_heard_is_not_given_up() {
    let giveup = Duration::from_millis(500);
    let pair = Pair::new(giveup);
    let (mut carried, mut number, start) = (0, 0, Instant::now());
    while start.elapsed() < 4 * giveup {
        if pair.has_all(number) {
            for link in &pair.links {
                link.send(numbered(number)).expect("the link stands");
            }
            number += 1;
        }
        pair.carry(usize::MAX, &mut carried);
    }
    assert!(number > 3, "{carried} mails");
    for node in &pair.nodes {
        let down = node.recorder.wait_down();
        assert!(matches!(down, LinkError::Lost(_)), "{down}");
    }
}

/// A mail that makes no sense is counted and changes nothing.
#[test]
fn a_mail_that_acknowledges_what_was_never_sent_is_dropped() {
    let pair = Pair::new(Duration::from_secs(60));
    let [_, b] = &pair.nodes;
    let mut mail = pair.links[0].write_mail(false);
    mail[0] = 9;
    pair.links[1].take_mail(mail);
    pair.links[1].take_mail(vec![1, 2, 3]);
    super::kit::wait_until("both are counted", || b.plane.counters().forged == 2);
    // One from the end of all numbers.
    pair.links[0].send(numbered(1)).expect("sent");
    let mut mail = pair.links[0].write_mail(false);
    mail[8..16].fill(0xff);
    pair.links[1].take_mail(mail);
    pair.links[1].take_mail(pair.links[0].write_mail(false));
    b.recorder.wait_frames(1);
    assert_eq!(b.recorder.numbers(), [1]);
    assert_eq!(pair.links[1].error(), None);
}
