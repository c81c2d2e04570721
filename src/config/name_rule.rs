//! What `NCCL_SOCKET_IFNAME` and `NCCL_IB_HCA` have in common: signs in front of a list of names.

use std::fmt;

/// `^`: all but those that match; `=`: whole names rather than their beginnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signs {
    pub is_exclusion: bool,
    pub is_exact: bool,
}

impl Signs {
    /// Reads the signs and returns what follows.
    pub fn read(text: &str) -> (Self, &str) {
        let (is_exclusion, text) = strip(text, '^');
        let (is_exact, text) = strip(text, '=');
        let signs = Self {
            is_exclusion,
            is_exact,
        };
        (signs, text)
    }

    /// Whether `name` is one of those that `wanted` stands for.
    pub fn matches(self, name: &str, wanted: &str) -> bool {
        match self.is_exact {
            true => name == wanted,
            false => name.starts_with(wanted),
        }
    }
}

impl fmt::Display for Signs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.is_exclusion { "^" } else { "" })?;
        out.write_str(if self.is_exact { "=" } else { "" })
    }
}

fn strip(text: &str, sign: char) -> (bool, &str) {
    match text.strip_prefix(sign) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}
