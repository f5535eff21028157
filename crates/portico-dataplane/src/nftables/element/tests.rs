use super::*;

fn samples(family: Family) -> Vec<Element> {
    let (address, network): (IpAddr, IpNet) = match family {
        Family::V4 => (
            "10.0.0.7".parse().unwrap(),
            "192.168.4.0/22".parse().unwrap(),
        ),
        Family::V6 => ("fd00::7".parse().unwrap(), "fd00:4::/47".parse().unwrap()),
    };
    let at = At {
        address: Some(address),
        protocol: 6,
        port: 80,
    };
    let port = At {
        address: None,
        protocol: 17,
        port: 30_000,
    };
    let target = Target {
        address,
        port: 8080,
    };
    let name: Arc<str> = Arc::from("default/web:http");
    let number = Number(0x4050_0006);
    vec![
        Element::Frontend {
            at,
            number,
            name: name.clone(),
        },
        Element::Frontend {
            at: port,
            number,
            name: name.clone(),
        },
        Element::LocalPool { pool: 6, number },
        Element::Endpoint {
            pool: 6,
            slot: 9,
            target,
        },
        Element::Slot {
            pool: 6,
            slot: 9,
            member: number,
        },
        Element::Sticky {
            member: number,
            target,
        },
        Element::Class {
            class: Number::class(5),
            chain: Arc::from("pick-10"),
        },
        Element::ClusterIp(address),
        Element::Hairpin(address),
        Element::Refused {
            at,
            name: name.clone(),
        },
        Element::Refused {
            at: port,
            name: name.clone(),
        },
        Element::Dropped {
            at,
            name: name.clone(),
        },
        Element::Dropped {
            at: port,
            name: name.clone(),
        },
        Element::Guarded {
            at,
            name: name.clone(),
        },
        Element::Edge {
            at,
            number: Number(6),
            name,
        },
        Element::EdgeLocal {
            at,
            number: Number(7),
        },
        Element::EdgeSlot {
            pool: 6,
            slot: 508,
            node: address,
        },
        Element::EdgeBefore {
            pool: 6,
            slot: 0,
            node: address,
        },
        Element::AllowedSource { at, network },
        Element::NodePortAddress(address),
    ]
}

#[test]
fn every_kind_comes_back_from_its_bytes() {
    for family in Family::BOTH {
        for element in samples(family) {
            let (key, end, data) = (element.key(), element.key_end(), element.data());
            let raw = Raw {
                key: key.as_slice(),
                key_end: end.as_ref().map(Bytes::as_slice),
                data: data.as_ref().map(Bytes::as_slice).unwrap_or_default(),
                chain: Some("pick-10"),
                comment: element.comment(),
            };
            assert_eq!(Element::decode(element.set(), family, &raw), Some(element));
        }
    }
}

#[test]
fn what_is_too_short_long_or_no_network_is_none() {
    let samples = samples(Family::V4);
    let is_source = |element: &&Element| element.set() == Set::AllowedSources;
    let key = samples.iter().find(is_source).unwrap().key();
    let raw = Raw {
        key: key.as_slice(),
        ..Raw::default()
    };
    assert_eq!(
        Element::decode(Set::AllowedSources, Family::V4, &raw),
        None,
        "no end"
    );
    let odd = Raw {
        key_end: Some(key.as_slice()),
        ..raw
    };
    assert!(
        Element::decode(Set::AllowedSources, Family::V4, &odd).is_some(),
        "a single address"
    );
    let mut end = key.as_slice().to_vec();
    end[15] = 77;
    assert_eq!(
        Element::decode(
            Set::AllowedSources,
            Family::V4,
            &Raw {
                key_end: Some(&end),
                ..raw
            }
        ),
        None
    );
    for length in 0..8 {
        let raw = Raw {
            key: &[0; 8][..length],
            ..Raw::default()
        };
        assert_eq!(Element::decode(Set::Refused, Family::V4, &raw), None);
    }
    let long = Raw {
        key: &[0; 16],
        ..Raw::default()
    };
    assert_eq!(Element::decode(Set::ClusterIps, Family::V4, &long), None);
}
