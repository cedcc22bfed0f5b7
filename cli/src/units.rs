//! Sizes, durations and times as people write and read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// `1.5 MiB`; three digits that matter, the unit that makes them so.
pub fn bytes(bytes: u64) -> String {
    match UNITS.iter().find(|(_, factor)| bytes >= *factor) {
        Some((unit, factor)) => format!("{} {unit}", significant(bytes as f64 / *factor as f64)),
        None => format!("{bytes} B"),
    }
}

/// `120 MB/s`: rates are decimal, as disks and networks are sold.
pub fn rate(bytes: u64, time: Duration) -> String {
    format!("{} MB/s", significant(bytes as f64 / 1e6 / time.as_secs_f64().max(1e-9)))
}

/// `12 µs`, `3.4 ms`, `1.25 s`, `2m 05s`, `3h 12m`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match time.as_micros() {
        us @ 0..1000 => format!("{us} µs"),
        us @ 1000..1_000_000 => format!("{} ms", significant(us as f64 / 1e3)),
        us @ 1_000_000..60_000_000 => format!("{} s", significant(us as f64 / 1e6)),
        _ if seconds < 3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ if seconds < 86_400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The same of microseconds.
pub fn duration_us(us: u64) -> String {
    duration(Duration::from_micros(us))
}

/// `12 s ago`, of a Unix time in milliseconds.
pub fn ago(at_ms: u64) -> String {
    let age = now_ms().saturating_sub(at_ms) / 1000;
    match age {
        0..10 => "just now".to_owned(),
        10..60 => format!("{age} s ago"),
        60..3600 => format!("{} min ago", age / 60),
        3600..86_400 => format!("{} h ago", age / 3600),
        _ => format!("{} d ago", age / 86_400),
    }
}

/// `1 task`, `2 tasks`.
pub fn count(n: u64, thing: &str) -> String {
    let plural = match (n, thing.strip_suffix('y')) {
        (1, _) => thing.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        (_, None) => format!("{thing}s"),
    };
    format!("{n} {plural}")
}

/// The Unix time in milliseconds.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Reads `4GiB`, `512MiB`, `1.5GiB` or a whole number of bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let refuse = || format!("`{text}` is not a size: write it like 512MiB or 4GiB");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = (text[..split].trim(), &text[split..]);
    let factor = match unit {
        "" | "B" => 1,
        unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(refuse)?.1,
    };
    let number: f64 = number.parse().map_err(|_| refuse())?;
    let bytes = number * factor as f64;
    // Beyond 2^53 neighbouring sizes cannot be told apart, and no machine has that much.
    if number >= 0.0 && bytes < (1u64 << 53) as f64 { Ok(bytes as u64) } else { Err(refuse()) }
}

fn significant(value: f64) -> String {
    // The bounds are where rounding would add a digit.
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    let text = format!("{value:.digits$}");
    if digits == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let cases: [(u64, &str); 8] = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (10 << 20, "10 MiB"),
            (10_500_000, "10 MiB"),
            (999 << 30, "999 GiB"),
            (5 << 40, "5 TiB"),
        ];
        for (n, text) in cases {
            assert_eq!(bytes(n), text, "{n}");
        }
    }

    #[test]
    fn durations_choose_their_unit() {
        let cases: [(u64, &str); 8] = [
            (7, "7 µs"),
            (1500, "1.5 ms"),
            (999_960, "1000 ms"),
            (1_250_000, "1.25 s"),
            (59_900_000, "59.9 s"),
            (125_000_000, "2m 05s"),
            (11_520_000_000, "3h 12m"),
            (180_000_000_000, "2d 02h"),
        ];
        for (us, text) in cases {
            assert_eq!(duration_us(us), text);
        }
    }

    #[test]
    fn counts_have_their_plural() {
        assert_eq!(
            [count(1, "task"), count(0, "task"), count(2, "retry")],
            ["1 task", "0 tasks", "2 retries"]
        );
    }

    #[test]
    fn sizes_are_read_back() {
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("1.5 gib"), Ok(3 << 29));
        assert_eq!(parse_bytes("65536"), Ok(65536));
        for bad in ["", "GiB", "4 parsecs", "-1GiB", "1e300", "nan"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
