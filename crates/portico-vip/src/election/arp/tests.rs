use super::*;

const MAC: Mac = [0x0e, 0x82, 0x16, 0x2a, 0x15, 0x6a];
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The request is byte for byte what keepalived 2.2.7 sends.
#[test]
fn an_announcement_is_what_others_send() {
    let [request, reply] = announcements(MAC, ADDRESS);
    let ends = "0e82162a156a0a000064ffffffffffff0a000064";
    assert_eq!(
        hex(&request),
        format!("ffffffffffff0e82162a156a08060001080006040001{ends}")
    );
    assert_eq!(
        hex(&reply),
        format!("ffffffffffff0e82162a156a08060001080006040002{ends}")
    );
}

#[test]
fn a_probe_has_no_sender() {
    let ends = "0e82162a156a000000000000000000000a000064";
    assert_eq!(
        hex(&probe(MAC, ADDRESS)),
        format!("ffffffffffff0e82162a156a08060001080006040001{ends}")
    );
}

#[test]
fn a_claim_is_whom_the_sender_says_to_be() {
    for frame in announcements(MAC, ADDRESS) {
        assert_eq!(claim(&frame[14..]), Some((ADDRESS, MAC)));
        for length in 0..28 {
            assert_eq!(claim(&frame[14..14 + length]), None, "{length} bytes");
        }
    }
    assert_eq!(
        claim(&probe(MAC, ADDRESS)[14..]),
        Some((Ipv4Addr::UNSPECIFIED, MAC))
    );
    let mut token_ring = announcements(MAC, ADDRESS)[0][14..].to_vec();
    token_ring[1] = 6;
    assert_eq!(claim(&token_ring), None);
}
