//! Kinds of values: how each is read, written and described.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use r2ccl_fabric::verbs::AddressRange;

/// How the values of a setting look as text.
pub trait Kind {
    /// Type of the value in [`Settings`](super::Settings).
    type Value;

    /// Name of the type, with its unit.
    fn type_text(&self) -> String;

    /// What may be set.
    fn range(&self) -> String;

    /// Reads trimmed, non-empty text. The error is a clause without the value and the range.
    fn parse(&self, text: &str) -> Result<Self::Value, String>;

    /// The text that [`Kind::parse`] reads back to the same value, or `unset`.
    fn show(&self, value: &Self::Value) -> String;
}

/// One of a fixed list of values; the first name of each is the one that is shown. Upper and lower
/// case are the same.
pub struct Choice<T: 'static>(pub &'static [(T, &'static [&'static str])]);

impl<T: Copy + PartialEq> Kind for Choice<T> {
    type Value = T;

    fn type_text(&self) -> String {
        "choice".to_owned()
    }

    fn range(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|(_, names)| names.join(" = ")).collect();
        names.join(", ")
    }

    fn parse(&self, text: &str) -> Result<T, String> {
        let is_named = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(text));
        let found = self.0.iter().find(|(_, names)| is_named(names));
        found
            .map(|(value, _)| *value)
            .ok_or_else(|| "not one of the values".to_owned())
    }

    fn show(&self, value: &T) -> String {
        let found = self.0.iter().find(|(known, _)| known == value);
        found
            .and_then(|(_, names)| names.first())
            .unwrap_or(&"unset")
            .to_string()
    }
}

/// A whole number in a range.
pub struct Whole<T> {
    range: RangeInclusive<u64>,
    value: PhantomData<T>,
}

impl<T> Whole<T> {
    /// Numbers from `least` to `most`, both allowed; `most` must fit into `T`.
    pub const fn new(least: u64, most: u64) -> Self {
        Self {
            range: least..=most,
            value: PhantomData,
        }
    }
}

impl<T: TryFrom<u64> + ToString> Kind for Whole<T> {
    type Value = T;

    fn type_text(&self) -> String {
        "number".to_owned()
    }

    fn range(&self) -> String {
        format!("{} to {}", self.range.start(), self.range.end())
    }

    fn parse(&self, text: &str) -> Result<T, String> {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let number = number.map_err(|_| "not a whole number".to_owned())?;
        let fitting = Some(number).filter(|number| self.range.contains(number));
        fitting
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| "out of range".to_owned())
    }

    fn show(&self, value: &T) -> String {
        value.to_string()
    }
}

/// Another kind, or `auto` for "the library decides".
pub struct AutoOr<K>(pub K);

impl<K: Kind> Kind for AutoOr<K> {
    type Value = Option<K::Value>;

    fn type_text(&self) -> String {
        format!("{} or auto", self.0.type_text())
    }

    fn range(&self) -> String {
        format!("auto, {}", self.0.range())
    }

    fn parse(&self, text: &str) -> Result<Self::Value, String> {
        match text.eq_ignore_ascii_case("auto") {
            true => Ok(None),
            false => self.0.parse(text).map(Some),
        }
    }

    fn show(&self, value: &Self::Value) -> String {
        value
            .as_ref()
            .map_or_else(|| "auto".to_owned(), |value| self.0.show(value))
    }
}

/// Another kind, or -1 for "as if it were not set", as NCCL has it.
pub struct OrMinusOne<K>(pub K);

impl<K: Kind> Kind for OrMinusOne<K> {
    type Value = Option<K::Value>;

    fn type_text(&self) -> String {
        self.0.type_text()
    }

    fn range(&self) -> String {
        format!("-1, {}", self.0.range())
    }

    fn parse(&self, text: &str) -> Result<Self::Value, String> {
        match text {
            "-1" => Ok(None),
            _ => self.0.parse(text).map(Some),
        }
    }

    fn show(&self, value: &Self::Value) -> String {
        value
            .as_ref()
            .map_or_else(|| "-1".to_owned(), |value| self.0.show(value))
    }
}

/// A range of network addresses.
pub struct OptionalAddressRange;

impl Kind for OptionalAddressRange {
    type Value = Option<AddressRange>;

    fn type_text(&self) -> String {
        "range of addresses".to_owned()
    }

    fn range(&self) -> String {
        "ADDRESS/BITS".to_owned()
    }

    fn parse(&self, text: &str) -> Result<Self::Value, String> {
        let (address, bits) = text.split_once('/').ok_or("no `/` in it")?;
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("`{address}` is not an address"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = bits.parse().ok().filter(|bits| *bits <= most);
        let prefix_bits = prefix_bits.ok_or_else(|| format!("more than {most} bits"))?;
        Ok(Some(AddressRange {
            address,
            prefix_bits,
        }))
    }

    fn show(&self, value: &Self::Value) -> String {
        or_unset(value.map(|range| format!("{}/{}", range.address, range.prefix_bits)))
    }
}

/// A value that need not be there.
pub(super) fn or_unset(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "unset".to_owned(), |value| value.to_string())
}

/// A length of time, in seconds when no unit is given.
pub struct Seconds {
    /// Shortest and longest, both allowed, in seconds.
    pub range: RangeInclusive<u64>,
}

impl Kind for Seconds {
    type Value = Duration;

    fn type_text(&self) -> String {
        "time in seconds, or with a unit: us, ms, s".to_owned()
    }

    fn range(&self) -> String {
        format!("{}s to {}s", self.range.start(), self.range.end())
    }

    fn parse(&self, text: &str) -> Result<Duration, String> {
        let micros_per_unit = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("", 1e6)];
        let (digits, factor) = micros_per_unit
            .iter()
            .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
            .unwrap_or((text, 1e6));
        let number = decimal(digits).ok_or("not a time")?;
        let micros = (number * factor).round();
        let least = *self.range.start() as f64 * 1e6;
        let most = *self.range.end() as f64 * 1e6;
        match (least..=most).contains(&micros) {
            true => Ok(Duration::from_micros(micros as u64)),
            false => Err("out of range".to_owned()),
        }
    }

    fn show(&self, value: &Duration) -> String {
        let micros = value.as_micros();
        match micros {
            _ if micros % 1_000_000 == 0 => format!("{}s", micros / 1_000_000),
            _ if micros % 1_000 == 0 => format!("{}ms", micros / 1_000),
            _ => format!("{micros}us"),
        }
    }
}

/// A path of the file system.
pub struct Directory;

impl Kind for Directory {
    type Value = PathBuf;

    fn type_text(&self) -> String {
        "directory".to_owned()
    }

    fn range(&self) -> String {
        "an absolute path".to_owned()
    }

    fn parse(&self, text: &str) -> Result<PathBuf, String> {
        let path = PathBuf::from(text);
        match path.is_absolute() {
            true => Ok(path),
            false => Err("not an absolute path".to_owned()),
        }
    }

    fn show(&self, value: &PathBuf) -> String {
        value.display().to_string()
    }
}

/// Another kind, or `off` for "without it".
pub struct OrOff<K>(pub K);

impl<K: Kind> Kind for OrOff<K> {
    type Value = Option<K::Value>;

    fn type_text(&self) -> String {
        format!("{} or off", self.0.type_text())
    }

    fn range(&self) -> String {
        format!("off, {}", self.0.range())
    }

    fn parse(&self, text: &str) -> Result<Self::Value, String> {
        match text.eq_ignore_ascii_case("off") {
            true => Ok(None),
            false => self.0.parse(text).map(Some),
        }
    }

    fn show(&self, value: &Self::Value) -> String {
        value
            .as_ref()
            .map_or_else(|| "off".to_owned(), |value| self.0.show(value))
    }
}

/// Text of the user's own, without a default.
pub struct OptionalText;

impl Kind for OptionalText {
    type Value = Option<String>;

    fn type_text(&self) -> String {
        "text".to_owned()
    }

    fn range(&self) -> String {
        "anything".to_owned()
    }

    fn parse(&self, text: &str) -> Result<Self::Value, String> {
        Ok(Some(text.to_owned()))
    }

    fn show(&self, value: &Self::Value) -> String {
        or_unset(value.as_ref())
    }
}

/// A plain decimal number such as `2.5`: digits and at most one point; no sign, no exponent, no
/// words that the standard parser would take for numbers.
pub(super) fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let has_digit = text.chars().any(|c| c.is_ascii_digit());
    (is_plain && has_digit).then(|| text.parse().ok()).flatten()
}
