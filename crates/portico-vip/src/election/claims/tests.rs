use super::*;

const MAC: Mac = [0x0e, 0x82, 0x16, 0x2a, 0x15, 0x6a];
const ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x99);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What keepalived 2.2.7 sends, but for the flag of a router (0x80) and with it the checksum
/// (0x2156 there).
#[test]
fn an_announcement_is_what_others_send() {
    let expected = "333300000001 0e82162a156a 86dd 60000000 0020 3a ff \
                    fd000000000000000000000000000099 ff020000000000000000000000000001 \
                    8800 a155 a0000000 fd000000000000000000000000000099 0201 0e82162a156a";
    assert_eq!(hex(&announcement(MAC, ADDRESS)), expected.replace(' ', ""));
}

#[test]
fn a_probe_has_no_sender_and_goes_to_whom_it_concerns() {
    let expected = "3333ff000099 0e82162a156a 86dd 60000000 0018 3a ff \
                    00000000000000000000000000000000 ff0200000000000000000001ff000099 \
                    8700 7c75 00000000 fd000000000000000000000000000099";
    assert_eq!(hex(&probe(MAC, ADDRESS)), expected.replace(' ', ""));
}

#[test]
fn a_claim_is_the_target_and_its_hardware() {
    let frame = announcement(MAC, ADDRESS);
    assert_eq!(claim(&frame[14..]), Some((ADDRESS, MAC)));
    for length in 14..frame.len() {
        assert_eq!(claim(&frame[14..length]), None, "{length} bytes");
    }
    assert_eq!(claim(&probe(MAC, ADDRESS)[14..]), None);

    let mut routed = frame[14..].to_vec();
    routed[HOP_LIMIT] = 254;
    assert_eq!(claim(&routed), None);

    // Another option, of two units, comes first; one without a length is an error.
    let mut options = frame[14..].to_vec();
    options.splice(OPTIONS..OPTIONS, [[14, 2].as_slice(), &[0; 14]].concat());
    assert_eq!(claim(&options), Some((ADDRESS, MAC)));
    options[OPTIONS + 1] = 0;
    assert_eq!(claim(&options), None);
}
