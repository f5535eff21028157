//! Endpoints: the addresses behind a Service in their older form.

use super::checks::{self, fill, items_mut};
use super::{Column, Info, Kind, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::{names, object};
use serde_json::Value;

pub(super) struct Endpoints;

static INFO: Info = Info {
    group: "",
    version: "v1",
    kind: "Endpoints",
    plural: "endpoints",
    singular: "endpoints",
    short_names: &["ep"],
    namespaced: true,
    status: false,
    schema: "Endpoints",
    storage: "endpoints",
    create_on_update: true,
    columns: COLUMNS,
    deprecation: Some(
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column("Endpoints", "The first addresses and ports that are ready."),
    table::AGE,
];

impl Kind for Endpoints {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn default(&self, object: &mut Value, _gates: &Gates) {
        for subset in items_mut(object, "subsets") {
            for port in items_mut(subset, "ports") {
                fill(object::map(port), "protocol", "TCP");
            }
        }
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let path = Path::new("subsets");
        let subsets = object::items(object, "subsets").iter().enumerate();
        subsets
            .flat_map(|(index, one)| subset(one, &path.index(index)))
            .collect()
    }

    /// Subsets that were fit once stay so.
    fn validate_update(&self, new: &Value, old: &Value, gates: &Gates) -> Errors {
        if new.get("subsets") == old.get("subsets") {
            Errors::new()
        } else {
            self.validate_create(new, gates)
        }
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        for (index, subset) in object::items(new, "subsets").iter().enumerate() {
            for list in ["addresses", "notReadyAddresses"] {
                let path = Path::new("subsets").index(index).child(list);
                let addresses = object::items(subset, list).iter().enumerate();
                warnings.extend(addresses.filter_map(|(index, address)| {
                    checks::address_warning(
                        object::text(address, "ip"),
                        &path.index(index).child("ip"),
                    )
                }));
            }
        }
        warnings
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        let subsets = object::items(object, "subsets");
        let nothing = if subsets.is_empty() { "<none>" } else { "" };
        let ready: Vec<String> = subsets.iter().flat_map(ready_endpoints).collect();
        vec![
            object::name(object).into(),
            table::short_list(&ready, nothing).into(),
            table::age(object, now),
        ]
    }
}

fn subset(subset: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let lists = ["addresses", "notReadyAddresses"];
    if lists
        .iter()
        .all(|list| object::items(subset, list).is_empty())
    {
        errors.push(Error::required(
            path,
            "must specify `addresses` or `notReadyAddresses`",
        ));
    }
    for list in lists {
        for (index, one) in object::items(subset, list).iter().enumerate() {
            errors.extend(address(one, &path.child(list).index(index)));
        }
    }
    let ports = object::items(subset, "ports");
    for (index, one) in ports.iter().enumerate() {
        errors.extend(port(
            one,
            ports.len() > 1,
            &path.child("ports").index(index),
        ));
    }
    errors
}

fn address(address: &Value, path: &Path) -> Errors {
    let mut errors = checks::endpoint_address(object::text(address, "ip"), &path.child("ip"));
    if !object::text(address, "hostname").is_empty() {
        errors.extend(checks::dns_label(address, "hostname", path));
    }
    errors.extend(checks::dns_subdomain(address, "nodeName", path));
    errors
}

fn port(port: &Value, needs_name: bool, path: &Path) -> Errors {
    let mut errors = match object::text(port, "name") {
        "" if needs_name => vec![Error::required(&path.child("name"), "")],
        "" => Errors::new(),
        _ => checks::dns_label(port, "name", path),
    };
    let number = object::at(port, "port").as_i64().unwrap_or_default();
    errors.extend(
        names::port_number(number)
            .into_iter()
            .map(|why| Error::invalid(&path.child("port"), number, why)),
    );
    errors.extend(checks::protocol(
        object::text(port, "protocol"),
        &path.child("protocol"),
    ));
    errors.extend(checks::app_protocol(port, path));
    errors
}

/// `address:port` for each pair, or the addresses alone where there are no ports.
fn ready_endpoints(subset: &Value) -> Vec<String> {
    let addresses = || {
        object::items(subset, "addresses")
            .iter()
            .map(|address| object::text(address, "ip"))
    };
    let ports = object::items(subset, "ports");
    if ports.is_empty() {
        return addresses().map(str::to_owned).collect();
    }
    let pair = |ip: &str, port: i64| {
        if ip.contains(':') {
            format!("[{ip}]:{port}")
        } else {
            format!("{ip}:{port}")
        }
    };
    let numbers = ports
        .iter()
        .map(|port| object::at(port, "port").as_i64().unwrap_or_default());
    numbers
        .flat_map(|port| addresses().map(move |ip| pair(ip, port)))
        .collect()
}
