//! Where would this packet go, and why: walks the table for the first packet of a connection, in
//! the order in which the dataplanes look at it. Sources are checked first, then the frontend is
//! found, then its pool.

mod print;
#[cfg(test)]
mod tests;

use crate::edge::{Edge, SLOTS, Way};
use crate::table::{
    DmzPods, Endpoint, Family, ForwardingTable, Frontend, FrontendKey, FrontendKind, LocalPods,
    Masquerade, NodePortAddresses, Outcome, PortKey, Protocol, ServicePort,
};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// The first packet of a connection, as it reaches the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Where the packet comes from.
    pub origin: Origin,
    /// The sender's address.
    pub source: IpAddr,
    /// Only the edge asks for it; `None` where it is not known.
    pub source_port: Option<u16>,
    /// Where the packet goes to.
    pub destination: IpAddr,
    /// The port that it is sent to.
    pub port: u16,
    /// The protocol above IP.
    pub protocol: Protocol,
    /// The addresses of the node's interfaces; those of the loopback range are local even if they
    /// are not among them.
    pub local: Arc<[IpAddr]>,
}

/// Where a packet comes from. Whether it is taken for a pod's is for [`LocalPods`] to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A program of the node itself.
    Node,
    /// It came in through this interface: from a pod of this node or from outside.
    Interface(Arc<str>),
}

/// Where a packet goes, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The packet that was asked about.
    pub packet: Packet,
    /// The frontend that the packet is for, and the service port it belongs to.
    pub frontend: Option<(PortKey, Frontend)>,
    /// What was looked at and what it meant, in order.
    pub steps: Vec<String>,
    /// What happens to the packet.
    pub verdict: Verdict,
}

/// What happens to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To one of these, each as likely as the other, unless the client has one to stay with.
    Forward {
        /// The endpoints that can get it.
        candidates: Vec<Candidate>,
        /// For how many seconds a client stays with its endpoint; `None` without affinity.
        affinity: Option<u32>,
    },
    /// To another node, as it is: the one that has the connection's slot at the edge.
    Node {
        /// Its Node object.
        name: Arc<str>,
        /// Where the packet is sent to.
        address: IpAddr,
    },
    /// The sender is told: ICMP port unreachable.
    Reject,
    /// Silence.
    Drop,
    /// The packet goes on as if there were no Services.
    NotOurs {
        /// The reason, as a sentence.
        why: String,
    },
}

/// An endpoint that can get the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The endpoint sees the node's address instead of the sender's.
    pub masquerade: bool,
}

/// Where the table sends the packet.
pub fn explain(table: &ForwardingTable, packet: &Packet) -> Explanation {
    let mut walk = Walk {
        table,
        packet,
        steps: Vec::new(),
    };
    let found = walk.find();
    let verdict = match found {
        _ if walk.is_kept_in_dmz(found.map(|(_, port, _)| &**port)) => Verdict::Drop,
        Some((key, port, frontend)) => walk.through(key, port, frontend),
        None => walk.without_frontend(),
    };
    let frontend = found.map(|(key, _, frontend)| (key.clone(), frontend.clone()));
    Explanation {
        packet: packet.clone(),
        frontend,
        steps: walk.steps,
        verdict,
    }
}

struct Walk<'a> {
    table: &'a ForwardingTable,
    packet: &'a Packet,
    steps: Vec<String>,
}

impl<'a> Walk<'a> {
    fn say(&mut self, step: impl Into<String>) {
        self.steps.push(step.into());
    }

    fn family(&self) -> Family {
        Family::of(self.packet.destination)
    }

    fn key(&self, address: Option<IpAddr>) -> FrontendKey {
        FrontendKey {
            family: self.family(),
            address,
            port: self.packet.port,
            protocol: self.packet.protocol,
        }
    }

    /// An address of a Service comes before a node port.
    fn find(&mut self) -> Option<(&'a PortKey, &'a Arc<ServicePort>, &'a Frontend)> {
        if Family::of(self.packet.source) != self.family() {
            return None;
        }
        if let Some(found) = self.table.find(&self.key(Some(self.packet.destination))) {
            self.say_partition(found.2);
            return Some(found);
        }
        let found = self.table.find(&self.key(None))?;
        self.node_ports_answer().then_some(found)
    }

    /// Pods in the DMZ reach no cluster IP, but for those of Services that let them in.
    fn is_kept_in_dmz(&mut self, port: Option<&ServicePort>) -> bool {
        let (source, destination) = (self.packet.source, self.packet.destination);
        let dmz = self.table.rules.dmz.get(self.family());
        let is_one = self.packet.origin != Origin::Node
            && Family::of(source) == self.family()
            && dmz.has(source);
        if !is_one {
            return false;
        }
        let Some(key) = self.table.frontends.cluster_ip(destination) else {
            return false;
        };
        let why = match dmz {
            DmzPods::Listed(_) => "is a pod in the DMZ",
            DmzPods::AllBut(_) => {
                "is not known to be a pod outside the DMZ, while one in the DMZ waits for its \
                 address"
            }
        };
        let is_let_in = port.is_some_and(|port| port.dmz.binary_search(&source).is_ok());
        self.say(match is_let_in {
            true => format!(
                "{source} {why}, and {destination} is a Service of visibility dmz in its namespace"
            ),
            false => format!(
                "{source} {why}, and {destination} is a cluster IP of {}: it reaches only \
                 Services of visibility dmz in its own namespace",
                key.service
            ),
        });
        !is_let_in
    }

    fn say_partition(&mut self, frontend: &Frontend) {
        let destination = self.packet.destination;
        let partition = self.table.partition_of(destination);
        if let Some(partition) = partition.filter(|_| frontend.kind == FrontendKind::NodePort) {
            self.say(format!(
                "{destination} is in port partition {partition}, which has node ports of its own"
            ));
        }
    }

    fn node_ports_answer(&mut self) -> bool {
        let destination = self.packet.destination;
        let (answers, why) = match self.table.rules.node_ports.get(self.family()) {
            NodePortAddresses::Listed(addresses) if addresses.contains(&destination) => {
                (true, "is listed for node ports")
            }
            NodePortAddresses::Listed(_) if self.table.partition_of(destination).is_some() => (
                false,
                "is in a port partition, where only node ports of Services that name it answer",
            ),
            NodePortAddresses::Listed(_) => (false, "is not an address on which node ports answer"),
            NodePortAddresses::AllLocal { .. } if !self.is_local(destination) => {
                (false, "is not an address of this node")
            }
            NodePortAddresses::AllLocal { loopback: false } if destination.is_loopback() => (
                false,
                "is a loopback address, on which node ports do not answer",
            ),
            NodePortAddresses::AllLocal { .. } => (
                true,
                "is an address of this node, and node ports answer on all of them",
            ),
        };
        self.say(format!("{destination} {why}"));
        answers
    }

    fn is_local(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.packet.local.contains(&address)
    }

    fn through(&mut self, key: &PortKey, port: &ServicePort, frontend: &Frontend) -> Verdict {
        self.say(format!(
            "{} is {} of {key}",
            FrontendKey::of(frontend, key),
            kind_name(frontend.kind)
        ));
        if !self.admitted(frontend) {
            return Verdict::Drop;
        }
        let from_pod = self.is_pods();
        let from_node = self.is_nodes(from_pod);
        let at_edge = match self.edge(port, from_pod || from_node) {
            Some(edge) => self.by_edge(edge, port),
            None => None,
        };
        if let Some(verdict) = at_edge {
            return verdict;
        }
        let outcome = self.outcome(frontend, from_pod || from_node);
        let pool = match outcome {
            Outcome::Cluster => &port.cluster,
            Outcome::Local => &port.local,
            Outcome::Reject => return Verdict::Reject,
            Outcome::Drop => return Verdict::Drop,
        };
        let masquerade = self.masquerade(frontend.masquerade, from_pod, from_node);
        let candidates = pool
            .iter()
            .map(|endpoint| self.candidate(*endpoint, masquerade))
            .collect();
        if let Some(seconds) = port.affinity {
            self.say(format!(
                "a client stays with its endpoint until {seconds} s after its last connection"
            ));
        }
        Verdict::Forward {
            candidates,
            affinity: port.affinity,
        }
    }

    /// What nodes have agreed upon for who comes from outside to this address.
    fn edge<'p>(&self, port: &'p ServicePort, inside: bool) -> Option<&'p Edge> {
        let edge = port.edge.as_deref()?;
        let holds = *self.table.rules.edge.get(self.family())
            && edge.addresses.contains(&self.packet.destination);
        (holds && !inside).then_some(edge)
    }

    /// `None` where this node treats the packet as if there were no edge.
    fn by_edge(&mut self, edge: &Edge, port: &ServicePort) -> Option<Verdict> {
        let pool = |endpoints: &[Endpoint]| Verdict::Forward {
            candidates: endpoints
                .iter()
                .map(|endpoint| Candidate {
                    endpoint: *endpoint,
                    masquerade: false,
                })
                .collect(),
            affinity: port.affinity,
        };
        if !edge.by_address && self.packet.source_port.is_none() {
            self.say(format!(
                "which node serves it depends on the port that it comes from: {}",
                shares(edge)
            ));
            return Some(pool(&port.cluster));
        }
        let slot = edge.slot(
            self.packet.source,
            self.packet.source_port.unwrap_or_default(),
        );
        let node = edge.node(slot)?;
        let name = &node.name;
        match node.way {
            Way::Here if port.local.is_empty() => None,
            Way::Here => {
                self.say(format!(
                    "its slot, {slot} of {SLOTS}, is this node's: an endpoint on this node serves \
                     it, and sees the sender's address"
                ));
                Some(pool(&port.local))
            }
            Way::Neighbour(address) => {
                self.say(format!(
                    "its slot, {slot} of {SLOTS}, is {name}'s: the packet goes there as it is"
                ));
                Some(Verdict::Node {
                    name: Arc::clone(name),
                    address,
                })
            }
            Way::None => {
                self.say(format!(
                    "its slot, {slot} of {SLOTS}, is {name}'s, which is on no network of this \
                     node: it is treated as without the edge"
                ));
                None
            }
        }
    }

    fn admitted(&mut self, frontend: &Frontend) -> bool {
        let Some(sources) = &frontend.sources else {
            return true;
        };
        let range = sources
            .iter()
            .find(|range| range.contains(&self.packet.source));
        let source = self.packet.source;
        if frontend.kind == FrontendKind::ClusterIp {
            self.say(match range {
                Some(_) => format!("{source} is a pod of the Service's namespace on this node"),
                None => format!(
                    "the visibility of the Service is namespace, and {source} is not known as the \
                     address of a pod of its namespace on this node"
                ),
            });
            return range.is_some();
        }
        self.say(match range {
            Some(range) => format!(
                "{source} is in {range}, from where the load balancer's address may be used"
            ),
            None => format!(
                "{source} is in none of the source ranges ({})",
                list(sources)
            ),
        });
        range.is_some()
    }

    fn is_pods(&mut self) -> bool {
        let pods = self.table.rules.local_pods.get(self.family());
        let through = match &self.packet.origin {
            Origin::Node => None,
            Origin::Interface(name) => Some(&**name),
        };
        let (from_pod, how) = match pods {
            LocalPods::Unknown => (
                false,
                "pods of this node cannot be told from others".to_string(),
            ),
            LocalPods::Sources(networks) => {
                let inside = networks
                    .iter()
                    .any(|network| network.contains(&self.packet.source));
                (
                    inside,
                    format!(
                        "{} is {}in {}",
                        self.packet.source,
                        if inside { "" } else { "not " },
                        list(networks)
                    ),
                )
            }
            LocalPods::Interface(name) => (
                through == Some(name),
                format!("pods come through {name}, it comes {}", came(through)),
            ),
            LocalPods::InterfacePrefix(prefix) => {
                let matches = through.is_some_and(|through| through.starts_with(&**prefix));
                (
                    matches,
                    format!("pods come through {prefix}*, it comes {}", came(through)),
                )
            }
        };
        self.say(format!(
            "{how}: {}taken for a pod of this node",
            if from_pod { "" } else { "not " }
        ));
        from_pod
    }

    /// Whether the packet is the node's own. The dataplanes decide it by the source address.
    fn is_nodes(&mut self, from_pod: bool) -> bool {
        let from_node = !from_pod && self.is_local(self.packet.source);
        if from_node {
            self.say(format!(
                "{} is an address of this node: it is the node's own",
                self.packet.source
            ));
        }
        from_node
    }

    fn outcome(&mut self, frontend: &Frontend, inside: bool) -> Outcome {
        let outcome = if inside {
            frontend.inside
        } else {
            frontend.outside
        };
        if frontend.inside != frontend.outside {
            self.say(match inside {
                true => {
                    "the Local external policy does not hold for packets of this node and its pods"
                }
                false => "the Local external policy holds",
            });
        }
        self.say(match outcome {
            Outcome::Cluster => "any endpoint that this node uses may serve it",
            Outcome::Local => "only endpoints on this node may serve it",
            Outcome::Reject => "the Service has no endpoint anywhere",
            Outcome::Drop => "the policy is Local and there is no endpoint on this node",
        });
        outcome
    }

    fn masquerade(&mut self, rule: Masquerade, from_pod: bool, from_node: bool) -> bool {
        let (masquerade, why) = match rule {
            Masquerade::Always => (
                true,
                "the source address is replaced by the node's, so that answers come back this way",
            ),
            Masquerade::UnlessPod if from_pod => (false, "a pod's source address is kept"),
            Masquerade::UnlessPod => (
                true,
                "the source address is replaced by the node's, since it is not a pod's",
            ),
            Masquerade::OnlyNode if from_node => (
                true,
                "the source address is replaced, since it may be the frontend's own",
            ),
            Masquerade::OnlyNode => (
                false,
                "the source address is kept, as the Local policy wants it",
            ),
            Masquerade::Never => (false, "the source address is kept"),
        };
        self.say(why);
        masquerade
    }

    fn candidate(&mut self, endpoint: Endpoint, masquerade: bool) -> Candidate {
        let address = endpoint.address;
        if self.packet.origin != Origin::Node && self.is_local(address) {
            self.say(format!(
                "{address} is this node itself: the packet does not leave it, so its source \
                 address is kept"
            ));
            return Candidate {
                endpoint,
                masquerade: false,
            };
        }
        let hairpin = address == self.packet.source;
        if hairpin && !masquerade {
            self.say(format!(
                "{address} would reach itself, which works only with its source address replaced"
            ));
        }
        Candidate {
            endpoint,
            masquerade: masquerade || hairpin,
        }
    }

    fn without_frontend(&mut self) -> Verdict {
        let Packet {
            destination,
            source,
            ..
        } = *self.packet;
        if Family::of(source) != Family::of(destination) {
            return not_ours("source and destination are of different address families");
        }
        let arrives_here = self.packet.origin != Origin::Node && self.is_local(destination);
        if !arrives_here && let Some(key) = self.table.frontends.cluster_ip(destination) {
            self.say(format!(
                "{destination} is the cluster IP of {}, which has no such port",
                key.service
            ));
            return Verdict::Reject;
        }
        if !arrives_here && let Some(cidr) = self.service_cidr(destination) {
            self.say(format!(
                "{destination} is in {cidr}, where cluster IPs come from, but no Service has it"
            ));
            return Verdict::Drop;
        }
        not_ours(&self.why_not_ours())
    }

    fn service_cidr(&self, address: IpAddr) -> Option<&'a IpNet> {
        self.table
            .rules
            .service_cidrs
            .iter()
            .find(|cidr| cidr.contains(&address))
    }

    fn why_not_ours(&self) -> String {
        let key = self.key(Some(self.packet.destination));
        if let Some(refusal) = self.table.frontends.refusal(&key) {
            return refusal.to_string();
        }
        if let Some(port) = self.table.frontends.proxied(&key) {
            return format!(
                "{key} is a load balancer of {port} that makes connections of its own (ipMode: \
                 Proxy)"
            );
        }
        if let Some(partition) = self.table.partition_of(self.packet.destination) {
            return format!(
                "{} is in port partition {partition}, in which no Service has node port {}/{}",
                self.packet.destination,
                self.packet.port,
                self.packet.protocol.lower()
            );
        }
        if let Some(refusal) = self.table.frontends.refusal(&self.key(None)) {
            return refusal.to_string();
        }
        match self.table.frontends.owner(&self.key(None)) {
            Some(port) => {
                format!(
                    "{} is a node port of {port}, but not on {}",
                    self.packet.port, self.packet.destination
                )
            }
            None => format!("no Service answers on {key}"),
        }
    }
}

fn not_ours(why: &str) -> Verdict {
    Verdict::NotOurs {
        why: why.to_string(),
    }
}

fn kind_name(kind: FrontendKind) -> &'static str {
    match kind {
        FrontendKind::ClusterIp => "a cluster IP",
        FrontendKind::ExternalIp => "an external IP",
        FrontendKind::LoadBalancerIp => "a load balancer's IP",
        FrontendKind::NodePort => "a node port",
    }
}

/// How many slots each node has.
fn shares(edge: &Edge) -> String {
    let has = |position: usize| {
        let of_node = edge
            .slots
            .iter()
            .filter(|slot| usize::from(**slot) == position);
        of_node.count()
    };
    let nodes = edge.nodes.iter().enumerate();
    nodes
        .map(|(position, node)| format!("{} has {} of {SLOTS} slots", node.name, has(position)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn came(through: Option<&str>) -> String {
    through.map_or("from the node itself".into(), |name| {
        format!("through {name}")
    })
}

fn list(networks: &[IpNet]) -> String {
    networks
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
