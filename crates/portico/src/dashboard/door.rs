//! Who may look: whoever has the key in the address that was printed, or everybody whom the API
//! server knows.

use anyhow::Context;
use hyper::header::HeaderValue;
use std::fs::File;
use std::io::Read;

const KEY_BYTES: usize = 24;

pub enum Door {
    /// A word that other programs and pages of the same machine do not know.
    Key(String),
    /// The API server decides.
    Token,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Visitor {
    /// Sees what the kubeconfig may see.
    Owner,
    /// Sees what this may see.
    Bearer(HeaderValue),
    Unknown,
}

impl Door {
    pub fn new_key() -> anyhow::Result<Door> {
        let mut bytes = [0; KEY_BYTES];
        File::open("/dev/urandom")
            .and_then(|mut source| source.read_exact(&mut bytes))
            .context("no random numbers")?;
        Ok(Door::Key(bytes.map(|byte| format!("{byte:02x}")).concat()))
    }

    /// The end of the address to print. What is behind a `#` never leaves the browser.
    pub fn link(&self) -> String {
        match self {
            Door::Key(key) => format!("#token={key}"),
            Door::Token => String::new(),
        }
    }

    pub fn visitor(&self, authorization: Option<&HeaderValue>) -> Visitor {
        let bearer = authorization.filter(|value| value.as_bytes().starts_with(b"Bearer "));
        match (self, bearer) {
            (_, None) => Visitor::Unknown,
            (Door::Token, Some(value)) => Visitor::Bearer(value.clone()),
            (Door::Key(key), Some(value)) => {
                match equal(&value.as_bytes()[b"Bearer ".len()..], key.as_bytes()) {
                    true => Visitor::Owner,
                    false => Visitor::Unknown,
                }
            }
        }
    }

    pub fn advice(&self) -> &'static str {
        match self {
            Door::Key(_) => {
                "open the address that portico dashboard printed when it started: it ends with a \
                 key"
            }
            Door::Token => "the API server wants a token",
        }
    }
}

/// Takes as long for every wrong key of the right length.
fn equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .fold(0, |difference, (a, b)| difference | (a ^ b))
            == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_opens() {
        let Door::Key(key) = Door::new_key().unwrap() else {
            panic!("a key was asked for")
        };
        let door = Door::Key(key.clone());
        let visitor = |text: &str| door.visitor(Some(&HeaderValue::from_str(text).unwrap()));
        assert_eq!(visitor(&format!("Bearer {key}")), Visitor::Owner);
        for wrong in [
            "",
            "Bearer ",
            "Basic x",
            &key,
            &format!("Bearer {key}0"),
            &format!("Bearer {}", &key[1..]),
        ] {
            assert_eq!(visitor(wrong), Visitor::Unknown, "{wrong}");
        }
        assert_eq!(door.visitor(None), Visitor::Unknown);
        assert_eq!(key.len(), 2 * KEY_BYTES);
    }

    #[test]
    fn a_token_is_for_the_api_server_to_judge() {
        let value = HeaderValue::from_static("Bearer anything");
        assert_eq!(Door::Token.visitor(Some(&value)), Visitor::Bearer(value));
    }
}
