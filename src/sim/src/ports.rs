//! Both ends of a connection behind one face, for what they have in common.

use r2ccl_core::wire::path_frame::{Endpoint, PathFrame};
use r2ccl_core::{
    Action, EndConfig, EndSnapshot, Evidence, Failure, FenceOutcome, Generation, Health, PathId,
    ProtocolError, Receiver, ReceiverConfig, Sender, SenderConfig, Time, WorkId,
};

use crate::connection::{Connection, Side};
use crate::world::Hint;

/// The core's sending end.
pub type SendEnd = r2ccl_core::end::SendEnd;
/// The core's receiving end.
pub type ReceiveEnd = r2ccl_core::end::ReceiveEnd;

/// Calls the same method of either end.
macro_rules! either {
    ($connection:expr, $side:expr, $end:ident => $call:expr) => {
        match $side {
            Side::Sender => {
                let $end = &mut $connection.sender;
                $call
            }
            Side::Receiver => {
                let $end = &mut $connection.receiver;
                $call
            }
        }
    };
}

/// A path as its ends are told of it.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// Its part in health, and its capacity.
    pub share: (u32, u32),
    /// It is not connected at set-up.
    pub is_standby: bool,
}

/// Both ends, made at `now`, with a role for each path.
pub fn ends(
    now: Time,
    config: EndConfig,
    segment_bytes_max: u32,
    roles: &[Role],
) -> Result<(SendEnd, ReceiveEnd), ProtocolError> {
    let mut sender = SendEnd::new(config, Sender::new(SenderConfig { segment_bytes_max })?);
    let mut receiver = ReceiveEnd::new(config, Receiver::new(ReceiverConfig::default()));
    for (path, role) in (0..=u8::MAX).filter_map(PathId::new).zip(roles) {
        if role.is_standby {
            sender.add_standby(now, path, role.share);
            receiver.add_standby(now, path, role.share);
        } else {
            sender.add_path(now, path, Generation(0), role.share)?;
            receiver.add_path(now, path, Generation(0), role.share)?;
        }
    }
    Ok((sender, receiver))
}

impl Connection {
    /// A completion of the end's own work.
    pub fn handle_completion(&mut self, side: Side, now: Time, work: WorkId, ok: bool) {
        either!(self, side, end => end.handle_completion(now, work, ok));
    }

    /// Something speaks against a generation.
    pub fn handle_evidence(
        &mut self,
        side: Side,
        now: Time,
        path: PathId,
        generation: Generation,
        evidence: Evidence,
    ) {
        either!(self, side, end => end.handle_evidence(now, path, generation, evidence));
    }

    /// A time that the end asked for has come.
    pub fn handle_timeout(&mut self, side: Side, now: Time) {
        either!(self, side, end => end.handle_timeout(now));
    }

    /// What the end wants done.
    pub fn poll_action(&mut self, side: Side, now: Time) -> Option<Action> {
        either!(self, side, end => end.poll_action(now))
    }

    /// When the end wants to be looked at.
    pub fn next_timeout(&mut self, side: Side) -> Option<Time> {
        either!(self, side, end => end.next_timeout())
    }

    /// Why the requests of the end fail.
    pub fn failure(&mut self, side: Side, now: Time) -> Option<Failure> {
        either!(self, side, end => end.failure(now))
    }

    /// A control frame.
    pub fn handle_frame(
        &mut self,
        side: Side,
        now: Time,
        frame: &PathFrame,
    ) -> Result<(), ProtocolError> {
        either!(self, side, end => end.handle_frame(now, frame))
    }

    /// A probe.
    pub fn handle_probe(
        &mut self,
        side: Side,
        now: Time,
        (path, generation): (PathId, Generation),
        id: u32,
        ok: bool,
    ) {
        either!(self, side, end => end.handle_probe(now, path, generation, id, ok));
    }

    /// A fence.
    pub fn handle_fenced(
        &mut self,
        side: Side,
        now: Time,
        path: PathId,
        generation: Generation,
        outcome: FenceOutcome,
    ) {
        either!(self, side, end => end.handle_fenced(now, path, generation, outcome));
    }

    /// A queue pair was made, or could not be.
    pub fn handle_created(
        &mut self,
        side: Side,
        now: Time,
        path: PathId,
        generation: Generation,
        endpoint: Option<Endpoint>,
    ) {
        either!(self, side, end => end.handle_created(now, path, generation, endpoint));
    }

    /// A queue pair was connected, or could not be.
    pub fn handle_connected(
        &mut self,
        side: Side,
        now: Time,
        path: PathId,
        generation: Generation,
        ok: bool,
    ) {
        either!(self, side, end => end.handle_connected(now, path, generation, ok));
    }

    /// The host has heard of the NIC of a path.
    pub fn handle_hint(&mut self, side: Side, now: Time, path: PathId, hint: Hint) {
        let newest = either!(self, side, end => end.snapshot().paths[path.index()]);
        let Some(generation) = newest.map(|path| path.generation) else {
            return;
        };
        match hint {
            Hint::LinkUp => either!(self, side, end => end.handle_link_up(now, path)),
            Hint::LinkDown => self.handle_evidence(side, now, path, generation, Evidence::Hint),
            Hint::DeviceLost => {
                self.handle_evidence(side, now, path, generation, Evidence::Error);
            }
        }
    }

    /// An end keeps off a path, or uses it again.
    pub fn drain(&mut self, side: Side, now: Time, path: PathId, is_drained: bool) {
        either!(self, side, end => end.drain(now, path, is_drained));
    }

    /// State of an end.
    pub fn snapshot(&self, side: Side) -> EndSnapshot {
        match side {
            Side::Sender => self.sender.snapshot(),
            Side::Receiver => self.receiver.snapshot(),
        }
    }

    /// Health of all paths at an end.
    pub fn healths(&self, side: Side) -> Vec<Health> {
        self.snapshot(side)
            .paths
            .into_iter()
            .flatten()
            .map(|path| path.health)
            .collect()
    }
}
