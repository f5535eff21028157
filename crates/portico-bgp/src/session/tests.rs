use super::*;
use crate::family::{AfiSafi, PerFamily};
use crate::message::{Capability, GracefulRestart, Open};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// When every test begins.
const NOON: Time = Duration::from_secs(43200);
const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Now {
    Now {
        time: NOON + SECOND * u32::try_from(seconds).unwrap(),
        chance: 1.0,
    }
}

fn config() -> Config {
    Config {
        local_as: 64512,
        peer_as: 64513,
        router_id: Ipv4Addr::new(192, 0, 2, 7),
        hold_time: 90,
        keepalive_time: None,
        longest_retry: SECOND * 30,
        restart_time: Some(120),
    }
}

fn hops() -> NextHops {
    let own = PerFamily {
        v4: Some(IpAddr::from([192, 0, 2, 7])),
        v6: Some("2001:db8::7".parse().unwrap()),
    };
    NextHops {
        own,
        session: Some(AfiSafi::Ipv4Unicast),
    }
}

/// A router's introduction.
fn open() -> Open {
    Open {
        asn: 64513,
        hold_time: 180,
        router_id: Ipv4Addr::new(192, 0, 2, 1),
        capabilities: vec![
            Capability::Multiprotocol(AfiSafi::Ipv4Unicast),
            Capability::Multiprotocol(AfiSafi::Ipv6Unicast),
            Capability::RouteRefresh,
            Capability::FourOctetAs(64513),
        ],
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn route(text: &str) -> Change {
    (net(text), Some(Arc::default()))
}

/// Outputs in short.
fn short(outputs: &[Output]) -> Vec<String> {
    let one = |output: &Output| match output {
        Output::Connect => "connect".to_owned(),
        Output::Close => "close".to_owned(),
        Output::Became(state) => format!("{state:?}"),
        Output::Down(reason) => reason.to_string(),
        Output::Heard(_) => "heard".to_owned(),
        Output::Send(bytes) => match Message::decode(bytes, true).unwrap() {
            Message::Open(open) => format!("OPEN {}", open.asn),
            Message::Keepalive => "KEEPALIVE".to_owned(),
            Message::Notification(notification) => {
                format!(
                    "NOTIFICATION {}/{}",
                    notification.code, notification.subcode
                )
            }
            Message::RouteRefresh(_) => "REFRESH".to_owned(),
            Message::Update(update) => update_in_short(&update),
        },
    };
    outputs.iter().map(one).collect()
}

fn update_in_short(update: &Update) -> String {
    let list = |nets: &[IpNet]| {
        nets.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let came = update
        .reached
        .iter()
        .map(|reached| format!("{} by {}", list(&reached.prefixes), reached.next_hop));
    let gone = (!update.withdrawn.is_empty()).then(|| format!("not {}", list(&update.withdrawn)));
    let end = update.end_of_rib.map(|family| format!("end of {family}"));
    came.chain(gone).chain(end).collect::<Vec<_>>().join(", ")
}

/// All that is pulled.
fn pull(session: &mut Session) -> Vec<String> {
    let mut all = vec![];
    loop {
        let outputs = session.pull();
        if outputs.is_empty() {
            return all;
        }
        all.extend(short(&outputs));
    }
}

fn hear(session: &mut Session, now: Now, bytes: &[u8]) -> Vec<String> {
    short(&session.handle(now, Input::Bytes(bytes)))
}

fn stopped() -> Session {
    let mut session = Session::new(config());
    session.handle(
        at(0),
        Input::Routes(&[route("203.0.113.10/32"), route("2001:db8:5::10/128")]),
    );
    session
}

fn connecting() -> Session {
    let mut session = stopped();
    assert_eq!(
        short(&session.handle(at(0), Input::Start)),
        ["connect", "Connecting"]
    );
    session
}

fn waiting() -> Session {
    let mut session = connecting();
    session.handle(at(0), Input::Failed("nobody there"));
    session
}

fn open_sent() -> Session {
    let mut session = connecting();
    assert_eq!(
        short(&session.handle(at(0), Input::Connected(hops()))),
        ["OPEN 64512", "OpenSent"]
    );
    session
}

fn open_confirm() -> Session {
    let mut session = open_sent();
    assert_eq!(
        hear(&mut session, at(0), &open().encode()),
        ["KEEPALIVE", "OpenConfirm"]
    );
    session
}

fn established() -> Session {
    let mut session = open_confirm();
    assert_eq!(
        hear(&mut session, at(0), &message::keepalive()),
        ["Established"]
    );
    session
}

#[test]
fn a_session_tells_everything_and_then_that_it_was_everything() {
    let mut session = established();
    assert_eq!(
        pull(&mut session),
        [
            "203.0.113.10/32 by 192.0.2.7",
            "2001:db8:5::10/128 by 2001:db8::7",
            "end of IPv4",
            "end of IPv6"
        ]
    );
    assert_eq!(
        session.status(),
        Status {
            established: true,
            routes: 2,
            due: 0,
            trouble: String::new()
        }
    );
    assert_eq!(pull(&mut session), [""; 0]);
    let changes = [(net("203.0.113.10/32"), None), route("203.0.113.11/32")];
    session.handle(at(1), Input::Routes(&changes));
    assert_eq!(
        pull(&mut session),
        ["not 203.0.113.10/32", "203.0.113.11/32 by 192.0.2.7"]
    );
}

#[test]
fn the_path_is_of_the_kind_of_session() {
    for (peer_as, as_path, preference) in [(64513, vec![64512], None), (64512, vec![], Some(100))] {
        let mut session = Session::new(Config {
            peer_as,
            ..config()
        });
        session.handle(at(0), Input::Routes(&[route("203.0.113.10/32")]));
        session.handle(at(0), Input::Start);
        session.handle(at(0), Input::Connected(hops()));
        let open = Open {
            asn: peer_as,
            capabilities: vec![Capability::FourOctetAs(peer_as)],
            ..open()
        };
        hear(
            &mut session,
            at(0),
            &[open.encode(), message::keepalive()].concat(),
        );
        let Some(Output::Send(bytes)) = session.pull().into_iter().next() else {
            panic!()
        };
        let Ok(Message::Update(update)) = Message::decode(&bytes, true) else {
            panic!()
        };
        assert_eq!(
            (update.path.as_path, update.path.local_preference),
            (as_path, preference)
        );
    }
}

#[test]
fn bytes_come_in_pieces_of_any_size() {
    let stream = [open().encode(), message::keepalive(), message::keepalive()].concat();
    for size in 1..stream.len() {
        let mut session = open_sent();
        stream
            .chunks(size)
            .for_each(|piece| drop(session.handle(at(0), Input::Bytes(piece))));
        assert_eq!(session.state(), State::Established, "in pieces of {size}");
    }
}

/// Every state and every message: RFC 4271 section 8.2.2.
#[test]
fn messages_out_of_place_end_the_session() {
    let messages = [
        ("OPEN", open().encode()),
        ("KEEPALIVE", message::keepalive()),
        ("UPDATE", message::end_of_rib(AfiSafi::Ipv4Unicast)),
        ("REFRESH", message::route_refresh(AfiSafi::Ipv4Unicast)),
        (
            "NOTIFICATION",
            Notification::new(code::CEASE, cease::SHUTDOWN).encode(),
        ),
    ];
    type Make = fn() -> Session;
    let states: [(Make, [&str; 5]); 6] = [
        (stopped, [""; 5]),
        (waiting, [""; 5]),
        (connecting, [""; 5]),
        (
            open_sent,
            [
                "KEEPALIVE",
                "NOTIFICATION 5/1",
                "NOTIFICATION 5/1",
                "NOTIFICATION 5/1",
                "close",
            ],
        ),
        (
            open_confirm,
            [
                "NOTIFICATION 5/2",
                "Established",
                "NOTIFICATION 5/2",
                "NOTIFICATION 5/2",
                "close",
            ],
        ),
        (established, ["NOTIFICATION 5/3", "", "heard", "", "close"]),
    ];
    for (make, expected) in states {
        for ((name, message), expected) in messages.iter().zip(expected) {
            let mut session = make();
            let outputs = hear(&mut session, at(0), message);
            assert_eq!(
                outputs.first().map_or("", String::as_str),
                expected,
                "{name} in {:?}",
                make().state()
            );
            let over = ["NOTIFICATION", "close"]
                .iter()
                .any(|end| expected.starts_with(end));
            assert_eq!(
                session.state() == State::Waiting,
                over || make().state() == State::Waiting
            );
        }
    }
}

#[test]
fn introductions_that_will_not_do() {
    let wrong_as = Open {
        asn: 64999,
        capabilities: vec![],
        ..open()
    };
    let no_id = Open {
        router_id: Ipv4Addr::UNSPECIFIED,
        ..open()
    };
    let hasty = Open {
        hold_time: 2,
        ..open()
    };
    for (open, notification, reason) in [
        (
            wrong_as,
            "NOTIFICATION 2/2",
            "the router is AS 64999, not 64513 as configured (peerASN)",
        ),
        (
            no_id,
            "NOTIFICATION 2/3",
            "ended the session with the router: the router ID is not acceptable",
        ),
        (
            hasty,
            "NOTIFICATION 2/6",
            "ended the session with the router: the hold time is not acceptable",
        ),
    ] {
        let mut session = open_sent();
        let outputs = hear(&mut session, at(0), &open.encode());
        assert_eq!(outputs[..2], [notification, "close"]);
        assert!(
            session.status().trouble.starts_with(reason),
            "{}",
            session.status().trouble
        );
    }
}

#[test]
fn within_an_as_router_ids_differ() {
    let mut session = Session::new(Config {
        peer_as: 64512,
        ..config()
    });
    session.handle(at(0), Input::Start);
    session.handle(at(0), Input::Connected(hops()));
    let twin = Open {
        asn: 64512,
        router_id: config().router_id,
        capabilities: vec![],
        ..open()
    };
    assert_eq!(
        hear(&mut session, at(0), &twin.encode())[0],
        "NOTIFICATION 2/3"
    );
    assert!(session.status().trouble.contains("192.0.2.7"));
}

#[test]
fn silence_ends_a_session_and_words_keep_it() {
    // The lesser of both hold times counts, and a third of it is between two words.
    let mut session = established();
    assert_eq!(session.deadline(), Some(at(30).time));
    assert_eq!(short(&session.handle(at(30), Input::Tick)), ["KEEPALIVE"]);
    assert_eq!(hear(&mut session, at(50), &message::keepalive()), [""; 0]);
    assert_eq!(short(&session.handle(at(60), Input::Tick)), ["KEEPALIVE"]);
    assert_eq!(short(&session.handle(at(100), Input::Tick)), ["KEEPALIVE"]);
    assert_eq!(short(&session.handle(at(129), Input::Tick)), [""; 0]);
    assert_eq!(short(&session.handle(at(130), Input::Tick)), ["KEEPALIVE"]);
    let over = short(&session.handle(at(140), Input::Tick));
    assert_eq!(over[..2], ["NOTIFICATION 4/0", "close"]);
}

#[test]
fn without_a_hold_time_silence_is_fine() {
    let mut session = open_sent();
    hear(
        &mut session,
        at(0),
        &[
            Open {
                hold_time: 0,
                ..open()
            }
            .encode(),
            message::keepalive(),
        ]
        .concat(),
    );
    assert_eq!(
        (session.state(), session.deadline()),
        (State::Established, None)
    );
    assert_eq!(short(&session.handle(at(100_000), Input::Tick)), [""; 0]);
}

#[test]
fn a_keepalive_time_counts_if_it_is_shorter() {
    for (wanted, expected) in [(Some(5), 5), (Some(80), 30), (Some(0), 30), (None, 30)] {
        let mut session = Session::new(Config {
            keepalive_time: wanted,
            ..config()
        });
        session.handle(at(0), Input::Start);
        session.handle(at(0), Input::Connected(hops()));
        hear(&mut session, at(0), &open().encode());
        assert_eq!(session.deadline(), Some(at(expected).time), "{wanted:?}");
    }
}

#[test]
fn a_router_that_does_not_introduce_itself_is_given_up() {
    let mut session = open_sent();
    assert_eq!(session.deadline(), Some(NOON + INTRODUCTION));
    assert_eq!(
        short(&session.handle(at(60), Input::Tick))[..2],
        ["NOTIFICATION 4/0", "close"]
    );
}

#[test]
fn attempts_come_less_often_until_one_is_good() {
    let mut session = connecting();
    let mut now = at(0);
    let mut waits = vec![];
    for _ in 0..7 {
        session.handle(now, Input::Failed("refused"));
        waits.push((session.deadline().unwrap() - now.time).as_secs());
        now.time = session.deadline().unwrap();
        assert_eq!(
            short(&session.handle(now, Input::Tick)),
            ["connect", "Connecting"]
        );
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    assert_eq!(session.status().trouble, "cannot connect: refused");
    session.handle(now, Input::Connected(hops()));
    hear(
        &mut session,
        now,
        &[open().encode(), message::keepalive()].concat(),
    );
    now.time += GOOD_SESSION;
    session.handle(now, Input::Closed("reset"));
    assert_eq!(session.deadline(), Some(now.time + SECOND));
    assert!(session.is_first_failure());
}

#[test]
fn chance_spreads_attempts() {
    let mut session = connecting();
    session.handle(
        Now {
            time: NOON,
            chance: 0.0,
        },
        Input::Failed("refused"),
    );
    assert_eq!(session.deadline(), Some(NOON + SECOND * 3 / 4));
}

#[test]
fn a_connection_that_takes_too_long_is_given_up() {
    let mut session = connecting();
    let outputs = short(&session.handle(
        Now {
            time: NOON + CONNECT,
            chance: 0.5,
        },
        Input::Tick,
    ));
    assert_eq!(outputs[0], "close");
    assert!(session.status().trouble.contains("password"));
}

#[test]
fn a_drain_takes_everything_back_and_says_farewell() {
    let mut session = established();
    pull(&mut session);
    assert_eq!(
        short(&session.handle(at(1), Input::Stop(Stop::Drain))),
        [""; 0]
    );
    assert_eq!(
        pull(&mut session),
        [
            "not 203.0.113.10/32",
            "not 2001:db8:5::10/128",
            "NOTIFICATION 6/2",
            "close",
            "Stopped"
        ]
    );
    assert_eq!(session.deadline(), None);
}

#[test]
fn a_drain_in_any_state_ends_it() {
    let all: [fn() -> Session; 6] = [
        stopped,
        waiting,
        connecting,
        open_sent,
        open_confirm,
        established,
    ];
    for make in all {
        let mut session = make();
        session.handle(at(1), Input::Stop(Stop::Removed));
        pull(&mut session);
        assert_eq!(session.state(), State::Stopped, "from {:?}", make().state());
    }
    let mut session = established();
    session.handle(at(1), Input::Stop(Stop::Drain));
    session.handle(at(1), Input::Closed("reset"));
    assert_eq!(session.state(), State::Stopped, "nobody is left to be told");
}

fn restart_of(session: &Session) -> GracefulRestart {
    let open = negotiate::open(&session.config, &hops(), session.restarted);
    let restart = open
        .capabilities
        .into_iter()
        .find_map(|capability| match capability {
            Capability::GracefulRestart(restart) => Some(restart),
            _ => None,
        });
    restart.unwrap()
}

#[test]
fn only_the_first_session_of_a_process_comes_from_a_restart() {
    let mut session = established();
    let families = vec![(AfiSafi::Ipv4Unicast, true), (AfiSafi::Ipv6Unicast, true)];
    assert_eq!(
        restart_of(&session),
        GracefulRestart {
            restarted: true,
            time: 120,
            families: families.clone()
        }
    );
    session.handle(at(1), Input::Closed("before all was told"));
    assert!(restart_of(&session).restarted);
    let mut session = established();
    pull(&mut session);
    session.handle(at(1), Input::Closed("reset"));
    assert_eq!(
        restart_of(&session),
        GracefulRestart {
            restarted: false,
            time: 120,
            families
        }
    );
    let without = Session::new(Config {
        restart_time: None,
        ..config()
    });
    let open = negotiate::open(&without.config, &hops(), true);
    assert!(
        !open
            .capabilities
            .iter()
            .any(|capability| matches!(capability, Capability::GracefulRestart(_)))
    );
}

#[test]
fn a_refresh_tells_a_family_again() {
    let mut session = established();
    pull(&mut session);
    hear(
        &mut session,
        at(1),
        &message::route_refresh(AfiSafi::Ipv6Unicast),
    );
    assert_eq!(pull(&mut session), ["2001:db8:5::10/128 by 2001:db8::7"]);
}

#[test]
fn routes_that_cannot_be_told_are_named() {
    let mut session = open_sent();
    let plain = Open {
        capabilities: vec![Capability::FourOctetAs(64513)],
        ..open()
    };
    hear(
        &mut session,
        at(0),
        &[plain.encode(), message::keepalive()].concat(),
    );
    assert_eq!(
        pull(&mut session),
        ["203.0.113.10/32 by 192.0.2.7", "end of IPv4"]
    );
    let trouble = "1 IPv6 route is not announced: the router takes no IPv6 on this session";
    assert_eq!(session.status().trouble, trouble);

    let mut session = connecting();
    let hops = NextHops {
        own: PerFamily {
            v4: hops().own.v4,
            v6: None,
        },
        session: Some(AfiSafi::Ipv4Unicast),
    };
    session.handle(at(0), Input::Connected(hops));
    hear(
        &mut session,
        at(0),
        &[open().encode(), message::keepalive()].concat(),
    );
    assert_eq!(
        pull(&mut session),
        ["203.0.113.10/32 by 192.0.2.7", "end of IPv4", "end of IPv6"]
    );
    let trouble = "1 IPv6 route is not announced: the link to the router has no IPv6 address";
    assert_eq!(session.status().trouble, trouble);
}

#[test]
fn next_hops_follow_the_session() {
    let (v4, v6) = (hops().own.v4, hops().own.v6);
    for (own, session, by_v6, expected) in [
        ((v4, v6), AfiSafi::Ipv4Unicast, false, (v4, v6)),
        ((v4, v6), AfiSafi::Ipv4Unicast, true, (v4, v6)),
        ((v4, v6), AfiSafi::Ipv6Unicast, false, (v4, v6)),
        ((v4, v6), AfiSafi::Ipv6Unicast, true, (v6, v6)),
        ((None, v6), AfiSafi::Ipv6Unicast, false, (None, v6)),
        ((None, v6), AfiSafi::Ipv6Unicast, true, (v6, v6)),
        ((v4, None), AfiSafi::Ipv4Unicast, true, (v4, None)),
    ] {
        let hops = NextHops {
            own: PerFamily {
                v4: own.0,
                v6: own.1,
            },
            session: Some(session),
        };
        assert_eq!(
            (
                hops.choose(AfiSafi::Ipv4Unicast, by_v6),
                hops.choose(AfiSafi::Ipv6Unicast, by_v6)
            ),
            expected
        );
    }
}

#[test]
fn a_router_that_is_slow_costs_no_memory() {
    let mut session = established();
    pull(&mut session);
    for round in 0..1000_u32 {
        let attributes = Arc::new(crate::Attributes {
            local_preference: Some(round),
            ..Default::default()
        });
        session.handle(
            at(1),
            Input::Routes(&[(net("203.0.113.10/32"), Some(attributes))]),
        );
    }
    assert_eq!((session.status().due, pull(&mut session).len()), (1, 1));
}

#[test]
fn ten_thousand_routes_fit_into_few_messages() {
    let mut session = established();
    pull(&mut session);
    let changes: Vec<Change> = (0..10_000_u32)
        .map(|n| {
            (
                IpNet::new(IpAddr::V4((0x0a00_0000 + n).into()), 32).unwrap(),
                Some(Arc::default()),
            )
        })
        .collect();
    session.handle(at(1), Input::Routes(&changes));
    assert_eq!(pull(&mut session).len(), 13);
    assert_eq!(session.status().routes, 10_002);
}

proptest::proptest! {
    /// Whatever comes in, in whatever state, is lived through, and no more than a message of it is
    /// kept.
    #[test]
    fn any_inputs_are_lived_through(
        inputs in proptest::collection::vec((0..12_u8, 0..300_u64, proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)), 0..60),
    ) {
        let mut session = stopped();
        let mut seconds = 0;
        for (kind, wait, bytes) in inputs {
            seconds += wait / 10;
            let marked = [[0xff; 16].as_slice(), &bytes].concat();
            let (open, keepalive) = (open().encode(), message::keepalive());
            let input = match kind {
                0 | 1 => Input::Start,
                2 => Input::Tick,
                3 | 4 => Input::Connected(hops()),
                5 => Input::Failed("why"),
                6 => Input::Bytes(&bytes),
                7 => Input::Bytes(&marked),
                8 => Input::Bytes(&open),
                9 => Input::Bytes(&keepalive),
                10 => Input::Closed("why"),
                _ => Input::Stop(Stop::Drain),
            };
            session.handle(at(seconds), input);
            pull(&mut session);
            proptest::prop_assert!(session.received.len() <= message::LARGEST);
            proptest::prop_assert!(session.deadline().is_some() || matches!(session.state(), State::Stopped | State::Established));
        }
    }
}
