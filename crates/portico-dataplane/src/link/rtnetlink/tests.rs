use super::*;
use crate::netlink::messages;

fn decoded<T>(request: &Messages, decode: fn(&Message) -> Option<T>) -> Option<T> {
    messages(request.bytes()).find_map(|message| decode(&message))
}

#[test]
fn an_address_that_is_held_is_recognised_as_ours() {
    for (text, prefix) in [("10.0.0.100", 32), ("fe80::100", 64)] {
        let address: IpAddr = text.parse().unwrap();
        let mut request = Messages::new();
        hold_address(
            &mut request,
            7,
            (address, prefix),
            Duration::from_millis(1200),
        );
        let held = Held {
            link: 7,
            address,
            prefix,
            usable: true,
            ours: true,
        };
        assert_eq!(
            decoded(&request, super::address),
            Some((held.clone(), true))
        );
        let mut request = Messages::new();
        drop_address(&mut request, 7, (address, prefix));
        assert_eq!(
            decoded(&request, super::address),
            Some((
                Held {
                    ours: false,
                    ..held
                },
                false
            ))
        );
    }
}

#[test]
fn lifetimes_are_whole_seconds_and_never_for_ever() {
    for (lifetime, seconds) in [(1, 1), (1000, 1), (1001, 2), (u64::MAX, FOREVER - 1)] {
        let mut request = Messages::new();
        hold_address(
            &mut request,
            1,
            (IpAddr::from([10, 0, 0, 1]), 32),
            Duration::from_millis(lifetime),
        );
        let message = messages(request.bytes()).next().unwrap();
        let info = message
            .attributes(ADDRESS_HEADER)
            .find_kind(libc::IFA_CACHEINFO)
            .unwrap();
        assert_eq!(
            info.data[..8],
            [0, seconds].map(u32::to_ne_bytes).concat(),
            "{lifetime} ms"
        );
    }
}

/// What the kernel tells of an address: of its family, with flags and attributes.
fn told(family: i32, flags: u32, attributes: &[(u16, &[u8])]) -> Option<(Held, bool)> {
    let mut message = Messages::new();
    message.message(libc::RTM_NEWADDR, 0, |m| {
        m.raw(&[family as u8, 24, flags as u8, 0, 3, 0, 0, 0]);
        attributes
            .iter()
            .for_each(|(kind, data)| m.put(*kind, data));
    });
    decoded(&message, address)
}

#[test]
fn addresses_are_read_as_the_kernel_tells_them() {
    const V4: (u16, &[u8]) = (libc::IFA_LOCAL, &[10, 0, 0, 1]);
    let forever = [FOREVER; 4].map(u32::to_ne_bytes).concat();
    let held =
        |attributes: &[(u16, &[u8])]| told(libc::AF_INET, 0, attributes).map(|(held, _)| held);
    let expected = Held {
        link: 3,
        address: [10, 0, 0, 1].into(),
        prefix: 24,
        usable: true,
        ours: false,
    };
    assert_eq!(
        held(&[V4, (libc::IFA_CACHEINFO, &forever)]),
        Some(expected.clone())
    );
    assert_eq!(
        held(&[(libc::IFA_ADDRESS, &[10, 0, 0, 2]), V4]),
        Some(expected.clone()),
        "the end of a tunnel"
    );
    assert_eq!(
        held(&[V4, (IFA_PROTO, &[OURS])]),
        Some(Held {
            ours: true,
            ..expected.clone()
        })
    );
    assert_eq!(held(&[V4, (IFA_PROTO, &[3])]), Some(expected));
    assert_eq!(held(&[(libc::IFA_LOCAL, &[10, 0, 0])]), None);
    assert_eq!(held(&[]), None);
    let v6 = |flags| {
        told(libc::AF_INET6, flags, &[(libc::IFA_ADDRESS, &[0xfd; 16])])
            .map(|(held, _)| held.usable)
    };
    assert_eq!(
        [v6(0), v6(libc::IFA_F_TENTATIVE), v6(libc::IFA_F_DADFAILED)],
        [Some(true), Some(false), Some(false)]
    );
}

#[test]
fn links_are_read_as_the_kernel_tells_them() {
    let told = |kind: u16, family: u8, flags: i32| {
        let mut message = Messages::new();
        message.message(kind, 0, |m| {
            let mut header = link_header(5, flags as u32, 0);
            header[0] = family;
            m.raw(&header);
            m.put_str(libc::IFLA_IFNAME, "eth0");
            m.put(libc::IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1]);
        });
        decoded(&message, link)
    };
    let is = |running| Link {
        index: 5,
        name: "eth0".to_owned(),
        mac: [2, 0, 0, 0, 0, 1],
        running,
    };
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    assert_eq!(told(libc::RTM_NEWLINK, 0, up), Some((is(true), true)));
    assert_eq!(
        told(libc::RTM_NEWLINK, 0, libc::IFF_UP),
        Some((is(false), true)),
        "no carrier"
    );
    assert_eq!(
        told(libc::RTM_NEWLINK, 0, libc::IFF_RUNNING),
        Some((is(false), true))
    );
    assert_eq!(told(libc::RTM_DELLINK, 0, up), Some((is(true), false)));
    assert_eq!(
        told(libc::RTM_DELLINK, libc::AF_BRIDGE as u8, up),
        None,
        "a port left its bridge, and is still there"
    );
    assert_eq!(told(libc::RTM_NEWADDR, 0, up), None);
}
