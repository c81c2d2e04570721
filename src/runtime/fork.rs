//! Forked children have no part in the connections of their parent (PROTOCOL R34).
//!
//! Training jobs fork (data loaders do) without `exec`, so close-on-exec does not help: a child
//! would keep the listener's port and the connections open after its parent has died, and peers
//! would wait for an answer instead of seeing the death. The kernel has no close-on-fork, so the
//! child closes them first thing. It has the parent's memory too, but none of its threads, and
//! what it wrote into a socket would stand in the middle of the parent's stream: so it finds no
//! object of the parent, and starts none of its own.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Descriptors beyond this are not closed in children.
const DESCRIPTORS_MAX: usize = 65_536;

/// One bit a descriptor: set for those that a child must close.
static MARKED: [AtomicU64; DESCRIPTORS_MAX / 64] =
    [const { AtomicU64::new(0) }; DESCRIPTORS_MAX / 64];
static REGISTERED: Once = Once::new();
/// Set in children of a process that was watched.
static CHILD: AtomicBool = AtomicBool::new(false);

/// From now on children of this process know that they are.
pub fn watch() {
    REGISTERED.call_once(|| {
        // SAFETY: the handler touches nothing but atomics and `close`, which is allowed in the
        // child of a process with threads; the library is never unmapped. Without memory for the
        // registration children keep the sockets, which harms only the speed of a verdict.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
    });
}

/// Whether this process is a forked child of one that has used the library. One load.
pub fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// Marks a descriptor while it lives. It is to be dropped before its descriptor is closed, for the
/// number may belong to somebody else right after.
pub struct ClosedInChildren(usize);

impl ClosedInChildren {
    /// Marks the descriptor.
    pub fn new(descriptor: &impl AsFd) -> Self {
        watch();
        let number = usize::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(usize::MAX);
        if let Some(word) = MARKED.get(number / 64) {
            word.fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
        Self(number)
    }
}

impl Drop for ClosedInChildren {
    fn drop(&mut self) {
        if let Some(word) = MARKED.get(self.0 / 64) {
            word.fetch_and(!(1 << (self.0 % 64)), Ordering::Relaxed);
        }
    }
}

/// Runs in the child. The objects that own the descriptors belong to a thread that does not exist
/// there, so nobody closes them a second time.
unsafe extern "C" fn after_fork() {
    CHILD.store(true, Ordering::Relaxed);
    for (index, word) in MARKED.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            let number = index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // SAFETY: a descriptor of the steward's, see above.
            unsafe { libc::close(number as libc::c_int) };
        }
    }
}
