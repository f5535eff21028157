//! Names of the zone, as keys: relative to the origin, in wire format and lower case, so that every
//! query has exactly one.

use hickory_proto::rr::Name;
use std::borrow::Borrow;
use std::fmt;

/// The most bytes of a name in wire format, with the root.
const MOST_BYTES: usize = 255;
const MOST_LABEL: usize = 63;

/// A name below the origin, without it: `\x03web\x04shop\x03svc`. The origin itself is empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<[u8]>);

impl Key {
    pub fn origin() -> Self {
        Self(Box::default())
    }

    /// A name from the bytes of a key.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = labels(&self.0)
            .map(|label| String::from_utf8_lossy(label))
            .collect();
        f.write_str(&labels.join("."))
    }
}

/// The labels of a key, the leftmost first.
pub(crate) fn labels(mut key: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = key.split_first()?;
        let (label, rest) = rest.split_at_checked(usize::from(*length))?;
        key = rest;
        Some(label)
    })
}

/// The key without its leftmost label; `None` for the origin.
pub(crate) fn parent(key: &[u8]) -> Option<&[u8]> {
    let (length, rest) = key.split_first()?;
    rest.get(usize::from(*length)..)
}

/// What a query asks for, relative to the origin.
pub struct Asked {
    bytes: [u8; MOST_BYTES],
    length: usize,
}

impl Asked {
    pub fn key(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Where the zone hangs.
#[derive(Clone, Debug)]
pub struct Origin {
    name: Name,
    /// Lower case, in wire format without the root.
    wire: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "{text} is not the name of a zone: labels of letters, digits and hyphens with dots between them"
)]
pub struct OriginError {
    text: String,
}

impl Origin {
    pub fn new(text: &str) -> Result<Self, OriginError> {
        let bad = || OriginError {
            text: text.to_owned(),
        };
        let lower = text.trim_end_matches('.').to_ascii_lowercase();
        let name = host_name(&lower).ok_or_else(bad)?;
        Ok(Self {
            wire: wire(&name),
            name,
        })
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The key for these labels, where they make a name that is short enough; each may contain
    /// dots.
    pub fn key(&self, parts: &[&str]) -> Option<Key> {
        let mut bytes = Vec::with_capacity(64);
        for label in parts.iter().flat_map(|part| part.split('.')) {
            let length = u8::try_from(label.len())
                .ok()
                .filter(|length| (1..=MOST_LABEL as u8).contains(length))?;
            bytes.push(length);
            bytes.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        (bytes.len() + self.wire.len() < MOST_BYTES).then(|| Key(bytes.into()))
    }

    /// The whole name of a key.
    pub fn full(&self, key: &[u8]) -> Name {
        let all = labels(key).chain(labels(&self.wire));
        // Keys are made so that this cannot fail.
        Name::from_labels(all).unwrap_or_else(|_| self.name.clone())
    }

    /// The key of a name in or below the origin, whatever the case of its letters.
    pub fn find(&self, name: &Name) -> Option<Asked> {
        let mut asked = Asked {
            bytes: [0; MOST_BYTES],
            length: 0,
        };
        for label in name.iter() {
            let length = u8::try_from(label.len()).ok()?;
            let end = asked.length + 1 + label.len();
            let (first, rest) = asked.bytes.get_mut(asked.length..end)?.split_first_mut()?;
            *first = length;
            rest.iter_mut()
                .zip(label)
                .for_each(|(to, from)| *to = from.to_ascii_lowercase());
            asked.length = end;
        }
        let relative = asked.length.checked_sub(self.wire.len())?;
        let is_below = asked.bytes.get(relative..asked.length)? == self.wire.as_slice();
        asked.length = relative;
        // The end may look like the origin and begin in the middle of a label.
        let whole = labels(asked.key())
            .map(|label| label.len() + 1)
            .sum::<usize>()
            == relative;
        (is_below && whole).then_some(asked)
    }
}

fn wire(name: &Name) -> Vec<u8> {
    let one = |label: &[u8]| {
        let length = u8::try_from(label.len()).unwrap_or_default();
        std::iter::once(length)
            .chain(label.to_ascii_lowercase())
            .collect::<Vec<u8>>()
    };
    name.iter().flat_map(one).collect()
}

/// The name of a host as people write it, where it is one.
pub(crate) fn host_name(text: &str) -> Option<Name> {
    let text = text.trim_end_matches('.');
    let is_good = |label: &str| {
        let plain = label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        (1..=MOST_LABEL).contains(&label.len())
            && plain
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !text.split('.').all(is_good) {
        return None;
    }
    Name::from_labels(text.split('.').map(str::as_bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(origin: &Origin, name: &str) -> Option<String> {
        let asked = origin.find(&Name::from_ascii(name).unwrap())?;
        Some(
            labels(asked.key())
                .map(|label| String::from_utf8_lossy(label).into_owned())
                .collect::<Vec<_>>()
                .join("|"),
        )
    }

    #[test]
    fn names_are_found_below_the_origin_only() {
        let origin = Origin::new("Example.com.").unwrap();
        for (name, wanted) in [
            ("example.com.", Some("")),
            ("EXAMPLE.Com.", Some("")),
            ("Web.shop.svc.example.com.", Some("web|shop|svc")),
            ("a\\.b.example.com.", Some("a.b")),
            ("com.", None),
            (".", None),
            ("example.org.", None),
            ("badexample.com.", None),
            ("example.com.org.", None),
        ] {
            assert_eq!(found(&origin, name).as_deref(), wanted, "{name}");
        }
    }

    #[test]
    fn the_end_of_a_label_is_not_the_origin() {
        let origin = Origin::new("com").unwrap();
        // One label whose last bytes are the wire format of the origin.
        let name = Name::from_labels([&b"a\x03com"[..]]).unwrap();
        assert!(origin.find(&name).is_none());
    }

    #[test]
    fn keys_are_made_of_what_is_a_name() {
        let origin = Origin::new("example.com").unwrap();
        assert_eq!(
            format!("{:?}", origin.key(&["a.b", "node"]).unwrap()),
            "a.b.node"
        );
        assert!(origin.key(&["", "node"]).is_none());
        assert!(origin.key(&[&"x".repeat(64)]).is_none());
        assert!(origin.key(&[&[&*"x".repeat(63); 4].join(".")]).is_none());
        let key = origin.key(&["web", "shop"]).unwrap();
        assert_eq!(
            origin.full(key.borrow()).to_ascii(),
            "web.shop.example.com."
        );
        let up: Vec<String> =
            std::iter::successors(Some(Borrow::<[u8]>::borrow(&key)), |key| parent(key))
                .map(|key| origin.full(key).to_ascii())
                .collect();
        assert_eq!(
            up,
            ["web.shop.example.com.", "shop.example.com.", "example.com."]
        );
    }

    #[test]
    fn what_is_no_name_is_told() {
        for bad in ["", ".", "a..b", "-a.b", "a b", &"x".repeat(64)] {
            assert!(Origin::new(bad).is_err(), "{bad:?}");
        }
        assert!(host_name("lb-1.eu.example.net.").is_some());
    }
}
