//! A stranger on the link sends adverts of priority 255: its own ones, ones in the name of another
//! node, and ones that it has heard.

use crate::segment::*;
use crate::timeline::Timeline;
use portico_testbed::Host;
use portico_vip::election::hmac::Ring;
use portico_vip::election::{Election, State};
use portico_vrrp::packet::{GROUP_V4, HOPS, group};
use portico_vrrp::{Advert, Auth, Keys, Mode, Reason, Role, Signer};
use socket2::{Domain, SockAddr, Socket, Type};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, SystemTime};

const OLD_KEY: &str = "1 the key of before has 32 bytes..";
const NEW_KEY: &str = "2 hex:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const STRANGERS_KEY: &str = "1 what the stranger guesses it to be";
/// The place of the stranger's host in the list, and its number.
const STRANGER: usize = 2;
/// Of each kind of packet.
const PACKETS: usize = 20;

fn auth(keys: &str) -> Auth {
    Auth {
        keys: Keys::parse(keys).unwrap(),
        mode: Mode::Enforce,
        window: Duration::from_secs(60),
    }
}

/// With these keys, if any.
fn start_with(
    dialect: Dialect,
    segment: &Segment,
    number: usize,
    priority: u8,
    auth: Option<Auth>,
) -> Election {
    let mut settings = dialect.settings(number, priority);
    settings.auth = auth;
    start(&segment.hosts[number - 1], settings)
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
}

fn advert(dialect: Dialect, priority: u8) -> Advert {
    Advert {
        version: dialect.version,
        vrid: VRID,
        priority,
        interval: dialect.interval(),
        addresses: dialect.addresses(),
        password: None,
    }
}

fn raw(host: &Host, domain: Domain) -> Socket {
    host.enter(|| {
        let socket = Socket::new(domain, Type::RAW, Some(112.into())).unwrap();
        socket.bind_device(Some(b"eth0")).unwrap();
        socket
    })
}

/// A packet of IPv4 with any source address.
fn forge(host: &Host, from: IpAddr, to: IpAddr, hops: u8, payload: &[u8]) {
    let (IpAddr::V4(source), IpAddr::V4(target)) = (from, to) else {
        panic!("only IPv4 is forged");
    };
    let socket = raw(host, Domain::IPV4);
    socket.set_header_included_v4(true).unwrap();
    let length = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    // The kernel fills in the identification and the checksum.
    let mut packet = vec![
        0x45, 0xc0, length[0], length[1], 0, 0, 0, 0, hops, 112, 0, 0,
    ];
    packet.extend(source.octets());
    packet.extend(target.octets());
    packet.extend(payload);
    let to = SockAddr::from(SocketAddr::new(to, 0));
    socket.send_to(&packet, &to).unwrap();
}

/// From an address of its own, to the group.
fn shout(host: &Host, dialect: Dialect, payload: &[u8]) {
    let own = dialect.own(STRANGER + 1);
    if own.is_ipv4() {
        return forge(host, own, GROUP_V4.into(), HOPS, payload);
    }
    let socket = raw(host, Domain::IPV6);
    socket.set_multicast_hops_v6(HOPS.into()).unwrap();
    let IpAddr::V6(to) = group(own) else {
        panic!("the group is of the family of the address");
    };
    // The socket knows the link.
    let to = SockAddr::from(SocketAddrV6::new(to, 0, 0, 0));
    socket.send_to(payload, &to).unwrap();
}

fn strangers(election: &Election, reason: &str) -> u64 {
    let state = election.state();
    let state = state.borrow();
    state.counters.strangers.get(reason).copied().unwrap_or(0)
}

async fn counted(elections: &[&Election], reason: &str) {
    eventually(&format!("{reason} is counted"), || {
        elections
            .iter()
            .all(|election| strangers(election, reason) >= PACKETS as u64)
    })
    .await;
}

fn now_of(election: &Election) -> State {
    election.state().borrow().clone()
}

/// Why the defences are there: without one, a single packet takes the address from its owner, and a
/// few a second keep it from everybody. VRRP has no answer to that.
#[tokio::test]
async fn without_a_defence_a_stranger_takes_the_address_from_everybody() {
    let segment = Segment::new(3);
    let owner = MULTICAST.start(&segment, 1, 200);
    until_role(&owner, Role::Owner).await;
    let payload = advert(MULTICAST, 255).encode(MULTICAST.own(3), GROUP_V4.into());
    shout(&segment.hosts[STRANGER], MULTICAST, &payload);
    let state = until_role(&owner, Role::Standby).await;
    let outranked = Reason::Outranked {
        by: MULTICAST.own(3),
        priority: 255,
    };
    assert_eq!(state.transitions.last().unwrap().reason, outranked);
}

#[tokio::test]
async fn forged_adverts_do_not_take_a_signed_address() {
    for dialect in [DIALECTS[0], DIALECTS[1], DIALECTS[2], DIALECTS[4]] {
        let segment = Segment::new(3);
        let timeline = Timeline::watch(&segment.hosts, dialect.addresses()[0]);
        let keys = Some(auth(OLD_KEY));
        let owner = start_with(dialect, &segment, 1, 200, keys.clone());
        let standby = start_with(dialect, &segment, 2, 100, keys);
        until_role(&owner, Role::Owner).await;
        until(standby.state(), "heard", |state| {
            state.owner == Some(dialect.own(1))
        })
        .await;
        let before = [now_of(&owner), now_of(&standby)];
        let host = &segment.hosts[STRANGER];
        let both = [&owner, &standby];

        // In its own name, unsigned.
        for _ in 0..PACKETS {
            let own = dialect.own(STRANGER + 1);
            let payload = advert(dialect, 255).encode(own, group(own));
            match dialect.unicast {
                false => shout(host, dialect, &payload),
                true => (1..=2).for_each(|number| {
                    let to = dialect.own(number);
                    forge(host, own, to, HOPS, &advert(dialect, 255).encode(own, to));
                }),
            }
        }
        let reason = if dialect.unicast { "peer" } else { "unsigned" };
        counted(&both, reason).await;
        if !dialect.v6 {
            in_the_name_of_the_other(dialect, host, &both).await;
        }

        for (before, election) in before.iter().zip(both) {
            let after = now_of(election);
            assert_eq!(after.role, before.role, "{dialect:?}");
            assert_eq!(after.counters.transitions, before.counters.transitions);
            assert!(after.stranger.is_some());
            println!("{dialect:?}: dropped {:?}", after.counters.strangers);
        }
        assert_eq!(timeline.holders(), [0], "{dialect:?}: {timeline:?}");
        // They still hear each other.
        owner.release().await;
        until_role(&standby, Role::Owner).await;
    }
}

/// Packets with the source address of the other node: to the owner in the name of the standby, and
/// the other way round.
async fn in_the_name_of_the_other(dialect: Dialect, host: &Host, both: &[&Election]) {
    let pairs = [(2, 1), (1, 2)].map(|(from, to)| {
        let own = dialect.own(from);
        let to = match dialect.unicast {
            false => group(own),
            true => dialect.own(to),
        };
        (own, to)
    });
    let mut guessing = Signer::new(auth(STRANGERS_KEY), Ring);
    let mut old = Signer::new(auth(OLD_KEY), Ring);
    for (from, to) in pairs {
        let plain = advert(dialect, 255).encode(from, to);
        let late = now() - Duration::from_secs(600);
        let heard_long_ago = old.sign(plain.clone(), from, to, late);
        for _ in 0..PACKETS {
            forge(host, from, to, HOPS, &plain);
            let guessed = guessing.sign(plain.clone(), from, to, now());
            forge(host, from, to, HOPS, &guessed);
            forge(host, from, to, HOPS, &heard_long_ago);
            forge(host, from, to, HOPS - 1, &plain);
        }
    }
    for reason in ["unsigned", "wrong-signature", "stale", "hops"] {
        counted(both, reason).await;
    }
    // What the nodes said a moment ago, as anybody on the link can have heard it: signed with the
    // clock of a second ago, and later packets have been heard since.
    let mut replayed = Signer::new(auth(OLD_KEY), Ring);
    for (from, to) in pairs {
        let plain = advert(dialect, 255).encode(from, to);
        let heard = replayed.sign(plain, from, to, now() - Duration::from_secs(30));
        if from == pairs[1].0 {
            // Only the owner sends, so only the standby has heard something later.
            for _ in 0..PACKETS {
                forge(host, from, to, HOPS, &heard);
            }
        }
    }
    counted(&both[1..], "replayed").await;
}

/// First all accept the new key, then all sign with it, then the old one goes: nobody is refused,
/// and the address stays where it is.
#[tokio::test]
async fn keys_roll_on_while_the_address_stays() {
    for dialect in [DIALECTS[0], DIALECTS[3]] {
        let segment = Segment::new(2);
        let timeline = Timeline::watch(&segment.hosts, dialect.addresses()[0]);
        let keys = |text: &str| Some(auth(text));
        // Long enough that silence is one, and not a machine that is busy.
        let slowly = |number: usize, priority| {
            let mut settings = dialect.settings(number, priority);
            settings.router.interval = Duration::from_millis(500);
            settings.auth = keys(OLD_KEY);
            start(&segment.hosts[number - 1], settings)
        };
        let (owner, standby) = (slowly(1, 200), slowly(2, 100));
        until_role(&owner, Role::Owner).await;
        until(standby.state(), "heard", |state| {
            state.owner == Some(dialect.own(1))
        })
        .await;
        let before = now_of(&standby).counters;
        for round in [
            format!("{OLD_KEY}\n{NEW_KEY}"),
            format!("{NEW_KEY}\n{OLD_KEY}"),
            NEW_KEY.to_owned(),
        ] {
            for election in [&standby, &owner] {
                election.set_auth(keys(&round));
                let heard = || now_of(&standby).counters.adverts_received;
                let since = heard();
                eventually("two more adverts", || heard() >= since + 2).await;
            }
        }
        let after = now_of(&standby);
        assert_eq!(after.role, Role::Standby);
        assert_eq!(after.counters.transitions, before.transitions);
        assert_eq!(after.counters.adverts_ignored, Default::default());
        assert_eq!(timeline.holders(), [0], "{timeline:?}");
    }
}
