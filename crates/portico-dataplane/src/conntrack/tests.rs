//! In the kernel: exactly which flows remain.

use super::*;
use portico_model::key::ObjectKey;
use portico_model::table::{
    Change, Endpoint, Family, ForwardingTable, Frontend, FrontendKind, Masquerade,
    NodePortAddresses, NodeRules, Outcome, PerFamily, PortKey, Protocol, ServicePort,
};
use portico_testbed::{Host, Testbed};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

fn host() -> Host {
    let host = Testbed::new().unwrap().host("node").unwrap();
    host.address("lo", "192.0.2.1/32").unwrap();
    host.secondary_address("lo", "2001:db8::1/128").unwrap();
    host
}

fn tool(host: &Host, program: &str, arguments: &str) -> String {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace());
    host.run(command, "").unwrap()
}

/// A flow from a client to `to` that `by` answers.
fn inject(host: &Host, protocol: &str, client: &str, to: &str, by: &str, more: &str) {
    let [client, to, by]: [SocketAddr; 3] = [client, to, by].map(|text| text.parse().unwrap());
    let state = match protocol {
        "udp" => "",
        "tcp" => "--state ESTABLISHED",
        _ => "--state ESTABLISHED --orig-vtag 1 --reply-vtag 2",
    };
    let arguments = format!(
        "-I -p {protocol} --timeout 600 -s {} -d {} --sport {} --dport {} \
         --reply-src {} --reply-dst {} --reply-port-src {} --reply-port-dst {} {state} {more}",
        client.ip(),
        to.ip(),
        client.port(),
        to.port(),
        by.ip(),
        client.ip(),
        by.port(),
        client.port(),
    );
    tool(host, "conntrack", &arguments);
}

/// The source ports of the flows that there are, by which tests name them.
fn remaining(host: &Host) -> Vec<u16> {
    let mut ports = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let listed = tool(host, "conntrack", &format!("-L -f {family}"));
        let port = |line: &str| {
            line.split("sport=")
                .nth(1)?
                .split(' ')
                .next()?
                .parse::<u16>()
                .ok()
        };
        ports.extend(listed.lines().filter_map(port));
    }
    ports.sort_unstable();
    ports
}

fn service_port(frontends: &[&str], endpoints: &[&str]) -> Arc<ServicePort> {
    let frontend = |text: &&str| {
        let at: Option<SocketAddr> = text.parse().ok();
        let port = at.map_or_else(
            || text.trim_start_matches(':').parse().unwrap(),
            |at| at.port(),
        );
        let kind = if at.is_some() {
            FrontendKind::ClusterIp
        } else {
            FrontendKind::NodePort
        };
        let (inside, outside) = (Outcome::Cluster, Outcome::Cluster);
        Frontend {
            kind,
            address: at.map(|at| at.ip()),
            port,
            inside,
            outside,
            masquerade: Masquerade::Never,
            sources: None,
        }
    };
    let endpoint = |text: &&str| {
        let at: SocketAddr = text.parse().unwrap();
        Endpoint {
            address: at.ip(),
            port: at.port(),
            local: false,
        }
    };
    Arc::new(ServicePort {
        frontends: frontends.iter().map(frontend).collect(),
        cluster: endpoints.iter().map(endpoint).collect(),
        ..ServicePort::default()
    })
}

fn key(protocol: Protocol, family: Family) -> PortKey {
    let service = ObjectKey::new("default", "dns");
    PortKey {
        service,
        port: "".into(),
        protocol,
        family,
    }
}

fn everywhere() -> NodeRules {
    let all = NodePortAddresses::AllLocal { loopback: true };
    NodeRules {
        node_ports: PerFamily {
            v4: all.clone(),
            v6: all,
        },
        ..NodeRules::default()
    }
}

fn end(host: &Host, stale: &Stale) -> usize {
    let ended = host.enter(|| Conntrack::open().unwrap().end(stale).unwrap());
    ended.v4 + ended.v6
}

#[test]
fn exactly_the_stale_flows_end() {
    let host = host();
    let udp = |client: &str, to: &str, by: &str| inject(&host, "udp", client, to, by, "");
    udp("10.0.0.9:1001", "10.96.0.1:53", "10.244.0.1:53");
    udp("10.0.0.9:1002", "10.96.0.1:53", "10.244.0.2:53");
    udp("10.0.0.9:1003", "10.96.0.1:53", "10.96.0.1:53");
    udp("10.0.0.9:1004", "10.96.0.1:54", "10.244.0.1:53");
    udp("10.0.0.9:1005", "10.96.0.2:53", "10.244.0.1:53");
    udp("10.0.0.9:1006", "10.244.0.1:53", "10.244.0.1:53");
    udp("10.0.0.9:1007", "192.0.2.1:30053", "10.244.0.1:53");
    udp("10.0.0.9:1008", "192.0.2.1:30053", "10.244.0.2:53");
    udp("10.0.0.9:1009", "198.51.100.1:30053", "198.51.100.1:30053");
    udp("10.0.0.9:1010", "127.0.0.1:30053", "10.244.0.1:53");
    inject(
        &host,
        "tcp",
        "10.0.0.9:1011",
        "10.96.0.1:53",
        "10.244.0.1:53",
        "",
    );
    inject(
        &host,
        "udp",
        "10.0.0.9:1012",
        "10.96.0.1:53",
        "10.244.0.1:53",
        "--zone 7",
    );
    inject(
        &host,
        "udp",
        "10.0.0.9:1013",
        "10.96.0.1:53",
        "10.244.0.2:53",
        "--zone 7",
    );
    udp("[fd02::9]:1014", "[fd00::1]:53", "[fd01::1]:53");
    udp("[fd02::9]:1015", "[2001:db8::1]:30053", "[fd01::1]:53");
    udp(
        "[fd02::9]:1016",
        "[2001:db8::2]:30053",
        "[2001:db8::2]:30053",
    );
    let all: Vec<u16> = (1001..=1016).collect();
    assert_eq!(remaining(&host), all);

    let key_v4 = key(Protocol::Udp, Family::V4);
    let frontends = ["10.96.0.1:53", ":30053"];
    let before = service_port(&frontends, &["10.244.0.1:53", "10.244.0.2:53"]);
    let after = service_port(&frontends, &["10.244.0.2:53"]);
    let change = Change {
        key: key_v4.clone(),
        before: Some(before),
        after: Some(Arc::clone(&after)),
    };
    assert_eq!(
        end(&host, &plan(std::slice::from_ref(&change), &everywhere())),
        5
    );
    assert_eq!(
        remaining(&host),
        [
            1002, 1004, 1005, 1006, 1008, 1009, 1011, 1013, 1014, 1015, 1016
        ]
    );
    assert_eq!(
        end(&host, &plan(&[change], &everywhere())),
        0,
        "again: nothing is left to do"
    );

    // The other family, and what the table alone tells.
    let table = ForwardingTable::new(
        everywhere(),
        [
            (key_v4, after),
            (
                key(Protocol::Udp, Family::V6),
                service_port(&["[fd00::1]:53", ":30053"], &["[fd01::2]:53"]),
            ),
        ]
        .into(),
    );
    assert_eq!(end(&host, &check(&table, table.ports.keys())), 2);
    assert_eq!(
        remaining(&host),
        [1002, 1004, 1005, 1006, 1008, 1009, 1011, 1013, 1016]
    );
}

#[test]
fn the_kernel_lists_only_what_was_asked_for() {
    let host = host();
    inject(
        &host,
        "udp",
        "10.0.0.9:1001",
        "10.96.0.1:53",
        "10.244.0.1:53",
        "",
    );
    inject(
        &host,
        "udp",
        "10.0.0.9:1002",
        "10.96.0.1:54",
        "10.244.0.1:53",
        "",
    );
    inject(
        &host,
        "udp",
        "10.0.0.9:1003",
        "10.96.0.2:53",
        "10.244.0.1:53",
        "",
    );
    inject(
        &host,
        "tcp",
        "10.0.0.9:1004",
        "10.96.0.1:53",
        "10.244.0.1:53",
        "",
    );
    inject(
        &host,
        "udp",
        "[fd02::9]:1005",
        "[fd00::1]:53",
        "[fd01::1]:53",
        "",
    );
    let mut tracker = host.enter(|| Socket::netfilter().unwrap());
    let mut listed = |family, address: &str, port| {
        let address = address.parse().ok();
        let request = flow::list(&stale::Scope {
            family,
            protocol: Protocol::Udp,
            address,
            port,
        });
        tracker
            .query(&request, |message| Some(message.kind))
            .unwrap()
            .len()
    };
    assert_eq!(listed(Family::V4, "10.96.0.1", Some(53)), 1);
    assert_eq!(listed(Family::V4, "10.96.0.1", None), 2);
    assert_eq!(listed(Family::V4, "", Some(53)), 2);
    assert_eq!(listed(Family::V4, "", None), 3);
    assert_eq!(listed(Family::V6, "fd00::1", Some(53)), 1);
    assert_eq!(listed(Family::V6, "fd00::1", Some(54)), 0);
}

#[test]
fn a_flow_that_took_the_place_of_a_stale_one_stays() {
    let host = host();
    let flow = |by: &str| inject(&host, "udp", "10.0.0.9:1001", "10.96.0.1:53", by, "");
    let scope = stale::Scope {
        family: Family::V4,
        protocol: Protocol::Udp,
        address: None,
        port: None,
    };
    let mut conntrack = host.enter(|| Conntrack::open().unwrap());
    flow("10.244.0.1:53");
    let listed = conntrack
        .tracker
        .query(&flow::list(&scope), |m| Flow::parse(&m, Protocol::Udp))
        .unwrap();
    tool(&host, "conntrack", "-D -p udp");
    flow("10.244.0.2:53");
    assert_eq!(conntrack.delete(&listed).unwrap(), 0);
    assert_eq!(remaining(&host), [1001]);
}

#[test]
fn sctp_flows_end_too() {
    let host = host();
    inject(
        &host,
        "sctp",
        "10.0.0.9:2001",
        "10.96.0.1:3868",
        "10.244.0.1:3868",
        "",
    );
    inject(
        &host,
        "sctp",
        "10.0.0.9:2002",
        "10.96.0.1:3868",
        "10.244.0.2:3868",
        "",
    );
    inject(
        &host,
        "udp",
        "10.0.0.9:2003",
        "10.96.0.1:3868",
        "10.244.0.1:3868",
        "",
    );
    let before = service_port(&["10.96.0.1:3868"], &["10.244.0.1:3868"]);
    let after = service_port(&["10.96.0.1:3868"], &["10.244.0.2:3868"]);
    let change = Change {
        key: key(Protocol::Sctp, Family::V4),
        before: Some(before),
        after: Some(after),
    };
    assert_eq!(end(&host, &plan(&[change], &everywhere())), 1);
    assert_eq!(remaining(&host), [2002, 2003]);
}

#[test]
fn many_flows_end_at_once() {
    let host = host();
    let mut flows = String::new();
    for number in 0..2_500 {
        flows.push_str(&format!(
            "-A -p udp --timeout 600 -s 10.0.{}.{} -d 10.96.0.1 --sport 1000 --dport 53 --reply-src 10.244.0.1 \
             --reply-dst 10.0.{}.{} --reply-port-src 53 --reply-port-dst 1000\n",
            number / 250,
            number % 250 + 1,
            number / 250,
            number % 250 + 1,
        ));
    }
    let mut command = Command::new("conntrack");
    command.args(["-R", "-"]);
    host.run(command, &flows).unwrap();
    assert_eq!(remaining(&host).len(), 2_500);
    let change = Change {
        key: key(Protocol::Udp, Family::V4),
        before: Some(service_port(&["10.96.0.1:53"], &["10.244.0.1:53"])),
        after: None,
    };
    assert_eq!(end(&host, &plan(&[change], &everywhere())), 2_500);
    assert_eq!(remaining(&host), []);
}

/// Real packets: the kernel keeps a flow where its first packet went, until it is ended.
#[test]
fn a_flow_moves_to_the_endpoint_that_is_left() {
    let host = host();
    host.route(portico_testbed::Route::to("10.96.0.0/16").link("lo"))
        .unwrap();
    let rules = |endpoint: u16| {
        format!(
            "flush ruleset\ntable ip t {{ chain c {{ type nat hook output priority -100; \
             ip daddr 10.96.0.1 udp dport 53 dnat to 192.0.2.1:{endpoint}\n}}\n}}\n"
        )
    };
    let nft = |rules: &str| {
        let mut command = Command::new("nft");
        command.args(["-f", "-"]);
        host.run(command, rules).unwrap();
    };
    let socket = |at: &str| {
        let socket = host.enter(|| UdpSocket::bind(at).unwrap());
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        socket
    };
    let (one, two) = (socket("192.0.2.1:9001"), socket("192.0.2.1:9002"));
    let client = socket("192.0.2.1:40000");
    client.connect("10.96.0.1:53").unwrap();
    let mut buffer = [0; 8];

    nft(&rules(9001));
    client.send(b"1").unwrap();
    assert_eq!(one.recv(&mut buffer).unwrap(), 1);
    nft(&rules(9002));
    client.send(b"22").unwrap();
    assert_eq!(
        one.recv(&mut buffer).unwrap(),
        2,
        "the kernel does not move a flow by itself"
    );

    let change = Change {
        key: key(Protocol::Udp, Family::V4),
        before: Some(service_port(&["10.96.0.1:53"], &["192.0.2.1:9001"])),
        after: Some(service_port(&["10.96.0.1:53"], &["192.0.2.1:9002"])),
    };
    assert_eq!(end(&host, &plan(&[change], &everywhere())), 1);
    client.send(b"333").unwrap();
    assert_eq!(two.recv(&mut buffer).unwrap(), 3);
}

#[test]
fn connections_of_one_endpoint_through_one_frontend_end() {
    let host = host();
    let flows = [
        ("tcp", "192.0.2.9:1001", "192.0.2.100:6443", "10.0.0.1:6443"),
        ("tcp", "192.0.2.9:1002", "192.0.2.100:6443", "10.0.0.2:6443"),
        ("tcp", "192.0.2.9:1003", "192.0.2.100:443", "10.0.0.1:6443"),
        ("tcp", "192.0.2.9:1004", "10.0.0.1:6443", "10.0.0.1:6443"),
        ("tcp", "192.0.2.9:1005", "192.0.2.101:6443", "10.0.0.1:6443"),
        ("udp", "192.0.2.9:1006", "192.0.2.100:6443", "10.0.0.1:6443"),
        (
            "tcp",
            "[2001:db8::9]:2001",
            "[2001:db8::100]:6443",
            "[fd00::1]:6443",
        ),
        (
            "tcp",
            "[2001:db8::9]:2002",
            "[2001:db8::100]:6443",
            "[fd00::2]:6443",
        ),
    ];
    for (protocol, client, to, by) in flows {
        inject(&host, protocol, client, to, by, "");
    }
    let mut conntrack = host.enter(|| Conntrack::open().unwrap());
    let mut end = |endpoint: &str, frontend: &str| {
        conntrack
            .end_served_by(
                endpoint.parse().unwrap(),
                frontend.parse().unwrap(),
                Protocol::Tcp,
            )
            .unwrap()
    };
    assert_eq!(end("10.0.0.1:6443", "192.0.2.100:6443"), 1);
    assert_eq!(end("[fd00::1]:6443", "[2001:db8::100]:6443"), 1);
    assert_eq!(end("10.0.0.1:6443", "192.0.2.100:6443"), 0);
    assert_eq!(remaining(&host), [1002, 1003, 1004, 1005, 1006, 2002]);
}
