//! EndpointSlices: some of the addresses behind a Service, all of one family.

use super::checks::{self, fill_absent, invalid_all, items_mut};
use super::{Column, Info, Kind, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::{names, object};
use serde_json::Value;

const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20000;
const MOST_HINTS: usize = 8;

pub(super) struct EndpointSlice;

static INFO: Info = Info {
    group: "discovery.k8s.io",
    version: "v1",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    namespaced: true,
    status: false,
    schema: "EndpointSlice",
    storage: "endpointslices",
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column("AddressType", "What the addresses are: IPv4, IPv6 or FQDN."),
    table::column("Ports", "The first ports."),
    table::column("Endpoints", "The first addresses."),
    table::AGE,
];

impl Kind for EndpointSlice {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn default(&self, object: &mut Value, _gates: &Gates) {
        for port in items_mut(object, "ports") {
            fill_absent(object::map(port), "name", "");
            fill_absent(object::map(port), "protocol", "TCP");
        }
    }

    fn prepare_create(&self, object: &mut Value, _gates: &Gates) {
        object::child(object, "metadata").insert("generation".to_owned(), 1.into());
        drop_topology(object);
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let mut errors = validate_head(object);
        errors.extend(endpoints(object));
        errors
    }

    /// The generation rises with everything that a proxy may look at: all but metadata, and the
    /// labels.
    fn prepare_update(&self, new: &mut Value, old: &Value, _gates: &Gates) {
        let same = ["addressType", "endpoints", "ports"]
            .iter()
            .all(|key| new.get(key) == old.get(key))
            && object::at(new, "metadata.labels") == object::at(old, "metadata.labels");
        let generation = object::at(old, "metadata.generation")
            .as_i64()
            .unwrap_or_default();
        if !same {
            object::child(new, "metadata").insert("generation".to_owned(), (generation + 1).into());
        }
        drop_topology(new);
    }

    /// Endpoints that were fit once stay so.
    fn validate_update(&self, new: &Value, old: &Value, _gates: &Gates) -> Errors {
        let mut errors = validate_head(new);
        if new.get("endpoints") != old.get("endpoints") {
            errors.extend(endpoints(new));
        }
        let key = "addressType";
        errors.extend(checks::immutable(
            object::at(new, key),
            object::at(old, key),
            &Path::new(key),
        ));
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none() && object::text(new, "addressType") == "FQDN" {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        for (index, endpoint) in object::items(new, "endpoints").iter().enumerate() {
            let path = Path::new("endpoints").index(index).child("addresses");
            let addresses = object::items(endpoint, "addresses")
                .iter()
                .filter_map(Value::as_str)
                .enumerate();
            warnings.extend(
                addresses
                    .filter_map(|(index, text)| checks::address_warning(text, &path.index(index))),
            );
        }
        warnings
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        let ports: Vec<String> = object::items(object, "ports")
            .iter()
            .map(port_text)
            .collect();
        let addresses: Vec<String> = object::items(object, "endpoints")
            .iter()
            .flat_map(|endpoint| object::items(endpoint, "addresses"))
            .filter_map(|address| address.as_str().map(str::to_owned))
            .collect();
        vec![
            object::name(object).into(),
            object::text(object, "addressType").into(),
            table::short_list(&ports, "<unset>").into(),
            table::short_list(&addresses, "<unset>").into(),
            table::age(object, now),
        ]
    }
}

/// `deprecatedTopology` belongs to an older version and cannot be written in this one.
fn drop_topology(object: &mut Value) {
    for endpoint in items_mut(object, "endpoints") {
        object::map(endpoint).remove("deprecatedTopology");
    }
}

/// All but the endpoints.
fn validate_head(object: &Value) -> Errors {
    let words = ["IPv4", "IPv6", "FQDN"];
    let mut errors = checks::word(
        object::text(object, "addressType"),
        &Path::new("addressType"),
        &words,
    );
    errors.extend(ports(object));
    errors
}

fn ports(object: &Value) -> Errors {
    let path = Path::new("ports");
    let ports = object::items(object, "ports");
    if ports.len() > MOST_PORTS {
        return vec![Error::too_many(&path, ports.len(), MOST_PORTS)];
    }
    let mut errors = Errors::new();
    let mut seen = std::collections::BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = object::text(port, "name");
        if !name.is_empty() {
            errors.extend(checks::dns_label(port, "name", &path));
        }
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
        // An explicit "" is not the absence that asks for the default.
        match port.get("protocol").and_then(Value::as_str) {
            Some("") => errors.push(Error::not_supported(
                &path.child("protocol"),
                "",
                &["TCP", "UDP", "SCTP"],
            )),
            protocol => errors.extend(checks::protocol(
                protocol.unwrap_or_default(),
                &path.child("protocol"),
            )),
        }
        errors.extend(checks::app_protocol(port, &path));
    }
    errors
}

fn endpoints(object: &Value) -> Errors {
    let path = Path::new("endpoints");
    let endpoints = object::items(object, "endpoints");
    if endpoints.len() > MOST_ENDPOINTS {
        return vec![Error::too_many(&path, endpoints.len(), MOST_ENDPOINTS)];
    }
    let kind = object::text(object, "addressType");
    endpoints
        .iter()
        .enumerate()
        .flat_map(|(index, one)| endpoint(one, kind, &path.index(index)))
        .collect()
}

fn endpoint(endpoint: &Value, kind: &str, path: &Path) -> Errors {
    let addresses_path = path.child("addresses");
    let addresses = object::items(endpoint, "addresses");
    let mut errors = match addresses.len() {
        0 => vec![Error::required(
            &addresses_path,
            "must contain at least 1 address",
        )],
        count if count > MOST_ADDRESSES => {
            vec![Error::too_many(&addresses_path, count, MOST_ADDRESSES)]
        }
        _ => Errors::new(),
    };
    for (index, text) in addresses.iter().filter_map(Value::as_str).enumerate() {
        errors.extend(address(text, kind, &addresses_path, index));
    }
    errors.extend(checks::dns_subdomain(endpoint, "nodeName", path));
    errors.extend(checks::dns_label(endpoint, "hostname", path));
    if let Some(given) = endpoint.get("hints") {
        errors.extend(hints(given, &path.child("hints")));
    }
    errors
}

fn address(text: &str, kind: &str, list: &Path, index: usize) -> Errors {
    let path = list.index(index);
    let (is_family, message): (fn(&std::net::IpAddr) -> bool, _) = match kind {
        "IPv4" => (std::net::IpAddr::is_ipv4, "must be an IPv4 address"),
        "IPv6" => (std::net::IpAddr::is_ipv6, "must be an IPv6 address"),
        "FQDN" => return domain_name(text, &path),
        _ => return Errors::new(),
    };
    let ip = match names::address(text) {
        Ok(ip) => ip,
        Err(message) => return vec![Error::invalid(&path, text, message)],
    };
    if kind == "IPv6" && ip.to_string() != text {
        return vec![Error::invalid(
            &path,
            text,
            format!("must be in canonical form (\"{ip}\")"),
        )];
    }
    let mut errors = Errors::new();
    if !is_family(&ip) {
        errors.push(Error::invalid(list, text, message));
    }
    errors.extend(checks::endpoint_address(text, &path));
    errors
}

fn domain_name(text: &str, path: &Path) -> Errors {
    let name = text.strip_suffix('.').unwrap_or(text);
    if text.is_empty() {
        return vec![Error::required(path, "")];
    }
    let problems = names::dns_subdomain(name, false);
    if !problems.is_empty() {
        return vec![Error::invalid(path, name, problems.join(","))];
    }
    if !name.contains('.') {
        return vec![Error::invalid(
            path,
            name,
            "should be a domain with at least two segments separated by dots",
        )];
    }
    let too_long = name
        .split('.')
        .find(|label| !names::dns_label(label, false).is_empty());
    too_long
        .map(|label| Error::invalid(path, label, "must be no more than 63 characters"))
        .into_iter()
        .collect()
}

fn hints(hints: &Value, path: &Path) -> Errors {
    let (zones, nodes) = (
        object::items(hints, "forZones"),
        object::items(hints, "forNodes"),
    );
    let mut errors = hint_names(zones, &path.child("forZones"), names::label_value);
    if zones.len() <= MOST_HINTS {
        errors.extend(hint_names(nodes, &path.child("forNodes"), |name| {
            names::dns_subdomain(name, false)
        }));
    }
    errors
}

fn hint_names(hints: &[Value], path: &Path, problems: fn(&str) -> Vec<String>) -> Errors {
    if hints.len() > MOST_HINTS {
        return vec![Error::too_many(path, hints.len(), MOST_HINTS)];
    }
    let mut errors = Errors::new();
    let mut seen = Vec::new();
    for (index, name) in hints
        .iter()
        .map(|hint| object::text(hint, "name"))
        .enumerate()
    {
        let path = path.index(index).child("name");
        if seen.contains(&name) {
            errors.push(Error::duplicate(&path, name));
        }
        seen.push(name);
        errors.extend(invalid_all(&path, name, problems(name)));
    }
    errors
}

fn port_text(port: &Value) -> String {
    match port.get("port").and_then(Value::as_i64) {
        Some(number) => number.to_string(),
        None => port
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or("*")
            .to_owned(),
    }
}
