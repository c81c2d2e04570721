//! Numbers as people write and read them.

/// Bytes in a KiB.
const KIB: u64 = 1024;

/// Reads a size such as `0`, `127`, `64K`, `1M`, `1G`, `64K+1`; powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size: write for example 0, 127, 64K, 64K+1, 1M or 1G");
    let mut total = 0u64;
    for term in text.split('+') {
        let term = term.trim();
        let lower = term.to_ascii_lowercase();
        let digits = lower.trim_end_matches("ib").trim_end_matches('b');
        let (number, unit) = match digits.char_indices().last() {
            Some((at, 'k')) => (&digits[..at], KIB),
            Some((at, 'm')) => (&digits[..at], KIB * KIB),
            Some((at, 'g')) => (&digits[..at], KIB * KIB * KIB),
            _ => (digits, 1),
        };
        let number: u64 = number.trim().parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(unit).ok_or_else(wrong)?;
        total = total.checked_add(bytes).ok_or_else(wrong)?;
    }
    Ok(total)
}

/// Reads a list of sizes: single ones and ranges `FROM..TO[*FACTOR]` (factor 2 by default), which
/// always contain both ends.
pub fn parse_sizes(text: &str) -> Result<Vec<u64>, String> {
    let mut sizes = Vec::new();
    for part in text.split(',') {
        let Some((from, to)) = part.split_once("..") else {
            sizes.push(parse_bytes(part)?);
            continue;
        };
        let (to, factor) = match to.split_once('*') {
            None => (to, 2),
            Some((to, factor)) => {
                let factor = factor.trim().parse().ok().filter(|&factor| factor >= 2);
                (
                    to,
                    factor.ok_or_else(|| format!("'{part}': the factor must be 2 or more"))?,
                )
            }
        };
        let (from, to) = (parse_bytes(from)?, parse_bytes(to)?);
        if from == 0 || from > to {
            return Err(format!("'{part}': a range goes from 1 or more upwards"));
        }
        let mut size = from;
        while size < to {
            sizes.push(size);
            size = size.saturating_mul(factor);
        }
        sizes.push(to);
    }
    Ok(sizes)
}

/// A size for a table: exact, with a unit where it is whole.
pub fn bytes(size: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", KIB * KIB * KIB), ("MiB", KIB * KIB), ("KiB", KIB)];
    for (name, unit) in UNITS {
        if size >= unit && size % unit == 0 {
            return format!("{} {name}", size / unit);
        }
    }
    format!("{size} B")
}

/// An amount of data for a table, in round numbers: powers of 1000.
pub fn amount(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TB", 1_000_000_000_000),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("kB", 1_000),
    ];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// A rate for a table, from bytes and nanoseconds: GB/s (10^9 bytes).
pub fn gigabytes_per_second(bytes: u64, nanoseconds: u64) -> f64 {
    if nanoseconds == 0 {
        0.0
    } else {
        bytes as f64 / nanoseconds as f64
    }
}

/// A duration for a table.
pub fn duration(nanoseconds: u64) -> String {
    match nanoseconds {
        0..10_000 => format!("{:.2} µs", nanoseconds as f64 / 1e3),
        10_000..10_000_000 => format!("{:.1} µs", nanoseconds as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.1} s", nanoseconds as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        assert_eq!(parse_bytes("0"), Ok(0));
        assert_eq!(parse_bytes("64K+1"), Ok(65537));
        assert_eq!(parse_bytes("1GiB"), Ok(1 << 30));
        assert!(parse_bytes("").is_err());
        assert!(parse_bytes("K").is_err());
        assert!(parse_bytes("-1").is_err());
        assert!(parse_bytes("99999999999999G").is_err());
    }

    #[test]
    fn ranges_hold_both_ends() {
        assert_eq!(parse_sizes("8..64"), Ok(vec![8, 16, 32, 64]));
        assert_eq!(parse_sizes("8..1K*4"), Ok(vec![8, 32, 128, 512, 1024]));
        assert_eq!(parse_sizes("0,1,4K"), Ok(vec![0, 1, 4096]));
        assert!(parse_sizes("0..8").is_err());
        assert!(parse_sizes("8..64*1").is_err());
    }

    #[test]
    fn amounts_are_round() {
        assert_eq!(amount(999), "999 B");
        assert_eq!(amount(1_250_000), "1.2 MB");
        assert_eq!(amount(u64::MAX), "18446744.1 TB");
    }

    #[test]
    fn sizes_are_shown_exactly() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(65537), "65537 B");
        assert_eq!(bytes(65536), "64 KiB");
        assert_eq!(bytes(3 << 30), "3 GiB");
    }
}
