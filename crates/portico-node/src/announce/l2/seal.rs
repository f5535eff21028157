//! What proves that a heartbeat is from a node that has the key.

use ring::hmac;
use std::fmt;

const TAG: usize = 32;

/// The same on all nodes.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl Key {
    /// The key from a secret of any length.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Puts a tag behind a message.
    pub fn seal(&self, mut message: Vec<u8>) -> Vec<u8> {
        let tag = hmac::sign(&self.0, &message);
        message.extend(tag.as_ref());
        message
    }

    /// The message, if its tag is right.
    pub fn open<'a>(&self, sealed: &'a [u8]) -> Option<&'a [u8]> {
        let (message, tag) = sealed.split_at_checked(sealed.len().checked_sub(TAG)?)?;
        hmac::verify(&self.0, message, tag)
            .is_ok()
            .then_some(message)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_the_key_is_heard() {
        let (key, other) = (Key::new(&[1; 32]), Key::new(&[2; 32]));
        let sealed = key.seal(b"here".to_vec());
        assert_eq!(key.open(&sealed), Some(&b"here"[..]));
        assert_eq!(other.open(&sealed), None);
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(key.open(&damaged), None);
        }
        assert_eq!((key.open(&sealed[..31]), key.open(&[])), (None, None));
    }
}
