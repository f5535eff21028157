//! What tables share: common columns, ages, short lists.

use super::Column;
use crate::codec::time::Moment;
use crate::object;
use serde_json::Value;

pub(crate) const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    description: "The name, unique among objects of this kind in one namespace.",
    priority: 0,
};

pub(crate) const AGE: Column = column("Age", "How long ago the object was created.");

/// A column that is always shown.
pub(crate) const fn column(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        description,
        priority: 0,
    }
}

/// A column for `-o wide`.
pub(crate) const fn wide(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        description,
        priority: 1,
    }
}

/// The age of an object.
pub(crate) fn age(object: &Value, now: i64) -> Value {
    since(object::at(object, "metadata.creationTimestamp"), now).into()
}

/// How long ago a time stamp was, or `<unknown>`.
pub(crate) fn since(timestamp: &Value, now: i64) -> String {
    match timestamp.as_str().and_then(seconds_since_1970) {
        Some(then) => human_duration(now.saturating_sub(then)),
        None => "<unknown>".to_owned(),
    }
}

/// A duration in two or three significant figures: `5m`, `3d4h`, `2y`.
pub(crate) fn human_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |whole: i64, unit: &str, rest: i64, rest_unit: &str| match rest {
        0 => format!("{whole}{unit}"),
        _ => format!("{whole}{unit}{rest}{rest_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// The seconds of an RFC 3339 time; fractions are cut off, and the year 1 stands for no time.
pub(crate) fn seconds_since_1970(text: &str) -> Option<i64> {
    Moment::parse(text)
        .filter(|moment| !moment.is_zero())
        .map(|moment| moment.seconds)
}

/// `a,b,c + 2 more...`, or `nothing` for an empty list.
pub(crate) fn short_list(items: &[String], nothing: &str) -> String {
    const MOST: usize = 3;
    let shown: Vec<&str> = items.iter().take(MOST).map(String::as_str).collect();
    match items.len() {
        0 => nothing.to_owned(),
        count if count > MOST => format!("{} + {} more...", shown.join(","), count - MOST),
        _ => shown.join(","),
    }
}

/// The text, or `instead` where it is empty.
pub(crate) fn or<'a>(text: &'a str, instead: &'a str) -> &'a str {
    if text.is_empty() { instead } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (303, "5m3s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 61, "3h1m"),
            (9 * 3600 + 61, "9h"),
            (2 * 86400, "2d"),
            (3 * 86400 + 4 * 3600, "3d4h"),
            (9 * 86400 + 4 * 3600, "9d"),
            (729 * 86400, "729d"),
            (731 * 86400, "2y1d"),
            (9 * 365 * 86400, "9y"),
        ] {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn ages() {
        for (time, age) in [
            (json!("1970-01-01T00:00:00Z"), "100s"),
            (json!("1970-01-01T00:00:40.900000Z"), "60s"),
            (json!("1970-01-01T01:00:00+01:00"), "100s"),
            (json!("0001-01-01T00:00:00Z"), "<unknown>"),
            (json!("yesterday"), "<unknown>"),
            (json!(null), "<unknown>"),
        ] {
            assert_eq!(since(&time, 100), age, "{time}");
        }
    }

    #[test]
    fn lists() {
        let items: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        assert_eq!(short_list(&items, "-"), "a,b,c + 1 more...");
        assert_eq!(short_list(&items[..2], "-"), "a,b");
        assert_eq!(short_list(&[], "-"), "-");
    }
}
