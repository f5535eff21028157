use super::*;
use proptest::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

struct Captured {
    name: &'static str,
    to: &'static str,
    hex: &'static str,
    advert: Advert,
}

/// What keepalived 2.2.7 sends, as it was seen on the link. The last is RFC 9568's: without a
/// pseudo header.
fn captured() -> Vec<Captured> {
    let v2 = |millis, addresses: &[&str], password| Advert {
        version: Version::V2,
        vrid: 59,
        priority: 150,
        interval: Duration::from_millis(millis),
        addresses: addresses.iter().map(|text| ip(text)).collect(),
        password,
    };
    let v3 = |millis, addresses| Advert {
        version: Version::V3,
        ..v2(millis, addresses, None)
    };
    vec![
        Captured {
            name: "version 2, two addresses",
            to: "224.0.0.18",
            hex: "213b 9602 0001 c44c c000023a c0000239 00000000 00000000",
            advert: v2(1000, &["192.0.2.58", "192.0.2.57"], None),
        },
        Captured {
            name: "version 2, password",
            to: "224.0.0.18",
            hex: "213b 9601 0102 496c c000023a 73336372 65740000",
            advert: v2(2000, &["192.0.2.58"], Some(*b"s3cret\0\0")),
        },
        Captured {
            name: "version 3",
            to: "224.0.0.18",
            hex: "313b 9601 0019 d3d8 c000023a",
            advert: v3(250, &["192.0.2.58"]),
        },
        Captured {
            name: "version 3, to a peer",
            to: "192.0.2.8",
            hex: "313b 9601 0019 f1e2 c000023a",
            advert: v3(250, &["192.0.2.58"]),
        },
        Captured {
            name: "version 3, IPv6",
            to: "ff02::12",
            hex: "313b 9602 0032 0d71 fe80 0000 0000 0000 0000 0000 0000 0058 2001 0db8 0000 0000 \
                  0000 0000 0000 0058",
            advert: v3(500, &["fe80::58", "2001:db8::58"]),
        },
    ]
}

fn from(to: &str) -> IpAddr {
    if ip(to).is_ipv4() {
        ip("192.0.2.7")
    } else {
        ip("fe80::7")
    }
}

#[test]
fn what_keepalived_sends_is_read_and_written() {
    for Captured {
        name,
        to,
        hex,
        advert,
    } in captured()
    {
        assert_eq!(
            Advert::decode(&bytes(hex), from(to), ip(to)),
            Ok(advert.clone()),
            "{name}"
        );
        assert_eq!(advert.encode(from(to), ip(to)), bytes(hex), "{name}");
    }
}

#[test]
fn version_3_over_ipv4_is_read_however_it_was_summed() {
    let advert = &captured()[3].advert;
    let (peer, from) = (ip("192.0.2.8"), ip("192.0.2.7"));
    let to_the_group = advert.encode(from, GROUP_V4.into());
    assert!(Advert::decode(&to_the_group, from, peer).is_ok());
    let without_pseudo_header = bytes("313b 9601 0019 766f c000023a");
    assert_eq!(
        Advert::decode(&without_pseudo_header, from, peer).as_ref(),
        Ok(advert)
    );
    let to_another = advert.encode(from, ip("192.0.2.9"));
    assert!(matches!(
        Advert::decode(&to_another, from, peer),
        Err(Malformed::Checksum(_))
    ));
}

#[test]
fn what_is_wrong_is_named() {
    use Malformed::*;
    let (from, to) = (ip("192.0.2.7"), ip("224.0.0.18"));
    let cases = [
        ("", Length { have: 0, need: 8 }),
        ("313b 9601 0019", Length { have: 6, need: 8 }),
        ("313b 9601 0019 d3d8", Length { have: 8, need: 12 }),
        (
            "313b 9601 0019 d3d8 c000023a 00",
            Length { have: 13, need: 12 },
        ),
        (
            "213b 9601 0001 0000 c000023a",
            Length { have: 12, need: 20 },
        ),
        ("113b 9601 0019 d3d8 c000023a", Version(1)),
        ("323b 9601 0019 d3d8 c000023a", Type(2)),
        ("313b 9601 0019 d3d9 c000023a", Checksum(0xd3d9)),
        (
            "213b 9601 0102 496c c000023a 73336372 65740001",
            Checksum(0x496c),
        ),
        ("313b 9601 0000 7688 c000023a", Interval),
        ("313b 9600 0019 38ab", NoAddress),
    ];
    for (hex, wrong) in cases {
        assert_eq!(Advert::decode(&bytes(hex), from, to), Err(wrong), "{hex}");
    }
    let mut authentication = bytes("213b 9601 0102 496c c000023a 73336372 65740000");
    (authentication[4], authentication[6]) = (2, 0x48);
    assert_eq!(
        Advert::decode(&authentication, from, to),
        Err(Authentication(2))
    );
    let version_2 = bytes("213b 9601 0102 496c c000023a 73336372 65740000");
    assert_eq!(
        Advert::decode(&version_2, ip("fe80::7"), GROUP_V6.into()),
        Err(Family)
    );
}

#[test]
fn intervals_are_what_can_be_told() {
    let millis = Duration::from_millis;
    for (version, wanted, told) in [
        (Version::V2, millis(0), millis(1000)),
        (Version::V2, millis(1001), millis(2000)),
        (Version::V2, millis(1_000_000), millis(255_000)),
        (Version::V3, millis(0), millis(10)),
        (Version::V3, millis(101), millis(110)),
        (Version::V3, millis(100), millis(100)),
        (Version::V3, millis(1_000_000), millis(40_950)),
    ] {
        assert_eq!(version.interval(wanted), told, "{version:?} {wanted:?}");
    }
}

fn adverts() -> impl Strategy<Value = (Advert, IpAddr, IpAddr)> {
    let v4 = || any::<[u8; 4]>().prop_map(IpAddr::from);
    let v6 = || any::<[u8; 16]>().prop_map(IpAddr::from);
    let in_v4 = (proptest::collection::vec(v4(), 1..256), v4(), v4());
    let in_v6 = (proptest::collection::vec(v6(), 1..256), v6(), v6());
    let version_2 = (in_v4.clone(), 1..256u64, any::<Option<[u8; 8]>>()).prop_map(
        |(places, seconds, password)| (places, Version::V2, Duration::from_secs(seconds), password),
    );
    let version_3 = (prop_oneof![in_v4, in_v6], 1..4096u64).prop_map(|(places, centis)| {
        (
            places,
            Version::V3,
            Duration::from_millis(centis * 10),
            None,
        )
    });
    (prop_oneof![version_2, version_3], any::<u8>(), any::<u8>()).prop_map(
        |(((addresses, from, to), version, interval, password), vrid, priority)| {
            (
                Advert {
                    version,
                    vrid,
                    priority,
                    interval,
                    addresses,
                    password,
                },
                from,
                to,
            )
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read((advert, from, to) in adverts()) {
        prop_assert_eq!(Advert::decode(&advert.encode(from, to), from, to), Ok(advert));
    }

    #[test]
    fn any_bytes_are_an_advert_or_are_refused(payload in proptest::collection::vec(any::<u8>(), 0..80), v6 in any::<bool>()) {
        let from = if v6 { ip("fe80::7") } else { ip("192.0.2.7") };
        let _ = Advert::decode(&payload, from, group(from));
    }

    /// A sum of words does not see words that are swapped, but every single bit.
    #[test]
    fn a_flipped_bit_is_seen((advert, from, to) in adverts(), bit in any::<prop::sample::Index>()) {
        prop_assume!(advert.version == Version::V2 || from.is_ipv6()); // where one sum alone is right
        let mut payload = advert.encode(from, to);
        let bit = bit.index(payload.len() * 8);
        payload[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Advert::decode(&payload, from, to).is_err());
    }
}
