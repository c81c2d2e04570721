//! Settings that both ends of a connection must share (PROTOCOL R33).

use std::collections::{BTreeMap, BTreeSet};

use r2ccl_core::wire::greeting::{Greeting, SETTING_BYTES_MAX, SETTINGS_MAX};

use super::Config;
use crate::config::first_eight_bytes;
use crate::runtime::error::{Error, Result};

/// Whether the settings fit into a greeting.
pub(super) fn check(settings: &[(String, String)]) -> Result<()> {
    let fits = |text: &String| text.len() <= SETTING_BYTES_MAX;
    if settings.len() > SETTINGS_MAX {
        return Err(Error::Internal(format!(
            "{} shared settings are too many",
            settings.len()
        )));
    }
    match settings
        .iter()
        .find(|(name, value)| !fits(name) || !fits(value))
    {
        None => Ok(()),
        Some((name, _)) => Err(Error::Usage(format!(
            "the value of {name} is longer than {SETTING_BYTES_MAX} bytes and cannot be compared \
             with the other hosts': shorten it"
        ))),
    }
}

/// A number that differs when the settings do; their order does not matter.
pub(super) fn fingerprint(settings: &[(String, String)]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for (name, value) in settings.iter().collect::<BTreeSet<_>>() {
        for text in [name, value] {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
    }
    first_eight_bytes(&hasher.finalize())
}

/// Names every setting in which the sides differ, with both values; `None` if they agree.
pub(super) fn mismatch(config: &Config, greeting: &Greeting) -> Option<String> {
    if greeting.fingerprint == fingerprint(&config.settings) {
        return None;
    }
    let map = |settings: &[(String, String)]| settings.iter().cloned().collect::<BTreeMap<_, _>>();
    let (ours, theirs) = (map(&config.settings), map(&greeting.settings));
    let names: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let differing: Vec<_> = names
        .into_iter()
        .filter(|name| ours.get(*name) != theirs.get(*name))
        .map(|name| {
            let text = |value: Option<&String>| match value {
                Some(value) => format!("\"{value}\""),
                None => "unknown".into(),
            };
            let ours = text(ours.get(name));
            let theirs = text(theirs.get(name));
            format!(
                "{name} is {ours} on {} and {theirs} on {}",
                config.host, greeting.host
            )
        })
        .collect();
    Some(format!(
        "both sides must run with the same settings: {}; set them alike on all hosts",
        differing.join(", ")
    ))
}
