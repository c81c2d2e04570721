//! What a link has to say, in a form that connections of the same two processes carry over their
//! NICs when the control connection does not (PROTOCOL R29).
//!
//! A mail is a state and no message: the frames that the peer has not acknowledged, from the first
//! one on, as many as fit, and what has come from the peer. The next one may replace it unread, and
//! one that comes twice or late says nothing new.
//!
//! | bytes | field, little endian |
//! |---|---|
//! | 0–7 | highest sequence received in order from the other side |
//! | 8–15 | highest sequence that the other side has acknowledged: the first frame has the next |
//! | 16 | 1 if an answer is wanted |
//! | 17… | frames: kind u8, bytes of the body u16, body |

use std::cmp::Ordering as Order;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use r2ccl_core::wire::frame::{BODY_BYTES_MAX, Frame};

use super::Command;
use super::link::{Link, Queued};
use super::steward::{Steward, Timer};

const HEAD_BYTES: usize = 17;
const FRAME_HEAD_BYTES: usize = 3;
/// Bytes of a mail at the most: the largest frame fits.
pub const MAIL_BYTES_MAX: usize = HEAD_BYTES + FRAME_HEAD_BYTES + BODY_BYTES_MAX;

/// How long a frame may go unacknowledged before it goes over NICs as well: far longer than a
/// control connection that works takes, since a write to the NIC of a process that has just ended
/// is an error of that path. Doubles with each mail.
const PATIENCE: Duration = Duration::from_millis(50);
/// Longest pause between two mails while the control connection stands.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A control connection that ends is dialled again, which shows in this time whether the peer has
/// died; whoever writes to NICs of the dead gets errors that tell nothing.
const VERDICT: Duration = Duration::from_millis(100);
/// Longest pause while there is none: then mails are the way.
const DOWN_PAUSE_MAX: Duration = Duration::from_millis(20);

/// When a link's mail goes out next.
#[derive(Debug, Default)]
pub(super) struct MailTimer {
    /// Other timers are outdated.
    at: Option<Instant>,
    pause: Duration,
    /// When the peer's last mail came.
    pub(super) heard: Option<Instant>,
    /// Session in which people were told that mails bring frames.
    told_round: Option<u64>,
}

impl Link {
    /// What there is to say at this moment; with `is_asking` the peer answers.
    pub fn write_mail(&self, is_asking: bool) -> Vec<u8> {
        let state = self.state.lock();
        let mut mail = Vec::with_capacity(MAIL_BYTES_MAX);
        mail.extend(state.received.to_le_bytes());
        mail.extend(state.acknowledged.to_le_bytes());
        mail.push(u8::from(is_asking));
        for Queued { kind, body } in &state.queue {
            if mail.len() + FRAME_HEAD_BYTES + body.len() > MAIL_BYTES_MAX {
                break;
            }
            mail.push(*kind);
            mail.extend((body.len() as u16).to_le_bytes());
            mail.extend(&body[..]);
        }
        mail
    }

    /// Hands a mail of the peer to the steward. Never blocks, from any thread.
    pub fn take_mail(self: &Arc<Self>, mail: Vec<u8>) {
        self.shared.command(Command::Mail(Arc::clone(self), mail));
    }

    /// Counts a frame that came from the peer. `Less`: it is known; `Greater`: one before it is
    /// missing, and it does not count.
    pub(super) fn count_received(&self, sequence: u64) -> Order {
        let mut state = self.state.lock();
        let order = sequence.cmp(&(state.received + 1));
        if order == Order::Equal {
            state.received = sequence;
        }
        order
    }

    fn is_all_acknowledged(&self) -> bool {
        self.state.lock().queue.is_empty()
    }
}

/// A mail as it was read.
#[derive(Debug, PartialEq, Eq)]
struct Mail {
    received: u64,
    acknowledged: u64,
    is_asking: bool,
    frames: Vec<Frame>,
}

impl Mail {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (received, rest) = bytes.split_first_chunk()?;
        let (acknowledged, rest) = rest.split_first_chunk()?;
        let (&is_asking, mut rest) = rest.split_first()?;
        let mut frames = Vec::new();
        while let Some((head, tail)) = rest.split_first_chunk::<FRAME_HEAD_BYTES>() {
            let [kind, low, high] = *head;
            let (body, tail) = tail.split_at_checked(u16::from_le_bytes([low, high]).into())?;
            let frame = Frame::decode(kind, body).ok();
            frames.push(frame.filter(|frame| !frame.is_internal())?);
            rest = tail;
        }
        rest.is_empty().then_some(Self {
            received: u64::from_le_bytes(*received),
            acknowledged: u64::from_le_bytes(*acknowledged),
            is_asking: is_asking != 0,
            frames,
        })
    }
}

impl Steward {
    /// A mail has come.
    pub(super) fn on_mail(&mut self, link: &Arc<Link>, bytes: &[u8]) {
        let peer = self.peers.get_mut(&link.instance);
        let Some(peer) = peer.filter(|peer| Arc::ptr_eq(&peer.link, link)) else {
            return;
        };
        let mail = Mail::decode(bytes);
        let Some(mail) = mail.filter(|mail| link.acknowledge(mail.received)) else {
            self.shared.counts.forged.fetch_add(1, Ordering::Relaxed);
            return;
        };
        peer.transmitted = peer.transmitted.max(mail.received);
        peer.mail.heard = Some(Instant::now());
        let mut sequence = mail.acknowledged;
        for frame in mail.frames {
            // A peer may say anything.
            sequence = sequence.wrapping_add(1);
            match link.count_received(sequence) {
                Order::Less => {}
                Order::Equal => {
                    self.report_mail(link);
                    self.call(|handler| handler.on_frame(link, frame));
                }
                Order::Greater => break,
            }
        }
        if mail.is_asking {
            self.call(|handler| handler.on_mail_due(link, false));
        }
    }

    /// Tells people, once a session and peer.
    fn report_mail(&mut self, link: &Link) {
        if let Some(peer) = self.peers.get_mut(&link.instance) {
            if peer.mail.told_round != Some(peer.round) {
                peer.mail.told_round = Some(peer.round);
                tracing::info!(
                    "control frames of {} come over NICs: the control connection is cut or slow",
                    link.peer()
                );
            }
        }
    }

    /// Frames wait for their acknowledgement, or the control connection has ended.
    pub(super) fn watch_mail(&mut self, instance: u64) {
        let Some(peer) = self.peers.get_mut(&instance) else {
            return;
        };
        if let Some(since) = peer.cut_since() {
            peer.mail.pause = PATIENCE;
            self.set_mail_time(instance, Instant::now().max(since + VERDICT));
        } else if peer.mail.at.is_none() {
            peer.mail.pause = PATIENCE;
            self.set_mail_time(instance, Instant::now() + PATIENCE);
        }
    }

    fn set_mail_time(&mut self, instance: u64, at: Instant) {
        if let Some(peer) = self.peers.get_mut(&instance) {
            peer.mail.at = Some(at);
            self.set_timer(at, Timer::Mail(instance));
        }
    }

    /// A timer for mail has run off.
    pub(super) fn on_mail_time(&mut self, instance: u64, at: Instant) {
        let peer = self.peers.get_mut(&instance);
        let Some(peer) = peer.filter(|peer| peer.mail.at == Some(at)) else {
            return;
        };
        peer.mail.at = None;
        let is_cut = peer.cut_since().is_some();
        if !is_cut && peer.link.is_all_acknowledged() {
            return;
        }
        let pause_max = if is_cut { DOWN_PAUSE_MAX } else { PAUSE_MAX };
        let pause = peer.mail.pause.min(pause_max);
        peer.mail.pause = pause * 2;
        let link = Arc::clone(&peer.link);
        self.set_mail_time(instance, Instant::now() + pause);
        self.call(|handler| handler.on_mail_due(&link, true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mail_that_is_cut_or_has_more_is_none() {
        let mut bytes = vec![7; 16];
        bytes.push(1);
        let empty = Mail::decode(&bytes).expect("no frames");
        assert_eq!((empty.is_asking, empty.frames.len()), (true, 0));
        let frame = Frame::Goodbye { to: 1, count: 2 };
        let body = frame.encode().expect("small");
        bytes.push(frame.kind());
        bytes.extend((body.len() as u16).to_le_bytes());
        bytes.extend(&body);
        let whole = Mail::decode(&bytes).expect("one frame");
        assert_eq!(whole.frames, [frame]);
        for len in (0..bytes.len()).filter(|&len| len != HEAD_BYTES) {
            assert_eq!(Mail::decode(&bytes[..len]), None, "{len}");
        }
        bytes.push(0);
        assert_eq!(Mail::decode(&bytes), None);
        let mut internal = vec![0; HEAD_BYTES];
        internal.extend([Frame::Ack.kind(), 0, 0]);
        assert_eq!(Mail::decode(&internal), None, "not sequenced");
    }

    proptest! {
        #[test]
        fn arbitrary_mails_never_panic(bytes: Vec<u8>) {
            let _ = Mail::decode(&bytes);
        }
    }
}
