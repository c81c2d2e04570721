//! When a sender that lacks credits asks for them again: one may have been lost with its path.

use r2ccl_core::Time;

/// Waiting for so long is usual: the user at the other end computes.
const FIRST_NS: u64 = 100_000_000;
/// Longest pause between two questions.
const PAUSE_MAX_NS: u64 = 5_000_000_000;

/// How long a sender has waited for credits.
#[derive(Debug, Default)]
pub struct Starvation {
    since: Option<Time>,
    asked_ns: u64,
}

impl Starvation {
    /// A send was refused since there is no credit for it.
    pub fn note_refusal(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// A send has found its credit.
    pub fn end(&mut self) {
        *self = Self::default();
    }

    /// Whether to ask now; each pause is twice the one before. `is_waiting`: sends that went ahead
    /// of their credits are open.
    pub fn is_due(&mut self, now: Time, is_waiting: bool) -> bool {
        if is_waiting {
            self.note_refusal(now);
        }
        let Some(since) = self.since else {
            return false;
        };
        let waited_ns = now.since(since);
        let pause_ns = self.asked_ns.clamp(FIRST_NS, PAUSE_MAX_NS);
        let is_due = waited_ns >= self.asked_ns + pause_ns;
        if is_due {
            self.asked_ns = waited_ns;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::Starvation;
    use r2ccl_core::Time;

    /// PROTOCOL R15, R43.
    #[test]
    fn it_asks_ever_more_rarely() {
        let mut starvation = Starvation::default();
        let mut asked = Vec::new();
        for millisecond in 0..20_000_u64 {
            if starvation.is_due(Time::from_nanoseconds(millisecond * 1_000_000), true) {
                asked.push(millisecond);
            }
        }
        assert_eq!(
            asked,
            [100, 200, 400, 800, 1600, 3200, 6400, 11_400, 16_400]
        );
        starvation.end();
        assert!(!starvation.is_due(Time::from_nanoseconds(u64::MAX), false));
    }
}
