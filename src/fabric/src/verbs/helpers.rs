//! Threads for calls that may block: moving a queue pair to ready looks for the peer's hardware
//! address, which takes a second if nobody answers.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::DeviceError;

type Job = Box<dyn FnOnce() + Send>;

/// Threads at the most: a host whose peers are gone connects so many queue pairs at a time.
const THREADS_MAX: usize = 16;
/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static STATE: Mutex<State> = Mutex::new(State {
    jobs: VecDeque::new(),
    threads: 0,
    idle: 0,
});
static NEWS: Condvar = Condvar::new();

/// Has a thread run `job` soon.
pub(super) fn submit(job: Job) -> Result<(), DeviceError> {
    let mut state = STATE.lock();
    if state.idle <= state.jobs.len() && state.threads < THREADS_MAX {
        let builder = std::thread::Builder::new().name("r2ccl-verbs".into());
        match builder.spawn(work) {
            Ok(_) => state.threads += 1,
            Err(error) if state.threads == 0 => {
                return Err(DeviceError(format!(
                    "cannot start a thread that connects queue pairs: {error}; raise the limit on \
                     threads (ulimit -u, pids of the container)"
                )));
            }
            // Those that run take the job, later.
            Err(_) => {}
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
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            job();
            state = STATE.lock();
            continue;
        }
        state.idle += 1;
        let is_late = NEWS.wait_for(&mut state, IDLE).timed_out();
        state.idle -= 1;
        if is_late && state.jobs.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn jobs_that_block_do_not_hold_others() {
        let (done, results) = channel::<i32>();
        let (release, gate) = channel::<()>();
        submit(Box::new(move || {
            let _ = gate.recv();
        }))
        .expect("a thread");
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
        assert!(STATE.lock().threads <= THREADS_MAX);
    }
}
