//! The IPVS dataplane against the kernel, inside user-mode-linux where this one has no IPVS; what
//! it does with packets is in the table of flows (`tests/flows.rs`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use portico_dataplane::iptables::{self, Iptables};
use portico_dataplane::ipvs::{self, Ipvs, Options};
use portico_dataplane::{Dataplane, Report};
use portico_model::key::ObjectKey;
use portico_model::table::*;
use portico_testbed::uml::test_with_ipvs;
use portico_testbed::{Host, Testbed};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

fn key(name: &str, protocol: Protocol, family: Family) -> PortKey {
    let service = ObjectKey::new("default", name);
    PortKey {
        service,
        port: "http".into(),
        protocol,
        family,
    }
}

fn frontend(kind: FrontendKind, address: &str, port: u16) -> Frontend {
    Frontend {
        kind,
        address: address.parse().ok(),
        port,
        inside: Outcome::Cluster,
        outside: Outcome::Cluster,
        masquerade: Masquerade::Always,
        sources: None,
    }
}

fn port(frontends: &[Frontend], endpoints: &[&str]) -> Arc<ServicePort> {
    let endpoint = |text: &&str| Endpoint {
        address: text.parse().unwrap(),
        port: 8080,
        local: false,
    };
    let cluster = endpoints.iter().map(endpoint).collect();
    Arc::new(ServicePort {
        frontends: frontends.to_vec(),
        cluster,
        ..ServicePort::default()
    })
}

/// A Service of each kind.
fn table() -> ForwardingTable {
    let web = frontend(FrontendKind::ClusterIp, "10.96.0.1", 80);
    let web = Frontend {
        masquerade: Masquerade::UnlessPod,
        ..web
    };
    let node_port = frontend(FrontendKind::NodePort, "", 30080);
    let sources: Arc<[ipnet::IpNet]> = ["198.51.100.0/24", "10.0.0.0/8"]
        .map(|text| text.parse().unwrap())
        .into();
    let guarded = Frontend {
        sources: Some(sources),
        ..frontend(FrontendKind::LoadBalancerIp, "203.0.113.1", 80)
    };
    let local = Frontend {
        outside: Outcome::Local,
        masquerade: Masquerade::OnlyNode,
        ..frontend(FrontendKind::LoadBalancerIp, "203.0.113.2", 80)
    };
    let mut sticky = ServicePort::clone(&port(&[local], &["10.244.1.1", "10.244.2.1"]));
    sticky.local = sticky.cluster[..1].into();
    sticky.affinity = Some(60);
    sticky.health_check = Some(32000);
    let dns = frontend(FrontendKind::ClusterIp, "fd00:10:96::a", 53);
    let ports = [
        (
            key("web", Protocol::Tcp, Family::V4),
            port(&[web, node_port, guarded], &["10.244.1.1", "10.244.2.1"]),
        ),
        (key("sticky", Protocol::Sctp, Family::V4), Arc::new(sticky)),
        (
            key("dns", Protocol::Udp, Family::V6),
            port(&[dns], &["fd00:10:244:1::1"]),
        ),
    ];
    let mut rules = NodeRules {
        masquerade_mark: 0x4000,
        ..NodeRules::default()
    };
    rules.node_ports.v4 = NodePortAddresses::AllLocal { loopback: false };
    rules.local_pods.v4 = LocalPods::Sources(vec!["10.244.0.0/16".parse().unwrap()]);
    rules.service_cidrs = vec![
        "10.96.0.0/16".parse().unwrap(),
        "fd00:10:96::/112".parse().unwrap(),
    ];
    ForwardingTable::new(rules, ports.into_iter().collect())
}

struct Node {
    host: Host,
    _bed: Testbed,
}

impl Node {
    fn new() -> Self {
        let bed = Testbed::new().unwrap();
        let node = Self {
            host: bed.host("node").unwrap(),
            _bed: bed,
        };
        node.command("ip link add eth0 type dummy");
        node.command("ip addr add 172.30.0.11/24 dev eth0");
        node
    }

    fn command(&self, line: &str) -> String {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        self.host
            .run(command, "")
            .unwrap_or_else(|error| panic!("{line}: {}", error.source))
    }

    fn open(&self) -> Ipvs {
        self.host.enter(|| Ipvs::open(&Options::default())).unwrap()
    }

    fn replace(&self, dataplane: &mut dyn Dataplane, table: &ForwardingTable) -> Report {
        self.host.enter(|| dataplane.replace(table)).unwrap()
    }

    fn servers(&self) -> Vec<String> {
        sorted(&self.command("ipvsadm -Sn"))
    }

    /// All that there is, in whatever way it is kept.
    fn everything(&self) -> Vec<String> {
        let mut all = self.servers();
        let addresses = sorted(&self.command("ip -o addr show"));
        // Without the number of the link.
        all.extend(
            addresses
                .iter()
                .filter_map(|line| line.split_once(": "))
                .map(|(_, line)| line.to_owned()),
        );
        all.extend(sorted(&self.command("ipset save")));
        for family in ["iptables-save", "ip6tables-save"] {
            let rules = self.command(family);
            all.extend(
                rules
                    .lines()
                    .filter(|line| line.starts_with("-A"))
                    .map(str::to_owned),
            );
        }
        // Counters, and how a hash table grew.
        let steady = |line: &String| !line.starts_with("create");
        all.into_iter().filter(steady).collect()
    }
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

#[test]
fn the_usual_tools_show_what_is_installed() {
    test_with_ipvs("the_usual_tools_show_what_is_installed", || {
        let (node, table) = (Node::new(), table());
        let before = node.everything();
        let mut ipvs = node.open();
        node.replace(&mut ipvs, &table);
        let expected = "\
                        -A --sctp-service 203.0.113.2:80 -s rr -p 60\n\
                        -A --sctp-service 251.0.113.2:80 -s rr -p 60\n\
                        -A -t 10.96.0.1:80 -s rr\n\
                        -A -t 172.30.0.11:30080 -s rr\n\
                        -A -t 203.0.113.1:80 -s rr\n\
                        -A -u [fd00:10:96::a]:53 -s rr\n\
                        -a --sctp-service 203.0.113.2:80 -r 10.244.1.1:8080 -m -w 1\n\
                        -a --sctp-service 251.0.113.2:80 -r 10.244.1.1:8080 -m -w 1\n\
                        -a --sctp-service 251.0.113.2:80 -r 10.244.2.1:8080 -m -w 1\n\
                        -a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1\n\
                        -a -t 10.96.0.1:80 -r 10.244.2.1:8080 -m -w 1\n\
                        -a -t 172.30.0.11:30080 -r 10.244.1.1:8080 -m -w 1\n\
                        -a -t 172.30.0.11:30080 -r 10.244.2.1:8080 -m -w 1\n\
                        -a -t 203.0.113.1:80 -r 10.244.1.1:8080 -m -w 1\n\
                        -a -t 203.0.113.1:80 -r 10.244.2.1:8080 -m -w 1\n\
                        -a -u [fd00:10:96::a]:53 -r [fd00:10:244:1::1]:8080 -m -w 1";
        assert_eq!(node.servers().join("\n"), expected);
        let link = node.command("ip -o addr show dev kube-ipvs0");
        for address in [
            "10.96.0.1/32",
            "203.0.113.1/32",
            "203.0.113.2/32",
            "251.0.113.2/32",
            "fd00:10:96::a/128",
        ] {
            assert!(link.contains(address), "{address}:\n{link}");
        }
        let sets = node.command("ipset save");
        for entry in [
            "add KUBE-CLUSTER-IP 10.96.0.1,tcp:80",
            "add KUBE-NODE-PORT 172.30.0.11,tcp:30080",
            "add KUBE-LOAD-BALANCER-FW 203.0.113.1,tcp:80",
            "add KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.1,tcp:80,198.51.100.0/24",
            "add KUBE-LOOP-BACK 10.244.1.1,sctp:8080,10.244.1.1",
            "add PORTICO-INSIDE 203.0.113.2,sctp:80",
            "add KUBE-6-EXTERNAL-IP fd00:10:96::a,udp:53",
            "add KUBE-HEALTH-CHECK-NODE-PORT 32000",
        ] {
            assert!(sets.contains(entry), "{entry}:\n{sets}");
        }
        assert_eq!(
            node.command("cat /proc/sys/net/ipv4/vs/conntrack").trim(),
            "1"
        );
        // Nothing of it has to be done again, not by a new process either.
        let installed = node.everything();
        for mut ipvs in [ipvs, node.open()] {
            let report = node.replace(&mut ipvs, &table);
            assert_eq!(
                (report.operations, report.drift.as_slice()),
                (0, [].as_slice())
            );
            assert_eq!(node.everything(), installed);
        }
        node.host.enter(|| node.open().remove()).unwrap();
        assert_eq!(node.everything(), before);
    });
}

#[test]
fn health_checks_arrive_where_the_node_lets_nothing_else_in() {
    test_with_ipvs(
        "health_checks_arrive_where_the_node_lets_nothing_else_in",
        || {
            let node = Node::new();
            node.command("ip link set lo up");
            node.command("iptables -A INPUT -p tcp --dport 32000:32001 -j DROP");
            let arrives = |port: u16| {
                node.host.enter(|| {
                    let address = SocketAddr::from(([172, 30, 0, 11], port));
                    let _listener = TcpListener::bind(address).unwrap();
                    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
                })
            };
            let mut ipvs = node.open();
            assert!(!arrives(32000));
            node.replace(&mut ipvs, &table());
            assert!(arrives(32000));
            assert!(!arrives(32001));
            node.host.enter(|| node.open().remove()).unwrap();
            assert!(!arrives(32000));
        },
    );
}

#[test]
fn what_others_change_is_repaired_and_what_is_theirs_is_left_alone() {
    test_with_ipvs(
        "what_others_change_is_repaired_and_what_is_theirs_is_left_alone",
        || {
            let (node, table) = (Node::new(), table());
            for theirs in [
                "ipvsadm -A -t 172.30.0.11:443 -s wlc",
                "ipset create OTHERS hash:ip",
                "iptables -t nat -N KUBE-MARK-MASQ",
                "iptables -t nat -A PREROUTING -d 172.30.0.11 -p tcp --dport 6443 -j \
                 KUBE-MARK-MASQ",
                "iptables -N THEIRS",
                "iptables -A INPUT -j THEIRS",
            ] {
                node.command(theirs);
            }
            let before = node.everything();
            let mut ipvs = node.open();
            node.replace(&mut ipvs, &table);
            let installed = node.everything();
            for damage in [
                "ip addr del 10.96.0.1/32 dev kube-ipvs0",
                "ip addr add 10.96.0.9/32 dev kube-ipvs0",
                "ip link del kube-ipvs0",
                "ipset flush KUBE-CLUSTER-IP",
                "ipset add KUBE-LOAD-BALANCER 10.9.9.9,tcp:80",
                "iptables -t nat -F KUBE-SERVICES",
                "iptables -t mangle -D PREROUTING 1",
                "ipvsadm -d -t 10.96.0.1:80 -r 10.244.1.1:8080",
                "ipvsadm -e -t 10.96.0.1:80 -r 10.244.2.1:8080 -m -w 7",
                "ipvsadm -E -t 203.0.113.1:80 -s wrr",
                "ipvsadm -D -u [fd00:10:96::a]:53",
            ] {
                node.command(damage);
                let report = node.replace(&mut ipvs, &table);
                assert!(!report.drift.is_empty(), "{damage} is not noticed");
                assert_eq!(node.everything(), installed, "{damage} is not repaired");
            }
            node.host.enter(|| ipvs.remove()).unwrap();
            assert_eq!(node.everything(), before);
        },
    );
}

/// The sets of kube-proxy in IPVS mode, as `ipset restore` reads them: in most clusters most of them
/// are empty. Each is there for both families.
const KUBE_PROXYS_SETS: [(&str, &str); 17] = [
    ("LOOP-BACK", "hash:ip,port,ip"),
    ("CLUSTER-IP", "hash:ip,port"),
    ("EXTERNAL-IP", "hash:ip,port"),
    ("EXTERNAL-IP-LOCAL", "hash:ip,port"),
    ("LOAD-BALANCER", "hash:ip,port"),
    ("LOAD-BALANCER-FW", "hash:ip,port"),
    ("LOAD-BALANCER-LOCAL", "hash:ip,port"),
    ("LOAD-BALANCER-SOURCE-IP", "hash:ip,port,ip"),
    ("LOAD-BALANCER-SOURCE-CIDR", "hash:ip,port,net"),
    ("NODE-PORT-TCP", "bitmap:port"),
    ("NODE-PORT-LOCAL-TCP", "bitmap:port"),
    ("NODE-PORT-UDP", "bitmap:port"),
    ("NODE-PORT-LOCAL-UDP", "bitmap:port"),
    ("NODE-PORT-SCTP-HASH", "hash:ip,port"),
    ("NODE-PORT-LOCAL-SCTP-HASH", "hash:ip,port"),
    ("HEALTH-CHECK-NODE-PORT", "bitmap:port"),
    ("IPVS-IPS", "hash:ip"),
];

fn kube_proxys_sets() -> String {
    let of_family = |(prefix, family): (&'static str, &'static str)| {
        KUBE_PROXYS_SETS.map(|(name, kind)| {
            // As long as a name of a set may be, which kube-proxy cuts as well.
            let name: String = format!("{prefix}{name}").chars().take(31).collect();
            match kind {
                "bitmap:port" => format!("create {name} bitmap:port range 0-65535\n"),
                _ => format!("create {name} {kind} family {family} hashsize 1024 maxelem 65536\n"),
            }
        })
    };
    [("KUBE-", "inet"), ("KUBE-6-", "inet6")]
        .into_iter()
        .flat_map(of_family)
        .collect()
}

/// As kube-proxy leaves them: sets of its own, others as ours, servers on node ports that only it
/// knows. And it finds what it needs when it comes back.
#[test]
fn kube_proxys_place_is_taken() {
    test_with_ipvs("kube_proxys_place_is_taken", || {
        let (node, table) = (Node::new(), table());
        let make_sets = || {
            let mut restore = Command::new("ipset");
            restore.args(["restore", "-exist"]);
            node.host.run(restore, &kube_proxys_sets()).unwrap();
        };
        make_sets();
        // Two that are too small, with an entry and without.
        for line in [
            "ipset destroy KUBE-LOAD-BALANCER",
            "ipset create KUBE-LOAD-BALANCER hash:ip,port family inet maxelem 1000",
            "ipset add KUBE-LOAD-BALANCER 203.0.113.1,tcp:80",
            "ipset destroy KUBE-6-EXTERNAL-IP",
            "ipset create KUBE-6-EXTERNAL-IP hash:ip,port family inet6 maxelem 1000",
        ] {
            node.command(line);
        }
        for line in [
            "ip link add kube-ipvs0 type dummy",
            "ip addr add 10.96.0.1/32 dev kube-ipvs0",
            "ip addr add 10.96.0.77/32 dev kube-ipvs0",
            "ipset add KUBE-CLUSTER-IP 10.96.0.1,tcp:80",
            "ipset add KUBE-NODE-PORT-TCP 30099",
            "iptables -t nat -N KUBE-SERVICES",
            "iptables -t nat -N KUBE-NODE-PORT",
            "iptables -t nat -A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT",
            "iptables -t nat -A KUBE-NODE-PORT -p tcp -m set --match-set KUBE-NODE-PORT-TCP dst \
             -j ACCEPT",
            "iptables -t nat -A PREROUTING -j KUBE-SERVICES",
            "iptables -N KUBE-IPVS-OUT-FILTER",
            "iptables -A OUTPUT -j KUBE-IPVS-OUT-FILTER",
            "ipvsadm -A -t 10.96.0.1:80 -s rr",
            "ipvsadm -a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m",
            "ipvsadm -A -t 10.96.0.77:80 -s rr",
            "ipvsadm -A -t 172.30.0.11:30099 -s rr",
        ] {
            node.command(line);
        }
        let mut ipvs = node.open();
        node.replace(&mut ipvs, &table);
        let fresh = Node::new();
        fresh.replace(&mut fresh.open(), &table);
        // The order of chains is that of their making.
        let sorted = |mut all: Vec<String>| {
            all.sort();
            all
        };
        assert_eq!(sorted(node.everything()), sorted(fresh.everything()));
        let sets = node.command("ipset save");
        assert!(
            sets.contains("create KUBE-CLUSTER-IP hash:ip,port family inet")
                && sets.contains("maxelem 65536")
                && !sets.contains("maxelem 1000"),
            "{sets}"
        );
        make_sets();
    });
}

#[test]
fn modes_follow_one_another() {
    test_with_ipvs("modes_follow_one_another", || {
        let (node, table) = (Node::new(), table());
        let before = node.everything();
        let mut iptables = node
            .host
            .enter(|| Iptables::new(iptables::Options::default()))
            .unwrap();
        node.replace(&mut iptables, &table);
        let with_iptables = node.everything();
        let mut ipvs = node.open();
        node.replace(&mut ipvs, &table);
        let saved = node.command("iptables-save");
        assert!(
            !saved.contains("KUBE-SVC-") && saved.contains("KUBE-IPVS-FILTER"),
            "{saved}"
        );
        node.replace(&mut iptables, &table);
        assert!(node.host.enter(ipvs::present));
        node.host.enter(ipvs::remove_leftovers).unwrap();
        assert_eq!(node.everything(), with_iptables);
        assert!(!node.host.enter(ipvs::present));
        node.replace(&mut ipvs, &table);
        node.host.enter(|| ipvs.remove()).unwrap();
        assert_eq!(node.everything(), before);
        node.host.enter(ipvs::remove_leftovers).unwrap();
    });
}

#[test]
fn what_the_operator_decides() {
    test_with_ipvs("what_the_operator_decides", || {
        let (node, table) = (Node::new(), table());
        let scheduler = |wanted: &str, table: &ForwardingTable| {
            let options = Options {
                scheduler: wanted.to_owned(),
                ..Options::default()
            };
            let mut ipvs = node.host.enter(|| Ipvs::open(&options)).unwrap();
            node.replace(&mut ipvs, table);
            node.servers()
                .into_iter()
                .find(|line| line.starts_with("-A -t 10.96.0.1:80"))
                .unwrap()
        };
        for name in ["wrr", "lc", "wlc", "sh", "dh", "sed", "nq", "rr"] {
            assert_eq!(
                scheduler(name, &table),
                format!("-A -t 10.96.0.1:80 -s {name}")
            );
        }
        assert!(
            scheduler("mh", &table).starts_with("-A -t 10.96.0.1:80 -s mh -b "),
            "with the client's port"
        );
        assert_eq!(
            scheduler("none-such", &table),
            "-A -t 10.96.0.1:80 -s rr",
            "the kernel does not have it"
        );
        let options = Options {
            strict_arp: true,
            tcp_timeout: Duration::from_secs(100),
            udp_timeout: Duration::from_secs(7),
            ..Options::default()
        };
        let timeouts = || node.command("ipvsadm -l --timeout");
        let unset: Vec<String> = timeouts().split_whitespace().map(str::to_owned).collect();
        node.host.enter(|| Ipvs::open(&options)).unwrap();
        let set: Vec<String> = timeouts().split_whitespace().map(str::to_owned).collect();
        assert_eq!(set[set.len() - 3..], ["100", &unset[unset.len() - 2], "7"]);
        assert_eq!(
            node.command("cat /proc/sys/net/ipv4/conf/all/arp_ignore")
                .trim(),
            "1"
        );
        assert_eq!(
            node.command("cat /proc/sys/net/ipv4/conf/all/arp_announce")
                .trim(),
            "2"
        );
    });
}

#[test]
fn an_address_that_nobody_can_have_is_in_nobodys_way() {
    test_with_ipvs("an_address_that_nobody_can_have_is_in_nobodys_way", || {
        let (node, mut table) = (Node::new(), table());
        let odd = [
            frontend(FrontendKind::ExternalIp, "255.255.255.255", 80),
            frontend(FrontendKind::ExternalIp, "ff02::1", 80),
        ];
        let key = |name, family| key(name, Protocol::Tcp, family);
        table.ports.insert(
            key("odd", Family::V4),
            port(&odd[..1], &["172.30.0.255", "0.0.0.0", "10.244.1.1"]),
        );
        table.ports.insert(
            key("odd", Family::V6),
            port(&odd[1..], &["ff02::2", "fe80::2"]),
        );
        let mut ipvs = node.open();
        node.replace(&mut ipvs, &table);
        let servers = node.servers();
        assert!(
            servers.contains(&"-a -t 10.96.0.1:80 -r 10.244.2.1:8080 -m -w 1".to_owned()),
            "{servers:?}"
        );
        assert!(
            servers.contains(&"-a -t 255.255.255.255:80 -r 10.244.1.1:8080 -m -w 1".to_owned()),
            "{servers:?}"
        );
        for family in Family::BOTH {
            let before = table.ports.remove(&key("odd", family));
            let change = Change {
                key: key("odd", family),
                before,
                after: None,
            };
            node.host
                .enter(|| ipvs.apply(&table.rules, &[change]))
                .unwrap();
        }
        assert_eq!(node.replace(&mut ipvs, &table).operations, 0);
    });
}

/// An address that another link of the node has is served and not taken; when the link loses it,
/// ours gets it.
#[test]
fn addresses_of_the_node_stay_where_they_are() {
    test_with_ipvs("addresses_of_the_node_stay_where_they_are", || {
        let (node, mut table) = (Node::new(), table());
        let external = [frontend(FrontendKind::ExternalIp, "172.30.0.50", 80)];
        table.ports.insert(
            key("external", Protocol::Tcp, Family::V4),
            port(&external, &["10.244.1.1"]),
        );
        node.command("ip addr add 172.30.0.50/32 dev eth0");
        let mut ipvs = node.open();
        assert!(ipvs.depends_on_addresses());
        let on_link = |address: &str| {
            node.command("ip -o addr show dev kube-ipvs0")
                .contains(address)
        };
        node.replace(&mut ipvs, &table);
        assert!(!on_link("172.30.0.50/32"));
        assert!(
            node.servers()
                .contains(&"-A -t 172.30.0.50:80 -s rr".to_owned())
        );
        assert!(
            node.servers()
                .contains(&"-A -t 172.30.0.50:30080 -s rr".to_owned()),
            "a node port answers there as well"
        );
        node.command("ip addr del 172.30.0.50/32 dev eth0");
        let report = node.replace(&mut ipvs, &table);
        assert!(on_link("172.30.0.50/32"));
        assert_eq!(report.drift, Vec::<String>::new(), "nobody interfered");
        assert!(
            !node
                .servers()
                .contains(&"-A -t 172.30.0.50:30080 -s rr".to_owned())
        );
        let local: IpAddr = "172.30.0.50".parse().unwrap();
        assert!(
            node.host
                .enter(|| std::net::TcpListener::bind((local, 0)))
                .is_ok()
        );
    });
}

#[test]
fn a_set_that_is_full_is_made_larger() {
    test_with_ipvs("a_set_that_is_full_is_made_larger", || {
        let (node, mut table) = (Node::new(), table());
        let mut ipvs = node.open();
        node.replace(&mut ipvs, &table);
        // Nearly as many as fit, put there by another.
        let many: String = (0..65_534)
            .map(|number| {
                let (high, low) = (number / 250, number % 250 + 1);
                format!(
                    "add KUBE-CLUSTER-IP 10.9.{}.{low},tcp:{}\n",
                    high % 250,
                    1000 + high / 250
                )
            })
            .collect();
        let mut restore = Command::new("ipset");
        restore.arg("restore");
        node.host.run(restore, &many).unwrap();
        // The kernel counts in parts of a set, and takes some more where the part of an entry has room:
        // so many do not all find some.
        for number in 1..=40 {
            let web = frontend(FrontendKind::ClusterIp, &format!("10.96.1.{number}"), 80);
            let web = Frontend {
                masquerade: Masquerade::UnlessPod,
                ..web
            };
            let key = key(&format!("web{number}"), Protocol::Tcp, Family::V4);
            let after = Some(port(&[web], &["10.244.1.1"]));
            table.ports.insert(key.clone(), after.clone().unwrap());
            let before = None;
            let change = Change { key, before, after };
            node.host
                .enter(|| ipvs.apply(&table.rules, &[change]))
                .unwrap();
        }
        let sets = node.command("ipset save KUBE-CLUSTER-IP");
        assert!(sets.contains("maxelem 1048576"));
        for number in 1..=40 {
            let entry = format!("add KUBE-CLUSTER-IP 10.96.1.{number},tcp:80");
            assert!(sets.contains(&entry), "{entry}");
        }
    });
}
