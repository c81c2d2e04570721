//! How a path fails and comes back: the states, the events and the one table of both.
//!
//! ```text
//!            Hint                Condemned
//! ACTIVE ───────────> SUSPECT ─────────────> DOWN <───────────────────────┐
//!    ^  <─ Progress ──   │                    │ Due                        │ Failed, Condemned
//!    │                                        v                            │
//!    └───── Proved ───── PROBATION <──────── REBUILD ──────────────────────┤
//!                            │           Connected                         │
//!                            └─────────────────────────────────────────────┘
//! ```
//!
//! Data may be posted in ACTIVE and SUSPECT only. Every event is legal in every state; a test
//! keeps the whole table.

/// What a path is good for at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// In service.
    Active,
    /// In service, with a probe under way: something looks wrong.
    Suspect,
    /// Out of service: the last generation is over, perhaps still being fenced.
    Down,
    /// A new generation is being made.
    Rebuild,
    /// A new generation is connected and has to prove itself for the hold-down.
    Probation,
}

/// What happens to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something looks wrong: a stall, a port event, a word of another connection.
    Hint,
    /// The path's own work or its own probe got through.
    Progress,
    /// Final evidence against the generation: an error completion, the watchdog's verdict, the
    /// peer's fence.
    Condemned,
    /// Time for an attempt: back-off over at the sender, an offer at the receiver.
    Due,
    /// Both ends are connected.
    Connected,
    /// Both ends have proved the generation for their hold-down.
    Proved,
    /// The attempt failed or took too long.
    Failed,
    /// There is reason to believe that the path works again.
    Knock,
}

/// What has to be done on a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// Probe the queue pair, and the NICs of this and the other paths.
    Probe,
    /// Count the suspicion as transient.
    Clear,
    /// Stop posting, fence, tell the peer: the generation is over for good.
    Close,
    /// Make a new generation.
    Start,
    /// Begin the hold-down.
    HoldDown,
    /// Begin the hold-down again.
    Restart,
    /// Take the path into service.
    Serve,
    /// Give the attempt up and back off.
    BackOff,
    /// Try at once.
    Hurry,
}

impl Health {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Active,
        Self::Suspect,
        Self::Down,
        Self::Rebuild,
        Self::Probation,
    ];

    /// Whether messages may go over the path.
    pub const fn is_in_service(self) -> bool {
        matches!(self, Self::Active | Self::Suspect)
    }

    /// The table.
    pub const fn next(self, event: Event) -> (Self, Effect) {
        use {Effect as Do, Event as On};
        match (self, event) {
            (Self::Active, On::Hint) => (Self::Suspect, Do::Probe),
            (Self::Active | Self::Suspect, On::Condemned) => (Self::Down, Do::Close),
            (Self::Suspect, On::Progress) => (Self::Active, Do::Clear),
            (Self::Down, On::Due) => (Self::Rebuild, Do::Start),
            (Self::Down, On::Knock) => (Self::Down, Do::Hurry),
            (Self::Rebuild, On::Connected) => (Self::Probation, Do::HoldDown),
            (Self::Rebuild, On::Condemned | On::Failed) => (Self::Down, Do::BackOff),
            (Self::Probation, On::Proved) => (Self::Active, Do::Serve),
            (Self::Probation, On::Condemned | On::Failed) => (Self::Down, Do::Close),
            (Self::Probation, On::Hint) => (Self::Probation, Do::Restart),
            (state, _) => (state, Do::Nothing),
        }
    }
}

impl Event {
    /// All events.
    pub const ALL: [Self; 8] = [
        Self::Hint,
        Self::Progress,
        Self::Condemned,
        Self::Due,
        Self::Connected,
        Self::Proved,
        Self::Failed,
        Self::Knock,
    ];
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{Event, Health};
    use std::fmt::Write as _;
    use std::string::String;

    /// Every state × event; a changed transition shows as a difference.
    #[test]
    fn the_table() {
        let mut table = String::new();
        for state in Health::ALL {
            for event in Event::ALL {
                let (next, effect) = state.next(event);
                let line = std::format!("{state:?} + {event:?}");
                writeln!(table, "{line:<22} -> {next:?}, {effect:?}").expect("a string");
            }
        }
        insta::assert_snapshot!(table);
    }

    /// PROTOCOL R59: nothing but a proof leads back into service, and from nowhere but PROBATION.
    #[test]
    fn only_proof_leads_back() {
        for state in Health::ALL
            .into_iter()
            .filter(|state| !state.is_in_service())
        {
            for event in Event::ALL {
                let back = state.next(event).0.is_in_service();
                let proved = (state, event) == (Health::Probation, Event::Proved);
                assert_eq!(back, proved, "{state:?} {event:?}");
            }
        }
    }
}
