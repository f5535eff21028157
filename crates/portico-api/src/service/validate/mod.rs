//! What a Service must be like. Metadata is checked elsewhere, for all kinds alike.

mod addresses;
mod load_balancer;
mod ports;

pub(crate) use addresses::cluster_ips;
pub(crate) use load_balancer::status;

use super::spelling::{NARROW, VISIBILITY};
use super::types::*;
use crate::field::{Error, Errors, Path};
use crate::kinds::checks::{given_word, invalid_all, word};
use crate::kinds::ranges;
use crate::names;

const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const MOST_AFFINITY_SECONDS: i32 = 86400;

fn spec(field: &str) -> Path {
    Path::new("spec").child(field)
}

pub(crate) fn create(service: &Service) -> Errors {
    whole(service, None)
}

pub(crate) fn update(new: &Service, old: &Service) -> Errors {
    let mut errors = addresses::changes(&new.spec, &old.spec);
    errors.extend(load_balancer::class_change(&new.spec, &old.spec));
    // In another port space all ports are others, and a load balancer is told of them.
    if new.port_partition() == old.port_partition() {
        errors.extend(load_balancer::health_check_change(&new.spec, &old.spec));
    }
    errors.extend(whole(new, Some(old)));
    errors
}

fn whole(service: &Service, old: Option<&Service>) -> Errors {
    let spec = &service.spec;
    let old_spec = old.map(|old| &old.spec);
    let mut errors: Errors = topology(service).into_iter().collect();
    errors.extend(visibility(service));
    errors.extend(node_port_addresses(service, old));
    errors.extend(type_needs(spec));
    errors.extend(ports::ports(spec));
    errors.extend(selector(spec));
    errors.extend(affinity(spec));
    errors.extend(cluster_ips(spec, old_spec));
    errors.extend(addresses::external_ips(spec, old_spec));
    errors.extend(service_type(spec));
    errors.extend(ports::node_ports(spec));
    errors.extend(load_balancer::source_ranges(service, old));
    errors.extend(load_balancer::switches(spec));
    errors.extend(load_balancer::class(spec));
    errors.extend(traffic(spec));
    errors
}

fn topology(service: &Service) -> Option<Error> {
    let (mode, hints) = (
        service.annotation(TOPOLOGY_MODE)?,
        service.annotation(TOPOLOGY_HINTS)?,
    );
    let path = Path::new("metadata")
        .child("annotations")
        .key(TOPOLOGY_MODE);
    (mode != hints).then(|| {
        Error::invalid(
            &path,
            mode,
            format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified"),
        )
    })
}

/// Nodes keep others away from the cluster IP, so there must be one, and no other way in.
fn visibility(service: &Service) -> Option<Error> {
    let word = service.annotation(VISIBILITY)?;
    let path = Path::new("metadata").child("annotations").key(VISIBILITY);
    if !NARROW.contains(&word) {
        return Some(Error::not_supported(&path, word, &NARROW));
    }
    let spec = &service.spec;
    let detail = if spec.type_ != CLUSTER_IP {
        format!(
            "needs type ClusterIP (visibility cluster), not {}",
            spec.type_
        )
    } else if spec.is_headless() {
        "needs a cluster IP: addresses of endpoints are open to everybody".to_owned()
    } else if !spec.external_ips.is_empty() {
        "may not be set together with externalIPs (publicIPs), which are open to everybody"
            .to_owned()
    } else {
        return None;
    };
    Some(Error::invalid(&path, word, detail))
}

/// One that is stored, by a server that did not know the annotation, stays.
fn node_port_addresses(service: &Service, old: Option<&Service>) -> Errors {
    let annotation = |service: &Service| {
        let text = service.annotation(NODE_PORT_ADDRESSES).unwrap_or_default();
        text.trim().to_owned()
    };
    let text = annotation(service);
    if text.is_empty() || old.is_some_and(|old| annotation(old) == text) {
        return Errors::new();
    }
    let path = Path::new("metadata")
        .child("annotations")
        .key(NODE_PORT_ADDRESSES);
    let problem = |part: &str| {
        let message = ranges::parse_of_any_size(part.trim()).err()?;
        Some(Error::invalid(&path, part.trim(), message))
    };
    text.split(',').filter_map(problem).collect()
}

/// What each type must and must not have.
fn type_needs(service: &ServiceSpec) -> Errors {
    let mut errors = Errors::new();
    if service.ports.is_empty() && !service.is_headless() && !service.is_external_name() {
        errors.push(Error::required(&spec("ports"), ""));
    }
    if service.is_headless() && service.has_node_ports() {
        let detail = format!("may not be set to 'None' for {} services", service.type_);
        errors.push(Error::invalid(&spec("clusterIPs").index(0), NONE, detail));
    }
    if service.is_external_name() {
        errors.extend(external_name(service));
    }
    errors
}

fn external_name(service: &ServiceSpec) -> Errors {
    let mut errors = Errors::new();
    for (field, is_set) in [
        ("clusterIPs", !service.cluster_ips.is_empty()),
        ("ipFamilies", !service.ip_families.is_empty()),
        ("ipFamilyPolicy", service.ip_family_policy.is_some()),
    ] {
        if is_set {
            errors.push(Error::forbidden(
                &spec(field),
                "may not be set for ExternalName services",
            ));
        }
    }
    let path = spec("externalName");
    // One dot at the end says that the name is complete.
    let name = service
        .external_name
        .strip_suffix('.')
        .unwrap_or(&service.external_name);
    if name.is_empty() {
        errors.push(Error::required(&path, ""));
    } else {
        errors.extend(invalid_all(&path, name, names::dns_subdomain(name, false)));
    }
    errors
}

fn selector(service: &ServiceSpec) -> Errors {
    let path = spec("selector");
    let mut errors = Errors::new();
    for (key, value) in &service.selector {
        errors.extend(invalid_all(&path, key, names::qualified_name(key)));
        errors.extend(invalid_all(&path, value, names::label_value(value)));
    }
    errors
}

fn affinity(service: &ServiceSpec) -> Errors {
    if service.session_affinity == CLIENT_IP {
        return affinity_timeout(service).into_iter().collect();
    }
    word(
        &service.session_affinity,
        &spec("sessionAffinity"),
        &[CLIENT_IP, NONE],
    )
}

fn affinity_timeout(service: &ServiceSpec) -> Option<Error> {
    let path = spec("sessionAffinityConfig")
        .child("clientIP")
        .child("timeoutSeconds");
    let config = service
        .session_affinity_config
        .as_ref()
        .and_then(|config| config.client_ip.as_ref());
    match config.and_then(|config| config.timeout_seconds) {
        None => Some(Error::required(
            &path,
            "when session affinity type is ClientIP",
        )),
        Some(1..=MOST_AFFINITY_SECONDS) => None,
        Some(other) => {
            let detail = format!("must be greater than 0 and less than {MOST_AFFINITY_SECONDS}");
            Some(Error::invalid(&path, other, detail))
        }
    }
}

fn service_type(service: &ServiceSpec) -> Errors {
    word(
        &service.type_,
        &spec("type"),
        &[CLUSTER_IP, NODE_PORT, LOAD_BALANCER, EXTERNAL_NAME],
    )
}

fn traffic(service: &ServiceSpec) -> Errors {
    let mut errors = external_policy(service);
    errors.extend(load_balancer::health_check(service));
    if let Some(policy) = &service.internal_traffic_policy {
        errors.extend(given_word(
            policy,
            &spec("internalTrafficPolicy"),
            &[CLUSTER, LOCAL],
        ));
    }
    if let Some(preference) = &service.traffic_distribution {
        let words = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        errors.extend(given_word(preference, &spec("trafficDistribution"), &words));
    }
    errors
}

fn external_policy(service: &ServiceSpec) -> Errors {
    let (path, policy) = (
        spec("externalTrafficPolicy"),
        service.external_traffic_policy.as_str(),
    );
    if service.is_externally_accessible() {
        word(policy, &path, &[CLUSTER, LOCAL])
    } else if policy.is_empty() {
        Errors::new()
    } else {
        vec![Error::invalid(
            &path,
            policy,
            "may only be set for externally-accessible services",
        )]
    }
}
