//! Threads for calls that may block: moving a queue pair to ready looks for the peer's hardware
//! address, which takes a second if nobody answers.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use crate::DeviceError;

type Job = Box<dyn FnOnce() + Send>;

/// Threads of the process, from its first connection on: so many peers that are gone are looked for
/// at a time.
const THREADS: usize = 8;

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
pub(super) fn submit(job: Job) -> Result<(), DeviceError> {
    let mut state = STATE.lock();
    while state.threads < THREADS {
        let builder = std::thread::Builder::new().name("r2ccl-verbs".into());
        match builder.spawn(work) {
            Ok(_) => state.threads += 1,
            Err(error) if state.threads == 0 => {
                return Err(DeviceError(format!(
                    "cannot start a thread that connects queue pairs: {error}; raise the limit on \
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
                job();
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
        assert_eq!(STATE.lock().threads, THREADS);
    }
}
