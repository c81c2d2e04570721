//! Acts where NCCL does not: hands frames of the control plane to their connections, and drives
//! connections that have work to send while nobody polls them.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use r2ccl_core::RegionId;
use r2ccl_core::wire::frame::Frame;

use super::control::{ControlHandler, ControlPlane, Link, LinkError};
use super::setup::ListenInbox;
use super::shared::{Inbox, News, Shared};
use super::table::{Kind, Table};
use super::{RECEIVES, SENDS};

/// Who takes the news of a connection, and the link that they come by.
type Addressee = (Arc<Link>, Arc<Inbox>);

/// Finds connections by the ids in frames, and watches those that nobody polls.
#[derive(Default)]
pub struct Steward {
    listens: Mutex<HashMap<u64, Arc<ListenInbox>>>,
    connections: Mutex<HashMap<u64, Addressee>>,
    watched: Mutex<Vec<Watched>>,
    control: OnceLock<Arc<ControlPlane>>,
}

struct Watched {
    id: u64,
    polls: u32,
}

/// How long a connection with work to send may go unpolled before the steward takes it.
const UNPOLLED: Duration = Duration::from_millis(1);

impl Steward {
    /// Adds a listener under its nonce.
    pub fn add_listen(&self, nonce: u64, inbox: Arc<ListenInbox>) {
        self.listens.lock().insert(nonce, inbox);
    }

    /// Removes a listener.
    pub fn remove_listen(&self, nonce: u64) {
        self.listens.lock().remove(&nonce);
    }

    /// Adds a connection under its id. If its link has failed meanwhile, it learns at once.
    pub fn add_connection(&self, connection: u64, link: &Arc<Link>, inbox: &Arc<Inbox>) {
        self.connections
            .lock()
            .insert(connection, (link.clone(), inbox.clone()));
        if let Some(error) = link.error() {
            inbox.put(News::LinkDown(error.to_string()));
        }
    }

    /// Removes a connection.
    pub fn remove_connection(&self, connection: u64) {
        self.connections.lock().remove(&connection);
    }

    /// Sees to it that the connection `id`, which has work that only polling pushes out, is driven
    /// although NCCL may never call again.
    pub fn watch(&self, id: u64) {
        self.watched.lock().push(Watched { id, polls: 0 });
        if let Some(control) = self.control.get() {
            control.wake();
        }
    }

    /// Tells the steward whom to wake.
    pub fn set_control(&self, control: Arc<ControlPlane>) {
        let _ = self.control.set(control);
    }

    fn deliver(&self, connection: u64, news: News) {
        // A connection that is not there any more has closed; its peer will find that out by its
        // own goodbye.
        if let Some((_, inbox)) = self.connections.lock().get(&connection) {
            inbox.put(news);
        }
    }

    fn tend(watched: &mut Watched) -> bool {
        match Kind::of(watched.id) {
            Some(Kind::Send) => watched.tend(&SENDS),
            Some(Kind::Receive) => watched.tend(&RECEIVES),
            _ => false,
        }
    }
}

/// A connection that the steward may drive.
pub trait Driven {
    /// Polls and posts what can be posted.
    fn progress(&mut self);

    /// Whether a request that NCCL still waits for uses a buffer in `region`.
    fn uses(&self, region: RegionId) -> bool;

    /// Stops the connection: nothing lands in its buffers and nothing is read from them any more.
    fn fence(&mut self);

    /// Mark of a call that is under way; found set, it tells of a panic.
    fn in_call(&mut self) -> &mut bool;
}

impl Watched {
    /// Drives the connection unless its owner does. Returns whether to go on watching.
    fn tend<O: Driven>(&mut self, table: &Table<O, Shared>) -> bool {
        let Some(shared) = table.shared(self.id) else {
            return false;
        };
        let polls = shared.polls.load(Ordering::Relaxed);
        if polls == std::mem::replace(&mut self.polls, polls) {
            // A connection that is busy is being driven by its owner.
            if let Ok(mut connection) = table.try_own(self.id) {
                if !*connection.in_call() {
                    connection.progress();
                }
            }
        }
        shared.keep_watching()
    }
}

impl ControlHandler for Steward {
    fn on_frame(&self, link: &Arc<Link>, frame: Frame) {
        match frame {
            Frame::Open(open) => {
                let listen = self.listens.lock().get(&open.listen_nonce).cloned();
                match listen {
                    Some(inbox) => inbox.put(link.clone(), open),
                    None => {
                        let reason = "the receiver has closed this listener".into();
                        let _ = link.send(Frame::Refuse {
                            to: open.connection,
                            reason,
                        });
                    }
                }
            }
            Frame::Accept(accept) => self.deliver(accept.to, News::Accepted(accept)),
            Frame::Refuse { to, reason } => self.deliver(to, News::Refused(reason)),
            Frame::RegionKey {
                to, region, rkey, ..
            } => {
                self.deliver(to, News::RegionKey(RegionId(region), rkey));
            }
            Frame::Goodbye { to, count } => self.deliver(to, News::Goodbye(count)),
            // The control plane keeps these to itself.
            Frame::Greeting(_) | Frame::Ack | Frame::Reset { .. } => {}
        }
    }

    fn on_link_down(&self, link: &Arc<Link>, reason: &LinkError) {
        for (other, inbox) in self.connections.lock().values() {
            if Arc::ptr_eq(link, other) {
                inbox.put(News::LinkDown(reason.to_string()));
            }
        }
        if let LinkError::Mismatch(text) = reason {
            for inbox in self.listens.lock().values() {
                inbox.put_misfit(text.clone());
            }
        }
    }

    fn on_tick(&self) -> Option<Duration> {
        let mut list = std::mem::take(&mut *self.watched.lock());
        list.retain_mut(Self::tend);
        let mut watched = self.watched.lock();
        list.append(&mut watched);
        *watched = list;
        (!watched.is_empty()).then_some(UNPOLLED)
    }
}
