//! Threads for calls that may block (PROTOCOL R26). Making a queue pair takes a device
//! milliseconds; moving it to ready looks for the peer's hardware address, which takes a second if
//! nobody answers.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::{Condvar, Mutex};

use crate::DeviceError;

type Job = Box<dyn FnOnce() + Send>;

/// Threads of the process, from its first job on: so many peers that are gone are looked for at a
/// time.
const THREADS: usize = 4;
/// They call a device and little else.
const STACK_BYTES: usize = 256 << 10;

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
}

static STATE: Mutex<State> = Mutex::new(State {
    jobs: VecDeque::new(),
    threads: 0,
});
static NEWS: Condvar = Condvar::new();

/// Has a thread run `job` soon.
pub fn submit(job: Job) -> Result<(), DeviceError> {
    let mut state = STATE.lock();
    while state.threads < THREADS {
        let builder = std::thread::Builder::new().name("r2ccl-helper".into());
        match builder.stack_size(STACK_BYTES).spawn(work) {
            Ok(_) => state.threads += 1,
            Err(error) if state.threads == 0 => {
                return Err(DeviceError(format!(
                    "cannot start a thread that makes queue pairs: {error}; raise the limit on \
                     threads (ulimit -u, pids of the container)"
                )));
            }
            // Those that run do it all.
            Err(_) => break,
        }
    }
    state.jobs.push_back(job);
    drop(state);
    NEWS.notify_one();
    Ok(())
}

fn work() {
    let mut state = STATE.lock();
    loop {
        match state.jobs.pop_front() {
            Some(job) => {
                drop(state);
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("a helper met a defect of this library; it goes on");
                }
                state = STATE.lock();
            }
            None => NEWS.wait(&mut state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// PROTOCOL R28: nor does one that panics.
    #[test]
    fn jobs_that_block_do_not_hold_others() {
        let (done, results) = channel::<i32>();
        let (release, gate) = channel::<()>();
        submit(Box::new(move || {
            let _ = gate.recv();
        }))
        .expect("a thread");
        submit(Box::new(|| panic!("on purpose"))).expect("a thread");
        for number in 0..3 {
            let done = done.clone();
            submit(Box::new(move || {
                let _ = done.send(number);
            }))
            .expect("a thread");
        }
        let next = || results.recv_timeout(PATIENCE).expect("every job runs");
        let mut numbers = [next(), next(), next()];
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
        drop(release);
    }

    #[test]
    fn many_jobs_share_few_threads() {
        let (done, results) = channel();
        for _ in 0..200 {
            let done = done.clone();
            submit(Box::new(move || {
                let _ = done.send(());
            }))
            .expect("a thread");
        }
        for _ in 0..200 {
            results.recv_timeout(PATIENCE).expect("every job runs");
        }
        assert_eq!(STATE.lock().threads, THREADS);
    }
}
