//! Durations as Kubernetes writes them: `1h30m`, `250ms`, `0s`.

use std::time::Duration;

const UNITS: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// `None` where it is no duration; a negative one is none.
pub fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(digits)?;
        let length = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(length)?;
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        seconds += number.parse::<f64>().ok()? * factor;
        rest = after;
    }
    if text.is_empty() {
        None
    } else {
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// Prints a duration as Kubernetes does: `24h0m0s`, `1.5s`, `10ms`, `0s`.
pub fn print(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if seconds == 0 && nanos > 0 {
        return match nanos {
            1_000_000.. => format!("{}ms", f64::from(nanos) / 1e6),
            1_000.. => format!("{}µs", f64::from(nanos) / 1e3),
            _ => format!("{nanos}ns"),
        };
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = format!("{}s", (seconds % 60) as f64 + f64::from(nanos) / 1e9);
    match (hours, minutes) {
        (0, 0) => rest,
        (0, _) => format!("{minutes}m{rest}"),
        _ => format!("{hours}h{minutes}m{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        let table = [
            ("24h0m0s", 86_400_000, "24h0m0s"),
            ("1.5h", 5_400_000, "1h30m0s"),
            ("90s", 90_000, "1m30s"),
            ("0s", 0, "0s"),
            ("0", 0, "0s"),
            ("250ms", 250, "250ms"),
            ("2h22m", 8_520_000, "2h22m0s"),
        ];
        for (text, milliseconds, printed) in table {
            assert_eq!(
                parse(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
            assert_eq!(print(Duration::from_millis(milliseconds)), printed);
        }
    }

    #[test]
    fn refuses_what_is_none() {
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1 s",
            "1d",
            "1.2.3s",
            "1s5",
            "99999999999999999999999h",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
