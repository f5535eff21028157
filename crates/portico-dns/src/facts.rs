//! What the zone needs to know of Services, EndpointSlices, Nodes and the reports of nodes; the
//! rest of them is dropped on arrival.

use crate::zone::Families;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use portico_model::key::ObjectKey;
use portico_model::objects::SERVICE_NAME;
use portico_model::partitions::{self, NODE_PORT_ADDRESSES, PORT_PARTITION};
use portico_model::pools::AddressRange;
use portico_model::report::{self, NodePortReach, NodeReport};
use portico_view::fitness::{self, Unfit};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// From inside the cluster.
    Cluster,
    /// On a port of nodes.
    Public,
    /// Through a load balancer.
    Balanced,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub reach: Reach,
    pub cluster_ips: Vec<IpAddr>,
    pub families: Families,
    pub ports: Vec<Port>,
    /// Nodes pass traffic from outside only to endpoints of their own.
    pub local: bool,
    /// Where a node says whether it has endpoints.
    pub health_port: Option<u16>,
    /// The port partition of its node ports.
    pub partition: Option<Arc<str>>,
    /// The addresses on which its node ports answer, where it selects some.
    pub within: Option<Vec<AddressRange>>,
    /// Addresses of the balancer.
    pub addresses: Vec<IpAddr>,
    /// Names of the balancer.
    pub hosts: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// Empty where it has none.
    pub name: String,
    /// As SRV wants it: `_tcp`.
    pub protocol: &'static str,
    pub port: u16,
    pub node_port: Option<u16>,
}

/// Ready endpoints of a Service by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub service: ObjectKey,
    pub kind: String,
    pub ready: BTreeMap<String, u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub addresses: Vec<(AddressKind, IpAddr)>,
    /// Why it is not to get traffic from outside.
    pub unfit: Option<Unfit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    External,
    Internal,
}

pub(crate) fn service(object: &core::Service) -> Option<(ObjectKey, Service)> {
    let name = named(&object.metadata)?;
    let spec = object.spec.clone().unwrap_or_default();
    let reach = match spec.type_.as_deref() {
        Some("NodePort") => Reach::Public,
        Some("LoadBalancer") => Reach::Balanced,
        _ => Reach::Cluster,
    };
    let ingress = object
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    let ingress = ingress
        .filter(|_| reach == Reach::Balanced)
        .into_iter()
        .flatten();
    let (addresses, hosts): (Vec<_>, Vec<_>) = ingress
        .map(|one| (one.ip.as_ref(), one.hostname.as_ref()))
        .unzip();
    let service = Service {
        reach,
        cluster_ips: addresses_of(spec.cluster_ips.iter().flatten()),
        families: families(spec.ip_families.as_deref().unwrap_or_default()),
        ports: spec.ports.iter().flatten().filter_map(port).collect(),
        local: spec.external_traffic_policy.as_deref() == Some("Local"),
        health_port: spec.health_check_node_port.and_then(port_number),
        partition: annotation(object, PORT_PARTITION).map(Arc::from),
        // What cannot be read selects no address, as on the nodes.
        within: annotation(object, NODE_PORT_ADDRESSES)
            .map(|text| partitions::ranges(text).unwrap_or_default()),
        addresses: addresses_of(addresses.into_iter().flatten()),
        hosts: hosts
            .into_iter()
            .flatten()
            .filter(|host| !host.is_empty())
            .cloned()
            .collect(),
    };
    Some((name, service))
}

fn annotation<'a>(object: &'a core::Service, key: &str) -> Option<&'a str> {
    let value = object.metadata.annotations.as_ref()?.get(key)?.trim();
    (!value.is_empty()).then_some(value)
}

fn port(port: &core::ServicePort) -> Option<Port> {
    let protocol = match port.protocol.as_deref() {
        None | Some("TCP") => "_tcp",
        Some("UDP") => "_udp",
        Some("SCTP") => "_sctp",
        Some(_) => return None,
    };
    Some(Port {
        name: port.name.clone().unwrap_or_default(),
        protocol,
        port: port_number(port.port)?,
        node_port: port.node_port.and_then(port_number),
    })
}

fn port_number(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|number| *number > 0)
}

/// A Service from before there were two families has that of its address, which no field names.
fn families(names: &[String]) -> Families {
    let has = |family: &str| names.iter().any(|name| name == family);
    if names.is_empty() {
        Families::BOTH
    } else {
        Families {
            v4: has("IPv4"),
            v6: has("IPv6"),
        }
    }
}

fn addresses_of<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for address in texts.filter_map(|text| text.parse().ok()) {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

pub(crate) fn slice(object: &discovery::EndpointSlice) -> Option<(ObjectKey, Slice)> {
    let name = named(&object.metadata)?;
    let owner = object.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    let mut ready = BTreeMap::new();
    for endpoint in object.endpoints.iter().flatten() {
        let is_ready = endpoint
            .conditions
            .as_ref()
            .and_then(|conditions| conditions.ready)
            .unwrap_or(true);
        if let Some(node) = endpoint.node_name.as_ref().filter(|_| is_ready) {
            let count: &mut u16 = ready.entry(node.clone()).or_default();
            *count = count.saturating_add(1);
        }
    }
    let service = ObjectKey {
        namespace: name.namespace.clone(),
        name: owner.as_str().into(),
    };
    Some((
        name,
        Slice {
            service,
            kind: object.address_type.clone(),
            ready,
        },
    ))
}

pub(crate) fn node(object: &core::Node) -> Option<(String, Node)> {
    let name = object.metadata.name.clone()?;
    let all = object
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten());
    let addresses = all.filter_map(|address| {
        let kind = match address.type_.as_str() {
            "ExternalIP" => AddressKind::External,
            "InternalIP" => AddressKind::Internal,
            _ => return None,
        };
        Some((kind, address.address.parse().ok()?))
    });
    Some((
        name,
        Node {
            addresses: addresses.collect(),
            unfit: fitness::unfit(object),
        },
    ))
}

/// What a node tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Where it says whether it is fit.
    pub healthz_port: Option<u16>,
    /// Where its node ports answer.
    pub reach: NodePortReach,
}

pub(crate) fn report(object: &Lease) -> Option<(String, Report)> {
    let node = report::node_of_lease(object.metadata.name.as_ref()?)?;
    let text = object
        .metadata
        .annotations
        .as_ref()?
        .get(report::ANNOTATION)?;
    let report: NodeReport = serde_json::from_str(text).ok()?;
    let report = Report {
        healthz_port: report.healthz_port,
        reach: NodePortReach::from(&report),
    };
    Some((node.to_owned(), report))
}

fn named(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Option<ObjectKey> {
    Some(ObjectKey::new(
        metadata.namespace.as_deref()?,
        metadata.name.as_deref()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_are_read_as_they_are_reached() {
        let object = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web",
                "annotations": {PORT_PARTITION: "left", NODE_PORT_ADDRESSES: "nonsense"}},
            "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000,
                "ipFamilies": ["IPv4"], "clusterIPs": ["10.96.0.1"],
                "ports": [{"name": "http", "port": 80, "nodePort": 30080}, {"protocol": "UDP", "port": 53},
                    {"protocol": "QUIC", "port": 443}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.1"}, {"hostname": "lb.example.net"}, {"ip": "?"}]}}
        }))
        .unwrap();
        let (name, service) = service(&object).unwrap();
        assert_eq!((&*name.namespace, &*name.name), ("shop", "web"));
        assert_eq!(service.partition.as_deref(), Some("left"));
        assert_eq!(
            service.within,
            Some(vec![]),
            "what cannot be read is no address"
        );
        let port = |name: &str, protocol, port, node_port| Port {
            name: name.to_owned(),
            protocol,
            port,
            node_port,
        };
        assert_eq!(
            service.ports,
            [
                port("http", "_tcp", 80, Some(30080)),
                port("", "_udp", 53, None)
            ]
        );
        assert_eq!(service.addresses, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(service.hosts, ["lb.example.net"]);
        assert_eq!(
            service.families,
            Families {
                v4: true,
                v6: false
            }
        );
        assert_eq!(
            (service.reach, service.local, service.health_port),
            (Reach::Balanced, true, Some(32000))
        );
    }

    #[test]
    fn only_ready_endpoints_count() {
        let object = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web-1", "labels": {SERVICE_NAME: "web"}},
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.0.0.1"], "nodeName": "n1"},
                {"addresses": ["10.0.0.2"], "nodeName": "n1", "conditions": {"ready": true}},
                {"addresses": ["10.0.0.3"], "nodeName": "n2", "conditions": {"ready": false, "serving": true}},
                {"addresses": ["10.0.0.4"]}]
        }))
        .unwrap();
        let (_, slice) = slice(&object).unwrap();
        assert_eq!(slice.ready, BTreeMap::from([("n1".to_owned(), 2)]));
        assert_eq!(&*slice.service.name, "web");
    }

    #[test]
    fn nodes_and_their_reports() {
        let object = serde_json::from_value(json!({
            "metadata": {"name": "n1", "labels": {fitness::EXCLUDE_LABEL: ""}},
            "status": {"addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "ExternalIP", "address": "192.0.2.7"}]}
        }))
        .unwrap();
        let (name, node) = node(&object).unwrap();
        assert_eq!(name, "n1");
        assert_eq!(node.addresses.len(), 2);
        assert_eq!(node.unfit, Some(Unfit::Excluded));
        let lease = |name: &str, text: &str| {
            serde_json::from_value::<Lease>(
                json!({"metadata": {"name": name, "annotations": {report::ANNOTATION: text}}}),
            )
            .unwrap()
        };
        assert_eq!(
            super::report(&lease("portico-node-n1", r#"{"healthzPort": 9999}"#)),
            Some((
                "n1".into(),
                Report {
                    healthz_port: Some(9999),
                    ..Report::default()
                }
            ))
        );
        let narrow = r#"{"nodePorts": ["10.0.0.0/8", "nonsense"]}"#;
        let (_, narrow) = super::report(&lease("portico-node-n1", narrow)).unwrap();
        let answers =
            |report: &Report, ip: &str| report.reach.answers_at(ip.parse().unwrap(), None);
        assert!(answers(&narrow, "10.0.0.1") && !answers(&narrow, "192.0.2.7"));
        assert!(answers(&Report::default(), "192.0.2.7"));
        assert_eq!(super::report(&lease("portico-node-n1", "?")), None);
        assert_eq!(super::report(&lease("leader", "{}")), None);
    }
}
