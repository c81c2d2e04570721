//! What is asked between software NICs whose programs rest.

use std::time::{Duration, Instant};

use super::{device, queue_pair, wait};
use crate::{Completion, Opcode, QueuePair, SendWork};

/// After so long without progress the work of a queue pair is suspect.
const STALL: Duration = Duration::from_millis(25);
/// How long it takes until the other program has been roused.
const ROUSED_AFTER: Duration = Duration::from_millis(1);
const ROUNDS: u64 = 20;
/// Writes in a row after which a kernel delays its acknowledgements.
const WRITES: u64 = 40;
const QUESTION: u64 = 1 << 20;

fn post(queue_pair: &mut dyn QueuePair, id: u64) {
    // SAFETY: the write is empty.
    let posted = unsafe { queue_pair.post_send(&[SendWork::empty(id)]) };
    assert_eq!(posted, Ok(1));
}

/// Polls for so long, and whether that brought an answer of the NICs.
fn is_answered(queue_pair: &mut dyn QueuePair, time: Duration) -> bool {
    let start = Instant::now();
    let mut is_answered = false;
    let mut done = [Completion::EMPTY; 4];
    while start.elapsed() < time {
        let count = queue_pair.poll(&mut done);
        let mut opcodes = done[..count].iter().map(|completion| completion.opcode);
        is_answered |= opcodes.any(|opcode| opcode == Opcode::NicProbe);
        std::thread::yield_now();
    }
    is_answered
}

/// PROTOCOL R60: a program that computes does not look at its software NIC, whose kernel takes its
/// time to acknowledge the few bytes that wait there. That is no fault of the queue pair, if only
/// the program looks when it is roused.
#[test]
fn a_program_that_rests_speaks_against_no_queue_pair() {
    let device = device(1);
    let (mut a, mut b) = (queue_pair(&device), queue_pair(&device));
    a.connect(&b.address()).expect("connects");
    b.connect(&a.address()).expect("connects");
    let mut done = [Completion::EMPTY; 4];
    for round in 0..ROUNDS {
        for write in 0..WRITES {
            post(&mut *a, write);
            wait("a write", || {
                b.poll(&mut []);
                a.poll(&mut done) == 1
            });
        }
        post(&mut *a, 0);
        assert!(!is_answered(&mut *a, STALL), "nobody has asked");
        a.probe_nics(QUESTION);
        post(&mut *a, 1);
        let early = is_answered(&mut *a, ROUSED_AFTER);
        b.poll(&mut []);
        b.poll(&mut []);
        assert!(!early && !is_answered(&mut *a, STALL), "round {round}");
    }
}
