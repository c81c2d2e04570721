//! Dialling a peer, again and again, and the verdict when it does not answer (PROTOCOL R31).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use r2ccl_core::wire::hello::{Hello, SecretOf};

use super::auth;
use super::link::{Link, LinkError};
use super::mail::MailTimer;
use super::remedy;
use super::session::{Phase, Session};
use super::steward::{Steward, Timer};
use super::strangers::PROOF_TIME;

/// Pause after the first failed round over all addresses; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Head start of the lower instance when both have lost a session: spares a crossing dial.
const HEAD_START: Duration = Duration::from_millis(5);

/// What a failed dial says about the peer.
#[derive(Clone, Debug)]
pub(super) enum Evidence {
    /// Nobody listens there.
    Refused,
    /// Another process listens there; the text says which.
    Other(String),
    /// The network or the host does not answer, or the attempt broke off.
    Failed(String),
}

/// What the steward knows of a link besides what all threads may see.
pub(super) struct Peer {
    pub(super) link: Arc<Link>,
    /// Session that stands.
    pub(super) current: Option<u64>,
    /// Session that is being dialled.
    pub(super) dialling: Option<u64>,
    /// Number of the session that stood last.
    pub(super) round: u64,
    /// The peer's number of the link; 0 until it has greeted.
    pub(super) remote_link: u64,
    /// Highest sequence put into the current session.
    pub(super) transmitted: u64,
    /// Whether the peer waits for an acknowledgement.
    pub(super) acknowledgement_owed: bool,
    /// When what has not been acknowledged goes over NICs.
    pub(super) mail: MailTimer,
    /// Whether dialling has begun or the peer has come by itself.
    begun: bool,
    /// When to dial next; other timers are outdated.
    dial_at: Option<Instant>,
    /// Since when there is no session.
    down_since: Instant,
    /// Address to dial next.
    next_address: usize,
    backoff: Duration,
    /// Addresses at which the peer, proven, was reached or from whose host it came.
    proven: Vec<SocketAddr>,
    /// Latest evidence at each address since the link is down.
    evidence: HashMap<SocketAddr, Evidence>,
}

impl Peer {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            current: None,
            dialling: None,
            round: 0,
            remote_link: 0,
            transmitted: 0,
            acknowledgement_owed: false,
            mail: MailTimer::default(),
            begun: false,
            dial_at: None,
            down_since: Instant::now(),
            next_address: 0,
            backoff: BACKOFF_MIN,
            proven: Vec::new(),
            evidence: HashMap::new(),
        }
    }

    /// A session stands: whatever spoke against the peer is forgotten. A dialled address is proven
    /// as it is; of an accepted connection only the host is, so its listening address is taken.
    pub(super) fn is_up_at(&mut self, session: &Session, addresses: &[SocketAddr]) {
        self.begun = true;
        self.backoff = BACKOFF_MIN;
        self.next_address = 0;
        self.evidence.clear();
        let proven = addresses
            .iter()
            .copied()
            .find(|address| match session.dialled {
                true => *address == session.address,
                false => address.ip() == session.address.ip(),
            });
        if let Some(address) = proven.filter(|address| !self.proven.contains(address)) {
            self.proven.push(address);
        }
    }

    /// Since when no session stands, if one has.
    pub(super) fn cut_since(&self) -> Option<Instant> {
        let is_cut = self.round > 0 && self.current.is_none();
        is_cut.then_some(self.down_since)
    }

    /// Whether the link holds frames that the current session has not been given.
    pub(super) fn has_frames(&self) -> bool {
        let state = self.link.state.lock();
        self.acknowledgement_owed
            || self.transmitted < state.acknowledged + state.queue.len() as u64
    }

    /// Whether what is known means that the process is no more, and why. An address that was never
    /// proven may belong to another host (bridges have the same one everywhere): it counts only
    /// together with all others.
    fn death(&self, addresses: &[SocketAddr]) -> Option<String> {
        let against = |address: &SocketAddr| match self.evidence.get(address)? {
            Evidence::Refused => Some(format!("{address} refuses connections")),
            Evidence::Other(text) => Some(format!("at {address} {text}")),
            Evidence::Failed(_) => None,
        };
        let reasons: Vec<_> = addresses.iter().filter_map(against).collect();
        let certain = self.proven.iter().any(|address| against(address).is_some());
        let all = !addresses.is_empty() && reasons.len() == addresses.len();
        (certain || all).then(|| reasons.join(", "))
    }

    /// The evidence in words.
    fn last_words(&self) -> String {
        let mut words: Vec<_> = self
            .evidence
            .iter()
            .map(|(address, evidence)| match evidence {
                Evidence::Refused => format!("{address} refuses connections"),
                Evidence::Other(text) => format!("at {address} {text}"),
                Evidence::Failed(text) => format!("{address}: {text}"),
            })
            .collect();
        words.sort();
        if words.is_empty() {
            "no address of it is known".into()
        } else {
            words.join(", ")
        }
    }
}

impl Steward {
    /// Dials a peer unless that goes on already or a session stands.
    pub(super) fn dial(&mut self, instance: u64) {
        let Some(peer) = self.peers.get(&instance) else {
            return;
        };
        if peer.current.is_some() || peer.dialling.is_some() {
            return;
        }
        let addresses = peer.link.state.lock().addresses.clone();
        let index = peer.next_address;
        let round = peer.round + 1;
        let Some(&address) = addresses.get(index) else {
            return self.pause(instance);
        };
        let session = Session::dial(address, instance, round);
        match session.and_then(|session| self.adopt_socket(session)) {
            Ok(token) => {
                if let Some(peer) = self.peers.get_mut(&instance) {
                    peer.dialling = Some(token);
                }
                let patience = PROOF_TIME.min(self.shared.config.giveup);
                self.set_timer(Instant::now() + patience, Timer::Proof(token));
            }
            Err(error) => {
                let remedy = remedy(&error);
                if !remedy.is_empty() {
                    tracing::warn!("no socket to reach {address}: {error}{remedy}");
                }
                self.dial_failed(instance, address, evidence_of(&error));
            }
        }
    }

    /// The TCP connection of a dial stands, or does not: says hello.
    pub(super) fn on_connected(&mut self, session: &mut Session) -> Result<(), Evidence> {
        match session.stream.take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return Err(evidence_of(&error)),
        }
        let failed = |_| Evidence::Failed("no random numbers".into());
        let peer = self
            .peers
            .get(&session.peer)
            .ok_or(Evidence::Failed("given up".into()))?;
        let theirs = peer.link.state.lock().peer_secret;
        let (secret, secret_of) = match theirs {
            Some(secret) => (secret, SecretOf::Target),
            None => (self.shared.secret, SecretOf::Dialler),
        };
        let hello = Hello {
            version: self.shared.config.version,
            secret_of,
            dialler: self.shared.instance,
            target: session.peer,
            round: session.round,
            nonce: auth::random().map_err(failed)?,
        };
        let mut bytes = hello.encode();
        auth::hello_key(secret).seal_hello(&mut bytes);
        session.put(&bytes);
        session.phase = Phase::Reply(hello, bytes);
        Ok(())
    }

    /// A dial has failed: another address, a pause, or the end.
    pub(super) fn dial_failed(&mut self, instance: u64, address: SocketAddr, evidence: Evidence) {
        let Some(peer) = self.peers.get_mut(&instance) else {
            return;
        };
        peer.dialling = None;
        if peer.current.is_some() {
            return;
        }
        tracing::debug!(
            "dialling {} at {address} failed: {evidence:?}",
            peer.link.peer()
        );
        peer.evidence.insert(address, evidence);
        peer.next_address += 1;
        let (addresses, who) = {
            let state = peer.link.state.lock();
            (state.addresses.clone(), state.peer.to_string())
        };
        let link = Arc::clone(&peer.link);
        if let Some(reason) = peer.death(&addresses) {
            let text = match peer.round {
                0 => format!("{who} has died or cannot be reached: {reason}"),
                _ => format!("{who} has died: its control connection ended, and {reason}"),
            };
            return self.fail(&link, LinkError::PeerDead(text));
        }
        if peer.next_address < addresses.len() {
            return self.dial_at(instance, Instant::now());
        }
        self.pause(instance);
    }

    /// All addresses were tried: waits a little before the next round, or gives up.
    fn pause(&mut self, instance: u64) {
        let giveup = self.shared.config.giveup;
        let Some(peer) = self.peers.get_mut(&instance) else {
            return;
        };
        let now = Instant::now();
        // A peer that is heard over NICs is there.
        let since = peer
            .mail
            .heard
            .map_or(peer.down_since, |heard| heard.max(peer.down_since));
        let deadline = since + giveup;
        if now >= deadline {
            let link = Arc::clone(&peer.link);
            let text = format!(
                "{} could not be reached for {:.1} s ({}): check the network between the hosts and \
                 its firewall, or raise R2CCL_GIVEUP",
                link.peer(),
                giveup.as_secs_f64(),
                peer.last_words()
            );
            return self.fail(&link, LinkError::Lost(text));
        }
        peer.next_address = 0;
        let pause = peer.backoff.mul_f64(0.75 + 0.25 * jitter());
        peer.backoff = (peer.backoff * 2).min(BACKOFF_MAX);
        self.dial_at(instance, (now + pause).min(deadline));
    }

    fn dial_at(&mut self, instance: u64, at: Instant) {
        if let Some(peer) = self.peers.get_mut(&instance) {
            peer.dial_at = Some(at);
            self.set_timer(at, Timer::Dial(instance));
        }
    }

    /// A timer for dialling has run off.
    pub(super) fn on_dial_time(&mut self, instance: u64, at: Instant) {
        let peer = self.peers.get_mut(&instance);
        if let Some(peer) = peer.filter(|peer| peer.dial_at == Some(at)) {
            peer.dial_at = None;
            self.dial(instance);
        }
    }

    /// Dials a peer for the first time; later dials have timers of their own.
    pub(super) fn dial_if_new(&mut self, instance: u64) {
        let peer = self.peers.get_mut(&instance);
        if peer.is_some_and(|peer| !std::mem::replace(&mut peer.begun, true)) {
            self.dial(instance);
        }
    }

    /// The session that stood is gone.
    pub(super) fn session_lost(&mut self, instance: u64, why: &str) {
        let own = self.shared.instance;
        let Some(peer) = self.peers.get_mut(&instance) else {
            return;
        };
        peer.current = None;
        peer.acknowledgement_owed = false;
        peer.down_since = Instant::now();
        peer.link.up.store(false, Ordering::Release);
        tracing::debug!(
            "the control connection to {} ended: {why}",
            peer.link.peer()
        );
        let wait = if own < instance {
            Duration::ZERO
        } else {
            HEAD_START
        };
        self.dial_at(instance, Instant::now() + wait);
        self.watch_mail(instance);
    }
}

/// What an error of a socket says about the peer.
fn evidence_of(error: &io::Error) -> Evidence {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Evidence::Refused,
        _ => Evidence::Failed(error.to_string()),
    }
}

/// A number from 0 to 1; without random numbers there is no jitter.
fn jitter() -> f64 {
    auth::random::<1>().map_or(1.0, |[byte]| f64::from(byte) / 255.0)
}
