//! Deliberate bugs inside the core that no honest world shows: it takes a peer or a caller that
//! breaks the protocol, or an instant that the faults of a world do not give. Each check holds
//! without its bug, and fails with it.
//!
//! One test only: the switch of these bugs is one for the whole process.

mod refusals;
mod table;

use r2ccl_core::planted::{Bug, plant};
use refusals::{ends, halves, watched};

/// A bug with what must not be so: false means that it is.
type Check = (Bug, fn() -> bool);

/// Of what a half takes and posts.
const OF_HALVES: &[Check] = &[
    (Bug::HeaviestTakesAll, halves::small_messages_take_turns),
    (Bug::SharesMayBeThin, halves::no_share_is_thin),
    (
        Bug::UnopenedTakes,
        halves::an_unopened_message_takes_nothing,
    ),
    (Bug::DuplicatesCount, halves::a_segment_counts_once),
    (Bug::CountsMayDiffer, halves::segments_agree_on_their_count),
    (
        Bug::BuffersMayOverflow,
        halves::no_segment_is_beyond_its_buffer,
    ),
    (Bug::GroupsMayHaveGaps, halves::no_group_has_gaps),
    (Bug::LastCutIsReported, halves::the_first_cut_is_reported),
    (
        Bug::LinesAreOfAnyGeneration,
        halves::a_line_names_its_generation,
    ),
    (
        Bug::CountersAreBelieved,
        halves::no_counter_beyond_what_was_posted,
    ),
    (
        Bug::FullWindowIsDeaf,
        halves::a_full_window_is_freed_by_the_next_line,
    ),
    (Bug::OldCreditsCount, halves::an_old_credit_is_dropped),
    (Bug::OldCountersCount, halves::an_old_counter_is_dropped),
    (
        Bug::ImmediatesAreOfAnyGeneration,
        halves::an_immediate_names_its_generation,
    ),
    (Bug::CounterIsSaidOnce, halves::the_counter_is_said_again),
    (
        Bug::ResentIsUnsigned,
        halves::what_is_said_again_is_signalled,
    ),
    (
        Bug::ReportedTakesMore,
        halves::a_reported_message_takes_nothing,
    ),
    (Bug::TimeGoesBack, halves::time_does_not_go_back),
    (
        Bug::AnswersAreBelieved,
        halves::no_answer_claims_what_was_not_posted,
    ),
    (Bug::EachAnswerCounts, halves::the_first_answer_counts),
    (
        Bug::AllWaitForFences,
        halves::others_do_not_wait_for_a_fence,
    ),
];

/// Of how a generation ends and another begins.
const OF_ENDS: &[Check] = &[
    (
        Bug::FramesKeepTheirPace,
        ends::a_frame_is_said_ever_more_slowly,
    ),
    (
        Bug::AnswersWhenDrained,
        ends::an_answer_does_not_wait_for_ever,
    ),
    (Bug::LateAcceptCounts, ends::a_late_accept_is_dropped),
    (
        Bug::HoldDownStays,
        ends::a_stable_path_has_a_short_hold_down,
    ),
    (Bug::HoldDownHasNoCap, ends::the_hold_down_has_a_longest),
    (
        Bug::TrustIsForgotten,
        ends::a_queue_pair_is_trusted_after_one_probe,
    ),
    (Bug::NewPathsWait, ends::a_new_path_is_there_at_once),
    (Bug::LonelyPathsWait, ends::the_only_path_is_back_soon),
    (Bug::OneLostProbeFails, ends::one_lost_probe_is_no_failure),
];

/// Of what the watchdog concludes.
const OF_WATCHDOG: &[Check] = &[
    (Bug::BytesNeedNoTime, watched::large_work_has_its_time),
    (Bug::ProbesHaveNoEnd, watched::a_probe_ends),
    (Bug::SlowIsStuck, watched::slow_work_is_waited_for),
    (Bug::ProgressClearsNothing, watched::progress_clears),
    (
        Bug::OtherProbeClears,
        watched::a_good_probe_elsewhere_clears_nothing,
    ),
    (
        Bug::OwnProbeIsNotHurried,
        watched::a_passed_pair_probe_hurries_the_own_one,
    ),
    (
        Bug::FullQueueIsCleared,
        watched::a_full_queue_is_not_cleared,
    ),
    (
        Bug::ResentIsUnwatched,
        watched::what_is_said_again_is_watched,
    ),
    (Bug::NobodyIsWoken, watched::a_silent_peer_is_woken),
    (
        Bug::LastAnswersCount,
        watched::the_last_answer_does_not_count,
    ),
    (Bug::HintsTakeTheirTime, watched::a_hint_is_checked_soon),
    (Bug::HintsStay, watched::a_hint_is_checked_once),
    (Bug::HintsAreLimited, watched::a_hint_is_not_limited),
    (
        Bug::ProgressOutweighsHints,
        watched::progress_does_not_clear_a_hint,
    ),
    (Bug::GroupIsUnwatched, watched::a_broken_group_is_watched),
    (Bug::SilenceHasNoEnd, watched::silence_ends),
];

#[test]
fn deliberate_bugs_fail_their_checks() {
    let mut listed: Vec<_> = table::rows()
        .into_iter()
        .filter(|row| row.shown_by == "check")
        .map(|row| row.name)
        .collect();
    let checks = || OF_HALVES.iter().chain(OF_ENDS).chain(OF_WATCHDOG);
    let names = checks().flat_map(|(bug, _)| {
        let names = Bug::ALL.iter().filter(move |(_, known)| known == bug);
        names.map(|(name, _)| (*name).to_owned())
    });
    let mut checked: Vec<_> = names.collect();
    listed.sort_unstable();
    checked.sort_unstable();
    assert_eq!(checked, listed, "docs/PROTOCOL.md says \"check\" of these");
    for &(bug, check) in checks() {
        plant(None);
        assert!(check(), "{bug:?} is not planted, but its check fails");
        plant(Some(bug));
        assert!(!check(), "{bug:?} passes its check");
    }
}
