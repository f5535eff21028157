//! The sets that the fixed rules look into, and what is in them. Where kube-proxy has a set for the
//! same purpose, it has the same name and type here.

use super::server::At;
use ipnet::IpNet;
use portico_model::table::{Family, FrontendKind, Masquerade};
use std::fmt;
use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// Masqueraded unless the sender is a pod of this node: cluster IPs.
    ClusterIp,
    /// Masqueraded always: external IPs (and cluster IPs, with `--masquerade-all`).
    ExternalIp,
    /// Only the node's own packets are masqueraded: external IPs with a Local policy.
    ExternalIpLocal,
    LoadBalancer,
    LoadBalancerLocal,
    NodePort,
    NodePortLocal,
    /// Never masqueraded. Servers that are left for their connections are here as well, so that it
    /// is known whose they are.
    Plain,
    /// Only the sources in [`Set::Sources`] may use them; no source, where there is none.
    Guarded,
    Sources,
    /// Packets are dropped, except those of this node and its pods.
    DroppedOutside,
    /// This node and its pods use the server on the other address.
    Inside,
    /// An endpoint, and itself as the sender.
    LoopBack,
    /// Ports on which health checks of load balancers arrive.
    HealthCheck,
    /// Addresses of the link, and of a Service.
    Bound,
    /// Cluster IPs, where there may be pods in the DMZ, which do not reach them.
    ClusterAddresses,
    /// Addresses of the link that no Service has any more, kept for connections that live on.
    Leaving,
}

impl Set {
    pub const ALL: [Self; 17] = [
        Self::ClusterIp,
        Self::ExternalIp,
        Self::ExternalIpLocal,
        Self::LoadBalancer,
        Self::LoadBalancerLocal,
        Self::NodePort,
        Self::NodePortLocal,
        Self::Plain,
        Self::Guarded,
        Self::Sources,
        Self::DroppedOutside,
        Self::Inside,
        Self::LoopBack,
        Self::HealthCheck,
        Self::Bound,
        Self::ClusterAddresses,
        Self::Leaving,
    ];

    /// The sets of which every frontend is in exactly one.
    pub const FRONTENDS: [Self; 8] = [
        Self::ClusterIp,
        Self::ExternalIp,
        Self::ExternalIpLocal,
        Self::LoadBalancer,
        Self::LoadBalancerLocal,
        Self::NodePort,
        Self::NodePortLocal,
        Self::Plain,
    ];

    pub fn of_frontend(kind: FrontendKind, masquerade: Masquerade) -> Self {
        match (masquerade, kind) {
            (Masquerade::Never, _) => Self::Plain,
            (Masquerade::UnlessPod, _) => Self::ClusterIp,
            (Masquerade::Always, FrontendKind::LoadBalancerIp) => Self::LoadBalancer,
            (Masquerade::Always, FrontendKind::NodePort) => Self::NodePort,
            (Masquerade::Always, _) => Self::ExternalIp,
            (Masquerade::OnlyNode, FrontendKind::LoadBalancerIp) => Self::LoadBalancerLocal,
            (Masquerade::OnlyNode, FrontendKind::NodePort) => Self::NodePortLocal,
            (Masquerade::OnlyNode, _) => Self::ExternalIpLocal,
        }
    }

    /// Which sources are masqueraded, for a set of frontends.
    pub fn masquerade(self) -> Masquerade {
        match self {
            Self::ClusterIp => Masquerade::UnlessPod,
            Self::ExternalIp | Self::LoadBalancer | Self::NodePort => Masquerade::Always,
            Self::ExternalIpLocal | Self::LoadBalancerLocal | Self::NodePortLocal => {
                Masquerade::OnlyNode
            }
            _ => Masquerade::Never,
        }
    }

    /// The name of the set. It has at most 31 characters, which is why one of them is cut off.
    pub fn name(self, family: Family) -> &'static str {
        let (v4, v6) = match self {
            Self::ClusterIp => ("KUBE-CLUSTER-IP", "KUBE-6-CLUSTER-IP"),
            Self::ExternalIp => ("KUBE-EXTERNAL-IP", "KUBE-6-EXTERNAL-IP"),
            Self::ExternalIpLocal => ("KUBE-EXTERNAL-IP-LOCAL", "KUBE-6-EXTERNAL-IP-LOCAL"),
            Self::LoadBalancer => ("KUBE-LOAD-BALANCER", "KUBE-6-LOAD-BALANCER"),
            Self::LoadBalancerLocal => ("KUBE-LOAD-BALANCER-LOCAL", "KUBE-6-LOAD-BALANCER-LOCAL"),
            Self::NodePort => ("KUBE-NODE-PORT", "KUBE-6-NODE-PORT"),
            Self::NodePortLocal => ("KUBE-NODE-PORT-LOCAL", "KUBE-6-NODE-PORT-LOCAL"),
            Self::Plain => ("PORTICO-PLAIN", "PORTICO-6-PLAIN"),
            Self::Guarded => ("KUBE-LOAD-BALANCER-FW", "KUBE-6-LOAD-BALANCER-FW"),
            Self::Sources => (
                "KUBE-LOAD-BALANCER-SOURCE-CIDR",
                "KUBE-6-LOAD-BALANCER-SOURCE-CID",
            ),
            Self::DroppedOutside => ("PORTICO-DROPPED-OUTSIDE", "PORTICO-6-DROPPED-OUTSIDE"),
            Self::Inside => ("PORTICO-INSIDE", "PORTICO-6-INSIDE"),
            Self::LoopBack => ("KUBE-LOOP-BACK", "KUBE-6-LOOP-BACK"),
            Self::HealthCheck => (
                "KUBE-HEALTH-CHECK-NODE-PORT",
                "KUBE-6-HEALTH-CHECK-NODE-PORT",
            ),
            Self::Bound => ("KUBE-IPVS-IPS", "KUBE-6-IPVS-IPS"),
            Self::ClusterAddresses => ("PORTICO-CLUSTER-ADDRESSES", "PORTICO-6-CLUSTER-ADDRESSES"),
            Self::Leaving => ("PORTICO-LEAVING", "PORTICO-6-LEAVING"),
        };
        if family == Family::V4 { v4 } else { v6 }
    }

    pub fn kind(self) -> &'static str {
        match self {
            Self::Sources => "hash:ip,port,net",
            Self::LoopBack => "hash:ip,port,ip",
            Self::HealthCheck => "bitmap:port",
            Self::Bound | Self::ClusterAddresses | Self::Leaving => "hash:ip",
            _ => "hash:ip,port",
        }
    }

    pub fn named(name: &str) -> Option<(Self, Family)> {
        let all = Family::BOTH
            .into_iter()
            .flat_map(|family| Self::ALL.map(|set| (set, family)));
        all.into_iter()
            .find(|(set, family)| set.name(*family) == name)
    }
}

/// Sets of kube-proxy that have no counterpart here.
pub(crate) fn is_kube_proxys(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "LOAD-BALANCER-SOURCE-IP",
        "NODE-PORT-TCP",
        "NODE-PORT-LOCAL-TCP",
        "NODE-PORT-UDP",
        "NODE-PORT-LOCAL-UDP",
        "NODE-PORT-SCTP-HASH",
        "NODE-PORT-LOCAL-SCTP-HASH",
    ];
    let rest = name
        .strip_prefix("KUBE-6-")
        .or_else(|| name.strip_prefix("KUBE-"));
    rest.is_some_and(|rest| NAMES.contains(&rest))
}

/// What a set has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    At(At),
    /// A frontend, and a network that may use it.
    Source(At, IpNet),
    /// An endpoint, with its own address as the sender's.
    Loop(At),
    Port(Family, u16),
    Address(IpAddr),
}

impl Entry {
    pub fn family(&self) -> Family {
        match self {
            Self::At(at) | Self::Source(at, _) | Self::Loop(at) => at.family(),
            Self::Port(family, _) => *family,
            Self::Address(address) => Family::of(*address),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => write!(f, "{at}"),
            Self::Source(at, network) => write!(f, "{at} from {network}"),
            Self::Loop(at) => write!(f, "{at} from {}", at.address),
            Self::Port(_, port) => write!(f, "{port}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_are_found() {
        for set in Set::ALL {
            for family in Family::BOTH {
                let name = set.name(family);
                assert!(name.len() <= 31, "{name}");
                assert_eq!(Set::named(name), Some((set, family)));
                assert!(!is_kube_proxys(name));
            }
        }
        assert!(
            is_kube_proxys("KUBE-NODE-PORT-TCP")
                && is_kube_proxys("KUBE-6-NODE-PORT-LOCAL-SCTP-HASH")
        );
        assert_eq!(Set::named("KUBE-NODE-PORT-TCP"), None);
    }

    #[test]
    fn a_set_of_frontends_treats_them_as_they_want() {
        use FrontendKind::*;
        for kind in [ClusterIp, ExternalIp, LoadBalancerIp, NodePort] {
            for masquerade in [
                Masquerade::Always,
                Masquerade::UnlessPod,
                Masquerade::OnlyNode,
                Masquerade::Never,
            ] {
                let set = Set::of_frontend(kind, masquerade);
                assert_eq!(set.masquerade(), masquerade);
                assert!(Set::FRONTENDS.contains(&set));
            }
        }
    }
}
