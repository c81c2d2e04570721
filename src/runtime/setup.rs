//! How a connection comes to be: `listen`, `connect` and `accept`, none of which ever waits.
//!
//! The listener's handle travels on NCCL's own bootstrap. `connect` reaches the listener's process
//! over the one control connection that the two processes share, offers its end of the path and
//! then looks, call after call, for the answer. `accept` takes the next offer and answers it. The
//! queue pairs connect by themselves; work posted before that waits in them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;
use r2ccl_core::limits::{SEGMENT_BYTES_MAX, SEND_DEPTH};
use r2ccl_core::wire::frame::{Accept, Frame, Open, PathEnd};
use r2ccl_core::wire::handle::Handle;
use r2ccl_core::{Generation, PathId, Receiver, ReceiverConfig, Route, Sender, SenderConfig};
use r2ccl_fabric::{QueuePair, QueuePairAddress, QueuePairConfig};

use super::control::Link;
use super::error::{Error, Result};
use super::group::Group;
use super::memory::{Regions, check_spare};
use super::nic::Nic;
use super::path::Path;
use super::receive::{RECEIVES_POSTED, ReceiveConnection};
use super::ring::{PeerMemory, Ring, Slots};
use super::send::SendConnection;
use super::shared::{Inbox, News, Shared, Watch};
use super::table::{Kind, Table};
use super::{RECEIVES, Runtime, SENDS};

/// The one path of a connection in this version, in its first life.
const PRIMARY: PathId = PathId::PRIMARY;
const FIRST_LIFE: Generation = Generation(1);

/// Sizes of a queue pair: a full window of messages and the credits and counters beside it.
const QUEUE_PAIR: QueuePairConfig = QueuePairConfig {
    send_depth: SEND_DEPTH,
    receive_depth: RECEIVES_POSTED,
};

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
            let reason = "too many connections wait at one listener".into();
            let _ = link.send(Frame::Refuse {
                to: open.connection,
                reason,
            });
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
    dev: i32,
    connection: u64,
    link: Arc<Link>,
    inbox: Arc<Inbox>,
    host: String,
    // In this order: the peer writes to the ring through the queue pair.
    queue_pair: Box<dyn QueuePair>,
    ring: Ring,
    keys: Vec<News>,
}

/// Makes a listener and fills its handle.
pub fn listen(dev: i32, handle: &mut [u8; Handle::BYTES]) -> Result<u64> {
    check_spare()?;
    let runtime = Runtime::get()?;
    runtime.nic(dev)?;
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
        let reason = "the receiver has closed this listener".into();
        let _ = link.send(Frame::Refuse {
            to: open.connection,
            reason,
        });
    }
    Ok(())
}

/// Begins or continues a connection to the listener of `handle`. `None`: not yet, call again with
/// the same handle; its last bytes name the attempt.
pub fn connect(dev: i32, handle: &mut [u8; Handle::BYTES]) -> Result<Option<u64>> {
    let state = &handle[Handle::STATE_OFFSET..Handle::STATE_OFFSET + 8];
    let attempt = u64::from_le_bytes(state.try_into().unwrap_or_default());
    if attempt != 0 {
        return proceed(attempt);
    }
    let peer = Handle::decode(handle).map_err(|error| Error::Usage(error.to_string()))?;
    let attempt = offer(dev, &peer)?;
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
    let answered = answer(runtime, dev, &link, &open);
    if let Err(error) = &answered {
        let reason = error.to_string();
        let _ = link.send(Frame::Refuse {
            to: open.connection,
            reason,
        });
    }
    answered.map(Some)
}

/// Sends our end of the path to the listener's process.
fn offer(dev: i32, peer: &Handle) -> Result<u64> {
    check_spare()?;
    let runtime = Runtime::get()?;
    let nic = runtime.nic(dev)?;
    let link = runtime.control()?.link(peer)?;
    let ring = Ring::new(&nic.cache)?;
    let queue_pair = create_queue_pair(nic)?;
    let connection = random_id()?;
    let inbox = Arc::<Inbox>::default();
    let open = Open {
        listen_nonce: peer.nonce,
        connection,
        nic: nic.device.info().name.clone(),
        paths: vec![path_end(
            dev,
            FIRST_LIFE.wire(),
            queue_pair.as_ref(),
            ring.memory(),
        )],
    };
    let attempt = Connecting {
        dev,
        connection,
        link: link.clone(),
        inbox: inbox.clone(),
        host: peer.host.clone(),
        queue_pair,
        ring,
        keys: Vec::new(),
    };
    let id = CONNECTING.insert(|_| (attempt, Arc::new(())))?;
    runtime.steward().add_connection(connection, &link, &inbox);
    if let Err(error) = link.send(Frame::Open(open)) {
        runtime.steward().remove_connection(connection);
        CONNECTING.remove(id);
        return Err(error);
    }
    Ok(id)
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
            News::Refused(reason) => {
                outcome = Some(Err(Error::Remote(format!("{}: {reason}", waiting.host))));
            }
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
    let nic = runtime.nic(waiting.dev)?;
    let Connecting {
        mut queue_pair,
        ring,
        link,
        inbox,
        keys,
        ..
    } = waiting;
    let remote = accept
        .paths
        .iter()
        .find(|path| path.path == PRIMARY.index() as u16 && path.generation == FIRST_LIFE.wire())
        .ok_or_else(|| Error::Internal("the receiver accepted without a path".into()))?;
    connect_queue_pair(queue_pair.as_mut(), &remote.queue_pair)?;
    // Keys came on the same link behind the answer and before whatever is in the inbox now.
    inbox.put_back(keys);
    let core = sender(nic.device.info().message_bytes_max)?;
    let path = Path::new(PRIMARY, FIRST_LIFE, queue_pair, ring);
    let slots = peer_memory(remote);
    let label = label(&nic.device.info().name, &waiting.host, &accept.nic, true);
    SENDS.insert(|id| {
        let shared = Arc::new(Shared {
            connection: waiting.connection,
            peer_connection: accept.connection,
            link,
            group: Group::current(),
            cache: nic.cache.clone(),
            regions: Regions::default(),
            inbox,
            label,
            polls: AtomicU32::new(0),
            watch: Watch::new(id, runtime.steward().clone()),
        });
        (
            SendConnection::new(shared.clone(), core, path, slots),
            shared,
        )
    })
}

/// Makes the receiving side of an offer and sends the answer.
fn answer(runtime: &Runtime, dev: i32, link: &Arc<Link>, open: &Open) -> Result<u64> {
    check_spare()?;
    let nic = runtime.nic(dev)?;
    let offer = open
        .paths
        .iter()
        .find(|path| path.path == PRIMARY.index() as u16)
        .ok_or_else(|| Error::Internal("the sender offered no path".into()))?;
    let generation = Generation(u32::from(offer.generation));
    let slots = Slots::new(&nic.cache)?;
    let mut queue_pair = create_queue_pair(nic)?;
    // Before the answer: whoever knows our queue pair may write at once.
    queue_pair
        .post_receives(RECEIVES_POSTED)
        .map_err(|error| Error::System(error.to_string()))?;
    connect_queue_pair(queue_pair.as_mut(), &offer.queue_pair)?;
    let connection = random_id()?;
    let reply = Accept {
        to: open.connection,
        connection,
        nic: nic.device.info().name.clone(),
        paths: vec![path_end(
            dev,
            offer.generation,
            queue_pair.as_ref(),
            slots.memory(),
        )],
    };
    let inbox = Arc::<Inbox>::default();
    let mut core = Receiver::new(ReceiverConfig::default());
    core.add_path(PRIMARY, generation)
        .and_then(|()| core.set_credit_path(PRIMARY))
        .map_err(|error| Error::Internal(error.to_string()))?;
    let path = Path::new(PRIMARY, generation, queue_pair, slots);
    let ring = peer_memory(offer);
    let label = label(&nic.device.info().name, &link.peer().host, &open.nic, false);
    runtime.steward().add_connection(connection, link, &inbox);
    let id = RECEIVES.insert(|id| {
        let shared = Arc::new(Shared {
            connection,
            peer_connection: open.connection,
            link: link.clone(),
            group: Group::current(),
            cache: nic.cache.clone(),
            regions: Regions::default(),
            inbox,
            label,
            polls: AtomicU32::new(0),
            watch: Watch::new(id, runtime.steward().clone()),
        });
        (
            ReceiveConnection::new(shared.clone(), core, path, ring),
            shared,
        )
    })?;
    if let Err(error) = link.send(Frame::Accept(reply)) {
        runtime.steward().remove_connection(connection);
        RECEIVES.remove(id);
        return Err(error);
    }
    Ok(id)
}

/// The sending half of the protocol, with the one path of this version as its route.
fn sender(device_bytes_max: u64) -> Result<Sender> {
    let segment_bytes_max =
        SEGMENT_BYTES_MAX.min(u32::try_from(device_bytes_max).unwrap_or(u32::MAX));
    let made = Sender::new(SenderConfig { segment_bytes_max }).and_then(|mut core| {
        core.add_path(PRIMARY, FIRST_LIFE)?;
        core.set_route(Route::single(PRIMARY))?;
        Ok(core)
    });
    made.map_err(|error| Error::Internal(error.to_string()))
}

fn create_queue_pair(nic: &Nic) -> Result<Box<dyn QueuePair>> {
    nic.device
        .create_queue_pair(QUEUE_PAIR)
        .map_err(|error| Error::System(error.to_string()))
}

fn connect_queue_pair(queue_pair: &mut dyn QueuePair, remote: &[u8; 64]) -> Result<()> {
    queue_pair
        .connect(&QueuePairAddress(*remote))
        .map_err(|error| Error::System(error.to_string()))
}

/// `h0/soft0 -> h1/soft1`, in the direction of the data.
fn label(own_nic: &str, peer_host: &str, peer_nic: &str, sending: bool) -> String {
    let own_host = crate::config::settings().host_identity().name;
    if sending {
        format!("{own_host}/{own_nic} -> {peer_host}/{peer_nic}")
    } else {
        format!("{peer_host}/{peer_nic} -> {own_host}/{own_nic}")
    }
}

/// Our end of the primary path, for the peer.
fn path_end(dev: i32, generation: u16, queue_pair: &dyn QueuePair, memory: PeerMemory) -> PathEnd {
    PathEnd {
        path: PRIMARY.index() as u16,
        generation,
        nic: u8::try_from(dev).unwrap_or(u8::MAX),
        queue_pair: queue_pair.address().0,
        memory_address: memory.address,
        memory_rkey: memory.rkey,
    }
}

fn peer_memory(end: &PathEnd) -> PeerMemory {
    PeerMemory {
        address: end.memory_address,
        rkey: end.memory_rkey,
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
