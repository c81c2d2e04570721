//! Little-endian reading and writing with bounds: the floor under handles and control frames.
//!
//! Nothing here panics on any input. A reader that runs off its end answers `None`, and text is
//! taken only when it is whole, within its bound and UTF-8.

use alloc::string::String;
use alloc::vec::Vec;

/// `N` bytes of a line of fixed size from `offset` on; all callers pass constants inside it.
pub(crate) fn take<const N: usize, const M: usize>(line: &[u8; M], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&line[offset..offset + N]);
    bytes
}

/// Reads fields from the front of a byte string.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the first byte of `bytes` on.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether every byte has been read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// The next `len` bytes.
    pub(crate) fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    /// The next `N` bytes as an array.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.slice(N)?.try_into().ok()
    }

    /// The next byte.
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// The next two bytes.
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Text behind its 16-bit length, at most `bytes_max` bytes.
    pub(crate) fn text(&mut self, bytes_max: usize) -> Option<String> {
        let len = usize::from(self.u16()?);
        if len > bytes_max {
            return None;
        }
        core::str::from_utf8(self.slice(len)?)
            .ok()
            .map(String::from)
    }
}

/// Longest prefix of `text` that has at most `bytes_max` bytes and ends between two characters.
pub(crate) fn prefix(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Appends text behind its 16-bit length; what exceeds `bytes_max` is cut off.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, bytes_max: usize) {
    let text = prefix(text, bytes_max.min(usize::from(u16::MAX)));
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(prefix("aé", 2), "a");
        assert_eq!(prefix("aé", 3), "aé");
        assert_eq!(prefix("é", 1), "");
    }

    #[test]
    fn a_reader_never_leaves_its_bytes() {
        let mut reader = Reader::new(&[1, 0, 0]);
        assert_eq!(reader.u16(), Some(1));
        assert_eq!(reader.u16(), None);
        assert_eq!(reader.u8(), Some(0));
        assert!(reader.is_at_end());
        assert_eq!(Reader::new(&[3, 0, b'a', b'b']).text(8), None);
        assert_eq!(Reader::new(&[2, 0, 0xff, 0xfe]).text(8), None);
        assert_eq!(Reader::new(&[2, 0, b'a', b'b']).text(1), None);
    }
}
