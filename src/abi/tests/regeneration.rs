//! The committed bindings are what bindgen makes of `nccl-headers` today.

#![cfg(feature = "bindgen")]

const COMMITTED: &str = include_str!("../src/bindings.rs");
const REGENERATED: &str = include_str!(concat!(env!("OUT_DIR"), "/bindings.rs"));

#[test]
fn committed_bindings_are_current() {
    let differing = COMMITTED
        .lines()
        .zip(REGENERATED.lines())
        .position(|(a, b)| a != b);
    assert!(
        COMMITTED == REGENERATED,
        "src/abi/src/bindings.rs is not what bindgen makes of nccl-headers (first difference at \
         line {}): run scripts/regen-bindings.sh",
        differing.map_or(
            COMMITTED.lines().count().min(REGENERATED.lines().count()),
            |at| at
        ) + 1
    );
}
