//! `NCCL_SOCKET_IFNAME`: which network interfaces may be used.

use std::fmt;

use super::kind::{Kind, or_unset};
use super::name_rule::Signs;

/// A list of interface names in NCCL's syntax: `eth,ib` takes names that start so, `=eth0` exact
/// names, `^docker` all but these, `^=docker0` all but exactly these. A part of a name after a
/// colon is ignored, as NCCL does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceRule {
    signs: Signs,
    /// Names or beginnings of names.
    names: Vec<String>,
}

impl InterfaceRule {
    /// Reads a rule; any text is one.
    pub fn new(text: &str) -> Self {
        let (signs, rest) = Signs::read(text.trim());
        let names = rest
            .split(',')
            .map(|item| item.split(':').next().unwrap_or_default().trim())
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        Self { signs, names }
    }

    /// Whether the rule allows the interface.
    pub fn allows(&self, interface: &str) -> bool {
        if self.names.is_empty() {
            return true;
        }
        let mut names = self.names.iter();
        let is_named = names.any(|name| self.signs.matches(interface, name));
        is_named != self.signs.is_exclusion
    }

    /// Whether the rule says what to leave out rather than what to take.
    pub fn is_exclusion(&self) -> bool {
        self.signs.is_exclusion
    }
}

impl fmt::Display for InterfaceRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.signs, self.names.join(","))
    }
}

/// Kind of `NCCL_SOCKET_IFNAME`; without a value the choice is automatic.
pub(super) struct InterfaceRules;

impl Kind for InterfaceRules {
    type Value = Option<InterfaceRule>;

    fn type_text(&self) -> String {
        "list of interface names".to_owned()
    }

    fn range(&self) -> String {
        "[^][=]NAME[,NAME…]".to_owned()
    }

    fn parse(&self, text: &str) -> Result<Self::Value, String> {
        Ok(Some(InterfaceRule::new(text)))
    }

    fn show(&self, value: &Self::Value) -> String {
        or_unset(value.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_choose_as_nccl_does() {
        let all = ["lo", "eth0", "eth1", "eth10", "ib0", "docker0"];
        let cases: &[(&str, &[&str])] = &[
            ("eth", &["eth0", "eth1", "eth10"]),
            ("eth1", &["eth1", "eth10"]),
            ("=eth1", &["eth1"]),
            ("=eth1,ib0", &["eth1", "ib0"]),
            ("=eth", &[]),
            ("eth0,ib", &["eth0", "ib0"]),
            ("^docker", &["lo", "eth0", "eth1", "eth10", "ib0"]),
            ("^docker,lo", &["eth0", "eth1", "eth10", "ib0"]),
            ("^eth1", &["lo", "eth0", "ib0", "docker0"]),
            ("^=eth1", &["lo", "eth0", "eth10", "ib0", "docker0"]),
            ("^=eth", &all),
            ("=^eth1", &[]),
            ("wlan", &[]),
            (" eth0 , ib0 ", &["eth0", "ib0"]),
            (",,eth0,", &["eth0"]),
            ("eth0:1", &["eth0"]),
            ("^", &all),
            ("=", &all),
            (",", &all),
        ];
        for (text, expected) in cases {
            let rule = InterfaceRule::new(text);
            let chosen: Vec<&str> = all.into_iter().filter(|name| rule.allows(name)).collect();
            assert_eq!(&chosen, expected, "{text:?}");
        }
    }

    #[test]
    fn shown_rules_read_back() {
        for text in ["eth,ib", "=eth0", "^docker,lo", "^=docker0"] {
            let value = InterfaceRules.parse(text).unwrap();
            assert_eq!(InterfaceRules.show(&value), text);
        }
    }
}
