//! All orders of a few events in the small world, thinned out, and whether they see anything.
//!
//! One test only: the switch of the bugs inside the core is one for the whole process.

use r2ccl_sim::{Bug, Kind, Schedule, run_small, searches};

const SEED: u64 = 0;
/// Events of a window; `r2ccl sim --interleave` takes any number.
const DEPTH: u32 = 2;
/// Of so many windows one is searched.
const STRIDE: usize = 199;
/// Events before which two faults strike in the usual order: more than there are until the messages
/// are through.
const INSTANTS: u64 = 64;

/// Deliberate bugs that take an unlucky order: the two faults alone do not show them, whenever they
/// strike.
const ORDERS: [(&str, [(Kind, u64); 2]); 4] = [
    // PROTOCOL R41.
    (
        "copy-is-not-awaited",
        [(Kind::LinkDown, 0), (Kind::LinkDown, 1 << 16 | 1)],
    ),
    // PROTOCOL R42.
    (
        "lost-is-taken",
        [(Kind::LinkDown, 0), (Kind::DeviceDead, 0)],
    ),
    // PROTOCOL R43.
    (
        "early-credit-is-dropped",
        [(Kind::LinkDown, 1), (Kind::DeviceDead, 0)],
    ),
    // PROTOCOL R53.
    (
        "no-quarantine",
        [(Kind::LinkDown, 1 << 16 | 1), (Kind::OwnError, 1)],
    ),
];

#[test]
fn orders_hold_and_show_bugs() {
    for mut schedule in searches(SEED, DEPTH).step_by(STRIDE) {
        let result = schedule.search(None);
        assert!(
            result.is_ok(),
            "r2ccl sim --schedule {schedule}: {result:?}"
        );
    }
    // Some bugs show as panics of the core.
    std::panic::set_hook(Box::new(|_| {}));
    let missed: Vec<_> = ORDERS.iter().filter(|bug| !needs_order(bug)).collect();
    let _ = std::panic::take_hook();
    assert!(
        missed.is_empty(),
        "{missed:?} are not found, or without an order"
    );
}

/// Whether a search finds a bug that no instants of the same faults show.
fn needs_order(&(name, blows): &(&str, [(Kind, u64); 2])) -> bool {
    let bug = Bug::named(name);
    let [one, two] = blows;
    let holds_at = |first, second| {
        let script = [(first, one.0, one.1), (second, two.0, two.1)];
        run_small(SEED, script, bug).is_ok()
    };
    let is_hidden =
        (0..INSTANTS).all(|first| (first..INSTANTS).all(|second| holds_at(first, second)));
    let found = searches(SEED, DEPTH)
        .take_while(|schedule| schedule.early.is_none())
        .filter(|schedule| schedule.blows == blows)
        .find_map(|mut schedule| schedule.search(bug).is_err().then_some(schedule));
    bug.is_some() && is_hidden && found.is_some_and(|schedule| is_repeated(&schedule, bug))
}

/// Whether a schedule, read from its text, fails with the bug once more and holds without it.
fn is_repeated(schedule: &Schedule, bug: Option<Bug>) -> bool {
    let read: Result<Schedule, _> = schedule.to_string().parse();
    read.as_ref() == Ok(schedule)
        && schedule.play(bug, None).is_err()
        && schedule.play(None, None).is_ok()
}
