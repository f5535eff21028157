//! What reads packets, answers of the kernel and objects of the API from bytes: one function for
//! each fuzz target. `tests/fuzz/corpus.rs` runs the same functions over the corpus with the stable
//! compiler.
//!
//! A function says how many ways of reading took the bytes, so that a corpus whose bytes nothing
//! takes is noticed. Any panic is a failure.

use portico_api::codec::{conform, json, proto};
use portico_api::schema::schema;
use portico_bgp::message::{self, Message};
use portico_dataplane::link::rtnetlink;
use portico_dataplane::netlink::messages;
use portico_dataplane::parsers;
use portico_dns::answer::{self, Incoming, Transport};
use portico_l2::Heartbeat;
use portico_l2::frame::{arp, ndp};
use portico_vrrp::Advert;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One target: its name, which is its folder in the corpus, and what is tried.
pub type Target = (&'static str, fn(&[u8]) -> usize);

pub const TARGETS: [Target; 8] = [
    ("bgp", bgp),
    ("dns", dns),
    ("heartbeat", heartbeat),
    ("json", json_object),
    ("neighbours", neighbours),
    ("netlink", netlink),
    ("protobuf", protobuf_object),
    ("vrrp", vrrp),
];

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The type that has the most in it.
const TYPE: &str = "Service";

/// Messages of a BGP peer as they come out of its connection, one after the other.
pub fn bgp(mut bytes: &[u8]) -> usize {
    let mut taken = 0;
    while let Ok(Some(length)) = message::length(bytes) {
        let Some((one, rest)) = bytes.split_at_checked(length).filter(|_| length > 0) else {
            break;
        };
        for four_octets in [false, true] {
            taken += usize::from(Message::decode(one, four_octets).is_ok());
        }
        bytes = rest;
    }
    taken
}

/// A message that somebody sends to the DNS server, and the shortest answer to it.
pub fn dns(bytes: &[u8]) -> usize {
    if !answer::is_question(bytes) {
        return 0;
    }
    match answer::read(bytes) {
        Incoming::Noise => 0,
        Incoming::Mistake(reply) => {
            let _ = answer::write(*reply, 512, Transport::Udp);
            0
        }
        Incoming::Question(message) | Incoming::Transfer(message) => {
            let room = answer::room(&message, Transport::Udp);
            usize::from(answer::write(answer::reply(&message), room, Transport::Udp).is_some())
        }
    }
}

/// What nodes tell each other of who has which address.
pub fn heartbeat(bytes: &[u8]) -> usize {
    usize::from(Heartbeat::parse(bytes).is_ok())
}

/// A packet of ARP or of neighbour discovery, without its link header, and the answer to it.
pub fn neighbours(bytes: &[u8]) -> usize {
    let packet = arp::Packet::parse(bytes);
    if let Some(packet) = packet {
        let _ = (packet.claim(), packet.is_question(), packet.answer(MAC));
    }
    let message = ndp::Message::parse(bytes);
    if let Some(message) = message {
        let _ = (message.claim(), message.answer(MAC, MAC));
    }
    usize::from(packet.is_some()) + usize::from(message.is_some())
}

/// Answers and notices of the kernel.
pub fn netlink(bytes: &[u8]) -> usize {
    let of_links = messages(bytes).map(|message| {
        let found = [
            rtnetlink::link(&message).is_some(),
            rtnetlink::address(&message).is_some(),
            rtnetlink::is_local(&message).is_some(),
        ];
        found.into_iter().filter(|is| *is).count()
    });
    parsers::understood(bytes) + of_links.sum::<usize>()
}

/// The body of a request in JSON, brought into the form of its type.
pub fn json_object(bytes: &[u8]) -> usize {
    let Ok((object, _)) = json::parse(bytes) else {
        return 0;
    };
    usize::from(conform(schema(), TYPE, object).is_ok())
}

/// The body of a request in protobuf.
pub fn protobuf_object(bytes: &[u8]) -> usize {
    usize::from(proto::decode(schema(), TYPE, bytes).is_ok())
}

/// A VRRP advert, as if it had come from two addresses of each family.
pub fn vrrp(bytes: &[u8]) -> usize {
    let v4 = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(224, 0, 0, 18)].map(IpAddr::from);
    let v6 = [
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12),
    ]
    .map(IpAddr::from);
    [v4, v6]
        .into_iter()
        .filter(|[from, to]| Advert::decode(bytes, *from, *to).is_ok())
        .count()
}
