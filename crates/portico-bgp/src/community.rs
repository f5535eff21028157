//! Communities: marks on routes that routers act upon. RFC 1997, and large ones of RFC 8092.

use std::fmt;
use std::str::FromStr;

/// Names that people use in place of numbers (IANA's registry of well-known communities).
const NAMES: [(&str, u32); 7] = [
    ("graceful-shutdown", 0xffff_0000),
    ("accept-own", 0xffff_0001),
    ("blackhole", 0xffff_029a),
    ("no-export", 0xffff_ff01),
    ("no-advertise", 0xffff_ff02),
    ("no-export-subconfed", 0xffff_ff03),
    ("no-peer", 0xffff_ff04),
];

/// `64512:100`, or a name such as `no-export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Community(pub u32);

/// `64512:1:100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeCommunity(pub [u32; 3]);

/// Both kinds, sorted and without repetition.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Communities {
    /// Communities of RFC 1997.
    pub small: Vec<Community>,
    /// Large communities of RFC 8092.
    pub large: Vec<LargeCommunity>,
}

/// A text that is no community.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a community: write 64512:100, 64512:1:100 for a large one, or a name such as \
     no-export"
)]
pub struct NotACommunity(String);

impl Communities {
    /// More would leave too little room for routes in a message.
    pub const MOST: usize = 100;

    /// Communities as people write them: `64512:100`, `64512:1:100`, `no-export`.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, NotACommunity> {
        let mut all = Self::default();
        for text in texts {
            match parse(text).ok_or_else(|| NotACommunity(text.to_owned()))? {
                Either::Small(community) => all.small.push(community),
                Either::Large(community) => all.large.push(community),
            }
        }
        all.tidy();
        Ok(all)
    }

    /// Adds the communities of the other, each once.
    pub fn add(&mut self, other: &Self) {
        self.small.extend(&other.small);
        self.large.extend(&other.large);
        self.tidy();
    }

    /// Whether there are more than [`Self::MOST`] of either kind.
    pub fn are_too_many(&self) -> bool {
        self.small.len() > Self::MOST || self.large.len() > Self::MOST
    }

    fn tidy(&mut self) {
        self.small.sort_unstable();
        self.small.dedup();
        self.large.sort_unstable();
        self.large.dedup();
    }
}

enum Either {
    Small(Community),
    Large(LargeCommunity),
}

fn parse(text: &str) -> Option<Either> {
    if let Some((_, value)) = NAMES.iter().find(|(name, _)| *name == text) {
        return Some(Either::Small(Community(*value)));
    }
    let numbers = text.strip_prefix("large:").unwrap_or(text);
    let parts: Vec<u32> = numbers.split(':').map(number).collect::<Option<_>>()?;
    match *parts.as_slice() {
        [high, low] if numbers.len() == text.len() => {
            let (high, low) = (u16::try_from(high).ok()?, u16::try_from(low).ok()?);
            Some(Either::Small(Community(
                u32::from(high) << 16 | u32::from(low),
            )))
        }
        [first, second, third] => Some(Either::Large(LargeCommunity([first, second, third]))),
        _ => None,
    }
}

/// Digits and nothing else: `parse` alone would take a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| u32::from_str(text).ok())?
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, value)| *value == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}:{}", self.0 >> 16, self.0 & 0xffff),
        }
    }
}

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third] = self.0;
        write!(f, "{first}:{second}:{third}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_them_in_three_ways() {
        let all = Communities::parse([
            "64512:100",
            "no-export",
            "64512:1:4294967295",
            "large:1:2:3",
            "64512:100",
        ]);
        let all = all.unwrap();
        let small: Vec<String> = all.small.iter().map(Community::to_string).collect();
        let large: Vec<String> = all.large.iter().map(LargeCommunity::to_string).collect();
        assert_eq!(small, ["64512:100", "no-export"]);
        assert_eq!(large, ["1:2:3", "64512:1:4294967295"]);
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for wrong in [
            "",
            "1",
            "65536:1",
            "1:65536",
            "1:2:3:4",
            "+1:2",
            "1:-2",
            "large:1:2",
            "1:2:4294967296",
            "no-such",
        ] {
            let error = Communities::parse([wrong]).unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
    }
}
