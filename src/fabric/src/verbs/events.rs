//! One thread that waits for the asynchronous events of all opened devices, and has whoever is
//! interested look at them.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;

use super::context::Context;
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
    /// Tells the thread that there is one more, or that somebody else has read an event.
    more: Option<Arc<EventFd>>,
}

static STATE: Mutex<State> = Mutex::new(State {
    watched: Vec::new(),
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
    if let Some(more) = &state.more {
        // It can fail only when its counter is full, and then it is readable.
        let _ = more.write(1);
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
    state.more = Some(more);
    Ok(())
}

/// A device has told something new to whoever read its events: has the thread look who is to be
/// woken.
pub(super) fn rouse() {
    if let Some(more) = &STATE.lock().more {
        // It can fail only when its counter is full, and then it is readable.
        let _ = more.write(1);
    }
}

fn refusal(what: &str, error: &dyn std::fmt::Display, limit: &str) -> DeviceError {
    DeviceError(format!(
        "events of RDMA devices need {what}: {error}; raise the limit (`ulimit {limit}`)"
    ))
}

fn serve(more: &EventFd) {
    loop {
        let watched = STATE.lock().watched.clone();
        // Whoever is in the list is closed only after this round.
        let open: Vec<_> = watched
            .iter()
            .filter_map(|watched| Some((watched, watched.context.upgrade()?)))
            .collect();
        let sources = open.iter().map(|(_, context)| context.events());
        let mut all: Vec<_> = std::iter::once(more.as_fd())
            .chain(sources)
            .map(|source| PollFd::new(source, PollFlags::POLLIN))
            .collect();
        if poll(&mut all, PollTimeout::NONE).is_err() {
            // A signal; nothing else can happen to a list of open descriptors.
            continue;
        }
        let is_ready: Vec<_> = all
            .iter()
            .map(|source| source.any().unwrap_or(false))
            .collect();
        if is_ready[0] {
            let _ = more.read();
        }
        for ((watched, context), is_ready) in open.iter().zip(&is_ready[1..]) {
            if *is_ready {
                context.read_events();
            }
            if context.has_event(watched.port) {
                (watched.wake)();
            }
        }
    }
}
