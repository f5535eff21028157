//! Signed adverts, as keepalived 2.4 and later has them (`auth_hmac`): a trailer behind the packet
//! of version 2 or 3, which says which key signed it and when.
//!
//! ```text
//!  type 1 | key id | 0    0 |        seconds        | fraction |  count  |   16 bytes of HMAC   |
//! ```
//!
//! The HMAC (SHA-256, its first half) is over the family, the version, the id of the virtual router
//! and the sender's address; the packet, its checksum taken as zero; and the trailer, its HMAC
//! taken as zero. Seconds, fraction (of 2^16) and count are one number that grows with each packet:
//! one that does not grow is a replay, and so is one further from the receiver's clock than the
//! window. Whatever computes the HMAC, and tells the time of day, is the driver's.

use crate::packet;
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

const TRAILER: usize = 28;
/// The length of the trailer before the HMAC.
const PREFIX: usize = 12;
const SHA256: u8 = 1;
/// In bytes: shorter ones can be guessed, longer ones are hashed down again.
const SECRET: std::ops::RangeInclusive<usize> = 32..=64;
/// Senders whose last number is remembered; only those with a key get into this table.
const MOST_SENDERS: usize = 32;
/// Shorter windows would refuse the packets of machines with ordinary clocks.
const LEAST_WINDOW: Duration = Duration::from_secs(5);
const LONGEST_WINDOW: Duration = Duration::from_secs(300);

/// HMAC with SHA-256 over parts, one after the other.
pub trait HmacSha256 {
    /// The code for these parts, one after the other, with this key.
    fn hmac(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32];
}

/// Why a signature does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum Unproven {
    #[error("it is not signed")]
    Unsigned,
    #[error("its signature is of a kind that is not known")]
    Kind,
    #[error("it is signed with key {0}, which is not in the key file")]
    UnknownKey(u8),
    #[error("its signature is wrong: the sender has another key, or none")]
    Wrong,
    #[error(
        "it was signed {0} s away from this node's clock: a replay, or the clocks are not in step"
    )]
    Stale(i32),
    #[error("it was sent before: a replay")]
    Replayed,
}

#[derive(Clone, PartialEq, Eq)]
struct Key {
    id: u8,
    secret: Vec<u8>,
}

/// The keys of a virtual router: the first one signs, all of them are accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys(Vec<Key>);

/// Prints the numbers of the keys, and nothing secret.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|key| key.id))
            .finish()
    }
}

/// Why a text is not a list of keys. It never repeats what may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error(
        "line {0}: write the number of the key (1 to 255), a space, and hex: with 64 to 128 digits"
    )]
    Line(usize),
    #[error("line {0}: a key has 32 to 64 bytes, this one has {1}")]
    Length(usize, usize),
    #[error("line {0}: there is a key with that number already")]
    Twice(usize),
    #[error("there is no key in it: write a line such as: 1 hex:<64 digits>")]
    None,
}

impl Keys {
    /// One key a line, the one that signs first: `1 hex:0001…`, or a text as keepalived has it. A
    /// line that begins with `#` is a comment.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let mut keys: Vec<Key> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = parse_key(number, line)?;
            if keys.iter().any(|known| known.id == key.id) {
                return Err(KeysError::Twice(number));
            }
            keys.push(key);
        }
        match keys.is_empty() {
            true => Err(KeysError::None),
            false => Ok(Self(keys)),
        }
    }

    fn find(&self, id: u8) -> Option<&Key> {
        self.0.iter().find(|key| key.id == id)
    }
}

fn parse_key(number: usize, line: &str) -> Result<Key, KeysError> {
    let wrong = KeysError::Line(number);
    let (id, value) = line.split_once(char::is_whitespace).ok_or(wrong)?;
    let id: u8 = id.parse().ok().filter(|id| *id > 0).ok_or(wrong)?;
    let value = value.trim_start();
    let secret = match value.strip_prefix("hex:") {
        Some(digits) => from_hex(digits).ok_or(wrong)?,
        None => value.as_bytes().to_vec(),
    };
    match SECRET.contains(&secret.len()) {
        true => Ok(Key { id, secret }),
        false => Err(KeysError::Length(number, secret.len())),
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = digits.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

/// What is sent and what is accepted. A group is moved to signatures by three rounds, each on one
/// node after the other: all verify, then all sign, then all require it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Signs nothing; what is signed must be right, what is not is accepted.
    ReceiveOnly,
    /// Signs; what is signed must be right, what is not is accepted.
    Permissive,
    /// Signs, and accepts nothing else.
    Enforce,
}

/// How adverts are signed and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The keys; the first signs, and all verify.
    pub keys: Keys,
    /// Whether adverts are signed, and whether unsigned ones count.
    pub mode: Mode,
    /// How far the clocks may differ.
    pub window: Duration,
}

impl Auth {
    /// The usual window for adverts that are so far apart, as keepalived has it.
    pub fn usual_window(interval: Duration) -> Duration {
        (interval * 3).max(LEAST_WINDOW).min(LONGEST_WINDOW)
    }

    /// Whole seconds are compared.
    fn window(&self) -> i32 {
        i32::try_from(self.window.as_secs()).unwrap_or(i32::MAX)
    }
}

/// Signs what one router sends, and verifies what it hears.
#[derive(Debug)]
pub struct Signer<H> {
    auth: Auth,
    hmac: H,
    /// The last number that was sent.
    sent: u64,
    /// The last number of each sender; the one heard last is last.
    senders: Vec<(IpAddr, u64)>,
}

impl<H: HmacSha256> Signer<H> {
    /// A signer that has sent and heard nothing yet.
    pub fn new(auth: Auth, hmac: H) -> Self {
        Self {
            auth,
            hmac,
            sent: 0,
            senders: Vec::new(),
        }
    }

    /// Other keys from now on. What was heard already stays known.
    pub fn set(&mut self, auth: Auth) {
        self.auth = auth;
    }

    /// The payload of a packet between two addresses, signed; `clock` is the time since 1970.
    pub fn sign(
        &mut self,
        mut payload: Vec<u8>,
        from: IpAddr,
        to: IpAddr,
        clock: Duration,
    ) -> Vec<u8> {
        let Some(key) = self.auth.keys.0.first() else {
            return payload;
        };
        if self.auth.mode == Mode::ReceiveOnly {
            return payload;
        }
        self.sent = next(self.sent, number(clock), self.auth.window());
        payload.extend([SHA256, key.id, 0, 0]);
        payload.extend(self.sent.to_be_bytes());
        let signature = self.signature(key, &payload, from);
        payload.extend(signature);
        if from.is_ipv6() {
            // Over IPv6 the checksum is of all that follows the header.
            packet::renew_checksum(&mut payload, from, to);
        }
        payload
    }

    /// The packet without its trailer, if it is proven or need not be.
    pub fn verify<'a>(
        &mut self,
        payload: &'a [u8],
        from: IpAddr,
        to: IpAddr,
        clock: Duration,
    ) -> Result<Cow<'a, [u8]>, Unproven> {
        let body = packet::length(payload, from.is_ipv4());
        let Some((body, trailer)) = body
            .filter(|length| payload.len() == length + TRAILER)
            .and_then(|length| payload.split_at_checked(length))
        else {
            return match self.auth.mode {
                Mode::Enforce => Err(Unproven::Unsigned),
                Mode::Permissive | Mode::ReceiveOnly => Ok(Cow::Borrowed(payload)),
            };
        };
        self.prove(payload, trailer, from, clock)?;
        if from.is_ipv4() {
            return Ok(Cow::Borrowed(body));
        }
        let mut body = body.to_vec();
        packet::renew_checksum(&mut body, from, to);
        Ok(Cow::Owned(body))
    }

    /// The cheapest check comes first, and no state is kept for a sender without the key.
    fn prove(
        &mut self,
        payload: &[u8],
        trailer: &[u8],
        from: IpAddr,
        clock: Duration,
    ) -> Result<(), Unproven> {
        let &[kind, id, 0, 0, ref rest @ ..] = trailer else {
            return Err(Unproven::Kind);
        };
        let (Some(sent), Some(signature)) = (rest.first_chunk::<8>(), rest.get(8..)) else {
            return Err(Unproven::Kind);
        };
        if kind != SHA256 {
            return Err(Unproven::Kind);
        }
        let sent = u64::from_be_bytes(*sent);
        let age = seconds_between(number(clock), sent);
        if age.saturating_abs() > self.auth.window() {
            return Err(Unproven::Stale(age));
        }
        let key = self.auth.keys.find(id).ok_or(Unproven::UnknownKey(id))?;
        let signed = payload
            .get(..payload.len() - TRAILER + PREFIX)
            .unwrap_or_default();
        if !is_same(&self.signature(key, signed, from), signature) {
            return Err(Unproven::Wrong);
        }
        self.remember(from, sent, number(clock))
    }

    fn remember(&mut self, from: IpAddr, sent: u64, now: u64) -> Result<(), Unproven> {
        let known = self.senders.iter().position(|(sender, _)| *sender == from);
        let last = known
            .and_then(|at| self.senders.get(at))
            .map(|(_, last)| *last);
        // A number outside of the window refuses nothing that the window would not: forgetting it
        // heals a sender whose clock was ahead and was set right.
        let last =
            last.filter(|last| seconds_between(now, *last).saturating_abs() <= self.auth.window());
        if last.is_some_and(|last| !is_after(sent, last)) {
            return Err(Unproven::Replayed);
        }
        match known {
            Some(at) => drop(self.senders.remove(at)),
            None if self.senders.len() >= MOST_SENDERS => drop(self.senders.remove(0)),
            None => {}
        }
        self.senders.push((from, sent));
        Ok(())
    }

    /// The signature of a packet with its trailer up to the HMAC.
    fn signature(&self, key: &Key, signed: &[u8], from: IpAddr) -> [u8; 16] {
        let (before, after) = signed
            .split_at_checked(packet::CHECKSUM.start)
            .unwrap_or_default();
        let after = after.get(2..).unwrap_or_default();
        let version = signed.first().map_or(0, |first| first >> 4);
        let vrid = signed.get(1).copied().unwrap_or_default();
        let mut pseudo = [0; 20];
        let (family, address): (u8, &[u8]) = match &from {
            IpAddr::V4(address) => (4, &address.octets()),
            IpAddr::V6(address) => (6, &address.octets()),
        };
        for (place, byte) in pseudo
            .iter_mut()
            .zip([family, version, vrid, 0].iter().chain(address))
        {
            *place = *byte;
        }
        let parts = [&pseudo[..], before, &[0; 2], after, &[0; 16]];
        let digest = self.hmac.hmac(&key.secret, &parts);
        let mut half = [0; 16];
        half.iter_mut()
            .zip(digest)
            .for_each(|(place, byte)| *place = byte);
        half
    }
}

/// The time as packets have it: 32 bits of seconds and 16 of their fraction before the count.
fn number(clock: Duration) -> u64 {
    let fraction = (u64::from(clock.subsec_nanos()) << 16) / 1_000_000_000;
    (clock.as_secs() << 32) | fraction << 16
}

/// The number after the last one: the clock's, or one more where that is not later. A clock that
/// was set back by more than the window counts again, since no receiver would accept the old
/// numbers.
fn next(last: u64, clock: u64, window: i32) -> u64 {
    if is_after(clock, last) || seconds_between(last, clock) > window {
        clock
    } else {
        last.wrapping_add(1)
    }
}

/// Seconds have 32 bits and begin anew in 2106.
fn is_after(one: u64, other: u64) -> bool {
    let difference = one.wrapping_sub(other);
    difference != 0 && difference < 1 << 63
}

fn seconds_between(later: u64, earlier: u64) -> i32 {
    let difference = ((later >> 32) as u32).wrapping_sub((earlier >> 32) as u32);
    difference.cast_signed()
}

/// Compares in the same time wherever they differ, so that a signature cannot be guessed byte by
/// byte.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let difference = one
        .iter()
        .zip(other)
        .fold(0, |sum, (one, other)| sum | (one ^ other));
    one.len() == other.len() && difference == 0
}

#[cfg(test)]
mod tests;
