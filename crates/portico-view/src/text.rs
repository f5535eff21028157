//! How lists and times are written, the same in every tool.

use std::fmt;

/// The first few of a list: `a, b, c and 4 more`.
pub fn few<T: fmt::Display>(items: &[T], most: usize) -> String {
    let shown: Vec<String> = items.iter().take(most).map(ToString::to_string).collect();
    match items.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A time span in its largest unit: `3s`, `5m`, `2h`, `4d`.
pub fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..=119 => format!("{seconds}s"),
        seconds @ 120..=7199 => format!("{}m", seconds / 60),
        seconds @ 7200..=172_799 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (-3, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7200, "2h"),
            (200_000, "2d"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(few(&["a", "b"], 2), "a, b");
        assert_eq!(few(&["a", "b", "c"], 2), "a, b and 1 more");
    }
}
