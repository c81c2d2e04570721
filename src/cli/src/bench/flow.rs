//! The patterns that move plain messages: stream, all-to-all, ping-pong and abort.

use std::time::Instant;

use super::data;
use super::host::{Host, RunError};
use super::link::{Flow, Layout, Watch};
use super::message::{Go, Measured};
use crate::stats;

/// Messages of one size that carry the pattern of `data`, if they are checked.
#[derive(Clone, Copy)]
pub struct Messages {
    link: u32,
    base: u64,
    size: usize,
    check: bool,
}

impl Messages {
    /// Messages of connection `link` in measurement `run`.
    pub fn new(link: u32, run: u64, size: usize, check: bool) -> Self {
        Messages {
            link,
            base: run << 40,
            size,
            check,
        }
    }
}

impl Flow for Messages {
    fn size(&self, _message: u64) -> usize {
        self.size
    }

    fn fill(&mut self, message: u64, slot: &mut [u8]) {
        if self.check {
            data::fill(u64::from(self.link), self.base + message, slot);
        }
    }

    fn verify(&self, message: u64, bytes: &[u8]) -> u64 {
        data::wrong(u64::from(self.link), self.base + message, bytes)
    }

    fn take(&mut self, _message: u64, _bytes: &[u8]) {}
}

/// What the loops of this file share in one measurement.
struct Run {
    size: usize,
    run: u64,
    check: bool,
    watch: Watch,
}

impl Run {
    fn start(host: &mut Host, go: &Go) -> Result<Self, RunError> {
        let size = usize::try_from(go.size).unwrap_or(usize::MAX);
        let (window, offset, check) = (host.plan.window, host.plan.offset, host.plan.check);
        host.prepare(&Layout::new(size, window, offset, check))?;
        Ok(Run {
            size,
            run: host.runs,
            check,
            watch: host.begin()?,
        })
    }

    fn messages(&self, link: u32) -> Messages {
        Messages::new(link, self.run, self.size, self.check)
    }

    /// Visits every connection once.
    fn round(&self, host: &mut Host, sends: u64, receives: u64) -> Result<bool, RunError> {
        let mut moved = false;
        for sender in &mut host.senders {
            let mut flow = self.messages(sender.link);
            moved |= sender.step(&host.net, sends, &mut flow)?;
        }
        for receiver in &mut host.receivers {
            let mut flow = self.messages(receiver.link);
            moved |= receiver.step(&host.net, receives, &mut flow)?;
        }
        Ok(moved)
    }

    /// The end of a measurement: the last look at the slots, and the sums.
    fn finish(&self, host: &mut Host, go: &Go) -> Measured {
        let nanoseconds = self.watch.nanoseconds();
        let mut measured = Measured {
            nanoseconds,
            gap_ns: self.watch.gap_ns,
            ..host.sums()
        };
        measured.messages = host.receivers.iter().map(|r| r.done().min(go.count)).sum();
        for receiver in &mut host.receivers {
            receiver.look_again(&Messages::new(
                receiver.link,
                self.run,
                self.size,
                self.check,
            ));
            measured.faults.add(&receiver.faults);
        }
        measured
    }
}

/// `count` messages on every connection, as fast as they go.
pub fn stream(host: &mut Host, go: &Go) -> Result<Measured, RunError> {
    let mut run = Run::start(host, go)?;
    let count = go.count;
    loop {
        let moved = run.round(host, count, count)?;
        let complete = host.senders.iter().all(|sender| sender.done() == count)
            && host
                .receivers
                .iter()
                .all(|receiver| receiver.done() == count);
        if complete {
            break;
        }
        host.turn(&mut run.watch, moved)?;
    }
    Ok(run.finish(host, go))
}

/// `count` round trips between hosts 0 and 1, 2 and 3, and so on: the even one begins. With
/// several channels one message goes over each, and all must be back before the next round.
pub fn pingpong(host: &mut Host, go: &Go) -> Result<Measured, RunError> {
    let mut run = Run::start(host, go)?;
    let begins = host.plan.host & 1 == 0;
    let mut halves = Vec::with_capacity(usize::try_from(go.count).unwrap_or(0));
    if !host.senders.is_empty() {
        for round in 0..go.count {
            let started = Instant::now();
            let (sent_first, sent_then) = if begins {
                (round + 1, 0)
            } else {
                (round, round + 1)
            };
            while host
                .receivers
                .iter()
                .any(|receiver| receiver.done() <= round)
            {
                let moved = run.round(host, sent_first, go.count)?;
                host.turn(&mut run.watch, moved)?;
            }
            while host
                .senders
                .iter()
                .any(|sender| sender.state().0 < sent_then)
            {
                let moved = run.round(host, sent_then, go.count)?;
                host.turn(&mut run.watch, moved)?;
            }
            halves.push(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX) / 2);
        }
        while host.senders.iter().any(|sender| sender.done() < go.count) {
            let moved = run.round(host, go.count, go.count)?;
            host.turn(&mut run.watch, moved)?;
        }
    }
    let mut measured = run.finish(host, go);
    if begins && !halves.is_empty() {
        halves.sort_unstable();
        measured.p50_ns = Some(stats::percentile(&halves, 500));
        measured.p99_ns = Some(stats::percentile(&halves, 990));
    }
    Ok(measured)
}

/// Time without movement after which a host takes its peers for closed, in milliseconds.
const QUIET_MS: u64 = 100;

/// Streams on every connection, stops in the middle and closes at once, with requests in flight on
/// both sides. Hosts stop at different points, so that some are closed while their peers still
/// send to them; what the plugin reports then is noted, not judged.
pub fn abort(host: &mut Host, go: &Go) -> Result<Measured, RunError> {
    let mut run = Run::start(host, go)?;
    run.watch = Watch::new(QUIET_MS);
    // Different in every cycle: sometimes nothing has arrived yet.
    let stop_at = (go.count * (host.plan.host as u64 + 1) * (host.runs % 8)) / 16;
    let mut cut = false;
    loop {
        let received: u64 = host.receivers.iter().map(|receiver| receiver.done()).sum();
        let sent: u64 = host.senders.iter().map(|sender| sender.in_flight()).sum();
        if received >= stop_at && sent > 0 {
            break;
        }
        match run.round(host, u64::MAX, u64::MAX) {
            Ok(moved) if run.watch.round(moved) => {}
            Ok(_) => break,
            Err(RunError::Plugin(_)) => {
                cut = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let sending: u64 = host.senders.iter().map(|sender| sender.in_flight()).sum();
    let receiving: u64 = host
        .receivers
        .iter()
        .map(|receiver| receiver.in_flight())
        .sum();
    let mut measured = run.finish(host, go);
    measured.in_flight = sending + receiving;
    measured.cut = cut;
    host.close()?;
    Ok(measured)
}
