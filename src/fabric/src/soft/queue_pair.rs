//! One end of a reliable connection over TCP. Its errors are final and told (PROTOCOL R36), and its
//! fence holds at once (PROTOCOL R38).

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::Socket;

use super::arrivals::{Arrivals, MainSink};
use super::inflow::{Inflow, Progress};
use super::lanes::Lane;
use super::nic_probe::{NicProbe, STUCK};
use super::outflow::{Outflow, SendFault, control};
use super::service::Service;
use super::shared::{Arrival, LaneFault, Shared};
use super::sys;
use super::wire::{Hello, Kind, MESSAGE_BYTES_MAX, PeerAddress, Refusal, widen};
use crate::meters::{BytesMoved, Meter};
use crate::{
    Completion, DeviceError, Opcode, PostError, QueuePair, QueuePairAddress, QueuePairConfig,
    SendWork, Status, WriteSource,
};

/// What one receive call may take in on the main socket beside large payloads: a whole small
/// message and many headers.
const STAGE_BYTES: usize = 64 * 1024 + 4096;
/// The clock is looked at once in so many calls that found nothing to do.
const CALLS_PER_CLOCK: u32 = 64;
/// How many calls the rest of a stream may take when sending has failed.
const LAST_CALLS: usize = 64;
/// When a lane has ended, the main socket gets so long to tell why.
const BROKEN_GRACE: Duration = Duration::from_millis(200);

struct Main {
    socket: Socket,
    inflow: Inflow,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Posts are taken.
    Live,
    /// The peer cannot be reached any more; the first posted work will say so.
    Gone,
    /// In error, on account of this write of ours if there is one.
    Error(Option<(u64, Status)>),
}

/// A queue pair of a [`super::SoftDevice`].
pub(super) struct SoftQueuePair {
    shared: Arc<Shared>,
    service: &'static Service,
    state: State,
    peer: Option<PeerAddress>,
    /// Until then all sockets must stand.
    connect_deadline: Option<Instant>,
    lane_count: u16,
    lanes: Vec<Arc<Lane>>,
    /// Bit k: lane k has been installed.
    lanes_known: u64,
    main: Option<Main>,
    outflow: Outflow,
    arrivals: Arrivals,
    meter: Meter,
    receive_depth: u32,
    flushed_receives: u32,
    quiet_calls: u32,
    /// Since when nothing has been acknowledged though something should be.
    waiting_since: Option<(u64, Instant)>,
    /// This write of the peer is to be refused when all before it have landed.
    refusal: Option<(u64, Refusal)>,
    /// Lanes are broken, seen then; the main socket may still tell why.
    broken_since: Option<Instant>,
    nic_probe: Option<NicProbe>,
}

impl SoftQueuePair {
    pub(super) fn new(
        shared: Arc<Shared>,
        service: &'static Service,
        config: QueuePairConfig,
    ) -> Self {
        let receive_depth = config.receive_depth.max(1);
        Self {
            meter: shared.device.add_meter(),
            shared,
            service,
            state: State::Live,
            peer: None,
            connect_deadline: None,
            lane_count: 0,
            lanes: Vec::new(),
            lanes_known: 0,
            main: None,
            outflow: Outflow::new(config.send_depth.max(1)),
            arrivals: Arrivals::new(receive_depth),
            receive_depth,
            flushed_receives: 0,
            quiet_calls: 0,
            waiting_since: None,
            refusal: None,
            broken_since: None,
            nic_probe: None,
        }
    }

    fn own_address(&self) -> PeerAddress {
        PeerAddress {
            socket: self.shared.device.listen_address(),
            number: self.shared.number,
            secret: self.shared.secret,
            lanes: self.shared.device.lanes(),
        }
    }

    /// Dials the main socket and the lanes.
    fn dial(&mut self, peer: &PeerAddress) -> Result<(), DeviceError> {
        for index in 0..=self.lane_count {
            let hello = Hello {
                target: peer.number,
                target_secret: peer.secret,
                source_secret: self.shared.secret,
                index,
            };
            let Err(error) = self.service.dial(&self.shared, peer.socket, hello) else {
                continue;
            };
            if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
                return Err(DeviceError(format!(
                    "{}: no socket for a connection to {}: {error}; raise the limit on open files",
                    self.shared.device.name(),
                    peer.socket
                )));
            }
            // Everything else is a fault of the way to the peer, and shows on the work.
            tracing::debug!(nic = self.shared.device.name(), peer = %peer.socket, %error, "dial");
            self.shared.set_broken();
            break;
        }
        Ok(())
    }

    /// Puts sockets that have come to their use.
    fn install(&mut self) {
        let Some(peer) = self.peer else { return };
        for arrival in self.shared.take_arrivals().into_iter().flatten() {
            let ours = [self.shared.secret, peer.secret].contains(&arrival.source_secret);
            if !ours || arrival.index > self.lane_count {
                self.shared.device.count_stranger();
                continue;
            }
            self.install_one(arrival);
        }
        let complete = self.main.is_some() && self.lanes.len() == usize::from(self.lane_count);
        if complete {
            self.connect_deadline = None;
        }
    }

    fn install_one(&mut self, arrival: Arrival) {
        let Arrival { index, socket, .. } = arrival;
        if index == 0 {
            if self.main.is_none() {
                self.main = Some(Main {
                    socket,
                    inflow: Inflow::new(STAGE_BYTES),
                });
            }
            return;
        }
        let bit = 1 << (index - 1);
        if self.lanes_known & bit == 0 {
            self.lanes_known |= bit;
            match Lane::start(Arc::clone(&self.shared), socket) {
                Ok(lane) => self.lanes.push(lane),
                Err(_) => self.shared.set_broken(),
            }
        }
    }

    /// The fence: after it no thread touches memory for this queue pair.
    fn stop(&mut self) {
        self.shared.stop();
        for lane in self.lanes.drain(..) {
            lane.close();
        }
        self.main = None;
        self.outflow.stop(&self.shared.device);
        self.connect_deadline = None;
    }

    fn fail(&mut self, guilty: Option<(u64, Status)>) {
        if matches!(self.state, State::Error(_)) {
            return;
        }
        self.stop();
        self.state = State::Error(guilty);
        self.flushed_receives += self.arrivals.flush();
    }

    /// The peer or the way to it is gone.
    fn lose(&mut self) {
        self.stop();
        if self.outflow.has_backlog() || self.outflow.has_unacknowledged() {
            self.fail(Some((self.outflow.acknowledged(), Status::RetryExceeded)));
        } else if self.state == State::Live {
            self.state = State::Gone;
        }
    }

    /// Tells the peer that its write is refused, and fails.
    fn refuse(&mut self, sequence: u64, refusal: Refusal) {
        if let Some(main) = self.main.as_ref().filter(|_| self.may_send()) {
            let mut header = control(Kind::Refused, false, sequence, self.arrivals.landed());
            header.immediate = match refusal {
                Refusal::Access => 1,
                Refusal::Invalid => 2,
            };
            self.outflow.send_last(main.socket.as_raw_fd(), &header);
        }
        self.fail(None);
    }

    /// Refuses a bad write when its turn has come: the writes before it are good.
    fn check_refusal(&mut self) {
        if self.arrivals.settle(&self.shared).is_err() {
            self.refusal = Some((self.arrivals.landed(), Refusal::Invalid));
        }
        match self.refusal {
            Some((sequence, refusal))
                if refusal == Refusal::Invalid || sequence <= self.arrivals.landed() =>
            {
                self.refuse(sequence, refusal);
            }
            _ => {}
        }
    }

    /// Takes in what the main socket has; false when the queue pair has stopped.
    fn receive(&mut self) -> bool {
        let Some(main) = &mut self.main else {
            return false;
        };
        if self.shared.device.faults().cuts_receiving() {
            return true;
        }
        let mut sink = MainSink {
            arrivals: &mut self.arrivals,
            outflow: &mut self.outflow,
            shared: &self.shared,
            refused: None,
        };
        let result = main.inflow.progress(main.socket.as_raw_fd(), &mut sink);
        if let Some(guilty) = sink.refused {
            self.fail(Some(guilty));
            return false;
        }
        let result = result.and_then(|progress| {
            self.arrivals.settle(&self.shared)?;
            Ok(progress)
        });
        match result {
            Ok(Progress::Closed) => self.lose(),
            Ok(_) => return true,
            Err(refusal) => {
                self.refusal = Some((self.arrivals.expected(), refusal));
                self.check_refusal();
                return self.main.is_some();
            }
        }
        false
    }

    /// Sends what waits, acknowledgement included.
    fn send(&mut self) {
        let Some(main) = self.main.as_ref().filter(|_| self.may_send()) else {
            return;
        };
        let landed = self.arrivals.landed();
        let result = self.outflow.pump(
            main.socket.as_raw_fd(),
            &self.shared,
            &self.lanes,
            landed,
            &mut self.arrivals.ack_due,
        );
        match result {
            Ok(()) => {}
            Err(SendFault::Source) => {
                self.fail(Some((self.outflow.next(), Status::LocalProtection)));
            }
            // What the peer said before it went counts: a refusal, acknowledgements.
            Err(SendFault::Lost) => {
                for _ in 0..LAST_CALLS {
                    if !self.receive() {
                        return;
                    }
                }
                self.lose();
            }
        }
    }

    /// Acts on what lanes and the service thread have noted, and on time.
    fn check(&mut self) {
        if let Some(fault) = self.shared.fault() {
            match fault {
                LaneFault::Source { sequence } => {
                    let sequence = widen(self.outflow.acknowledged(), sequence);
                    self.fail(Some((sequence, Status::LocalProtection)));
                }
                LaneFault::Refused { sequence, refusal } => {
                    let sequence = widen(self.arrivals.landed(), sequence);
                    if self.refusal.is_none_or(|(other, _)| sequence < other) {
                        self.refusal = Some((sequence, refusal));
                    }
                    self.check_refusal();
                }
            }
            if self.is_error() {
                return;
            }
        }
        let broken = self.shared.is_broken();
        let due = self.quiet_calls == 0 && (self.connect_deadline.is_some() || self.is_waiting());
        if !broken && !due {
            return;
        }
        let now = Instant::now();
        // The main socket ends with the lanes, unless only a lane was cut.
        let grace = BROKEN_GRACE.min(self.shared.device.silence());
        let is_broken = broken
            && (self.main.is_none()
                || now.duration_since(*self.broken_since.get_or_insert(now)) >= grace);
        if is_broken
            || self
                .connect_deadline
                .is_some_and(|deadline| now >= deadline)
        {
            self.lose();
        } else if self.is_waiting() {
            self.check_silence(now);
        } else {
            self.waiting_since = None;
        }
    }

    fn may_send(&self) -> bool {
        !self.shared.device.faults().cuts_sending()
    }

    fn is_waiting(&self) -> bool {
        self.main.is_some() && self.outflow.has_unacknowledged()
    }

    /// Silence counts while the same write waits, and only if the other host is silent, not if its
    /// program is.
    fn check_silence(&mut self, now: Instant) {
        let limit = self.shared.device.silence();
        let oldest = self.outflow.acknowledged();
        match self.waiting_since {
            Some((sequence, since)) if sequence == oldest => {
                if now.duration_since(since) >= limit
                    && (self.shared.device.faults().is_cut()
                        || self.any_socket(|socket| sys::is_silent(socket, limit)))
                {
                    self.lose();
                }
            }
            _ => self.waiting_since = Some((oldest, now)),
        }
    }

    /// Whether the answer to `question` is yes for one of the sockets.
    fn any_socket(&self, question: impl Fn(RawFd) -> bool) -> bool {
        let main = self.main.as_ref();
        main.is_some_and(|main| question(main.socket.as_raw_fd()))
            || self.lanes.iter().any(|lane| lane.ask(&question))
    }

    /// The answer of the NICs, if it has come and speaks against the queue pair.
    fn nic_answer(&mut self) -> Option<Completion> {
        let reachable = self.nic_probe.as_ref()?.result()?;
        let id = self.nic_probe.take()?.id;
        let is_stuck = self.any_socket(|socket| sys::is_stuck(socket, STUCK));
        (reachable && is_stuck).then_some(Completion {
            id,
            status: Status::Success,
            opcode: Opcode::NicProbe,
            ..Completion::EMPTY
        })
    }

    /// One round of progress on the caller's thread.
    fn progress(&mut self) {
        if self.shared.has_arrivals() {
            self.install();
        }
        self.quiet_calls = (self.quiet_calls + 1) % CALLS_PER_CLOCK;
        // An acknowledgement waits for one call, since the owner's answer often takes it along.
        let overdue = self.arrivals.ack_due;
        if self.receive() && (self.outflow.has_backlog() || (overdue && self.arrivals.ack_due)) {
            self.send();
        }
        self.check();
    }

    fn report(&mut self, completions: &mut [Completion]) -> usize {
        let count = self.arrivals.report(completions);
        let count = match self.state {
            State::Error(guilty) => self.report_error(guilty, count, completions),
            _ => self.report_live(count, completions),
        };
        self.meter.show(BytesMoved {
            sent: self.outflow.bytes(),
            received: self.arrivals.bytes(),
        });
        count
    }

    /// Reports acknowledged work and answers into `completions` behind the first `count`.
    fn report_live(&mut self, mut count: usize, completions: &mut [Completion]) -> usize {
        count += self.outflow.report(&mut completions[count..]);
        if let Some(entry) = completions.get_mut(count) {
            if let Some(answer) = self.nic_answer() {
                *entry = answer;
                count += 1;
            }
        }
        count
    }

    /// Flushes into `completions` behind the first `count`.
    fn report_error(
        &mut self,
        guilty: Option<(u64, Status)>,
        mut count: usize,
        completions: &mut [Completion],
    ) -> usize {
        count += self.outflow.flush(guilty, &mut completions[count..]);
        while self.flushed_receives > 0 && count < completions.len() {
            completions[count] = Completion {
                status: Status::Flushed,
                opcode: Opcode::ReceiveImmediate,
                ..Completion::EMPTY
            };
            self.flushed_receives -= 1;
            count += 1;
        }
        count
    }
}

impl QueuePair for SoftQueuePair {
    fn address(&self) -> QueuePairAddress {
        self.own_address().encode()
    }

    fn connect(&mut self, remote: &QueuePairAddress) -> Result<(), DeviceError> {
        let own = self.own_address();
        let name = self.shared.device.name();
        let peer = PeerAddress::decode(remote).ok_or_else(|| {
            DeviceError(format!(
                "{name}: the peer's address is not that of a software NIC of this version; use \
                 the same R2CCL and the same R2CCL_FABRIC on all hosts"
            ))
        })?;
        if self.peer.is_some() || peer.secret == own.secret {
            return Err(DeviceError(format!(
                "{name}: queue pair {} is connected already or asked to connect to itself",
                own.number
            )));
        }
        if peer.socket.is_ipv4() != own.socket.is_ipv4() {
            return Err(DeviceError(format!(
                "{name}: {} cannot reach {}; use addresses of one family on all hosts",
                own.socket.ip(),
                peer.socket.ip()
            )));
        }
        self.peer = Some(peer);
        self.lane_count = own.lanes.min(peer.lanes);
        self.connect_deadline = Some(Instant::now() + self.shared.device.silence());
        let rank = |end: &PeerAddress| (end.socket, end.number, end.secret);
        if rank(&own) < rank(&peer) {
            self.dial(&peer)
        } else {
            Ok(())
        }
    }

    unsafe fn post_send(&mut self, chain: &[SendWork]) -> Result<usize, PostError> {
        if matches!(self.state, State::Error(_)) {
            return Err(PostError::InError);
        }
        let mut taken = 0;
        for work in chain {
            let valid = match work.source {
                WriteSource::Inline { len, .. } => {
                    usize::from(len) <= WriteSource::INLINE_BYTES_MAX
                }
                WriteSource::Registered { len, .. } => len <= MESSAGE_BYTES_MAX,
            };
            if !valid && taken == 0 {
                return Err(PostError::Malformed);
            }
            if !valid || !self.outflow.push(work, &self.shared, self.lane_count) {
                break;
            }
            taken += 1;
        }
        if taken > 0 && !self.outflow.is_blocked() {
            self.send();
        }
        Ok(taken)
    }

    fn post_receives(&mut self, count: u32) -> Result<(), PostError> {
        if matches!(self.state, State::Error(_)) {
            return Err(PostError::InError);
        }
        if count > self.receive_depth - self.arrivals.posted() {
            return Err(PostError::Malformed);
        }
        self.arrivals.post(count);
        Ok(())
    }

    fn probe_nics(&mut self, id: u64) {
        let may_pass = self.state == State::Live && !self.shared.device.faults().is_cut();
        let peer = self.peer.filter(|_| may_pass);
        self.nic_probe =
            peer.and_then(|peer| NicProbe::start(&self.shared.device, peer.socket, id));
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        match self.state {
            State::Live => self.progress(),
            State::Gone if self.outflow.has_backlog() => self.lose(),
            State::Gone | State::Error(_) => {}
        }
        self.report(completions)
    }

    fn set_error(&mut self) {
        let is_owing = self.arrivals.ack_due && self.may_send();
        if let Some(main) = self.main.as_ref().filter(|_| is_owing) {
            let header = control(Kind::Control, false, 0, self.arrivals.landed());
            self.outflow.send_last(main.socket.as_raw_fd(), &header);
        }
        self.fail(None);
    }

    fn is_error(&self) -> bool {
        matches!(self.state, State::Error(_))
    }

    fn has_backlog(&self) -> bool {
        !self.is_error() && (self.outflow.has_backlog() || self.arrivals.ack_due)
    }
}

impl Drop for SoftQueuePair {
    fn drop(&mut self) {
        self.set_error();
        self.shared.device.remove_queue_pair(self.shared.number);
    }
}
