//! The small model: two paths, two messages, two faults, at every pair of instants.

use crate::bug::Bug;
use crate::fault::Kind;
use crate::sweep::{Failure, run_one};
use crate::world::Options;

/// Faults of the small model.
pub const SMALL_KINDS: [Kind; 8] = [
    Kind::LinkDown,
    Kind::OneWay,
    Kind::AcksLost,
    Kind::PairBlackHole,
    Kind::OwnError,
    Kind::DeviceDead,
    Kind::FenceHangs,
    Kind::ControlDown,
];

/// Ends and paths that a fault may hit: the number from which a world chooses its victim.
pub const VICTIMS: [u64; 4] = [0, 1, 1 << 16, 1 << 16 | 1];

/// One world of the small model.
pub type Script = [(u64, Kind, u64); 2];

/// All scripts whose faults strike before one of the events 0, `stride`, 2 × `stride` … below
/// `depth`, the first not after the second.
pub fn scripts(depth: u64, stride: usize) -> impl Iterator<Item = Script> {
    let faults = || {
        let each = |kind| VICTIMS.into_iter().map(move |victim| (kind, victim));
        SMALL_KINDS.into_iter().flat_map(each)
    };
    (0..depth).step_by(stride).flat_map(move |first| {
        (first..depth).step_by(stride).flat_map(move |second| {
            faults().flat_map(move |(one, at)| {
                faults().map(move |(two, other)| [(first, one, at), (second, two, other)])
            })
        })
    })
}

/// Lets a world of the small model happen.
pub fn run_small(seed: u64, script: Script, bug: Option<Bug>) -> Result<(), Failure> {
    let options = Options {
        seed,
        bug,
        small: Some(script),
        ..Options::default()
    };
    run_one(options).map(|_| ())
}
