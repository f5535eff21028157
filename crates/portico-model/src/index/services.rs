//! What is kept of a Service.

use super::names::Names;
use super::parse::{Complaints, order_of_time};
use super::partitions::{Division, Selection};
use crate::edge;
use crate::objects::{
    IN_DMZ, NAMESPACE, Port, SERVICE_PROXY_NAME, Service, ServiceSpec, VISIBILITY,
};
use crate::table::{Family, FrontendKind, PerFamily, Protocol};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

/// A Service that this node forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceRecord {
    /// Orders like the time of creation.
    pub created: u64,
    pub cluster_ips: PerFamily<Option<IpAddr>>,
    /// It has no cluster IP, and is not meant to.
    pub external_only: bool,
    pub external_ips: Box<[IpAddr]>,
    /// Addresses of load balancers that deliver packets with the address still in them.
    pub load_balancer_ips: Box<[IpAddr]>,
    /// Addresses of load balancers that make connections of their own (`ipMode: Proxy`), so that
    /// packets to them must leave.
    pub proxied_ips: Box<[IpAddr]>,
    pub sources: Box<[IpNet]>,
    pub ports: Box<[PortRecord]>,
    pub affinity: Option<u32>,
    pub internal_local: bool,
    pub external_local: bool,
    /// 0 for none.
    pub health_check_port: u16,
    pub visibility: Visibility,
    /// Nodes may share the load balancer's addresses by the consistent edge.
    pub edge: bool,
    /// Where its node ports answer; `None` for wherever those of most Services do.
    pub selection: Option<Box<Selection>>,
}

/// Who in the cluster may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visibility {
    /// All but pods in the DMZ.
    Cluster,
    /// Those, and pods in the DMZ that are of its namespace.
    Dmz,
    /// Pods of its namespace that are not in the DMZ.
    Namespace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortRecord {
    pub name: Arc<str>,
    pub protocol: Protocol,
    pub port: u16,
    /// 0 for none.
    pub node_port: u16,
}

/// One address that a port of a Service answers on; `None` is a node port on all addresses that
/// have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub kind: FrontendKind,
    pub address: Option<IpAddr>,
    pub port: u16,
}

impl ServiceRecord {
    /// `None` if it is not for this proxy: headless, an alias, without any address, or another
    /// proxy's.
    pub(super) fn read(
        service: &Service,
        names: &mut Names,
        complaints: &mut Complaints<'_>,
    ) -> Option<Self> {
        let spec = &service.spec;
        let unproxied = match spec.cluster_ip.as_str() {
            // The API server gives every Service one; those of the node's operator may do without.
            "" => spec.external_ips.is_empty(),
            address => address == "None",
        };
        if unproxied
            || spec.type_ == "ExternalName"
            || service.metadata.labels.contains_key(SERVICE_PROXY_NAME)
        {
            return None;
        }
        let external_local = spec.external_traffic_policy == "Local" && may_be_external(spec);
        let needs_health_check = spec.type_ == "LoadBalancer" && external_local;
        if needs_health_check && spec.health_check_node_port == 0 {
            complaints
                .add("has a Local external traffic policy but no health-check node port".into());
        }
        let (load_balancer_ips, proxied_ips) = ingress(service, complaints);
        let record = Self {
            created: order_of_time(service.metadata.creation_timestamp.as_deref()),
            cluster_ips: cluster_ips(spec, complaints),
            external_only: spec.cluster_ip.is_empty(),
            external_ips: sorted(
                spec.external_ips
                    .iter()
                    .filter_map(|ip| complaints.address(ip, "external IP")),
            ),
            load_balancer_ips,
            proxied_ips,
            sources: source_ranges(spec, complaints),
            ports: ports(spec, names, complaints),
            affinity: affinity(spec),
            internal_local: spec.internal_traffic_policy == "Local",
            external_local,
            health_check_port: if needs_health_check {
                spec.health_check_node_port
            } else {
                0
            },
            visibility: visibility(service, complaints),
            selection: Selection::read(service, complaints),
            edge: edge::is_wanted(&service.metadata.annotations),
        };
        Some(match record.is_narrow() {
            true => record.without_outside(complaints),
            false => record,
        })
    }

    /// Not everything in the cluster may use it.
    pub(super) fn is_narrow(&self) -> bool {
        self.visibility != Visibility::Cluster
    }

    /// The API server lets a Service of a narrow visibility have a cluster IP alone, if it is
    /// Portico's; others do not look.
    fn without_outside(self, complaints: &mut Complaints<'_>) -> Self {
        let has_node_ports = self.ports.iter().any(|port| port.node_port != 0);
        let addresses = [&self.external_ips, &self.load_balancer_ips];
        if has_node_ports || addresses.iter().any(|addresses| !addresses.is_empty()) {
            complaints.add(format!(
                "has the annotation {VISIBILITY}, so its node ports and external addresses are not \
                 served; make it type ClusterIP, or take the annotation off"
            ));
        }
        let inside = |port: PortRecord| PortRecord {
            node_port: 0,
            ..port
        };
        Self {
            external_ips: Box::default(),
            load_balancer_ips: Box::default(),
            proxied_ips: Box::default(),
            ports: self.ports.into_iter().map(inside).collect(),
            external_local: false,
            health_check_port: 0,
            ..self
        }
    }

    /// As if `ipMode: Proxy` were not written: every address of a load balancer is served here.
    pub(super) fn serve_proxied_ips(&mut self) {
        let proxied = std::mem::take(&mut self.proxied_ips);
        let delivered = std::mem::take(&mut self.load_balancer_ips);
        self.load_balancer_ips = sorted(delivered.into_iter().chain(proxied));
    }

    /// Every address of one port in one family, each once, in a fixed order. Empty if the Service
    /// is not of that family.
    pub(super) fn addresses(
        &self,
        port: &PortRecord,
        family: Family,
        division: &Division,
    ) -> Vec<Address> {
        if !self.families().get(family) {
            return Vec::new();
        }
        let cluster_ip = self.cluster_ips.get(family).iter();
        let mut all: Vec<Address> = cluster_ip
            .map(|&ip| Address {
                kind: FrontendKind::ClusterIp,
                address: Some(ip),
                port: port.port,
            })
            .collect();
        // An address that is both is guarded by the source ranges, so the load balancer's comes
        // first.
        let load_balancer = self
            .load_balancer_ips
            .iter()
            .map(|&ip| (FrontendKind::LoadBalancerIp, ip));
        let external = self
            .external_ips
            .iter()
            .map(|&ip| (FrontendKind::ExternalIp, ip));
        for (kind, address) in load_balancer.chain(external) {
            let known = all.iter().any(|known| known.address == Some(address));
            if Family::of(address) == family && !known {
                all.push(Address {
                    kind,
                    address: Some(address),
                    port: port.port,
                });
            }
        }
        if port.node_port != 0 {
            let node_port = |address| Address {
                kind: FrontendKind::NodePort,
                address,
                port: port.node_port,
            };
            match &self.selection {
                None => all.push(node_port(None)),
                Some(selection) => {
                    let selected = division.addresses(selection, family).unwrap_or_default();
                    all.extend(selected.into_iter().map(|address| node_port(Some(address))));
                }
            }
        }
        all.sort_by_key(|a| (a.kind, a.address));
        all
    }

    /// The families of its cluster IPs; where it has none, those of its external IPs.
    pub(super) fn families(&self) -> PerFamily<bool> {
        let has = |family| match self.cluster_ips {
            PerFamily { v4: None, v6: None } if self.external_only => {
                self.external_ips.iter().any(|ip| Family::of(*ip) == family)
            }
            cluster_ips => cluster_ips.get(family).is_some(),
        };
        PerFamily {
            v4: has(Family::V4),
            v6: has(Family::V6),
        }
    }
}

/// What cannot be read lets in the fewest.
fn visibility(service: &Service, complaints: &mut Complaints<'_>) -> Visibility {
    match service
        .metadata
        .annotations
        .get(VISIBILITY)
        .map(String::as_str)
    {
        None => Visibility::Cluster,
        Some(NAMESPACE) => Visibility::Namespace,
        Some(IN_DMZ) => Visibility::Dmz,
        Some(other) => {
            complaints.add(format!(
                "annotation {VISIBILITY} is {other:?}, which is neither {NAMESPACE} nor {IN_DMZ}; \
                 only pods of its own namespace may use it"
            ));
            Visibility::Namespace
        }
    }
}

/// Types of Services whose external traffic policy means something.
fn may_be_external(spec: &ServiceSpec) -> bool {
    match spec.type_.as_str() {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" | "" => !spec.external_ips.is_empty(),
        _ => false,
    }
}

fn cluster_ips(spec: &ServiceSpec, complaints: &mut Complaints<'_>) -> PerFamily<Option<IpAddr>> {
    let mut found = PerFamily::default();
    if spec.ip_families.is_empty() {
        if let Some(address) = complaints.address(&spec.cluster_ip, "cluster IP") {
            *found.get_mut(Family::of(address)) = Some(address);
        }
        return found;
    }
    for (family, address) in spec.ip_families.iter().zip(&spec.cluster_ips) {
        let family = if family == "IPv6" {
            Family::V6
        } else {
            Family::V4
        };
        if found.get(family).is_none() {
            let of_family = |address| (Family::of(address) == family).then_some(address);
            *found.get_mut(family) = complaints.address_where(address, of_family, "cluster IP");
        }
    }
    found
}

fn ingress(service: &Service, complaints: &mut Complaints<'_>) -> (Box<[IpAddr]>, Box<[IpAddr]>) {
    let (mut delivered, mut proxied) = (Vec::new(), Vec::new());
    for ingress in &service.status.load_balancer.ingress {
        let Some(address) = complaints.address(&ingress.ip, "load balancer IP") else {
            continue;
        };
        match ingress.ip_mode.as_deref() {
            None | Some("VIP") => delivered.push(address),
            Some(_) => proxied.push(address),
        }
    }
    (sorted(delivered), sorted(proxied))
}

/// Per family, a range of all addresses is as good as none.
fn source_ranges(spec: &ServiceSpec, complaints: &mut Complaints<'_>) -> Box<[IpNet]> {
    let ranges = spec.load_balancer_source_ranges.iter();
    let mut ranges: Vec<IpNet> = ranges
        .filter_map(|range| complaints.network(range, "source range"))
        .collect();
    for family in Family::BOTH {
        let of_family = |range: &IpNet| Family::of(range.addr()) == family;
        if ranges
            .iter()
            .any(|range| of_family(range) && range.prefix_len() == 0)
        {
            ranges.retain(|range| !of_family(range));
        }
    }
    ranges.into()
}

fn ports(
    spec: &ServiceSpec,
    names: &mut Names,
    complaints: &mut Complaints<'_>,
) -> Box<[PortRecord]> {
    let mut ports: Vec<PortRecord> = Vec::with_capacity(spec.ports.len());
    for port in &spec.ports {
        let Some(read) = port_record(port, names, complaints) else {
            continue;
        };
        // The API allows no two ports of the same name; if there are, the last one counts.
        ports.retain(|known| (&known.name, known.protocol) != (&read.name, read.protocol));
        ports.push(read);
    }
    ports.into()
}

fn port_record(
    port: &Port,
    names: &mut Names,
    complaints: &mut Complaints<'_>,
) -> Option<PortRecord> {
    let protocol = complaints.protocol(&port.protocol)?;
    if port.port == 0 {
        complaints.add(format!(
            "port {:?} has no valid number; it is left out",
            port.name
        ));
        return None;
    }
    Some(PortRecord {
        name: names.get(&port.name),
        protocol,
        port: port.port,
        node_port: port.node_port,
    })
}

fn affinity(spec: &ServiceSpec) -> Option<u32> {
    let configured = || {
        spec.session_affinity_config
            .as_ref()?
            .client_ip
            .as_ref()?
            .timeout_seconds
    };
    let seconds = || {
        configured()
            .filter(|&seconds| seconds > 0)
            .unwrap_or(DEFAULT_AFFINITY_SECONDS)
    };
    (spec.session_affinity == "ClientIP").then(seconds)
}

fn sorted(addresses: impl IntoIterator<Item = IpAddr>) -> Box<[IpAddr]> {
    let mut addresses: Vec<IpAddr> = addresses.into_iter().collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.into()
}
