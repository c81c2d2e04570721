//! The receiving half of a socket: finds frames in the stream and puts payloads where they belong.
//!
//! Payloads pass through a stage buffer, so that one system call takes in many frames and aligned
//! words of the destination change as a whole, in ascending order. What is too large for anybody to
//! poll word by word goes from the socket straight to its destination.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::memory::Region;
use super::sys;
use super::wire::{HEADER_BYTES, Header, Kind, Refusal, padding};
use crate::copy::copy_words;

/// Largest write whose destination a GPU may be polling: one step of NCCL's LL128 protocol, 120
/// words × 640 threads × 8 (its LL steps are smaller). All of it passes through the stage, since
/// the kernel's own copy tears words at the borders of its buffers (seen on Linux 6.18 by the
/// conformance list); larger writes go straight to their destination.
pub(super) const POLLED_BYTES_MAX: usize = 614_400;
/// So much must be missing to leave the stage out: for less, one system call that takes in what
/// follows too costs less than the copy.
const DIRECT_BYTES_MIN: usize = 16 * 1024;
/// After a write that goes straight another one is expected, and only so many bytes are staged.
const STAGE_AFTER_LARGE_BYTES: usize = 4 * 1024;
/// One call of [`Inflow::progress`] takes in about so many bytes, to be fair to other work.
const BYTES_PER_CALL: usize = 1 << 20;

/// What a header asks for.
pub(super) enum Next {
    /// Payload for `length` bytes at the header's address in this region.
    Payload(Arc<Region>),
    /// Nothing follows.
    Done,
    /// The frame cannot be taken now; it is shown again at the next call.
    Hold,
}

/// Who decides what frames mean.
pub(super) trait Sink {
    /// A header has arrived. An error ends the stream.
    fn header(&mut self, header: &Header) -> Result<Next, Refusal>;
    /// All bytes of the latest payload are in place.
    fn landed(&mut self) -> Result<(), Refusal>;
}

/// How far a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing more to receive for now.
    Idle,
    /// There may be more; call again.
    More,
    /// The sink holds a frame.
    Held,
    /// The stream has ended or is broken.
    Closed,
}

struct Payload {
    region: Arc<Region>,
    address: u64,
    missing: usize,
    padding: usize,
    /// Nobody watches it word by word: it may go straight to its destination.
    direct: bool,
}

impl Payload {
    fn skips_stage(&self) -> bool {
        self.direct && self.missing >= DIRECT_BYTES_MIN
    }
}

/// Receiving state of one socket.
pub(super) struct Inflow {
    stage: Box<[u8]>,
    start: usize,
    end: usize,
    payload: Option<Payload>,
    /// Padding bytes still to be skipped.
    skip: usize,
    stage_limit: usize,
}

impl Inflow {
    /// `stage_bytes` is how much one call may take in beside large payloads.
    pub(super) fn new(stage_bytes: usize) -> Self {
        Self {
            stage: vec![0; stage_bytes.max(STAGE_AFTER_LARGE_BYTES)].into_boxed_slice(),
            start: 0,
            end: 0,
            payload: None,
            skip: 0,
            stage_limit: stage_bytes,
        }
    }

    /// Receives and hands over what is there.
    pub(super) fn progress(
        &mut self,
        socket: RawFd,
        sink: &mut impl Sink,
    ) -> Result<Progress, Refusal> {
        let mut taken = 0;
        if self.start < self.end && self.parse(sink)? {
            return Ok(Progress::Held);
        }
        while taken < BYTES_PER_CALL {
            let filled = match self.fill(socket, sink)? {
                Ok(filled) => filled,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Progress::Idle);
                }
                Err(_) => return Ok(Progress::Closed),
            };
            if self.parse(sink)? {
                return Ok(Progress::Held);
            }
            match filled {
                Filled::Closed => return Ok(Progress::Closed),
                Filled::All => return Ok(Progress::Idle),
                Filled::Some(bytes) => taken += bytes,
            }
        }
        Ok(Progress::More)
    }

    /// Takes frames out of the stage; true when the sink holds one.
    fn parse(&mut self, sink: &mut impl Sink) -> Result<bool, Refusal> {
        loop {
            let skipped = self.skip.min(self.end - self.start);
            self.start += skipped;
            self.skip -= skipped;
            if self.payload.is_some() {
                if !self.unstage(sink)? {
                    return Ok(false);
                }
                continue;
            }
            let Some(bytes) = self.stage[self.start..self.end].first_chunk::<HEADER_BYTES>() else {
                return Ok(false);
            };
            let header = Header::decode(bytes).ok_or(Refusal::Invalid)?;
            match sink.header(&header)? {
                Next::Hold => return Ok(true),
                Next::Done => self.start += HEADER_BYTES,
                Next::Payload(region) => {
                    self.start += HEADER_BYTES;
                    let length = header.length as usize;
                    let write = match header.kind {
                        Kind::Chunk => header.immediate as usize,
                        _ => length,
                    };
                    let direct = write > POLLED_BYTES_MAX;
                    self.payload = Some(Payload {
                        region,
                        address: header.address,
                        missing: length,
                        padding: padding(length),
                        direct,
                    });
                    self.stage_limit = if direct {
                        STAGE_AFTER_LARGE_BYTES
                    } else {
                        self.stage.len()
                    };
                }
            }
        }
    }

    /// Copies staged payload to its place; true when the payload is complete.
    fn unstage(&mut self, sink: &mut impl Sink) -> Result<bool, Refusal> {
        let Some(payload) = &mut self.payload else {
            return Ok(true);
        };
        let staged = self.end - self.start;
        let bytes = if payload.direct {
            staged.min(payload.missing)
        } else {
            whole_words(payload.address, staged, payload.missing)
        };
        if bytes > 0 {
            let _usage = payload.region.enter().ok_or(Refusal::Access)?;
            // SAFETY: the sink has checked that the destination lies in the region, which stays
            // mapped during the use; the source lies in the stage.
            unsafe {
                copy_words(
                    payload.address as *mut u8,
                    self.stage.as_ptr().add(self.start),
                    bytes,
                );
            }
        }
        self.start += bytes;
        self.advance(bytes, sink)
    }

    fn advance(&mut self, bytes: usize, sink: &mut impl Sink) -> Result<bool, Refusal> {
        let Some(payload) = &mut self.payload else {
            return Ok(true);
        };
        payload.address += bytes as u64;
        payload.missing -= bytes;
        if payload.missing > 0 {
            return Ok(false);
        }
        self.skip = payload.padding;
        self.payload = None;
        sink.landed()?;
        Ok(true)
    }

    fn fill(&mut self, socket: RawFd, sink: &mut impl Sink) -> Result<io::Result<Filled>, Refusal> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.payload.as_ref().is_some_and(Payload::skips_stage) {
                return self.fill_direct(socket, sink);
            }
        } else if self.start > 0 {
            self.stage.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let staged = self.end;
        let limit = self.stage_limit.max(HEADER_BYTES);
        let wanted = limit.max(staged + 1).min(self.stage.len()) - staged;
        let room = &mut self.stage[staged..staged + wanted];
        let mut buffers = [sys::buffer(room.as_ptr(), room.len())];
        // SAFETY: the buffer is the room in the stage.
        let received = match unsafe { sys::receive(socket, &mut buffers) } {
            Ok(received) => received,
            Err(error) => return Ok(Err(error)),
        };
        self.end += received;
        Ok(Ok(match received {
            0 => Filled::Closed,
            bytes if bytes < wanted => Filled::All,
            bytes => Filled::Some(bytes),
        }))
    }

    /// Receives into the destination, and what follows the payload into the empty stage. It takes
    /// all that is there, halves of words too: what stays in the socket holds its window closed.
    fn fill_direct(
        &mut self,
        socket: RawFd,
        sink: &mut impl Sink,
    ) -> Result<io::Result<Filled>, Refusal> {
        let Some(payload) = &self.payload else {
            return Ok(Ok(Filled::All));
        };
        let direct = payload.missing.min(BYTES_PER_CALL);
        let ends = direct == payload.missing;
        let behind = if ends { STAGE_AFTER_LARGE_BYTES } else { 0 };
        let mut buffers = [
            sys::buffer(payload.address as *const u8, direct),
            sys::buffer(self.stage.as_ptr(), behind),
        ];
        let count = if ends { 2 } else { 1 };
        let received = {
            let _usage = payload.region.enter().ok_or(Refusal::Access)?;
            // SAFETY: the sink has checked that the destination lies in the region, which stays
            // mapped during the use; the second buffer is the stage.
            unsafe { sys::receive(socket, &mut buffers[..count]) }
        };
        let received = match received {
            Ok(received) => received,
            Err(error) => return Ok(Err(error)),
        };
        let landed = received.min(direct);
        self.end = received - landed;
        self.advance(landed, sink)?;
        Ok(Ok(match received {
            0 => Filled::Closed,
            bytes if bytes < direct + behind => Filled::All,
            bytes => Filled::Some(bytes),
        }))
    }
}

enum Filled {
    /// So many bytes, and there may be more.
    Some(usize),
    /// Everything that was there.
    All,
    /// End of the stream.
    Closed,
}

/// How many of `available` bytes for `address` may land now: up to the last whole aligned word, or
/// all that are `missing`.
fn whole_words(address: u64, available: usize, missing: usize) -> usize {
    if available >= missing {
        return missing;
    }
    let torn = (address as usize).wrapping_add(available) & 7;
    available.saturating_sub(torn)
}

#[cfg(test)]
mod tests;
