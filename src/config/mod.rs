//! Settings: the only place that reads the environment.
//!
//! [`table`] declares every setting once: name, type, default, range, stability, meaning. The
//! struct [`Settings`], its parser, the rows of `r2ccl config` and `docs/CONFIG.md` all come from
//! there. A bad value never stops a job: the default is used and a [`Complaint`] says so.

mod document;
mod hca_rule;
mod identity;
mod interface_rule;
mod kind;
mod name_rule;
mod soft_nics;
mod table;
mod unused;

use std::fmt;
use std::sync::OnceLock;

pub use document::markdown;
pub use hca_rule::HcaRule;
pub use identity::HostIdentity;
pub use interface_rule::InterfaceRule;
pub use kind::{Kind, Seconds};
pub use soft_nics::{SOFT_NICS_MAX, SoftNicPlace, SoftNicRequest, rate_bits_per_s};
pub use table::{Fabric, Fence, LogLevel, RoutingAlgorithm, Settings, SocketFamily};

/// Names that start with this are ours: one that the table does not hold is reported.
const PREFIX: &str = "R2CCL_";
/// Longest part of a value that a complaint repeats, in characters.
const QUOTED_CHARACTERS_MAX: usize = 80;
/// A suggestion must be at most this many edits away from what was written.
const EDITS_MAX: usize = 4;

/// How settled a setting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Keeps name and meaning.
    Stable,
    /// May change with any release.
    Experimental,
    /// For tests and measurements; no use in production.
    Testing,
    /// A variable of NCCL, honoured as NCCL's users know it.
    Nccl,
}

impl fmt::Display for Stability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Stability::Stable => "stable",
            Stability::Experimental => "experimental",
            Stability::Testing => "testing",
            Stability::Nccl => "NCCL's",
        })
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The table: not set, or set to something unusable.
    Default,
    /// The environment of the process.
    Environment,
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Source::Default => "default",
            Source::Environment => "environment",
        })
    }
}

/// A variable of the environment that could not be used as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Name of the variable as it was written.
    pub name: String,
    /// What is wrong with it and what to write instead; a full sentence that holds the name.
    pub message: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

/// One line of `r2ccl config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name of the variable.
    pub name: &'static str,
    /// Value in force, in the form in which it could be set.
    pub value: String,
    /// Where that value comes from.
    pub source: Source,
    /// Type with unit.
    pub type_text: String,
    /// Value in force when nothing is set.
    pub default: String,
    /// What may be set.
    pub range: String,
    /// How settled the setting is.
    pub stability: Stability,
    /// Whether both ends of a connection must have the same value.
    pub is_shared: bool,
    /// One paragraph.
    pub meaning: &'static str,
}

/// Settings of this process, read from the environment at the first call. NCCL puts the lines of
/// its configuration files into the environment before it calls a plugin's `init`; the library
/// must therefore not call this earlier.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(Settings::from_env)
}

impl Settings {
    /// Reads the environment as it is now. Text that is not UTF-8 is read with replacement signs.
    pub fn from_env() -> Self {
        Self::from_pairs(std::env::vars_os().map(|(name, value)| {
            let text = |raw: std::ffi::OsString| raw.to_string_lossy().into_owned();
            (text(name), text(value))
        }))
    }

    /// Reads settings from names and values; what is not a setting's name and does not look like
    /// one of ours is skipped, and so are empty values. Of two equal names the last one counts.
    pub fn from_pairs<N, V>(pairs: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: AsRef<str>,
        V: AsRef<str>,
    {
        let mut settings = Self::defaults();
        for (name, value) in pairs {
            settings.take(name.as_ref(), value.as_ref().trim());
        }
        settings
    }

    fn take(&mut self, name: &str, value: &str) {
        let Some(row) = table::TABLE.iter().find(|row| row.name == name) else {
            if name.starts_with(PREFIX) {
                self.complain(name, unknown_name(name));
            }
            if !value.is_empty() {
                self.unused.extend(unused::find(name));
            }
            return;
        };
        if value.is_empty() {
            return;
        }
        match (row.store)(self, value) {
            Ok(()) => {
                if !self.given.contains(&row.name) {
                    self.given.push(row.name);
                }
            }
            Err(reason) => {
                let default = (row.show)(&Self::defaults());
                let used = (row.show)(self);
                let which = if used == default {
                    "the default"
                } else {
                    "the earlier value"
                };
                let message = format!(
                    "{name}={}: {reason}; allowed: {}; {which} ({used}) is used",
                    quoted(value),
                    (row.range)(),
                );
                self.complain(name, message);
            }
        }
    }

    fn complain(&mut self, name: &str, message: String) {
        self.complaints.push(Complaint {
            name: quoted(name),
            message,
        });
    }

    /// All settings with their values, in the order of the table.
    pub fn describe(&self) -> Vec<Description> {
        let defaults = Self::defaults();
        let describe = |row: &table::Setting| Description {
            name: row.name,
            value: (row.show)(self),
            source: match self.given.contains(&row.name) {
                true => Source::Environment,
                false => Source::Default,
            },
            type_text: (row.type_text)(),
            default: (row.show)(&defaults),
            range: (row.range)(),
            stability: row.stability,
            is_shared: row.is_shared,
            meaning: row.meaning,
        };
        table::TABLE.iter().map(describe).collect()
    }

    /// Names and values of the settings that both ends of a connection must share, for the
    /// greeting, sorted by name.
    pub fn shared(&self) -> Vec<(String, String)> {
        let rows = table::TABLE.iter().filter(|row| row.is_shared);
        let mut shared: Vec<_> = rows
            .map(|row| (row.name.to_owned(), (row.show)(self)))
            .collect();
        shared.sort_unstable();
        shared
    }

    /// Writes every complaint to the log, as a warning, and which settings of NCCL have no effect.
    /// To be called once, when the log stands.
    pub fn report_complaints(&self) {
        for complaint in &self.complaints {
            tracing::warn!("{complaint}");
        }
        for (name, reason) in &self.unused {
            tracing::info!("{name} has no effect: {reason}");
        }
    }
}

/// The 64-bit form of a hash: its first eight bytes, little endian.
pub(crate) fn first_eight_bytes(hash: &blake3::Hash) -> u64 {
    hash.as_bytes()
        .iter()
        .take(8)
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// `text` without control characters and not longer than a log line can bear.
fn quoted(text: &str) -> String {
    let is_cut = text.chars().nth(QUOTED_CHARACTERS_MAX).is_some();
    let clean = text.chars().take(QUOTED_CHARACTERS_MAX);
    let mut clean: String = clean
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if is_cut {
        clean.push('…');
    }
    clean
}

fn unknown_name(name: &str) -> String {
    let shown = quoted(name);
    let ours = table::TABLE.iter().map(|row| row.name);
    // Names that a shell or an administrator can set are short; longer ones resemble nothing.
    let nearest = ours
        .filter(|_| name.len() <= QUOTED_CHARACTERS_MAX)
        .map(|known| {
            (
                strsim::damerau_levenshtein(&name.to_ascii_uppercase(), known),
                known,
            )
        })
        .min_by_key(|(edits, _)| *edits)
        .filter(|(edits, _)| *edits <= EDITS_MAX);
    match nearest {
        Some((_, known)) => {
            format!("{shown} is not a setting of this version; did you mean {known}?")
        }
        None => {
            format!("{shown} is not a setting of this version; `r2ccl config` lists those that are")
        }
    }
}

#[cfg(test)]
mod tests;
