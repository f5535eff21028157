//! Objects of the scenarios: the shorthand for EndpointSlices, Node objects, merging.

use super::cluster::{address, node_of};
use serde_json::{Map, Value, json};

/// JSON merge patch.
pub fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let fields = into.as_object_mut().unwrap();
    for (name, value) in patch {
        match value {
            Value::Null => drop(fields.remove(name)),
            value => merge(fields.entry(name).or_insert(Value::Null), value),
        }
    }
}

pub fn node(number: u8) -> Value {
    let name = format!("node{number}");
    json!({
        "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone(number)}},
        "spec": {"podCIDRs": [format!("10.244.{number}.0/24"), format!("fd00:10:244:{number}::/64")]},
        "status": {"addresses": [
            {"type": "InternalIP", "address": address(&name, "ip")},
            {"type": "InternalIP", "address": address(&name, "ip6")},
        ]},
    })
}

fn zone(number: u8) -> &'static str {
    if number == 1 { "zone-a" } else { "zone-b" }
}

/// An object as it is, or the EndpointSlices that `{"slice": …}` stands for, one per address family.
pub fn expand(object: &Value) -> Vec<Value> {
    let Some(slice) = object.get("slice") else { return vec![object.clone()] };
    let families: &[(&str, &str, &str)] = match slice["family"].as_str().unwrap_or("v4") {
        "dual" => &[("IPv4", "ip", "-v4"), ("IPv6", "ip6", "-v6")],
        "v4" => &[("IPv4", "ip", "-v4")],
        _ => &[("IPv6", "ip6", "-v6")],
    };
    let service = slice["service"].as_str().unwrap();
    let base = slice["name"].as_str().unwrap_or(service);
    let mut labels = json!({"kubernetes.io/service-name": service});
    merge(&mut labels, slice.get("labels").unwrap_or(&json!({})));
    let of_family = |(family, which, suffix): &(&str, &str, &str)| {
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        json!({
            "kind": "EndpointSlice",
            "metadata": {"name": format!("{base}{suffix}"), "namespace": slice["namespace"].as_str().unwrap_or("default"),
                         "labels": labels},
            "addressType": family,
            "ports": ports(slice.get("ports")),
            "endpoints": endpoints.map(|endpoint| expand_endpoint(endpoint, which)).collect::<Vec<_>>(),
        })
    };
    families.iter().map(of_family).collect()
}

/// `{"name": 8080}` or `{"name": "53/UDP"}`; what follows a slash in a name only makes it another key.
fn ports(ports: Option<&Value>) -> Vec<Value> {
    let usual = Map::from_iter([(String::new(), json!(8080))]);
    let ports = ports.map_or(&usual, |ports| ports.as_object().unwrap());
    let expand = |(name, port): (&String, &Value)| {
        let name = name.split('/').next().unwrap_or_default();
        match port.as_str().and_then(|text| text.split_once('/')) {
            Some((number, protocol)) => {
                json!({"name": name, "port": number.parse::<u16>().unwrap(), "protocol": protocol})
            }
            None => json!({"name": name, "port": port, "protocol": "TCP"}),
        }
    };
    ports.iter().map(expand).collect()
}

fn expand_endpoint(short: &Value, which: &str) -> Value {
    let short = if short.is_string() { json!({"pod": short}) } else { short.clone() };
    let mut endpoint = json!({});
    if let Some(pod) = short["pod"].as_str() {
        endpoint["addresses"] = json!([address(pod, which)]);
        if let Some(number) = node_of(pod) {
            endpoint["nodeName"] = json!(format!("node{number}"));
        }
    }
    if let Some(addresses) = short.get("addresses") {
        endpoint["addresses"] = addresses.clone();
    }
    if let Some(node) = short.get("node") {
        endpoint["nodeName"] = node.clone();
    }
    if short["noconditions"] != true {
        let ready = short.get("ready").cloned().unwrap_or(json!(true));
        endpoint["conditions"] = json!({
            "serving": short.get("serving").unwrap_or(&ready),
            "terminating": short.get("terminating").unwrap_or(&json!(false)),
            "ready": ready,
        });
    }
    for hint in ["forZones", "forNodes"] {
        if let Some(names) = short[hint].as_array() {
            endpoint["hints"][hint] = names.iter().map(|name| json!({"name": name})).collect();
        }
    }
    endpoint
}
