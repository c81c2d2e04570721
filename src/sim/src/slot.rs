//! Slots in a receiver's memory: where messages land that come ahead of their credit.

use r2ccl_core::limits::{EAGER_BYTES_MAX, EAGER_HEAD_BYTES, EAGER_SLOTS};
use r2ccl_core::wire::eager::eager_padded;

use crate::memory::{Content, LINE_BYTES, Payload};

const WORD_BYTES: u64 = 8;
const WORDS_OF_LINE: u64 = LINE_BYTES / WORD_BYTES;
const WORDS: usize = EAGER_BYTES_MAX / WORD_BYTES as usize;

/// The slots of one generation of a path, by the number of a message.
pub type Slots = [Slot; EAGER_SLOTS];

/// One slot. Each word is known by what it holds; the payload ends where the head begins.
#[derive(Clone)]
pub struct Slot {
    words: Box<[u64]>,
    /// The head as it is now.
    pub head: [u8; EAGER_HEAD_BYTES],
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            words: vec![0; WORDS].into_boxed_slice(),
            head: [0; EAGER_HEAD_BYTES],
        }
    }
}

/// Index of the first word of a payload of `bytes`.
fn begin(bytes: u32) -> usize {
    WORDS - eager_padded(bytes) / WORD_BYTES as usize
}

impl Slot {
    /// A part of a message of `bytes` lands.
    pub fn land(&mut self, bytes: u32, part: Payload) {
        let first = part.place * WORDS_OF_LINE;
        let count = part.bytes.div_ceil(WORD_BYTES);
        let words = &mut self.words[begin(bytes) + first as usize..];
        for (place, word) in (first..first + count).zip(words) {
            *word = part.content.line(place);
        }
    }

    /// Reads line `place` of a message of `bytes`; what does not belong together is
    /// [`Content::MIXED`].
    pub fn read(&self, bytes: u32, place: u64) -> Content {
        let first = place * WORDS_OF_LINE;
        let end = (first + WORDS_OF_LINE).min(u64::from(bytes).div_ceil(WORD_BYTES));
        let words = &self.words[begin(bytes) + first as usize..];
        let content = Content::of(words[0]);
        let is_whole = (first..end)
            .zip(words)
            .all(|(place, word)| *word == content.line(place));
        if is_whole { content } else { Content::MIXED }
    }
}
