//! Deliberate bugs: each breaks a rule, and the checkers must find it.

use r2ccl_core::planted;

/// One deliberate bug: in what stands around the core, in what the two ends tell each other, or in
/// the core itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A helper says that a queue pair is drained without having touched it.
    FenceIsALie,
    /// Only the receiver's helper does so.
    TargetFenceIsALie,
    /// A queue pair counts as drained while accepted writes are still on the bus.
    BusIsForgotten,
    /// A device that is lost counts as drained, at the target too, where nobody knows.
    HungCountsAsDrained,
    /// The quarantine is not waited for.
    NoQuarantine,
    /// An answer says that the target is fenced, whatever it is.
    AnswerClaimsFence,
    /// An answer forgets what has arrived.
    AnswerForgets,
    /// An answer claims what has not arrived.
    AnswerClaimsArrival,
    /// A send is done when its own NIC has an acknowledgement.
    DoneOnAcknowledgement,
    /// Errors count as success.
    ErrorsAreSuccess,
    /// The last counter is not written.
    LastCounterIsLost,
    /// Frames are not sent again.
    FramesOnce,
    /// The fence frame of the peer is not heard.
    DeafToFences,
    /// The receiver keeps a message from the slot of a generation that is over.
    EagerSurvivesFence,
    /// An answer does not count the messages that came ahead of their credit.
    AnswerForgetsEager,
    /// An answer counts one that the receiver does not have.
    AnswerClaimsEager,
    /// A message ahead of its credit takes any receive with its tag.
    FrontierIsIgnored,
    /// A message ahead of its credit leaves its receive to the next one of its tag.
    EagerIsOvertaken,
    /// The credit of a message that came ahead of it is written only once.
    HeldCreditIsForgotten,
    /// A message counts as received before it has been copied from its slot.
    CopyIsNotAwaited,
    /// A slot takes another message before its message is delivered.
    SlotIsReused,
    /// The sender copies all messages ahead of their credits to one place.
    StagingIsShared,
    /// The number of a queue pair is free as soon as its generation is settled, and packets are
    /// always counted from 0.
    NumberIsFree,
    /// Packets are always counted from 0.
    PacketsCountFromZero,
    /// A queue pair is made for the address that its port had at first.
    AddressIsKept,
    /// Memory is deregistered while the connection still runs.
    DeregistersFirst,
    /// One inside the core.
    Core(planted::Bug),
}

impl Bug {
    /// Those outside the core, with the names by which people call them.
    const AROUND: [(&'static str, Self); 26] = [
        ("fence-is-a-lie", Self::FenceIsALie),
        ("target-fence-is-a-lie", Self::TargetFenceIsALie),
        ("bus-is-forgotten", Self::BusIsForgotten),
        ("hung-counts-as-drained", Self::HungCountsAsDrained),
        ("no-quarantine", Self::NoQuarantine),
        ("answer-claims-fence", Self::AnswerClaimsFence),
        ("answer-forgets", Self::AnswerForgets),
        ("answer-claims-arrival", Self::AnswerClaimsArrival),
        ("done-on-acknowledgement", Self::DoneOnAcknowledgement),
        ("errors-are-success", Self::ErrorsAreSuccess),
        ("last-counter-is-lost", Self::LastCounterIsLost),
        ("frames-once", Self::FramesOnce),
        ("deaf-to-fences", Self::DeafToFences),
        ("eager-survives-fence", Self::EagerSurvivesFence),
        ("answer-forgets-eager", Self::AnswerForgetsEager),
        ("answer-claims-eager", Self::AnswerClaimsEager),
        ("frontier-is-ignored", Self::FrontierIsIgnored),
        ("eager-is-overtaken", Self::EagerIsOvertaken),
        ("held-credit-is-forgotten", Self::HeldCreditIsForgotten),
        ("copy-is-not-awaited", Self::CopyIsNotAwaited),
        ("slot-is-reused", Self::SlotIsReused),
        ("staging-is-shared", Self::StagingIsShared),
        ("number-is-free", Self::NumberIsFree),
        ("packets-count-from-zero", Self::PacketsCountFromZero),
        ("address-is-kept", Self::AddressIsKept),
        ("deregisters-first", Self::DeregistersFirst),
    ];

    /// All of them, with their names.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        let core = planted::Bug::ALL.iter().copied();
        let core = core.map(|(name, bug)| (name, Self::Core(bug)));
        Self::AROUND.into_iter().chain(core)
    }

    /// The bug of a name.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::all().find(|(known, _)| *known == name);
        found.map(|(_, bug)| bug)
    }

    /// What that means for the core. The switch is one for the whole process: worlds that happen
    /// at the same time must agree on it.
    pub(crate) fn plant(bug: Option<Self>) {
        planted::plant(match bug {
            Some(Self::Core(bug)) => Some(bug),
            _ => None,
        });
    }
}
