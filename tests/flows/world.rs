//! One node under test in the cluster: what it knows, what `explain` says of a packet, and what the
//! kernel does with it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use portico_model::explain::{Explanation, Origin, Packet, Verdict, explain};
use portico_model::index::{DetectLocal, Index, NodePortSetting, Settings};
use portico_model::objects::ServiceCidr;
use portico_model::table::Protocol;
use portico_testbed::Ask as _;
use portico_testbed::cluster::{Addresses, HOST_PORT, POD_RANGES, SERVICE_RANGES};
use portico_testbed::{Cluster, Failure, Flow};
use serde_json::{Value, json};
use socket2::SockRef;

use crate::objects;

/// The node under test; whatever else is in the cluster has no Services.
pub(crate) const NODE: &str = "node1";

/// What the operator of the node decided.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Choices {
    /// `clusterCIDR` (where empty), `nodeCIDR`, `bridge=NAME` or `prefix=PREFIX`.
    pub detect_local: String,
    /// `primary` (where empty), `all`, `loopback`, or networks.
    pub node_ports: String,
    pub masquerade_all: bool,
}

impl Choices {
    fn settings(&self) -> Settings {
        let networks = |text: &str| {
            text.split(',')
                .map(|network| network.parse().unwrap())
                .collect()
        };
        let detect_local = match self.detect_local.split_once('=') {
            Some(("bridge", name)) => DetectLocal::Bridge(name.into()),
            Some(("prefix", prefix)) => DetectLocal::InterfacePrefix(prefix.into()),
            _ if self.detect_local == "nodeCIDR" => DetectLocal::NodeCidr,
            _ => DetectLocal::ClusterCidr(networks(POD_RANGES)),
        };
        let node_ports = match self.node_ports.as_str() {
            "" | "primary" => NodePortSetting::Primary,
            "all" => NodePortSetting::Networks {
                networks: Vec::new(),
                loopback: false,
            },
            "loopback" => NodePortSetting::Networks {
                networks: Vec::new(),
                loopback: true,
            },
            text => NodePortSetting::Networks {
                networks: networks(text),
                loopback: false,
            },
        };
        let masquerade_all = self.masquerade_all;
        Settings {
            node_name: NODE.into(),
            own_address: None,
            detect_local,
            node_ports,
            masquerade_all,
            masquerade_mark: 0x4000,
            external_ips: true,
            load_balancer_ip_mode: true,
        }
    }

    /// An index that knows the node and nothing else.
    pub(crate) fn index(&self, addresses: &Addresses) -> Index {
        let mut index = Index::new(self.settings());
        index.set_addresses(
            addresses
                .all_of(NODE)
                .chain(["127.0.0.1".parse().unwrap()])
                .collect(),
        );
        index.apply_node(&serde_json::from_value(objects::node(addresses, NODE)).unwrap());
        let cidrs: Vec<_> = SERVICE_RANGES.split(',').collect();
        let cidr = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}});
        index.apply_service_cidr(&serde_json::from_value::<ServiceCidr>(cidr).unwrap());
        index
    }
}

/// Gives an object to the index: a Service, a Node, a PortPartition, or the shorthand for
/// EndpointSlices.
pub(crate) fn apply(index: &mut Index, addresses: &Addresses, object: &Value) {
    for mut object in objects::expand(addresses, object) {
        if object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!("default");
        }
        match object["kind"].as_str() {
            Some("Service") => {
                complete(&mut object["spec"]);
                index.apply_service(&serde_json::from_value(object).unwrap());
            }
            Some("EndpointSlice") => index.apply_slice(&serde_json::from_value(object).unwrap()),
            Some("Pod") => {
                object["spec"]["nodeName"] = json!(NODE);
                let name = object["metadata"]["name"].as_str().unwrap();
                let addresses: Vec<_> = ["ip", "ip6"]
                    .into_iter()
                    .filter_map(|family| addresses.of(name, family))
                    .map(|address| json!({"ip": address}))
                    .collect();
                if object["status"].is_null() {
                    object["status"] = json!({"phase": "Running", "podIPs": addresses});
                }
                index.apply_pod(&serde_json::from_value(object).unwrap());
            }
            Some("PortPartition") => {
                index.apply_port_partition(&serde_json::from_value(object).unwrap())
            }
            Some("Node") => index.apply_node(&serde_json::from_value(object).unwrap()),
            kind => panic!("what is a {kind:?}?"),
        }
    }
}

/// What an API server adds to what is written.
fn complete(spec: &mut Value) {
    let addresses: Vec<_> = spec["clusterIPs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let family = |address: &&str| {
        if address.contains(':') {
            "IPv6"
        } else {
            "IPv4"
        }
    };
    let (first, families) = (
        json!(addresses.first().unwrap_or(&"")),
        json!(addresses.iter().map(family).collect::<Vec<_>>()),
    );
    spec["clusterIP"] = first;
    spec["ipFamilies"] = families;
}

/// One packet: who sends it, and where to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    pub from: String,
    pub to: SocketAddr,
    pub protocol: Protocol,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}/{}", self.from, self.to, self.protocol.lower())
    }
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// One of these answers, by name and port, and sees the node's address or the sender's own.
    Reach {
        endpoints: BTreeMap<String, Sight>,
        sticky: bool,
    },
    Refused,
    Timeout,
    /// It goes where it would go without Services.
    Passes,
}

impl Fate {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Reach { sticky: true, .. } => "stays",
            Self::Reach { .. } => "reaches",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Passes => "passes",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sight {
    Own,
    Node,
}

/// The packet as the node gets it. The sender's address is what its routes make of it.
pub(crate) fn packet(addresses: &Addresses, question: &Question, source: IpAddr) -> Packet {
    let origin = match &*question.from {
        NODE => Origin::Node,
        pod if pod.starts_with("pod1-") => Origin::Interface("cni0".into()),
        _ => Origin::Interface("eth0".into()),
    };
    let local: Arc<[IpAddr]> = addresses.all_of(NODE).collect();
    let Question { to, protocol, .. } = *question;
    Packet {
        origin,
        source,
        source_port: None,
        destination: to.ip(),
        port: to.port(),
        protocol,
        local,
    }
}

/// What `explain` says, with its reasons.
pub(crate) fn foretold(
    index: &Index,
    addresses: &Addresses,
    question: &Question,
    source: IpAddr,
) -> (Fate, Explanation) {
    let explanation = explain(index.table(), &packet(addresses, question, source));
    let fate = match &explanation.verdict {
        Verdict::Forward {
            candidates,
            affinity,
        } => {
            let endpoints = candidates.iter().map(|candidate| {
                let address = candidate.endpoint.address;
                let host = addresses
                    .owner(address)
                    .map_or_else(|| address.to_string(), str::to_owned);
                // What the node sends itself has the node's address either way.
                let sight = if candidate.masquerade || question.from == NODE {
                    Sight::Node
                } else {
                    Sight::Own
                };
                (format!("{host}:{}", candidate.endpoint.port), sight)
            });
            Fate::Reach {
                endpoints: endpoints.collect(),
                sticky: affinity.is_some(),
            }
        }
        Verdict::Node { name, .. } => panic!("there is no edge in this world, and {name} is named"),
        Verdict::Reject => Fate::Refused,
        Verdict::Drop => Fate::Timeout,
        Verdict::NotOurs { .. } => Fate::Passes,
    };
    (fate, explanation)
}

/// The cluster, in which packets are sent.
pub(crate) struct World {
    pub cluster: Cluster,
}

impl World {
    /// The address that the sender's routes choose. Clients send through the node under test.
    pub(crate) fn source(&self, question: &Question) -> IpAddr {
        let host = self
            .cluster
            .host(&question.from)
            .unwrap_or_else(|| panic!("no host {}", question.from));
        host.enter(|| {
            let socket = UdpSocket::bind(if question.to.is_ipv4() {
                "0.0.0.0:0"
            } else {
                "[::]:0"
            })
            .unwrap();
            if let Some(mark) = mark(question) {
                SockRef::from(&socket).set_mark(mark).unwrap();
            }
            socket.connect(question.to).unwrap();
            socket.local_addr().unwrap().ip()
        })
    }

    /// Sends packets and says what differs from what was expected.
    pub(crate) async fn check(&self, question: &Question, expected: &Fate) -> Result<(), String> {
        let times = match expected {
            Fate::Reach { endpoints, sticky } => attempts(endpoints.len(), *sticky),
            _ => 2,
        };
        // One after the other where the first decides for all.
        let at_once = if matches!(expected, Fate::Reach { sticky: true, .. }) {
            1
        } else {
            8
        };
        let flow = self.flow(question, expected);
        let host = self.cluster.host(&question.from).unwrap();
        let outcomes: Vec<_> = stream::iter((0..times).map(|_| host.ask(&flow)))
            .buffer_unordered(at_once)
            .collect()
            .await;
        let mut reached = BTreeMap::new();
        let mut failures: Vec<Failure> = Vec::new();
        for outcome in outcomes {
            match outcome {
                Ok(answer) => {
                    let owner = self.cluster.addresses.owner(answer.seen.source.ip());
                    let sight = if owner == Some(NODE) {
                        Sight::Node
                    } else {
                        Sight::Own
                    };
                    let host = format!("{}:{}", answer.seen.host, answer.seen.port);
                    if sight == Sight::Own && owner != Some(&question.from) {
                        return Err(format!("{host} saw {}", answer.seen.source));
                    }
                    if reached
                        .insert(host.clone(), sight)
                        .is_some_and(|before| before != sight)
                    {
                        return Err(format!("{host} saw now the sender and now the node"));
                    }
                }
                Err(failure) => failures.push(failure),
            }
        }
        failures.sort();
        failures.dedup();
        match self.agrees(question, expected, &reached, &failures) {
            true => Ok(()),
            false => Err(format!("reached {reached:?}, failed with {failures:?}")),
        }
    }

    fn agrees(
        &self,
        question: &Question,
        expected: &Fate,
        reached: &BTreeMap<String, Sight>,
        failures: &[Failure],
    ) -> bool {
        let only = |failure: Failure| reached.is_empty() && *failures == [failure];
        match expected {
            Fate::Reach {
                endpoints,
                sticky: false,
            } => failures.is_empty() && reached == endpoints,
            Fate::Reach {
                endpoints,
                sticky: true,
            } => {
                let one_of_them =
                    |(host, sight): (&String, &Sight)| endpoints.get(host) == Some(sight);
                failures.is_empty() && reached.len() == 1 && reached.iter().all(one_of_them)
            }
            Fate::Refused => only(Failure::Refused),
            Fate::Timeout => only(Failure::Timeout),
            Fate::Passes => self.passed(question, reached, failures),
        }
    }

    /// Nobody takes it: it ends at the host whose address it is or at the box that answers
    /// everything; neither speaks SCTP.
    fn passed(
        &self,
        question: &Question,
        reached: &BTreeMap<String, Sight>,
        failures: &[Failure],
    ) -> bool {
        let to = question.to.ip();
        let owner = if to.is_loopback() {
            Some(NODE)
        } else {
            self.cluster.addresses.owner(to)
        };
        let sight = if question.from == NODE {
            Sight::Node
        } else {
            Sight::Own
        };
        let answered = |name: &str| {
            *reached == BTreeMap::from([(name.to_owned(), sight)]) && failures.is_empty()
        };
        match (owner, question.protocol) {
            (_, Protocol::Sctp) => reached.is_empty() && !failures.contains(&Failure::Refused),
            (Some(owner), _) if question.to.port() == HOST_PORT => {
                answered(&format!("{owner}:{HOST_PORT}"))
            }
            (Some(_), _) => reached.is_empty() && *failures == [Failure::Refused],
            (None, _) => answered("lb:7"),
        }
    }

    fn flow(&self, question: &Question, expected: &Fate) -> Flow {
        let protocol = match question.protocol {
            Protocol::Tcp => portico_testbed::Protocol::Tcp,
            Protocol::Udp => portico_testbed::Protocol::Udp,
            Protocol::Sctp => portico_testbed::Protocol::Sctp,
        };
        // Who is to be silent is not waited for long; who is to answer may be slow.
        let silent = *expected == Fate::Timeout
            || (*expected == Fate::Passes && question.protocol == Protocol::Sctp);
        let patience = Duration::from_millis(if silent { 300 } else { 5000 });
        Flow {
            patience,
            mark: mark(question),
            ..Flow::new(protocol, question.to)
        }
    }

    /// Checks many; a line for each that went another way. Those with affinity come one after the
    /// other, since what one of a client decides holds for the others.
    pub(crate) async fn check_all(&self, flows: &[(&Question, &Fate)]) -> Vec<String> {
        let check = |(question, expected): (&Question, &Fate)| {
            let (question, expected) = (question.clone(), expected.clone());
            async move {
                let differs = self.check(&question, &expected).await.err()?;
                Some(format!("{question}: expected {expected:?}, {differs}"))
            }
        };
        let (sticky, others): (Vec<_>, Vec<_>) = flows
            .iter()
            .partition(|(_, fate)| matches!(fate, Fate::Reach { sticky: true, .. }));
        let mut wrong = join_all(others.into_iter().map(check)).await;
        for flow in sticky {
            wrong.push(check(flow).await);
        }
        wrong.into_iter().flatten().collect()
    }
}

fn mark(question: &Question) -> Option<u32> {
    question.from.starts_with("client").then_some(1)
}

/// So many that to miss one of the endpoints is a matter of one in a million.
fn attempts(endpoints: usize, sticky: bool) -> usize {
    match endpoints {
        _ if sticky => 8,
        0 | 1 => 3,
        many => ((many as f64 * 1e6).ln() / -(1.0 - 1.0 / many as f64).ln()).ceil() as usize,
    }
}
