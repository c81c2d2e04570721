//! Both ends of a connection while paths fail, stall, hang and come back.

mod storm;

use proptest::prelude::*;
use storm::{Plan, World};

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// PROTOCOL R50 to R57: whatever fails, and whichever control frames are lost, everything is
    /// delivered once, nothing lands or is read late, and paths come back.
    #[test]
    fn any_faults_lose_nothing(seed in 1u64.., paths in 1usize..=4, faults in 0usize..=14) {
        World::new(Plan { seed, paths, messages: 120, faults, bytes_max: 300 << 10 }).run();
    }
}

/// The worlds above do what they claim to: counted over a fixed set of them.
#[test]
fn the_faults_are_seen() {
    let (mut replayed, mut quarantines, mut returns, mut late) = (0, 0, 0, 0);
    let (mut lost, mut queue_pair_faults, mut evictions, mut waited) = (0, 0, 0, 0);
    let (mut eager, mut eager_lost) = (0, 0);
    for seed in 1..=100 {
        let paths = 1 + seed as usize % 4;
        let plan = Plan {
            seed,
            paths,
            messages: 150,
            faults: 12,
            bytes_max: 300 << 10,
        };
        let mut world = World::new(plan);
        world.run();
        let statistics = world.sender.snapshot().statistics;
        replayed += world.sender.half().snapshot().statistics.replayed_segments;
        quarantines += statistics.quarantines;
        returns += statistics.returns;
        let receiver = world.receiver.snapshot().statistics;
        queue_pair_faults += statistics.queue_pair_faults + receiver.queue_pair_faults;
        evictions += statistics.evictions;
        waited += statistics.nowhere_better;
        late += world.wire.landed_late;
        lost += world.lost_frames;
        eager += world.sender.half().snapshot().statistics.eager_sends;
        eager_lost += world.sender.half().snapshot().statistics.eager_lost;
    }
    let seen = [
        replayed,
        quarantines,
        returns,
        queue_pair_faults,
        evictions,
        waited,
        eager_lost,
    ];
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
    assert!(late > 0 && lost > 0, "{late} {lost}");
    assert!(eager > 500, "{eager} {eager_lost}");
}
