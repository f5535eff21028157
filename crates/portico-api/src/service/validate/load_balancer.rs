//! What belongs to load balancers: source ranges, class, the switches, the health-check port, and
//! the status.

use super::addresses::address;
use super::spec;
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::kinds::checks::{self, invalid_all};
use crate::names;
use crate::service::types::*;
use std::collections::HashSet;

const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const LOAD_BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";

/// The field, or the annotation it replaced where the field is empty.
pub(super) fn source_ranges(service: &Service, old: Option<&Service>) -> Errors {
    let ranges = &service.spec.load_balancer_source_ranges;
    if !ranges.is_empty() {
        // Kubernetes writes this field with a capital letter in errors.
        let path = spec("LoadBalancerSourceRanges");
        let existing = old.map_or(&[][..], |old| &old.spec.load_balancer_source_ranges);
        let known: HashSet<&str> = existing.iter().map(|text| text.trim()).collect();
        let ranges = ranges
            .iter()
            .map(|text| text.trim())
            .enumerate()
            .filter(|(_, text)| !known.contains(text));
        let bad = ranges.filter_map(|(index, text)| bad_cidr(text, &path.index(index)));
        return not_elsewhere(service, &path)
            .into_iter()
            .chain(bad)
            .collect();
    }
    let Some(value) = service.annotation(SOURCE_RANGES) else {
        return Errors::new();
    };
    let path = Path::new("metadata")
        .child("annotations")
        .key(SOURCE_RANGES);
    let mut errors: Errors = not_elsewhere(service, &path).into_iter().collect();
    let unchanged = old.is_some_and(|old| old.annotation(SOURCE_RANGES) == Some(value));
    if !unchanged && !value.trim().is_empty() {
        errors.extend(
            value
                .split(',')
                .filter_map(|text| bad_cidr(text.trim(), &path)),
        );
    }
    errors
}

fn not_elsewhere(service: &Service, path: &Path) -> Option<Error> {
    (!service.spec.is_load_balancer()).then(|| Error::forbidden(path, LOAD_BALANCER_ONLY))
}

fn bad_cidr(text: &str, path: &Path) -> Option<Error> {
    checks::cidr(text)
        .err()
        .map(|detail| Error::invalid(path, text, detail))
}

/// The two switches for ports belong to load balancers.
pub(super) fn switches(service: &ServiceSpec) -> Errors {
    [
        (
            "allocateLoadBalancerNodePorts",
            service.allocate_load_balancer_node_ports,
        ),
        (
            "allocateLoadBalancerHCNodePort",
            service.allocate_load_balancer_hc_node_port,
        ),
    ]
    .into_iter()
    .filter(|(_, switch)| switch.is_some() && !service.is_load_balancer())
    .map(|(field, _)| Error::forbidden(&spec(field), LOAD_BALANCER_ONLY))
    .collect()
}

pub(super) fn class(service: &ServiceSpec) -> Errors {
    let Some(class) = &service.load_balancer_class else {
        return Errors::new();
    };
    let path = spec("loadBalancerClass");
    if service.is_load_balancer() {
        invalid_all(&path, class, names::qualified_name(class))
    } else {
        vec![Error::forbidden(&path, LOAD_BALANCER_ONLY)]
    }
}

/// While a Service is a load balancer, its class cannot change: another controller would become
/// responsible for it.
pub(super) fn class_change(new: &ServiceSpec, old: &ServiceSpec) -> Option<Error> {
    let changed = new.is_load_balancer()
        && old.is_load_balancer()
        && new.load_balancer_class != old.load_balancer_class;
    changed.then(|| {
        Error::invalid(
            &spec("loadBalancerClass"),
            new.load_balancer_class.clone(),
            "may not change once set",
        )
    })
}

pub(super) fn health_check(service: &ServiceSpec) -> Errors {
    let (path, port) = (spec("healthCheckNodePort"), service.health_check_node_port);
    match port {
        0 if service.assigns_health_check_port() => vec![Error::required(&path, "")],
        0 => Errors::new(),
        _ if !service.needs_health_check() => {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is \
                          'Local'";
            vec![Error::invalid(&path, port, detail)]
        }
        _ => names::port_number(port.into())
            .into_iter()
            .map(|detail| Error::invalid(&path, port, detail))
            .collect(),
    }
}

/// A load balancer was told this port. It may be given up when assignment is off, and come back,
/// but not change.
pub(super) fn health_check_change(new: &ServiceSpec, old: &ServiceSpec) -> Option<Error> {
    let (had, has) = (old.health_check_node_port, new.health_check_node_port);
    let given_up = has == 0 && !new.assigns_health_check_port();
    let changed =
        new.needs_health_check() && old.needs_health_check() && had != has && had != 0 && !given_up;
    changed.then(|| Error::forbidden(&spec("healthCheckNodePort"), "field is immutable"))
}

/// The status that a controller reports.
pub(crate) fn status(new: &Service, old: &Service, gates: &Gates) -> Errors {
    let path = Path::new("status").child("loadBalancer").child("ingress");
    let ingress = &new.status.load_balancer.ingress;
    if !new.spec.is_load_balancer() && !ingress.is_empty() {
        return vec![Error::forbidden(
            &path,
            "may only be used when `spec.type` is 'LoadBalancer'",
        )];
    }
    let existing = &old.status.load_balancer.ingress;
    let existing = existing.iter().map(|point| point.ip.as_str()).collect();
    let points = ingress.iter().enumerate();
    points
        .flat_map(|(index, point)| ingress_point(point, &existing, gates, &path.index(index)))
        .collect()
}

fn ingress_point(
    point: &LoadBalancerIngress,
    existing: &HashSet<&str>,
    gates: &Gates,
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    if !point.ip.is_empty() {
        errors.extend(address(&point.ip, existing, &path.child("ip")));
    }
    errors.extend(ip_mode(point, gates, &path.child("ipMode")));
    if !point.hostname.is_empty() {
        let path = path.child("hostname");
        errors.extend(invalid_all(
            &path,
            &point.hostname,
            names::dns_subdomain(&point.hostname, false),
        ));
        if is_address(&point.hostname) {
            errors.push(Error::invalid(
                &path,
                point.hostname.as_str(),
                "must be a DNS name, not an IP address",
            ));
        }
    }
    errors
}

fn ip_mode(point: &LoadBalancerIngress, gates: &Gates, path: &Path) -> Errors {
    match point.ip_mode.as_deref() {
        None if point.ip.is_empty() || !gates.load_balancer_ip_mode => Errors::new(),
        None => vec![Error::required(path, "must be specified when `ip` is set")],
        Some(_) if point.ip.is_empty() => vec![Error::forbidden(
            path,
            "may not be specified when `ip` is not set",
        )],
        Some(mode) => checks::given_word(mode, path, &[VIP, PROXY]),
    }
}

/// An address in any form, also one that would be refused as an address.
fn is_address(text: &str) -> bool {
    match names::address(text) {
        Ok(_) => true,
        Err(detail) => detail.starts_with("must not"),
    }
}
