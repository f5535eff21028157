//! Three nodes with a table each, and the way of a packet between them.

use super::objects::{expand, merge, node};
use portico_model::explain::{Origin, Packet, Verdict, explain};
use portico_model::index::{Index, Settings};
use portico_model::table::{ForwardingTable, Frontend, Protocol};
use portico_testbed::cluster::Addresses;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::LazyLock;

const NODES: [u8; 3] = [1, 2, 3];

pub(crate) struct Cluster {
    mode: &'static str,
    nodes: BTreeMap<u8, Index>,
    objects: BTreeMap<String, Value>,
}

/// Who asks whom, in the words of the scenarios.
#[derive(Default)]
pub(crate) struct Question<'a> {
    pub from: &'a str,
    pub to: &'a str,
    pub protocol: Option<&'a str>,
    /// The node that a client sends through.
    pub via: Option<&'a str>,
    /// Another of the sender's addresses.
    pub source: Option<IpAddr>,
}

static ADDRESSES: LazyLock<Addresses> = LazyLock::new(Addresses::default);

/// An address of a host by its name in the scenarios.
pub(crate) fn address(host: &str, which: &str) -> String {
    ADDRESSES.of(host, which).unwrap().to_string()
}

/// The number of the node that is, or has, this host.
pub(crate) fn node_of(host: &str) -> Option<u8> {
    let rest = host.strip_prefix("pod").or(host.strip_prefix("node"))?;
    rest.split('-').next()?.parse().ok()
}

fn addresses_of_node(number: u8) -> Vec<IpAddr> {
    let name = format!("node{number}");
    let own = ["ip", "ip6", "alt", "alt6", "gw", "gw6"].map(|which| address(&name, which));
    own.iter()
        .map(String::as_str)
        .chain(["127.0.0.1", "::1"])
        .map(|a| a.parse().unwrap())
        .collect()
}

impl Cluster {
    /// Nodes that are told this, and know nothing else.
    pub(crate) fn new(mode: &'static str, settings: impl Fn(&str) -> Settings) -> Self {
        let index = |number| {
            let mut index = Index::new(settings(&format!("node{number}")));
            index.set_addresses(addresses_of_node(number));
            (number, index)
        };
        Self {
            mode,
            nodes: NODES.map(index).into(),
            objects: BTreeMap::new(),
        }
    }

    /// With what an API server has before anybody writes to it.
    pub(crate) fn with_nodes(mut self) -> Self {
        NODES
            .iter()
            .for_each(|number| self.apply(node(&ADDRESSES, &format!("node{number}"))));
        self.apply(
            json!({"kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
            "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]}}),
        );
        self
    }

    pub(crate) fn table(&self, node: &str) -> &ForwardingTable {
        self.nodes[&node_of(node).unwrap()].table()
    }

    pub(crate) fn act(&mut self, action: &Value) {
        for object in action["apply"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|object| expand(&ADDRESSES, object))
        {
            self.apply(object);
        }
        if let Some(name) = action["patch"].as_str() {
            let mut object = self
                .objects
                .get(name)
                .unwrap_or_else(|| panic!("no {name}"))
                .clone();
            merge(&mut object, &action["with"]);
            self.apply(object);
        }
        for name in action["delete"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            self.delete(name);
        }
    }

    pub(crate) fn apply(&mut self, mut object: Value) {
        let kind = object["kind"].as_str().unwrap().to_string();
        let name = object["metadata"]["name"].as_str().unwrap().to_string();
        if object["metadata"]["namespace"].is_null()
            && matches!(&*kind, "Service" | "EndpointSlice" | "Pod")
        {
            object["metadata"]["namespace"] = json!("default");
        }
        // The API server does so.
        if object["spec"]["type"] != "LoadBalancer" && kind == "Service" {
            object["status"] = json!({});
        }
        for index in self.nodes.values_mut() {
            let object = object.clone();
            match &*kind {
                "Service" => index.apply_service(&serde_json::from_value(object).unwrap()),
                "EndpointSlice" => index.apply_slice(&serde_json::from_value(object).unwrap()),
                "Node" => index.apply_node(&serde_json::from_value(object).unwrap()),
                "Pod" => index.apply_pod(&serde_json::from_value(object).unwrap()),
                "ServiceCIDR" => index.apply_service_cidr(&serde_json::from_value(object).unwrap()),
                _ => {}
            }
            index.take();
        }
        self.objects.insert(format!("{kind}/{name}"), object);
    }

    fn delete(&mut self, name: &str) {
        let object = self
            .objects
            .remove(name)
            .unwrap_or_else(|| panic!("no {name}"));
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        for index in self.nodes.values_mut() {
            match name.split_once('/') {
                Some(("Service", name)) => index.delete_service(namespace, name),
                Some(("EndpointSlice", name)) => index.delete_slice(namespace, name),
                Some(("Pod", name)) => index.delete_pod(namespace, name),
                _ => {}
            }
            index.take();
        }
    }

    /// What a client sees (`fail`, or each that it can `reach` with `source` and `port`, and
    /// whether it stays with one), and why.
    pub(crate) fn connect(&self, question: &Question) -> (Value, String) {
        let from = question.from;
        let (destination, port) = destination(question.to);
        let protocol = match question.protocol {
            Some("udp") => Protocol::Udp,
            Some("sctp") => Protocol::Sctp,
            _ => Protocol::Tcp,
        };
        let outside = || {
            question
                .via
                .and_then(node_of)
                .or_else(|| owner(destination))
        };
        let Some(number) = node_of(from).or_else(outside) else {
            return (reached_lb("own"), String::new());
        };
        let own = addresses_of_node(number);
        let (origin, source) = match from.starts_with("node") {
            true if own.contains(&destination) => (Origin::Node, destination),
            true => (Origin::Node, host_address(from, destination)),
            false if from.starts_with("pod") => (
                Origin::Interface("cni0".into()),
                host_address(from, destination),
            ),
            false => (
                Origin::Interface("eth0".into()),
                host_address(from, destination),
            ),
        };
        let source = question.source.unwrap_or(source);
        self.arrive(
            number,
            Packet {
                origin,
                source,
                source_port: None,
                destination,
                port,
                protocol,
                local: own.into(),
            },
        )
    }

    /// Whether the destination is the node's own. With IPVS it has the addresses of Services as
    /// well.
    fn has(&self, number: u8, packet: &Packet) -> bool {
        let mut frontends = self.nodes[&number]
            .table()
            .ports
            .iter()
            .flat_map(|(_, port)| &port.frontends);
        let is_services = |frontend: &Frontend| frontend.address == Some(packet.destination);
        let own = packet.destination.is_loopback() || packet.local.contains(&packet.destination);
        own || (self.mode == "ipvs" && frontends.any(is_services))
    }

    fn arrive(&self, number: u8, packet: Packet) -> (Value, String) {
        let explanation = explain(self.nodes[&number].table(), &packet);
        let why = explanation.to_string();
        let name = |masquerade| match (masquerade, owner(packet.source)) {
            (true, _) => format!("node{number}"),
            (false, Some(node)) => format!("node{node}"),
            (false, None) => "own".to_string(),
        };
        let seen = match explanation.verdict {
            Verdict::Reject => json!({"fail": "refused"}),
            Verdict::Drop => json!({"fail": "timeout"}),
            Verdict::Forward {
                candidates,
                affinity,
            } => {
                let reach = candidates.iter().map(|candidate| {
                    let seen = json!({"source": name(candidate.masquerade), "port": candidate.endpoint.port});
                    (host(candidate.endpoint.address), seen)
                });
                json!({"reach": reach.collect::<Map<_, _>>(), "sticky": affinity.is_some()})
            }
            Verdict::Node { .. } => unreachable!("there is no edge"),
            Verdict::NotOurs { .. } if self.has(number, &packet) => json!({"fail": "refused"}),
            Verdict::NotOurs { .. } => match owner(packet.destination) {
                None => reached_lb(&name(false)),
                Some(there) => {
                    let local = addresses_of_node(there).into();
                    return self.arrive(
                        there,
                        Packet {
                            origin: Origin::Interface("eth0".into()),
                            local,
                            ..packet
                        },
                    );
                }
            },
        };
        (seen, why)
    }
}

/// Whether what was seen of packets is what a table says; of a `few` packets not every endpoint saw
/// one.
pub(crate) fn agrees(packets: &Value, told: &Value, few: bool) -> bool {
    if let (Some(fail), None) = (packets.get("fail"), packets.get("reach")) {
        return told.get("fail") == Some(fail);
    }
    let reached = told["reach"].as_object().cloned().unwrap_or_default();
    let names: Vec<&str> = packets["reach"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let some = (few || told["sticky"] == true) && !names.is_empty();
    packets.get("fail").is_none()
        && (names.len() == reached.len() || some)
        && names.iter().all(|name| {
            let of_endpoint = |field: &str| match &packets[field] {
                Value::Object(each) => each.get(*name).cloned().unwrap_or_default(),
                one => one.clone(),
            };
            let (source, port) = (of_endpoint("source"), of_endpoint("port"));
            let Some(got) = reached.get(*name) else {
                return false;
            };
            let any_node = source == "any-node"
                && got["source"]
                    .as_str()
                    .is_some_and(|s| s.starts_with("node"));
            let same_port = port.is_null()
                || port == got["port"]
                || port.as_str() == Some(&got["port"].to_string());
            (source.is_null() || any_node || got["source"] == source) && same_port
        })
}

fn reached_lb(source: &str) -> Value {
    json!({"reach": {"lb": {"source": source}}})
}

/// `node1:30080`, `node1/ip6:30080`, `10.96.0.1:80` or `[fd00::1]:80`.
fn destination(text: &str) -> (IpAddr, u16) {
    let (host, port) = text.rsplit_once(':').unwrap();
    let (name, which) = host.split_once('/').unwrap_or((host, "ip"));
    let literal = host.trim_matches(['[', ']']).parse();
    (
        literal.unwrap_or_else(|_| address(name, which).parse().unwrap()),
        port.parse().unwrap(),
    )
}

fn host_address(host: &str, like: IpAddr) -> IpAddr {
    address(host, if like.is_ipv4() { "ip" } else { "ip6" })
        .parse()
        .unwrap()
}

/// The node that has the address.
fn owner(address: IpAddr) -> Option<u8> {
    let has = |number: &u8| !address.is_loopback() && addresses_of_node(*number).contains(&address);
    NODES.into_iter().find(has)
}

fn host(of: IpAddr) -> String {
    let pods = NODES
        .iter()
        .flat_map(|node| (1..=3).map(move |pod| format!("pod{node}-{pod}")));
    let nodes = NODES.iter().map(|node| format!("node{node}"));
    let is = |name: &String| {
        ["ip", "ip6"]
            .iter()
            .any(|which| address(name, which).parse() == Ok(of))
    };
    pods.chain(nodes).find(is).unwrap_or_else(|| of.to_string())
}
