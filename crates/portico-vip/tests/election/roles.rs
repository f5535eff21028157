//! Who owns the address, and when it moves.

use crate::segment::*;
use crate::timeline::Timeline;
use portico_vrrp::{Reason, Role};
use std::io::ErrorKind;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[tokio::test]
async fn the_better_of_two_owns_the_address_in_every_dialect() {
    for dialect in DIALECTS {
        let segment = Segment::new(2);
        let timeline = Timeline::watch(&segment.hosts, dialect.addresses()[0]);
        let worse = dialect.start(&segment, 1, 100);
        let better = dialect.start(&segment, 2, 200);
        until_role(&better, Role::Owner).await;
        until_role(&worse, Role::Standby).await;
        timeline.wait_for(&[1], PATIENCE);
        let seen = until(worse.state(), "heard", |state| {
            state.owner == Some(dialect.own(2))
        })
        .await;
        assert_eq!(
            seen.peers
                .iter()
                .map(|peer| (peer.address, peer.priority))
                .collect::<Vec<_>>(),
            [(dialect.own(2), 200)]
        );
        assert_eq!(
            seen.counters.adverts_ignored,
            Default::default(),
            "{dialect:?}"
        );

        for address in dialect.addresses() {
            let shown = shown(&segment.hosts[1], "eth0", &address.to_string());
            assert!(shown.contains("deprecated"), "{dialect:?}: {shown}");
            assert!(
                shown.contains("valid_lft") && !shown.contains("valid_lft forever"),
                "{dialect:?}: {shown}"
            );
        }

        // The other one takes over when this one goes at once.
        drop(better);
        for address in dialect.addresses() {
            assert_eq!(
                shown(&segment.hosts[1], "eth0", &address.to_string()),
                "",
                "{dialect:?}: it goes with the owner"
            );
        }
        let state = until_role(&worse, Role::Owner).await;
        assert_eq!(
            state.transitions.last().unwrap().reason,
            Reason::OwnerLeft(dialect.own(2))
        );
        timeline.wait_for(&[0], PATIENCE);
        let (overlap, _) = timeline.longest_overlap_and_gap();
        assert!(overlap < HAND_OVER, "{dialect:?}: {overlap:?} {timeline:?}");
    }
}

#[tokio::test]
async fn of_three_the_next_best_takes_over_when_the_link_of_the_owner_is_cut() {
    let segment = Segment::new(3);
    let timeline = Timeline::watch(&segment.hosts, V4.parse().unwrap());
    let elections = [(1, 50), (2, 100), (3, 150)]
        .map(|(number, priority)| MULTICAST.start(&segment, number, priority));
    timeline.wait_for(&[2], PATIENCE);

    ip(&segment.switch, "link set port3 down");
    let state = until_role(&elections[2], Role::Stopped).await;
    assert_eq!(state.transitions.last().unwrap().reason, Reason::LinkDown);
    assert_eq!(
        state.trouble.as_deref(),
        Some("eth0 is down or has no carrier")
    );
    timeline.wait_for(&[1], PATIENCE);
    until(elections[0].state(), "told of the new owner", |state| {
        state.owner == Some(MULTICAST.own(2))
    })
    .await;

    // Back again, it takes over again: it is the better one.
    ip(&segment.switch, "link set port3 up");
    let state = until_role(&elections[2], Role::Owner).await;
    assert_eq!((state.trouble, state.counters.became_owner), (None, 2));
    timeline.wait_for(&[2], PATIENCE);
    let (overlap, gap) = timeline.longest_overlap_and_gap();
    assert!(overlap < HAND_OVER, "{overlap:?} {timeline:?}");
    assert!(gap < Duration::from_secs(1), "{gap:?} {timeline:?}");
}

#[tokio::test]
async fn an_owner_whose_link_is_set_down_owns_nothing_until_it_is_up() {
    for dialect in [
        MULTICAST,
        Dialect {
            v6: true,
            ..MULTICAST
        },
    ] {
        let segment = Segment::new(1);
        let host = &segment.hosts[0];
        let election = dialect.start(&segment, 1, 100);
        until_role(&election, Role::Owner).await;
        ip(host, "link set eth0 down");
        let state = until_role(&election, Role::Stopped).await;
        assert_eq!(
            state.trouble.as_deref(),
            Some("eth0 is down or has no carrier")
        );
        assert_eq!(shown(host, "eth0", &dialect.addresses()[0].to_string()), "");
        ip(host, "link set eth0 up");
        if dialect.v6 {
            ip(host, "addr add fe80::1/64 dev eth0 nodad"); // it went with the link
        }
        let state = until_role(&election, Role::Owner).await;
        assert_eq!((state.trouble, state.counters.became_owner), (None, 2));
    }
}

#[tokio::test]
async fn who_gets_worse_than_another_gives_way() {
    let segment = Segment::new(2);
    let timeline = Timeline::watch(&segment.hosts, V4.parse().unwrap());
    let first = MULTICAST.start(&segment, 1, 150);
    let second = MULTICAST.start(&segment, 2, 100);
    timeline.wait_for(&[0], PATIENCE);
    first.set_priority(50);
    let state = until_role(&second, Role::Owner).await;
    assert_eq!(
        state.transitions.last().unwrap().reason,
        Reason::Preempted(MULTICAST.own(1))
    );
    let state = until_role(&first, Role::Standby).await;
    assert_eq!((state.priority, state.owner), (50, Some(MULTICAST.own(2))));
    timeline.wait_for(&[1], PATIENCE);
    first.set_priority(150);
    timeline.wait_for(&[0], PATIENCE);
    for election in [&first, &second] {
        assert_eq!(
            election.state().borrow().counters.conflicts,
            0,
            "who takes over in turn is no conflict"
        );
    }
}

#[tokio::test]
async fn without_an_address_to_send_from_nobody_owns_another() {
    let segment = Segment::new(2);
    let first = MULTICAST.start(&segment, 1, 150);
    let second = MULTICAST.start(&segment, 2, 100);
    until_role(&first, Role::Owner).await;
    ip(&segment.hosts[0], "addr del 10.0.0.1/24 dev eth0");
    let state = until_role(&first, Role::Stopped).await;
    assert_eq!(state.trouble.as_deref(), Some("10.0.0.1 is not on eth0"));
    until_role(&second, Role::Owner).await;
    assert_eq!(shown(&segment.hosts[0], "eth0", V4), "");
    ip(&segment.hosts[0], "addr add 10.0.0.1/24 dev eth0");
    until_role(&first, Role::Owner).await;
}

/// A question is one packet there and one back, to a port where nobody listens: whoever has the
/// address says so.
fn answers(client: &portico_testbed::Host, address: IpAddr) -> bool {
    let asked = client
        .enter(|| TcpStream::connect_timeout(&(address, 9).into(), Duration::from_millis(500)));
    matches!(asked, Err(error) if error.kind() == ErrorKind::ConnectionRefused)
}

#[tokio::test]
async fn a_planned_end_leaves_no_moment_without_an_answer() {
    for dialect in [
        MULTICAST,
        Dialect {
            v6: true,
            ..MULTICAST
        },
        Dialect {
            unicast: true,
            ..MULTICAST
        },
    ] {
        let segment = Segment::new(3);
        let address = *dialect.addresses().last().unwrap();
        let timeline = Timeline::watch(&segment.hosts, address);
        let leaving = dialect.start(&segment, 1, 150);
        let staying = dialect.start(&segment, 2, 100);
        timeline.wait_for(&[0], PATIENCE);

        let (client, stop) = (segment.hosts[2].clone(), Arc::new(AtomicBool::new(false)));
        let asking = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut answers_so_far = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    answers_so_far.push(answers(&client, address));
                    std::thread::sleep(Duration::from_micros(500));
                }
                answers_so_far
            })
        };
        leaving.release().await;
        timeline.wait_for(&[1], PATIENCE);
        let state = until_role(&staying, Role::Owner).await;
        assert_eq!(
            state.transitions.last().unwrap().reason,
            Reason::OwnerLeft(dialect.own(1))
        );
        stop.store(true, Ordering::Relaxed);
        let answered = asking.join().unwrap();
        let failed: Vec<_> = (0..answered.len())
            .filter(|index| !answered[*index])
            .collect();
        assert!(
            answered.len() > 10,
            "{dialect:?}: only {} questions",
            answered.len()
        );
        assert!(
            failed.is_empty(),
            "{dialect:?}: of {} questions not {failed:?}",
            answered.len()
        );
        let (overlap, gap) = timeline.longest_overlap_and_gap();
        assert!(overlap < HAND_OVER, "{dialect:?}: {overlap:?} {timeline:?}");
        assert!(
            gap < Duration::from_millis(20),
            "{dialect:?}: {gap:?} {timeline:?}"
        );
    }
}

#[tokio::test]
async fn a_planned_end_of_the_only_one_ends_too() {
    let segment = Segment::new(1);
    let election = MULTICAST.start(&segment, 1, 150);
    until_role(&election, Role::Owner).await;
    let state = election.state();
    tokio::time::timeout(Duration::from_secs(5), election.release())
        .await
        .expect("it comes to an end");
    assert_eq!(state.borrow().role, Role::Stopped);
    assert_eq!(shown(&segment.hosts[0], "eth0", V4), "");
}

#[tokio::test]
async fn somebody_else_with_the_address_is_noticed() {
    for dialect in [
        MULTICAST,
        Dialect {
            v6: true,
            ..MULTICAST
        },
    ] {
        let segment = Segment::new(2);
        let address = *dialect.addresses().last().unwrap();
        let stranger = &segment.hosts[1];
        // Before it is taken: the stranger answers when it is asked.
        stranger
            .address(
                "eth0",
                &format!("{address}/{}", if dialect.v6 { 64 } else { 24 }),
            )
            .unwrap();
        let election = dialect.start(&segment, 1, 150);
        let state = until(election.state(), "noticed", |state| {
            state.counters.conflicts > 0
        })
        .await;
        let (_, conflict) = state.conflict.clone().unwrap();
        assert_eq!(conflict.address, address);
        let mac = conflict.by.map(|byte| format!("{byte:02x}")).join(":");
        assert!(ip(stranger, "link show dev eth0").contains(&mac), "{mac}");
        assert!(
            state
                .transitions
                .iter()
                .all(|transition| transition.role != Role::Owner),
            "{state:#?}"
        );

        // While it is owned: the stranger speaks up by itself. The owner keeps what it has, and
        // says so.
        until_role(&election, Role::Owner).await;
        let before = election.state().borrow().counters.clone();
        stranger
            .sysctl("net/ipv4/conf/eth0/arp_notify", "1")
            .unwrap();
        stranger
            .sysctl("net/ipv6/conf/eth0/ndisc_notify", "1")
            .unwrap();
        let noticed = || election.state().borrow().counters.conflicts > before.conflicts;
        eventually("noticed again", || {
            for mac in ["02:00:00:00:00:98", "02:00:00:00:00:99"] {
                ip(stranger, &format!("link set dev eth0 address {mac}"));
            }
            noticed()
        })
        .await;
        let state = election.state().borrow().clone();
        assert_eq!(state.conflict.unwrap().1.by[..5], [2, 0, 0, 0, 0]);
        assert!(election.state().borrow().counters.announcements > before.announcements);
        assert_eq!(election.state().borrow().role, Role::Owner);
    }
}
