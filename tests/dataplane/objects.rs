//! API objects of the scenarios: the shorthand for EndpointSlices, Node objects, paths, merging.

use portico_testbed::cluster::{Addresses, POD_RANGES, zone};
use serde_json::{Map, Value, json};

/// The path of all objects of a kind.
pub(crate) fn everywhere(kind: &str) -> String {
    let (root, plural, _) = place(kind);
    format!("{root}/{plural}")
}

/// The path of the collection or object.
pub(crate) fn path(kind: &str, namespace: &str, name: &str) -> String {
    let (root, plural, namespaced) = place(kind);
    let namespace = if namespaced {
        format!("/namespaces/{namespace}")
    } else {
        String::new()
    };
    let name = if name.is_empty() {
        String::new()
    } else {
        format!("/{name}")
    };
    format!("{root}{namespace}/{plural}{name}")
}

/// The API group, the name in paths, and whether it is in a namespace.
fn place(kind: &str) -> (&'static str, &'static str, bool) {
    match kind {
        "Service" => ("/api/v1", "services", true),
        "Endpoints" => ("/api/v1", "endpoints", true),
        "Node" => ("/api/v1", "nodes", false),
        "Pod" => ("/api/v1", "pods", true),
        "Namespace" => ("/api/v1", "namespaces", false),
        "EndpointSlice" => ("/apis/discovery.k8s.io/v1", "endpointslices", true),
        "ServiceCIDR" => ("/apis/networking.k8s.io/v1", "servicecidrs", false),
        kind => panic!("no path for {kind}"),
    }
}

pub(crate) fn api_version(kind: &str) -> &'static str {
    match kind {
        "EndpointSlice" => "discovery.k8s.io/v1",
        "ServiceCIDR" => "networking.k8s.io/v1",
        _ => "v1",
    }
}

/// JSON merge patch.
pub(crate) fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let Value::Object(fields) = into else { return };
    for (name, value) in patch {
        match value {
            Value::Null => drop(fields.remove(name)),
            value => merge(fields.entry(name).or_insert(Value::Null), value),
        }
    }
}

/// The configuration of a node's program, but for how it reaches the API server.
pub(crate) fn node_config(mode: &str, name: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "hostnameOverride": name, "mode": mode,
        "clusterCIDR": POD_RANGES, "detectLocalMode": "ClusterCIDR",
        // A namespace may not change these.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "10ms", "syncPeriod": "30s"},
        "ipvs": {"minSyncPeriod": "10ms", "syncPeriod": "30s"},
        "nftables": {"minSyncPeriod": "10ms", "syncPeriod": "30s"},
    })
}

/// The Node object of a node of the cluster.
pub(crate) fn node(addresses: &Addresses, name: &str) -> Value {
    let number: u8 = name.trim_start_matches("node").parse().unwrap();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone(number)},
        },
        "spec": {
            "podCIDR": format!("10.244.{number}.0/24"),
            "podCIDRs": [format!("10.244.{number}.0/24"), format!("fd00:10:244:{number}::/64")],
        },
        "status": {"addresses": [
            {"type": "InternalIP", "address": addresses.of(name, "ip")},
            {"type": "InternalIP", "address": addresses.of(name, "ip6")},
            {"type": "Hostname", "address": name},
        ]},
    })
}

/// An object as it is, or the EndpointSlices that `{"slice": …}` stands for, one per address
/// family.
pub(crate) fn expand(addresses: &Addresses, object: &Value) -> Vec<Value> {
    let Some(slice) = object.get("slice") else {
        return vec![object.clone()];
    };
    let families: &[(&str, &str, &str)] = match slice["family"].as_str().unwrap_or("v4") {
        "dual" => &[("IPv4", "ip", "-v4"), ("IPv6", "ip6", "-v6")],
        "v4" => &[("IPv4", "ip", "-v4")],
        "v6" => &[("IPv6", "ip6", "-v6")],
        family => panic!("family {family} of a slice"),
    };
    let service = slice["service"].as_str().unwrap();
    let base = slice["name"].as_str().unwrap_or(service);
    let mut labels = json!({"kubernetes.io/service-name": service});
    if let Some(more) = slice.get("labels") {
        merge(&mut labels, more); // null takes a label away
    }
    let ports = ports(slice.get("ports"));
    let of_family = |(family, which, suffix): &(&str, &str, &str)| {
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let endpoints: Vec<_> = endpoints
            .map(|endpoint| expand_endpoint(addresses, endpoint, which))
            .collect();
        json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {
                "name": format!("{base}{suffix}"),
                "namespace": slice["namespace"].as_str().unwrap_or("default"),
                "labels": labels,
            },
            "addressType": family, "ports": ports, "endpoints": endpoints,
        })
    };
    families.iter().map(of_family).collect()
}

/// `{"name": 8080}` or `{"name": "53/UDP"}`; what follows a slash in a name only makes it another
/// key.
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

fn expand_endpoint(addresses: &Addresses, short: &Value, which: &str) -> Value {
    let short = if short.is_string() {
        json!({"pod": short})
    } else {
        short.clone()
    };
    let mut endpoint = json!({});
    if let Some(pod) = short["pod"].as_str() {
        endpoint["addresses"] = json!([addresses.of(pod, which).unwrap()]);
        let number = pod
            .strip_prefix("pod")
            .or(pod.strip_prefix("node"))
            .and_then(|rest| rest[..1].parse().ok());
        if let Some(number) = number {
            endpoint["nodeName"] = json!(format!("node{number}"));
            endpoint["zone"] = json!(zone(number));
        }
    }
    let given = [
        ("addresses", "addresses"),
        ("node", "nodeName"),
        ("zone", "zone"),
    ];
    for (from, to) in given {
        if let Some(value) = short.get(from) {
            merge(&mut endpoint, &json!({ to: value })); // a null node takes the name away
        }
    }
    if short["noconditions"] != true {
        let ready = short.get("ready").cloned().unwrap_or(json!(true));
        let serving = short.get("serving").cloned().unwrap_or(ready.clone());
        let terminating = short.get("terminating").cloned().unwrap_or(json!(false));
        let mut conditions = json!({});
        merge(
            &mut conditions,
            &json!({"ready": ready, "serving": serving, "terminating": terminating}),
        );
        if conditions != json!({}) {
            endpoint["conditions"] = conditions;
        }
    }
    for hint in ["forZones", "forNodes"] {
        if let Some(names) = short[hint].as_array() {
            let named: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
            merge(&mut endpoint, &json!({"hints": {hint: named}}));
        }
    }
    endpoint
}
