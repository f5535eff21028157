//! The dataplane on a kernel in memory: any sequence of changes, connections that live on, faults,
//! and other people's servers.

use super::fake::Fake;
use super::server::{Found, Settings};
use super::sets::{Entry, Set};
use super::*;
use portico_model::key::ObjectKey;
use portico_model::table::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

const OWN: [&str; 4] = ["127.0.0.1", "172.30.0.11", "10.97.0.2", "fe80::1"];

fn open(kernel: &Fake) -> Ipvs<Fake> {
    Ipvs::new(
        kernel.clone(),
        "rr".into(),
        vec!["198.51.100.0/24".parse().unwrap()],
    )
}

fn key(number: u8, protocol: Protocol) -> PortKey {
    let service = ObjectKey::new("default", &format!("service-{number}"));
    PortKey {
        service,
        port: "http".into(),
        protocol,
        family: Family::V4,
    }
}

fn endpoint(number: u8) -> Endpoint {
    Endpoint {
        address: IpAddr::from([10, 244, 0, number]),
        port: 8080,
        local: number.is_multiple_of(3),
    }
}

fn frontend(kind: FrontendKind, address: Option<&str>, port: u16) -> Frontend {
    Frontend {
        kind,
        address: address.map(|address| address.parse().unwrap()),
        port,
        inside: Outcome::Cluster,
        outside: Outcome::Cluster,
        masquerade: Masquerade::UnlessPod,
        sources: None,
    }
}

fn port(frontends: Vec<Frontend>, endpoints: &[u8]) -> ServicePort {
    ServicePort {
        frontends,
        cluster: endpoints.iter().copied().map(endpoint).collect(),
        ..ServicePort::default()
    }
}

fn web(endpoints: &[u8]) -> ServicePort {
    let mut port = port(
        vec![frontend(FrontendKind::ClusterIp, Some("10.96.0.1"), 80)],
        endpoints,
    );
    if endpoints.is_empty() {
        (port.frontends[0].inside, port.frontends[0].outside) = (Outcome::Reject, Outcome::Reject);
    }
    port
}

fn at(text: &str) -> At {
    let (socket, protocol) = text.split_once('/').unwrap();
    let socket: SocketAddr = socket.parse().unwrap();
    let protocol = if protocol == "tcp" {
        Protocol::Tcp
    } else {
        Protocol::Udp
    };
    At {
        address: socket.ip(),
        port: socket.port(),
        protocol,
    }
}

fn table() -> ForwardingTable {
    let node_ports = PerFamily {
        v4: NodePortAddresses::AllLocal { loopback: true },
        ..PerFamily::default()
    };
    let rules = NodeRules {
        masquerade_mark: 0x4000,
        node_ports,
        ..NodeRules::default()
    };
    ForwardingTable {
        rules,
        ..ForwardingTable::default()
    }
}

fn set(table: &mut ForwardingTable, key: PortKey, port: Option<ServicePort>) -> Change {
    let after = port.map(Arc::new);
    let before = match &after {
        Some(port) => table.ports.insert(key.clone(), port.clone()),
        None => table.ports.remove(&key),
    };
    Change { key, before, after }
}

/// One Service, installed; what was done for it is forgotten.
fn installed(protocol: Protocol, port: ServicePort) -> (Fake, Ipvs<Fake>, ForwardingTable) {
    let kernel = Fake::new(&OWN);
    let (mut ipvs, mut table) = (open(&kernel), table());
    set(&mut table, key(1, protocol), Some(port));
    ipvs.replace(&table).unwrap();
    kernel.done();
    (kernel, ipvs, table)
}

fn change(
    ipvs: &mut Ipvs<Fake>,
    table: &mut ForwardingTable,
    key: PortKey,
    port: Option<ServicePort>,
) {
    let change = set(table, key, port);
    ipvs.apply(&table.rules, &[change]).unwrap();
}

const TCP: Protocol = Protocol::Tcp;
const UDP: Protocol = Protocol::Udp;

#[test]
fn a_service_comes_and_goes_in_the_order_of_the_book() {
    let kernel = Fake::new(&OWN);
    let (mut ipvs, mut table) = (open(&kernel), table());
    ipvs.replace(&table).unwrap();
    change(&mut ipvs, &mut table, key(1, TCP), Some(web(&[1, 2])));
    let expected = [
        "add 10.244.0.1:8080/tcp from 10.244.0.1 to KUBE-LOOP-BACK",
        "add 10.244.0.2:8080/tcp from 10.244.0.2 to KUBE-LOOP-BACK",
        "add 10.96.0.1 to KUBE-IPVS-IPS",
        "add 10.96.0.1:80/tcp to KUBE-CLUSTER-IP",
        "add virtual server 10.96.0.1:80/tcp rr",
        "add 10.244.0.1:8080 to 10.96.0.1:80/tcp",
        "add 10.244.0.2:8080 to 10.96.0.1:80/tcp",
        "add address 10.96.0.1",
    ];
    assert_eq!(kernel.done(), expected);
    change(&mut ipvs, &mut table, key(1, TCP), None);
    let expected = [
        "delete 10.96.0.1:80/tcp from KUBE-CLUSTER-IP",
        "delete virtual server 10.96.0.1:80/tcp",
        "delete address 10.96.0.1",
        "delete 10.244.0.1:8080/tcp from 10.244.0.1 from KUBE-LOOP-BACK",
        "delete 10.244.0.2:8080/tcp from 10.244.0.2 from KUBE-LOOP-BACK",
        "delete 10.96.0.1 from KUBE-IPVS-IPS",
    ];
    assert_eq!(kernel.done(), expected);
    let state = kernel.state();
    assert!(state.servers.is_empty() && state.entries.is_empty() && state.linked.is_empty());
}

#[test]
fn a_moved_endpoint_costs_four_operations() {
    let (kernel, mut ipvs, mut table) = installed(UDP, web(&[1, 2]));
    change(&mut ipvs, &mut table, key(1, UDP), Some(web(&[1, 4])));
    let expected = [
        "add 10.244.0.4:8080/udp from 10.244.0.4 to KUBE-LOOP-BACK",
        "add 10.244.0.4:8080 to 10.96.0.1:80/udp",
        "delete 10.244.0.2:8080 from 10.96.0.1:80/udp",
        "delete 10.244.0.2:8080/udp from 10.244.0.2 from KUBE-LOOP-BACK",
    ];
    assert_eq!(kernel.done(), expected);
}

#[test]
fn a_tcp_endpoint_stays_until_its_connections_have_ended() {
    let (kernel, mut ipvs, mut table) = installed(TCP, web(&[1, 2]));
    let (server, gone) = (at("10.96.0.1:80/tcp"), "10.244.0.2:8080".parse().unwrap());
    kernel.connections(server, gone, 1, 0);
    change(&mut ipvs, &mut table, key(1, TCP), Some(web(&[1])));
    assert!(
        kernel
            .done()
            .contains(&"give 10.244.0.2:8080 of 10.96.0.1:80/tcp weight 0".to_owned())
    );
    // Comparing everything leaves it alone, and so does a new process.
    let kept = |report: Report| assert_eq!(report, Report::default());
    kept(ipvs.replace(&table).unwrap());
    ipvs = open(&kernel);
    kept(ipvs.replace(&table).unwrap());
    let due = ipvs.due().unwrap();
    ipvs.tend(due).unwrap();
    kernel.connections(server, gone, 0, 1);
    ipvs.tend(due).unwrap();
    assert_eq!(kernel.done(), [""; 0]);
    kernel.connections(server, gone, 0, 0);
    ipvs.tend(ipvs.due().unwrap()).unwrap();
    assert_eq!(
        kernel.done(),
        ["delete 10.244.0.2:8080 from 10.96.0.1:80/tcp"]
    );
    assert_eq!(ipvs.due(), None);
}

#[test]
fn an_endpoint_that_comes_back_is_given_weight() {
    let (kernel, mut ipvs, mut table) = installed(TCP, web(&[1, 2]));
    change(&mut ipvs, &mut table, key(1, TCP), Some(web(&[1])));
    kernel.done();
    change(&mut ipvs, &mut table, key(1, TCP), Some(web(&[1, 2])));
    let expected = [
        "add 10.244.0.2:8080/tcp from 10.244.0.2 to KUBE-LOOP-BACK",
        "give 10.244.0.2:8080 of 10.96.0.1:80/tcp weight 1",
    ];
    assert_eq!(kernel.done(), expected);
    assert_eq!(ipvs.due(), None);
}

#[test]
fn a_server_with_connections_outlives_its_service() {
    let (kernel, mut ipvs, mut table) = installed(TCP, web(&[1, 2]));
    let (server, busy) = (at("10.96.0.1:80/tcp"), "10.244.0.1:8080".parse().unwrap());
    kernel.connections(server, busy, 1, 0);
    change(&mut ipvs, &mut table, key(1, TCP), None);
    let expected = [
        "add 10.96.0.1:80/tcp to PORTICO-PLAIN",
        "add 10.96.0.1 to PORTICO-LEAVING",
        "delete 10.96.0.1:80/tcp from KUBE-CLUSTER-IP",
        "delete 10.244.0.2:8080 from 10.96.0.1:80/tcp",
        "give 10.244.0.1:8080 of 10.96.0.1:80/tcp weight 0",
        "delete 10.244.0.1:8080/tcp from 10.244.0.1 from KUBE-LOOP-BACK",
        "delete 10.244.0.2:8080/tcp from 10.244.0.2 from KUBE-LOOP-BACK",
        "delete 10.96.0.1 from KUBE-IPVS-IPS",
    ];
    assert_eq!(kernel.done(), expected);
    ipvs = open(&kernel);
    assert_eq!(
        ipvs.replace(&table).unwrap(),
        Report::default(),
        "a new process leaves it alone"
    );
    kernel.connections(server, busy, 0, 3);
    ipvs.tend(ipvs.due().unwrap()).unwrap();
    let expected = [
        "delete 10.96.0.1:80/tcp from PORTICO-PLAIN",
        "delete virtual server 10.96.0.1:80/tcp",
        "delete address 10.96.0.1",
        "delete 10.96.0.1 from PORTICO-LEAVING",
    ];
    assert_eq!(kernel.done(), expected);
}

#[test]
fn a_service_that_comes_back_takes_its_server_over() {
    let (kernel, mut ipvs, mut table) = installed(TCP, web(&[1, 2]));
    kernel.connections(
        at("10.96.0.1:80/tcp"),
        "10.244.0.1:8080".parse().unwrap(),
        1,
        0,
    );
    change(&mut ipvs, &mut table, key(1, TCP), None);
    kernel.done();
    change(&mut ipvs, &mut table, key(2, TCP), Some(web(&[1, 4])));
    let expected = [
        "add 10.244.0.1:8080/tcp from 10.244.0.1 to KUBE-LOOP-BACK",
        "add 10.244.0.4:8080/tcp from 10.244.0.4 to KUBE-LOOP-BACK",
        "add 10.96.0.1 to KUBE-IPVS-IPS",
        "add 10.96.0.1:80/tcp to KUBE-CLUSTER-IP",
        "give 10.244.0.1:8080 of 10.96.0.1:80/tcp weight 1",
        "add 10.244.0.4:8080 to 10.96.0.1:80/tcp",
        "delete 10.96.0.1:80/tcp from PORTICO-PLAIN",
        "delete 10.96.0.1 from PORTICO-LEAVING",
    ];
    assert_eq!(kernel.done(), expected);
    assert_eq!(ipvs.due(), None);
}

#[test]
fn datagrams_are_left_alone_for_a_while_where_nobody_else_serves() {
    let (kernel, mut ipvs, mut table) = installed(UDP, web(&[1]));
    change(&mut ipvs, &mut table, key(1, UDP), Some(web(&[])));
    assert!(
        kernel
            .done()
            .contains(&"give 10.244.0.1:8080 of 10.96.0.1:80/udp weight 0".to_owned())
    );
    ipvs.tend(ipvs.due().unwrap()).unwrap();
    assert_eq!(
        kernel.done(),
        ["delete 10.244.0.1:8080 from 10.96.0.1:80/udp"],
        "after ten seconds"
    );
    // Where another one comes meanwhile, flows go there at once.
    change(&mut ipvs, &mut table, key(1, UDP), Some(web(&[1])));
    change(&mut ipvs, &mut table, key(1, UDP), Some(web(&[])));
    kernel.done();
    change(&mut ipvs, &mut table, key(1, UDP), Some(web(&[2])));
    assert!(
        kernel
            .done()
            .contains(&"delete 10.244.0.1:8080 from 10.96.0.1:80/udp".to_owned())
    );
}

#[test]
fn datagrams_go_on_to_who_serves_and_gets_no_new_ones() {
    let (kernel, mut ipvs, mut table) = installed(UDP, web(&[1, 2]));
    let leaving = ServicePort {
        lingering: [endpoint(2)].into(),
        ..web(&[1])
    };
    change(&mut ipvs, &mut table, key(1, UDP), Some(leaving));
    assert!(
        kernel
            .done()
            .contains(&"give 10.244.0.2:8080 of 10.96.0.1:80/udp weight 0".to_owned())
    );
    change(&mut ipvs, &mut table, key(1, UDP), Some(web(&[1])));
    assert_eq!(
        kernel.done(),
        ["delete 10.244.0.2:8080 from 10.96.0.1:80/udp"]
    );
}

#[test]
fn servers_of_others_are_left_alone() {
    let kernel = Fake::new(&OWN);
    let foreign = Found {
        settings: Settings::new(&"wlc".into(), None),
        destinations: Vec::new(),
    };
    for text in ["172.30.0.11:443/tcp", "198.51.100.7:80/tcp"] {
        kernel.state().servers.insert(at(text), foreign.clone());
    }
    let (mut ipvs, table) = (open(&kernel), table());
    ipvs.replace(&table).unwrap();
    assert_eq!(kernel.done(), [""; 0]);
    // kube-proxy would not have left any, but those that it was told of.
    kernel.state().kube_proxy = true;
    open(&kernel).replace(&table).unwrap();
    assert_eq!(kernel.done(), ["delete virtual server 172.30.0.11:443/tcp"]);
}

#[test]
fn a_frontend_on_an_address_of_the_node_takes_it_from_a_node_port() {
    let node_port = || port(vec![frontend(FrontendKind::NodePort, None, 80)], &[1]);
    let (kernel, mut ipvs, mut table) = installed(TCP, node_port());
    let pool = |server: &str| -> Vec<SocketAddr> {
        kernel.state().servers[&at(server)]
            .destinations
            .iter()
            .map(|destination| destination.at)
            .collect()
    };
    assert_eq!(
        pool("172.30.0.11:80/tcp"),
        ["10.244.0.1:8080".parse().unwrap()]
    );
    let external = port(
        vec![frontend(FrontendKind::ExternalIp, Some("172.30.0.11"), 80)],
        &[2],
    );
    change(&mut ipvs, &mut table, key(2, TCP), Some(external));
    assert!(pool("172.30.0.11:80/tcp").contains(&"10.244.0.2:8080".parse().unwrap()));
    assert_eq!(
        pool("10.97.0.2:80/tcp"),
        ["10.244.0.1:8080".parse().unwrap()]
    );
    assert!(
        kernel.state().linked.is_empty(),
        "the node has the address already"
    );
    change(&mut ipvs, &mut table, key(1, TCP), Some(node_port()));
    change(&mut ipvs, &mut table, key(2, TCP), None);
    assert!(pool("172.30.0.11:80/tcp").contains(&"10.244.0.1:8080".parse().unwrap()));
}

#[test]
fn two_addresses_with_the_same_shadow_do_not_get_each_others_packets() {
    let kernel = Fake::new(&OWN);
    let (mut ipvs, mut table) = (open(&kernel), table());
    for (number, address) in [(1, "10.0.0.5"), (2, "26.0.0.5")] {
        let local = Frontend {
            outside: Outcome::Local,
            masquerade: Masquerade::OnlyNode,
            ..frontend(FrontendKind::LoadBalancerIp, Some(address), 80)
        };
        let port = ServicePort {
            local: [endpoint(3)].into(),
            ..port(vec![local], &[number, 3])
        };
        set(&mut table, key(number, TCP), Some(port));
    }
    ipvs.replace(&table).unwrap();
    let state = kernel.state();
    let inside: Vec<_> = state
        .entries
        .iter()
        .filter(|(set, _)| *set == Set::Inside)
        .collect();
    assert_eq!(inside, [&(Set::Inside, Entry::At(at("10.0.0.5:80/tcp")))]);
    let shadow = &state.servers[&at("250.0.0.5:80/tcp")];
    assert_eq!(
        shadow.destinations[0].at,
        "10.244.0.1:8080".parse().unwrap()
    );
}

#[test]
fn ports_of_a_service_share_its_health_check() {
    let checked = |address| {
        let frontends = vec![frontend(FrontendKind::LoadBalancerIp, Some(address), 80)];
        ServicePort {
            health_check: Some(32_000),
            ..port(frontends, &[1])
        }
    };
    let (kernel, mut ipvs, mut table) = installed(TCP, checked("10.98.0.1"));
    let entry = (Set::HealthCheck, Entry::Port(Family::V4, 32_000));
    let second = set(&mut table, key(2, TCP), Some(checked("10.98.0.2")));
    ipvs.apply(&table.rules, &[second]).unwrap();
    for (number, is_there) in [(1, true), (2, false)] {
        let gone = set(&mut table, key(number, TCP), None);
        ipvs.apply(&table.rules, &[gone]).unwrap();
        assert_eq!(
            kernel.state().entries.contains(&entry),
            is_there,
            "without {number}"
        );
    }
}

#[test]
fn a_fault_half_way_is_repaired() {
    for after in 0..8 {
        let (kernel, mut ipvs, mut table) = installed(TCP, web(&[1, 2]));
        kernel.state().fails_after = Some(after);
        let moved = port(
            vec![frontend(
                FrontendKind::LoadBalancerIp,
                Some("10.98.0.1"),
                80,
            )],
            &[2, 4],
        );
        let change = set(&mut table, key(1, TCP), Some(moved));
        assert!(
            ipvs.apply(&table.rules, std::slice::from_ref(&change))
                .is_err(),
            "{after}"
        );
        assert!(
            ipvs.apply(&table.rules, &[change]).is_err(),
            "what is installed is not known"
        );
        ipvs.replace(&table).unwrap();
        assert_eq!(ipvs.replace(&table).unwrap(), Report::default());
        assert_eq!(meaning(&kernel), meaning(&fresh(&table)));
    }
}

#[test]
fn what_somebody_changed_is_repaired_and_told() {
    let (kernel, mut ipvs, table) = installed(TCP, web(&[1, 2]));
    kernel
        .state()
        .servers
        .get_mut(&at("10.96.0.1:80/tcp"))
        .unwrap()
        .destinations
        .remove(0);
    kernel.state().linked.clear();
    let report = ipvs.replace(&table).unwrap();
    let expected = [
        "it was necessary to add 10.244.0.1:8080 to 10.96.0.1:80/tcp",
        "it was necessary to add address 10.96.0.1",
    ];
    assert_eq!(report.drift, expected);
}

/// What packets meet: nothing of what is kept for connections that live on.
#[derive(Debug, PartialEq, Eq)]
struct Meaning {
    servers: Vec<(At, Settings, BTreeSet<SocketAddr>)>,
    entries: BTreeSet<(Set, Entry)>,
    linked: BTreeSet<IpAddr>,
}

fn meaning(kernel: &Fake) -> Meaning {
    let state = kernel.state();
    let listed = |at: &At| {
        let shadowed = |(set, entry): &(Set, Entry)| match entry {
            Entry::At(original) if *set == Set::Inside => shadow::shadow(original.address)
                .is_some_and(|address| {
                    At {
                        address,
                        ..*original
                    } == *at
                }),
            _ => false,
        };
        let frontend =
            |set: &&Set| **set != Set::Plain && state.entries.contains(&(**set, Entry::At(*at)));
        Set::FRONTENDS.iter().any(|set| frontend(&set)) || state.entries.iter().any(shadowed)
    };
    let live = |found: &Found| -> BTreeSet<SocketAddr> {
        found
            .destinations
            .iter()
            .filter(|destination| destination.weight > 0)
            .map(|destination| destination.at)
            .collect()
    };
    let servers = state.servers.iter().filter(|(at, _)| listed(at));
    Meaning {
        servers: servers
            .map(|(at, found)| (*at, found.settings.clone(), live(found)))
            .collect(),
        entries: state
            .entries
            .iter()
            .filter(|(set, _)| ![Set::Leaving, Set::Plain].contains(set))
            .copied()
            .collect(),
        linked: state
            .linked
            .iter()
            .filter(|address| {
                state
                    .entries
                    .contains(&(Set::Bound, Entry::Address(**address)))
            })
            .copied()
            .collect(),
    }
}

fn fresh(table: &ForwardingTable) -> Fake {
    let kernel = Fake::new(&OWN);
    open(&kernel).replace(table).unwrap();
    kernel
}

/// A port that the model could make. Ports have the same few addresses, so that they take them over
/// from one another; one of the addresses is the node's own.
fn any_port() -> impl Strategy<Value = ServicePort> {
    let endpoints = proptest::collection::btree_set(0u8..8, 0..6);
    let frontends = proptest::collection::btree_set((0u8..4, 0u8..3), 0..4);
    let affinity = prop_oneof![3 => Just(None), 1 => Just(Some(60)), 1 => Just(Some(10_800))];
    let health_check = proptest::option::weighted(0.3, 32_000u16..32_003);
    let parts = (endpoints, frontends, affinity, any::<bool>(), health_check);
    parts.prop_map(
        |(endpoints, frontends, affinity, policy_local, health_check)| {
            let cluster: Vec<Endpoint> = endpoints.into_iter().map(endpoint).collect();
            let local: Vec<Endpoint> = cluster
                .iter()
                .filter(|endpoint| endpoint.local)
                .copied()
                .collect();
            let outcome = |is_local: bool| match (is_local, cluster.is_empty(), local.is_empty()) {
                (_, true, _) => Outcome::Reject,
                (true, false, true) => Outcome::Drop,
                (true, false, false) => Outcome::Local,
                (false, false, _) => Outcome::Cluster,
            };
            let made = |(kind, number): (u8, u8)| {
                let address = |base: u8| Some(IpAddr::from([10, base, 0, number]));
                let masquerade = if policy_local {
                    Masquerade::OnlyNode
                } else {
                    Masquerade::Always
                };
                let (inside, outside) = (outcome(false), outcome(policy_local));
                let external = |kind| Frontend {
                    inside,
                    outside,
                    masquerade,
                    ..frontend(kind, None, 80)
                };
                match kind {
                    0 => {
                        let (inside, outside) = (outcome(policy_local), outcome(policy_local));
                        Frontend {
                            address: address(96),
                            inside,
                            outside,
                            ..frontend(FrontendKind::ClusterIp, None, 80)
                        }
                    }
                    1 => Frontend {
                        port: 80 + u16::from(number),
                        ..external(FrontendKind::NodePort)
                    },
                    2 => Frontend {
                        address: address(97),
                        ..external(FrontendKind::ExternalIp)
                    },
                    _ => {
                        let sources = ["10.0.0.0/8", "192.168.0.0/24", "0.0.0.0/0"]
                            .map(|text| text.parse().unwrap());
                        let sources = Some(sources[..=usize::from(number)].into());
                        Frontend {
                            address: address(98),
                            sources,
                            ..external(FrontendKind::LoadBalancerIp)
                        }
                    }
                }
            };
            let frontends = frontends.into_iter().map(made).collect();
            let local = if policy_local {
                local.into()
            } else {
                Arc::default()
            };
            ServicePort {
                frontends,
                local,
                cluster: cluster.into(),
                affinity,
                health_check,
                ..ServicePort::default()
            }
        },
    )
}

type Step = Vec<(u8, bool, Option<ServicePort>)>;

fn step() -> impl Strategy<Value = Step> {
    proptest::collection::vec(
        (
            0u8..5,
            any::<bool>(),
            proptest::option::weighted(0.8, any_port()),
        ),
        1..4,
    )
}

/// As the model does: a frontend has one owner, a port without any is left out.
fn take(
    table: &mut ForwardingTable,
    (number, udp, port): (u8, bool, Option<ServicePort>),
) -> Change {
    let key = key(number, if udp { UDP } else { TCP });
    let others: Vec<(Option<IpAddr>, u16)> = table
        .ports
        .iter()
        .filter(|(other, _)| **other != key && other.protocol == key.protocol)
        .flat_map(|(_, port)| {
            port.frontends
                .iter()
                .map(|frontend| (frontend.address, frontend.port))
        })
        .collect();
    let port = port.map(|mut port| {
        port.frontends
            .retain(|frontend| !others.contains(&(frontend.address, frontend.port)));
        port
    });
    set(table, key, port.filter(|port| !port.frontends.is_empty()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_changes_lead_to_what_a_fresh_start_installs(steps in proptest::collection::vec(step(), 1..8), busy in any::<bool>()) {
        let kernel = Fake::new(&OWN);
        let (mut ipvs, mut table) = (open(&kernel), table());
        ipvs.replace(&table).unwrap();
        for step in steps {
            let changes: Vec<Change> = step.into_iter().map(|one| take(&mut table, one)).collect();
            ipvs.apply(&table.rules, &changes).unwrap();
            kernel.check_continuity();
            prop_assert_eq!(meaning(&kernel), meaning(&fresh(&table)));
            if busy {
                kernel.state().servers.values_mut().flat_map(|server| &mut server.destinations).for_each(|d| d.active = 1);
            }
        }
        prop_assert_eq!(ipvs.replace(&table).unwrap(), Report::default());
        prop_assert_eq!(open(&kernel).replace(&table).unwrap(), Report::default());
        kernel.state().servers.values_mut().flat_map(|server| &mut server.destinations).for_each(|d| d.active = 0);
        while let Some(due) = ipvs.due() {
            ipvs.tend(due + Duration::from_secs(60)).unwrap();
        }
        let (kernel, fresh) = (kernel.state(), fresh(&table));
        let fresh = fresh.state();
        prop_assert_eq!(&kernel.entries, &fresh.entries, "nothing is left over");
        prop_assert_eq!(&kernel.linked, &fresh.linked);
        prop_assert!(kernel.servers.keys().eq(fresh.servers.keys()));
    }

    #[test]
    fn a_restart_with_another_table_repairs_what_differs(one in step(), other in step()) {
        let kernel = Fake::new(&OWN);
        let mut table = table();
        one.into_iter().for_each(|one| drop(take(&mut table, one)));
        open(&kernel).replace(&table).unwrap();
        other.into_iter().for_each(|one| drop(take(&mut table, one)));
        let mut ipvs = open(&kernel);
        kernel.check_continuity();
        ipvs.replace(&table).unwrap();
        kernel.check_continuity();
        prop_assert_eq!(meaning(&kernel), meaning(&fresh(&table)));
        prop_assert_eq!(ipvs.replace(&table).unwrap(), Report::default());
    }
}

/// Virtual servers and sets have no comments, so that no name gets into the kernel at all.
#[test]
fn hostile_names_change_no_operation() {
    let done = |name: &str| {
        let kernel = Fake::new(&OWN);
        let (mut ipvs, mut table) = (open(&kernel), table());
        let (key, port) = crate::testing::hostile(name, 1);
        set(&mut table, key, Some((*port).clone()));
        ipvs.replace(&table).unwrap();
        kernel.done()
    };
    let plain = done("web");
    assert!(plain.len() > 10);
    for name in crate::testing::hostile_names() {
        assert_eq!(done(&name), plain, "{name:?}");
    }
}
