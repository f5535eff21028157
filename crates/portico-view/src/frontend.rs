//! The addresses on which a Service answers, and of what kind each is.

use crate::text::few;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use portico_model::partitions::{NODE_PORT_ADDRESSES, PORT_PARTITION};
use serde::Serialize;
use std::collections::BTreeMap;

const HEADLESS: &str = "None";
/// So many addresses of a port partition are named.
const FEW: usize = 3;

/// One address on which a Service answers, with its ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frontend {
    /// `load balancer`, `external IP`, `node port` or `cluster IP`.
    pub kind: &'static str,
    /// An address or a name.
    pub address: String,
    /// `80/tcp`; node ports where that is the kind.
    pub ports: Vec<String>,
}

impl Frontend {
    /// Those that clients outside of the cluster reach come first.
    /// `partitions` are the addresses of nodes in each port partition.
    pub fn all(service: &Service, partitions: &BTreeMap<String, Vec<String>>) -> Vec<Self> {
        let spec = service.spec.clone().unwrap_or_default();
        let ports: Vec<String> = spec.ports.iter().flatten().map(port).collect();
        let frontend = |kind, address: String| Self {
            kind,
            address,
            ports: ports.clone(),
        };
        let mut all = Vec::new();
        for ingress in ingress(service) {
            let kind = match ingress.ip_mode.as_deref() {
                Some("Proxy") => "load balancer (proxy)",
                _ => "load balancer",
            };
            let address = ingress.ip.clone().or_else(|| ingress.hostname.clone());
            all.extend(address.map(|address| frontend(kind, address)));
        }
        let external = spec.external_ips.iter().flatten();
        all.extend(external.map(|address| frontend("external IP", address.clone())));
        let node_ports: Vec<String> = spec.ports.iter().flatten().filter_map(node_port).collect();
        if !node_ports.is_empty() {
            all.push(Self {
                kind: "node port",
                address: node_port_addresses(service, partitions),
                ports: node_ports,
            });
        }
        all.extend(cluster_ips(&spec).map(|address| frontend("cluster IP", address.clone())));
        all
    }
}

/// The port partition that a Service with node ports names.
pub(crate) fn port_partition(service: &Service) -> Option<&str> {
    let ports = service
        .spec
        .iter()
        .flat_map(|spec| spec.ports.iter().flatten());
    annotation(service, PORT_PARTITION).filter(|_| ports.filter_map(node_port).next().is_some())
}

fn annotation<'a>(service: &'a Service, key: &str) -> Option<&'a str> {
    let annotations = service.metadata.annotations.as_ref()?;
    annotations
        .get(key)
        .map(|value| value.trim())
        .filter(|value| !value.is_empty())
}

fn node_port_addresses(service: &Service, partitions: &BTreeMap<String, Vec<String>>) -> String {
    let place = match port_partition(service) {
        None => "every node".to_owned(),
        Some(partition) => match partitions.get(partition) {
            Some(addresses) => {
                format!("{} (port partition {partition})", few(addresses, FEW))
            }
            None => format!("no node (port partition {partition})"),
        },
    };
    match annotation(service, NODE_PORT_ADDRESSES) {
        None => place,
        Some(ranges) => format!("{place}, of it {ranges}"),
    }
}

/// The addresses of a Service in a few words: those of the load balancer, external ones, those of
/// the cluster, or the name that it stands for.
pub(crate) fn addresses(service: &Service, spec: &ServiceSpec) -> Vec<String> {
    let given = ingress(service)
        .iter()
        .filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone()));
    given
        .chain(spec.external_ips.iter().flatten().cloned())
        .chain(cluster_ips(spec).cloned())
        .chain(spec.external_name.clone())
        .collect()
}

/// What the load balancer was given.
pub(crate) fn ingress(service: &Service) -> &[k8s_openapi::api::core::v1::LoadBalancerIngress] {
    let balancer = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    balancer
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default()
}

/// `80/tcp`, or `80:30080/tcp` with the node port.
pub(crate) fn port_with_node_port(port: &ServicePort) -> String {
    let node_port = port
        .node_port
        .filter(|number| *number > 0)
        .map_or(String::new(), |number| format!(":{number}"));
    format!("{}{node_port}/{}", port.port, protocol(port))
}

/// Whether nodes forward it: a Service without an address of its own is only a name.
pub(crate) fn is_forwarded(spec: &ServiceSpec) -> bool {
    spec.type_.as_deref() != Some("ExternalName") && spec.cluster_ip.as_deref() != Some(HEADLESS)
}

fn cluster_ips(spec: &ServiceSpec) -> impl Iterator<Item = &String> {
    let all = spec.cluster_ips.iter().flatten();
    all.filter(|address| *address != HEADLESS && !address.is_empty())
}

fn port(port: &ServicePort) -> String {
    format!("{}/{}", port.port, protocol(port))
}

fn node_port(port: &ServicePort) -> Option<String> {
    let number = port.node_port.filter(|number| *number > 0)?;
    Some(format!("{number}/{}", protocol(port)))
}

fn protocol(port: &ServicePort) -> String {
    port.protocol.as_deref().unwrap_or("TCP").to_lowercase()
}
