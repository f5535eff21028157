//! The ports of a Service.

use super::spec;
use crate::field::{Error, Errors, Path};
use crate::kinds::checks::{self, invalid_all};
use crate::names;
use crate::service::types::*;
use std::collections::BTreeSet;

pub(super) fn ports(service: &ServiceSpec) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (index, port) in service.ports.iter().enumerate() {
        let path = spec("ports").index(index);
        errors.extend(name(
            port,
            service.ports.len() > 1,
            &mut seen,
            &path.child("name"),
        ));
        errors.extend(number(port.port, &path.child("port")));
        errors.extend(checks::protocol(&port.protocol, &path.child("protocol")));
        errors.extend(target(&port.target_port, &path.child("targetPort")));
        if let Some(protocol) = &port.app_protocol {
            errors.extend(invalid_all(
                &path.child("appProtocol"),
                protocol,
                names::qualified_name(protocol),
            ));
        }
    }
    errors.extend(duplicates(service));
    errors
}

fn name<'a>(
    port: &'a ServicePort,
    required: bool,
    seen: &mut BTreeSet<&'a str>,
    path: &Path,
) -> Errors {
    if port.name.is_empty() {
        return if required {
            vec![Error::required(path, "")]
        } else {
            Errors::new()
        };
    }
    let mut errors = invalid_all(path, &port.name, names::dns_label(&port.name, false));
    if !seen.insert(&port.name) {
        errors.push(Error::duplicate(path, port.name.as_str()));
    }
    errors
}

fn number(port: i32, path: &Path) -> impl Iterator<Item = Error> {
    names::port_number(port.into())
        .into_iter()
        .map(move |detail| Error::invalid(path, port, detail))
}

fn target(target: &IntOrString, path: &Path) -> Errors {
    match target {
        IntOrString::Int(port) => number(*port, path).collect(),
        IntOrString::String(name) => invalid_all(path, name, names::port_name(name)),
    }
}

/// A port number may be used once per protocol.
fn duplicates(service: &ServiceSpec) -> Errors {
    let mut seen = BTreeSet::new();
    let again = service
        .ports
        .iter()
        .enumerate()
        .filter(|(_, port)| !seen.insert((&port.protocol, port.port)));
    again
        .map(|(index, port)| {
            Error::duplicate(
                &spec("ports").index(index),
                format!("{}/{}", port.port, port.protocol),
            )
        })
        .collect()
}

/// Where node ports may be, and that each is used once per protocol.
pub(super) fn node_ports(service: &ServiceSpec) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (index, port) in service
        .ports
        .iter()
        .enumerate()
        .filter(|(_, port)| port.node_port != 0)
    {
        let path = spec("ports").index(index).child("nodePort");
        if service.type_ == CLUSTER_IP {
            errors.push(Error::forbidden(
                &path,
                "may not be used when `type` is 'ClusterIP'",
            ));
        }
        if !seen.insert((&port.protocol, port.node_port)) {
            errors.push(Error::duplicate(&path, port.node_port));
        }
    }
    errors
}
