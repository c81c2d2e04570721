//! Threads for calls that may sleep, such as making and connecting a queue pair: neither NCCL's
//! threads nor the steward may wait for those (PROTOCOL R26).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use parking_lot::{Condvar, Mutex};

use super::control::remedy;
use super::error::{Error, Result};

type Job = Box<dyn FnOnce() + Send>;

/// Threads: a call that hangs in a device must not keep the others waiting.
const THREADS: usize = 2;
/// A helper calls a device and little else.
const STACK_BYTES: usize = 256 << 10;

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(Pool::default)
}

/// Has a helper run `job` soon. The first job starts the threads, which stay.
pub fn run(job: impl FnOnce() + Send + 'static) -> Result<()> {
    let pool = pool();
    let mut state = pool.state.lock();
    while state.threads < THREADS {
        let thread = std::thread::Builder::new().name("r2ccl-helper".into());
        match thread.stack_size(STACK_BYTES).spawn(|| pool.serve()) {
            Ok(_) => state.threads += 1,
            // One is enough for now.
            Err(_) if state.threads > 0 => break,
            Err(error) => {
                let remedy = remedy(&error);
                let text = format!("no thread for a helper: {error}{remedy}");
                return Err(Error::System(text));
            }
        }
    }
    state.jobs.push_back(Box::new(job));
    pool.wake.notify_one();
    Ok(())
}

impl Pool {
    fn serve(&self) {
        loop {
            let job = {
                let mut state = self.state.lock();
                loop {
                    if let Some(job) = state.jobs.pop_front() {
                        break job;
                    }
                    self.wake.wait(&mut state);
                }
            };
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("a helper met a defect of this library; it goes on");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::run;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// PROTOCOL R26, R28: a job that waits keeps no other waiting, and one that panics ends none.
    #[test]
    fn jobs_run_beside_each_other_and_outlive_a_panic() {
        let (gate, waits) = channel::<()>();
        let (done, results) = channel();
        let told = done.clone();
        run(move || {
            let _ = waits.recv_timeout(PATIENCE);
            let _ = told.send("late");
        })
        .expect("a helper");
        run(|| panic!("on purpose")).expect("a helper");
        run(move || {
            let _ = done.send("soon");
        })
        .expect("a helper");
        assert_eq!(results.recv_timeout(PATIENCE), Ok("soon"));
        gate.send(()).expect("it waits");
        assert_eq!(results.recv_timeout(PATIENCE), Ok("late"));
    }
}
