use super::*;

#[test]
fn ipv4_is_read_from_its_header() {
    let mut packet = vec![
        0x45, 0xc0, 0, 32, 0, 1, 0, 0, 255, 112, 0, 0, 10, 0, 0, 1, 224, 0, 0, 18,
    ];
    packet.extend([0x31, 101, 100, 1, 0, 10, 0, 0, 10, 0, 0, 100]);
    let mut expected = Received {
        from: "10.0.0.1".parse().unwrap(),
        to: "224.0.0.18".parse().unwrap(),
        hops: 255,
        payload: 20..32,
    };
    assert_eq!(received_v4(&packet), Some(expected.clone()));
    // With options the header is longer.
    packet[0] = 0x46;
    packet.splice(20..20, [0; 4]);
    expected.payload = 24..36;
    assert_eq!(received_v4(&packet), Some(expected));
    for length in 0..24 {
        assert_eq!(received_v4(&packet[..length]), None, "{length} bytes");
    }
}

fn beside(kind: i32, data: &[u8]) -> Vec<u8> {
    let mut bytes = (size_of::<usize>() + 8 + data.len()).to_ne_bytes().to_vec();
    bytes.extend(libc::IPPROTO_IPV6.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
    bytes
}

#[test]
fn ipv6_is_read_from_what_comes_beside_it() {
    let to: Ipv6Addr = "ff02::12".parse().unwrap();
    let info = beside(
        libc::IPV6_PKTINFO,
        &[to.octets().as_slice(), &7_u32.to_ne_bytes()].concat(),
    );
    let hops = |hops: i32| beside(libc::IPV6_HOPLIMIT, &hops.to_ne_bytes());
    assert_eq!(
        ancillary(&[info.clone(), hops(255)].concat()),
        Some((to, 255))
    );
    let other = beside(libc::IPV6_TCLASS, &[0; 4]);
    assert_eq!(
        ancillary(&[hops(64), other, info.clone()].concat()),
        Some((to, 64))
    );
    assert_eq!(ancillary(&info), None);
    assert_eq!(ancillary(&[info.clone(), hops(-1)].concat()), None);
    let all = [info, hops(255)].concat();
    for length in 0..all.len() - 4 {
        assert_eq!(ancillary(&all[..length]), None, "{length} bytes");
    }
    assert_eq!(ancillary(&[0; 64]), None, "a length of nothing ends it");
}
