//! How a Service is shown to people: the cells of a table, and warnings.

use super::spelling::{VISIBILITY, visibility_of};
use super::types::*;
use crate::field::Path;
use crate::kinds::Column;
use crate::kinds::checks::address_warning;
use crate::kinds::table::{AGE, NAME, column, since, wide};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PORTS: Column = column("Port(s)", "The ports, with the node port after a colon.");
const SELECTOR: Column = wide("Selector", "The labels of the pods that serve.");

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    column("Type", "How the Service is exposed."),
    column("Cluster-IP", "The virtual address inside the cluster."),
    column(
        "External-IP",
        "The addresses and names outside the cluster.",
    ),
    PORTS,
    AGE,
    SELECTOR,
];

pub(super) const PORTICO_COLUMNS: &[Column] = &[
    NAME,
    column("Visibility", "Who can reach the Service."),
    column("Portal-IP", "The virtual address inside the cluster."),
    column("Public-IPs", "The addresses and names outside the cluster."),
    PORTS,
    AGE,
    SELECTOR,
];

pub(super) fn row(service: &Service, now: i64) -> Vec<Value> {
    let spec = &service.spec;
    vec![
        json!(service.name()),
        json!(spec.type_),
        json!(spec.cluster_ips.first().map_or("<none>", String::as_str)),
        json!(external_ip(service)),
        json!(ports(spec)),
        json!(since(
            service
                .metadata
                .get("creationTimestamp")
                .unwrap_or(&Value::Null),
            now
        )),
        json!(selector(spec)),
    ]
}

pub(super) fn portico_row(service: &Service, now: i64) -> Vec<Value> {
    let mut cells = row(service, now);
    let word =
        visibility_of(&service.spec.type_, service.annotation(VISIBILITY)).unwrap_or("<none>");
    if let Some(cell) = cells.get_mut(1) {
        *cell = json!(word);
    }
    cells
}

fn external_ip(service: &Service) -> String {
    let spec = &service.spec;
    let points = if spec.is_load_balancer() {
        ingress(&service.status)
    } else {
        BTreeSet::new()
    };
    let all: Vec<&str> = points
        .into_iter()
        .chain(spec.external_ips.iter().map(String::as_str))
        .collect();
    match spec.type_.as_str() {
        EXTERNAL_NAME => spec.external_name.clone(),
        _ if !all.is_empty() => all.join(","),
        LOAD_BALANCER => "<pending>".to_owned(),
        _ => "<none>".to_owned(),
    }
}

fn ingress(status: &ServiceStatus) -> BTreeSet<&str> {
    let points = status.load_balancer.ingress.iter();
    points
        .filter_map(|point| {
            [point.ip.as_str(), &point.hostname]
                .into_iter()
                .find(|text| !text.is_empty())
        })
        .collect()
}

fn ports(spec: &ServiceSpec) -> String {
    let texts = spec.ports.iter().map(|port| match port.node_port {
        ..=0 => format!("{}/{}", port.port, port.protocol),
        node_port => format!("{}:{node_port}/{}", port.port, port.protocol),
    });
    or_none(texts.collect())
}

fn selector(spec: &ServiceSpec) -> String {
    or_none(
        spec.selector
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect(),
    )
}

fn or_none(texts: Vec<String>) -> String {
    if texts.is_empty() {
        "<none>".to_owned()
    } else {
        texts.join(",")
    }
}

/// Warnings for what is allowed and yet should not be written.
pub(super) fn warnings(new: &Service, old: Option<&Service>) -> Vec<String> {
    // Only the status subresource changes the status, and nothing else there deserves a warning.
    if old.is_some_and(|old| old.status != new.status && old.spec == new.spec) {
        let path = Path::new("status").child("loadBalancer").child("ingress");
        let points = new.status.load_balancer.ingress.iter().enumerate();
        return points
            .filter_map(|(index, point)| address_warning(&point.ip, &path.index(index)))
            .collect();
    }
    let spec = &new.spec;
    let mut warnings = Vec::new();
    if new
        .annotation("service.kubernetes.io/topology-aware-hints")
        .is_some()
    {
        warnings.push(
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use \
             service.kubernetes.io/topology-mode instead"
                .to_owned(),
        );
    }
    warnings.extend(addresses("clusterIPs", &spec.cluster_ips));
    warnings.extend(ignored(spec));
    warnings.extend(addresses("externalIPs", &spec.external_ips));
    let external = !spec.external_ips.is_empty();
    if external && spec.cluster_ip != NONE && !spec.is_external_name() {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .to_owned(),
        );
    }
    warnings.extend(address_warning(
        &spec.load_balancer_ip,
        &Path::new("spec").child("loadBalancerIP"),
    ));
    if spec.is_external_name() && external {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !spec.is_external_name() && !spec.external_name.is_empty() {
        warnings
            .push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.traffic_distribution.as_deref() == Some("PreferClose") {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\""
                .to_owned(),
        );
    }
    warnings
}

/// A headless Service has no address on which these could work.
fn ignored(spec: &ServiceSpec) -> impl Iterator<Item = String> {
    let headless = spec.type_ == CLUSTER_IP && spec.cluster_ip == NONE;
    [
        ("loadBalancerIP", !spec.load_balancer_ip.is_empty()),
        ("externalIPs", !spec.external_ips.is_empty()),
        ("SessionAffinity", spec.session_affinity != NONE),
    ]
    .into_iter()
    .filter(move |(_, is_set)| headless && *is_set)
    .map(|(field, _)| format!("spec.{field} is ignored for headless services"))
}

fn addresses(field: &str, texts: &[String]) -> impl Iterator<Item = String> {
    let path = Path::new("spec").child(field);
    texts
        .iter()
        .enumerate()
        .filter_map(move |(index, text)| address_warning(text, &path.index(index)))
}
