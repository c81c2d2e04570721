//! Acts where NCCL does not: hands frames of the control plane to their connections, and drives
//! connections that have work to send while nobody polls them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use r2ccl_core::wire::frame::Frame;
use r2ccl_core::{PathId, RegionId};
use r2ccl_fabric::{DeviceEvent, PortState, SharedDevice};

use super::control::{ControlHandler, ControlPlane, Link, LinkError};
use super::memory::RegionKey;
use super::nic::Nic;
use super::setup::{LISTENER_CLOSED, ListenInbox, decline};
use super::shared::{DrainNews, Inbox, News, PortChange, Shared, Tally};
use super::table::{Kind, Table};
use super::{RECEIVES, SENDS, time_until};
use crate::monitor::watch::{Monitor, NicUsage};

/// Who takes the news of a connection, and the link that they come by.
struct Addressee {
    link: Arc<Link>,
    inbox: Arc<Inbox>,
    /// Its id in the table of its kind, once it is there.
    owner: Option<u64>,
}

/// Finds connections by the ids in frames, and watches those that nobody polls.
#[derive(Default)]
pub struct Steward {
    listens: Mutex<HashMap<u64, Arc<ListenInbox>>>,
    connections: Mutex<HashMap<u64, Addressee>>,
    watched: Mutex<Vec<Watched>>,
    control: OnceLock<Arc<ControlPlane>>,
    nics: OnceLock<Vec<KnownNic>>,
    /// Only the steward's own thread locks it, on its ticks.
    monitor: Mutex<Option<Monitor>>,
    /// Locked after `connections`.
    drains: Mutex<Drains>,
    /// Counts mails, so that connections carry them in turn.
    mails: AtomicUsize,
}

/// Which NICs new messages keep off.
#[derive(Default)]
struct Drains {
    /// Their numbers.
    devs: Vec<usize>,
    /// Counts the changes.
    round: u32,
}

/// A NIC of this process.
struct KnownNic {
    device: SharedDevice,
    tally: Arc<Tally>,
    /// As the last event left it: asking may take a device long.
    is_up: AtomicBool,
}

struct Watched {
    id: u64,
    polls: u32,
}

type Connections<'a> = MutexGuard<'a, HashMap<u64, Addressee>>;

/// Connections that carry a mail.
const CARRIERS: usize = 4;
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
        let addressee = Addressee {
            link: link.clone(),
            inbox: inbox.clone(),
            owner: None,
        };
        let mut connections = self.connections.lock();
        connections.insert(connection, addressee);
        let drains = self.drains.lock();
        for &dev in &drains.devs {
            inbox.put(News::Drain(DrainNews {
                dev,
                is_drained: true,
                round: drains.round,
            }));
        }
        drop((drains, connections));
        if let Some(error) = link.error() {
            inbox.put(News::LinkDown(error.to_string()));
        }
    }

    /// Removes a connection.
    pub fn remove_connection(&self, connection: u64) {
        self.connections.lock().remove(&connection);
    }

    /// The connection is in its table under the id `owner`. It has things to do at once, and NCCL
    /// may not call before there is data to move.
    pub fn set_owner(&self, connection: u64, owner: u64) {
        if let Some(addressee) = self.connections.lock().get_mut(&connection) {
            addressee.owner = Some(owner);
        }
        urge(owner);
    }

    /// Looks again soon; `id` is a connection that is not watched yet. It has something to do, now
    /// or at a time, although NCCL may never call again.
    pub fn watch(&self, id: Option<u64>) {
        if let Some(id) = id {
            self.watched.lock().push(Watched { id, polls: 0 });
        }
        self.wake();
    }

    /// Has the steward look at everything soon.
    pub fn wake(&self) {
        if let Some(control) = self.control.get() {
            control.wake();
        }
    }

    /// Tells the steward the NICs of this process, in the order of their numbers, and who shows
    /// them to people.
    pub fn set_nics(&self, nics: &[Nic], monitor: Option<Monitor>) {
        let known = |nic: &Nic| KnownNic {
            device: nic.device.clone(),
            tally: nic.tally.clone(),
            is_up: AtomicBool::new(nic.device.port_state() == PortState::Active),
        };
        let _ = self.nics.set(nics.iter().map(known).collect());
        *self.monitor.lock() = monitor;
        self.wake();
    }

    /// Tells the steward whom to wake.
    pub fn set_control(&self, control: Arc<ControlPlane>) {
        let _ = self.control.set(control);
    }

    fn deliver(&self, connection: u64, news: News) {
        // A connection that is not there any more has closed; its peer will find that out by its
        // own goodbye.
        let connections = self.connections.lock();
        let Some(addressee) = connections.get(&connection) else {
            return;
        };
        // Keys can wait for whoever needs them.
        let is_urgent = matches!(news, News::Path(_));
        addressee.inbox.put(news);
        let owner = addressee.owner.filter(|_| is_urgent);
        drop(connections);
        owner.into_iter().for_each(urge);
    }

    /// Tells all connections what has become of the ports of this process.
    fn tell_ports(&self) {
        for (dev, nic) in self.nics.get().into_iter().flatten().enumerate() {
            let device = &nic.device;
            let mut change = None;
            while let Some(event) = device.poll_event() {
                // An event only makes us look; what counts is the state.
                change = Some(match (event, device.port_state()) {
                    (DeviceEvent::Fatal, _) => PortChange::Gone,
                    (_, PortState::Active) => PortChange::Up,
                    (_, PortState::Down) => PortChange::Down,
                });
            }
            let Some(change) = change else {
                continue;
            };
            nic.is_up.store(change == PortChange::Up, Ordering::Relaxed);
            tracing::warn!("{}: port {change:?}", device.info().name);
            self.tell_all(self.connections.lock(), || News::Port(dev, change));
        }
    }

    /// Tells all connections, and has them driven soon.
    fn tell_all(&self, connections: Connections<'_>, news: impl Fn() -> News) {
        let owners: Vec<_> = connections
            .values()
            .filter_map(|addressee| {
                addressee.inbox.put(news());
                addressee.owner
            })
            .collect();
        drop(connections);
        owners.into_iter().for_each(urge);
    }

    /// Looks at the board; returns when to do so again.
    fn tend_board(&self) -> Option<Duration> {
        let mut monitor = self.monitor.lock();
        let monitor = monitor.as_mut()?;
        if let Some(drains) = monitor.look() {
            for (dev, is_drained) in drains {
                self.tell_drain(dev, is_drained);
            }
            monitor.show(&self.usage());
        }
        monitor.pause()
    }

    fn tell_drain(&self, dev: usize, is_drained: bool) {
        let connections = self.connections.lock();
        let mut drains = self.drains.lock();
        drains.devs.retain(|other| *other != dev);
        drains.devs.extend(is_drained.then_some(dev));
        drains.round += 1;
        let news = DrainNews {
            dev,
            is_drained,
            round: drains.round,
        };
        drop(drains);
        self.tell_all(connections, || News::Drain(news));
    }

    /// What the connections of this process say about each NIC.
    fn usage(&self) -> Vec<NicUsage> {
        let nics = self.nics.get().map_or(&[][..], Vec::as_slice);
        let usage = |nic: &KnownNic| NicUsage {
            is_up: nic.is_up.load(Ordering::Relaxed),
            failovers: nic.tally.failovers.load(Ordering::Relaxed),
            failbacks: nic.tally.failbacks.load(Ordering::Relaxed),
            ..NicUsage::default()
        };
        let mut all: Vec<_> = nics.iter().map(usage).collect();
        let connections = self.connections.lock();
        let drains = self.drains.lock();
        let owners = connections.values().filter_map(|addressee| addressee.owner);
        for shared in owners.filter_map(shared) {
            let (serving, failed) = shared.paths.get();
            let out = shared.paths.out(drains.round);
            let mut used = vec![false; all.len()];
            for (path, nic) in shared.nics.iter().enumerate() {
                let Some(entry) = all.get_mut(nic.dev) else {
                    continue;
                };
                let (is_serving, has_failed) = (serving >> path & 1 == 1, failed >> path & 1 == 1);
                entry.paths_in_service += u32::from(is_serving);
                entry.paths_failed += u32::from(has_failed);
                let is_leaving = drains.devs.contains(&nic.dev) && out >> path & 1 == 0;
                entry.paths_leaving += u32::from(is_serving && is_leaving);
                let is_first = !std::mem::replace(&mut used[nic.dev], is_serving || has_failed);
                entry.connections += u32::from(is_first && (is_serving || has_failed));
            }
        }
        all
    }

    fn tend(watched: &mut Watched) -> Option<u64> {
        match Kind::of(watched.id) {
            Some(Kind::Send) => watched.tend(&SENDS),
            Some(Kind::Receive) => watched.tend(&RECEIVES),
            _ => None,
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
    /// Drives the connection if it is due, unless its owner does. Returns when to look again;
    /// `None`: no more.
    fn tend<O: Driven>(&mut self, table: &Table<O, Shared>) -> Option<u64> {
        let shared = table.shared(self.id)?;
        let polls = shared.polls.load(Ordering::Relaxed);
        let is_unpolled = polls == std::mem::replace(&mut self.polls, polls);
        if is_unpolled && shared.is_due() {
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

/// Has the steward drive a connection soon, unless its owner does.
fn urge(id: u64) {
    if let Some(shared) = shared(id) {
        shared.urge();
    }
}

fn shared(id: u64) -> Option<Arc<Shared>> {
    match Kind::of(id) {
        Some(Kind::Send) => SENDS.shared(id),
        Some(Kind::Receive) => RECEIVES.shared(id),
        _ => None,
    }
}

impl ControlHandler for Steward {
    fn on_frame(&self, link: &Arc<Link>, frame: Frame) {
        match frame {
            Frame::Open(open) => {
                let listen = self.listens.lock().get(&open.listen_nonce).cloned();
                match listen {
                    Some(inbox) => inbox.put(link.clone(), open),
                    None => decline(link, &open, LISTENER_CLOSED, 0),
                }
            }
            Frame::Accept(accept) => self.deliver(accept.to, News::Accepted(accept)),
            Frame::Refuse { to, reason, nics } => self.deliver(to, News::Refused(reason, nics)),
            Frame::RegionKey {
                to,
                region,
                path,
                rkey,
            } => {
                let region = RegionId(region);
                if let Some(path) = PathId::new(path) {
                    self.deliver(to, News::RegionKey(RegionKey { region, path, rkey }));
                }
            }
            Frame::Path { to, frame } => self.deliver(to, News::Path(frame)),
            Frame::Goodbye { to, count } => self.deliver(to, News::Goodbye(count)),
            // The control plane keeps these to itself.
            Frame::Greeting(_) | Frame::Ack | Frame::Reset { .. } => {}
        }
    }

    fn on_link_down(&self, link: &Arc<Link>, reason: &LinkError) {
        for addressee in self.connections.lock().values() {
            if Arc::ptr_eq(link, &addressee.link) {
                addressee.inbox.put(News::LinkDown(reason.to_string()));
            }
        }
        if let LinkError::Mismatch(text) = reason {
            for inbox in self.listens.lock().values() {
                inbox.put_misfit(text.clone());
            }
        }
    }

    /// A few connections carry the mail, others each time: the peer may not be looking at one that
    /// is idle. Without a control connection all of this end look for the peer's.
    fn on_mail_due(&self, link: &Arc<Link>, is_asking: bool) {
        let connections = self.connections.lock();
        let of_link = connections
            .values()
            .filter(|addressee| Arc::ptr_eq(link, &addressee.link));
        let owned: Vec<_> = of_link
            .filter_map(|addressee| Some((addressee, addressee.owner.and_then(shared)?)))
            .collect();
        let able: Vec<_> = owned
            .iter()
            .filter(|(_, shared)| shared.paths.get().0 != 0)
            .collect();
        let turn = self.mails.fetch_add(CARRIERS, Ordering::Relaxed);
        let in_turn = able.iter().cycle().skip(turn % able.len().max(1));
        for (carrier, shared) in in_turn.take(CARRIERS.min(able.len())) {
            carrier.inbox.put(News::Mail { is_asking });
            shared.urge();
        }
        if !link.is_up() {
            owned.iter().for_each(|(_, shared)| shared.urge());
        }
    }

    fn on_tick(&self) -> Option<Duration> {
        self.tell_ports();
        let board = self.tend_board();
        let mut list = std::mem::take(&mut *self.watched.lock());
        let mut pause = board;
        list.retain_mut(|watched| {
            let Some(due_ns) = Self::tend(watched) else {
                return false;
            };
            let wait = time_until(due_ns).max(UNPOLLED);
            pause = Some(pause.map_or(wait, |pause: Duration| pause.min(wait)));
            true
        });
        let mut watched = self.watched.lock();
        let has_new = !watched.is_empty();
        list.append(&mut watched);
        *watched = list;
        if has_new { Some(UNPOLLED) } else { pause }
    }
}
