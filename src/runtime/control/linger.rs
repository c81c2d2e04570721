//! The one budget of time that a process may spend waiting for peers while it closes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Longest time within [`WINDOW`] that the process waits, all links together.
pub(super) const BUDGET: Duration = Duration::from_secs(1);
/// After this time what was spent is forgotten.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

/// Time spent waiting lately. Waits that overlap count once.
#[derive(Default)]
pub(super) struct Linger {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Ended waits as (begin, end), oldest first.
    spent: VecDeque<(Instant, Instant)>,
    /// Waits going on, and since when there is one.
    waiting: usize,
    since: Option<Instant>,
}

/// One wait; ends when dropped.
pub(super) struct Wait<'a> {
    linger: &'a Linger,
    /// When the wait must end.
    pub(super) until: Instant,
}

impl Linger {
    /// Begins a wait until `deadline` or until the budget is used up, whichever is earlier.
    pub(super) fn begin(&self, deadline: Instant) -> Wait<'_> {
        self.begin_at(Instant::now(), deadline)
    }

    fn begin_at(&self, now: Instant, deadline: Instant) -> Wait<'_> {
        let mut state = self.state.lock();
        while state
            .spent
            .front()
            .is_some_and(|&(_, end)| end + WINDOW <= now)
        {
            state.spent.pop_front();
        }
        let spent: Duration = state.spent.iter().map(|&(begin, end)| end - begin).sum();
        let since = *state.since.get_or_insert(now);
        state.waiting += 1;
        let until = deadline.min(since + BUDGET.saturating_sub(spent)).max(now);
        Wait {
            linger: self,
            until,
        }
    }

    fn end_at(&self, now: Instant) {
        let mut state = self.state.lock();
        state.waiting -= 1;
        if state.waiting > 0 {
            return;
        }
        if let Some(since) = state.since.take() {
            state.spent.push_back((since, now.max(since)));
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.linger.end_at(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PROTOCOL R25.
    #[test]
    fn waits_share_one_budget_that_comes_back() {
        let linger = Linger::default();
        let start = Instant::now();
        let far = start + Duration::from_secs(100);
        let at = |millis| start + Duration::from_millis(millis);
        let end = |wait: Wait<'_>, millis| {
            std::mem::forget(wait);
            linger.end_at(at(millis));
        };

        let first = linger.begin_at(at(0), far);
        let second = linger.begin_at(at(400), far);
        assert_eq!((first.until, second.until), (at(1000), at(1000)));
        end(first, 500);
        end(second, 700);

        let third = linger.begin_at(at(2000), far);
        assert_eq!(third.until, at(2300));
        end(third, 2300);
        assert_eq!(linger.begin_at(at(3000), far).until, at(3000));

        let later = linger.begin_at(at(13_000), far);
        assert_eq!(
            later.until,
            at(14_000),
            "what was spent is forgotten after a while"
        );
        assert_eq!(linger.begin_at(at(13_100), at(13_200)).until, at(13_200));
    }
}
