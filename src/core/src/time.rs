//! Time as the core sees it: a number that the caller brings along.

use crate::planted::{Bug, planted};

/// Nanoseconds since an origin of the caller's choice, the same for the life of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// `nanoseconds` after the origin.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds after the origin.
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// `nanoseconds` later; stays at the end of time.
    pub const fn plus(self, nanoseconds: u64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }

    /// Nanoseconds from `earlier` to `self`; 0 when `earlier` is the later one.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Keeps the latest time seen, so that a caller whose clock steps back cannot turn time around
/// (PROTOCOL R17).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    latest: Time,
}

impl Clock {
    /// Takes a reading and returns the time that counts: never earlier than any before.
    pub(crate) fn advance(&mut self, now: Time) -> Time {
        self.latest = if planted(Bug::TimeGoesBack) {
            now
        } else {
            self.latest.max(now)
        };
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, Time};

    /// PROTOCOL R17.
    #[test]
    fn time_never_goes_back() {
        let mut clock = Clock::default();
        assert_eq!(clock.advance(Time::from_nanoseconds(7)).nanoseconds(), 7);
        assert_eq!(clock.advance(Time::from_nanoseconds(3)).nanoseconds(), 7);
        assert_eq!(clock.advance(Time::from_nanoseconds(9)).nanoseconds(), 9);
    }

    #[test]
    fn differences_do_not_wrap() {
        let (early, late) = (Time::ZERO, Time::from_nanoseconds(5));
        assert_eq!(late.since(early), 5);
        assert_eq!(early.since(late), 0);
    }
}
