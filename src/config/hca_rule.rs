//! `NCCL_IB_HCA`: which ports of which RDMA devices may be used, in NCCL's own syntax.

use std::fmt;

use super::kind::{Kind, or_unset};
use super::name_rule::Signs;

/// A list of devices with ports and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HcaRule {
    signs: Signs,
    entries: Vec<Entry>,
}

/// One device, or several of like name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    /// All ports without.
    port: Option<u32>,
    /// What newer NCCL versions say behind the port: rail and plane.
    place: String,
}

impl HcaRule {
    fn parse(text: &str) -> Result<Self, String> {
        let (signs, text) = Signs::read(text);
        let named = text.split(',').map(str::trim);
        let named = named.filter(|entry| !entry.is_empty() && !entry.starts_with(':'));
        Ok(Self {
            signs,
            entries: named.map(Entry::parse).collect::<Result<_, _>>()?,
        })
    }

    /// Whether the rule allows port `port` of the device.
    pub fn allows(&self, device: &str, port: u32) -> bool {
        if self.entries.is_empty() {
            return true;
        }
        let is_named = self.entries.iter().any(|entry| {
            self.signs.matches(device, &entry.name)
                && entry.port.is_none_or(|wanted| wanted == port)
        });
        is_named != self.signs.is_exclusion
    }
}

impl Entry {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let (port, place) = rest.split_once(':').unwrap_or((rest, ""));
        let port = match port {
            "" => None,
            digits => {
                let number = digits.parse().ok().filter(|number| *number > 0);
                Some(number.ok_or_else(|| format!("`{digits}` in `{text}` is not a port"))?)
            }
        };
        let is_number = |part: &str| part.parse::<i32>().is_ok() || part.is_empty();
        match place.split(':').count() <= 2 && place.split(':').all(is_number) {
            true => Ok(Self {
                name: name.to_owned(),
                port,
                place: place.to_owned(),
            }),
            false => Err(format!("`{place}` in `{text}` is not a rail and a plane")),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)?;
        match (self.port, self.place.as_str()) {
            (None, "") => Ok(()),
            (Some(port), "") => write!(out, ":{port}"),
            (None, place) => write!(out, "::{place}"),
            (Some(port), place) => write!(out, ":{port}:{place}"),
        }
    }
}

impl fmt::Display for HcaRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<_> = self.entries.iter().map(Entry::to_string).collect();
        write!(out, "{}{}", self.signs, entries.join(","))
    }
}

/// Kind of `NCCL_IB_HCA`; without a value all devices are used.
pub(super) struct HcaRules;

impl Kind for HcaRules {
    type Value = Option<HcaRule>;

    fn type_text(&self) -> String {
        "list of RDMA devices".to_owned()
    }

    fn range(&self) -> String {
        "[^][=]DEVICE[:PORT][,DEVICE[:PORT]…]".to_owned()
    }

    fn parse(&self, text: &str) -> Result<Self::Value, String> {
        HcaRule::parse(text).map(Some)
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
        let all = [
            ("mlx5_0", 1),
            ("mlx5_1", 1),
            ("mlx5_1", 2),
            ("mlx5_10", 1),
            ("irdma0", 1),
        ];
        let cases: &[(&str, &[usize])] = &[
            ("mlx5", &[0, 1, 2, 3]),
            ("mlx5_1", &[1, 2, 3]),
            ("=mlx5_1", &[1, 2]),
            ("=mlx5_1:2", &[2]),
            ("mlx5_1:1", &[1, 3]),
            ("=mlx5_0:1,mlx5_1:2", &[0, 2]),
            ("=mlx5_0, irdma0", &[0, 4]),
            ("^mlx5_1", &[0, 4]),
            ("^=mlx5_1", &[0, 3, 4]),
            ("^=mlx5_1:1", &[0, 2, 3, 4]),
            ("^irdma", &[0, 1, 2, 3]),
            ("=mlx5", &[]),
            ("rocep", &[]),
            ("=mlx5_0::3", &[0]),
            ("=mlx5_0:1:3:1", &[0]),
            (",,mlx5_0,", &[0]),
            ("=mlx5_0:", &[0]),
            ("^", &[0, 1, 2, 3, 4]),
        ];
        for (text, expected) in cases {
            let rule = HcaRule::parse(text).expect("a rule");
            let chosen = (0..all.len()).filter(|at| rule.allows(all[*at].0, all[*at].1));
            assert_eq!(&chosen.collect::<Vec<_>>(), expected, "{text:?}");
        }
    }

    #[test]
    fn shown_rules_read_back() {
        for text in ["mlx5", "^=mlx5_0:1,mlx5_2", "mlx5_0::3", "=mlx5_0:2:3:1"] {
            let value = HcaRules.parse(text).expect("a rule");
            assert_eq!(HcaRules.show(&value), text);
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "mlx5_0:a",
            "mlx5_0:0",
            "mlx5_0:-1",
            "mlx5_0:1:x",
            "a:1:2:3:4",
        ] {
            assert!(HcaRules.parse(text).is_err(), "{text}");
        }
    }
}
