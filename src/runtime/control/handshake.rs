//! From a TCP connection to a session: hello, reply, greetings, and which of two sessions stays.
//!
//! Both processes may dial at the same time, and each may lose a session before the other notices;
//! one session stays (PROTOCOL R30). Of two sessions of one link the one with the higher round
//! stays; in the same round the newer one if one side dialled both, else the one that the lower
//! instance dialled. Both sides decide by what both know, so they agree, in whatever order the
//! handshakes end. Frames are resent until acknowledged, so that a change of sessions loses none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use r2ccl_core::wire::frame::{Frame, Header};
use r2ccl_core::wire::greeting::Greeting;
use r2ccl_core::wire::hello::{Hello, Reply, SecretOf, Verdict};

use super::auth::{self, Key, Secret};
use super::dial::{Evidence, Peer};
use super::link::{Link, LinkError, PeerInfo};
use super::session::{Phase, Session};
use super::settings;
use super::steward::Steward;

/// What becomes of a session after a step.
pub(super) enum Step {
    /// It goes on.
    Go,
    /// It ends, for this reason.
    End(String),
    /// A dial ends, and says this about the peer.
    Failed(Evidence),
}

impl Steward {
    /// Listening side: a hello has come.
    pub(super) fn on_hello(&mut self, token: u64, session: &mut Session) -> Step {
        let Some(bytes) = session.take_hello() else {
            return Step::Go;
        };
        let Some(hello) = Hello::decode(&bytes) else {
            return Step::End("no hello".into());
        };
        if hello.target != self.shared.instance {
            self.shared.counts.strangers.fetch_add(1, Ordering::Relaxed);
            session.put(&self.reply(&hello, Verdict::OtherInstance).encode());
            session.phase = Phase::Closing;
            return Step::Go;
        }
        let Some(secret) = self.secret_for(&hello) else {
            return Step::End("a hello without a secret that is known here".into());
        };
        let key = auth::hello_key(secret);
        if !key.verify_hello(&bytes) {
            return Step::End("a hello with a wrong MAC".into());
        }
        let verdict = match hello.version == self.shared.config.version {
            true => Verdict::Welcome,
            false => Verdict::OtherVersion,
        };
        let mut reply = self.reply(&hello, verdict);
        match auth::random() {
            Ok(nonce) => reply.nonce = nonce,
            Err(error) => return Step::End(error.to_string()),
        }
        let mut reply_bytes = reply.encode();
        key.seal_hello(&mut reply_bytes);
        session.put(&reply_bytes);
        session.peer = hello.dialler;
        session.round = hello.round;
        if verdict == Verdict::OtherVersion {
            session.phase = Phase::Closing;
            self.other_version(
                hello.dialler,
                &session.address.ip().to_string(),
                hello.version,
            );
            return Step::Go;
        }
        let (dialler, listener) = auth::record_keys(secret, &bytes, &reply_bytes);
        self.set_keys(session, listener, dialler);
        self.fresh.remove(token);
        if let Some(oldest) = self.halfway.push(token) {
            self.drop_stranger(oldest, "too many unfinished handshakes");
        }
        Step::Go
    }

    fn set_keys(&self, session: &mut Session, send: Key, receive: Key) {
        session.set_keys(send, receive);
        session.phase = Phase::Greeting;
    }

    fn reply(&self, hello: &Hello, verdict: Verdict) -> Reply {
        Reply {
            version: self.shared.config.version,
            verdict,
            instance: self.shared.instance,
            dialler: hello.dialler,
            round: hello.round,
            nonce: [0; 16],
        }
    }

    /// The secret that a hello must have been made with.
    fn secret_for(&self, hello: &Hello) -> Option<Secret> {
        match hello.secret_of {
            SecretOf::Target => Some(self.shared.secret),
            SecretOf::Dialler => {
                let link = self.shared.links.lock().get(&hello.dialler).cloned()?;
                link.state.lock().peer_secret
            }
        }
    }

    /// Dialling side: a reply has come.
    pub(super) fn on_reply(&mut self, session: &mut Session) -> Step {
        let Phase::Reply(hello, hello_bytes) = session.phase else {
            return Step::Go;
        };
        let Some(bytes) = session.take_hello() else {
            return Step::Go;
        };
        let Some(reply) = Reply::decode(&bytes) else {
            return Step::Failed(Evidence::Other(
                "a program that is not R2CCL answers".into(),
            ));
        };
        if reply.dialler != hello.dialler || reply.round != hello.round {
            return Step::Failed(Evidence::Failed("the answer is to another hello".into()));
        }
        if reply.verdict == Verdict::OtherInstance && reply.instance != hello.target {
            return Step::Failed(Evidence::Other("another process of R2CCL answers".into()));
        }
        let secret = match hello.secret_of {
            SecretOf::Dialler => Some(self.shared.secret),
            SecretOf::Target => self
                .peers
                .get(&session.peer)
                .and_then(|peer| peer.link.state.lock().peer_secret),
        };
        let Some(secret) = secret.filter(|secret| auth::hello_key(*secret).verify_hello(&bytes))
        else {
            return Step::Failed(Evidence::Failed("the answer has a wrong MAC".into()));
        };
        match reply.verdict {
            Verdict::Welcome => {}
            Verdict::OtherVersion => {
                self.other_version(
                    session.peer,
                    &session.address.ip().to_string(),
                    reply.version,
                );
                return Step::End("other version".into());
            }
            Verdict::OtherInstance => {
                return Step::Failed(Evidence::Failed("the answer contradicts itself".into()));
            }
        }
        let (dialler, listener) = auth::record_keys(secret, &hello_bytes, &bytes);
        self.set_keys(session, dialler, listener);
        let Some(link) = self
            .peers
            .get(&session.peer)
            .map(|peer| Arc::clone(&peer.link))
        else {
            return Step::End("given up".into());
        };
        self.greet(session, &link);
        Step::Go
    }

    /// Ends the link to a process of another version, on both sides.
    fn other_version(&mut self, instance: u64, address: &str, theirs: u16) {
        let peer = PeerInfo {
            instance,
            pid: 0,
            host: address.to_owned(),
        };
        let Some(link) = self.link_for(peer) else {
            return;
        };
        let ours = self.shared.config.version;
        let text = format!(
            "R2CCL on {} speaks protocol version {theirs}, on {} version {ours}: install the same \
             R2CCL on both",
            link.peer().host,
            self.shared.config.host,
        );
        self.fail(&link, LinkError::Mismatch(text));
    }

    /// The link to a process, made if there is none; `None` without random numbers.
    fn link_for(&mut self, peer: PeerInfo) -> Option<Arc<Link>> {
        let mut links = self.shared.links.lock();
        if let Some(link) = links.get(&peer.instance) {
            return Some(Arc::clone(link));
        }
        let instance = peer.instance;
        let link = Link::new(&self.shared, peer, None, Vec::new()).ok()?;
        links.insert(instance, Arc::clone(&link));
        Some(link)
    }

    /// Says who we are and how far we have heard the peer.
    fn greet(&self, session: &mut Session, link: &Arc<Link>) {
        let config = &self.shared.config;
        let known = self
            .peers
            .get(&link.instance)
            .filter(|peer| Arc::ptr_eq(&peer.link, link));
        let greeting = Frame::Greeting(Greeting {
            instance: self.shared.instance,
            pid: std::process::id(),
            host: config.host.clone(),
            link: link.number,
            known_link: known.map_or(0, |peer| peer.remote_link),
            addresses: self.shared.addresses.clone(),
            fingerprint: settings::fingerprint(&config.settings),
            settings: config.settings.clone(),
        });
        let received = link.state.lock().received;
        // Config is checked at start: a greeting always fits.
        if let Ok(body) = greeting.encode() {
            session.put_record(greeting.kind(), 0, received, &body);
        }
    }

    /// The other side has greeted, and is proven with that.
    pub(super) fn on_greeting(
        &mut self,
        token: u64,
        session: &mut Session,
        header: &Header,
        greeting: &Greeting,
    ) -> Step {
        self.halfway.remove(token);
        if greeting.instance != session.peer {
            return Step::End("it greeted as somebody else".into());
        }
        let link = match self.link_of_greeting(greeting) {
            Ok(link) => link,
            Err(reason) => {
                let reset = Frame::Reset { reason };
                if let Ok(body) = reset.encode() {
                    session.put_record(reset.kind(), 0, 0, &body);
                }
                session.phase = Phase::Closing;
                return Step::Go;
            }
        };
        learn_greeting(&link, greeting);
        if let Some(text) = settings::mismatch(&self.shared.config, greeting) {
            if !session.dialled {
                self.greet(session, &link);
            }
            session.phase = Phase::Closing;
            self.fail(&link, LinkError::Mismatch(text));
            return Step::Go;
        }
        self.stand(token, session, header, greeting, &link)
    }

    /// The link that a greeting is about, or why it cannot be continued.
    fn link_of_greeting(&mut self, greeting: &Greeting) -> Result<Arc<Link>, String> {
        let info = PeerInfo {
            instance: greeting.instance,
            pid: greeting.pid,
            host: greeting.host.clone(),
        };
        let no_numbers = || "no random numbers".to_owned();
        let mut link = self.link_for(info.clone()).ok_or_else(no_numbers)?;
        let known = greeting.known_link;
        if known != 0 && known != link.number {
            return Err("the other side has begun the link anew".into());
        }
        let began_anew = self.peers.get(&greeting.instance).is_some_and(|peer| {
            Arc::ptr_eq(&peer.link, &link)
                && peer.remote_link != 0
                && peer.remote_link != greeting.link
        });
        if began_anew {
            let text = format!("{info} gave this link up and began another one");
            self.fail(&link, LinkError::Lost(text));
        }
        match link.error() {
            None => {}
            Some(LinkError::Lost(_)) if known == 0 => {
                let mut links = self.shared.links.lock();
                match links.get(&greeting.instance) {
                    // A caller has begun it anew in this very moment.
                    Some(other) if !Arc::ptr_eq(other, &link) => link = Arc::clone(other),
                    _ => {
                        let secret = link.state.lock().peer_secret;
                        let addresses = greeting.addresses.clone();
                        link = Link::new(&self.shared, info, secret, addresses)
                            .map_err(|_| no_numbers())?;
                        links.insert(greeting.instance, Arc::clone(&link));
                    }
                }
            }
            Some(error) => return Err(format!("the other side has ended the link: {error}")),
        }
        Ok(link)
    }

    /// Lets the session stand, or the one that stands already.
    fn stand(
        &mut self,
        token: u64,
        session: &mut Session,
        header: &Header,
        greeting: &Greeting,
        link: &Arc<Link>,
    ) -> Step {
        let own = self.shared.instance;
        let instance = greeting.instance;
        let peer = self
            .peers
            .entry(instance)
            .or_insert_with(|| Peer::new(Arc::clone(link)));
        let current = peer.current.as_ref();
        if let Some(standing) = current.and_then(|current| self.sessions.get(current)) {
            let same_side = standing.dialled == session.dialled;
            let ours_wins = own < instance;
            let wins_tie = same_side || session.dialled == ours_wins;
            if session.round < standing.round || session.round == standing.round && !wins_tie {
                // It has proven itself, and loses as one of two crossing dials must.
                session.phase = Phase::Closing;
                return Step::End("another session stands".into());
            }
        }
        if !link.acknowledge(header.acknowledged) {
            return Step::End("it acknowledges what was never sent".into());
        }
        // A crossing dial of the same round is no reconnection.
        if peer.round > 0 && session.round > peer.round {
            self.shared
                .counts
                .reconnects
                .fetch_add(1, Ordering::Relaxed);
        }
        if let Some(old) = peer.current.replace(token) {
            self.sessions.remove(&old);
        }
        // A crossing dial goes on and is turned down by the other side, which would have to take it
        // for a stranger's if it broke off.
        if peer.dialling == Some(token) {
            peer.dialling = None;
        }
        peer.round = session.round;
        peer.remote_link = greeting.link;
        peer.transmitted = link.state.lock().acknowledged;
        peer.is_up_at(session, &greeting.addresses);
        link.up.store(true, Ordering::Release);
        if !session.dialled {
            self.greet(session, link);
        }
        session.phase = Phase::Up;
        Step::Go
    }
}

/// Takes over what a greeting tells about its speaker.
fn learn_greeting(link: &Link, greeting: &Greeting) {
    let mut state = link.state.lock();
    state.peer.pid = greeting.pid;
    state.peer.host = greeting.host.clone();
    if !greeting.addresses.is_empty() {
        state.addresses = greeting.addresses.clone();
    }
}
