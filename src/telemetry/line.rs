//! One log line, formatted without allocation.

use std::ffi::CStr;
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};

/// Longest line in bytes: NCCL keeps its lines, prefix included, to about 1 KiB.
pub const LINE_BYTES_MAX: usize = 900;
/// Bytes kept free for the mark of a cut line and the count of suppressed ones.
const TAIL_BYTES: usize = 48;
/// Stands where a line was cut.
const CUT_MARK: &str = "…";

/// Text that ends where there is no more room, and is a C string at any time.
pub struct Line {
    /// Text, then zeros.
    bytes: [u8; LINE_BYTES_MAX + 1],
    length: usize,
    /// No text goes beyond this now.
    limit: usize,
    is_cut: bool,
    /// Whether the next field needs no space before it.
    is_spaced: bool,
}

impl Line {
    /// A line that starts with `prefix`.
    pub fn new(prefix: &str) -> Self {
        let limit = LINE_BYTES_MAX - TAIL_BYTES;
        let mut line = Self {
            bytes: [0; LINE_BYTES_MAX + 1],
            length: 0,
            limit,
            is_cut: false,
            is_spaced: true,
        };
        line.push(format_args!("{prefix}"));
        line
    }

    /// Adds the message of an event and its fields. A panic of a value's own formatting is caught.
    pub fn push_event(&mut self, event: &tracing::Event<'_>) {
        let formatting = std::panic::AssertUnwindSafe(|| event.record(self));
        if std::panic::catch_unwind(formatting).is_err() {
            self.push(format_args!(" (a value could not be formatted)"));
        }
    }

    /// Ends the line: marks a cut, and says how many lines like it were left out before.
    pub fn finish(&mut self, suppressed: u64) {
        self.limit = LINE_BYTES_MAX;
        if std::mem::take(&mut self.is_cut) {
            self.push(format_args!("{CUT_MARK}"));
        }
        if suppressed > 0 {
            self.push(format_args!(" ({suppressed} similar lines suppressed)"));
        }
    }

    fn push(&mut self, text: fmt::Arguments<'_>) {
        // The only error is one of a value's own formatting; what was written so far is kept.
        let _ = self.write_fmt(text);
    }

    /// Calls `write` with the text and a line feed, in one piece.
    pub fn with_line_feed<T>(&self, write: impl FnOnce(&[u8]) -> T) -> T {
        let mut bytes = self.bytes;
        bytes[self.length] = b'\n';
        write(&bytes[..=self.length])
    }

    /// The text as C takes it.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            // A zero would end the line for C, a line feed would hide the rest from a search.
            let character = if character.is_control() {
                ' '
            } else {
                character
            };
            let end = self.length + character.len_utf8();
            if self.is_cut || end > self.limit {
                self.is_cut = true;
                return Ok(());
            }
            character.encode_utf8(&mut self.bytes[self.length..end]);
            self.length = end;
        }
        Ok(())
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let space = if std::mem::take(&mut self.is_spaced) {
            ""
        } else {
            " "
        };
        match field.name() {
            "message" => self.push(format_args!("{space}{value:?}")),
            name => self.push(format_args!("{space}{name}={value:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &Line) -> String {
        let with_feed = line.with_line_feed(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
        let text = line.as_c_str().to_str().unwrap().to_owned();
        assert_eq!(with_feed, format!("{text}\n"));
        text
    }

    #[test]
    fn lines_are_cut_at_whole_characters() {
        for filler in ["a", "é", "€", "🦀"] {
            for shift in 0..4 {
                let mut line = Line::new("p: ");
                line.push(format_args!("{}{}", "x".repeat(shift), filler.repeat(2000)));
                line.push(format_args!("never seen"));
                line.finish(SUPPRESSED);
                let text = text(&line);
                assert!(text.len() <= LINE_BYTES_MAX, "{} bytes", text.len());
                assert!(
                    text.len() > LINE_BYTES_MAX - TAIL_BYTES,
                    "{} bytes",
                    text.len()
                );
                let end = format!("{filler}… ({SUPPRESSED} similar lines suppressed)");
                assert!(text.ends_with(&end), "{text}");
            }
        }
    }

    /// The largest count that an allowance can hold.
    const SUPPRESSED: u64 = (1 << 24) - 1;

    #[test]
    fn control_characters_become_spaces() {
        let mut line = Line::new("");
        line.push(format_args!("a\0b\nc\x1b[31m"));
        line.finish(0);
        assert_eq!(text(&line), "a b c [31m");
    }
}
