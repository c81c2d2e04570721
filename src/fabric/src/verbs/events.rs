//! One thread that waits for the asynchronous events of all opened devices, has whoever is
//! interested look at them, and answers the questions of other NICs.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;

use super::context::Context;
use super::prober::Prober;
use crate::DeviceError;

/// Called when a device has an event for one of its ports.
pub(super) type Wake = Box<dyn Fn() + Send + Sync>;

/// A port whose events somebody wants.
struct Watched {
    context: Weak<Context>,
    port: u32,
    wake: Wake,
}

#[derive(Default)]
struct State {
    watched: Vec<Arc<Watched>>,
    probers: Vec<Weak<Prober>>,
    /// Tells the thread that there is one more, or that somebody else has read an event.
    more: Option<Arc<EventFd>>,
}

static STATE: Mutex<State> = Mutex::new(State {
    watched: Vec::new(),
    probers: Vec::new(),
    more: None,
});

/// Has `wake` called whenever there is an event for a port, until its device is closed.
pub(super) fn watch(context: &Arc<Context>, port: u32, wake: Wake) -> Result<(), DeviceError> {
    let context = Arc::downgrade(context);
    let mut state = STATE.lock();
    state.watched.push(Arc::new(Watched {
        context,
        port,
        wake,
    }));
    state.rouse()
}

/// Has the questions that come to a port answered until its device is closed.
pub(super) fn serve_prober(prober: &Arc<Prober>) -> Result<(), DeviceError> {
    let mut state = STATE.lock();
    state.probers.push(Arc::downgrade(prober));
    state.rouse()
}

impl State {
    /// Has the thread look at its lists; starts it if it is not there.
    fn rouse(&mut self) -> Result<(), DeviceError> {
        if self.wake() {
            return Ok(());
        }
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let more = EventFd::from_flags(flags).map(Arc::new);
        let more = more.map_err(|error| refusal("a descriptor", &error, "-n"))?;
        let told = Arc::clone(&more);
        let builder = std::thread::Builder::new().name("r2ccl-events".into());
        builder
            .spawn(move || serve(&told))
            .map_err(|error| refusal("a thread", &error, "-u"))?;
        self.more = Some(more);
        Ok(())
    }

    /// The same; false if it is not there.
    fn wake(&self) -> bool {
        let Some(more) = &self.more else {
            return false;
        };
        // It can fail only when its counter is full, and then it is readable.
        let _ = more.write(1);
        true
    }
}

/// A device has told something new to whoever read its events: has the thread look who is to be
/// woken.
pub(super) fn rouse() {
    STATE.lock().wake();
}

fn refusal(what: &str, error: &dyn std::fmt::Display, limit: &str) -> DeviceError {
    DeviceError(format!(
        "events of RDMA devices need {what}: {error}; raise the limit (`ulimit {limit}`)"
    ))
}

fn serve(more: &EventFd) {
    loop {
        let (watched, probers) = {
            let mut state = STATE.lock();
            state.probers.retain(|prober| prober.strong_count() > 0);
            (state.watched.clone(), state.probers.clone())
        };
        // Whoever is in the lists is closed only after this round.
        let open: Vec<_> = watched
            .iter()
            .filter_map(|watched| Some((watched, watched.context.upgrade()?)))
            .collect();
        let probers: Vec<_> = probers.iter().filter_map(Weak::upgrade).collect();
        let sources = open.iter().map(|(_, context)| context.events());
        let questions = probers.iter().map(|prober| prober.events());
        let mut all: Vec<_> = std::iter::once(more.as_fd())
            .chain(sources)
            .chain(questions)
            .map(|source| PollFd::new(source, PollFlags::POLLIN))
            .collect();
        if poll(&mut all, PollTimeout::NONE).is_err() {
            // A signal; nothing else can happen to a list of open descriptors.
            continue;
        }
        let mut is_ready = all.iter().map(|source| source.any().unwrap_or(false));
        if is_ready.next() == Some(true) {
            let _ = more.read();
        }
        for ((watched, context), is_ready) in open.iter().zip(&mut is_ready) {
            if is_ready {
                context.read_events();
            }
            if context.has_event(watched.port) {
                (watched.wake)();
            }
        }
        for (prober, _) in probers
            .iter()
            .zip(is_ready)
            .filter(|(_, is_ready)| *is_ready)
        {
            prober.serve();
        }
    }
}
