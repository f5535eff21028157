//! What is written can be read, and whatever is read does no harm.

use super::*;
use crate::ipvs::server::{At, Destination, Settings};
use crate::ipvs::sets::{Entry, Set};
use crate::netlink::{Message, Messages, messages};
use proptest::prelude::*;

fn only(m: &Messages) -> Message<'_> {
    let mut all = messages(m.bytes());
    let first = all.next().unwrap();
    assert!(all.next().is_none());
    first
}

fn at(text: &str, protocol: Protocol) -> At {
    let socket: std::net::SocketAddr = text.parse().unwrap();
    At {
        address: socket.ip(),
        port: socket.port(),
        protocol,
    }
}

#[test]
fn a_virtual_server_and_its_endpoints() {
    let requests = server::Requests { subsystem: 33 };
    for (text, endpoint) in [
        ("10.96.0.1:80", "10.244.0.1:8080"),
        ("[fd00:10:96::1]:80", "[fd00:10:244::1]:8080"),
    ] {
        for (protocol, affinity) in [
            (Protocol::Tcp, None),
            (Protocol::Udp, Some(60)),
            (Protocol::Sctp, None),
        ] {
            let (at, settings) = (at(text, protocol), Settings::new(&"mh".into(), affinity));
            let mut m = Messages::new();
            requests.add_server(&mut m, at, &settings);
            assert_eq!(only(&m).kind, 33);
            assert_eq!(server::parse_server(&only(&m)), Some((at, settings)));
            let (mut m, endpoint) = (Messages::new(), endpoint.parse().unwrap());
            requests.weigh(&mut m, at, endpoint, 7);
            let found = server::parse_destination(&only(&m), at.family());
            assert_eq!(found, Some(Destination::idle(endpoint, 7)));
        }
    }
}

#[test]
fn a_server_that_is_found_by_a_mark_is_not_ours() {
    let mut m = Messages::new();
    server::Requests { subsystem: 33 }.add_probe(&mut m, "rr");
    assert_eq!(server::parse_server(&only(&m)), None);
}

#[test]
fn entries_of_sets() {
    let (v4, v6) = (
        at("10.96.0.1:80", Protocol::Sctp),
        at("[fd00:10:96::1]:53", Protocol::Udp),
    );
    let table = [
        (Set::ClusterIp, Entry::At(v4)),
        (Set::ClusterIp, Entry::At(v6)),
        (
            Set::Sources,
            Entry::Source(v4, "10.0.0.0/8".parse().unwrap()),
        ),
        (
            Set::Sources,
            Entry::Source(v6, "2001:db8::/32".parse().unwrap()),
        ),
        (Set::LoopBack, Entry::Loop(v4)),
        (Set::LoopBack, Entry::Loop(v6)),
        (Set::HealthCheck, Entry::Port(Family::V4, 30000)),
        (Set::HealthCheck, Entry::Port(Family::V6, 65535)),
        (Set::Bound, Entry::Address(v4.address)),
        (Set::Leaving, Entry::Address(v6.address)),
    ];
    for (set, entry) in table {
        let mut m = Messages::new();
        set::add(&mut m, set.name(entry.family()), &[entry, entry]);
        assert_eq!(
            set::parse_name(&only(&m)).as_deref(),
            Some(set.name(entry.family()))
        );
        let part = set::parse_part(&only(&m), set, entry.family()).unwrap();
        assert_eq!(
            part,
            set::Part {
                as_made: None,
                entries: vec![entry, entry]
            }
        );
    }
}

#[test]
fn many_entries_are_several_messages() {
    let entries: Vec<Entry> = (0..=u16::MAX)
        .map(|port| {
            Entry::At(At {
                port,
                ..at("[fd00::1]:1", Protocol::Tcp)
            })
        })
        .collect();
    let mut m = Messages::new();
    set::add(&mut m, "KUBE-6-CLUSTER-IP", &entries);
    assert!(!m.oversized());
    let parts = messages(m.bytes())
        .filter_map(|message| set::parse_part(&message, Set::ClusterIp, Family::V6));
    assert_eq!(
        parts.flat_map(|part| part.entries).collect::<Vec<_>>(),
        entries
    );
}

#[test]
fn a_set_is_known_by_how_it_was_made() {
    let made = |most| {
        let mut m = Messages::new();
        set::create(&mut m, "KUBE-CLUSTER-IP", Set::ClusterIp, Family::V4, most);
        m
    };
    for (most, room) in [(set::USUAL, true), (set::LARGE, true), (1000, false)] {
        let part = set::parse_part(&only(&made(most)), Set::ClusterIp, Family::V4);
        assert_eq!(part.unwrap().as_made, Some(room), "{most}");
    }
    let m = made(set::USUAL);
    let as_made = |set, family| set::parse_part(&only(&m), set, family).unwrap().as_made;
    assert_eq!(as_made(Set::ClusterIp, Family::V6), Some(false));
    assert_eq!(as_made(Set::LoopBack, Family::V4), Some(false));
}

#[test]
fn errors_of_sets_are_words() {
    let full = set::explain(std::io::Error::from_raw_os_error(4352));
    assert_eq!(full.to_string(), "the set is full");
    assert_eq!(
        set::explain(std::io::Error::from_raw_os_error(libc::EPERM)).raw_os_error(),
        Some(libc::EPERM)
    );
}

#[test]
fn addresses_of_the_link() {
    for text in ["10.96.0.1", "fd00:10:96::1"] {
        let mut m = Messages::new();
        link::bind(&mut m, 7, text.parse().unwrap());
        assert_eq!(
            link::parse_address(&only(&m)),
            Some((7, text.parse().unwrap()))
        );
    }
    assert_eq!(link::parse_link(&only(&link::create())), Some(0));
}

proptest! {
    #[test]
    fn any_bytes_do_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 16..400), fits in any::<bool>()) {
        if fits {
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
        }
        for message in messages(&bytes) {
            server::parse_server(&message);
            server::parse_destination(&message, Family::V4);
            set::parse_name(&message);
            link::parse_link(&message);
            link::parse_address(&message);
            for set in Set::ALL {
                set::parse_part(&message, set, Family::V6);
            }
        }
    }
}
