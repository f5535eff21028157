use super::*;
use crate::testing::{ip, own_network};
use std::time::Duration;

fn texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(IpAddr::to_string).collect()
}

async fn next(addresses: &mut Addresses) -> Vec<String> {
    let told = tokio::time::timeout(Duration::from_secs(20), addresses.next())
        .await
        .expect("told in time");
    texts(&told.unwrap())
}

#[tokio::test]
async fn the_whole_set_is_told_at_first_and_when_it_changes() {
    own_network();
    ip("link add v0 type veth peer name v1");
    let mut addresses = Addresses::open().unwrap();
    assert_eq!(next(&mut addresses).await, ["127.0.0.1", "::1"]);

    ip("addr add 192.0.2.1/24 dev v0");
    assert_eq!(
        next(&mut addresses).await,
        ["127.0.0.1", "192.0.2.1", "::1"]
    );
    ip("addr add 2001:db8::1/64 dev v0 nodad");
    assert_eq!(
        next(&mut addresses).await,
        ["127.0.0.1", "192.0.2.1", "::1", "2001:db8::1"]
    );

    // The same address on another link, and one that comes and goes, are no change; the end of a
    // tunnel is.
    ip("addr add 192.0.2.1/24 dev v1");
    ip("addr add 192.0.2.9/24 dev v1");
    ip("addr del 192.0.2.9/24 dev v1");
    ip("addr add 198.51.100.1 peer 198.51.100.2 dev v1");
    assert_eq!(
        next(&mut addresses).await,
        [
            "127.0.0.1",
            "192.0.2.1",
            "198.51.100.1",
            "::1",
            "2001:db8::1"
        ]
    );

    ip("link del v0");
    // Links go one after the other.
    while next(&mut addresses).await != ["127.0.0.1", "::1"] {}
}

#[tokio::test]
async fn an_address_counts_when_it_can_be_used() {
    own_network();
    ip("link add v0 type veth peer name v1");
    ip("link set v1 up");
    let mut addresses = Addresses::open().unwrap();
    next(&mut addresses).await;
    // Links that come up get addresses of their own, which are asked about like this one.
    ip("addr add 2001:db8::1/64 dev v0");
    ip("link set v0 up");
    while !next(&mut addresses)
        .await
        .contains(&"2001:db8::1".to_owned())
    {}
    std::net::UdpSocket::bind(("2001:db8::1", 0)).expect("it can be bound");
}

#[tokio::test]
async fn waiting_can_be_given_up_and_taken_up_again() {
    own_network();
    let mut addresses = Addresses::open().unwrap();
    next(&mut addresses).await;
    for number in 1..=20 {
        let idle = tokio::time::timeout(Duration::ZERO, addresses.next()).await;
        assert!(idle.is_err());
        ip(&format!("addr add 192.0.2.{number}/32 dev lo"));
        assert_eq!(next(&mut addresses).await.len(), 2 + number);
    }
}

#[tokio::test]
async fn addresses_of_services_are_not_the_nodes() {
    own_network();
    ip("link add v0 type veth peer name v1");
    let mut addresses = Addresses::open().unwrap();
    next(&mut addresses).await;
    ip(&format!("link add {LINK} type veth peer name v2"));
    ip(&format!("addr add 10.96.0.1/32 dev {LINK}"));
    ip(&format!("addr add fd00:10:96::1/128 dev {LINK}"));
    ip("addr add 192.0.2.1/24 dev v0");
    assert_eq!(
        next(&mut addresses).await,
        ["127.0.0.1", "192.0.2.1", "::1"]
    );
    ip(&format!("addr add 10.96.0.2/32 dev {LINK}"));
    assert!(
        tokio::time::timeout(Duration::from_millis(50), addresses.next())
            .await
            .is_err()
    );
}
