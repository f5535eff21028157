//! Against the kernel, in network namespaces of their own, with both variants.

use super::*;
use portico_model::key::ObjectKey;
use portico_model::table::{
    Endpoint, Frontend, FrontendKind, LocalPods, Masquerade, NodePortAddresses, Outcome, PortKey,
    Protocol, ServicePort,
};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace, which ends with the thread that is in it.
struct Host {
    thread_id: i32,
    jobs: mpsc::Sender<Job>,
}

#[expect(
    unsafe_code,
    reason = "there is no safe way into a new network namespace"
)]
fn enter_new_namespace() -> i32 {
    // SAFETY: both calls only concern the calling thread and take no pointers.
    let (entered, thread_id) = unsafe { (libc::unshare(libc::CLONE_NEWNET), libc::gettid()) };
    assert_eq!(entered, 0, "a new network namespace needs root");
    thread_id
}

impl Host {
    fn new() -> Self {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            tell.send(enter_new_namespace()).unwrap();
            waiting.into_iter().for_each(|job| job());
        });
        let host = Self {
            thread_id: told.recv().unwrap(),
            jobs,
        };
        host.ip("link set lo up");
        host
    }

    /// Run in the namespace; a panic there is a panic here.
    fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        self.jobs
            .send(Box::new(move || tell.send(job()).unwrap()))
            .unwrap();
        told.recv().expect("the job panicked")
    }

    fn ip(&self, arguments: &str) {
        self.command(&format!("ip {arguments}"));
    }

    fn command(&self, line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let output = self.run(move || Command::new(&words[0]).args(&words[1..]).output().unwrap());
        assert!(
            output.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Connect another host that has these addresses; ours on that link is `address`.
    fn connect(&self, other: &Self, link: &str, address: &str, theirs: &[&str]) {
        self.ip(&format!(
            "link add {link} type veth peer name eth0 netns /proc/{}/ns/net",
            other.thread_id
        ));
        self.ip(&format!("addr add {address}/32 dev {link}"));
        self.ip(&format!("link set {link} up"));
        for their in theirs {
            other.ip(&format!("addr add {their}/32 dev eth0"));
            self.ip(&format!("route add {their} dev {link}"));
        }
        other.ip("link set eth0 up");
        other.ip(&format!("route add default via {address} dev eth0 onlink"));
    }

    /// The endpoint that answered and the client's address that it saw, or how it failed.
    fn ask(&self, to: &str) -> Result<(IpAddr, IpAddr), std::io::ErrorKind> {
        let to: SocketAddr = to.parse().unwrap();
        self.run(move || {
            let ask = || -> std::io::Result<String> {
                // Long enough for a SYN to be sent a second time.
                let mut stream = TcpStream::connect_timeout(&to, Duration::from_millis(1500))?;
                stream.set_read_timeout(Some(Duration::from_secs(2)))?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                Ok(answer)
            };
            let answer = ask().map_err(|error| error.kind())?;
            let (server, client) = answer.split_once(' ').unwrap();
            Ok((server.parse().unwrap(), client.parse().unwrap()))
        })
    }

    /// Answer on the port with both addresses of the connection.
    fn serve(&self, port: u16) {
        let listener = self.run(move || TcpListener::bind(("0.0.0.0", port)).unwrap());
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (here, there) = (
                    stream.local_addr().unwrap().ip(),
                    stream.peer_addr().unwrap().ip(),
                );
                _ = write!(stream, "{here} {there}");
            }
        });
    }
}

/// A node with pods on one side and clients on the other.
struct World {
    node: Host,
    pods: [Host; 2],
    client: Host,
}

const CLIENT: &str = "192.0.2.2";
const STRANGER: &str = "192.0.2.3";
const PODS: [&str; 2] = ["10.244.0.2", "10.244.0.3"];

impl World {
    fn new() -> Self {
        let world = Self {
            node: Host::new(),
            pods: [Host::new(), Host::new()],
            client: Host::new(),
        };
        for (pod, address) in world.pods.iter().zip(PODS) {
            world.node.connect(
                pod,
                &format!("pod{}", &address[9..]),
                "10.244.0.1",
                &[address],
            );
            pod.serve(8080);
        }
        world
            .node
            .connect(&world.client, "outside", "192.0.2.1", &[CLIENT, STRANGER]);
        world.node.run(|| {
            // Every refusal is told, not one in a second.
            let settings = [
                "ip_forward=1",
                "conf/all/route_localnet=1",
                "icmp_ratemask=0",
                "conf/all/send_redirects=0",
            ];
            for (path, value) in settings
                .iter()
                .filter_map(|setting| setting.split_once('='))
            {
                std::fs::write(format!("/proc/sys/net/ipv4/{path}"), value).unwrap();
            }
        });
        world
            .node
            .ip("route add default via 192.0.2.2 dev outside onlink");
        world
    }

    /// The dataplane lives in the node's namespace, since the programs it starts have to run there.
    fn install(&self, variant: Variant, table: &ForwardingTable) -> Report {
        let table = table.clone();
        self.node.run(move || {
            Iptables::new(options(variant))
                .unwrap()
                .replace(&table)
                .unwrap()
        })
    }
}

fn options(variant: Variant) -> Options {
    Options {
        variant: Some(variant),
        liberal: false,
    }
}

fn key(name: &str, family: Family) -> PortKey {
    let service = ObjectKey::new("ns", name);
    PortKey {
        service,
        port: "http".into(),
        protocol: Protocol::Tcp,
        family,
    }
}

fn endpoints(addresses: &[&str]) -> Arc<[Endpoint]> {
    addresses
        .iter()
        .map(|address| Endpoint {
            address: address.parse().unwrap(),
            port: 8080,
            local: true,
        })
        .collect()
}

fn frontend(kind: FrontendKind, address: &str, port: u16, outcome: Outcome) -> Frontend {
    let masquerade = if kind == FrontendKind::ClusterIp {
        Masquerade::UnlessPod
    } else {
        Masquerade::Always
    };
    Frontend {
        kind,
        address: address.parse().ok(),
        port,
        inside: outcome,
        outside: outcome,
        masquerade,
        sources: None,
    }
}

fn port(frontends: Vec<Frontend>, addresses: &[&str]) -> ServicePort {
    ServicePort {
        frontends,
        cluster: endpoints(addresses),
        ..ServicePort::default()
    }
}

fn table(ports: Vec<(PortKey, ServicePort)>) -> ForwardingTable {
    let mut table = ForwardingTable::default();
    table.rules.masquerade_mark = 0x4000;
    table.rules.local_pods.v4 = LocalPods::Sources(vec!["10.244.0.0/24".parse().unwrap()]);
    table.rules.local_pods.v6 = LocalPods::InterfacePrefix("veth".into());
    table.rules.node_ports.v4 = NodePortAddresses::AllLocal { loopback: true };
    table.rules.node_ports.v6 = NodePortAddresses::AllLocal { loopback: false };
    table.rules.route_localnet = true;
    table.rules.service_cidrs = vec![
        "10.96.0.0/16".parse().unwrap(),
        "fd00:96::/112".parse().unwrap(),
    ];
    table.ports = ports
        .into_iter()
        .map(|(key, port)| (key, Arc::new(port)))
        .collect();
    table
}

/// Some of everything, in both families.
fn everything() -> ForwardingTable {
    use FrontendKind::{ClusterIp, ExternalIp, LoadBalancerIp, NodePort};
    let mut guarded = frontend(LoadBalancerIp, "203.0.113.1", 80, Outcome::Cluster);
    guarded.sources = Some(
        [
            "192.0.2.2/32".parse().unwrap(),
            "10.244.0.0/24".parse().unwrap(),
        ]
        .into(),
    );
    let web = [
        frontend(ClusterIp, "10.96.0.1", 80, Outcome::Cluster),
        guarded,
        frontend(NodePort, "", 30080, Outcome::Cluster),
    ];
    let mut unserved = frontend(LoadBalancerIp, "203.0.113.2", 80, Outcome::Reject);
    unserved.sources = Some(["192.0.2.2/32".parse().unwrap()].into());
    let nobody = [
        frontend(ClusterIp, "10.96.0.2", 80, Outcome::Reject),
        frontend(ExternalIp, "203.0.113.3", 80, Outcome::Reject),
        frontend(NodePort, "", 30081, Outcome::Reject),
        unserved,
    ];
    let local = |kind, address, port| Frontend {
        outside: Outcome::Local,
        masquerade: Masquerade::OnlyNode,
        ..frontend(kind, address, port, Outcome::Cluster)
    };
    let mut nearby = port(
        vec![
            local(ExternalIp, "203.0.113.4", 80),
            local(NodePort, "", 30082),
        ],
        &PODS,
    );
    nearby.local = endpoints(&PODS[..1]);
    nearby.health_check = Some(32000);
    let sticky = ServicePort {
        affinity: Some(3600),
        ..port(
            vec![frontend(ClusterIp, "10.96.0.5", 80, Outcome::Cluster)],
            &PODS,
        )
    };
    let six = [
        frontend(ClusterIp, "fd00:96::1", 80, Outcome::Cluster),
        frontend(NodePort, "", 30080, Outcome::Cluster),
    ];
    let six = ServicePort {
        affinity: Some(60),
        ..port(six.to_vec(), &["fd00:244::2", "fd00:244::3"])
    };
    table(vec![
        (key("web", Family::V4), port(web.to_vec(), &PODS)),
        (key("nobody", Family::V4), port(nobody.to_vec(), &[])),
        (key("nearby", Family::V4), nearby),
        (key("sticky", Family::V4), sticky),
        (key("web", Family::V6), six),
    ])
}

fn infix(variant: Variant) -> &'static str {
    if variant == Variant::Nft {
        "nft"
    } else {
        "legacy"
    }
}

fn saved(host: &Host, variant: Variant) -> String {
    let infix = infix(variant);
    let print = |stem: &str| host.command(&format!("{stem}-{infix}-save"));
    let both = format!("{}{}", print("iptables"), print("ip6tables"));
    both.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn adopted_repaired_and_removed(variant: Variant) {
    let host = Host::new();
    let infix = infix(variant);
    host.command(&format!("iptables-{infix} -t nat -N FOREIGN"));
    host.command(&format!(
        "iptables-{infix} -t nat -A PREROUTING -s 192.0.2.99 -j FOREIGN"
    ));
    let table = everything();
    let wanted = table.clone();
    let (mut dataplane, first) = host.run(move || {
        let mut dataplane = Iptables::new(options(variant)).unwrap();
        let report = dataplane.replace(&wanted).unwrap();
        (dataplane, report)
    });
    assert!(first.operations > 0 && first.drift.is_empty(), "{first:?}");
    let whole = saved(&host, variant);
    // Another process finds everything as it would have written it.
    let wanted = table.clone();
    let second = host.run(move || {
        Iptables::new(options(variant))
            .unwrap()
            .replace(&wanted)
            .unwrap()
    });
    assert_eq!((second.operations, second.drift), (0, vec![]));

    let chain = whole
        .lines()
        .find_map(|line| line.strip_prefix(":KUBE-SEP-"))
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let damages = [
        "-t nat -F KUBE-SERVICES".to_owned(),
        "-t nat -F PREROUTING".to_owned(),
        format!("-t nat -F KUBE-SEP-{chain}"),
        "-D KUBE-FORWARD 1".to_owned(),
        "-I KUBE-PROXY-FIREWALL -j ACCEPT".to_owned(),
        "-F".to_owned(),
    ];
    for damage in damages {
        host.command(&format!("iptables-{infix} {damage}"));
        let wanted = table.clone();
        let report;
        (dataplane, report) = host.run(move || {
            let report = dataplane.replace(&wanted).unwrap();
            (dataplane, report)
        });
        assert!(!report.drift.is_empty(), "{damage}");
        let now = saved(&host, variant);
        assert!(
            now.contains("KUBE-SEP-")
                && now.matches("-A ").count() >= whole.matches("-A ").count() - 1,
            "{damage}: {now}"
        );
        let wanted = table.clone();
        let again = host.run(move || {
            Iptables::new(options(variant))
                .unwrap()
                .replace(&wanted)
                .unwrap()
        });
        assert_eq!(again.operations, 0, "{damage}");
    }
    host.command(&format!(
        "iptables-{infix} -t nat -A PREROUTING -s 192.0.2.99 -j FOREIGN"
    ));
    assert!(host.run(present));
    host.run(move || dataplane.remove().unwrap());
    assert!(!host.run(present));
    let left = saved(&host, variant);
    assert!(
        !left.contains("KUBE") && !left.contains("PORTICO"),
        "{left}"
    );
    assert!(
        left.contains("-A PREROUTING -s 192.0.2.99/32 -j FOREIGN"),
        "{left}"
    );
}

#[test]
fn nft_is_adopted_repaired_and_removed() {
    adopted_repaired_and_removed(Variant::Nft);
}

#[test]
fn legacy_is_adopted_repaired_and_removed() {
    adopted_repaired_and_removed(Variant::Legacy);
}

fn packets_go_where_they_should(variant: Variant) {
    use std::io::ErrorKind::{ConnectionRefused, TimedOut};
    let world = World::new();
    world.install(variant, &everything());
    let World { node, pods, client } = &world;
    let pod = |answer: Result<(IpAddr, IpAddr), _>| {
        answer.map(|(server, _)| PODS.contains(&server.to_string().as_str()))
    };
    let source = |answer: Result<(IpAddr, IpAddr), std::io::ErrorKind>| {
        answer.map(|(_, client)| client.to_string())
    };
    // Cluster IP: from outside and from the node masqueraded, from a pod not (unless it meets
    // itself).
    for _ in 0..4 {
        assert_eq!(source(client.ask("10.96.0.1:80")), Ok("10.244.0.1".into()));
        assert_eq!(pod(node.ask("10.96.0.1:80")), Ok(true));
        let (server, seen) = pods[0].ask("10.96.0.1:80").unwrap();
        assert_eq!(
            seen.to_string(),
            if server.to_string() == PODS[0] {
                "10.244.0.1"
            } else {
                PODS[0]
            }
        );
    }
    let undefined = [
        ("10.96.0.1:81", ConnectionRefused),
        ("10.96.0.2:80", ConnectionRefused),
        ("10.96.9.9:80", TimedOut),
    ];
    for (address, failure) in undefined {
        assert_eq!(client.ask(address).unwrap_err(), failure, "{address}");
        assert_eq!(
            node.ask(address).unwrap_err(),
            failure,
            "{address} from the node"
        );
    }
    // Node ports, on every address; the Local one keeps the client's address.
    for address in ["192.0.2.1", "10.244.0.1"] {
        assert_eq!(
            source(client.ask(&format!("{address}:30080"))),
            Ok("10.244.0.1".into())
        );
    }
    assert_eq!(pod(node.ask("127.0.0.1:30080")), Ok(true));
    assert_eq!(
        client.ask("192.0.2.1:30081").unwrap_err(),
        ConnectionRefused
    );
    assert_eq!(
        client.ask("192.0.2.1:30082"),
        Ok((PODS[0].parse().unwrap(), CLIENT.parse().unwrap()))
    );
    assert_eq!(source(client.ask("203.0.113.4:80")), Ok(CLIENT.into()));
    // Source ranges; without an endpoint, clients outside of the ranges get no answer.
    assert_eq!(pod(client.ask("203.0.113.1:80")), Ok(true));
    assert_eq!(client.ask("203.0.113.2:80").unwrap_err(), ConnectionRefused);
    assert_eq!(client.ask("203.0.113.3:80").unwrap_err(), ConnectionRefused);
    assert_eq!(node.ask("203.0.113.3:80").unwrap_err(), ConnectionRefused);
    // Health checks of load balancers arrive where the node lets nothing else in.
    let infix = infix(variant);
    node.command(&format!(
        "iptables-{infix} -A INPUT -p tcp --dport 32000:32001 -j DROP"
    ));
    node.serve(32000);
    node.serve(32001);
    assert_eq!(
        client.ask("192.0.2.1:32000"),
        Ok(("192.0.2.1".parse().unwrap(), CLIENT.parse().unwrap()))
    );
    assert_eq!(client.ask("192.0.2.1:32001").unwrap_err(), TimedOut);
    client.ip(&format!("addr del {CLIENT}/32 dev eth0"));
    client.ip("route replace default via 192.0.2.1 dev eth0 onlink");
    assert_eq!(client.ask("203.0.113.1:80").unwrap_err(), TimedOut);
    assert_eq!(client.ask("203.0.113.2:80").unwrap_err(), TimedOut);
    assert_eq!(client.ask("203.0.113.3:80").unwrap_err(), ConnectionRefused);
    // A client stays with its endpoint.
    let first = client.ask("10.96.0.5:80").unwrap().0;
    assert!((0..12).all(|_| client.ask("10.96.0.5:80").unwrap().0 == first));
}

#[test]
fn packets_through_nft() {
    packets_go_where_they_should(Variant::Nft);
}

#[test]
fn packets_through_legacy() {
    packets_go_where_they_should(Variant::Legacy);
}

#[test]
fn changes_are_installed() {
    for variant in [Variant::Nft, Variant::Legacy] {
        let host = Host::new();
        host.run(move || {
            let (empty, full) = (table(vec![]), everything());
            let mut dataplane = Iptables::new(options(variant)).unwrap();
            let changes = |from: &ForwardingTable, to: &ForwardingTable| -> Vec<Change> {
                let keys = full.ports.keys();
                keys.map(|key| Change {
                    key: key.clone(),
                    before: from.ports.get(key).cloned(),
                    after: to.ports.get(key).cloned(),
                })
                .collect()
            };
            assert!(
                dataplane
                    .apply(&empty.rules, &changes(&empty, &full))
                    .is_err(),
                "nothing is known before the first replace"
            );
            dataplane.replace(&empty).unwrap();
            for (from, to) in [(&empty, &full), (&full, &empty), (&empty, &full)] {
                let report = dataplane.apply(&to.rules, &changes(from, to)).unwrap();
                assert!(report.operations > 0);
                let check = Iptables::new(options(variant))
                    .unwrap()
                    .replace(to)
                    .unwrap();
                assert_eq!(check.operations, 0, "{variant:?}");
            }
            // Other rules of the node: everything is planned anew, with what is known.
            let mut rules = full.rules.clone();
            rules.masquerade_mark = 0x8000;
            dataplane.apply(&rules, &[]).unwrap();
            let wanted = ForwardingTable {
                rules,
                ..full.clone()
            };
            assert_eq!(
                Iptables::new(options(variant))
                    .unwrap()
                    .replace(&wanted)
                    .unwrap()
                    .operations,
                0
            );
        });
    }
}

/// Rules stay where they are, also when by now everything speaks for the other variant, as when the
/// kubelet starts later.
#[test]
fn the_variant_that_is_used_stays_when_the_other_is_cleared() {
    for (used, other) in [
        (Variant::Legacy, Variant::Nft),
        (Variant::Nft, Variant::Legacy),
    ] {
        let host = Host::new();
        for variant in [used, other] {
            host.run(move || {
                Iptables::new(options(variant))
                    .unwrap()
                    .replace(&everything())
                    .unwrap()
            });
        }
        host.command(&format!(
            "iptables-{} -t mangle -N KUBE-IPTABLES-HINT",
            infix(other)
        ));
        let before = saved(&host, used);
        assert!(host.run(move || remove_unused_variant(used).unwrap()));
        assert_eq!(saved(&host, used), before);
        assert!(!saved(&host, other).contains("KUBE-SVC"));
        assert!(
            !host.run(move || remove_unused_variant(used).unwrap()),
            "nothing is left"
        );
    }
}

/// Another program's rule leads to a Service's chain; that must not keep other Services from being
/// removed.
#[test]
fn a_service_whose_chain_others_lead_to_goes() {
    for variant in [Variant::Nft, Variant::Legacy] {
        let (host, full) = (Host::new(), everything());
        let iptables = format!("iptables-{}", infix(variant));
        let (key, port) = full
            .ports
            .iter()
            .find(|(key, port)| key.family == Family::V4 && !port.cluster.is_empty())
            .unwrap();
        let chain = names::port_chain(key, names::PortChain::Cluster);
        let before = full.clone();
        let mut dataplane = host.run(move || {
            let mut dataplane = Iptables::new(options(variant)).unwrap();
            dataplane.replace(&before).unwrap();
            dataplane
        });
        host.command(&format!(
            "{iptables} -t nat -A PREROUTING -d 192.0.2.9 -j {chain}"
        ));
        let mut wanted = full.clone();
        wanted.ports.remove(key);
        let change = Change {
            key: key.clone(),
            before: Some(port.clone()),
            after: None,
        };
        let after = wanted.clone();
        host.run(move || {
            // The chain cannot be removed; after such an error the caller compares everything.
            dataplane.apply(&after.rules, &[change]).unwrap_err();
            dataplane.replace(&after).unwrap();
            assert_eq!(
                dataplane.replace(&after).unwrap().operations,
                0,
                "{variant:?}"
            );
        });
        let saved = saved(&host, variant);
        assert!(
            saved.contains(&format!(":{chain} ")) && !saved.contains(&format!("-A {chain} ")),
            "{saved}"
        );
        let (name, wanted) = (format!("-d 192.0.2.9/32 -j {chain}"), full);
        assert!(saved.contains(&name), "{saved}");
        host.run(move || {
            let mut dataplane = Iptables::new(options(variant)).unwrap();
            assert!(
                dataplane.replace(&wanted).unwrap().operations > 0,
                "it is back"
            );
            assert_eq!(dataplane.replace(&wanted).unwrap().operations, 0);
        });
    }
}

#[test]
fn a_rule_that_the_kernel_refuses_is_named() {
    let host = Host::new();
    let error = host.run(|| {
        let programs = Programs::find(Variant::Nft).unwrap();
        programs
            .restore(
                Family::V4,
                "*nat\n:KUBE-X - [0:0]\n-A KUBE-X -m nonsense -j ACCEPT\nCOMMIT\n",
            )
            .unwrap_err()
    });
    assert!(
        error
            .to_string()
            .contains("-A KUBE-X -m nonsense -j ACCEPT"),
        "{error}"
    );
}

#[test]
fn the_variant_that_the_node_uses_is_found() {
    let chosen = |command: &str| {
        let host = Host::new();
        host.command(command);
        host.run(|| Iptables::new(Options::default()).unwrap().variant())
    };
    assert_eq!(
        chosen("iptables-legacy -t mangle -N KUBE-KUBELET-CANARY"),
        Variant::Legacy
    );
    assert_eq!(
        chosen("iptables-nft -t mangle -N KUBE-IPTABLES-HINT"),
        Variant::Nft
    );
    assert_eq!(
        chosen("ip6tables-legacy -t nat -N KUBE-SERVICES"),
        Variant::Legacy
    );
    assert_eq!(
        chosen("iptables-legacy -A INPUT -s 192.0.2.1 -j DROP"),
        Variant::Legacy
    );
    assert_eq!(
        chosen("iptables-nft -A INPUT -s 192.0.2.1 -j DROP"),
        Variant::Nft
    );
}

/// What kube-proxy writes for a Service with a cluster IP and a node port.
fn kube_proxys_rules(port: &ServicePort, key: &PortKey) -> String {
    use names::PortChain::{Cluster, External};
    let (svc, ext) = (
        names::port_chain(key, Cluster),
        names::port_chain(key, External),
    );
    let seps: Vec<String> = port
        .cluster
        .iter()
        .map(|endpoint| names::endpoint_chain(key, endpoint))
        .collect();
    let mut text = String::from(
        "*filter\n:KUBE-SERVICES - [0:0]\n:KUBE-EXTERNAL-SERVICES - [0:0]\n:KUBE-FORWARD - [0:0]\n:KUBE-NODEPORTS - [0:0]\n\
         :KUBE-PROXY-FIREWALL - [0:0]\n-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n\
         -A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT\n\
         -A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         COMMIT\n*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n",
    );
    text.extend([&svc, &ext, &seps[0], &seps[1]].map(|chain| format!(":{chain} - [0:0]\n")));
    text += &format!(
        "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000\n\
         -A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully\n\
         -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n\
         -A KUBE-SERVICES -m comment --comment \"{key} cluster IP\" -m tcp -p tcp -d 10.96.0.1 --dport 80 -j {svc}\n\
         -A KUBE-NODEPORTS -m comment --comment {key} -m tcp -p tcp --dport 30080 -j {ext}\n\
         -A {svc} -m comment --comment \"{key} cluster IP\" -m tcp -p tcp -d 10.96.0.1 --dport 80 ! -s 10.244.0.0/24 -j KUBE-MARK-MASQ\n\
         -A {ext} -m comment --comment \"masquerade traffic for {key} external destinations\" -j KUBE-MARK-MASQ\n-A {ext} -j {svc}\n\
         -A {svc} -m comment --comment \"{key} -> {}:8080\" -m statistic --mode random --probability 0.5000000000 -j {}\n\
         -A {svc} -m comment --comment \"{key} -> {}:8080\" -j {}\n",
        PODS[0], seps[0], PODS[1], seps[1]
    );
    for (sep, pod) in seps.iter().zip(PODS) {
        text += &format!("-A {sep} -m comment --comment {key} -s {pod} -j KUBE-MARK-MASQ\n");
        text += &format!(
            "-A {sep} -m comment --comment {key} -m tcp -p tcp -j DNAT --to-destination \
             {pod}:8080\n"
        );
    }
    text += "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" \
             -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\nCOMMIT\n";
    text
}

#[test]
fn what_kube_proxy_left_is_taken_over() {
    for variant in [Variant::Nft, Variant::Legacy] {
        let host = Host::new();
        host.run(move || {
            let (key, cluster_ip) = (
                key("web", Family::V4),
                frontend(FrontendKind::ClusterIp, "10.96.0.1", 80, Outcome::Cluster),
            );
            let node_port = frontend(FrontendKind::NodePort, "", 30080, Outcome::Cluster);
            let wanted = table(vec![(
                key.clone(),
                port(vec![cluster_ip, node_port], &PODS),
            )]);
            let programs = Programs::find(variant).unwrap();
            programs
                .restore(
                    Family::V4,
                    &kube_proxys_rules(wanted.ports.get(&key).unwrap(), &key),
                )
                .unwrap();
            let features = Features {
                random_fully: true,
                drop_invalid: true,
            };
            let planner = Planner {
                rules: &wanted.rules,
                family: Family::V4,
                features,
            };
            let mut sent = String::new();
            let mut send = |run: &Run| {
                sent += &run.to_string();
                Ok::<(), ()>(())
            };
            let installed = programs.save(Family::V4).unwrap();
            repair::repair(
                planner,
                installed,
                &wanted.ports.to_tree(),
                &mut Sink::new(usize::MAX, &mut send),
            )
            .unwrap();
            let nat = sent.split_once("*nat").unwrap().1;
            assert!(
                nat.lines()
                    .skip(1)
                    .all(|line| line.starts_with("-I ") || line == "COMMIT"),
                "only hooks are missing: {nat}"
            );
            assert!(
                !sent.contains("-D ") && !sent.contains("-X ") && !sent.contains(":KUBE-FORWARD"),
                "{sent}"
            );
        });
    }
}
