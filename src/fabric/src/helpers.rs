//! Threads for calls that may block (PROTOCOL R26). Making a queue pair takes a device
//! milliseconds; moving it to ready looks for the peer's hardware address, which takes a second if
//! nobody answers; a device whose firmware hangs may keep any call for a minute.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::DeviceError;

type Job = Box<dyn FnOnce() + Send>;

/// Threads of the process, from its first job on: so many peers that are gone are looked for at a
/// time.
const THREADS: usize = 4;
/// More are started while a job has waited for so long: the others are held by a device that hangs.
const PATIENCE: Duration = Duration::from_millis(20);
/// At the most.
const THREADS_MAX: usize = 64;
/// Further ones only where so much memory is left: the C library ends the process when a thread
/// finds none for its thread-local data.
const SPARE_BYTES: usize = 8 << 20;
/// They call a device and little else.
const STACK_BYTES: usize = 256 << 10;

struct State {
    jobs: VecDeque<(Instant, Job)>,
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
    let oldest = state.jobs.front().map(|(since, _)| since.elapsed());
    let wanted = wanted(state.threads, oldest.unwrap_or_default());
    while state.threads < wanted {
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
    state.jobs.push_back((Instant::now(), job));
    drop(state);
    NEWS.notify_one();
    Ok(())
}

/// How many threads there should be: one more than there are, once a job has waited for long.
fn wanted(threads: usize, waited: Duration) -> usize {
    if waited >= PATIENCE && has_spare(SPARE_BYTES) {
        THREADS_MAX.min(threads + 1)
    } else {
        THREADS
    }
}

/// Whether the process can get so many bytes of memory more. An ordinary allocation that fails ends
/// it, so the limit is to be found by one that may.
pub fn has_spare(bytes: usize) -> bool {
    let mut spare = Vec::<u8>::new();
    let reserved = spare.try_reserve_exact(bytes);
    // Seen by somebody, so that it is not left out.
    std::hint::black_box(spare.as_ptr());
    reserved.is_ok()
}

fn work() {
    let mut state = STATE.lock();
    loop {
        match state.jobs.pop_front() {
            Some((_, job)) => {
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

    const LIMIT: Duration = Duration::from_secs(20);

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
        let next = || results.recv_timeout(LIMIT).expect("every job runs");
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
            results.recv_timeout(LIMIT).expect("every job runs");
        }
        assert_eq!(wanted(0, Duration::ZERO), THREADS);
        assert_eq!(wanted(THREADS, PATIENCE - Duration::from_nanos(1)), THREADS);
        assert_eq!(wanted(THREADS, PATIENCE), THREADS + 1);
        assert_eq!(wanted(THREADS_MAX, PATIENCE), THREADS_MAX);
    }

    /// PROTOCOL R26.
    #[test]
    fn a_device_that_hangs_does_not_hold_others() {
        let gates: Vec<_> = (0..2 * THREADS)
            .map(|_| {
                let (release, gate) = channel::<()>();
                submit(Box::new(move || {
                    let _ = gate.recv();
                }))
                .expect("a thread");
                release
            })
            .collect();
        let (done, results) = channel();
        let start = Instant::now();
        // Whoever is in need asks again and again.
        while results.recv_timeout(PATIENCE).is_err() {
            let done = done.clone();
            submit(Box::new(move || {
                let _ = done.send(());
            }))
            .expect("a thread");
            assert!(start.elapsed() < LIMIT, "nobody is left for the others");
        }
        drop(gates);
    }
}
