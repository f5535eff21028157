//! One file of static Services: its text becomes objects, or a sentence about what is wrong with
//! it. Pure.

use crate::objects::{Kind, Name, Object, SERVICE_NAME};
use portico_model::objects::{EndpointSlice, Metadata, Service};
use portico_model::static_services;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Before every Service of the API: an address that the operator of the node gave away cannot be
/// taken by one of them.
const EARLIEST: &str = "0001-01-01T00:00:00Z";

/// The objects in YAML or JSON: one, several documents, or a `List`.
pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Object>, String> {
    // Every JSON is YAML.
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
    let (mut objects, mut names) = (Vec::new(), BTreeSet::new());
    for document in documents
        .iter()
        .filter(|document| !document.is_null())
        .flat_map(items)
    {
        let object = read(file, document)?;
        let Name { kind, name, .. } = object.name();
        if !names.insert(object.name()) {
            return Err(format!("{} {name:?} is there twice", kind_name(kind)));
        }
        objects.push(object);
    }
    Ok(objects)
}

fn items(document: &Value) -> Vec<&Value> {
    match (
        document.get("kind").and_then(Value::as_str),
        document.get("items").and_then(Value::as_array),
    ) {
        (Some("List"), Some(items)) => items.iter().collect(),
        _ => vec![document],
    }
}

fn read(file: &str, document: &Value) -> Result<Object, String> {
    let text = |field: &str| {
        document
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let kind = match (text("apiVersion"), text("kind")) {
        ("v1", "Service") => Kind::Service,
        ("discovery.k8s.io/v1", "EndpointSlice") => Kind::Slice,
        (version, kind) => {
            let known = "use v1 Service and discovery.k8s.io/v1 EndpointSlice";
            return Err(format!(
                "apiVersion, kind: {version:?} {kind:?} is not known here; {known}"
            ));
        }
    };
    let name = document
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let of_object = |problem: String| match name {
        "" => format!("{}: {problem}", kind_name(kind)),
        name => format!("{} {name:?}: {problem}", kind_name(kind)),
    };
    check(kind, document).map_err(of_object)?;
    decode(kind, file, document).map_err(of_object)
}

fn kind_name(kind: Kind) -> &'static str {
    kind.plural().trim_end_matches('s')
}

fn decode(kind: Kind, file: &str, document: &Value) -> Result<Object, String> {
    fn typed<T: DeserializeOwned>(document: &Value) -> Result<Box<T>, String> {
        serde_json::from_value(document.clone())
            .map(Box::new)
            .map_err(|error| error.to_string())
    }
    let adopt = |metadata: &mut Metadata| {
        metadata.namespace = static_services::namespace(file, &metadata.namespace);
        metadata.creation_timestamp = Some(EARLIEST.to_owned());
        metadata.deletion_timestamp = None;
    };
    if kind == Kind::Service {
        let mut service = typed::<Service>(document)?;
        adopt(&mut service.metadata);
        return Ok(Object::Service(service));
    }
    let mut slice = typed::<EndpointSlice>(document)?;
    adopt(&mut slice.metadata);
    Ok(Object::Slice(slice))
}

/// What a field is to be.
#[derive(Clone, Copy)]
enum Is {
    Text,
    Filled,
    Port,
    Address,
    /// An address, nothing, or `None`.
    ClusterIp,
    One(&'static [&'static str]),
}

/// Fields by path, `[]` for every item of a list, and whether they have to be there.
const OF_SERVICE: &[(&str, Is, bool)] = &[
    ("metadata.name", Is::Filled, true),
    ("metadata.namespace", Is::Text, false),
    ("spec.clusterIP", Is::ClusterIp, false),
    ("spec.externalIPs[]", Is::Address, false),
    ("spec.ports[].port", Is::Port, true),
    ("spec.ports[].name", Is::Text, false),
    (
        "spec.ports[].protocol",
        Is::One(&["TCP", "UDP", "SCTP"]),
        false,
    ),
    (
        "spec.internalTrafficPolicy",
        Is::One(&["Cluster", "Local"]),
        false,
    ),
    (
        "spec.externalTrafficPolicy",
        Is::One(&["Cluster", "Local"]),
        false,
    ),
    (
        "spec.sessionAffinity",
        Is::One(&["None", "ClientIP"]),
        false,
    ),
    ("status.loadBalancer.ingress[].ip", Is::Address, false),
];
const OF_SLICE: &[(&str, Is, bool)] = &[
    ("metadata.name", Is::Filled, true),
    ("metadata.namespace", Is::Text, false),
    ("addressType", Is::One(&["IPv4", "IPv6"]), true),
    ("endpoints[].addresses[]", Is::Address, false),
    ("ports[].port", Is::Port, true),
    ("ports[].name", Is::Text, false),
    ("ports[].protocol", Is::One(&["TCP", "UDP", "SCTP"]), false),
];

fn check(kind: Kind, document: &Value) -> Result<(), String> {
    let fields = if kind == Kind::Service {
        OF_SERVICE
    } else {
        OF_SLICE
    };
    for (path, is, required) in fields {
        check_field(document, path, String::new(), *is, *required)?;
    }
    let has = |pointer: &str| {
        document
            .pointer(pointer)
            .is_some_and(|value| !is_empty(value))
    };
    let label = format!("/metadata/labels/{}", SERVICE_NAME.replace('/', "~1"));
    match kind {
        Kind::Service if !has("/spec/externalIPs") && !has("/spec/clusterIP") => {
            Err("spec.externalIPs: it answers nowhere without an address".to_owned())
        }
        Kind::Service if !has("/spec/ports") => Err("spec.ports: must have a port".to_owned()),
        Kind::Slice if !has(&label) => Err(format!(
            "metadata.labels[{SERVICE_NAME}]: must say which Service it belongs to"
        )),
        _ => Ok(()),
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty)
}

/// Walk down the path; `walked` is how far we are, as people write it.
fn check_field(
    value: &Value,
    path: &str,
    walked: String,
    is: Is,
    required: bool,
) -> Result<(), String> {
    let (step, rest) = path.split_once('.').unwrap_or((path, ""));
    let key = step.trim_end_matches("[]");
    let at = if walked.is_empty() {
        key.to_owned()
    } else {
        format!("{walked}.{key}")
    };
    let found = value.get(key).filter(|found| !found.is_null());
    let deeper = |value: &Value, at: String| match rest {
        "" => is.fits(value).map_err(|problem| format!("{at}: {problem}")),
        rest => check_field(value, rest, at, is, required),
    };
    match (found, key == step) {
        (None, _) if !value.is_object() => Err(format!("{at}: {value} has no fields")),
        (None, true) if required => Err(format!("{at}: is missing")),
        (None, _) => Ok(()),
        (Some(found), true) => deeper(found, at),
        (Some(Value::Array(items)), false) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| deeper(item, format!("{at}[{index}]"))),
        (Some(other), false) => Err(format!("{at}: {other} is not a list")),
    }
}

impl Is {
    fn fits(self, value: &Value) -> Result<(), String> {
        let text = value.as_str();
        let is_address = || text.is_some_and(|text| text.parse::<IpAddr>().is_ok());
        let (fits, expected) = match self {
            Self::Text => (text.is_some(), "a text".to_owned()),
            Self::Filled => (
                text.is_some_and(|text| !text.is_empty()),
                "a name".to_owned(),
            ),
            Self::Port => (
                value
                    .as_u64()
                    .is_some_and(|port| (1..=65535).contains(&port)),
                "a port".to_owned(),
            ),
            Self::Address => (is_address(), "an IP address".to_owned()),
            Self::ClusterIp => (
                matches!(text, Some("" | "None")) || is_address(),
                "an IP address".to_owned(),
            ),
            Self::One(known) => (
                text.is_some_and(|text| known.contains(&text)),
                format!("one of {}", known.join(", ")),
            ),
        };
        if fits {
            Ok(())
        } else {
            Err(format!("{value} is not {expected}"))
        }
    }
}

#[cfg(test)]
mod tests;
