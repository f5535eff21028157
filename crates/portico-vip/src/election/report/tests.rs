use super::*;
use portico_vrrp::Version;
use std::time::Duration;

const OWN: &str = "10.0.0.1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn advert(priority: u8) -> Advert {
    Advert {
        version: Version::V3,
        vrid: 1,
        priority,
        interval: Duration::from_secs(1),
        addresses: vec![ip("10.0.0.100")],
        password: None,
    }
}

#[test]
fn only_changes_that_matter_wake() {
    let (report, mut state) = Report::new(100);
    let mut wakes = || {
        let changed = state.has_changed().unwrap();
        state.mark_unchanged();
        changed
    };
    report.heard(ip("10.0.0.2"), &advert(150));
    assert!(wakes(), "somebody new");
    report.heard(ip("10.0.0.2"), &advert(150));
    report.count(|state| state.counters.adverts_sent += 1);
    assert!(!wakes(), "nothing new");
    report.heard(ip("10.0.0.2"), &advert(0));
    assert!(wakes(), "it leaves");
    report.trouble(Some("no link".to_owned()));
    assert!(wakes());
    report.trouble(Some("no link".to_owned()));
    assert!(!wakes(), "the same trouble");
}

#[test]
fn the_owner_is_who_was_heard_last_or_ourselves() {
    let (report, state) = Report::new(100);
    let owner = || state.borrow().owner.map(|owner| owner.to_string());
    report.heard(ip("10.0.0.2"), &advert(150));
    assert_eq!(owner().as_deref(), Some("10.0.0.2"));
    report.became(Role::Owner, Reason::OwnerSilent { last: None }, ip(OWN));
    report.heard(ip("10.0.0.3"), &advert(50));
    assert_eq!(owner().as_deref(), Some(OWN));
    report.became(
        Role::Standby,
        Reason::Outranked {
            by: ip("10.0.0.2"),
            priority: 150,
        },
        ip(OWN),
    );
    assert_eq!(owner().as_deref(), Some("10.0.0.2"));
    report.became(Role::Owner, Reason::OwnerLeft(ip("10.0.0.2")), ip(OWN));
    report.became(Role::Stopped, Reason::LinkDown, ip(OWN));
    assert_eq!(owner(), None);
}

#[test]
fn what_is_remembered_is_bounded() {
    let (report, state) = Report::new(100);
    for number in 0..100 {
        report.heard(IpAddr::from([10, 0, 1, number]), &advert(100));
        report.became(Role::Standby, Reason::LinkUp, ip(OWN));
    }
    let state = state.borrow();
    assert_eq!(
        (state.peers.len(), state.transitions.len()),
        (PEERS, TRANSITIONS)
    );
    assert_eq!(state.peers.last().unwrap().address, ip("10.0.1.99"));
    assert_eq!(
        (state.counters.transitions, state.counters.adverts_received),
        (100, 100)
    );
}
