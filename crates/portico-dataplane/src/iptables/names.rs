//! Names of chains, the same as kube-proxy's: other software looks for them and hooks into them.

use portico_model::table::{Endpoint, Family, PortKey};
use std::net::SocketAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    Filter,
    Nat,
    /// Only IPVS mode has chains in it.
    Mangle,
}

impl Table {
    pub const ALL: [Self; 3] = [Self::Filter, Self::Nat, Self::Mangle];

    pub fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Mangle => "mangle",
        }
    }
}

/// In the nat table it translates ([`Shared::Services`]), in the filter table it refuses.
pub(crate) const SERVICES: &str = "KUBE-SERVICES";
/// The chain that marks packets for masquerading.
pub const MARK_MASQ: &str = "KUBE-MARK-MASQ";
pub(crate) const POSTROUTING: &str = "KUBE-POSTROUTING";
pub(crate) const FORWARD: &str = "KUBE-FORWARD";
/// Keeps packets from outside away from loopback addresses. kubelet may have made it, with the same
/// rule.
pub(crate) const MARTIANS: &str = "KUBE-FIREWALL";
/// Marks for masquerading unless the packet comes from one of several networks of pods.
pub(crate) const MASQ_UNLESS_POD: &str = "PORTICO-MASQ-UNLESS-POD";
/// kube-proxy looks after these to see whether its rules were flushed.
pub(crate) const CANARY: &str = "KUBE-PROXY-CANARY";

/// Chains that only IPVS mode has, ours or kube-proxy's.
pub(crate) mod ipvs {
    pub(crate) const FIREWALL: &str = "KUBE-PROXY-FIREWALL";
    pub(crate) const SOURCE_RANGES: &str = "KUBE-SOURCE-RANGES-FIREWALL";
    pub(crate) const NODE_PORT: &str = "KUBE-NODE-PORT";
    pub(crate) const FILTER: &str = "KUBE-IPVS-FILTER";
    pub(crate) const INSIDE: &str = "PORTICO-INSIDE";
    pub(crate) const OUTSIDE: &str = "PORTICO-OUTSIDE";
    pub(crate) const DMZ: &str = "PORTICO-FROM-DMZ";

    pub(super) const ALL: [&str; 9] = [
        FIREWALL,
        SOURCE_RANGES,
        NODE_PORT,
        FILTER,
        INSIDE,
        OUTSIDE,
        DMZ,
        "KUBE-LOAD-BALANCER",
        "KUBE-IPVS-OUT-FILTER",
    ];
}

/// Chains to which every service port contributes rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Shared {
    /// What is translated: cluster IPs, external IPs, load-balancer IPs; at its end, node ports.
    Services,
    NodePorts,
    /// Cluster IPs and external addresses without endpoints.
    Refused,
    RefusedNodePorts,
    /// Health checks of load balancers are let in; at its end, node ports without endpoints.
    HealthChecks,
    /// Load-balancer IPs and cluster IPs that only some sources may use; at its end, packets of pods
    /// in the DMZ.
    Firewall,
    /// Ports of cluster IPs that no Service defines.
    ClusterIps,
    /// Cluster IPs that pods in the DMZ may use; at its end, the others.
    Dmz,
    ClosedToDmz,
}

impl Shared {
    pub(crate) const ALL: [Self; 9] = [
        Self::Services,
        Self::NodePorts,
        Self::Refused,
        Self::RefusedNodePorts,
        Self::HealthChecks,
        Self::Firewall,
        Self::ClusterIps,
        Self::Dmz,
        Self::ClosedToDmz,
    ];

    pub(crate) fn table(self) -> Table {
        match self {
            Self::Services | Self::NodePorts => Table::Nat,
            _ => Table::Filter,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Services => SERVICES,
            Self::NodePorts | Self::HealthChecks => "KUBE-NODEPORTS",
            Self::Refused => "KUBE-EXTERNAL-SERVICES",
            Self::RefusedNodePorts => "PORTICO-NODE-PORTS",
            Self::Firewall => "KUBE-PROXY-FIREWALL",
            Self::ClusterIps => "PORTICO-CLUSTER-IPS",
            Self::Dmz => "PORTICO-DMZ",
            Self::ClosedToDmz => "PORTICO-CLOSED-TO-DMZ",
        }
    }
}

/// The chains of one service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChain {
    /// Endpoints of the whole cluster.
    Cluster,
    /// Endpoints of this node.
    Local,
    /// What comes to an external address, before an endpoint is chosen.
    External,
    /// Sources that may use a load-balancer IP or a cluster IP.
    Firewall,
}

const PORT_PREFIXES: [&str; 5] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-EXT-",
    "KUBE-FW-",
    ENDPOINT_PREFIX,
];
const ENDPOINT_PREFIX: &str = "KUBE-SEP-";

/// Whether the chain belongs to one service port.
pub(crate) fn is_port_chain(name: &str) -> bool {
    PORT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Chains lead only to chains of greater depth, so they are removed in this order.
pub(crate) fn depth(name: &str) -> usize {
    let prefixes = ["KUBE-FW-", "KUBE-EXT-", "KUBE-SV", ENDPOINT_PREFIX];
    let of_port = prefixes.iter().position(|prefix| name.starts_with(prefix));
    let first = [
        SERVICES,
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-NODEPORTS",
        "KUBE-PROXY-FIREWALL",
    ];
    match (name, first.iter().position(|other| *other == name), of_port) {
        (_, Some(position), _) => position,
        (ipvs::DMZ, ..) => first.len(),
        (_, _, Some(position)) => first.len() + position,
        (MASQ_UNLESS_POD | "PORTICO-DMZ", ..) => first.len() + prefixes.len(),
        _ => first.len() + prefixes.len() + 1,
    }
}

/// Whether the chain is ours (or kube-proxy's, which is the same), whichever table it is in.
/// [`MARTIANS`] is not among them: it may be kubelet's.
pub(crate) fn is_ours(name: &str) -> bool {
    is_port_chain(name)
        || [MARK_MASQ, POSTROUTING, FORWARD, MASQ_UNLESS_POD, CANARY].contains(&name)
        || ipvs::ALL.contains(&name)
        || Shared::ALL.iter().any(|shared| shared.name() == name)
}

/// Whether only our own chains lead to this one of ours. A rule of the kernel's chains that does so
/// is another program's.
pub(crate) fn is_inner(name: &str) -> bool {
    is_port_chain(name) || [MARK_MASQ, MASQ_UNLESS_POD].contains(&name)
}

/// The name of a chain of a service port, as kube-proxy has it.
pub fn port_chain(key: &PortKey, chain: PortChain) -> String {
    let prefix = match chain {
        PortChain::Cluster => "KUBE-SVC-",
        PortChain::Local => "KUBE-SVL-",
        PortChain::External => "KUBE-EXT-",
        PortChain::Firewall => "KUBE-FW-",
    };
    format!(
        "{prefix}{}",
        short_hash(&format!("{key}{}", key.protocol.lower()))
    )
}

/// The name of the chain of an endpoint, as kube-proxy has it.
pub fn endpoint_chain(key: &PortKey, endpoint: &Endpoint) -> String {
    let hashed = format!("{key}{}{}", key.protocol.lower(), socket(endpoint));
    format!("{ENDPOINT_PREFIX}{}", short_hash(&hashed))
}

/// `10.1.2.3:80` or `[fd00::1]:80`.
pub(crate) fn socket(endpoint: &Endpoint) -> SocketAddr {
    SocketAddr::new(endpoint.address, endpoint.port)
}

/// Sixteen characters of base32 of SHA-256.
fn short_hash(text: &str) -> String {
    const ALPHABET: [char; 32] = [
        'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M', 'N', 'O', 'P', 'Q', 'R',
        'S', 'T', 'U', 'V', 'W', 'X', 'Y', 'Z', '2', '3', '4', '5', '6', '7',
    ];
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let bits = digest
        .as_ref()
        .iter()
        .take(10)
        .fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
    (0..16)
        .rev()
        .filter_map(|group| ALPHABET.get((bits >> (5 * group) & 31) as usize))
        .collect()
}

/// The helper programs of a family are called `iptables…` and `ip6tables…`.
pub(crate) fn program_stem(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portico_model::key::ObjectKey;
    use portico_model::table::Protocol;

    fn key(namespace: &str, name: &str, port: &str) -> PortKey {
        let service = ObjectKey::new(namespace, name);
        PortKey {
            service,
            port: port.into(),
            protocol: Protocol::Tcp,
            family: Family::V4,
        }
    }

    /// The names that kube-proxy gives.
    #[test]
    fn names_are_kube_proxys() {
        let web = key("ns1", "svc1", "p80");
        assert_eq!(
            port_chain(&web, PortChain::Cluster),
            "KUBE-SVC-XPGD46QRK7WJZT7O"
        );
        assert_eq!(
            port_chain(&key("ns2", "svc2", "p80"), PortChain::External),
            "KUBE-EXT-GNZBNJ2PO5MGZ6GT"
        );
        assert_eq!(
            port_chain(&key("ns5", "svc5", "p80"), PortChain::Firewall),
            "KUBE-FW-NUKIZ6OKUXPJNT4C"
        );
        assert_eq!(
            port_chain(&key("ns5", "svc5", "p80"), PortChain::Local),
            "KUBE-SVL-NUKIZ6OKUXPJNT4C"
        );
        let endpoint = Endpoint {
            address: "10.180.0.1".parse().unwrap(),
            port: 80,
            local: false,
        };
        assert_eq!(endpoint_chain(&web, &endpoint), "KUBE-SEP-SXIVWICOYRO3J4NJ");
        assert_eq!(
            socket(&Endpoint {
                address: "fd00::1".parse().unwrap(),
                port: 80,
                local: true
            })
            .to_string(),
            "[fd00::1]:80"
        );
    }

    #[test]
    fn foreign_chains_are_told_from_ours() {
        for ours in [
            "KUBE-SVC-XPGD46QRK7WJZT7O",
            "KUBE-SERVICES",
            "KUBE-PROXY-CANARY",
            "PORTICO-CLUSTER-IPS",
        ] {
            assert!(is_ours(ours), "{ours}");
        }
        for foreign in [
            "KUBE-KUBELET-CANARY",
            "KUBE-IPTABLES-HINT",
            "KUBE-FIREWALL",
            "KUBE-ROUTER-INPUT",
            "DOCKER",
            "INPUT",
        ] {
            assert!(!is_ours(foreign), "{foreign}");
        }
    }
}
