use super::*;
use crate::message;

fn net(last: u8) -> IpNet {
    IpNet::new([203, 0, 113, last].into(), 32).unwrap()
}

fn attributes(preference: u32) -> Said {
    Some(Arc::new(Attributes {
        local_preference: Some(preference),
        ..Attributes::default()
    }))
}

/// All that is due, in short; everything has room.
fn tell(rib: &mut Rib) -> Vec<String> {
    let mut said = vec![];
    loop {
        let mut one = String::new();
        let told = rib.tell(|family, attributes, prefixes| {
            let what = attributes.map_or("gone".to_owned(), |said| {
                said.local_preference.unwrap().to_string()
            });
            one = format!(
                "{what}: {}",
                prefixes
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" ")
            );
            message::withdraw(family, prefixes)
        });
        if told.is_none() {
            return said;
        }
        said.push(one);
    }
}

fn begun() -> Rib {
    let mut rib = Rib::default();
    rib.begin(PerFamily {
        v4: true,
        v6: false,
    });
    rib
}

#[test]
fn equal_routes_are_told_together_and_once() {
    let mut rib = begun();
    for (last, preference) in [(1, 5), (2, 6), (3, 5)] {
        rib.want(net(last), attributes(preference));
    }
    assert_eq!(
        tell(&mut rib),
        ["5: 203.0.113.1/32 203.0.113.3/32", "6: 203.0.113.2/32"]
    );
    assert_eq!((rib.told(), rib.due()), (3, 0));
    assert_eq!(tell(&mut rib), [""; 0]);
}

#[test]
fn only_the_last_of_many_changes_is_told() {
    let mut rib = begun();
    rib.want(net(1), attributes(5));
    rib.want(net(1), attributes(6));
    rib.want(net(2), attributes(6));
    rib.want(net(2), None);
    assert_eq!(tell(&mut rib), ["6: 203.0.113.1/32"]);
    rib.want(net(1), None);
    rib.want(net(1), attributes(6));
    assert_eq!(tell(&mut rib), [""; 0]);
    rib.want(net(1), None);
    assert_eq!(tell(&mut rib), ["gone: 203.0.113.1/32"]);
    assert!(rib.entries.is_empty());
}

#[test]
fn who_asks_again_is_told_again_whatever_happens_in_between() {
    let mut rib = begun();
    rib.want(net(1), attributes(5));
    rib.want(net(2), attributes(5));
    tell(&mut rib);
    rib.again(AfiSafi::Ipv4Unicast);
    rib.want(net(1), attributes(6));
    rib.want(net(1), attributes(5));
    rib.want(net(2), None);
    assert_eq!(
        tell(&mut rib),
        ["gone: 203.0.113.2/32", "5: 203.0.113.1/32"]
    );
    assert_eq!(rib.told(), 1);
}

#[test]
fn a_new_session_is_told_everything_of_its_families() {
    let mut rib = begun();
    rib.want(net(1), attributes(5));
    rib.want("2001:db8::1/128".parse().unwrap(), attributes(5));
    tell(&mut rib);
    rib.want(net(1), None);
    rib.want(net(2), attributes(5));
    rib.lost();
    assert_eq!((rib.told(), rib.due()), (0, 0));
    rib.begin(PerFamily { v4: true, v6: true });
    assert_eq!(tell(&mut rib), ["5: 203.0.113.2/32", "5: 2001:db8::1/128"]);
    assert_eq!(
        (
            rib.wanted(AfiSafi::Ipv4Unicast),
            rib.wanted(AfiSafi::Ipv6Unicast)
        ),
        (1, 1)
    );
}
