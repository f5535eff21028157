use super::*;
use crate::community::Communities;
use ipnet::IpNet;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn nets(texts: &[&str]) -> BTreeSet<IpNet> {
    texts.iter().map(|text| net(text)).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn message(kind: u8, body: &str) -> Vec<u8> {
    frame(kind, &hex(body))
}

fn update(body: &str) -> Update {
    match Message::decode(&message(UPDATE, body), true) {
        Ok(Message::Update(update)) => update,
        other => panic!("{other:?}"),
    }
}

fn wrong(kind: u8, body: &str) -> (u8, u8) {
    let notification = Message::decode(&message(kind, body), true).unwrap_err();
    (notification.code, notification.subcode)
}

#[test]
fn a_keepalive_is_a_header() {
    assert_eq!(keepalive(), hex("ffffffffffffffffffffffffffffffff 0013 04"));
    assert_eq!(Message::decode(&keepalive(), true), Ok(Message::Keepalive));
}

/// RFC 4271 section 6.1.
#[test]
fn headers_that_are_wrong() {
    let marker = "ffffffffffffffffffffffffffffffff";
    for (bytes, expected) in [
        (format!("fe{} 0013 04", &marker[2..]), (1, 1)),
        (format!("{marker} 0012 04"), (1, 2)),
        (format!("{marker} 0014 04 00"), (1, 2)),
        (format!("{marker} 1001 02"), (1, 2)),
        (format!("{marker} 001c 01"), (1, 2)),
        (format!("{marker} 0013 09"), (1, 3)),
        (format!("{marker} 0013 00"), (1, 3)),
        ("ffff00".to_owned(), (1, 1)),
    ] {
        let notification = length(&hex(&bytes)).unwrap_err();
        assert_eq!(
            (notification.code, notification.subcode),
            expected,
            "{bytes}"
        );
    }
}

#[test]
fn a_message_has_to_be_whole() {
    let whole = keepalive();
    for count in 0..whole.len() {
        assert_eq!(length(&whole[..count]), Ok(None));
    }
    assert_eq!(length(&[whole.clone(), whole].concat()), Ok(Some(19)));
}

fn ours() -> Open {
    let restart = GracefulRestart {
        restarted: true,
        time: 120,
        families: vec![(AfiSafi::Ipv4Unicast, true), (AfiSafi::Ipv6Unicast, false)],
    };
    Open {
        asn: 4_200_000_001,
        hold_time: 90,
        router_id: Ipv4Addr::new(192, 0, 2, 1),
        capabilities: vec![
            Capability::Multiprotocol(AfiSafi::Ipv4Unicast),
            Capability::Multiprotocol(AfiSafi::Ipv6Unicast),
            Capability::RouteRefresh,
            Capability::FourOctetAs(4_200_000_001),
            Capability::Ipv4ByIpv6,
            Capability::GracefulRestart(restart),
            Capability::Other {
                code: 73,
                value: vec![1, 2, 3],
            },
        ],
    }
}

#[test]
fn an_open_as_it_is_sent() {
    let expected = "04 5ba0 005a c0000201 2f 02 2d
        01 04 0001 00 01   01 04 0002 00 01   02 00   41 04 fa56ea01   05 06 0001 0001 0002
        40 0a 8078 0001 01 80 0002 01 00   49 03 010203";
    assert_eq!(ours().encode(), message(OPEN, expected));
    assert_eq!(
        Message::decode(&ours().encode(), true),
        Ok(Message::Open(ours()))
    );
}

#[test]
fn an_open_of_old_has_no_capabilities() {
    let open = Open {
        asn: 64512,
        hold_time: 180,
        router_id: Ipv4Addr::new(10, 0, 0, 1),
        capabilities: vec![],
    };
    assert_eq!(open.encode(), message(OPEN, "04 fc00 00b4 0a000001 00"));
    assert_eq!(
        Message::decode(&open.encode(), true),
        Ok(Message::Open(open))
    );
}

/// RFC 9072: lengths of two octets, whether they are needed or not.
#[test]
fn long_parameters_are_read() {
    let body = "04 fc00 00b4 0a000001 ff ff 000e   02 0006 0104 0001 0001   02 0002 0200";
    let Ok(Message::Open(open)) = Message::decode(&message(OPEN, body), true) else {
        panic!()
    };
    assert_eq!(
        open.capabilities,
        [
            Capability::Multiprotocol(AfiSafi::Ipv4Unicast),
            Capability::RouteRefresh
        ]
    );
}

/// RFC 4271 section 6.2.
#[test]
fn opens_that_are_wrong() {
    for (body, expected) in [
        ("03 fc00 00b4 0a000001 00", (2, 1)),
        ("04 fc00 00b4 0a000001 04 01 02 0000", (2, 4)),
        ("04 fc00 00b4 0a000001 05 02 02 0200", (2, 0)),
        ("04 fc00 00b4 0a000001 04 02 03 0200", (2, 0)),
        ("04 fc00 00b4 0a000001 04 02 02 0201", (2, 0)),
        ("04 fc00 00b4 0a000001 00 00", (2, 0)),
        ("04 fc00 00b4 0a000001 ff ff 0005 02 0006", (2, 0)),
    ] {
        assert_eq!(wrong(OPEN, body), expected, "{body}");
    }
}

#[test]
fn a_notification_says_what_it_means() {
    let plain = Notification::new(code::OPEN, 2);
    assert_eq!(
        plain.to_string(),
        "the AS number is not the one expected (notification 2/2)"
    );
    let farewell = Notification::cease(cease::SHUTDOWN, "night shift\n\u{1b}[31m");
    assert_eq!(
        farewell.to_string(),
        "shut down by its operator (notification 6/2): \"night shift  [31m\""
    );
    assert_eq!(
        Message::decode(&farewell.encode(), true),
        Ok(Message::Notification(farewell))
    );
    let cut = Notification::with(code::CEASE, cease::SHUTDOWN, vec![200, b'x']);
    assert_eq!(
        cut.to_string(),
        "shut down by its operator (notification 6/2)"
    );
}

#[test]
fn refreshes_of_known_families_only() {
    assert_eq!(
        Message::decode(&route_refresh(AfiSafi::Ipv6Unicast), true),
        Ok(Message::RouteRefresh(Some(AfiSafi::Ipv6Unicast)))
    );
    for other in ["0001 00 02", "0019 00 46", "0001 01 01"] {
        assert_eq!(
            Message::decode(&message(ROUTE_REFRESH, other), true),
            Ok(Message::RouteRefresh(None))
        );
    }
}

fn path() -> Path {
    let communities = Communities::parse(["64512:100", "64512:1:2"]).unwrap();
    Path {
        as_path: vec![4_200_000_001],
        local_preference: None,
        communities,
    }
}

#[test]
fn ipv4_goes_into_the_body() {
    let (bytes, told) = announce(
        AfiSafi::Ipv4Unicast,
        IpAddr::from([192, 0, 2, 1]),
        &path(),
        true,
        &mut nets(&["203.0.113.0/24", "203.0.113.10/32", "0.0.0.0/0"]),
    );
    let attributes = "40 01 01 00   40 02 06 02 01 fa56ea01   40 03 04 c0000201   c0 08 04 fc000064
        c0 20 0c 0000fc00 00000001 00000002";
    let expected = format!("0000 002a {attributes} 00 18cb0071 20cb00710a");
    assert_eq!(bytes, message(UPDATE, &expected));
    assert_eq!(told.len(), 3);
    let Ok(Message::Update(update)) = Message::decode(&bytes, true) else {
        panic!()
    };
    assert_eq!(update.path, path());
    assert_eq!(
        update.reached,
        [Reached {
            next_hop: IpAddr::from([192, 0, 2, 1]),
            prefixes: told
        }]
    );
    assert_eq!(
        (update.withdrawn.len(), update.end_of_rib, update.flaw),
        (0, None, None)
    );
}

#[test]
fn a_peer_of_two_octets_learns_the_long_number_beside() {
    let (bytes, _) = announce(
        AfiSafi::Ipv4Unicast,
        IpAddr::from([192, 0, 2, 1]),
        &path(),
        false,
        &mut nets(&["10.0.0.0/8"]),
    );
    let Ok(Message::Update(update)) = Message::decode(&bytes, false) else {
        panic!()
    };
    assert_eq!(update.path.as_path, [4_200_000_001]);
    assert!(
        bytes
            .windows(7)
            .any(|part| part == hex("40 02 04 02 01 5ba0"))
    );
    let short = Path {
        as_path: vec![64512],
        ..Path::default()
    };
    let (bytes, _) = announce(
        AfiSafi::Ipv4Unicast,
        IpAddr::from([192, 0, 2, 1]),
        &short,
        false,
        &mut nets(&["10.0.0.0/8"]),
    );
    assert!(bytes.len() < 50, "no AS4_PATH where it says nothing");
}

#[test]
fn ipv6_and_ipv4_by_ipv6_go_into_an_attribute() {
    let hop = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let internal = Path {
        as_path: vec![],
        local_preference: Some(250),
        communities: Communities::default(),
    };
    for (family, prefix) in [
        (AfiSafi::Ipv6Unicast, "2001:db8:5::10/128"),
        (AfiSafi::Ipv4Unicast, "203.0.113.10/32"),
    ] {
        let (bytes, told) = announce(family, hop, &internal, true, &mut nets(&[prefix]));
        assert_eq!(told, [net(prefix)]);
        assert_eq!(bytes[HEADER + 4..][..2], [0x90, 14], "it comes first");
        let Ok(Message::Update(update)) = Message::decode(&bytes, true) else {
            panic!()
        };
        assert_eq!(
            update.reached,
            [Reached {
                next_hop: hop,
                prefixes: told
            }]
        );
        assert_eq!(update.path, internal);
    }
}

#[test]
fn withdrawals_and_ends() {
    for (family, prefix) in [
        (AfiSafi::Ipv4Unicast, "203.0.113.10/32"),
        (AfiSafi::Ipv6Unicast, "2001:db8:5::10/128"),
    ] {
        let (bytes, told) = withdraw(family, &mut nets(&[prefix]));
        let Ok(Message::Update(update)) = Message::decode(&bytes, true) else {
            panic!()
        };
        assert_eq!((update.withdrawn, update.end_of_rib), (told, None));
        let Ok(Message::Update(update)) = Message::decode(&end_of_rib(family), true) else {
            panic!()
        };
        assert_eq!(
            (update.withdrawn.len(), update.end_of_rib),
            (0, Some(family))
        );
    }
    assert_eq!(
        end_of_rib(AfiSafi::Ipv4Unicast),
        message(UPDATE, "0000 0000")
    );
    assert_eq!(
        end_of_rib(AfiSafi::Ipv6Unicast),
        message(UPDATE, "0000 0006 80 0f 03 0002 01")
    );
}

const GOOD: &str = "40 01 01 00  40 02 00  40 03 04 c0000201";

/// RFC 7606: the session lives, the routes do not.
#[test]
fn flaws_that_cost_only_the_routes() {
    let cases = [
        ("40 01 01 03  40 02 00  40 03 04 c0000201", "a wrong ORIGIN"),
        (
            "40 01 01 00  40 02 02 0201  40 03 04 c0000201",
            "a wrong AS_PATH",
        ),
        (
            "40 01 01 00  40 02 02 0200  40 03 04 c0000201",
            "a wrong AS_PATH",
        ),
        (
            "40 01 01 00  40 02 06 0901 00000001  40 03 04 c0000201",
            "a wrong AS_PATH",
        ),
        ("40 01 01 00  40 02 00  40 03 03 c00002", "a wrong NEXT_HOP"),
        ("40 01 01 00  40 02 00", "no NEXT_HOP"),
        (
            "40 02 00  40 03 04 c0000201",
            "a mandatory attribute is missing",
        ),
        (
            "c0 01 01 00  40 02 00  40 03 04 c0000201",
            "an attribute has wrong flags",
        ),
        (
            "40 01 01 00  40 02 00  40 03 04 c0000201 c0 08 03 000001",
            "wrong COMMUNITIES",
        ),
        (
            "40 01 01 00  40 02 00  40 03 04 c0000201 c0 08 00",
            "wrong COMMUNITIES",
        ),
        (
            "40 01 01 00  40 02 00  40 03 04 c0000201 c0 20 04 00000001",
            "wrong LARGE_COMMUNITIES",
        ),
        (
            "40 01 01 00  40 02 00  40 03 04 c0000201 80 04 01 00",
            "a wrong MULTI_EXIT_DISC",
        ),
        (
            "40 01 01 00  40 02 00  40 03 04 c0000201 40 05 01 00",
            "a wrong LOCAL_PREF",
        ),
        (
            "40 01 01 00  40 02 00  40 03 04 c0000201 c0 08 ff",
            "an attribute is longer than the attributes are",
        ),
    ];
    for (attributes, flaw) in cases {
        let length = hex(attributes).len();
        let update = update(&format!("0000 {length:04x} {attributes} 20cb00710a"));
        assert_eq!(update.flaw, Some(flaw), "{attributes}");
        assert_eq!(
            (update.withdrawn, update.reached),
            (vec![net("203.0.113.10/32")], vec![])
        );
    }
}

#[test]
fn flaws_that_cost_the_session() {
    let with = |attributes: &str, rest: &str| {
        format!("0000 {:04x} {attributes} {rest}", hex(attributes).len())
    };
    for (body, subcode) in [
        ("0005 20cb0071".to_owned(), 1),
        ("0000 0005 40".to_owned(), 1),
        ("0002 21cb 0000".to_owned(), 10),
        (with(GOOD, "21cb00710a00"), 10),
        (with(GOOD, "20cb0071"), 10),
        (with("40 63 00", ""), 2),
        (with("80 0e 02 0002", ""), 9),
        (with("80 0e 08 0002 01 03 aabbcc 00", ""), 9),
        (with("80 0f 04 0002 01 81", ""), 9),
        (with("80 0f 03 0002 01 80 0f 03 0002 01", ""), 1),
    ] {
        assert_eq!(wrong(UPDATE, &body), (3, subcode), "{body}");
    }
}

#[test]
fn what_we_do_not_know_is_left_alone() {
    let attributes =
        format!("{GOOD} c0 63 01 00  80 0e 09 0019 46 04 c0000201 00  40 06 00  c0 07 01 00");
    let update = update(&format!(
        "0000 {:04x} {attributes} 10cb00",
        hex(&attributes).len()
    ));
    assert_eq!((update.flaw, update.reached.len()), (None, 1));
    assert_eq!(update.reached[0].prefixes, [net("203.0.0.0/16")]);
}

#[test]
fn bits_behind_a_prefix_mean_nothing() {
    let update = update(&format!("0000 {:04x} {GOOD} 17cb0071", hex(GOOD).len()));
    assert_eq!(update.reached[0].prefixes, [net("203.0.112.0/23")]);
}

fn any_net() -> impl Strategy<Value = IpNet> {
    let v4 = (any::<u32>(), 0..=32_u8).prop_map(|(bits, length)| (IpAddr::V4(bits.into()), length));
    let v6 =
        (any::<u128>(), 0..=128_u8).prop_map(|(bits, length)| (IpAddr::V6(bits.into()), length));
    prop_oneof![v4, v6].prop_map(|(address, length)| IpNet::new(address, length).unwrap().trunc())
}

fn any_path() -> impl Strategy<Value = Path> {
    let small = proptest::collection::btree_set(any::<u32>(), 0..=100);
    let large = proptest::collection::btree_set(any::<[u32; 3]>(), 0..=100);
    let as_path = proptest::collection::vec(any::<u32>(), 0..4);
    (as_path, any::<Option<u32>>(), small, large).prop_map(
        |(as_path, local_preference, small, large)| Path {
            as_path,
            local_preference,
            communities: Communities {
                small: small.into_iter().map(crate::Community).collect(),
                large: large.into_iter().map(crate::LargeCommunity).collect(),
            },
        },
    )
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(body: Vec<u8>, kind in 0..7_u8, four: bool) {
        let bytes = frame(kind, &body);
        if bytes.len() <= LARGEST {
            let _ = Message::decode(&bytes, four);
        }
        let _ = length(&body);
        let _ = Message::decode(&body, four);
    }

    #[test]
    fn damaged_messages_are_read_or_refused(
        prefixes in proptest::collection::btree_set(any_net(), 1..20),
        path in any_path(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (v4, v6): (BTreeSet<IpNet>, BTreeSet<IpNet>) = prefixes.into_iter().partition(|net| net.addr().is_ipv4());
        let hop = IpAddr::V6(Ipv6Addr::LOCALHOST);
        for (family, mut nets) in [(AfiSafi::Ipv4Unicast, v4), (AfiSafi::Ipv6Unicast, v6)] {
            let (mut bytes, _) = announce(family, hop, &path, true, &mut nets);
            for (at, value) in &damage {
                let at = at.index(bytes.len() - HEADER) + HEADER;
                bytes[at] = *value;
            }
            if let Ok(Message::Update(update)) = Message::decode(&bytes, true) {
                // No more comes out than went in.
                let count: usize = update.reached.iter().map(|reached| reached.prefixes.len()).sum();
                prop_assert!(count + update.withdrawn.len() <= LARGEST);
            }
        }
    }

    /// Whatever is announced is heard, in messages that are short enough, and each prefix once.
    #[test]
    fn what_is_packed_is_unpacked(
        prefixes in proptest::collection::btree_set(any_net(), 0..2000),
        path in any_path(),
        four: bool,
        by_v6: bool,
    ) {
        let (v4, v6): (BTreeSet<IpNet>, BTreeSet<IpNet>) = prefixes.iter().partition(|net| net.addr().is_ipv4());
        let v6_hop = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let v4_hop = if by_v6 { v6_hop } else { IpAddr::from([192, 0, 2, 1]) };
        let mut heard = BTreeSet::new();
        let mut gone = BTreeSet::new();
        for (family, hop, all) in [(AfiSafi::Ipv4Unicast, v4_hop, v4), (AfiSafi::Ipv6Unicast, v6_hop, v6)] {
            let mut left = all.clone();
            while !left.is_empty() {
                let (bytes, told) = announce(family, hop, &path, four, &mut left);
                prop_assert!(bytes.len() <= LARGEST && !told.is_empty());
                let Ok(Message::Update(update)) = Message::decode(&bytes, four) else { panic!() };
                prop_assert_eq!(update.flaw, None);
                prop_assert_eq!(&update.path, &path);
                prop_assert!(update.reached.iter().all(|reached| reached.next_hop == hop));
                for net in update.reached.into_iter().flat_map(|reached| reached.prefixes) {
                    prop_assert!(heard.insert(net));
                }
            }
            let mut left = all;
            while !left.is_empty() {
                let (bytes, _) = withdraw(family, &mut left);
                prop_assert!(bytes.len() <= LARGEST);
                let Ok(Message::Update(update)) = Message::decode(&bytes, four) else { panic!() };
                gone.extend(update.withdrawn);
            }
        }
        prop_assert_eq!(&heard, &prefixes);
        prop_assert_eq!(&gone, &prefixes);
    }
}
