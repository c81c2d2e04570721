//! What an end needs of the half of the protocol that it guards.

use crate::error::ProtocolError;
use crate::ids::{Generation, PathId, WorkId};
use crate::paths::Condition;
use crate::receiver::Receiver;
use crate::recovery::Answer;
use crate::route::Route;
use crate::sender::Sender;

/// How the work of a path stands, for the watchdog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Something is expected to happen on the path.
    pub is_waiting: bool,
    /// Grows whenever something did.
    pub progress: u64,
    /// Bytes under way.
    pub bytes: u64,
}

/// The sending or the receiving half of a connection, as [`super::End`] drives it.
pub trait Half {
    /// Whether this is the sender, which numbers the generations and asks for answers.
    const IS_SENDER: bool;

    /// Adds a path that is in service from the start.
    fn add(&mut self, path: PathId, generation: Generation) -> Result<(), ProtocolError>;
    /// Adds a new generation that has to prove itself.
    fn add_proving(&mut self, path: PathId, generation: Generation) -> Result<(), ProtocolError>;
    /// Takes that into service.
    fn serve(&mut self, path: PathId);
    /// Ends a generation for good; false when it is over or unknown.
    fn close(&mut self, path: PathId, generation: Generation) -> bool;
    /// Condition of the newest generation.
    fn condition(&self, path: PathId) -> Option<Condition>;
    /// Newest generation.
    fn generation(&self, path: PathId) -> Option<Generation>;
    /// Whether a new generation may begin.
    fn is_settled(&self, path: PathId) -> bool;
    /// This end's queue pair is silent, or (`false`) nobody knows.
    fn handle_fence(&mut self, path: PathId, generation: Generation, is_fenced: bool);
    /// The source is silent and the quarantine over; false when that changes nothing.
    fn handle_quarantine_over(&mut self, path: PathId, generation: Generation) -> bool;
    /// Sender: whether the last closed generation of the path is not fenced.
    fn is_unfenced(&self, path: PathId) -> bool;
    /// The receiver's answer about a generation that is over, when there is one.
    fn answer(&self, path: PathId, generation: Generation) -> Option<Answer>;
    /// Takes an answer; false when it says nothing new.
    fn handle_answer(&mut self, answer: &Answer) -> Result<bool, ProtocolError>;
    /// Accounts for a completion.
    fn handle_completion(&mut self, work: WorkId, ok: bool);
    /// How the work of a path stands.
    fn work(&self, path: PathId) -> Work;
    /// Paths that the oldest message was posted on that is posted and not delivered, one bit each.
    fn owing(&self) -> u16;
    /// Work requests on the send queue of a path that are not known to be complete.
    fn outstanding(&self, path: PathId) -> u32;
    /// Uses the paths of a route from now on.
    fn use_route(&mut self, route: Route);
    /// Says everything again that the other end may have missed (PROTOCOL R15).
    fn resend(&mut self);
    /// Takes the peer's last count.
    fn handle_goodbye(&mut self, count: u64) -> Result<(), ProtocolError>;
    /// Whether requests wait.
    fn is_busy(&self) -> bool;
    /// Whether requests wait for the fence of a generation of this path.
    fn is_waiting_for_fence(&self, path: PathId) -> bool;
}

impl Half for Sender {
    const IS_SENDER: bool = true;

    fn add(&mut self, path: PathId, generation: Generation) -> Result<(), ProtocolError> {
        self.add_path(path, generation)
    }

    fn add_proving(&mut self, path: PathId, generation: Generation) -> Result<(), ProtocolError> {
        self.add_proving_path(path, generation)
    }

    fn serve(&mut self, path: PathId) {
        self.serve_path(path);
    }

    fn close(&mut self, path: PathId, generation: Generation) -> bool {
        self.close_path(path, generation)
    }

    fn condition(&self, path: PathId) -> Option<Condition> {
        self.condition(path)
    }

    fn generation(&self, path: PathId) -> Option<Generation> {
        self.generation(path)
    }

    fn is_settled(&self, path: PathId) -> bool {
        self.is_settled(path)
    }

    fn handle_fence(&mut self, _: PathId, _: Generation, _: bool) {}

    fn handle_quarantine_over(&mut self, path: PathId, generation: Generation) -> bool {
        self.handle_quarantine_over(path, generation)
    }

    fn is_unfenced(&self, path: PathId) -> bool {
        self.is_unfenced(path)
    }

    fn answer(&self, _: PathId, _: Generation) -> Option<Answer> {
        None
    }

    fn handle_answer(&mut self, answer: &Answer) -> Result<bool, ProtocolError> {
        self.handle_answer(answer)
    }

    fn handle_completion(&mut self, work: WorkId, ok: bool) {
        self.handle_completion(work, ok);
    }

    fn work(&self, path: PathId) -> Work {
        self.work(path)
    }

    fn owing(&self) -> u16 {
        self.owing()
    }

    fn outstanding(&self, path: PathId) -> u32 {
        self.outstanding(path)
    }

    fn use_route(&mut self, route: Route) {
        // All its paths were added: the end has them from there.
        let _ = self.set_route(route);
    }

    fn resend(&mut self) {}

    fn handle_goodbye(&mut self, count: u64) -> Result<(), ProtocolError> {
        self.handle_goodbye(count)
    }

    fn is_busy(&self) -> bool {
        self.is_busy()
    }

    fn is_waiting_for_fence(&self, path: PathId) -> bool {
        self.is_waiting_for_fence(path)
    }
}

impl Half for Receiver {
    const IS_SENDER: bool = false;

    fn add(&mut self, path: PathId, generation: Generation) -> Result<(), ProtocolError> {
        self.add_path(path, generation)
    }

    fn add_proving(&mut self, path: PathId, generation: Generation) -> Result<(), ProtocolError> {
        self.add_proving_path(path, generation)
    }

    fn serve(&mut self, path: PathId) {
        self.serve_path(path);
    }

    fn close(&mut self, path: PathId, generation: Generation) -> bool {
        self.close_path(path, generation)
    }

    fn condition(&self, path: PathId) -> Option<Condition> {
        self.condition(path)
    }

    fn generation(&self, path: PathId) -> Option<Generation> {
        self.generation(path)
    }

    fn is_settled(&self, path: PathId) -> bool {
        matches!(self.condition(path), None | Some(Condition::Retired))
    }

    fn handle_fence(&mut self, path: PathId, generation: Generation, is_fenced: bool) {
        self.handle_fence(path, generation, is_fenced);
    }

    fn handle_quarantine_over(&mut self, _: PathId, _: Generation) -> bool {
        false
    }

    fn is_unfenced(&self, _: PathId) -> bool {
        false
    }

    fn answer(&self, path: PathId, generation: Generation) -> Option<Answer> {
        if self
            .generation(path)
            .is_none_or(|newest| newest < generation)
        {
            return Some(self.empty_answer(path, generation));
        }
        self.answer(path, generation)
    }

    fn handle_answer(&mut self, _: &Answer) -> Result<bool, ProtocolError> {
        Ok(false)
    }

    fn handle_completion(&mut self, work: WorkId, ok: bool) {
        self.handle_completion(work, ok);
    }

    fn work(&self, path: PathId) -> Work {
        self.work(path)
    }

    /// Nobody owes the receiver an answer: the sender may have nothing to send.
    fn owing(&self) -> u16 {
        0
    }

    fn outstanding(&self, path: PathId) -> u32 {
        self.outstanding(path)
    }

    fn use_route(&mut self, route: Route) {
        // As for the sender.
        let _ = self.set_credit_path(route.entries()[0].path);
        Half::resend(self);
    }

    fn resend(&mut self) {
        if let Some(path) = self.credit_path() {
            if let Some(generation) = self.generation(path) {
                self.resend_all(path, generation);
            }
        }
    }

    /// The sender's count says what it submitted; the receiver has no use for it.
    fn handle_goodbye(&mut self, _: u64) -> Result<(), ProtocolError> {
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.is_waiting()
    }

    fn is_waiting_for_fence(&self, _: PathId) -> bool {
        false
    }
}
