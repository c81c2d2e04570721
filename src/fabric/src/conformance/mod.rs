//! The behaviours that every device must show, as a list that runs on any of them.
//!
//! A device kind brings a [`Fixture`]; a test runs each entry of [`BEHAVIOURS`] on it. A behaviour
//! panics where the device breaks its word: this module is for tests only.

mod errors;
mod fences;
mod kit;
mod transfer;

use std::time::Duration;

use crate::{SharedDevice, Status};

/// What a device kind brings to the list.
pub trait Fixture {
    /// Two devices whose queue pairs can reach each other; may be the same ones at each call.
    fn devices(&self) -> (SharedDevice, SharedDevice);

    /// How the device ends work whose local key or bounds are wrong.
    fn local_fault(&self) -> Status {
        Status::LocalProtection
    }

    /// How long a condition may take to come true.
    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }
}

/// One entry of the list.
pub struct Behaviour {
    /// Name for reports.
    pub name: &'static str,
    /// Shows it, or panics.
    pub run: fn(&dyn Fixture),
}

macro_rules! behaviours {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$(Behaviour { name: stringify!($name), run: $module::$name }),*]
    };
}

/// The list.
pub const BEHAVIOURS: &[Behaviour] = behaviours![
    transfer::writes_land_exactly,
    transfer::immediates_keep_their_order,
    transfer::empty_writes_need_no_key,
    transfer::inline_writes_copy_at_once,
    transfer::inline_writes_do_not_share_their_bytes,
    transfer::unsignaled_success_is_silent,
    transfer::signaled_completions_keep_their_order,
    transfer::a_completion_covers_all_earlier_data,
    transfer::both_directions_at_once,
    transfer::work_posted_before_connecting_is_held,
    transfer::missing_receives_hold_the_write,
    transfer::a_full_send_queue_pushes_back,
    transfer::many_queue_pairs_share_a_device,
    transfer::aligned_words_are_never_torn,
    errors::wrong_remote_keys_are_refused,
    errors::remote_bounds_are_checked,
    errors::regions_for_local_use_are_not_written,
    errors::wrong_local_keys_fail_locally,
    errors::local_bounds_are_checked,
    errors::malformed_work_is_not_posted,
    errors::an_error_leaves_other_queue_pairs_alone,
    errors::an_error_flushes_everything,
    errors::posting_after_an_error_is_refused,
    errors::retries_end_when_the_peer_goes,
    fences::nothing_lands_after_set_error,
    fences::nothing_lands_after_deregistration,
    fences::nothing_is_read_after_set_error,
];
