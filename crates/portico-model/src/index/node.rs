//! What is known of the node itself, and the rules that follow from it.

use super::parse::{Complaints, host, parse_address};
use super::partitions::{Division, Overlap, Partition, Partitions};
use super::{DetectLocal, NodePortSetting, Settings};
use crate::edge::Surroundings;
use crate::objects::{Node, ServiceCidr, TO_BE_DELETED_TAINT, ZONE};
use crate::partitions::PortPartition;
use crate::table::{Family, LocalPods, NodePortAddresses, NodeRules, PerFamily};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

pub(super) struct NodeState {
    settings: Settings,
    seen: bool,
    leaving: bool,
    zone: String,
    /// The first address of each family in the Node object.
    primary: PerFamily<Option<IpAddr>>,
    /// Every address of the Node object.
    named: Vec<IpAddr>,
    pod_cidrs: Vec<IpNet>,
    service_cidrs: BTreeMap<String, Vec<IpNet>>,
    labels: BTreeMap<String, String>,
    partitions: Partitions,
    /// Of the node's interfaces, sorted.
    addresses: Vec<IpAddr>,
    /// `None` where there is no edge.
    surroundings: Option<Arc<Surroundings>>,
    /// Something came in since somebody last asked.
    changed: bool,
}

/// What every Service depends on: a change of it rebuilds all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Here {
    pub name: Arc<str>,
    pub zone: String,
    /// Loopback where it is not known.
    pub address: PerFamily<IpAddr>,
    /// The same, as far as it is known.
    pub own: PerFamily<Option<IpAddr>>,
    pub pods_known: PerFamily<bool>,
    pub masquerade_all: bool,
    pub surroundings: Option<Arc<Surroundings>>,
}

impl NodeState {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            seen: false,
            leaving: false,
            zone: String::new(),
            primary: PerFamily::default(),
            named: Vec::new(),
            pod_cidrs: Vec::new(),
            service_cidrs: BTreeMap::new(),
            labels: BTreeMap::new(),
            partitions: Partitions::default(),
            addresses: Vec::new(),
            surroundings: None,
            changed: false,
        }
    }

    /// Whether an input has changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        mem::take(&mut self.changed)
    }

    pub(super) fn name(&self) -> &str {
        &self.settings.node_name
    }

    pub(super) fn serves_external_ips(&self) -> bool {
        self.settings.external_ips
    }

    pub(super) fn heeds_ip_mode(&self) -> bool {
        self.settings.load_balancer_ip_mode
    }

    pub(super) fn apply(&mut self, node: &Node, complaints: &mut Complaints<'_>) {
        (self.seen, self.changed) = (true, true);
        self.leaving = node.metadata.deletion_timestamp.is_some()
            || node
                .spec
                .taints
                .iter()
                .any(|taint| taint.key == TO_BE_DELETED_TAINT);
        self.zone = node.metadata.labels.get(ZONE).cloned().unwrap_or_default();
        self.labels.clone_from(&node.metadata.labels);
        self.named = named(node);
        self.primary = primary(&self.named);
        let cidrs = match node.spec.pod_cidrs.is_empty() {
            true => std::slice::from_ref(&node.spec.pod_cidr),
            false => &node.spec.pod_cidrs,
        };
        self.pod_cidrs = cidrs
            .iter()
            .filter_map(|cidr| complaints.network(cidr, "pod CIDR"))
            .collect();
    }

    pub(super) fn apply_service_cidr(
        &mut self,
        cidr: &ServiceCidr,
        complaints: &mut Complaints<'_>,
    ) {
        let networks = cidr
            .spec
            .cidrs
            .iter()
            .filter_map(|cidr| complaints.network(cidr, "CIDR"))
            .collect::<Vec<IpNet>>();
        for network in networks.iter().filter(|one| self.has_own_address(one)) {
            complaints.add(format!(
                "CIDR {network} has addresses of the node itself in it; cluster IPs in it that no \
                 Service has are not refused"
            ));
        }
        self.service_cidrs
            .insert(cidr.metadata.name.clone(), networks);
        self.changed = true;
    }

    pub(super) fn delete_service_cidr(&mut self, name: &str) {
        self.service_cidrs.remove(name);
        self.changed = true;
    }

    pub(super) fn apply_partition(
        &mut self,
        partition: &PortPartition,
        complaints: &mut Complaints<'_>,
    ) {
        let read = Partition::read(partition, complaints);
        self.partitions.insert(&partition.metadata.name, read);
        self.changed = true;
    }

    pub(super) fn delete_partition(&mut self, name: &str) {
        self.partitions.remove(name);
        self.changed = true;
    }

    pub(super) fn partition_names(&self) -> Vec<Arc<str>> {
        self.partitions.names().cloned().collect()
    }

    /// Who has which of the addresses on which node ports answer.
    pub(super) fn divide(&self) -> (Division, Vec<Overlap>) {
        let all: Vec<IpAddr> = Family::BOTH
            .into_iter()
            .flat_map(|family| self.each_of(self.allowed(family), family))
            .collect();
        self.partitions.divide(&all, &self.labels)
    }

    /// The addresses of each partition that has any here, as others can know them, in the order in
    /// which the first that has an address counts.
    pub(super) fn partition_networks(&self, division: &Division) -> Vec<(Arc<str>, Vec<IpNet>)> {
        let networks = |(name, partition): (&Arc<str>, &Partition)| {
            let networks: Vec<IpNet> = match partition.has_all_addresses() {
                // One that is translated on its way to the node is in it as well.
                true => Family::BOTH
                    .into_iter()
                    .flat_map(|family| self.node_port_networks(family))
                    .collect(),
                false => division
                    .partitions
                    .get(name)?
                    .iter()
                    .copied()
                    .map(host)
                    .collect(),
            };
            (!networks.is_empty()).then(|| (name.clone(), networks))
        };
        let of_node = self.partitions.of_node(&self.labels);
        of_node.into_iter().filter_map(networks).collect()
    }

    pub(super) fn set_addresses(&mut self, mut addresses: Vec<IpAddr>) {
        addresses.sort_unstable();
        addresses.dedup();
        self.addresses = addresses;
        self.changed = true;
    }

    pub(super) fn set_surroundings(&mut self, surroundings: Option<Surroundings>) {
        if self.surroundings.as_deref() != surroundings.as_ref() {
            self.surroundings = surroundings.map(Arc::new);
            self.changed = true;
        }
    }

    /// Packets of pods of this node are not for the edge, so they have to be told from others.
    fn has_edge(&self, family: Family) -> bool {
        self.surroundings.is_some() && self.local_pods(family) != LocalPods::Unknown
    }

    /// A node that has never been seen is not fit.
    pub(super) fn eligible(&self) -> bool {
        self.seen && !self.leaving
    }

    pub(super) fn here(&self) -> Here {
        let known = |family| self.local_pods(family) != LocalPods::Unknown;
        Here {
            name: Arc::clone(&self.settings.node_name),
            zone: self.zone.clone(),
            address: PerFamily {
                v4: self
                    .primary(Family::V4)
                    .unwrap_or(Ipv4Addr::LOCALHOST.into()),
                v6: self
                    .primary(Family::V6)
                    .unwrap_or(Ipv6Addr::LOCALHOST.into()),
            },
            own: PerFamily {
                v4: self.primary(Family::V4),
                v6: self.primary(Family::V6),
            },
            pods_known: PerFamily {
                v4: known(Family::V4),
                v6: known(Family::V6),
            },
            masquerade_all: self.settings.masquerade_all,
            surroundings: self.surroundings.clone(),
        }
    }

    pub(super) fn rules(&self, division: &Division) -> NodeRules {
        let service_cidrs = self.service_cidrs.values().flatten().copied();
        // Packets to unused addresses of these networks are dropped, so one that has the node's own
        // address would cut the node off.
        let service_cidrs: Vec<IpNet> = service_cidrs
            .filter(|network| !self.has_own_address(network))
            .collect();
        NodeRules {
            local_pods: PerFamily {
                v4: self.local_pods(Family::V4),
                v6: self.local_pods(Family::V6),
            },
            node_ports: PerFamily {
                v4: self.node_ports(Family::V4, division),
                v6: self.node_ports(Family::V6, division),
            },
            route_localnet: self.settings.node_ports.include_loopback(),
            service_cidrs: IpNet::aggregate(&service_cidrs),
            dmz: PerFamily::default(),
            masquerade_mark: self.settings.masquerade_mark,
            edge: PerFamily {
                v4: self.has_edge(Family::V4),
                v6: self.has_edge(Family::V6),
            },
        }
    }

    /// Whether a network has loopback addresses, or the primary address of the node, in it.
    fn has_own_address(&self, network: &IpNet) -> bool {
        let family = Family::of(network.addr());
        let loopback: IpAddr = match family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        network.addr().is_loopback()
            || network.contains(&loopback)
            || self
                .primary(family)
                .is_some_and(|own| network.contains(&own))
    }

    fn primary(&self, family: Family) -> Option<IpAddr> {
        self.settings
            .own_address
            .filter(|address| Family::of(*address) == family)
            .or(*self.primary.get(family))
    }

    fn local_pods(&self, family: Family) -> LocalPods {
        match &self.settings.detect_local {
            DetectLocal::ClusterCidr(networks) => by_source(networks, family),
            DetectLocal::NodeCidr => by_source(&self.pod_cidrs, family),
            DetectLocal::Bridge(name) | DetectLocal::InterfacePrefix(name) if name.is_empty() => {
                LocalPods::Unknown
            }
            DetectLocal::Bridge(name) => LocalPods::Interface(name.clone()),
            DetectLocal::InterfacePrefix(prefix) => LocalPods::InterfacePrefix(prefix.clone()),
        }
    }

    /// Those that no partition has.
    fn node_ports(&self, family: Family, division: &Division) -> NodePortAddresses {
        let allowed = self.allowed(family);
        let of_family = |address: &&IpAddr| Family::of(**address) == family;
        let mut divided = division.partitions.values().flat_map(|part| part.iter());
        if !divided.any(|address| of_family(&address)) {
            return allowed;
        }
        NodePortAddresses::Listed(division.shared.iter().filter(of_family).copied().collect())
    }

    /// Each address of this node that is meant.
    fn each_of(&self, addresses: NodePortAddresses, family: Family) -> Vec<IpAddr> {
        let is_local = |address: &&IpAddr, loopback: bool| {
            Family::of(**address) == family && (loopback || !address.is_loopback())
        };
        match addresses {
            NodePortAddresses::Listed(listed) => listed,
            NodePortAddresses::AllLocal { loopback } => {
                let local = self.addresses.iter();
                local
                    .filter(|address| is_local(address, loopback))
                    .copied()
                    .collect()
            }
        }
    }

    /// What the operator lets node ports answer on.
    fn allowed(&self, family: Family) -> NodePortAddresses {
        let loopback = family == Family::V4 && self.settings.node_ports.include_loopback();
        self.in_networks(&self.wanted_networks(family), loopback)
    }

    /// None means all.
    fn wanted_networks(&self, family: Family) -> Vec<IpNet> {
        let hosts = |addresses: &mut dyn Iterator<Item = IpAddr>| -> Vec<IpNet> {
            let own = addresses.filter(|address| !address.is_loopback());
            own.map(host).collect()
        };
        let of_family = |address: &IpAddr| Family::of(*address) == family;
        match &self.settings.node_ports {
            NodePortSetting::Networks { networks, .. } => self::of_family(networks, family),
            NodePortSetting::Primary => hosts(&mut self.primary(family).into_iter()),
            NodePortSetting::Node => {
                let own = self.settings.own_address.into_iter();
                hosts(&mut own.chain(self.named.iter().copied()).filter(of_family))
            }
        }
    }

    pub(super) fn node_port_networks(&self, family: Family) -> Vec<IpNet> {
        let networks = self.wanted_networks(family);
        match networks.is_empty() || networks.iter().any(|network| network.prefix_len() == 0) {
            true => vec![everything(family)],
            false => networks,
        }
    }

    /// No network at all means everywhere.
    fn in_networks(&self, networks: &[IpNet], loopback: bool) -> NodePortAddresses {
        if networks.is_empty() || networks.iter().any(|net| net.prefix_len() == 0) {
            return NodePortAddresses::AllLocal { loopback };
        }
        let wanted = |address: &&IpAddr| {
            contains(networks, **address) && (loopback || !address.is_loopback())
        };
        NodePortAddresses::Listed(self.addresses.iter().filter(wanted).copied().collect())
    }
}

/// Whether 127.0.0.1 is in one of the networks, or none of them is of IPv4, which means everywhere.
pub(super) fn include_loopback(networks: &[IpNet]) -> bool {
    let networks = of_family(networks, Family::V4);
    let first = IpAddr::from([127, 0, 0, 0]);
    networks.is_empty()
        || networks
            .iter()
            .any(|network| network.addr().is_loopback() || network.contains(&first))
}

pub(super) fn contains(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

pub(super) fn of_family(networks: &[IpNet], family: Family) -> Vec<IpNet> {
    networks
        .iter()
        .filter(|network| Family::of(network.addr()) == family)
        .copied()
        .collect()
}

fn by_source(networks: &[IpNet], family: Family) -> LocalPods {
    match IpNet::aggregate(&of_family(networks, family)) {
        networks if networks.is_empty() => LocalPods::Unknown,
        networks => LocalPods::Sources(networks),
    }
}

fn everything(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::default()),
        Family::V6 => IpNet::V6(Ipv6Net::default()),
    }
}

/// Internal addresses before external ones. Names and what does not parse are passed over.
fn named(node: &Node) -> Vec<IpAddr> {
    let of_type = |type_: &'static str| {
        let all = node.status.addresses.iter();
        all.filter(move |address| address.type_ == type_)
            .filter_map(|address| parse_address(&address.address))
    };
    of_type("InternalIP").chain(of_type("ExternalIP")).collect()
}

fn primary(named: &[IpAddr]) -> PerFamily<Option<IpAddr>> {
    let mut found: PerFamily<Option<IpAddr>> = PerFamily::default();
    for address in named {
        found.get_mut(Family::of(*address)).get_or_insert(*address);
    }
    found
}
