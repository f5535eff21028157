use super::*;
use portico_l2::frame::{Role, arp, ndp};

const MAC: Mac = [0x0e, 0x82, 0x16, 0x2a, 0x15, 0x6a];
const V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);
const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x99);
const LINK_HEADER: usize = 14;
const HOP_LIMIT: usize = 7;

#[test]
fn a_claim_by_arp_is_whom_the_sender_says_to_be() {
    for frame in arp::announcements(MAC, V4) {
        let packet = &frame[LINK_HEADER..];
        assert_eq!(of_arp(packet), Some((V4, MAC)));
        for length in 0..28 {
            assert_eq!(of_arp(&packet[..length]), None, "{length} bytes");
        }
    }
    let probe = arp::probe(MAC, V4);
    assert_eq!(
        of_arp(&probe[LINK_HEADER..]),
        Some((Ipv4Addr::UNSPECIFIED, MAC))
    );
}

#[test]
fn a_claim_by_an_advertisement_is_its_target() {
    let frame = ndp::announcement(MAC, V6, Role::Router);
    assert_eq!(of_neighbour(&frame[LINK_HEADER..]), Some((V6, MAC)));
    for length in LINK_HEADER..frame.len() {
        let cut = &frame[LINK_HEADER..length];
        assert_eq!(of_neighbour(cut), None, "{length} bytes");
    }
    assert_eq!(of_neighbour(&ndp::probe(MAC, V6)[LINK_HEADER..]), None);

    let mut routed = frame[LINK_HEADER..].to_vec();
    routed[HOP_LIMIT] = 254;
    assert_eq!(of_neighbour(&routed), None);
}
