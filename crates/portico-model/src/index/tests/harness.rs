//! Short ways to write objects and to read the table.

use crate::index::{DetectLocal, Index, NodePortSetting, Settings, Update};
use crate::key::ObjectKey;
use crate::table::{Family, Frontend, FrontendKind, PortKey, Protocol, ServicePort};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn settings() -> Settings {
    Settings {
        node_name: "here".into(),
        own_address: None,
        detect_local: DetectLocal::ClusterCidr(vec![
            "10.244.0.0/16".parse().unwrap(),
            "fd00:10::/32".parse().unwrap(),
        ]),
        node_ports: NodePortSetting::Primary,
        masquerade_all: false,
        masquerade_mark: 0x4000,
        external_ips: true,
        load_balancer_ip_mode: true,
    }
}

/// A Service `default/web` with cluster IP 10.96.0.1 and TCP port 80, with `spec` merged into it.
pub(super) fn service(spec: Value) -> Value {
    let spec = merged(
        json!({"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
               "ports": [{"port": 80, "protocol": "TCP"}]}),
        spec,
    );
    json!({"metadata": {"namespace": "default", "name": "web"}, "spec": spec})
}

pub(super) fn load_balancer(spec: Value, ingress: Value) -> Value {
    let mut object = service(merged(json!({"type": "LoadBalancer"}), spec));
    object["status"] = json!({"loadBalancer": {"ingress": ingress}});
    object
}

pub(super) fn dual_stack() -> Value {
    json!({"clusterIPs": ["10.96.0.1", "fd00:96::1"], "ipFamilies": ["IPv4", "IPv6"]})
}

/// A slice of `default/web` with the unnamed port 8080.
pub(super) fn slice(name: &str, endpoints: Value) -> Value {
    json!({"metadata": {"namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": "web"}},
           "addressType": "IPv4", "ports": [{"name": "", "protocol": "TCP", "port": 8080}], "endpoints": endpoints})
}

pub(super) fn here(address: &str) -> Value {
    json!({"addresses": [address], "nodeName": "here"})
}

pub(super) fn there(address: &str) -> Value {
    json!({"addresses": [address], "nodeName": "there"})
}

pub(super) fn ending(endpoint: Value) -> Value {
    merged(
        endpoint,
        json!({"conditions": {"ready": false, "serving": true, "terminating": true}}),
    )
}

pub(super) fn merged(mut base: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

pub(super) fn renamed(mut object: Value, name: &str) -> Value {
    object["metadata"]["name"] = json!(name);
    object
}

pub(super) fn labelled(mut object: Value, label: &str, value: &str) -> Value {
    object["metadata"]["labels"][label] = json!(value);
    object
}

/// Applies objects (told apart by their fields) to an index.
pub(super) fn apply(index: &mut Index, object: &Value) {
    let object = object.clone();
    if object["kind"] == "PortPartition" {
        index.apply_port_partition(&serde_json::from_value(object).unwrap());
    } else if object.get("addressType").is_some() {
        index.apply_slice(&serde_json::from_value(object).unwrap());
    } else if object["spec"].get("nodeName").is_some() {
        index.apply_pod(&serde_json::from_value(object).unwrap());
    } else if object["metadata"].get("namespace").is_some() {
        index.apply_service(&serde_json::from_value(object).unwrap());
    } else {
        index.apply_node(&serde_json::from_value(object).unwrap());
    }
}

pub(super) fn index_with(settings: Settings, objects: &[Value]) -> (Index, Update) {
    let mut index = Index::new(settings);
    objects.iter().for_each(|object| apply(&mut index, object));
    let update = index.take();
    (index, update)
}

pub(super) fn index(objects: &[Value]) -> Index {
    index_with(settings(), objects).0
}

pub(super) fn announcing(objects: &[Value]) -> Index {
    let mut index = Index::new(settings()).with_announcing();
    objects.iter().for_each(|object| apply(&mut index, object));
    index.take();
    index
}

pub(super) fn key(port: &str, protocol: Protocol, family: Family) -> PortKey {
    PortKey {
        service: name("web"),
        port: port.into(),
        protocol,
        family,
    }
}

pub(super) fn name(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// The unnamed TCP port of `default/web` in one family.
pub(super) fn web_of(index: &Index, family: Family) -> Arc<ServicePort> {
    index
        .table()
        .ports
        .get(&key("", Protocol::Tcp, family))
        .cloned()
        .unwrap_or_default()
}

pub(super) fn web(index: &Index) -> Arc<ServicePort> {
    web_of(index, Family::V4)
}

pub(super) fn frontend(port: &ServicePort, kind: FrontendKind) -> Frontend {
    port.frontends
        .iter()
        .find(|frontend| frontend.kind == kind)
        .cloned()
        .unwrap()
}

pub(super) fn kinds(port: &ServicePort) -> Vec<FrontendKind> {
    port.frontends
        .iter()
        .map(|frontend| frontend.kind)
        .collect()
}

/// `address:port` of each endpoint, with `*` after a local one.
pub(super) fn shown(endpoints: &[crate::table::Endpoint]) -> Vec<String> {
    let show = |e: &crate::table::Endpoint| {
        format!("{}:{}{}", e.address, e.port, if e.local { "*" } else { "" })
    };
    endpoints.iter().map(show).collect()
}
