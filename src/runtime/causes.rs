//! What speaks against the paths of a connection, for people: the first thing that was seen, since
//! what follows from it tells less.

use std::fmt;

use r2ccl_core::PathId;
use r2ccl_core::limits::PATHS_MAX;
use r2ccl_fabric::Status;

/// One such thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The port of this end has no link.
    LinkDown,
    /// The device of this end is gone.
    DeviceGone,
    /// A work request failed.
    Status(Status),
    /// The other end has ended the path.
    Peer,
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkDown => write!(formatter, "its link is down"),
            Self::DeviceGone => write!(formatter, "its device is gone"),
            Self::Status(status) => write!(formatter, "{status:?}"),
            Self::Peer => write!(formatter, "the other end has ended it; its log says why"),
        }
    }
}

/// The causes of all paths of an end.
#[derive(Debug, Default)]
pub struct Causes {
    first: [Option<Cause>; PATHS_MAX],
    /// Paths over which anything has ever come through, one bit each.
    worked: u16,
}

impl Causes {
    /// Something speaks against the path. A flush never does: it follows from something else.
    pub fn note(&mut self, path: PathId, cause: Cause) {
        if cause != Cause::Status(Status::Flushed) {
            self.first[path.index()].get_or_insert(cause);
        }
    }

    /// Nothing speaks against the path any more.
    pub fn clear(&mut self, path: PathId) {
        self.first[path.index()] = None;
    }

    /// Something has come through over the path.
    pub fn note_work(&mut self, path: PathId) {
        self.worked |= 1 << path.index();
    }

    /// Why the path has failed, in words.
    pub fn text(&self, path: PathId) -> String {
        let cause = self.first[path.index()];
        let cause = cause.map_or("no answer".into(), |cause| cause.to_string());
        if self.worked >> path.index() & 1 == 1 {
            return cause;
        }
        format!("{cause}, and it has never worked: check GID index, VLAN, MTU and route")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field report 14: whatever comes first, a flush is not the cause.
    #[test]
    fn the_first_cause_stands_and_a_flush_is_none() {
        let (mut causes, path) = (Causes::default(), PathId::PRIMARY);
        causes.note_work(path);
        assert_eq!(causes.text(path), "no answer");
        causes.note(path, Cause::Status(Status::Flushed));
        assert_eq!(causes.text(path), "no answer");
        causes.note(path, Cause::Status(Status::RetryExceeded));
        causes.note(path, Cause::Peer);
        assert_eq!(causes.text(path), "RetryExceeded");
        causes.clear(path);
        causes.note(path, Cause::LinkDown);
        assert_eq!(causes.text(path), "its link is down");
    }
}
