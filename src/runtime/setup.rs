//! How a connection comes to be: `listen`, `connect` and `accept`, none of which ever waits.
//!
//! The listener's handle travels on NCCL's own bootstrap. `connect` reaches the listener's process
//! over the one control connection that the two processes share, offers its end of the path and
//! then looks, call after call, for the answer. `accept` takes the next offer and answers it. The
//! queue pairs connect by themselves; work posted before that waits in them.
//!
//! The first path is the one between the NICs that NCCL chose. Where one of these is down, the
//! connection begins on the next path that can be had, and takes the first one back later, as if
//! it had been lost.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use parking_lot::Mutex;
use r2ccl_core::limits::{PATHS_MAX, SEGMENT_BYTES_MAX};
use r2ccl_core::wire::frame::{Accept, Frame, Open, PathEnd};
use r2ccl_core::wire::handle::Handle;
use r2ccl_core::wire::path_frame::Endpoint;
use r2ccl_core::{
    End, EndConfig, Generation, Half, PathId, Receiver, ReceiverConfig, Routing, Sender,
    SenderConfig,
};
use r2ccl_fabric::{Access, PortState, helpers};

use super::control::Link;
use super::driver::{Driver, DriverConfig, Role, STANDBY, make_path};
use super::error::{Error, Result};
use super::group::Group;
use super::memory::{Regions, check_spare};
use super::order::Order;
use super::path::Path;
use super::receive::ReceiveConnection;
use super::ring::{PathMemory, Ring, Slots};
use super::send::SendConnection;
use super::shared::{Inbox, News, PathMarks, PathNic, Shared, Watch};
use super::table::{Kind, Table};
use super::{RECEIVES, Runtime, SENDS, now};
use crate::config::{Fence, RoutingAlgorithm, Settings, settings};

/// Why an offer is declined whose listener is not there any more.
pub const LISTENER_CLOSED: &str = "the receiver has closed this listener";

/// The path that a connection is made on, in its first life.
const PRIMARY: PathId = PathId::PRIMARY;
const FIRST_LIFE: Generation = Generation(1);
/// Its part in health, and its capacity.
const PRIMARY_PARTS: (u32, u32) = (1, 1);

/// Listening endpoints of this process.
static LISTENS: Table<Listen, ()> = Table::new(Kind::Listen);
/// Connections on the sending side that wait for their answer.
static CONNECTING: Table<Connecting, ()> = Table::new(Kind::Send);

/// One listening endpoint.
struct Listen {
    dev: i32,
    nonce: u64,
    inbox: Arc<ListenInbox>,
}

/// What waits for `accept`.
#[derive(Default)]
pub struct ListenInbox {
    offers: Mutex<VecDeque<(Arc<Link>, Open)>>,
    misfit: Mutex<Option<String>>,
}

impl ListenInbox {
    /// Adds an offer. NCCL makes one listener a connection, so more than a few are a mistake of
    /// the peer and are declined.
    pub fn put(&self, link: Arc<Link>, open: Open) {
        const OFFERS_MAX: usize = 64;
        let mut offers = self.offers.lock();
        if offers.len() < OFFERS_MAX {
            offers.push_back((link, open));
        } else {
            decline(&link, &open, "too many connections wait at one listener", 0);
        }
    }

    /// A process of this job has been turned down because it does not fit to this one. Which
    /// listener it was after it had no chance to say, so each learns of it: whoever waits for that
    /// process would wait for ever.
    pub fn put_misfit(&self, reason: String) {
        *self.misfit.lock() = Some(reason);
    }

    /// The next offer, or why none may come.
    fn take(&self) -> Result<Option<(Arc<Link>, Open)>> {
        match self.offers.lock().pop_front() {
            Some(offer) => Ok(Some(offer)),
            None => self
                .misfit
                .lock()
                .take()
                .map_or(Ok(None), |reason| Err(Error::Usage(reason))),
        }
    }
}

/// A sending side between its offer and the answer.
struct Connecting {
    order: Order,
    connection: u64,
    link: Arc<Link>,
    inbox: Arc<Inbox>,
    listen_nonce: u64,
    host: String,
    path: Path<Ring>,
    keys: Vec<News>,
}

/// Makes a listener on NCCL's device `device` and fills its handle.
pub fn listen(device: i32, handle: &mut [u8; Handle::BYTES]) -> Result<u64> {
    check_spare()?;
    let runtime = Runtime::get()?;
    let dev = runtime.dev_of(device)?;
    let control = runtime.control()?;
    let nonce = random_id()?;
    let inbox = Arc::<ListenInbox>::default();
    *handle = control.handle_for(nonce).encode();
    runtime.steward().add_listen(nonce, inbox.clone());
    LISTENS.insert(|_| (Listen { dev, nonce, inbox }, Arc::new(())))
}

/// Closes a listener; offers that nobody took are declined.
pub fn close_listen(id: u64) -> Result<()> {
    let (listen, _) = LISTENS.remove(id).ok_or_else(|| unknown("listener"))?;
    Runtime::get()?.steward().remove_listen(listen.nonce);
    for (link, open) in listen.inbox.offers.lock().drain(..) {
        decline(&link, &open, LISTENER_CLOSED, 0);
    }
    Ok(())
}

/// Declines an offer. Another path may do if `nics`, the number of this host's NICs, is not 0.
pub fn decline(link: &Arc<Link>, open: &Open, reason: &str, nics: u8) {
    // A sender whose link is down learns it from there.
    let _ = link.send(Frame::Refuse {
        to: open.connection,
        reason: reason.into(),
        nics,
    });
}

/// Begins or continues a connection from NCCL's device `device` to the listener of `handle`.
/// `None`: not yet, call again with the same handle; its last bytes name the attempt.
pub fn connect(device: i32, handle: &mut [u8; Handle::BYTES]) -> Result<Option<u64>> {
    let state = &handle[Handle::STATE_OFFSET..Handle::STATE_OFFSET + 8];
    let attempt = u64::from_le_bytes(state.try_into().unwrap_or_default());
    if attempt != 0 {
        return proceed(attempt);
    }
    let peer = Handle::decode(handle).map_err(|error| Error::Usage(error.to_string()))?;
    let attempt = offer(Runtime::get()?.dev_of(device)?, &peer)?;
    handle[Handle::STATE_OFFSET..Handle::STATE_OFFSET + 8].copy_from_slice(&attempt.to_le_bytes());
    Ok(None)
}

/// Takes the next offer of a listener. `None`: none has come yet.
pub fn accept(id: u64) -> Result<Option<u64>> {
    let runtime = Runtime::get()?;
    let (dev, offer) = {
        let listen = LISTENS.own(id).ok_or_else(|| unknown("listener"))?;
        (listen.dev, listen.inbox.take()?)
    };
    let Some((link, open)) = offer else {
        return Ok(None);
    };
    let order = Order::said(&open.steps, dev, (open.nics, nic_count(runtime)));
    let path = match accepted_path(runtime, &order, &open) {
        // The next offer is for another path; the last one says that there is none.
        Err(error) if has_other_paths() && !open.paths.is_empty() => {
            decline(&link, &open, &error.to_string(), nic_count(runtime));
            return Ok(None);
        }
        path => path,
    };
    path.and_then(|path| answer(runtime, &order, (&link, &open), path))
        .inspect_err(|error| decline(&link, &open, &error.to_string(), 0))
        .map(Some)
}

/// Whether a connection may use other paths than the one between the NICs that NCCL chose.
fn has_other_paths() -> bool {
    settings().routing_algorithm != RoutingAlgorithm::Static
}

/// This end of the path that was offered.
fn accepted_path(runtime: &Runtime, order: &Order, open: &Open) -> Result<Path<Slots>> {
    let none = || Error::Remote(format!("{}: the sender has no NIC that works", open.nic));
    let offer = open.paths.first().ok_or_else(none)?;
    let id = PathId::new(offer.path as u8).filter(|_| offer.path < PATHS_MAX as u16);
    let id =
        id.ok_or_else(|| Error::Internal("the sender offered a path beyond the last".into()))?;
    let generation = Generation(u32::from(offer.generation));
    let mut path = first_path::<Receiver>(runtime, order, (id, generation))?;
    join(&mut path, offer)?;
    Ok(path)
}

/// Sends our end of the path to the listener's process.
fn offer(dev: i32, peer: &Handle) -> Result<u64> {
    check_spare()?;
    let runtime = Runtime::get()?;
    let link = runtime.control()?.link(peer)?;
    let order = Order::near(runtime.nics(), dev);
    let path = offered_path(runtime, &order, 0..nic_count(runtime))?;
    let connection = random_id()?;
    let inbox = Arc::<Inbox>::default();
    let attempt = Connecting {
        order,
        connection,
        link: link.clone(),
        inbox: inbox.clone(),
        listen_nonce: peer.nonce,
        host: peer.host.clone(),
        path,
        keys: Vec::new(),
    };
    let open = attempt.open(runtime, true)?;
    let id = CONNECTING.insert(|_| (attempt, Arc::new(())))?;
    runtime.steward().add_connection(connection, &link, &inbox);
    if let Err(error) = link.send(Frame::Open(open)) {
        runtime.steward().remove_connection(connection);
        CONNECTING.remove(id);
        return Err(error);
    }
    Ok(id)
}

impl Connecting {
    /// The offer of the present path, or the word that there is none.
    fn open(&self, runtime: &Runtime, has_path: bool) -> Result<Open> {
        let path = has_path.then(|| path_end(&self.order, &self.path));
        Ok(Open {
            listen_nonce: self.listen_nonce,
            connection: self.connection,
            nic: runtime.nic(self.order.first)?.device.info().name.clone(),
            nics: nic_count(runtime),
            steps: self.order.steps.iter().copied().take(PATHS_MAX).collect(),
            paths: path.into_iter().collect(),
        })
    }

    /// The listener could not have the present path, and its host has `nics` NICs: offers the next
    /// one. False: there is none, or (`nics` is 0) none would do.
    fn offer_next(&mut self, nics: u8) -> Result<bool> {
        if nics == 0 {
            return Ok(false);
        }
        let runtime = Runtime::get()?;
        let count = nic_count(runtime).max(nics).min(PATHS_MAX as u8);
        let next = self.path.id.index() as u8 + 1;
        let path = offered_path(runtime, &self.order, next..count);
        let has_path = path.is_ok();
        if let Ok(path) = path {
            let old = std::mem::replace(&mut self.path, path);
            // A device may block.
            let _ = helpers::submit(Box::new(move || drop(old)));
        }
        self.link.send(Frame::Open(self.open(runtime, has_path)?))?;
        Ok(has_path)
    }
}

/// Our end of the first of these paths that can be had.
fn offered_path(runtime: &Runtime, order: &Order, paths: Range<u8>) -> Result<Path<Ring>> {
    let mut failure = None;
    for id in paths.filter_map(PathId::new) {
        match first_path::<Sender>(runtime, order, (id, FIRST_LIFE)) {
            Ok(path) => return Ok(path),
            Err(error) => failure = failure.or(Some(error)),
        }
        if !has_other_paths() {
            break;
        }
    }
    Err(failure.unwrap_or_else(|| Error::System("there is no other NIC".into())))
}

/// This end of the path that a connection begins on.
fn first_path<H: Role>(
    runtime: &Runtime,
    order: &Order,
    (id, generation): (PathId, Generation),
) -> Result<Path<H::Memory>> {
    let nic = path_nic(runtime, order.nic(id))?;
    // A device may take a long time to find that out.
    if nic.device.port_state() == PortState::Down {
        let name = &nic.device.info().name;
        return Err(Error::System(format!("{name}: its link is down")));
    }
    make_path::<H>(&nic, (id, generation))
}

/// Looks for the listener's answer.
fn proceed(attempt: u64) -> Result<Option<u64>> {
    let mut waiting = CONNECTING.own(attempt).ok_or_else(|| {
        Error::Argument("this handle belongs to a connection that was made or given up".into())
    })?;
    let mut outcome = None;
    for news in waiting.inbox.take() {
        match news {
            News::Accepted(accept) => outcome = Some(Ok(accept)),
            News::Refused(reason, nics) => match waiting.offer_next(nics) {
                Ok(true) => {}
                Ok(false) => {
                    outcome = Some(Err(Error::Remote(format!("{}: {reason}", waiting.host))));
                }
                Err(error) => outcome = Some(Err(error)),
            },
            News::LinkDown(reason) => {
                // The link knows whether the peer failed or does not fit.
                let error = waiting.link.error();
                let error = error.map_or_else(|| Error::Remote(reason), Error::from);
                outcome.get_or_insert(Err(error));
            }
            other => waiting.keys.push(other),
        }
    }
    drop(waiting);
    let Some(outcome) = outcome else {
        return Ok(None);
    };
    let (waiting, _) = CONNECTING
        .remove(attempt)
        .ok_or_else(|| unknown("attempt"))?;
    let (connection, link) = (waiting.connection, waiting.link.clone());
    let made = outcome.and_then(|accept| {
        finish(waiting, &accept).inspect_err(|_| {
            // The receiver takes the connection for made.
            let (to, count) = (accept.connection, 0);
            let _ = link.send(Frame::Goodbye { to, count });
        })
    });
    if made.is_err() {
        Runtime::get()?.steward().remove_connection(connection);
    }
    made.map(Some)
}

/// Turns an accepted offer into a connection.
fn finish(waiting: Connecting, accept: &Accept) -> Result<u64> {
    let runtime = Runtime::get()?;
    let nic = runtime.nic(waiting.order.first)?;
    let Connecting {
        order,
        mut path,
        connection,
        link,
        inbox,
        host,
        keys,
        ..
    } = waiting;
    let remote = accept
        .paths
        .iter()
        .find(|end| end.path == path.id.index() as u16 && end.generation == FIRST_LIFE.wire())
        .ok_or_else(|| Error::Internal("the receiver accepted without a path".into()))?;
    join(&mut path, remote)?;
    // Keys came on the same link behind the answer and before whatever is in the inbox now.
    inbox.put_back(keys);
    let segment_bytes_max = u32::try_from(nic.device.info().message_bytes_max);
    let config = SenderConfig {
        segment_bytes_max: SEGMENT_BYTES_MAX.min(segment_bytes_max.unwrap_or(u32::MAX)),
    };
    let core = Sender::new(config).map_err(|error| Error::Internal(error.to_string()))?;
    let end = end(core, (path.id, FIRST_LIFE))?;
    let label = label(&nic.device.info().name, &host, &accept.nic, true);
    let nics = path_nics(runtime, &order, accept.nics)?;
    let id = SENDS.insert(|id| {
        let shared = Arc::new(Shared {
            connection,
            peer_connection: accept.connection,
            link,
            group: Group::current(),
            regions: Regions::new(Access::Local, nic.cache.clone()),
            nics,
            inbox,
            label,
            polls: AtomicU32::new(0),
            watch: Watch::new(id, runtime.steward().clone()),
            paths: PathMarks::default(),
        });
        (SendConnection::new(driver(&shared, end, path)), shared)
    })?;
    runtime.steward().set_owner(connection, id);
    Ok(id)
}

/// Makes the receiving side of an offer and sends the answer.
fn answer(
    runtime: &Runtime,
    order: &Order,
    (link, open): (&Arc<Link>, &Open),
    path: Path<Slots>,
) -> Result<u64> {
    check_spare()?;
    let nic = runtime.nic(order.first)?;
    let connection = random_id()?;
    let reply = Accept {
        to: open.connection,
        connection,
        nic: nic.device.info().name.clone(),
        nics: nic_count(runtime),
        paths: vec![path_end(order, &path)],
    };
    let inbox = Arc::<Inbox>::default();
    let end = end(
        Receiver::new(ReceiverConfig::default()),
        (path.id, path.generation),
    )?;
    let label = label(&nic.device.info().name, &link.peer().host, &open.nic, false);
    let nics = path_nics(runtime, order, open.nics)?;
    runtime.steward().add_connection(connection, link, &inbox);
    let id = RECEIVES.insert(|id| {
        let shared = Arc::new(Shared {
            connection,
            peer_connection: open.connection,
            link: link.clone(),
            group: Group::current(),
            regions: Regions::new(Access::RemoteData, nic.cache.clone()),
            nics,
            inbox,
            label,
            polls: AtomicU32::new(0),
            watch: Watch::new(id, runtime.steward().clone()),
            paths: PathMarks::default(),
        });
        (ReceiveConnection::new(driver(&shared, end, path)), shared)
    })?;
    runtime.steward().set_owner(connection, id);
    if let Err(error) = link.send(Frame::Accept(reply)) {
        runtime.steward().remove_connection(connection);
        RECEIVES.remove(id);
        return Err(error);
    }
    Ok(id)
}

/// An end of a connection with the path that it begins on. The primary path comes later if that is
/// another one.
fn end<H: Half>(half: H, (path, generation): (PathId, Generation)) -> Result<End<H>> {
    let mut end = End::new(end_config(settings(), random_id()?), half);
    let parts = if path == PRIMARY {
        PRIMARY_PARTS
    } else {
        end.add_standby(now(), PRIMARY, PRIMARY_PARTS);
        STANDBY
    };
    end.add_path(now(), path, generation, parts)
        .map_err(|error| Error::Internal(error.to_string()))?;
    Ok(end)
}

fn driver<H: Role>(shared: &Arc<Shared>, end: End<H>, path: Path<H::Memory>) -> Driver<H> {
    if let Some(nic) = shared.nics.get(path.id.index()) {
        // No buffer is registered yet that the device could refuse.
        let _ = shared.regions.activate(path.id, &nic.cache);
    }
    let config = DriverConfig {
        routing: routing(settings()),
        quarantine: settings().quarantine,
        queue_pairs_max: settings().queue_pairs,
    };
    Driver::new(shared.clone(), end, path, config)
}

fn routing(settings: &Settings) -> Routing {
    match settings.routing_algorithm {
        RoutingAlgorithm::Static => Routing::Static,
        RoutingAlgorithm::HotRepair => Routing::HotRepair,
        RoutingAlgorithm::Balance | RoutingAlgorithm::Planner => Routing::Balance,
    }
}

fn end_config(settings: &Settings, seed: u64) -> EndConfig {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let hold_down_ns = nanoseconds(settings.hold_down);
    let usual = EndConfig::default();
    EndConfig {
        routing: routing(settings),
        seed,
        quarantine_ns: nanoseconds(settings.quarantine),
        is_fence_strict: settings.fence == Fence::Strict,
        hold_down_ns,
        hold_down_max_ns: if settings.flap_damping {
            usual.hold_down_max_ns.max(hold_down_ns)
        } else {
            hold_down_ns
        },
        give_up_ns: nanoseconds(settings.give_up),
        ..usual
    }
}

fn nic_count(runtime: &Runtime) -> u8 {
    u8::try_from(runtime.nics().len()).unwrap_or(u8::MAX)
}

/// This end's NICs of all paths that there may be: as many as the host with more NICs has.
fn path_nics(runtime: &Runtime, order: &Order, peer_nics: u8) -> Result<Box<[PathNic]>> {
    let nics = runtime.nics();
    let count = nics.len().max(usize::from(peer_nics)).clamp(1, PATHS_MAX);
    let paths = (0..count as u8).filter_map(PathId::new);
    paths
        .map(|path| path_nic(runtime, order.nic(path)))
        .collect()
}

fn path_nic(runtime: &Runtime, dev: i32) -> Result<PathNic> {
    let nic = runtime.nic(dev)?;
    Ok(PathNic {
        dev: dev as usize,
        device: nic.device.clone(),
        cache: nic.cache.clone(),
        tally: nic.tally.clone(),
    })
}

fn join<M: PathMemory>(path: &mut Path<M>, remote: &PathEnd) -> Result<()> {
    let remote = Endpoint {
        queue_pair: remote.queue_pair,
        memory_address: remote.memory_address,
        memory_rkey: remote.memory_rkey,
    };
    path.connect(&remote)
        .map_err(|error| Error::System(error.to_string()))
}

/// `h0/soft0 -> h1/soft1`, in the direction of the data.
fn label(own_nic: &str, peer_host: &str, peer_nic: &str, sending: bool) -> String {
    let own_host = settings().host_identity().name;
    if sending {
        format!("{own_host}/{own_nic} -> {peer_host}/{peer_nic}")
    } else {
        format!("{peer_host}/{peer_nic} -> {own_host}/{own_nic}")
    }
}

/// Our end of a path, for the peer.
fn path_end<M: PathMemory>(order: &Order, path: &Path<M>) -> PathEnd {
    let endpoint = path.endpoint();
    PathEnd {
        path: path.id.index() as u16,
        generation: path.generation.wire(),
        nic: u8::try_from(order.nic(path.id)).unwrap_or(u8::MAX),
        queue_pair: endpoint.queue_pair,
        memory_address: endpoint.memory_address,
        memory_rkey: endpoint.memory_rkey,
    }
}

fn unknown(what: &str) -> Error {
    Error::Argument(format!("this {what} is closed or was never made here"))
}

/// A number that no other process and no later connection has; never 0.
fn random_id() -> Result<u64> {
    getrandom::u64()
        .map(|id| id.max(1))
        .map_err(|error| Error::System(format!("no random numbers from the system: {error}")))
}
