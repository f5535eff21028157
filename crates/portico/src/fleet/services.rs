//! A Service: where it answers, who serves it, and on which nodes it is live.

use super::endpoints::service_of;
use super::{EndpointView, NodeView, version};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Serialize;
use std::collections::BTreeSet;

/// The conditions that Portico writes, in the order in which they come true.
pub const ASPECTS: [&str; 4] = ["Allocated", "Programmed", "Announced", "Reachable"];
const HEADLESS: &str = "None";

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    pub namespace: String,
    pub name: String,
    #[serde(rename = "type")]
    pub type_: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// Those for the outside first.
    pub addresses: Vec<String>,
    /// There is one from a load balancer among them.
    #[serde(skip)]
    pub balanced: bool,
    /// `80/tcp`, or `80:30080/tcp` with the node port.
    pub ports: Vec<String>,
    pub endpoints: Endpoints,
    /// On which nodes its present form is in force; `None` where no node reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
    pub conditions: Vec<Condition>,
    /// Which Pods serve it; empty where somebody else says who does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// It was made by `portico expose`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exposed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    pub ready: usize,
    pub total: usize,
    /// Those that fail their check, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Live {
    pub on: usize,
    pub of: usize,
    /// `node: why`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

impl ServiceView {
    pub fn of(service: &Service, slices: &[EndpointSlice], nodes: &[NodeView]) -> ServiceView {
        let (spec, metadata) = (service.spec.clone().unwrap_or_default(), &service.metadata);
        let (namespace, name) = (
            metadata.namespace.clone().unwrap_or_default(),
            metadata.name.clone().unwrap_or_default(),
        );
        let own = slices.iter().filter(|slice| {
            service_of(slice) == name
                && slice.metadata.namespace.as_deref().unwrap_or_default() == namespace
        });
        let selector = spec
            .selector
            .iter()
            .flatten()
            .map(|(key, value)| format!("{key}={value}"));
        let type_ = spec.type_.clone().unwrap_or_default();
        let forwarded = type_ != "ExternalName" && spec.cluster_ip.as_deref() != Some(HEADLESS);
        let key = format!("{namespace}/{name}");
        ServiceView {
            addresses: addresses(service, &spec),
            balanced: !ingress(service).is_empty(),
            ports: spec.ports.iter().flatten().map(port).collect(),
            endpoints: Endpoints::of(own),
            live: forwarded
                .then(|| Live::of(&key, version(metadata.resource_version.as_deref()), nodes))
                .flatten(),
            conditions: conditions(service),
            selector: selector.collect::<Vec<_>>().join(","),
            exposed: metadata
                .labels
                .iter()
                .flatten()
                .any(|(key, value)| (key.as_str(), value.as_str()) == crate::expose::made_here()),
            class: spec.load_balancer_class.clone().unwrap_or_default(),
            type_,
            namespace,
            name,
        }
    }

    pub fn is_balancer(&self) -> bool {
        self.type_ == "LoadBalancer"
    }

    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|held| held.type_ == type_)
    }

    /// What of its conditions is not good, in a few words; `ok` where all are.
    pub fn state(&self) -> String {
        let bad: Vec<&Condition> = self
            .conditions
            .iter()
            .filter(|held| held.status != "True")
            .collect();
        match (self.conditions.is_empty(), bad.as_slice()) {
            (true, _) => String::new(),
            (false, []) => "ok".to_owned(),
            (false, bad) => {
                let words = bad
                    .iter()
                    .map(|held| format!("{} {}: {}", held.type_, held.status, held.reason));
                words.collect::<Vec<_>>().join(", ")
            }
        }
    }

    pub fn live(&self) -> String {
        self.live
            .as_ref()
            .map_or(String::new(), |live| format!("{} of {}", live.on, live.of))
    }
}

impl Endpoints {
    /// An address that serves several ports counts once.
    fn of<'a>(slices: impl Iterator<Item = &'a EndpointSlice>) -> Endpoints {
        let all: Vec<EndpointView> = slices.flat_map(EndpointView::of).collect();
        let failing = all.iter().filter(|one| !one.trouble.is_empty());
        let failing: BTreeSet<String> = failing
            .map(|one| format!("{}: {}", one.address, one.trouble))
            .collect();
        let count = |ready: bool| {
            let host = |one: &EndpointView| {
                one.address
                    .rsplit_once(':')
                    .map(|(host, _)| host.to_owned())
            };
            all.iter()
                .filter(|one| one.ready || !ready)
                .filter_map(host)
                .collect::<BTreeSet<_>>()
                .len()
        };
        Endpoints {
            ready: count(true),
            total: count(false),
            failing: failing.into_iter().collect(),
        }
    }
}

impl Live {
    fn of(service: &str, version: u64, nodes: &[NodeView]) -> Option<Live> {
        let reports: Vec<_> = nodes
            .iter()
            .filter_map(|node| Some((node, node.report.as_ref()?)))
            .collect();
        if reports.is_empty() {
            return None;
        }
        let missing = reports.iter().filter_map(|(node, report)| {
            let why = report.misses(service, version)?;
            Some(format!("{}: {why}", node.name))
        });
        let missing: Vec<String> = missing.collect();
        Some(Live {
            on: reports.len() - missing.len(),
            of: reports.len(),
            missing,
        })
    }
}

fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    let balancer = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    balancer
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default()
}

fn addresses(service: &Service, spec: &ServiceSpec) -> Vec<String> {
    let given = ingress(service)
        .iter()
        .filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone()));
    let external = spec.external_ips.iter().flatten().cloned();
    let cluster = spec
        .cluster_ips
        .iter()
        .flatten()
        .filter(|address| *address != HEADLESS)
        .cloned();
    given
        .chain(external)
        .chain(cluster)
        .chain(spec.external_name.clone())
        .collect()
}

fn port(port: &ServicePort) -> String {
    let node_port = port
        .node_port
        .filter(|number| *number > 0)
        .map_or(String::new(), |number| format!(":{number}"));
    format!(
        "{}{node_port}/{}",
        port.port,
        port.protocol.as_deref().unwrap_or("TCP").to_lowercase()
    )
}

fn conditions(service: &Service) -> Vec<Condition> {
    let all = service
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let ours = ASPECTS
        .iter()
        .filter_map(|aspect| all.iter().find(|held| held.type_ == *aspect));
    ours.map(|held| Condition {
        type_: held.type_.clone(),
        status: held.status.clone(),
        reason: held.reason.clone(),
        message: held.message.clone(),
    })
    .collect()
}
