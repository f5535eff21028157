//! The network, the nodes with their tables, and the client's connections.

use portico_dataplane::Dataplane;
use portico_dataplane::nftables::{Nftables, Table};
use portico_model::edge::{Edge, Surroundings};
use portico_model::index::{DetectLocal, Index, NodePortSetting, Settings};
use portico_model::key::ObjectKey;
use portico_model::table::{Family, PerFamily, PortKey, Protocol};
use portico_testbed::{Host, Testbed};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const NODES: usize = 3;
pub(crate) const VIPS: PerFamily<&str> = PerFamily {
    v4: "192.0.2.1",
    v6: "2001:db8:2::1",
};
/// For an answer that does not come.
const PATIENCE: Duration = Duration::from_secs(4);
/// More than fits into one packet.
const LARGE: usize = 4000;

pub(crate) struct Lab {
    _bed: Testbed,
    pub family: Family,
    client: Host,
    nodes: Vec<Node>,
    pods: Vec<Host>,
    ready: [bool; NODES],
    sources: Vec<String>,
}

struct Node {
    host: Host,
    number: usize,
    index: Index,
    nft: Nftables,
}

fn of(family: Family, v4: String, v6: String) -> String {
    if family == Family::V4 { v4 } else { v6 }
}

fn client_address(family: Family) -> String {
    of(family, "10.50.0.9".into(), "fd00:50::9".into())
}

fn node_address(family: Family, node: usize) -> String {
    of(
        family,
        format!("10.50.0.{}", node + 2),
        format!("fd00:50::{:x}", node + 2),
    )
}

fn pod_network(family: Family, pod: usize, host: u8) -> String {
    of(
        family,
        format!("10.244.{pod}.{host}"),
        format!("fd00:10:244:{pod}::{host}"),
    )
}

fn length(family: Family) -> &'static str {
    if family == Family::V4 { "24" } else { "64" }
}

impl Lab {
    pub(crate) fn new(family: Family) -> Self {
        let bed = Testbed::new().unwrap();
        let switch = bed.host("switch").unwrap();
        switch.bridge("br0").unwrap();
        let attach = |name: &str, address: String| {
            let host = bed.host(name).unwrap();
            host.cable_to_switch("eth0", &switch, name, "br0").unwrap();
            let address = format!("{address}/{}", length(family));
            host.address("eth0", &address).unwrap();
            host
        };
        let client = attach("client", client_address(family));
        client
            .sysctl("net/ipv4/conf/all/accept_redirects", "0")
            .unwrap();
        client
            .sysctl("net/ipv4/conf/eth0/accept_redirects", "0")
            .unwrap();
        client
            .sysctl("net/ipv6/conf/eth0/accept_redirects", "0")
            .unwrap();
        let (mut nodes, mut pods) = (Vec::new(), Vec::new());
        for number in 0..NODES {
            let host = attach(&format!("node{number}"), node_address(family, number));
            let pod = bed.host(&format!("pod{number}")).unwrap();
            host.cable("pod", &pod, "eth0").unwrap();
            let [at_node, at_pod] = [1, 2].map(|last| pod_network(family, number, last));
            host.address("pod", &format!("{at_node}/{}", length(family)))
                .unwrap();
            pod.address("eth0", &format!("{at_pod}/{}", length(family)))
                .unwrap();
            for setting in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
                host.sysctl(setting, "1").unwrap();
            }
            let mut route = Command::new("ip");
            route.args(["route", "add", "default", "via", &at_node]);
            pod.run(route, "").unwrap();
            serve(&pod, number as u8);
            nodes.push(Node::new(host, number));
            pods.push(pod);
        }
        // Without the edge a node sends to pods of others.
        for (node, other) in (0..NODES).flat_map(|a| (0..NODES).map(move |b| (a, b))) {
            if node != other {
                let network = format!("{}/{}", pod_network(family, other, 0), length(family));
                let mut route = Command::new("ip");
                route.args([
                    "route",
                    "add",
                    &network,
                    "via",
                    &node_address(family, other),
                ]);
                nodes[node].host.run(route, "").unwrap();
            }
        }
        let lab = Self {
            _bed: bed,
            family,
            client,
            nodes,
            pods,
            ready: [true; NODES],
            sources: Vec::new(),
        };
        lab.way(0);
        lab
    }

    pub(crate) fn set_edge(&mut self, on: bool) {
        let objects = self.objects();
        for node in &mut self.nodes {
            objects.apply(&mut node.index);
            let surroundings = on.then(|| surroundings(self.family, node.number));
            node.index.set_surroundings(surroundings);
            node.install();
        }
    }

    /// Which pods are ready; the others end.
    pub(crate) fn set_ready(&mut self, ready: [bool; NODES]) {
        self.ready = ready;
        self.apply();
    }

    pub(crate) fn set_sources(&mut self, sources: &[&str]) {
        self.sources = sources.iter().map(|source| (*source).to_owned()).collect();
        self.apply();
    }

    fn apply(&mut self) {
        let objects = self.objects();
        for node in &mut self.nodes {
            objects.apply(&mut node.index);
            node.change();
        }
    }

    /// The programs on all nodes end and are started again; the kernel keeps what it has.
    pub(crate) fn restart(&mut self) {
        let objects = self.objects();
        for node in &mut self.nodes {
            *node = Node::new(node.host.clone(), node.number);
            objects.apply(&mut node.index);
            node.index
                .set_surroundings(Some(surroundings(self.family, node.number)));
            node.install();
        }
    }

    /// From now on the client sends to this node.
    pub(crate) fn way(&self, node: usize) {
        let mut route = Command::new("ip");
        let vip = VIPS.get(self.family);
        let node = node_address(self.family, node);
        route.args(["route", "replace", vip, "via", &node]);
        self.client.run(route, "").unwrap();
    }

    pub(crate) fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let vip: IpAddr = VIPS.get(self.family).parse().unwrap();
        let to = SocketAddr::new(vip, port);
        let patience = Duration::from_secs(1);
        let stream = self
            .client
            .enter(|| TcpStream::connect_timeout(&to, patience))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    pub(crate) fn list(&self, node: usize) -> String {
        let mut nft = Command::new("nft");
        nft.args(["list", "ruleset"]);
        self.nodes[node].host.run(nft, "").unwrap()
    }

    fn edge(&self, protocol: Protocol) -> Arc<Edge> {
        let key = PortKey {
            service: ObjectKey {
                namespace: "default".into(),
                name: "web".into(),
            },
            port: protocol.lower().into(),
            protocol,
            family: self.family,
        };
        let tables = self.nodes.iter().map(|node| node.index.table());
        let edges: Vec<_> = tables
            .map(|table| table.ports.get(&key).unwrap().edge.clone().unwrap())
            .collect();
        assert!(
            edges.iter().all(|edge| edge.slots == edges[0].slots),
            "all nodes agree"
        );
        edges[0].clone()
    }

    /// How many ICMP errors each pod was told.
    pub(crate) fn errors_seen(&self) -> [u64; NODES] {
        let family = self.family;
        std::array::from_fn(|pod| {
            self.pods[pod].enter(|| match family {
                Family::V4 => {
                    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
                    let mut lines = text.lines().filter(|line| line.starts_with("Icmp:"));
                    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
                    let place = names.split(' ').position(|name| name == "InDestUnreachs");
                    values
                        .split(' ')
                        .nth(place.unwrap())
                        .unwrap()
                        .parse()
                        .unwrap()
                }
                Family::V6 => {
                    let text = std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
                    let line = text
                        .lines()
                        .find(|line| line.starts_with("Icmp6InPktTooBigs"));
                    line.unwrap()
                        .split_whitespace()
                        .nth(1)
                        .unwrap()
                        .parse()
                        .unwrap()
                }
            })
        })
    }

    /// What came since then, once so many have come.
    pub(crate) fn wait_for_errors(&self, before: &[u64; NODES], count: u64) -> [u64; NODES] {
        let until = Instant::now() + PATIENCE;
        loop {
            let now = self.errors_seen();
            let since: [u64; NODES] = std::array::from_fn(|pod| now[pod] - before[pod]);
            if since.iter().sum::<u64>() >= count || Instant::now() > until {
                return since;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn objects(&self) -> Objects {
        Objects {
            family: self.family,
            ready: self.ready,
            sources: self.sources.clone(),
        }
    }
}

impl Node {
    fn new(host: Host, number: usize) -> Self {
        let settings = Settings {
            node_name: format!("node{number}").into(),
            own_address: None,
            detect_local: DetectLocal::ClusterCidr(vec![
                "10.244.0.0/16".parse().unwrap(),
                "fd00:10:244::/48".parse().unwrap(),
            ]),
            node_ports: NodePortSetting::Primary,
            masquerade_all: false,
            masquerade_mark: 0x4000,
            external_ips: true,
            load_balancer_ip_mode: true,
        };
        Self {
            nft: host.enter(|| Nftables::open(Table::NODE).unwrap()),
            host,
            number,
            index: Index::new(settings).with_announcing(),
        }
    }

    fn install(&mut self) {
        self.index.take();
        self.nft.replace(self.index.table()).unwrap();
    }

    fn change(&mut self) {
        let update = self.index.take();
        let table = self.index.table();
        self.nft.apply(&table.rules, &update.changes).unwrap();
    }
}

fn surroundings(family: Family, own: usize) -> Surroundings {
    let neighbour = |node: usize| {
        let mut addresses = PerFamily::default();
        *addresses.get_mut(family) = Some(node_address(family, node).parse().unwrap());
        (Arc::from(format!("node{node}")), addresses)
    };
    let announced = ["192.0.2.0/24", "2001:db8:2::/64"];
    Surroundings {
        announced: announced.map(|range| range.parse().unwrap()).into(),
        neighbours: (0..NODES)
            .filter(|node| *node != own)
            .map(neighbour)
            .collect(),
    }
}

struct Objects {
    family: Family,
    ready: [bool; NODES],
    sources: Vec<String>,
}

impl Objects {
    fn apply(&self, index: &mut Index) {
        for (name, port, affinity) in [("web", 80, "None"), ("sticky", 81, "ClientIP")] {
            let service = self.service(name, port, affinity);
            index.apply_service(&serde_json::from_value(service).unwrap());
            index.apply_slice(&serde_json::from_value(self.slice(name)).unwrap());
        }
    }

    fn service(&self, name: &str, port: u16, affinity: &str) -> Value {
        let (family, cluster_ip) = match self.family {
            Family::V4 => ("IPv4", format!("10.96.0.{port}")),
            Family::V6 => ("IPv6", format!("fd00:10:96::{port}")),
        };
        let port = |protocol: &str| json!({"name": protocol.to_lowercase(), "protocol": protocol, "port": port});
        json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"type": "LoadBalancer", "clusterIP": cluster_ip, "clusterIPs": [cluster_ip],
                "ipFamilies": [family], "sessionAffinity": affinity,
                "loadBalancerSourceRanges": self.sources, "ports": [port("TCP"), port("UDP")]},
            "status": {"loadBalancer": {"ingress": [{"ip": VIPS.get(self.family), "ipMode": "VIP"}]}},
        })
    }

    fn slice(&self, name: &str) -> Value {
        let endpoint = |pod: usize| {
            let ready = self.ready[pod];
            json!({"addresses": [pod_network(self.family, pod, 2)], "nodeName": format!("node{pod}"),
                "conditions": {"ready": ready, "serving": true, "terminating": !ready}})
        };
        let port =
            |name: &str| json!({"name": name.to_lowercase(), "protocol": name, "port": 8080});
        json!({
            "metadata": {"name": format!("{name}-1"), "namespace": "default",
                "labels": {"kubernetes.io/service-name": name}},
            "addressType": if self.family == Family::V4 { "IPv4" } else { "IPv6" },
            "ports": [port("TCP"), port("UDP")],
            "endpoints": (0..NODES).map(endpoint).collect::<Vec<_>>(),
        })
    }
}

/// Answers each request with the number of the pod, and whether it sees the client's address.
fn serve(pod: &Host, number: u8) {
    let any: IpAddr = "::".parse().unwrap();
    let at = SocketAddr::new(any, 8080);
    let (tcp, udp) = pod.enter(|| (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap()));
    let answer = move |from: SocketAddr| {
        let from = from.ip().to_canonical();
        let clients = Family::BOTH.map(client_address);
        [number, u8::from(clients.contains(&from.to_string()))]
    };
    std::thread::spawn(move || {
        for stream in tcp.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut request = [0];
                let from = stream.peer_addr()?;
                stream.set_nodelay(true)?;
                while stream.read(&mut request)? > 0 {
                    stream.write_all(&answer(from))?;
                }
                Ok::<_, io::Error>(())
            });
        }
    });
    std::thread::spawn(move || {
        let mut request = vec![0; 2 * LARGE];
        while let Ok((_, from)) = udp.recv_from(&mut request) {
            let _ = udp.send_to(&answer(from), from);
        }
    });
}

enum Socket {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

struct Flow {
    socket: Socket,
    port: u16,
    pod: u8,
    client_seen: bool,
}

impl Flow {
    fn ask(&mut self, request: &[u8]) -> io::Result<[u8; 2]> {
        let mut answer = [0; 2];
        match &mut self.socket {
            Socket::Tcp(stream) => {
                stream.write_all(&request[..1])?;
                stream.read_exact(&mut answer)?;
            }
            Socket::Udp(socket) => {
                socket.send(request)?;
                socket.recv(&mut answer)?;
            }
        }
        Ok(answer)
    }
}

/// Connections of the client that are kept open.
pub(crate) struct Flows {
    family: Family,
    flows: Vec<Flow>,
    request: Vec<u8>,
}

impl Flows {
    pub(crate) fn open(lab: &Lab, port: u16, count: usize) -> Self {
        let open = |_| {
            let stream = lab.connect(port).unwrap();
            let port = stream.local_addr().unwrap().port();
            (Socket::Tcp(stream), port)
        };
        Self::new(lab, (0..count).map(open).collect())
    }

    pub(crate) fn open_udp(lab: &Lab, port: u16, count: usize) -> Self {
        let from: IpAddr = client_address(lab.family).parse().unwrap();
        let to: IpAddr = VIPS.get(lab.family).parse().unwrap();
        let open = |_| {
            let socket = lab
                .client
                .enter(|| UdpSocket::bind(SocketAddr::new(from, 0)).unwrap());
            socket.connect(SocketAddr::new(to, port)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let port = socket.local_addr().unwrap().port();
            (Socket::Udp(socket), port)
        };
        Self::new(lab, (0..count).map(open).collect())
    }

    fn new(lab: &Lab, sockets: Vec<(Socket, u16)>) -> Self {
        let request = vec![b'?'];
        let first = |(socket, port)| {
            let mut flow = Flow {
                socket,
                port,
                pod: 0,
                client_seen: false,
            };
            let [pod, seen] = flow.ask(&request).unwrap();
            Flow {
                pod,
                client_seen: seen == 1,
                ..flow
            }
        };
        Self {
            family: lab.family,
            flows: sockets.into_iter().map(first).collect(),
            request: request.clone(),
        }
    }

    pub(crate) fn make_large(&mut self) {
        self.request = vec![b'?'; LARGE];
    }

    /// So many requests on each of them; how many of them died, or were answered by another pod.
    pub(crate) fn ask(&mut self, rounds: usize) -> usize {
        (0..rounds).map(|_| self.ask_once()).sum()
    }

    /// The same, with another way before each request.
    pub(crate) fn ask_while_the_way_moves(&mut self, lab: &Lab, rounds: usize) -> usize {
        let mut dead = 0;
        for round in 0..rounds {
            lab.way(round % NODES);
            dead += self.ask_once();
        }
        dead
    }

    /// The same, asking only some of them each time, by turns; how many died, and of how many
    /// requests.
    pub(crate) fn ask_some_while_the_way_moves(
        &mut self,
        lab: &Lab,
        rounds: usize,
        each: usize,
    ) -> (usize, usize) {
        let (before, mut requests) = (self.flows.len(), 0);
        for round in 0..rounds {
            lab.way(round % NODES);
            for _ in 0..each.min(self.flows.len()) {
                let mut flow = self.flows.remove(0);
                requests += 1;
                if flow
                    .ask(&self.request)
                    .is_ok_and(|[pod, _]| pod == flow.pod)
                {
                    self.flows.push(flow);
                }
            }
        }
        (before - self.flows.len(), requests)
    }

    fn ask_once(&mut self) -> usize {
        let before = self.flows.len();
        let request = &self.request;
        self.flows
            .retain_mut(|flow| flow.ask(request).is_ok_and(|[pod, _]| pod == flow.pod));
        before - self.flows.len()
    }

    pub(crate) fn pods(&self) -> BTreeSet<u8> {
        self.flows.iter().map(|flow| flow.pod).collect()
    }

    pub(crate) fn by_pod(&self) -> [usize; NODES] {
        std::array::from_fn(|pod| {
            let of_pod = |flow: &&Flow| usize::from(flow.pod) == pod;
            self.flows.iter().filter(of_pod).count()
        })
    }

    pub(crate) fn assert_client_was_seen(&self) {
        assert!(
            self.flows.iter().all(|flow| flow.client_seen),
            "pods see the client's address"
        );
    }

    pub(crate) fn assert_where_the_model_says(&self, lab: &Lab) {
        let edge = lab.edge(Protocol::Tcp);
        let client: IpAddr = client_address(self.family).parse().unwrap();
        for flow in &self.flows {
            let slot = edge.slot(client, flow.port);
            let node = edge.node(slot).unwrap();
            assert_eq!(*node.name, *format!("node{}", flow.pod), "slot {slot}");
        }
    }

    /// "Too large", about a packet of each flow's answers.
    pub(crate) fn send_errors(&self, lab: &Lab) {
        let vip: IpAddr = VIPS.get(self.family).parse().unwrap();
        let client: IpAddr = client_address(self.family).parse().unwrap();
        let (domain, protocol) = match self.family {
            Family::V4 => (libc::AF_INET, libc::IPPROTO_ICMP),
            Family::V6 => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
        };
        let raw = lab.client.enter(|| {
            socket2::Socket::new(domain.into(), socket2::Type::RAW, Some(protocol.into())).unwrap()
        });
        for flow in &self.flows {
            let error = too_large(vip, client, flow.port);
            raw.send_to(&error, &SocketAddr::new(vip, 0).into())
                .unwrap();
        }
    }
}

/// The error with the beginning of the packet that it is about.
fn too_large(source: IpAddr, destination: IpAddr, port: u16) -> Vec<u8> {
    let mut transport = vec![0, 80];
    transport.extend(port.to_be_bytes());
    transport.extend([0; 16]);
    let (mut error, quoted) = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 64, 6, 0, 0];
            header.extend(source.octets());
            header.extend(destination.octets());
            let sum = checksum(&header).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            (vec![3, 4, 0, 0, 0, 0, 0x05, 0x14], header)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = vec![0x60, 0, 0, 0, 0x05, 0xb4, 6, 64];
            header.extend(source.octets());
            header.extend(destination.octets());
            (vec![2, 0, 0, 0, 0, 0, 0x05, 0x14], header)
        }
        _ => unreachable!("both are of one family"),
    };
    let is_v4 = source.is_ipv4();
    error.extend(quoted);
    error.extend(transport);
    if is_v4 {
        let sum = checksum(&error).to_be_bytes();
        error[2..4].copy_from_slice(&sum);
    }
    error
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        u32::from(u16::from_be_bytes([
            pair[0],
            pair.get(1).copied().unwrap_or_default(),
        ]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
