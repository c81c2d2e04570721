//! Simulated memory: lines of 128 bytes, each known by what it holds.
//!
//! A line holds the name of the content that was written into it and the place that it had there:
//! enough to tell the right bytes from all others, at a sixteenth of the cost of real ones.

use crate::queue::Nanos;

/// Bytes of a line: one line of NCCL's LL128.
pub const LINE_BYTES: u64 = 128;
/// Bytes of address space between the beginnings of two buffers.
const STRIDE: u64 = 1 << 32;
const PLACE_BITS: u32 = 24;

/// Name of the content of one message, or of a source buffer after it was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content(pub u64);

impl Content {
    /// What a buffer holds that belongs to nobody.
    pub const POISON: Self = Self(0);
    /// What belongs to more than one content.
    pub const MIXED: Self = Self(u64::MAX >> PLACE_BITS);

    /// What a line, or a word of a slot, holds at its place.
    pub(crate) fn line(self, place: u64) -> u64 {
        self.0 << PLACE_BITS | place
    }

    /// Whose that is.
    pub(crate) fn of(cell: u64) -> Self {
        Self(cell >> PLACE_BITS)
    }
}

/// Lines that `bytes` take.
pub const fn lines(bytes: u64) -> u64 {
    bytes.div_ceil(LINE_BYTES)
}

/// A buffer by number.
pub type BufferId = usize;

/// Address of byte `offset` of a buffer.
pub const fn address(buffer: BufferId, offset: u64) -> u64 {
    (buffer as u64 + 1) * STRIDE + offset
}

/// Whom a receive buffer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The content that must land.
    pub content: Content,
    /// Its bytes.
    pub bytes: u64,
}

/// One buffer.
#[derive(Clone, Debug)]
struct Buffer {
    cells: Vec<u64>,
    /// What a source holds now; reading it names this.
    content: Content,
    expected: Option<Expected>,
    registered: bool,
    /// Lines that a polling reader has seen in their final state.
    seen: u64,
}

/// Bytes that a NIC has read and that may land: a run of lines of one content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// What was read.
    pub content: Content,
    /// Place of the first line in the source.
    pub place: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Memory of all processes of a world.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    buffers: Vec<Buffer>,
}

impl Memory {
    /// A registered buffer of `bytes`.
    pub fn allocate(&mut self, bytes: u64) -> BufferId {
        self.buffers.push(Buffer {
            cells: vec![0; lines(bytes) as usize],
            content: Content::POISON,
            expected: None,
            registered: true,
            seen: 0,
        });
        self.buffers.len() - 1
    }

    /// The user fills a source, or takes it back and writes something else into it.
    pub fn fill(&mut self, buffer: BufferId, content: Content) {
        self.buffers[buffer].content = content;
    }

    /// A NIC reads `bytes` at an address. An error says which rule the read breaks.
    pub fn read(&self, at: u64, bytes: u64) -> (Payload, Result<(), String>) {
        let buffer = (at / STRIDE - 1) as usize;
        let payload = Payload {
            content: self.buffers[buffer].content,
            place: at % STRIDE / LINE_BYTES,
            bytes,
        };
        let result = if self.buffers[buffer].registered {
            Ok(())
        } else {
            Err(format!(
                "buffer {buffer} was read after it was deregistered"
            ))
        };
        (payload, result)
    }

    /// The user opens a receive into a buffer.
    pub fn open(&mut self, buffer: BufferId, expected: Expected) {
        let entry = &mut self.buffers[buffer];
        entry.expected = Some(expected);
        entry.seen = 0;
        entry.cells.fill(Content::POISON.line(0));
    }

    /// No NIC may reach the buffer from now on.
    pub fn deregister(&mut self, buffer: BufferId) {
        self.buffers[buffer].registered = false;
    }

    /// Whether a NIC may reach the address, and the buffer it lies in.
    pub fn resolve(&self, at: u64) -> Option<(BufferId, u64)> {
        let buffer = (at / STRIDE).checked_sub(1)? as usize;
        let entry = self.buffers.get(buffer)?;
        entry.registered.then_some((buffer, at % STRIDE))
    }

    /// A NIC writes. An error says which rule the write breaks.
    pub fn land(&mut self, now: Nanos, at: u64, payload: Payload) -> Result<(), String> {
        let buffer = (at / STRIDE - 1) as usize;
        let first = at % STRIDE / LINE_BYTES;
        let entry = &mut self.buffers[buffer];
        if !entry.registered {
            return Err(format!(
                "{now}: a write landed in buffer {buffer} after it was deregistered"
            ));
        }
        if at % LINE_BYTES != 0 {
            return Err(format!(
                "{now}: a write began within a line of buffer {buffer}"
            ));
        }
        let Some(expected) = entry.expected else {
            return Err(format!(
                "{now}: a write of {:?} landed in buffer {buffer} after its receive was done",
                payload.content
            ));
        };
        if payload.content != expected.content || payload.place != first {
            return Err(format!(
                "{now}: {payload:?} landed at line {first} of buffer {buffer}, which expects \
                 {expected:?}"
            ));
        }
        let count = lines(payload.bytes);
        let (start, end) = (first as usize, (first + count) as usize);
        let Some(cells) = entry.cells.get_mut(start..end) else {
            return Err(format!(
                "{now}: a write ran over the end of buffer {buffer}"
            ));
        };
        for (place, cell) in (first..).zip(cells) {
            *cell = payload.content.line(place);
        }
        Ok(())
    }

    /// A GPU polls the flags of its lines and takes those that are there; what it has taken must
    /// never change again, and what it finds must be final.
    pub fn poll_lines(&mut self, now: Nanos, buffer: BufferId) -> Result<(), String> {
        let entry = &mut self.buffers[buffer];
        let Some(expected) = entry.expected else {
            return Ok(());
        };
        for place in 0..lines(expected.bytes) {
            let cell = entry.cells[place as usize];
            let is_final = cell == expected.content.line(place);
            let bit = 1 << (place % 64);
            if !is_final && cell != Content::POISON.line(0) {
                return Err(format!(
                    "{now}: a reader saw a wrong line in buffer {buffer}"
                ));
            }
            if place < 64 {
                if entry.seen & bit != 0 && !is_final {
                    return Err(format!("{now}: a line that a reader took has changed"));
                }
                entry.seen |= if is_final { bit } else { 0 };
            }
        }
        Ok(())
    }

    /// Whether all that is expected in a buffer is there.
    pub fn is_whole(&self, buffer: BufferId) -> bool {
        let entry = &self.buffers[buffer];
        entry.expected.is_none_or(|expected| {
            let mut places = 0..lines(expected.bytes);
            places.all(|place| entry.cells[place as usize] == expected.content.line(place))
        })
    }

    /// The receive was reported done with `bytes`: everything must be there. The buffer belongs to
    /// the user again.
    pub fn close(&mut self, now: Nanos, buffer: BufferId, bytes: u64) -> Result<(), String> {
        let entry = &mut self.buffers[buffer];
        let Some(expected) = entry.expected.take() else {
            return Err(format!("{now}: buffer {buffer} was reported done twice"));
        };
        if bytes != expected.bytes {
            return Err(format!(
                "{now}: buffer {buffer} was reported done with {bytes} bytes of {}",
                expected.bytes
            ));
        }
        let wrong = (0..lines(bytes))
            .find(|&place| entry.cells[place as usize] != expected.content.line(place));
        match wrong {
            Some(line) => Err(format!(
                "{now}: buffer {buffer} was reported done, but line {line} is {:#x}",
                entry.cells[line as usize]
            )),
            None => Ok(()),
        }
    }
}
