//! Which connections belong to one communicator, so that an error stops all of them.
//!
//! PROTOCOL R21: when one connection of a communicator has reported an error, the others of this
//! process stop sending; a rank that went on could let a peer finish a collective with wrong data.
//! NCCL names the communicator only from ABI v11 on, but in every version one service thread makes
//! all connections of a rank, and no other rank's. So the thread that makes a connection stands for
//! the communicator.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock, Weak};

use super::error::Error;

/// Connections that fail together.
#[derive(Default)]
pub struct Group {
    failure: OnceLock<Error>,
}

thread_local! {
    static CURRENT: RefCell<Weak<Group>> = const { RefCell::new(Weak::new()) };
}

impl Group {
    /// The group of the calling thread. It ends with its last connection: whoever starts anew
    /// after an abort is not held responsible for the past.
    pub fn current() -> Arc<Self> {
        CURRENT.with_borrow_mut(|current| {
            current.upgrade().unwrap_or_else(|| {
                let group = Arc::new(Self::default());
                *current = Arc::downgrade(&group);
                group
            })
        })
    }

    /// The error that stopped the group.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// Stops the group; the first error stays.
    pub fn fail(&self, error: &Error) {
        let _ = self.failure.set(error.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PROTOCOL R21.
    #[test]
    fn connections_made_by_one_thread_fail_together_and_the_next_life_starts_clean() {
        let first = Group::current();
        let second = Group::current();
        first.fail(&Error::Remote("gone".into()));
        assert!(second.failure().is_some());
        let other = std::thread::spawn(|| Group::current().failure().is_some()).join();
        assert!(!other.unwrap_or(true), "another rank's connections go on");
        drop((first, second));
        assert!(Group::current().failure().is_none());
    }
}
