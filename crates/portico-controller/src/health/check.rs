//! How an endpoint is asked whether it is fit, as people write it:
//! `http:/healthz interval=5s timeout=2s rise=2 fall=3`.

use std::{fmt, str::FromStr, time::Duration};

use portico_model::{checks::Settings, duration};

/// Shorter intervals and time limits cost more than they tell.
const LEAST: Duration = Duration::from_millis(100);
/// Longer ones are mistakes.
const MOST: Duration = Duration::from_secs(3600);

/// How an endpoint is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// A connection can be made.
    Tcp,
    /// `GET` of this path is answered with 2xx or 3xx.
    Http(String),
    /// The same by TLS; whose certificate it is does not matter, as with the kubelet's probes.
    Https(String),
}

/// How the endpoints of a slice are checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Check {
    /// What is asked.
    pub how: How,
    /// The time between two checks of an endpoint.
    pub interval: Duration,
    /// How long one check may take.
    pub timeout: Duration,
    /// Good answers in a row until an endpoint is ready again.
    pub rise: u32,
    /// Bad ones until it no longer is.
    pub fall: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum CheckError {
    #[error("{0:?} is no way to check: write tcp, http:/path or https:/path")]
    How(String),
    #[error("{0:?} is not a setting: write interval=5s, timeout=2s, rise=2 or fall=3")]
    Setting(String),
    #[error("{0}={1:?} is not a duration from 100ms to 1h: write it as 5s or 500ms")]
    Duration(&'static str, String),
    #[error("{0}={1:?} is not a number from 1 to 1000")]
    Count(&'static str, String),
    #[error("a timeout of {0:?} is longer than the interval of {1:?}: make it shorter")]
    TooLong(Duration, Duration),
}

impl Check {
    /// A check with the usual times and counts.
    pub fn new(how: How) -> Self {
        Self {
            how,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            rise: 2,
            fall: 3,
        }
    }

    /// The part of it that decides when an endpoint is ready.
    pub fn settings(&self) -> Settings {
        Settings {
            interval: self.interval,
            healthy_after: self.rise,
            unhealthy_after: self.fall,
        }
    }

    fn set(&mut self, word: &str) -> Result<(), CheckError> {
        let Some((name, value)) = word.split_once('=') else {
            return Err(CheckError::Setting(word.to_owned()));
        };
        match name {
            "interval" => self.interval = time("interval", value)?,
            "timeout" => self.timeout = time("timeout", value)?,
            "rise" => self.rise = count("rise", value)?,
            "fall" => self.fall = count("fall", value)?,
            _ => return Err(CheckError::Setting(word.to_owned())),
        }
        Ok(())
    }
}

fn time(name: &'static str, value: &str) -> Result<Duration, CheckError> {
    let time = duration::parse(value).filter(|time| (LEAST..=MOST).contains(time));
    time.ok_or_else(|| CheckError::Duration(name, value.to_owned()))
}

fn count(name: &'static str, value: &str) -> Result<u32, CheckError> {
    let count = value
        .parse()
        .ok()
        .filter(|count| (1..=1000).contains(count));
    count.ok_or_else(|| CheckError::Count(name, value.to_owned()))
}

impl FromStr for Check {
    type Err = CheckError;

    fn from_str(text: &str) -> Result<Self, CheckError> {
        let mut words = text.split_whitespace();
        let mut check = Self::new(words.next().unwrap_or_default().parse()?);
        words.try_for_each(|word| check.set(word))?;
        match check.timeout > check.interval {
            true => Err(CheckError::TooLong(check.timeout, check.interval)),
            false => Ok(check),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (interval, timeout) = (
            duration::print(self.interval),
            duration::print(self.timeout),
        );
        write!(
            f,
            "{} interval={interval} timeout={timeout} rise={} fall={}",
            self.how, self.rise, self.fall
        )
    }
}

impl FromStr for How {
    type Err = CheckError;

    fn from_str(text: &str) -> Result<Self, CheckError> {
        // What goes into a request as it is may not end its line.
        let path = |path: &str| {
            Some(path.to_owned()).filter(|path| path.chars().all(|c| c.is_ascii_graphic()))
        };
        let known = match text.split_once(":/") {
            None if text == "tcp" => Some(Self::Tcp),
            Some(("http", rest)) => path(&format!("/{rest}")).map(How::Http),
            Some(("https", rest)) => path(&format!("/{rest}")).map(How::Https),
            _ => None,
        };
        known.ok_or_else(|| CheckError::How(text.to_owned()))
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Http(path) => write!(f, "http:{path}"),
            Self::Https(path) => write!(f, "https:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_prints() {
        for (text, printed) in [
            ("tcp", "tcp interval=5s timeout=2s rise=2 fall=3"),
            ("http:/", "http:/ interval=5s timeout=2s rise=2 fall=3"),
            (
                "https:/a?b=c:/d  fall=1 interval=10s",
                "https:/a?b=c:/d interval=10s timeout=2s rise=2 fall=1",
            ),
            (
                "http:/healthz timeout=200ms interval=500ms rise=1",
                "http:/healthz interval=500ms timeout=200ms rise=1 fall=3",
            ),
        ] {
            let check: Check = text.parse().unwrap();
            assert_eq!(check.to_string(), printed);
            assert_eq!(printed.parse(), Ok(check));
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, says) in [
            ("", "tcp, http:/path"),
            ("http", "tcp, http:/path"),
            ("http:healthz", "tcp, http:/path"),
            ("ftp:/a", "tcp, http:/path"),
            ("http:/a\u{7}", "tcp, http:/path"),
            ("tcp slow", "\"slow\" is not a setting"),
            ("tcp speed=1", "\"speed=1\" is not a setting"),
            ("tcp interval=5", "interval=\"5\""),
            ("tcp interval=1ms", "interval=\"1ms\""),
            ("tcp rise=0", "rise=\"0\""),
            ("tcp interval=1s timeout=2s", "longer than the interval"),
        ] {
            let error = text.parse::<Check>().unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
