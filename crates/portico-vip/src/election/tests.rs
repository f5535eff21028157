use super::*;
use portico_dataplane::netlink::messages;
use proptest::prelude::*;

/// What comes from the network and from the kernel, read by everything that reads such.
fn read(bytes: &[u8]) {
    let _ = (claims::of_arp(bytes), claims::of_neighbour(bytes));
    adverts::read(bytes);
    for message in messages(bytes) {
        let _ = (
            rtnetlink::link(&message),
            rtnetlink::address(&message),
            rtnetlink::is_local(&message),
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }

    /// Nearly right, which gets further.
    #[test]
    fn damaged_messages_are_read_without_harm(at in 0..200usize, byte: u8, cut in 0..200usize) {
        let mac = [2, 0, 0, 0, 0, 1];
        let mut request = rtnetlink::new_macvlan("vrrp.1", 1, mac);
        rtnetlink::hold_address(&mut request, 1, ("fd00::1".parse().unwrap(), 128), Duration::from_secs(1));
        let mut all = vec![request.bytes().to_vec()];
        for address in ["10.0.0.1", "fd00::1"] {
            let frames = wire::announcements(mac, address.parse().unwrap());
            all.extend(frames.iter().map(|frame| frame[14..].to_vec()));
        }
        for mut bytes in all {
            let (at, cut) = (at % bytes.len(), cut % bytes.len());
            bytes[at] = byte;
            read(&bytes);
            read(&bytes[..cut]);
        }
    }
}
