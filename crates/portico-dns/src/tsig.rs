//! Messages that are authenticated by a key that both sides have (TSIG, RFC 8945). Works on the
//! bytes of messages, because those are what is signed. Knows no clock: `now` is in seconds since
//! 1970.

mod record;

use record::{Record, strip};
use ring::hmac;
use std::fmt;

/// Clocks may differ by so many seconds.
const FUDGE: u16 = 300;
const BADSIG: u16 = 16;
const BADKEY: u16 = 17;
const BADTIME: u16 = 18;
const NOTAUTH: u8 = 9;

/// A key, by its name and algorithm.
pub(crate) struct Key {
    /// In wire format and lower case, as is the algorithm.
    name: Vec<u8>,
    algorithm: Vec<u8>,
    secret: hmac::Key,
}

impl fmt::Debug for Key {
    /// Prints the key without its secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Key({})",
            String::from_utf8_lossy(&self.name).escape_debug()
        )
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("there has to be a name, an algorithm and a secret for each key")]
    Words,
    #[error("{0} is not the name of a key")]
    Name(String),
    #[error("{0} is not an algorithm; there are hmac-sha256, hmac-sha384 and hmac-sha512")]
    Algorithm(String),
    #[error("the secret of {0} is not Base64")]
    Secret(String),
}

impl Key {
    fn new(name: &str, algorithm: &str, secret: &[u8]) -> Result<Self, KeyError> {
        let kind = match algorithm.to_ascii_lowercase().as_str() {
            "hmac-sha256" => hmac::HMAC_SHA256,
            "hmac-sha384" => hmac::HMAC_SHA384,
            "hmac-sha512" => hmac::HMAC_SHA512,
            _ => return Err(KeyError::Algorithm(algorithm.to_owned())),
        };
        let wire =
            |text: &str| record::wire_name(text).ok_or_else(|| KeyError::Name(text.to_owned()));
        Ok(Self {
            name: wire(name)?,
            algorithm: wire(algorithm)?,
            secret: hmac::Key::new(kind, secret),
        })
    }

    /// What a signature adds to a message.
    fn size(&self) -> usize {
        self.name.len()
            + 10
            + self.algorithm.len()
            + 16
            + self.secret.algorithm().digest_algorithm().output_len()
    }
}

/// Keys as `tsig-keygen` prints them, or just name, algorithm and secret of each, with white space
/// between.
pub(crate) fn parse_keys(
    text: &str,
    decode: impl Fn(&str) -> Option<Vec<u8>>,
) -> Result<Vec<Key>, KeyError> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let words =
        lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || "{};\"".contains(c)));
    let words = words.filter(|word| !matches!(*word, "" | "key" | "algorithm" | "secret"));
    let words: Vec<&str> = words.collect();
    let key = |words: &[&str]| {
        let [name, algorithm, secret] = words else {
            return Err(KeyError::Words);
        };
        let secret = decode(secret).ok_or_else(|| KeyError::Secret((*name).to_owned()))?;
        Key::new(name, algorithm, &secret)
    };
    words.chunks(3).map(key).collect()
}

/// What a message is worth.
pub(crate) enum Opened<'k> {
    Unsigned,
    /// The message without its signature, and what is needed to sign the answer.
    Signed(Vec<u8>, Session<'k>),
    /// The signature is wrong: the error code of RFC 8945, and the answer with it.
    Bad(
        #[cfg_attr(
            not(test),
            expect(dead_code, reason = "the answer has it, and tests compare it")
        )]
        u16,
        Vec<u8>,
    ),
}

/// A conversation under a key.
pub(crate) struct Session<'k> {
    key: &'k Key,
    /// The MAC of the message before.
    mac: Vec<u8>,
    is_first: bool,
}

/// Look at a message that came in.
pub(crate) fn open<'k>(keys: &'k [Key], bytes: &[u8], now: u64) -> Opened<'k> {
    let Some((message, record)) = strip(bytes) else {
        return Opened::Unsigned;
    };
    let bad = |error| Opened::Bad(error, complaint(&message, &record, error));
    let Some(key) = keys
        .iter()
        .find(|key| key.name == record.name && key.algorithm == record.algorithm)
    else {
        return bad(BADKEY);
    };
    let mut signed = message.clone();
    replace_id(&mut signed, record.original_id);
    signed.extend(record.variables());
    if hmac::verify(&key.secret, &signed, &record.mac).is_err() {
        return bad(BADSIG);
    }
    let session = Session {
        key,
        mac: record.mac.clone(),
        is_first: true,
    };
    if now.abs_diff(record.time) > u64::from(record.fudge) {
        let reply = refusal(&message);
        return Opened::Bad(BADTIME, session.answer_late(&reply, &record, now));
    }
    Opened::Signed(message, session)
}

impl Session<'_> {
    /// What a signature adds to a message.
    pub(crate) fn size(&self) -> usize {
        self.key.size()
    }

    /// The message with its signature.
    pub(crate) fn sign(&mut self, message: &[u8], now: u64) -> Vec<u8> {
        let record = self.record(message, now);
        let variables = if self.is_first {
            record.variables()
        } else {
            record.timers()
        };
        let record = self.seal(message, record, &variables);
        self.mac.clone_from(&record.mac);
        self.is_first = false;
        record.append(message)
    }

    fn record(&self, message: &[u8], now: u64) -> Record {
        Record {
            name: self.key.name.clone(),
            algorithm: self.key.algorithm.clone(),
            time: now,
            fudge: FUDGE,
            mac: Vec::new(),
            original_id: id(message),
            error: 0,
            other: Vec::new(),
        }
    }

    fn seal(&self, message: &[u8], record: Record, variables: &[u8]) -> Record {
        let mut context = hmac::Context::with_key(&self.key.secret);
        context.update(
            &u16::try_from(self.mac.len())
                .unwrap_or_default()
                .to_be_bytes(),
        );
        context.update(&self.mac);
        context.update(message);
        context.update(variables);
        Record {
            mac: context.sign().as_ref().to_vec(),
            ..record
        }
    }

    /// The answer to a client with the key and a wrong clock, with the server's time.
    fn answer_late(&self, reply: &[u8], theirs: &Record, now: u64) -> Vec<u8> {
        let ours = now.to_be_bytes().get(2..).unwrap_or_default().to_vec();
        let record = Record {
            time: theirs.time,
            error: BADTIME,
            other: ours,
            ..self.record(reply, now)
        };
        let variables = record.variables();
        self.seal(reply, record, &variables).append(reply)
    }
}

/// The answer to a message with a signature that is not good: not signed itself.
fn complaint(message: &[u8], theirs: &Record, error: u16) -> Vec<u8> {
    let record = Record {
        mac: Vec::new(),
        error,
        other: Vec::new(),
        original_id: id(message),
        ..theirs.clone()
    };
    record.append(&refusal(message))
}

/// The header alone, turned into an answer.
fn refusal(message: &[u8]) -> Vec<u8> {
    let mut reply: Vec<u8> = message.iter().copied().take(12).collect();
    reply.resize(12, 0);
    for (at, byte) in reply.iter_mut().enumerate() {
        match at {
            2 => *byte = *byte & 0x79 | 0x80,
            3 => *byte = NOTAUTH,
            4.. => *byte = 0,
            _ => {}
        }
    }
    reply
}

fn id(message: &[u8]) -> u16 {
    message
        .first_chunk()
        .map_or(0, |id| u16::from_be_bytes(*id))
}

fn replace_id(message: &mut [u8], id: u16) {
    if let Some(place) = message.first_chunk_mut() {
        *place = id.to_be_bytes();
    }
}

#[cfg(test)]
mod tests;
