//! Random Services, endpoints and packets, all from one seed.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use portico_model::index::Index;
use portico_model::partitions::{NODE_PORT_ADDRESSES, PORT_PARTITION};
use portico_model::table::{Family, ForwardingTable, Frontend, Protocol};
use portico_testbed::cluster::Addresses;
use serde_json::{Value, json};

use crate::objects;
use crate::random::Random;
use crate::table::question;
use crate::world::{Choices, NODE, Question, apply};

const SERVICES: usize = 6;
/// Port, protocol, and where pods and nodes serve it. Nodes have several addresses, and a UDP
/// server that listens on all of them may answer from another than it was asked on; they do not
/// speak SCTP.
const PORTS: [(u16, &str, u16, Option<u16>); 4] = [
    (80, "TCP", 8080, Some(18080)),
    (81, "TCP", 8081, Some(18080)),
    (53, "UDP", 53, None),
    (90, "SCTP", 9000, None),
];
/// Few, so that Services want the same; one is the node's own.
const EXTERNAL: [&str; 4] = ["192.0.2.80", "192.0.2.81", "2001:db8:2::80", "172.31.0.11"];
const RANGES: [&str; 8] = [
    "198.51.100.10/32",
    "198.51.100.0/24",
    "10.244.1.0/24",
    "172.30.0.0/24",
    "0.0.0.0/0",
    "2001:db8:51::10/128",
    "fd00:10:244::/48",
    "203.0.113.0/24",
];
/// Of the node's addresses, so that two may want the same.
const PARTITIONS: [&str; 2] = ["left", "right"];
const PARTS: [&[&str]; 4] = [
    &["172.31.0.0/24"],
    &["172.30.0.11/32", "fd00:31::/64"],
    &["fd00:30::/64", "172.31.0.1-172.31.0.99"],
    &[],
];
const PODS: [&str; 7] = [
    "pod1-1", "pod1-2", "pod1-3", "pod2-1", "pod2-2", "pod3-1", "pod3-2",
];
/// Who can send to anybody through the node, and who only to the node itself.
const SENDERS: [&str; 6] = ["pod1-1", "pod1-2", "pod1-3", NODE, "client", "client2"];
const NEIGHBOURS: [&str; 2] = ["pod2-2", "node2"];

/// What there is, and the source of what comes next.
pub(crate) struct Chaos {
    random: Random,
    services: BTreeMap<String, Value>,
    slices: BTreeMap<String, Value>,
    /// Of this node, by the name of the host.
    pods: BTreeMap<&'static str, Value>,
    partitions: BTreeMap<&'static str, Value>,
    zone: &'static str,
}

impl Chaos {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::seeded(seed),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            pods: BTreeMap::new(),
            partitions: BTreeMap::new(),
            zone: "zone-a",
        }
    }

    pub(crate) fn choices(&mut self) -> Choices {
        let detect_local = *self.random.pick(&[
            "clusterCIDR",
            "clusterCIDR",
            "nodeCIDR",
            "bridge=cni0",
            "prefix=cn",
        ]);
        let node_ports = *self.random.pick(&[
            "primary",
            "primary",
            "all",
            "loopback",
            "172.31.0.0/24,fd00:30::/64",
        ]);
        let masquerade_all = self.random.one_in(6);
        Choices {
            detect_local: detect_local.to_owned(),
            node_ports: node_ports.to_owned(),
            masquerade_all,
        }
    }

    /// Tells an index everything that there is.
    pub(crate) fn tell(&self, index: &mut Index, addresses: &Addresses) {
        apply(index, addresses, &self.node(addresses));
        self.services
            .values()
            .chain(self.slices.values())
            .chain(self.pods.values())
            .chain(self.partitions.values())
            .for_each(|object| apply(index, addresses, object));
    }

    /// Changes a few things and tells the index; what was done, in words.
    pub(crate) fn change(&mut self, index: &mut Index, addresses: &Addresses) -> Vec<String> {
        // Much at first, little after that.
        let times = if self.services.is_empty() {
            20
        } else {
            1 + self.random.below(4)
        };
        (0..times)
            .map(|_| self.change_one(index, addresses))
            .collect()
    }

    fn change_one(&mut self, index: &mut Index, addresses: &Addresses) -> String {
        let number = self.random.below(SERVICES);
        let (name, slice) = (
            format!("s{number}"),
            format!("s{number}-{}", self.random.below(2)),
        );
        match self.random.below(16) {
            14 if self.random.one_in(3) => {
                let name = *self.random.pick(&PARTITIONS);
                self.partitions.remove(name);
                index.delete_port_partition(name);
                format!("delete PortPartition {name}")
            }
            14..16 => {
                let name = *self.random.pick(&PARTITIONS);
                let object = self.partition(name);
                apply(index, addresses, &object);
                let text = object.to_string();
                self.partitions.insert(name, object);
                text
            }
            0 if self.services.remove(&name).is_some() => {
                index.delete_service("default", &name);
                format!("delete Service {name}")
            }
            1 if self.slices.remove(&slice).is_some() => {
                ["v4", "v6"]
                    .iter()
                    .for_each(|family| index.delete_slice("default", &format!("{slice}-{family}")));
                format!("delete slice {slice}")
            }
            2 => {
                self.zone = *self.random.pick(&["zone-a", "zone-b", "zone-a"]);
                apply(index, addresses, &self.node(addresses));
                format!("{NODE} is in {}", self.zone)
            }
            3 | 4 => self.change_pod(index, addresses),
            5..10 => {
                let object = self.service(number, &name);
                apply(index, addresses, &object);
                let text = object.to_string();
                self.services.insert(name, object);
                text
            }
            _ => {
                let object = self.slice(&name, &slice);
                apply(index, addresses, &object);
                let text = object.to_string();
                self.slices.insert(slice, object);
                text
            }
        }
    }

    /// A pod of this node comes, goes, or is another than before at the same address.
    fn change_pod(&mut self, index: &mut Index, addresses: &Addresses) -> String {
        let host = *self.random.pick(&["pod1-1", "pod1-2", "pod1-3"]);
        if let Some(old) = self.pods.remove(host) {
            index.delete_pod(old["metadata"]["namespace"].as_str().unwrap(), host);
        }
        if self.random.one_in(4) {
            return format!("delete Pod {host}");
        }
        let namespace = *self.random.pick(&["default", "default", "other"]);
        let mut pod = json!({"kind": "Pod", "metadata": {"namespace": namespace, "name": host}});
        if self.random.one_in(3) {
            pod["metadata"]["labels"] = json!({"portico.dev/dmz": ""});
        }
        match self.random.below(8) {
            0 => pod["status"] = json!({"phase": "Pending"}),
            1 => pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            _ => {}
        }
        apply(index, addresses, &pod);
        let text = pod.to_string();
        self.pods.insert(host, pod);
        text
    }

    fn partition(&mut self, name: &str) -> Value {
        let addresses = *self.random.pick(&PARTS);
        let mut spec = json!({ "addresses": addresses });
        if addresses.is_empty() || self.random.one_in(3) {
            let zone = *self.random.pick(&["zone-a", "zone-b"]);
            spec["nodeSelector"] = json!({"matchLabels": {"topology.kubernetes.io/zone": zone}});
        }
        json!({
            "kind": "PortPartition",
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{}Z", self.random.below(10))},
            "spec": spec,
        })
    }

    /// Where the node ports of a Service are, if it says so.
    fn annotations(&mut self) -> Value {
        match self.random.below(6) {
            0 | 1 => json!({ PORT_PARTITION: self.random.pick(&PARTITIONS) }),
            2 => json!({ NODE_PORT_ADDRESSES: "172.30.0.0/24, fd00:31::/64" }),
            _ => json!({}),
        }
    }

    fn node(&self, addresses: &Addresses) -> Value {
        let mut node = objects::node(addresses, NODE);
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(self.zone);
        node
    }

    fn service(&mut self, number: usize, name: &str) -> Value {
        let kind = *self.random.pick(&[
            "ClusterIP",
            "NodePort",
            "NodePort",
            "LoadBalancer",
            "LoadBalancer",
        ]);
        let first = self.random.below(PORTS.len());
        let ports: Vec<_> = (first..first + 1 + self.random.below(3))
            .map(|at| PORTS[at % PORTS.len()])
            .collect();
        let ports: Vec<_> = ports
            .into_iter()
            .enumerate()
            .map(|(at, port)| self.port(kind, number, at, port))
            .collect();
        let both = [
            format!("10.96.8.{}", number + 1),
            format!("fd00:10:96::{}", 801 + number),
        ];
        let mut service = json!({
            "kind": "Service",
            "metadata": {
                "name": name,
                "creationTimestamp": format!("2026-01-01T00:00:0{}Z", self.random.below(10)),
                "annotations": self.annotations(),
            },
            "spec": {
                "type": kind,
                "clusterIPs": self.random.pick(&[&both[..], &both[..1], &both[1..]]),
                "ports": ports,
                "externalIPs": self.some(&EXTERNAL, 4),
                "internalTrafficPolicy": self.policy(),
                "externalTrafficPolicy": if kind == "ClusterIP" { "" } else { self.policy() },
                "loadBalancerSourceRanges": if self.random.one_in(3) { self.some(&RANGES, 3) } else { Vec::new() },
            },
        });
        if self.random.one_in(4) {
            service["spec"]["sessionAffinity"] = json!("ClientIP");
            service["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 600}});
        }
        if kind == "LoadBalancer" {
            service["spec"]["healthCheckNodePort"] = json!(32000 + number);
            service["status"] = json!({"loadBalancer": {"ingress": self.ingress(number)}});
        }
        if self.random.one_in(4) {
            let word = *self.random.pick(&["namespace", "dmz"]);
            service["metadata"]["annotations"]["portico.dev/visibility"] = json!(word);
        }
        match self.random.below(20) {
            0 => {
                service["metadata"]["labels"] =
                    json!({"service.kubernetes.io/service-proxy-name": "another"})
            }
            1 => service["spec"]["clusterIPs"] = json!(["None"]),
            _ => {}
        }
        service
    }

    fn port(
        &mut self,
        kind: &str,
        number: usize,
        at: usize,
        (port, protocol, ..): (u16, &str, u16, Option<u16>),
    ) -> Value {
        // A load balancer may do without node ports.
        let without = kind == "ClusterIP" || (kind == "LoadBalancer" && self.random.one_in(4));
        // Two Services have the same, one of them perhaps in a port partition.
        let node_port = if without {
            0
        } else {
            30800 + 4 * (number / 2) + at
        };
        json!({"name": format!("p{port}"), "port": port, "protocol": protocol, "nodePort": node_port})
    }

    fn ingress(&mut self, number: usize) -> Vec<Value> {
        let mode = |random: &mut Random| *random.pick(&[None, Some("VIP"), Some("Proxy")]);
        let (first, second, third) = (
            mode(&mut self.random),
            mode(&mut self.random),
            self.random.below(SERVICES),
        );
        vec![
            json!({"ip": format!("203.0.113.{}", 80 + number), "ipMode": first}),
            json!({"ip": format!("2001:db8:3::{}", 80 + number), "ipMode": second}),
            // Somebody else's, perhaps.
            json!({"ip": format!("203.0.113.{}", 80 + third), "ipMode": second}),
        ]
    }

    fn policy(&mut self) -> &'static str {
        if self.random.one_in(3) {
            "Local"
        } else {
            "Cluster"
        }
    }

    fn some(&mut self, from: &[&'static str], one_in: usize) -> Vec<&'static str> {
        from.iter()
            .copied()
            .filter(|_| self.random.one_in(one_in))
            .collect()
    }

    /// Pods, or nodes, which serve on another port.
    fn slice(&mut self, service: &str, name: &str) -> Value {
        let nodes = self.random.one_in(6);
        let hosts: &[&str] = if nodes { &["node1", "node2"] } else { &PODS };
        let hinted = self.random.one_in(3);
        let hosts: Vec<_> = hosts.iter().filter(|_| !self.random.one_in(3)).collect();
        let endpoints: Vec<_> = hosts
            .into_iter()
            .map(|host| self.endpoint(host, hinted))
            .collect();
        let served = |(port, protocol, on_pods, on_nodes): &(u16, &str, u16, Option<u16>)| {
            let target = if nodes { (*on_nodes)? } else { *on_pods };
            Some((format!("p{port}"), json!(format!("{target}/{protocol}"))))
        };
        let mut ports: serde_json::Map<_, _> = PORTS.iter().filter_map(served).collect();
        if self.random.one_in(5) {
            ports.remove("p80");
        }
        json!({"slice": {"service": service, "name": name, "family": "dual", "ports": ports, "endpoints": endpoints}})
    }

    fn endpoint(&mut self, host: &str, hinted: bool) -> Value {
        let mut endpoint = match self.random.below(6) {
            0 => json!({"pod": host, "ready": false}),
            1 => json!({"pod": host, "ready": false, "serving": true, "terminating": true}),
            2 => json!({"pod": host, "noconditions": true}),
            _ => json!({"pod": host}),
        };
        if self.random.one_in(8) {
            // Nobody says where it is, or somebody errs.
            endpoint["node"] = if self.random.one_in(2) {
                Value::Null
            } else {
                json!("node3")
            };
        }
        if hinted && !self.random.one_in(12) {
            endpoint["forZones"] = json!([self.random.pick(&["zone-a", "zone-b"])]);
        }
        if hinted && self.random.one_in(3) {
            endpoint["forNodes"] = json!([self.random.pick(&["node1", "node2"])]);
        }
        endpoint
    }

    /// Packets, most of them to where somebody answers.
    pub(crate) fn questions(
        &mut self,
        table: &ForwardingTable,
        addresses: &Addresses,
        count: usize,
    ) -> Vec<Question> {
        let frontends: Vec<_> = table
            .ports
            .iter()
            .flat_map(|(key, port)| {
                port.frontends
                    .iter()
                    .map(|frontend| (key.protocol, key.family, frontend))
            })
            .collect();
        let mut questions = Vec::new();
        for _ in 0..count {
            questions.push(match frontends.is_empty() || self.random.one_in(4) {
                true => self.anywhere(addresses),
                false => {
                    let (protocol, family, frontend) = *self.random.pick(&frontends);
                    self.towards(addresses, protocol, family, frontend)
                }
            });
        }
        questions.sort();
        questions.dedup();
        questions
    }

    fn towards(
        &mut self,
        addresses: &Addresses,
        protocol: Protocol,
        family: Family,
        frontend: &Frontend,
    ) -> Question {
        let which = if family == Family::V4 {
            ["ip", "ip", "alt"]
        } else {
            ["ip6", "ip6", "alt6"]
        };
        let own = addresses
            .of(NODE, self.random.pick::<&str>(&which))
            .unwrap();
        let senders = if frontend.address.is_none() && self.random.one_in(3) {
            &NEIGHBOURS[..]
        } else {
            &SENDERS
        };
        let from = (*self.random.pick::<&str>(senders)).to_owned();
        let loopback = from == NODE && family == Family::V4 && self.random.one_in(2);
        let own = if loopback {
            Ipv4Addr::LOCALHOST.into()
        } else {
            own
        };
        Question {
            from,
            to: SocketAddr::new(frontend.address.unwrap_or(own), frontend.port),
            protocol,
        }
    }

    /// Where somebody may answer, or may have answered, or next to it.
    fn anywhere(&mut self, addresses: &Addresses) -> Question {
        let number = self.random.below(SERVICES);
        let (port, protocol, ..) = *self.random.pick(&PORTS);
        let to = match self.random.below(6) {
            0 => format!("10.96.8.{}:{port}", number + 1),
            1 => format!("[fd00:10:96::{}]:{port}", 801 + number),
            2 => SocketAddr::new(self.random.pick(&EXTERNAL).parse().unwrap(), port).to_string(),
            3 => format!("203.0.113.{}:{port}", 80 + number),
            4 => format!("[2001:db8:3::{}]:{port}", 80 + number),
            _ => {
                let which = *self.random.pick(&["ip", "ip6", "alt", "alt6"]);
                format!(
                    "{NODE}/{which}:{}",
                    30800 + 4 * (number / 2) + self.random.below(4)
                )
            }
        };
        let from: &str = self.random.pick::<&str>(&SENDERS);
        question(
            addresses,
            from,
            &format!("{to}/{}", protocol.to_lowercase()),
        )
    }
}
