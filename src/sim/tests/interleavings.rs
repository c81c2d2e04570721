//! All orders of a few events in the small world, thinned out.
//!
//! One test only: the switch of the bugs inside the core is one for the whole process.

use r2ccl_sim::searches;

const SEED: u64 = 1;
/// Events of a window; `r2ccl sim --interleave` takes any number.
const DEPTH: u32 = 2;
/// Of so many windows one is searched.
const STRIDE: usize = 499;

#[test]
fn orders_hold() {
    for mut schedule in searches(SEED, DEPTH).step_by(STRIDE) {
        let result = schedule.search(None);
        assert!(
            result.is_ok(),
            "r2ccl sim --schedule {schedule}: {result:?}"
        );
    }
}
