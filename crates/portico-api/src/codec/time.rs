//! The two forms of time in the API: `Time` in seconds and `MicroTime` with exactly six fractional
//! digits.

/// A moment: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub seconds: i64,
    pub nanos: u32,
}

/// The year 1, which Go takes for "no time".
const ZERO: i64 = -62_135_596_800;
/// The first second of the year 0 and the last of the year 9999.
const EARLIEST: i64 = -62_167_219_200;
const LATEST: i64 = 253_402_300_799;

impl Moment {
    pub(crate) fn is_zero(self) -> bool {
        self.seconds == ZERO && self.nanos == 0
    }

    /// Lies in the years that can be written with four digits.
    pub(crate) fn is_writable(self) -> bool {
        (EARLIEST..=LATEST).contains(&self.seconds)
    }

    /// RFC 3339 with any number of fractional digits and any offset.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (moment, _) = parse(text)?;
        Some(moment)
    }

    /// RFC 3339 with exactly six fractional digits.
    pub(crate) fn parse_micro(text: &str) -> Option<Self> {
        let (moment, digits) = parse(text)?;
        (digits == 6).then_some(moment)
    }

    /// `2026-01-31T12:00:00Z`, the form of `metav1.Time`.
    pub(crate) fn to_seconds(self) -> String {
        let (year, month, day) = civil(self.seconds.div_euclid(86_400));
        let second = self.seconds.rem_euclid(86_400);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    /// `2026-01-31T12:00:00.000000Z`, the form of `metav1.MicroTime`.
    pub(crate) fn to_micros(self) -> String {
        let seconds = self.to_seconds();
        format!(
            "{}.{:06}Z",
            seconds.trim_end_matches('Z'),
            self.nanos / 1000
        )
    }
}

fn parse(text: &str) -> Option<(Moment, usize)> {
    let (date, time) = text.split_once('T')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (time, offset) = split_offset(time)?;
    let (time, fraction) = time
        .split_once(['.', ','])
        .map_or((time, None), |(time, digits)| (time, Some(digits)));
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let in_range = (1..=12).contains(&month) && day >= 1 && day <= days_in(year, month);
    if !in_range || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let nanos = fraction.map_or(Some(0), nanoseconds)?;
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    let moment = Moment { seconds, nanos };
    moment
        .is_writable()
        .then_some((moment, fraction.map_or(0, str::len)))
}

/// The time without its offset, and the offset in seconds.
fn split_offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some((time, 0));
    }
    let at = time.rfind(['+', '-'])?;
    let (time, offset) = time.split_at_checked(at)?;
    let sign = if offset.starts_with('-') { -1 } else { 1 };
    let [hours, minutes] = numbers(offset.get(1..)?, ':', [2, 2])?;
    (hours <= 24 && minutes <= 60).then_some((time, sign * (hours * 3600 + minutes * 60)))
}

/// Numbers of fixed widths with a separator between them.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next()?;
        let plain = part.len() == width && part.bytes().all(|b| b.is_ascii_digit());
        *number = plain.then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(numbers)
}

fn nanoseconds(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let first: String = digits.chars().chain("000000000".chars()).take(9).collect();
    plain.then(|| first.parse().ok())?
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970 of a date in the proleptic Gregorian calendar. Years are counted from March, so
/// that the leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date of a day since 1970; the inverse of `days`.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}
