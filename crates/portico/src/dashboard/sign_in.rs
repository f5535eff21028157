//! How a browser shows that it may look: with the key in the address that was printed, or with a
//! token that the API server accepts.

use anyhow::Context;
use hyper::header::HeaderValue;
use std::fs::File;
use std::io::Read;

const KEY_BYTES: usize = 24;

pub(super) enum SignIn {
    /// A word that other programs and pages of the same machine do not know.
    Key(String),
    /// The API server decides.
    Token,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// Has the key: sees what the kubeconfig may see.
    Owner,
    /// Sees what the identity behind this header may see.
    Bearer(HeaderValue),
    Unknown,
}

impl SignIn {
    pub(super) fn new_key() -> anyhow::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        File::open("/dev/urandom")
            .and_then(|mut source| source.read_exact(&mut bytes))
            .context("no random numbers")?;
        Ok(Self::Key(bytes.map(|byte| format!("{byte:02x}")).concat()))
    }

    /// The end of the address to print. What is behind a `#` never leaves the browser.
    pub(super) fn link(&self) -> String {
        match self {
            Self::Key(key) => format!("#token={key}"),
            Self::Token => String::new(),
        }
    }

    pub(super) fn caller(&self, authorization: Option<&HeaderValue>) -> Caller {
        let bearer = authorization.filter(|value| value.as_bytes().starts_with(b"Bearer "));
        match (self, bearer) {
            (_, None) => Caller::Unknown,
            (Self::Token, Some(value)) => Caller::Bearer(value.clone()),
            (Self::Key(key), Some(value)) => {
                match equal(&value.as_bytes()[b"Bearer ".len()..], key.as_bytes()) {
                    true => Caller::Owner,
                    false => Caller::Unknown,
                }
            }
        }
    }

    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::Key(_) => {
                "open the address that portico dashboard printed when it started: it ends with a \
                 key"
            }
            Self::Token => "the API server wants a token",
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
        let SignIn::Key(key) = SignIn::new_key().unwrap() else {
            panic!("a key was asked for")
        };
        let sign_in = SignIn::Key(key.clone());
        let caller = |text: &str| sign_in.caller(Some(&HeaderValue::from_str(text).unwrap()));
        assert_eq!(caller(&format!("Bearer {key}")), Caller::Owner);
        for wrong in [
            "",
            "Bearer ",
            "Basic x",
            &key,
            &format!("Bearer {key}0"),
            &format!("Bearer {}", &key[1..]),
        ] {
            assert_eq!(caller(wrong), Caller::Unknown, "{wrong}");
        }
        assert_eq!(sign_in.caller(None), Caller::Unknown);
        assert_eq!(key.len(), 2 * KEY_BYTES);
    }

    #[test]
    fn a_token_is_for_the_api_server_to_judge() {
        let value = HeaderValue::from_static("Bearer anything");
        assert_eq!(SignIn::Token.caller(Some(&value)), Caller::Bearer(value));
    }
}
