use super::*;
use crate::packet::{Advert, GROUP_V4, GROUP_V6, Version};

/// Any function of all bytes does for what is tested here; the driver's is tried against
/// keepalived's.
#[derive(Clone, Copy, Debug)]
struct Sum;

impl HmacSha256 for Sum {
    fn hmac(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let mut state = [0u8; 32];
        for (at, byte) in parts.concat().iter().chain(key).enumerate() {
            let place = &mut state[at % 16];
            *place = place.wrapping_mul(31).wrapping_add(*byte);
        }
        state
    }
}

const KEY: &str = "1 0123456789abcdef0123456789abcdef";
const OTHER: &str = "2 hex:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const NOW: Duration = Duration::from_millis(1_800_000_000_250);

fn signer(keys: &str, mode: Mode) -> Signer<Sum> {
    let auth = Auth {
        keys: Keys::parse(keys).unwrap(),
        mode,
        window: Duration::from_secs(5),
    };
    Signer::new(auth, Sum)
}

fn v4(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn advert(v6: bool) -> (Advert, IpAddr, IpAddr) {
    let advert = Advert {
        version: Version::V3,
        vrid: 101,
        priority: 200,
        interval: Duration::from_secs(1),
        addresses: vec![if v6 {
            "fe80::100".parse().unwrap()
        } else {
            v4(100)
        }],
        password: None,
    };
    match v6 {
        false => (advert, v4(1), GROUP_V4.into()),
        true => (advert, "fe80::1".parse().unwrap(), GROUP_V6.into()),
    }
}

/// What one router signs another one reads, whichever family and version.
#[test]
fn what_is_signed_is_read() {
    for v6 in [false, true] {
        let (advert, from, to) = advert(v6);
        let mut versions = vec![advert.clone()];
        if !v6 {
            versions.push(Advert {
                version: Version::V2,
                ..advert
            });
        }
        for advert in versions {
            let mut sender = signer(KEY, Mode::Enforce);
            let sent = sender.sign(advert.encode(from, to), from, to, NOW);
            let mut receiver = signer(KEY, Mode::Enforce);
            let read = receiver.verify(&sent, from, to, NOW).unwrap();
            assert_eq!(Advert::decode(&read, from, to).unwrap(), advert);
        }
    }
}

#[test]
fn whatever_is_changed_is_refused() {
    let (advert, from, to) = advert(false);
    let sent = signer(KEY, Mode::Enforce).sign(advert.encode(from, to), from, to, NOW);
    for at in 0..sent.len() {
        let mut forged = sent.clone();
        forged[at] ^= 0x40;
        let read = signer(KEY, Mode::Enforce)
            .verify(&forged, from, to, NOW)
            .err();
        // The checksum is left out, because kernels may write it.
        let may_differ = crate::packet::CHECKSUM.contains(&at);
        assert_eq!(read.is_none(), may_differ, "byte {at}: {read:?}");
    }
    for (what, from) in [
        ("another sender", v4(2)),
        ("another family", "fe80::1".parse().unwrap()),
    ] {
        let read = signer(KEY, Mode::Enforce).verify(&sent, from, to, NOW);
        assert!(read.is_err(), "{what}");
    }
}

#[test]
fn what_is_not_signed_counts_by_the_mode() {
    let (advert, from, to) = advert(false);
    let plain = advert.encode(from, to);
    for (mode, accepted) in [
        (Mode::ReceiveOnly, true),
        (Mode::Permissive, true),
        (Mode::Enforce, false),
    ] {
        let read = signer(KEY, mode).verify(&plain, from, to, NOW).map(drop);
        assert_eq!(read.is_ok(), accepted, "{mode:?}");
        assert!(accepted || read == Err(Unproven::Unsigned));
        // A wrong signature is never taken for none.
        let sent = signer(OTHER, Mode::Enforce).sign(plain.clone(), from, to, NOW);
        let read = signer(KEY, mode).verify(&sent, from, to, NOW).map(drop);
        assert_eq!(read, Err(Unproven::UnknownKey(2)), "{mode:?}");
        let signs = signer(KEY, mode).sign(plain.clone(), from, to, NOW).len() > plain.len();
        assert_eq!(signs, mode != Mode::ReceiveOnly);
    }
}

#[test]
fn a_packet_counts_once_and_soon() {
    let (advert, from, to) = advert(false);
    let (mut sender, mut receiver) = (signer(KEY, Mode::Enforce), signer(KEY, Mode::Enforce));
    let mut send = |at: Duration| sender.sign(advert.encode(from, to), from, to, at);
    let (first, second) = (send(NOW), send(NOW));
    let mut read = |packet: &[u8], at| receiver.verify(packet, from, to, at).map(drop);
    assert_eq!(read(&first, NOW), Ok(()));
    assert_eq!(read(&first, NOW), Err(Unproven::Replayed));
    assert_eq!(
        read(&second, NOW),
        Ok(()),
        "the same moment, a greater count"
    );
    assert_eq!(read(&first, NOW), Err(Unproven::Replayed));
    let late = NOW + Duration::from_secs(6);
    assert_eq!(read(&second, late), Err(Unproven::Stale(6)));
    let early = NOW - Duration::from_secs(6);
    assert_eq!(read(&second, early), Err(Unproven::Stale(-6)));
    assert_eq!(read(&send(late), late), Ok(()));
}

#[test]
fn a_clock_that_was_wrong_heals() {
    let (advert, from, to) = advert(false);
    let (mut sender, mut receiver) = (signer(KEY, Mode::Enforce), signer(KEY, Mode::Enforce));
    let wrong = NOW + Duration::from_secs(3600);
    for (at, what) in [(wrong, "both are wrong"), (NOW, "both are set back")] {
        let sent = sender.sign(advert.encode(from, to), from, to, at);
        assert!(receiver.verify(&sent, from, to, at).is_ok(), "{what}");
    }
    // A step back within the window goes on counting up.
    let back = NOW - Duration::from_secs(2);
    let sent = sender.sign(advert.encode(from, to), from, to, back);
    assert!(receiver.verify(&sent, from, to, back).is_ok());
}

/// One node after the other: the new key is added, signs, and the old one goes. At no time does one
/// refuse another.
#[test]
fn keys_roll_on_without_a_refusal() {
    let (advert, from, to) = advert(false);
    let rounds = [
        KEY.to_owned(),
        format!("{KEY}\n{OTHER}"),
        format!("{OTHER}\n{KEY}"),
        OTHER.to_owned(),
    ];
    for pair in rounds.windows(2) {
        for (one, other) in [(0, 1), (1, 0), (1, 1)] {
            let sent =
                signer(&pair[one], Mode::Enforce).sign(advert.encode(from, to), from, to, NOW);
            let read = signer(&pair[other], Mode::Enforce)
                .verify(&sent, from, to, NOW)
                .map(drop);
            assert_eq!(read, Ok(()), "{pair:?} {one} {other}");
        }
    }
}

#[test]
fn senders_without_a_key_fill_no_table() {
    let (advert, _, to) = advert(false);
    let mut receiver = signer(KEY, Mode::Enforce);
    for last in 0..=255 {
        let from = v4(last);
        let forged = signer(OTHER, Mode::Enforce).sign(advert.encode(from, to), from, to, NOW);
        assert!(receiver.verify(&forged, from, to, NOW).is_err());
        assert!(receiver.senders.is_empty());
        let sent = signer(KEY, Mode::Enforce).sign(advert.encode(from, to), from, to, NOW);
        drop(
            signer(KEY, Mode::Enforce)
                .verify(&sent, from, to, NOW)
                .unwrap(),
        );
    }
    for last in 0..=255 {
        let from = v4(last);
        let sent = signer(KEY, Mode::Enforce).sign(advert.encode(from, to), from, to, NOW);
        assert!(receiver.verify(&sent, from, to, NOW).is_ok());
    }
    assert_eq!(receiver.senders.len(), MOST_SENDERS);
}

#[test]
fn key_files_are_read_or_refused_without_telling_what_is_in_them() {
    let keys = Keys::parse(&format!("# the new one signs\n\n  {OTHER}\n{KEY}\n")).unwrap();
    assert_eq!(format!("{keys:?}"), "[2, 1]");
    let secret = "0123456789abcdef0123456789abcdef";
    for (text, says) in [
        ("", "no key in it"),
        ("# nothing", "no key in it"),
        (secret, "line 1: write the number"),
        (&format!("0 {secret}"), "line 1: write the number"),
        (&format!("256 {secret}"), "line 1: write the number"),
        (&format!("1 hex:{secret}0"), "line 1: write the number"),
        (&format!("1 hex:{secret}"), "this one has 16"),
        (
            "\n1 short",
            "line 2: a key has 32 to 64 bytes, this one has 5",
        ),
        (
            &format!("{KEY}\n{KEY}"),
            "line 2: there is a key with that number",
        ),
    ] {
        let error = Keys::parse(text).unwrap_err().to_string();
        assert!(error.contains(says), "{text:?}: {error}");
        assert!(!error.contains(secret), "{error}");
    }
}

#[test]
fn nothing_that_comes_in_is_too_short_or_too_long() {
    let (advert, from, to) = advert(false);
    let sent = signer(KEY, Mode::Enforce).sign(advert.encode(from, to), from, to, NOW);
    for length in 0..sent.len() {
        let read = signer(KEY, Mode::Enforce).verify(&sent[..length], from, to, NOW);
        assert_eq!(read.err(), Some(Unproven::Unsigned), "{length}");
    }
    let longer = [&sent[..], &[0]].concat();
    let read = signer(KEY, Mode::Enforce).verify(&longer, from, to, NOW);
    assert_eq!(read.err(), Some(Unproven::Unsigned));
}
