//! What must not be so, each as a function that says whether it is not.

pub mod ends;
pub mod halves;
pub mod watched;

use r2ccl_core::wire::credit::Credit;
use r2ccl_core::{
    EndConfig, EndStatistics, Generation, Health, PathId, RegionId, SendEnd, Sender, SenderConfig,
    Seq, Time,
};

pub const PATH: PathId = PathId::PRIMARY;
pub const GENERATION: Generation = Generation(5);
pub const MILLISECOND: u64 = 1_000_000;

/// Another path.
pub fn other() -> PathId {
    PathId::new(1).expect("in range")
}

pub fn at(milliseconds: u64) -> Time {
    Time::from_nanoseconds(milliseconds * MILLISECOND)
}

/// A credit for message `seq`, which is `index` of a group of `size`.
pub fn credit(seq: u64, (index, size): (u8, u8), capacity: u32) -> Credit {
    Credit {
        seq: Seq(seq),
        address: 0,
        capacity,
        region: RegionId(0),
        tag: index.into(),
        group_size: size,
        group_index: index,
    }
}

/// A sending end with one path or two, of which the first takes all.
pub fn send_end(paths: usize) -> SendEnd {
    send_end_with(EndConfig::default(), paths)
}

/// The same, with other settings.
pub fn send_end_with(config: EndConfig, paths: usize) -> SendEnd {
    let half = Sender::new(SenderConfig::default()).expect("valid");
    let mut end = SendEnd::new(config, half);
    for path in [PATH, other()].into_iter().take(paths) {
        let share = u32::from(path == PATH);
        end.add_path(Time::ZERO, path, GENERATION, (share, 1))
            .expect("first");
    }
    end
}

/// The credit of the next message comes, of `bytes`, and all of it is posted on the first path.
pub fn post(end: &mut SendEnd, bytes: u32) {
    let half = end.half_mut();
    let (_, seq) = half.expected_credit();
    let line = credit(seq.0, (0, 1), bytes).encode(GENERATION, Seq(0));
    half.handle_credit(PATH, GENERATION, &line).expect("valid");
    half.submit_send(Time::ZERO, (RegionId(0), 0), bytes.into(), 0)
        .expect("valid");
    while half.poll_transmit(PATH).is_some() {}
}

pub fn health(end: &SendEnd) -> Health {
    end.snapshot().paths[PATH.index()].expect("added").health
}

pub fn statistics(end: &SendEnd) -> EndStatistics {
    end.snapshot().statistics
}
