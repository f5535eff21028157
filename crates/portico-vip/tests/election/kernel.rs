//! What the kernel of an owner and those of others see.

use crate::segment::*;
use portico_testbed::{Host, Route};
use portico_vip::election::{Election, ElectionError};
use portico_vrrp::Role;
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// The hardware address by which a host knows a neighbour.
fn neighbour(host: &Host, address: IpAddr) -> String {
    let line = ip(host, &format!("neigh show {address} dev eth0"));
    line.split_whitespace()
        .skip_while(|word| *word != "lladdr")
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

fn hardware(host: &Host, link: &str) -> String {
    let line = ip(host, &format!("-o link show dev {link}"));
    line.split_whitespace()
        .skip_while(|word| *word != "link/ether")
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn hosts_on_the_link_learn_of_a_new_owner_at_once() {
    for dialect in [
        MULTICAST,
        Dialect {
            v6: true,
            ..MULTICAST
        },
    ] {
        let segment = Segment::new(3);
        let [first, second, client] = segment.hosts.as_slice() else {
            unreachable!()
        };
        let address = *dialect.addresses().last().unwrap();
        let better = dialect.start(&segment, 1, 150);
        until_role(&better, Role::Owner).await;
        let worse = dialect.start(&segment, 2, 100);
        client
            .enter(|| {
                UdpSocket::bind(("::", 0))
                    .unwrap()
                    .send_to(b"?", (address, 9))
            })
            .unwrap();
        eventually("known to the client", || {
            neighbour(client, address) == hardware(first, "eth0")
        })
        .await;
        drop(better);
        until_role(&worse, Role::Owner).await;
        // The client asks nobody.
        eventually("told to the client", || {
            neighbour(client, address) == hardware(second, "eth0")
        })
        .await;
        let state = until(worse.state(), "done announcing", |state| {
            state.role == Role::Owner
        })
        .await;
        assert!(state.counters.announcements > 0);
    }
}

/// Where a connection to another would come from.
fn source(host: &Host, to: IpAddr) -> IpAddr {
    host.enter(|| {
        let any = if to.is_ipv4() { "0.0.0.0" } else { "::" };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.connect((to, 9)).unwrap();
        socket.local_addr().unwrap().ip()
    })
}

#[tokio::test]
async fn connections_of_the_owner_have_its_own_address() {
    let segment = Segment::new(2);
    let owner = &segment.hosts[0];
    owner.route(Route::to("default6").via("fd00::2")).unwrap();
    routes_v4(owner);
    let v4 = MULTICAST.start(&segment, 1, 150);
    let dialect = Dialect {
        v6: true,
        ..MULTICAST
    };
    let v6 = dialect.start(&segment, 1, 150);
    until_role(&v4, Role::Owner).await;
    until_role(&v6, Role::Owner).await;
    let own = [
        ("10.0.0.2", "10.0.0.1"),
        ("198.51.100.1", "10.0.0.1"),
        ("192.0.2.1", "10.0.0.1"),
        ("fd00::2", "fd00::1"),
        ("2001:db8::1", "fd00::1"),
    ];
    for (to, from) in own {
        assert_eq!(
            source(owner, to.parse().unwrap()).to_string(),
            from,
            "to {to}"
        );
    }

    // And it is the address that answers: the other side sees it.
    let listener = owner.enter(|| TcpListener::bind(("0.0.0.0", 80))).unwrap();
    let client = segment.hosts[1]
        .enter(|| TcpStream::connect((V4, 80)))
        .unwrap();
    let (accepted, _) = listener.accept().unwrap();
    assert_eq!(accepted.local_addr().unwrap(), client.peer_addr().unwrap());

    // Also after the host's own address went and came back.
    ip(owner, "addr del 10.0.0.1/24 dev eth0");
    until_role(&v4, Role::Stopped).await;
    ip(owner, "addr add 10.0.0.1/24 dev eth0");
    routes_v4(owner);
    until_role(&v4, Role::Owner).await;
    for (to, from) in own {
        assert_eq!(
            source(owner, to.parse().unwrap()).to_string(),
            from,
            "to {to}, later"
        );
    }
    // Programs that look for the address of their host take the first.
    let listed = ip(owner, "-4 -o addr show dev eth0");
    assert!(
        listed.find("10.0.0.1/").unwrap() < listed.find(V4).unwrap(),
        "{listed}"
    );
}

fn routes_v4(owner: &Host) {
    owner.route(Route::to("default").via("10.0.0.2")).unwrap();
    owner.route(Route::to("192.0.2.0/24").link("eth0")).unwrap();
}

#[tokio::test]
async fn what_somebody_takes_off_is_put_back() {
    for dialect in [
        MULTICAST,
        Dialect {
            v6: true,
            ..MULTICAST
        },
    ] {
        let segment = Segment::new(1);
        let host = &segment.hosts[0];
        let address = dialect.addresses()[0].to_string();
        let election = dialect.start(&segment, 1, 150);
        until_role(&election, Role::Owner).await;
        let prefix = dialect.settings(1, 150).prefix;
        ip(host, &format!("addr del {address}/{prefix} dev eth0"));
        eventually("put back", || !shown(host, "eth0", &address).is_empty()).await;
        let state = election.state().borrow().clone();
        assert_eq!(
            (
                state.role,
                state.counters.restored,
                state.counters.transitions
            ),
            (Role::Owner, 1, 2)
        );
    }
}

#[tokio::test]
async fn what_a_crash_left_goes_and_what_people_put_there_stays() {
    let segment = Segment::new(1);
    let host = &segment.hosts[0];
    ip(
        host,
        "addr add 10.0.0.100/32 dev eth0 valid_lft 1000 preferred_lft 0",
    );
    let standby = MULTICAST.start(&segment, 1, 1);
    assert_eq!(shown(host, "eth0", V4), "");
    drop(standby);
    ip(host, "addr add 10.0.0.100/32 dev eth0");
    let standby = MULTICAST.start(&segment, 1, 1);
    assert!(shown(host, "eth0", V4).contains("valid_lft forever"));
    drop(standby);
    assert!(shown(host, "eth0", V4).contains("valid_lft forever"));
}

#[tokio::test]
async fn a_link_that_is_not_there_is_waited_for_and_may_come_and_go() {
    let segment = Segment::new(1);
    let host = &segment.hosts[0];
    let mut settings = MULTICAST.settings(1, 100);
    settings.interface = "late0".to_owned();
    settings.router.own = "10.9.0.1".parse().unwrap();
    let election = start(host, settings);
    assert_eq!(
        election.state().borrow().trouble.as_deref(),
        Some("there is no link late0")
    );
    for _ in 0..2 {
        ip(host, "link add late0 type veth peer name late1");
        ip(host, "link set late1 up");
        until(election.state(), "known", |state| {
            state.trouble.as_deref() == Some("late0 is down or has no carrier")
        })
        .await;
        ip(host, "link set late0 up");
        until(election.state(), "up", |state| {
            state.trouble.as_deref() == Some("10.9.0.1 is not on late0")
        })
        .await;
        ip(host, "addr add 10.9.0.1/24 dev late0");
        until_role(&election, Role::Owner).await;
        assert!(!shown(host, "late0", V4).is_empty());
        ip(host, "link del late0");
        until_role(&election, Role::Stopped).await;
    }
    // Under another name it was there before, with its address.
    ip(host, "link add other0 type veth peer name late1");
    ip(host, "addr add 10.9.0.1/24 dev other0");
    ip(host, "link set other0 name late0");
    ip(host, "link set late1 up");
    ip(host, "link set late0 up");
    until_role(&election, Role::Owner).await;
}

#[tokio::test]
async fn the_virtual_hardware_address_stays_whoever_owns_it() {
    for dialect in [
        MULTICAST,
        Dialect {
            v6: true,
            ..MULTICAST
        },
    ] {
        let segment = Segment::new(3);
        let [first, second, client] = segment.hosts.as_slice() else {
            unreachable!()
        };
        let (link, mac) = match dialect.v6 {
            false => ("vrrp.101", "00:00:5e:00:01:65"),
            true => ("vrrp6.101", "00:00:5e:00:02:65"),
        };
        // What a crash left.
        ip(
            first,
            &format!("link add link eth0 name {link} address {mac} type macvlan mode private"),
        );
        let address = *dialect.addresses().last().unwrap();
        let [better, worse] = [(1, 150), (2, 100)].map(|(number, priority)| {
            let mut settings = dialect.settings(number, priority);
            settings.virtual_mac = true;
            start(&segment.hosts[number - 1], settings)
        });
        until_role(&better, Role::Owner).await;
        assert!(!shown(first, link, &address.to_string()).is_empty());
        assert_eq!(shown(first, "eth0", &address.to_string()), "");
        assert!(
            ip(second, &format!("link show dev {link}")).contains("state DOWN"),
            "a standby hears nothing there"
        );

        let ask = || {
            client
                .enter(|| TcpStream::connect_timeout(&(address, 9).into(), Duration::from_secs(2)))
        };
        assert_eq!(
            ask().unwrap_err().kind(),
            std::io::ErrorKind::ConnectionRefused
        );
        assert_eq!(neighbour(client, address), mac);
        // The switch knows where it is from the adverts and announcements.
        let port = || ip_bridge(&segment.switch, mac);
        eventually("learned by the switch", || port().contains("dev port1")).await;

        better.release().await;
        until_role(&worse, Role::Owner).await;
        eventually("learned anew", || port().contains("dev port2")).await;
        assert_eq!(
            ask().unwrap_err().kind(),
            std::io::ErrorKind::ConnectionRefused
        );
        assert_eq!(neighbour(client, address), mac);
        assert!(!ip(first, "link show").contains(link));
        assert_eq!(
            first.read_sysctl("net/ipv4/conf/eth0/arp_ignore").unwrap(),
            "0"
        );
        // For the host's own address that link does not answer.
        client
            .enter(|| {
                UdpSocket::bind(("::", 0))
                    .unwrap()
                    .send_to(b"?", ("10.0.0.2", 9))
            })
            .unwrap();
        eventually("known", || {
            neighbour(client, "10.0.0.2".parse().unwrap()) == hardware(second, "eth0")
        })
        .await;
    }
}

fn ip_bridge(switch: &Host, mac: &str) -> String {
    let mut command = std::process::Command::new("bridge");
    command.args(["fdb", "show", "br", "br0"]);
    let all = switch.run(command, "").unwrap();
    all.lines().filter(|line| line.starts_with(mac)).collect()
}

#[test]
fn settings_that_cannot_work_are_refused_with_the_reason() {
    let refusal = |change: fn(&mut portico_vip::election::Settings)| {
        let mut settings = MULTICAST.settings(1, 100);
        change(&mut settings);
        match Election::start(settings) {
            Err(ElectionError::Io { doing, .. }) => panic!("{doing}"),
            Err(error) => error.to_string(),
            Ok(_) => panic!("it began"),
        }
    };
    assert_eq!(
        refusal(|s| s.router.vrid = 0),
        "a virtual router id is 1 to 255"
    );
    assert_eq!(
        refusal(|s| s.prefix = 33),
        "a prefix length of 33 is not possible, only 1 to 32"
    );
    assert_eq!(
        refusal(|s| s.interface = "a/b".to_owned()),
        "\"a/b\" cannot be the name of a link"
    );
}
