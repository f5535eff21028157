use super::arp::{Operation, Packet};
use super::ndp::{Kind, Message};
use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const HERE: Mac = [2, 0, 0, 0, 0, 1];
const THERE: Mac = [2, 0, 0, 0, 0, 2];
const V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12ab, 0xcdef);
/// Of a frame, without its link header.
const LINK_HEADER: usize = 14;

fn mac() -> impl Strategy<Value = Mac> {
    any::<Mac>().prop_map(|[first, rest @ ..]| {
        let [b, c, d, e, f] = rest;
        [first & 0xfc | 2, b, c, d, e, f]
    })
}

fn packet() -> impl Strategy<Value = Packet> {
    (
        any::<bool>(),
        mac(),
        any::<u32>(),
        any::<Mac>(),
        any::<u32>(),
    )
        .prop_map(|(request, sender_mac, sender, target_mac, target)| Packet {
            operation: if request {
                Operation::Request
            } else {
                Operation::Reply
            },
            sender_mac,
            sender: sender.into(),
            target_mac,
            target: target.into(),
        })
}

fn unicast() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(|bits| Ipv6Addr::from(bits >> 4 | 1 << 125))
}

fn message() -> impl Strategy<Value = Message> {
    let solicitation = (
        unicast(),
        any::<u128>(),
        unicast(),
        proptest::option::of(mac()),
    );
    let solicitation = solicitation.prop_map(|(from, to, target, mac)| Message {
        kind: Kind::Solicitation,
        from,
        to: to.into(),
        target,
        mac,
    });
    let advertisement = (
        any::<[bool; 3]>(),
        unicast(),
        unicast(),
        unicast(),
        proptest::option::of(mac()),
    );
    let advertisement = advertisement.prop_map(
        |([router, solicited, overrides], from, to, target, mac)| Message {
            kind: Kind::Advertisement {
                router,
                solicited,
                overrides,
            },
            from,
            to,
            target,
            mac,
        },
    );
    prop_oneof![solicitation, advertisement]
}

proptest! {
    #[test]
    fn arp_is_read_as_it_was_written(packet in packet(), to: Mac) {
        let frame = packet.emit(to);
        prop_assert_eq!(&frame[..6], &to);
        prop_assert_eq!(Packet::parse(&frame[LINK_HEADER..]), Some(packet));
    }

    #[test]
    fn neighbour_discovery_is_read_as_it_was_written(message in message(), to: Mac) {
        let frame = message.emit(HERE, to);
        prop_assert_eq!(Message::parse(&frame[LINK_HEADER..]), Some(message));
    }

    #[test]
    fn one_wrong_byte_of_a_neighbour_message_is_noticed(message in message(), at in 40..64_usize, bits in 1..=255_u8) {
        let mut frame = message.emit(HERE, THERE);
        frame[LINK_HEADER + at] ^= bits;
        prop_assert_eq!(Message::parse(&frame[LINK_HEADER..]), None);
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Packet::parse(&bytes), Message::parse(&bytes));
    }

    /// As above, but most of them come as far as the options.
    #[test]
    fn random_options_do_no_harm(message in message(), options in proptest::collection::vec(0..4_u8, 0..64)) {
        let mut frame = message.emit(HERE, THERE).split_off(LINK_HEADER);
        frame.extend(options);
        let length = (frame.len() - 40) as u16;
        frame[4..6].copy_from_slice(&length.to_be_bytes());
        let _ = Message::parse(&frame);
    }

    #[test]
    fn cut_frames_are_refused(packet in packet(), message in message(), cut in 1..8_usize) {
        let (arp, ndp) = (packet.emit(THERE), message.emit(HERE, THERE));
        prop_assert_eq!(Packet::parse(&arp[LINK_HEADER..arp.len() - cut]), None);
        prop_assert_eq!(Message::parse(&ndp[LINK_HEADER..ndp.len() - cut]), None);
    }
}

#[test]
fn an_arp_question_is_answered_to_who_asked() {
    let question = Packet {
        operation: Operation::Request,
        sender_mac: THERE,
        sender: Ipv4Addr::new(192, 0, 2, 1),
        target_mac: [0; 6],
        target: V4,
    };
    let answer = question.answer(HERE);
    assert_eq!((&answer[..6], &answer[6..12]), (&THERE[..], &HERE[..]));
    let answer = Packet::parse(&answer[LINK_HEADER..]).unwrap();
    assert_eq!(
        (answer.operation, answer.sender, answer.sender_mac),
        (Operation::Reply, V4, HERE)
    );
    assert_eq!((answer.target, answer.target_mac), (question.sender, THERE));
    assert!(question.is_question() && !answer.is_question());
}

#[test]
fn what_arp_claims() {
    let [request, reply] = arp::announcements(HERE, V4);
    for frame in [request, reply] {
        let packet = Packet::parse(&frame[LINK_HEADER..]).unwrap();
        assert_eq!((packet.claim(), packet.is_question()), (V4, false));
        assert_eq!(frame[..6], BROADCAST);
    }
    let probe = Packet::parse(&arp::probe(HERE, V4)[LINK_HEADER..]).unwrap();
    assert_eq!(
        (probe.claim(), probe.is_question(), probe.sender),
        (V4, true, Ipv4Addr::UNSPECIFIED)
    );
}

#[test]
fn a_solicitation_is_answered_to_who_asked() {
    let asker: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let to = ndp::solicited_node(V6);
    assert_eq!(to.to_string(), "ff02::1:ffab:cdef");
    let question = Message {
        kind: Kind::Solicitation,
        from: asker,
        to,
        target: V6,
        mac: Some(THERE),
    };
    let frame = question.answer(HERE, [9; 6]);
    assert_eq!((&frame[..6], &frame[6..12]), (&THERE[..], &HERE[..]));
    let answer = Message::parse(&frame[LINK_HEADER..]).unwrap();
    assert_eq!(
        answer.kind,
        Kind::Advertisement {
            router: false,
            solicited: true,
            overrides: true
        }
    );
    assert_eq!(
        (answer.from, answer.to, answer.target, answer.mac),
        (V6, asker, V6, Some(HERE))
    );
}

#[test]
fn who_has_no_address_yet_is_answered_as_everybody() {
    let probe = Message::parse(&ndp::probe(THERE, V6)[LINK_HEADER..]).unwrap();
    assert_eq!(probe.claim(), Some((V6, None)));
    let frame = probe.answer(HERE, THERE);
    assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
    let answer = Message::parse(&frame[LINK_HEADER..]).unwrap();
    assert_eq!(
        answer.kind,
        Kind::Advertisement {
            router: false,
            solicited: false,
            overrides: true
        }
    );
    assert_eq!(answer.claim(), Some((V6, Some(HERE))));
}

#[test]
fn what_did_not_come_from_this_link_is_refused() {
    let mut frame = ndp::announcement(HERE, V6, Role::Host).split_off(LINK_HEADER);
    assert!(Message::parse(&frame).is_some());
    frame[7] = 254;
    assert_eq!(Message::parse(&frame), None);
}

/// RFC 4861 7.1.1: a probe goes to the group and has no hardware address.
#[test]
fn a_solicitation_of_nobody_has_to_be_one() {
    let to = ndp::solicited_node(V6);
    let of_nobody = Message {
        kind: Kind::Solicitation,
        from: Ipv6Addr::UNSPECIFIED,
        to,
        target: V6,
        mac: None,
    };
    let parse = |message: Message| Message::parse(&message.emit(HERE, THERE)[LINK_HEADER..]);
    assert!(parse(of_nobody).is_some());
    assert_eq!(
        parse(Message {
            mac: Some(HERE),
            ..of_nobody
        }),
        None
    );
    assert_eq!(
        parse(Message {
            to: V6,
            ..of_nobody
        }),
        None
    );
    assert_eq!(
        parse(Message {
            target: to,
            ..of_nobody
        }),
        None
    );
}

const VIRTUAL: Mac = [0x0e, 0x82, 0x16, 0x2a, 0x15, 0x6a];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The reply is byte for byte what keepalived 2.2.7 sends; its request has the hardware address of
/// everybody as the target's, where RFC 5227 has nobody's.
#[test]
fn announcements_by_arp_are_what_others_send() {
    let [request, reply] = arp::announcements(VIRTUAL, Ipv4Addr::new(10, 0, 0, 100));
    let start = "ffffffffffff 0e82162a156a 0806 0001 0800 06 04";
    let sender = "0e82162a156a 0a000064";
    let expected = [
        (
            request,
            format!("{start} 0001 {sender} 000000000000 0a000064"),
        ),
        (
            reply,
            format!("{start} 0002 {sender} ffffffffffff 0a000064"),
        ),
    ];
    for (frame, expected) in expected {
        assert_eq!(hex(&frame), expected.replace(' ', ""));
    }
}

/// What keepalived 2.2.7 sends, but for the flag of a router (0x80) and with it the checksum
/// (0x2156 there).
#[test]
fn an_announcement_of_a_router_is_what_others_send() {
    let address = "fd00::99".parse().unwrap();
    let expected = "333300000001 0e82162a156a 86dd 60000000 0020 3a ff \
                    fd000000000000000000000000000099 ff020000000000000000000000000001 \
                    8800 a155 a0000000 fd000000000000000000000000000099 0201 0e82162a156a";
    let frame = ndp::announcement(VIRTUAL, address, Role::Router);
    assert_eq!(hex(&frame), expected.replace(' ', ""));
}

#[test]
fn a_probe_has_no_sender_and_goes_to_whom_it_concerns() {
    let address = "fd00::99".parse().unwrap();
    let expected = "3333ff000099 0e82162a156a 86dd 60000000 0018 3a ff \
                    00000000000000000000000000000000 ff0200000000000000000001ff000099 \
                    8700 7c75 00000000 fd000000000000000000000000000099";
    assert_eq!(
        hex(&ndp::probe(VIRTUAL, address)),
        expected.replace(' ', "")
    );
}
