//! The time, as the API writes it.

use jiff::Timestamp;

/// Now, in seconds since 1970.
pub(crate) fn now() -> i64 {
    Timestamp::now().as_second()
}

/// Now, as `metav1.Time` has it: whole seconds in UTC.
pub(crate) fn now_text() -> String {
    text(Timestamp::now())
}

pub(crate) fn text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Now, with microseconds, as `metav1.MicroTime` has it.
pub(crate) fn now_micros_text() -> String {
    Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string()
}

/// Seconds since 1970 of an RFC 3339 time.
pub(crate) fn parse(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_second)
}
