//! `R2CCL_SOFT_NICS`: which software NICs this process has.

use std::fmt;
use std::net::IpAddr;

use super::kind::{Kind, decimal};

/// Most software NICs of one process; more tell a test nothing that these do not.
pub const SOFT_NICS_MAX: usize = 32;
/// Slowest limit, in bit/s: below it a NIC could not be told to NCCL, which counts in Mbit/s.
const RATE_LEAST: f64 = 1e6;
/// Fastest limit, in bit/s; above it nothing would be limited.
const RATE_MOST: f64 = 1e13;

/// What a software NIC binds to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SoftNicPlace {
    /// The first usable address of the network interface of exactly this name.
    Interface(String),
    /// This address, which must be one of the host's.
    Address(IpAddr),
}

impl fmt::Display for SoftNicPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SoftNicPlace::Interface(name) => out.write_str(name),
            SoftNicPlace::Address(address) => address.fmt(out),
        }
    }
}

/// One entry of `R2CCL_SOFT_NICS`, as it was written: nothing is known yet about the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftNicRequest {
    /// Where.
    pub place: SoftNicPlace,
    /// How many equal NICs, from 1.
    pub count: usize,
    /// Limit of each of them in bit/s, sending and receiving counted apart.
    pub rate_bits_per_s: Option<u64>,
}

impl SoftNicRequest {
    fn parse(text: &str) -> Result<Self, String> {
        let place_end = text.find(['*', '@']).unwrap_or(text.len());
        let (place, mut rest) = text.split_at(place_end);
        let (mut count, mut rate) = (None, None);
        while let Some(sign) = rest.chars().next() {
            let end = rest[1..].find(['*', '@']).map_or(rest.len(), |at| at + 1);
            let value = rest[1..end].trim();
            let is_repeated = match sign {
                '*' => count.replace(parse_count(value)?).is_some(),
                _ => rate.replace(parse_rate(value)?).is_some(),
            };
            if is_repeated {
                return Err(format!("`{text}` has two parts after `{sign}`"));
            }
            rest = &rest[end..];
        }
        let place = parse_place(place.trim())?;
        Ok(Self {
            place,
            count: count.unwrap_or(1),
            rate_bits_per_s: rate,
        })
    }
}

impl fmt::Display for SoftNicRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.place)?;
        if self.count != 1 {
            write!(out, "*{}", self.count)?;
        }
        match self.rate_bits_per_s {
            None => Ok(()),
            Some(rate) => {
                let units = [
                    (1_000_000_000, "G"),
                    (1_000_000, "M"),
                    (1_000, "K"),
                    (1, ""),
                ];
                let is_whole = |unit: u64| rate % unit == 0;
                let found = units.iter().find(|(unit, _)| is_whole(*unit));
                let (unit, name) = found.unwrap_or(&(1, ""));
                write!(out, "@{}{name}", rate / unit)
            }
        }
    }
}

fn parse_place(text: &str) -> Result<SoftNicPlace, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    if let Ok(address) = bare.parse() {
        return Ok(SoftNicPlace::Address(address));
    }
    // The kernel's own rules for interface names: up to 15 bytes, no slash, space or colon.
    let is_name_byte = |c: char| c.is_ascii_graphic() && !"/:[]".contains(c);
    match (1..=15).contains(&text.len()) && text.chars().all(is_name_byte) {
        true => Ok(SoftNicPlace::Interface(text.to_owned())),
        false => Err(format!(
            "`{text}` is neither an interface name nor an address"
        )),
    }
}

fn parse_count(text: &str) -> Result<usize, String> {
    let count = text
        .parse()
        .ok()
        .filter(|count| (1..=SOFT_NICS_MAX).contains(count));
    count.ok_or_else(|| format!("`{text}` after `*` is not a number of NICs"))
}

fn parse_rate(text: &str) -> Result<u64, String> {
    rate_bits_per_s(text)
        .ok_or_else(|| format!("`{text}` after `@` is not a rate such as 10G or 800M (bit/s)"))
}

/// Reads a rate such as `10G` or `800M`, in bit/s.
pub fn rate_bits_per_s(text: &str) -> Option<u64> {
    let factors = [('k', 1e3), ('m', 1e6), ('g', 1e9), ('t', 1e12)];
    let last = text.chars().next_back().map(|c| c.to_ascii_lowercase());
    let found = factors.iter().find(|(suffix, _)| Some(*suffix) == last);
    let (digits, factor) = match found {
        Some((_, factor)) => (&text[..text.len() - 1], *factor),
        None => (text, 1.0),
    };
    let rate = decimal(digits).map(|number| (number * factor).round());
    let rate = rate.filter(|rate| (RATE_LEAST..=RATE_MOST).contains(rate));
    rate.map(|rate| rate as u64)
}

/// Kind of `R2CCL_SOFT_NICS`; an empty list stands for the automatic choice.
pub(super) struct SoftNicList;

impl Kind for SoftNicList {
    type Value = Vec<SoftNicRequest>;

    fn type_text(&self) -> String {
        "list of software NICs or auto".to_owned()
    }

    fn range(&self) -> String {
        format!(
            "auto, or SPEC[,SPEC…] with SPEC = (INTERFACE|ADDRESS)[*COUNT][@RATE]; at most \
             {SOFT_NICS_MAX} NICs, RATE 1M to 10T bit/s"
        )
    }

    fn parse(&self, text: &str) -> Result<Self::Value, String> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Vec::new());
        }
        let items = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        let requests = items
            .map(SoftNicRequest::parse)
            .collect::<Result<Vec<_>, _>>()?;
        let total = requests.iter().map(|request| request.count).sum::<usize>();
        match total {
            0 => Err("no NIC is named".to_owned()),
            1..=SOFT_NICS_MAX => Ok(requests),
            _ => Err(format!("{total} NICs are too many")),
        }
    }

    fn show(&self, value: &Self::Value) -> String {
        if value.is_empty() {
            return "auto".to_owned();
        }
        let items: Vec<String> = value.iter().map(ToString::to_string).collect();
        items.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(place: &str, count: usize, rate: Option<u64>) -> SoftNicRequest {
        let place = parse_place(place).unwrap();
        SoftNicRequest {
            place,
            count,
            rate_bits_per_s: rate,
        }
    }

    #[test]
    fn good_lists() {
        let gigabit = 1_000_000_000;
        let cases = [
            ("auto", vec![]),
            ("eth0", vec![request("eth0", 1, None)]),
            ("eth0*4", vec![request("eth0", 4, None)]),
            (
                "127.0.0.2@10G",
                vec![request("127.0.0.2", 1, Some(10 * gigabit))],
            ),
            ("eth0*4@2.5G", vec![request("eth0", 4, Some(2_500_000_000))]),
            ("eth0@800m*2", vec![request("eth0", 2, Some(800_000_000))]),
            ("eth0@1000000", vec![request("eth0", 1, Some(1_000_000))]),
            (
                "lo@1500K , ib0",
                vec![request("lo", 1, Some(1_500_000)), request("ib0", 1, None)],
            ),
            ("fd00::2*2", vec![request("fd00::2", 2, None)]),
            (
                "[fd00::2]@1T",
                vec![request("fd00::2", 1, Some(1000 * gigabit))],
            ),
            (
                "eth0.100,veth-a_b",
                vec![request("eth0.100", 1, None), request("veth-a_b", 1, None)],
            ),
        ];
        for (text, expected) in cases {
            let value = SoftNicList
                .parse(text)
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(value, expected, "{text}");
            let shown = SoftNicList.show(&value);
            assert_eq!(
                SoftNicList.parse(&shown).unwrap(),
                expected,
                "{text} shown as {shown}"
            );
        }
    }

    #[test]
    fn bad_lists_name_the_bad_part() {
        let cases = [
            (",", "no NIC"),
            ("eth0*", "after `*`"),
            ("eth0*0", "`0` after `*`"),
            ("eth0*33", "`33` after `*`"),
            ("eth0*-1", "`-1` after `*`"),
            ("eth0@", "after `@`"),
            ("eth0@fast", "`fast` after `@`"),
            ("eth0@10", "`10` after `@`"),
            ("eth0@20T", "`20T` after `@`"),
            ("eth0@-1G", "`-1G` after `@`"),
            ("eth0@1e9", "`1e9` after `@`"),
            ("eth0@infinityG", "after `@`"),
            ("eth0@1G@2G", "two parts"),
            ("eth0*2*2", "two parts"),
            ("*4", "`` is neither"),
            ("127.0.0.1:80", "`127.0.0.1:80` is neither"),
            ("a/b", "`a/b` is neither"),
            ("a-name-longer-than-15", "neither"),
            ("eth0*20,eth1*20", "40 NICs"),
            ("eth0@é", "after `@`"),
        ];
        for (text, part) in cases {
            let error = SoftNicList.parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
