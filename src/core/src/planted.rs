//! Deliberate bugs inside the core: each leaves out what one rule asks for, and the simulator's
//! checkers must notice. The plugin has none of this: without the feature `planted`, which only
//! the simulator's own build of these files has, [`planted`] is constantly false.

#[cfg(feature = "planted")]
use core::sync::atomic::{AtomicU8, Ordering};

/// Defines the bugs, with the names by which people call them.
macro_rules! bugs {
    ($($(#[$text:meta])* $bug:ident = $name:literal,)*) => {
        /// What may be left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$text])* $bug,)*
        }

        #[cfg(feature = "planted")]
        impl Bug {
            /// All of them, with their names.
            pub const ALL: &'static [(&'static str, Self)] = &[$(($name, Self::$bug),)*];
        }
    };
}

bugs! {
    /// PROTOCOL R1: what is posted again is cut anew, by the route of now.
    CutAnew = "cut-anew",
    /// PROTOCOL R1: shares begin at any byte.
    CutsAnywhere = "cuts-anywhere",
    /// PROTOCOL R1: messages too small for all paths go over the first ones.
    HeaviestTakesAll = "heaviest-takes-all",
    /// PROTOCOL R1: a share may be as small as it likes.
    SharesMayBeThin = "shares-may-be-thin",
    /// PROTOCOL R2: done means posted.
    DoneIsPosted = "done-is-posted",
    /// PROTOCOL R3: the receiver opens messages beyond the window.
    OpensBeyondWindow = "opens-beyond-window",
    /// PROTOCOL R3: the sender takes credits beyond the window.
    CreditsBeyondWindow = "credits-beyond-window",
    /// PROTOCOL R3: a message that is not open yet takes segments.
    UnopenedTakes = "unopened-takes",
    /// PROTOCOL R4: a receive that was reported can be reported again.
    DoneTwice = "done-twice",
    /// PROTOCOL R4: a send that was reported can be reported again.
    SentTwice = "sent-twice",
    /// PROTOCOL R5: a message is complete when its last segment has arrived.
    LastSegmentCompletes = "last-segment-completes",
    /// PROTOCOL R5: a segment that comes twice counts twice.
    DuplicatesCount = "duplicates-count",
    /// PROTOCOL R5: segments of one message may disagree on their count.
    CountsMayDiffer = "counts-may-differ",
    /// PROTOCOL R5: segments may hold more than their buffer.
    BuffersMayOverflow = "buffers-may-overflow",
    /// PROTOCOL R6: all credits of a group say the same place.
    GroupIsOnePlace = "group-is-one-place",
    /// PROTOCOL R6: the sender takes a group with gaps.
    GroupsMayHaveGaps = "groups-may-have-gaps",
    /// PROTOCOL R7: a send takes the first free receive, whatever its tag.
    TagsAreIgnored = "tags-are-ignored",
    /// PROTOCOL R7: a send that fits nothing in the oldest group takes a receive of another.
    LaterGroupsMatch = "later-groups-match",
    /// PROTOCOL R7: a group goes out when one of its receives is taken.
    GroupGoesEarly = "group-goes-early",
    /// PROTOCOL R8: a send is not cut down to its receive.
    SendsAreNotCut = "sends-are-not-cut",
    /// PROTOCOL R8: of several that are cut the last is reported.
    LastCutIsReported = "last-cut-is-reported",
    /// PROTOCOL R9: a line is taken whatever its marker.
    MarkersAreIgnored = "markers-are-ignored",
    /// PROTOCOL R9: a line is taken whatever its generation.
    LinesAreOfAnyGeneration = "lines-are-of-any-generation",
    /// PROTOCOL R10: the counter read last counts, not the greatest.
    CountersFall = "counters-fall",
    /// PROTOCOL R10: a counter may go beyond what was posted.
    CountersAreBelieved = "counters-are-believed",
    /// PROTOCOL R11: a counter is written only when it is asked for.
    CounterIsNotOwed = "counter-is-not-owed",
    /// PROTOCOL R11: a credit line counts all messages before its own.
    LinesCountToThem = "lines-count-to-them",
    /// PROTOCOL R11: a sender whose window is full does not read the counter on the next line.
    FullWindowIsDeaf = "full-window-is-deaf",
    /// PROTOCOL R12: a path comes back under the number that it had.
    NumberIsUsedAgain = "number-is-used-again",
    /// PROTOCOL R13: what arrives in a generation that is over counts.
    PastIsHeard = "past-is-heard",
    /// PROTOCOL R13: credits of a generation that is over count.
    OldCreditsCount = "old-credits-count",
    /// PROTOCOL R13: counters of a generation that is over count.
    OldCountersCount = "old-counters-count",
    /// PROTOCOL R13: completions of a generation that is over count.
    OldCompletionsCount = "old-completions-count",
    /// PROTOCOL R13: an immediate counts whatever generation it names.
    ImmediatesAreOfAnyGeneration = "immediates-are-of-any-generation",
    /// PROTOCOL R14: work requests are posted without end.
    QueueHasNoEnd = "queue-has-no-end",
    /// PROTOCOL R14: no work request is signalled because of its place.
    NothingIsSignalled = "nothing-is-signalled",
    /// PROTOCOL R14: a completion accounts for itself only.
    CompletionsCountOne = "completions-count-one",
    /// PROTOCOL R14: a segment that was handed back does not come again.
    HandedBackIsLost = "handed-back-is-lost",
    /// PROTOCOL R15: credits are said once.
    CreditsAreSaidOnce = "credits-are-said-once",
    /// PROTOCOL R15: the counter is not said again.
    CounterIsSaidOnce = "counter-is-said-once",
    /// PROTOCOL R15: what is said again is not signalled.
    ResentIsUnsigned = "resent-is-unsigned",
    /// PROTOCOL R16: a message that was reported takes segments.
    ReportedTakesMore = "reported-takes-more",
    /// PROTOCOL R17: an earlier time is taken as it is.
    TimeGoesBack = "time-goes-back",
    /// PROTOCOL R18: an answer may claim what was never posted.
    AnswersAreBelieved = "answers-are-believed",
    /// PROTOCOL R27: the count of a receiver that closes is not heard.
    GoodbyeIsIgnored = "goodbye-is-ignored",
    /// PROTOCOL R27: the goodbye of a receiver stands for all that was posted.
    GoodbyeIsAll = "goodbye-is-all",
    /// PROTOCOL R40: a send goes ahead although credits are there that nobody has used.
    AheadOfSpareCredits = "ahead-of-spare-credits",
    /// PROTOCOL R40: a message of any size goes ahead.
    AheadAtAnySize = "ahead-at-any-size",
    /// PROTOCOL R40: a slot is used again before its message is delivered.
    SlotIsTaken = "slot-is-taken",
    /// PROTOCOL R40: messages go ahead over two generations at a time.
    AheadOnTwoPaths = "ahead-on-two-paths",
    /// PROTOCOL R40: numbers begin anew when sends come back to a generation.
    NumbersBeginAnew = "numbers-begin-anew",
    /// PROTOCOL R41: an early message takes receives before its frontier.
    BeforeFrontier = "before-frontier",
    /// PROTOCOL R41: the latest early message finds its receive first.
    LatestGoesFirst = "latest-goes-first",
    /// PROTOCOL R41: another send passes an early message of its tag.
    EarlyIsPassed = "early-is-passed",
    /// PROTOCOL R42: what was seen in a slot outlives its generation.
    SlotOutlives = "slot-outlives",
    /// PROTOCOL R42: the slots of a generation that is over are still read.
    OldSlotsAreRead = "old-slots-are-read",
    /// PROTOCOL R42: an early message that is lost counts as taken.
    LostIsTaken = "lost-is-taken",
    /// PROTOCOL R43: the credit of an early message is not kept.
    EarlyCreditIsDropped = "early-credit-is-dropped",
    /// PROTOCOL R43: what says no more than the last count of a receiver is an error all the same.
    GoodbyeIsForgotten = "goodbye-is-forgotten",
    /// PROTOCOL R50: a generation that is over is still posted in.
    PostsAfterFence = "posts-after-fence",
    /// PROTOCOL R50: the other end is not told that a generation is over.
    FenceIsNotTold = "fence-is-not-told",
    /// PROTOCOL R50: a frame is said again as fast as at first.
    FramesKeepTheirPace = "frames-keep-their-pace",
    /// PROTOCOL R51: what has arrived is posted again as well.
    ReplaysAll = "replays-all",
    /// PROTOCOL R51: of what a message lacks, only the first segment is posted again.
    ReplaysOne = "replays-one",
    /// PROTOCOL R51: what was never posted waits for its path.
    UnpostedWaits = "unposted-waits",
    /// PROTOCOL R52: the receiver answers before its queue pair is drained.
    AnswersEarly = "answers-early",
    /// PROTOCOL R52: the receiver waits for ever for its queue pair to drain.
    AnswersWhenDrained = "answers-when-drained",
    /// PROTOCOL R52: each answer about a generation is applied.
    EachAnswerCounts = "each-answer-counts",
    /// PROTOCOL R52: an answer is heard once, also where a later one says that the target is
    /// fenced.
    LateFenceIsNotHeard = "late-fence-is-not-heard",
    /// PROTOCOL R53: replay waits for the answer only.
    ReplaysUnfenced = "replays-unfenced",
    /// PROTOCOL R53: replay waits for a fence only.
    ReplaysUnanswered = "replays-unanswered",
    /// PROTOCOL R53: a lost device is a fence at the target, too.
    LostTargetIsFenced = "lost-target-is-fenced",
    /// PROTOCOL R53: the quarantine counts from the end of the generation, not of its drain.
    QuarantineFromClose = "quarantine-from-close",
    /// PROTOCOL R53: the quarantine counts although the setting says strict.
    StrictIsIgnored = "strict-is-ignored",
    /// PROTOCOL R54: a send is done although a generation that held it may still read it.
    DoneUnfenced = "done-unfenced",
    /// PROTOCOL R54: all sends wait for the fence of a generation, whether it held them or not.
    AllWaitForFences = "all-wait-for-fences",
    /// PROTOCOL R55: nothing is posted anywhere while one generation is being settled.
    AllPathsWait = "all-paths-wait",
    /// PROTOCOL R56: the receiver accepts an offer before its old generation is committed.
    OfferBeforeCommit = "offer-before-commit",
    /// PROTOCOL R56: the sender begins an attempt before the generations before it are settled.
    AttemptBeforeSettled = "attempt-before-settled",
    /// PROTOCOL R56: consent to an older attempt counts for the present one.
    LateAcceptCounts = "late-accept-counts",
    /// PROTOCOL R56: the receiver accepts an offer that it has heard of before.
    OldOfferCounts = "old-offer-counts",
    /// PROTOCOL R57: the back-off grows beyond the longest.
    BackOffHasNoCap = "back-off-has-no-cap",
    /// PROTOCOL R57: the back-off does not grow.
    BackOffIsFlat = "back-off-is-flat",
    /// PROTOCOL R57: a knock does not cut the back-off short.
    KnockIsIgnored = "knock-is-ignored",
    /// PROTOCOL R57: after a knock the back-off goes on where it was.
    KnockKeepsBackOff = "knock-keeps-back-off",
    /// PROTOCOL R57: after one attempt that failed there is no other.
    OneAttempt = "one-attempt",
    /// PROTOCOL R57: a path that could not be connected at set-up is not tried again.
    SetUpIsOnce = "set-up-is-once",
    /// PROTOCOL R58: there is no hold-down.
    NoHoldDown = "no-hold-down",
    /// PROTOCOL R58: the hold-down of a path that flaps does not grow.
    HoldDownIsFlat = "hold-down-is-flat",
    /// PROTOCOL R58: a path that was long in service keeps its hold-down.
    HoldDownStays = "hold-down-stays",
    /// PROTOCOL R58: the hold-down grows beyond the longest.
    HoldDownHasNoCap = "hold-down-has-no-cap",
    /// PROTOCOL R58: a path whose queue pair only was at fault has the whole hold-down.
    TrustIsForgotten = "trust-is-forgotten",
    /// PROTOCOL R58: the hold-down of the only path is not cut short.
    LonelyPathsWait = "lonely-paths-wait",
    /// PROTOCOL R58: a path that was never in service has the whole hold-down.
    NewPathsWait = "new-paths-wait",
    /// PROTOCOL R58: the first probe that is lost ends the attempt.
    OneLostProbeFails = "one-lost-probe-fails",
    /// PROTOCOL R58: a path that comes back has its full weight at once.
    NoRamp = "no-ramp",
    /// PROTOCOL R59: a path is in service without a proof of its own.
    NoOwnProof = "no-own-proof",
    /// PROTOCOL R59: a path is in service without the other end's proof.
    NoPeerProof = "no-peer-proof",
    /// PROTOCOL R60: work without progress raises no suspicion.
    WatchdogSleeps = "watchdog-sleeps",
    /// PROTOCOL R60: large work has no more time than small work.
    BytesNeedNoTime = "bytes-need-no-time",
    /// PROTOCOL R60: progress does not clear a path.
    ProgressClearsNothing = "progress-clears-nothing",
    /// PROTOCOL R60: a probe is waited for as long as it takes.
    ProbesHaveNoEnd = "probes-have-no-end",
    /// PROTOCOL R60: the probe on the queue pair has its whole time, whatever its NICs say.
    OwnProbeIsNotHurried = "own-probe-is-not-hurried",
    /// PROTOCOL R60: the probe on a queue pair of slow NICs has no more time than others.
    SlowIsStuck = "slow-is-stuck",
    /// PROTOCOL R60: a probe that passes again and again without progress proves that all is well.
    VainProbesClear = "vain-probes-clear",
    /// PROTOCOL R60: so does one behind a send queue that stays full.
    FullQueueIsCleared = "full-queue-is-cleared",
    /// PROTOCOL R60: the receiver does not watch its credit path.
    ReceiverSleeps = "receiver-sleeps",
    /// PROTOCOL R60: nor does it when only what it has said again is under way.
    ResentIsUnwatched = "resent-is-unwatched",
    /// PROTOCOL R60: a good probe between the NICs clears a path.
    OtherProbeClears = "other-probe-clears",
    /// PROTOCOL R61: a path is left although there is nowhere better to go.
    NowhereBetter = "nowhere-better",
    /// PROTOCOL R61: paths are left as often as they look bad.
    LeavesWithoutLimit = "leaves-without-limit",
    /// PROTOCOL R61: an answer counts at the last moment as well.
    LastAnswersCount = "last-answers-count",
    /// PROTOCOL R61: NICs somebody spoke against have the usual time.
    HintsTakeTheirTime = "hints-take-their-time",
    /// PROTOCOL R61: paths that somebody spoke against are left no more often than others.
    HintsAreLimited = "hints-are-limited",
    /// PROTOCOL R61: they have the short time again and again.
    HintsStay = "hints-stay",
    /// PROTOCOL R61: progress of what was on its way speaks for them.
    ProgressOutweighsHints = "progress-outweighs-hints",
    /// PROTOCOL R62: requests fail as soon as no path is in service.
    NoPatience = "no-patience",
    /// PROTOCOL R62: a connection without requests fails as well.
    IdleFails = "idle-fails",
    /// PROTOCOL R62: nobody watches a send that only waits for the credit of an early message.
    EarlyIsUnwatched = "early-is-unwatched",
    /// PROTOCOL R61: whoever finds nowhere better asks nobody.
    NobodyIsWoken = "nobody-is-woken",
    /// PROTOCOL R62: requests never fail.
    NeverGivesUp = "never-gives-up",
    /// PROTOCOL R62: they never fail while a path is in service, though nobody answers on any.
    SilenceHasNoEnd = "silence-has-no-end",
    /// PROTOCOL R62: they never fail where a generation could not be fenced.
    FencesAreAwaited = "fences-are-awaited",
    /// PROTOCOL R62: nobody watches a send whose group lacks credits.
    GroupIsUnwatched = "group-is-unwatched",
    /// PROTOCOL R63: a drained path carries what it carried before.
    DrainedCarries = "drained-carries",
    /// PROTOCOL R63: where all paths are drained, none carries anything new.
    LastDrainedStops = "last-drained-stops",
    /// PROTOCOL R63: the other end is told once.
    DrainsAreSaidOnce = "drains-are-said-once",
    /// PROTOCOL R63: a word that comes late counts as the last one.
    OldDrainCounts = "old-drain-counts",
    /// PROTOCOL R63: the answer does not wait for what is under way.
    DrainedAtOnce = "drained-at-once",
}

/// The bug that is planted: its number + 1, or 0.
#[cfg(feature = "planted")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug in all connections of the process, or none.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |bug| bug as u8 + 1), Ordering::Relaxed);
}

/// Whether a bug is planted.
#[cfg(feature = "planted")]
pub(crate) fn planted(bug: Bug) -> bool {
    PLANTED.load(Ordering::Relaxed) == bug as u8 + 1
}

/// Whether a bug is planted: never.
#[cfg(not(feature = "planted"))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}
