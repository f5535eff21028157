//! Adverts and configurations that are refused, each with its reason.

use super::*;

#[test]
fn what_is_not_for_us_is_named() {
    let group = packet::GROUP_V4.into();
    let from = ip(9);
    let unicast = Config {
        peers: vec![ip(6)],
        ..config()
    };
    let routed = Config {
        least_hops: 253,
        ..unicast.clone()
    };
    let secret = Config {
        version: Version::V2,
        password: Some(*b"password"),
        interval: 1000 * MS,
        ..config()
    };
    let v2 = Advert {
        version: Version::V2,
        interval: 1000 * MS,
        ..advert(50)
    };
    let signed = Advert {
        password: Some(*b"password"),
        ..v2.clone()
    };
    let both = vec![ip(77), ip(58)];
    type Case<'a> = (
        &'a str,
        &'a Config,
        IpAddr,
        IpAddr,
        u8,
        Advert,
        Option<Refused>,
    );
    let cases: [Case<'_>; 16] = [
        ("fine", &config(), from, group, 255, advert(50), None),
        (
            "routed",
            &config(),
            from,
            group,
            254,
            advert(50),
            Some(Refused::Hops(254, 255)),
        ),
        (
            "to us alone",
            &config(),
            from,
            ip(5),
            255,
            advert(50),
            Some(Refused::Destination(ip(5))),
        ),
        (
            "our own",
            &config(),
            ip(5),
            group,
            255,
            advert(50),
            Some(Refused::OwnAddress),
        ),
        (
            "version",
            &config(),
            from,
            group,
            255,
            v2.clone(),
            Some(Refused::Version(Version::V2)),
        ),
        (
            "id",
            &config(),
            from,
            group,
            255,
            Advert {
                vrid: 60,
                ..advert(50)
            },
            Some(Refused::OtherRouter(60)),
        ),
        (
            "accident",
            &config(),
            from,
            group,
            255,
            Advert {
                addresses: vec![ip(77)],
                ..advert(50)
            },
            Some(Refused::OtherAddresses(vec![ip(77)])),
        ),
        (
            "one address more",
            &config(),
            from,
            group,
            255,
            Advert {
                addresses: both,
                ..advert(50)
            },
            None,
        ),
        (
            "stranger",
            &unicast,
            from,
            ip(5),
            255,
            advert(50),
            Some(Refused::UnknownPeer),
        ),
        (
            "peer, through a router",
            &unicast,
            ip(6),
            ip(5),
            254,
            advert(50),
            Some(Refused::Hops(254, 255)),
        ),
        (
            "peer, through as many routers as there are",
            &routed,
            ip(6),
            ip(5),
            253,
            advert(50),
            None,
        ),
        (
            "peer, through more",
            &routed,
            ip(6),
            ip(5),
            252,
            advert(50),
            Some(Refused::Hops(252, 253)),
        ),
        (
            "peer, to all",
            &unicast,
            ip(6),
            group,
            255,
            advert(50),
            Some(Refused::Destination(group)),
        ),
        (
            "no password",
            &secret,
            from,
            group,
            255,
            v2,
            Some(Refused::Password),
        ),
        ("password", &secret, from, group, 255, signed.clone(), None),
        (
            "interval",
            &secret,
            from,
            group,
            255,
            Advert {
                interval: 2000 * MS,
                ..signed
            },
            Some(Refused::Interval(2000 * MS)),
        ),
    ];
    for (name, config, from, to, hops, advert, why) in cases {
        let mut router = Router::new(config.clone());
        router.handle(NOON, Input::Start);
        let payload = advert.encode(from, to);
        let outputs = router.handle(
            NOON,
            Input::Packet {
                from,
                to,
                hops,
                payload: &payload,
            },
        );
        let expected = why.map_or(Output::Heard { from, advert }, |why| Output::Ignored {
            from,
            why,
        });
        assert_eq!(outputs, [expected], "{name}");
    }
    let mut router = standby();
    let outputs = router.handle(
        NOON,
        Input::Packet {
            from,
            to: group,
            hops: 255,
            payload: &[0x31],
        },
    );
    let why = Refused::Malformed(Malformed::Length { have: 1, need: 8 });
    assert_eq!(outputs, [Output::Ignored { from, why }]);
}

#[test]
fn configurations_that_cannot_work_are_named() {
    let v6 = "fe80::5".parse().unwrap();
    assert_eq!(config().check(), Ok(()));
    let cases = [
        (
            Config {
                vrid: 0,
                ..config()
            },
            Unfit::Vrid,
        ),
        (
            Config {
                priority: 0,
                ..config()
            },
            Unfit::Priority(0),
        ),
        (
            Config {
                priority: 255,
                ..config()
            },
            Unfit::Priority(255),
        ),
        (
            Config {
                addresses: vec![],
                ..config()
            },
            Unfit::Addresses(0),
        ),
        (
            Config {
                own: v6,
                ..config()
            },
            Unfit::Family {
                address: ip(58),
                own: v6,
            },
        ),
        (
            Config {
                peers: vec![v6],
                ..config()
            },
            Unfit::Family {
                address: v6,
                own: ip(5),
            },
        ),
        (
            Config {
                version: Version::V2,
                own: v6,
                addresses: vec![v6],
                ..config()
            },
            Unfit::Version2,
        ),
        (
            Config {
                password: Some([0; 8]),
                ..config()
            },
            Unfit::Password,
        ),
        (
            Config {
                interval: 5 * MS,
                ..config()
            },
            Unfit::Interval(5 * MS),
        ),
        (
            Config {
                version: Version::V2,
                ..config()
            },
            Unfit::Interval(250 * MS),
        ),
        (
            Config {
                peers: vec![ip(5)],
                ..config()
            },
            Unfit::Peer(ip(5)),
        ),
    ];
    for (config, unfit) in cases {
        assert_eq!(config.check(), Err(unfit));
    }
}
