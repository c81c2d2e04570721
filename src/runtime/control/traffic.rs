//! Sessions at work: bytes from sockets into frames for the handler, frames of links into sockets.

use std::cmp::Ordering as Order;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::sys::epoll::EpollFlags;
use r2ccl_core::wire::frame::Frame;
use r2ccl_core::wire::hello::HELLO_MAGIC;

use super::dial::{Evidence, Peer};
use super::handshake::Step;
use super::link::{Link, LinkError, Queued};
use super::session::{Phase, Record, Session};
use super::steward::Steward;

/// Reads of one session before others get their turn and acknowledgements go out.
const READS_AT_ONCE: usize = 8;

impl Steward {
    /// A socket has something.
    pub(super) fn on_session_event(&mut self, token: u64, flags: EpollFlags) {
        // Out of the table while it is worked on; whoever ends it meanwhile finds it missing.
        let Some(mut session) = self.sessions.remove(&token) else {
            return;
        };
        let mut step = Step::Go;
        if matches!(session.phase, Phase::Connecting) {
            step = match self.on_connected(&mut session) {
                Ok(()) => Step::Go,
                Err(evidence) => Step::Failed(evidence),
            };
        } else if flags
            .intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR)
        {
            step = self.on_input(token, &mut session);
        }
        if matches!(step, Step::Go) {
            step = self.push_out(token, &mut session);
        }
        match step {
            Step::Go => {
                self.sessions.insert(token, session);
            }
            Step::End(why) => self.on_end(token, session, Evidence::Failed(why)),
            Step::Failed(evidence) => self.on_end(token, session, evidence),
        }
    }

    /// Reads what is there and works it off.
    fn on_input(&mut self, token: u64, session: &mut Session) -> Step {
        for _ in 0..READS_AT_ONCE {
            let closed = match session.fill() {
                Ok(0) => Some("the other side closed the connection".to_owned()),
                Ok(_) => None,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Step::Go,
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = closed {
                session.withdrawn = true;
                return Step::End(why);
            }
            let step = self.work_off(token, session);
            // Others get their turn before a session that is not proven reads on.
            if !matches!(step, Step::Go) || !matches!(session.phase, Phase::Up) {
                return step;
            }
        }
        Step::Go
    }

    fn work_off(&mut self, token: u64, session: &mut Session) -> Step {
        if matches!(session.phase, Phase::Hello) {
            let known = session.input().len().min(HELLO_MAGIC.len());
            if session.input()[..known] != HELLO_MAGIC[..known] {
                return Step::End("it does not speak this protocol".into());
            }
            let step = self.on_hello(token, session);
            if !matches!(step, Step::Go) {
                return step;
            }
        }
        if matches!(session.phase, Phase::Reply(..)) {
            let step = self.on_reply(session);
            if !matches!(step, Step::Go) {
                return step;
            }
        }
        while matches!(session.phase, Phase::Greeting | Phase::Up) {
            let step = match session.take_record() {
                Ok(None) => return Step::Go,
                Ok(Some(record)) => self.on_record(token, session, record),
                Err(_) => self.on_forged(session),
            };
            if !matches!(step, Step::Go) {
                return step;
            }
        }
        Step::Go
    }

    fn on_forged(&self, session: &Session) -> Step {
        if matches!(session.phase, Phase::Up) {
            self.shared.counts.forged.fetch_add(1, Ordering::Relaxed);
        }
        Step::End("a record with a wrong MAC or length".into())
    }

    fn on_record(&mut self, token: u64, session: &mut Session, record: Record) -> Step {
        let header = record.header;
        let frame = match Frame::decode(header.kind, &record.body) {
            Ok(frame) => frame,
            Err(error) => return self.broken(session, &error.to_string()),
        };
        match (&session.phase, frame) {
            (Phase::Greeting, Frame::Greeting(greeting)) => {
                self.on_greeting(token, session, &header, &greeting)
            }
            (_, Frame::Reset { reason }) => self.broken(session, &reason),
            (Phase::Up, Frame::Ack) => self.on_acknowledged(session, header.acknowledged),
            (Phase::Up, frame) if !frame.is_internal() => {
                let step = self.on_acknowledged(session, header.acknowledged);
                match step {
                    Step::Go => self.on_frame(session, header.sequence, frame),
                    other => other,
                }
            }
            _ => self.broken(session, "a frame out of turn"),
        }
    }

    /// The proven other side breaks the protocol or has ended the link.
    fn broken(&mut self, session: &Session, why: &str) -> Step {
        if let Some(link) = self
            .peers
            .get(&session.peer)
            .map(|peer| Arc::clone(&peer.link))
        {
            let text = format!("the control connection to {} ended: {why}", link.peer());
            self.fail(&link, LinkError::Lost(text));
        }
        Step::End(why.to_owned())
    }

    fn on_acknowledged(&mut self, session: &Session, acknowledged: u64) -> Step {
        let Some(peer) = self.peers.get_mut(&session.peer) else {
            return Step::End("the link has ended".into());
        };
        if peer.link.acknowledge(acknowledged) {
            // More than this session carried: the session before may have gone on meanwhile.
            peer.transmitted = peer.transmitted.max(acknowledged);
            return Step::Go;
        }
        self.broken(session, "it acknowledges what was never sent")
    }

    fn on_frame(&mut self, session: &Session, sequence: u64, frame: Frame) -> Step {
        let Some(peer) = self.peers.get_mut(&session.peer) else {
            return Step::End("the link has ended".into());
        };
        peer.acknowledgement_owed = true;
        let link = Arc::clone(&peer.link);
        match link.count_received(sequence) {
            Order::Less => {
                let duplicates = &self.shared.counts.duplicates;
                duplicates.fetch_add(1, Ordering::Relaxed);
            }
            Order::Equal => self.call(|handler| handler.on_frame(&link, frame)),
            Order::Greater => return Step::End("a frame is missing".into()),
        }
        Step::Go
    }

    /// Puts what the link has to say into its session and writes it.
    fn push_out(&mut self, token: u64, session: &mut Session) -> Step {
        loop {
            if matches!(session.phase, Phase::Up) {
                self.put_frames(session);
            }
            if let Err(error) = session.flush() {
                return Step::End(error.to_string());
            }
            let more = matches!(session.phase, Phase::Up)
                && self.peers.get(&session.peer).is_some_and(Peer::has_frames);
            if session.has_output() || !more {
                break;
            }
        }
        if matches!(session.phase, Phase::Closing) && !session.has_output() {
            return Step::End("everything is said".into());
        }
        let room = session.has_output();
        if room != session.watched_for_room || matches!(session.phase, Phase::Reply(..)) {
            self.watch(token, session, room);
        }
        Step::Go
    }

    fn put_frames(&mut self, session: &mut Session) {
        let Some(peer) = self.peers.get_mut(&session.peer) else {
            return;
        };
        let state = peer.link.state.lock();
        let acknowledged = state.received;
        let skip = peer.transmitted.saturating_sub(state.acknowledged) as usize;
        for Queued { kind, body } in state.queue.iter().skip(skip) {
            if session.is_full() {
                break;
            }
            peer.transmitted += 1;
            session.put_record(*kind, peer.transmitted, acknowledged, body);
            peer.acknowledgement_owed = false;
        }
        if std::mem::take(&mut peer.acknowledgement_owed) {
            session.put_record(Frame::Ack.kind(), 0, acknowledged, &[]);
        }
    }

    /// Another thread has sent on a link, or made it.
    pub(super) fn on_send(&mut self, link: &Arc<Link>) {
        // Cleared before the queue is looked at: what comes later tells again.
        link.noted.store(false, Ordering::Release);
        if link.instance == self.shared.instance {
            return self.deliver_to_self(link);
        }
        if link.error().is_some() {
            return;
        }
        let peer = self
            .peers
            .entry(link.instance)
            .or_insert_with(|| Peer::new(Arc::clone(link)));
        match peer.current {
            Some(current) => self.on_session_event(current, EpollFlags::empty()),
            None => self.dial_if_new(link.instance),
        }
        self.watch_mail(link.instance);
    }

    /// Both ends in this process: frames go straight to the handler.
    fn deliver_to_self(&mut self, link: &Arc<Link>) {
        loop {
            let next = {
                let mut state = link.state.lock();
                let next = state.queue.pop_front();
                if next.is_some() {
                    state.acknowledged += 1;
                    state.received += 1;
                }
                next
            };
            let Some(Queued { kind, body }) = next else {
                break;
            };
            if let Ok(frame) = Frame::decode(kind, &body) {
                self.call(|handler| handler.on_frame(link, frame));
            }
        }
        link.changed.notify_all();
    }

    /// A session has not proven itself in time.
    pub(super) fn on_proof_time(&mut self, token: u64) {
        let proven = |session: &Session| matches!(session.phase, Phase::Up);
        if self.sessions.get(&token).is_none_or(proven) {
            return;
        }
        if let Some(session) = self.sessions.remove(&token) {
            self.on_end(token, session, Evidence::Failed("no answer in time".into()));
        }
    }

    /// A session is over: what that means depends on what it was.
    fn on_end(&mut self, token: u64, session: Session, evidence: Evidence) {
        let instance = session.peer;
        let peer = self.peers.get(&instance);
        if peer.is_some_and(|peer| peer.current == Some(token)) {
            let why = match &evidence {
                Evidence::Refused => "connection refused",
                Evidence::Other(why) | Evidence::Failed(why) => why,
            };
            let why = why.to_owned();
            drop(session);
            self.session_lost(instance, &why);
        } else if peer.is_some_and(|peer| peer.dialling == Some(token)) {
            let address = session.address;
            drop(session);
            self.dial_failed(instance, address, evidence);
        } else if !session.dialled {
            self.stranger_ended(token, session, &evidence);
        }
    }
}
