//! The forwarding table of one node: what is wanted. Dataplanes plan from it, `explain` walks it.
//!
//! Every decision about which client is served by which endpoint is already taken here; a dataplane
//! translates, it does not decide.

mod frontends;
mod ports;

pub(crate) use frontends::Claims;
pub use frontends::{Claim, Conflict, FrontendIndex, FrontendKey, Refusal, unservable};
pub use ports::Ports;

use crate::edge::Edge;
use crate::key::ObjectKey;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The two families of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families, IPv4 first.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// As API objects write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The family that API objects write like this.
    pub fn named(text: &str) -> Option<Self> {
        Self::BOTH
            .into_iter()
            .find(|family| family.as_str() == text)
    }
}

/// One value for each address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerFamily<T> {
    /// The value for IPv4.
    pub v4: T,
    /// The value for IPv6.
    pub v6: T,
}

impl<T> PerFamily<T> {
    /// The value for a family.
    pub fn get(&self, family: Family) -> &T {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// The value for a family, to be changed.
    pub fn get_mut(&mut self, family: Family) -> &mut T {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

/// The protocols that Services have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// The number in the IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// As API objects write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// The protocol that API objects write like this.
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|protocol| protocol.as_str() == text)
    }

    /// As rules and people write it.
    pub fn lower(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One port of a Service in one address family: the unit that is planned, changed and installed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortKey {
    /// Its Service.
    pub service: ObjectKey,
    /// Empty where the Service has one unnamed port.
    pub port: Arc<str>,
    /// The protocol of the port.
    pub protocol: Protocol,
    /// The family: a dual-stack Service has each port twice.
    pub family: Family,
}

impl PortKey {
    /// Before every key that there can be.
    pub(crate) fn least() -> Self {
        Self {
            service: ObjectKey::new("", ""),
            port: Arc::default(),
            protocol: Protocol::Tcp,
            family: Family::V4,
        }
    }

    /// The name as rules carry it in their comments.
    pub fn label(&self) -> String {
        label(&self.to_string())
    }
}

/// iptables takes comments of at most 255 bytes, and more is written after the name.
const LONGEST_LABEL: usize = 180;

/// The one way in which a name becomes text of a rule: nothing is left in it that could end a
/// quoted word or a line, or steer a terminal. Names that Kubernetes allows stay as they are.
pub fn label(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_graphic() && c != '"' && c != '\\' {
            c
        } else {
            '_'
        }
    };
    name.chars().map(plain).take(LONGEST_LABEL).collect()
}

impl fmt::Display for PortKey {
    /// `namespace/name` or `namespace/name:port`, as kube-proxy names it in comments and hashes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port.is_empty() {
            true => write!(f, "{}", self.service),
            false => write!(f, "{}:{}", self.service, self.port),
        }
    }
}

/// An address and port that serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address of the endpoint.
    pub address: IpAddr,
    /// The port of the endpoint.
    pub port: u16,
    /// It runs on this node.
    pub local: bool,
}

/// Which pool of the port a packet is given to, or why it is given to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// One of [`ServicePort::cluster`], which is not empty.
    Cluster,
    /// One of [`ServicePort::local`], which is not empty.
    Local,
    /// No endpoint anywhere: the sender is told (ICMP port unreachable).
    Reject,
    /// A Local policy and no endpoint on this node: silence, so that a load balancer tries another
    /// node.
    Drop,
}

/// The packets whose source address is replaced by the node's. A connection to oneself (hairpin)
/// always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Masquerade {
    /// The source of every packet.
    Always,
    /// All packets but those of pods of this node, as [`LocalPods`] recognizes them.
    UnlessPod,
    /// Only that of the node's own programs.
    OnlyNode,
    /// The source of no packet.
    Never,
}

/// The kinds of addresses on which Services answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKind {
    /// An address of `spec.clusterIPs`.
    ClusterIp,
    /// An address of `spec.externalIPs`.
    ExternalIp,
    /// An address of `status.loadBalancer`.
    LoadBalancerIp,
    /// A port on addresses of the node.
    NodePort,
}

/// An address and port that a Service answers on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frontend {
    /// What kind of address it is.
    pub kind: FrontendKind,
    /// `None` for a node port that is on all of the node's [`NodePortAddresses`]; one of a port
    /// partition has each of its addresses.
    pub address: Option<IpAddr>,
    /// The port that clients connect to.
    pub port: u16,
    /// What happens to packets of pods of this node and of the node's own programs.
    pub inside: Outcome,
    /// What happens to all other packets. The same as `inside`, but for a Local external policy.
    pub outside: Outcome,
    /// Which packets get the node's address as their source.
    pub masquerade: Masquerade,
    /// Where the packet must come from to be let in; others are dropped. `None` lets everybody in.
    /// Of a load balancer's address these are its source ranges, of a cluster IP the addresses of
    /// pods that may use it; a port has no frontends of both kinds that have sources.
    pub sources: Option<Arc<[IpNet]>>,
}

/// One port of a Service as this node serves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePort {
    /// Without duplicates, in a fixed order.
    pub frontends: Vec<Frontend>,
    /// Sorted; empty where no frontend uses it.
    pub cluster: Arc<[Endpoint]>,
    /// Sorted; empty where no frontend uses it.
    pub local: Arc<[Endpoint]>,
    /// Endpoints that serve but get no new connection here: they are terminating, or a policy or a
    /// hint says so. The connections that they have live on. Sorted; none of them is in `cluster`
    /// or `local`.
    pub lingering: Arc<[Endpoint]>,
    /// Pods in the DMZ that may use its cluster IP: no others that are in [`NodeRules::dmz`] may.
    /// Sorted.
    pub dmz: Arc<[IpAddr]>,
    /// A client stays with its endpoint for so many seconds after its last connection.
    pub affinity: Option<u32>,
    /// Where load balancers ask this node whether it has endpoints: whatever else the node refuses,
    /// this must arrive.
    pub health_check: Option<u16>,
    /// Which node serves whom of those who come from outside to a load balancer's address; the
    /// node that is to serve them uses `local`.
    pub edge: Option<Arc<Edge>>,
}

/// Which packets come from a pod of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LocalPods {
    /// The setting is unknown; no source is taken for a local one.
    #[default]
    Unknown,
    /// By source address.
    Sources(Vec<IpNet>),
    /// By the interface they enter through.
    Interface(Arc<str>),
    /// Packets from interfaces whose names begin so.
    InterfacePrefix(Arc<str>),
}

/// The addresses of this node on which node ports answer, in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// Every address that is local to the node; those of the loopback range only if `loopback`.
    AllLocal {
        /// Whether addresses of the loopback range are among them.
        loopback: bool,
    },
    /// These, found out from the node's interfaces.
    Listed(Vec<IpAddr>),
}

impl Default for NodePortAddresses {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

/// Which packets that arrive at this node come from pods in the DMZ, in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DmzPods {
    /// Those from these addresses. Sorted.
    Listed(Vec<IpAddr>),
    /// Those from any address but these: a pod in the DMZ starts, and its address is not known yet.
    /// Sorted.
    AllBut(Vec<IpAddr>),
}

impl Default for DmzPods {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl DmzPods {
    /// No packet is.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Listed(listed) if listed.is_empty())
    }

    /// Whether packets from this source are of pods in the DMZ, or may be.
    pub fn has(&self, source: IpAddr) -> bool {
        match self {
            Self::Listed(listed) => listed.binary_search(&source).is_ok(),
            Self::AllBut(others) => others.binary_search(&source).is_err(),
        }
    }
}

/// What holds for all Services on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRules {
    /// How packets of this node's pods are recognized.
    pub local_pods: PerFamily<LocalPods>,
    /// The addresses on which node ports answer.
    pub node_ports: PerFamily<NodePortAddresses>,
    /// Node ports on loopback addresses are wanted: `net.ipv4.conf.all.route_localnet` is 1, and
    /// others are to be kept away from these addresses.
    pub route_localnet: bool,
    /// Where cluster IPs come from, as far as it is known: packets to an address in it that no
    /// Service has are dropped.
    pub service_cidrs: Vec<IpNet>,
    /// Whose packets to cluster IPs are dropped, but for those that [`ServicePort::dmz`] lets in.
    pub dmz: PerFamily<DmzPods>,
    /// The bit of the packet mark that asks for masquerading.
    pub masquerade_mark: u32,
    /// Packets from outside may go to the node that [`ServicePort::edge`] has for them.
    pub edge: PerFamily<bool>,
}

/// What this node is to forward.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardingTable {
    /// What holds for all Services.
    pub rules: NodeRules,
    /// Every port of every Service that this node serves.
    pub ports: Ports,
    /// Finds the service port by the frontend, and lists the other service ports that claim it.
    pub frontends: FrontendIndex,
    /// The addresses of this node in each port partition that there is: no node port of a Service
    /// that names no partition answers on them.
    pub partitions: BTreeMap<Arc<str>, Arc<[IpAddr]>>,
}

impl ForwardingTable {
    /// A table made by hand; [`crate::index::Index`] keeps one up to date.
    pub fn new(rules: NodeRules, ports: Ports) -> Self {
        let mut claimed = Claims::default();
        for (key, port) in ports.iter() {
            let claim =
                |f: &Frontend| (FrontendKey::of(f, key), Claim::new(f.kind, 0, key.clone()));
            claimed.ours.extend(port.frontends.iter().map(claim));
        }
        let mut frontends = FrontendIndex::default();
        frontends.exchange(Claims::default(), claimed);
        Self {
            rules,
            ports,
            frontends,
            partitions: BTreeMap::new(),
        }
    }

    /// The port partition that an address of this node is in.
    pub fn partition_of(&self, address: IpAddr) -> Option<&str> {
        let mut partitions = self.partitions.iter();
        partitions
            .find(|(_, addresses)| addresses.contains(&address))
            .map(|(name, _)| &**name)
    }

    /// The frontend with this key, and the port it belongs to.
    pub fn find(&self, key: &FrontendKey) -> Option<(&PortKey, &Arc<ServicePort>, &Frontend)> {
        let owner = self.frontends.owner(key)?;
        let port = self.ports.get(owner)?;
        let frontend = port
            .frontends
            .iter()
            .find(|frontend| (frontend.address, frontend.port) == (key.address, key.port))?;
        Some((owner, port, frontend))
    }
}

/// How one port changed. `before` and `after` are never equal, and never both `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The service port.
    pub key: PortKey,
    /// What it was; `None` if it is new.
    pub before: Option<Arc<ServicePort>>,
    /// What it is now; `None` if it is gone.
    pub after: Option<Arc<ServicePort>>,
}

/// A health-check node port: how many endpoints of the Service are ready on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheck {
    /// The health-check node port.
    pub port: u16,
    /// Where it answers: `None` is wherever node ports do. That of a Service of a port partition
    /// has a port that is another's elsewhere.
    pub addresses: Option<Arc<[IpAddr]>>,
    /// In which families the Service exists; the port does not answer in the others.
    pub families: PerFamily<bool>,
    /// Ready endpoints on this node, by family.
    pub ready: PerFamily<u32>,
}
