//! Endpoints of Services, as far as load balancers go: how many are ready, on which nodes, and for
//! some providers which.

use portico_view::key_of;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::service::parse_protocol;
use crate::endpoints::LABEL_SERVICE_NAME;
use crate::provider::{Endpoint, Protocol};
use portico_model::key::ObjectKey;

#[derive(Debug, Default)]
pub(super) struct Slices {
    slices: BTreeMap<ObjectKey, Slice>,
    by_service: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// There are few nodes and many endpoints.
    names: HashSet<Arc<str>>,
}

#[derive(Debug, PartialEq)]
struct Slice {
    service: ObjectKey,
    ports: Box<[Port]>,
    endpoints: Box<[Known]>,
}

#[derive(Debug, PartialEq)]
struct Port {
    name: String,
    protocol: Protocol,
    port: u16,
}

/// An endpoint that gets traffic, if only while it terminates.
#[derive(Debug, PartialEq)]
struct Known {
    address: IpAddr,
    ready: bool,
    node: Option<Arc<str>>,
}

/// What a Service has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    pub ready: usize,
    /// Not ready, but still serving while they end.
    pub ending: usize,
    /// Nodes with a ready endpoint; where none is ready, those with one that still serves.
    pub nodes: BTreeSet<Arc<str>>,
}

impl Slices {
    /// The Services that this changes.
    pub(super) fn apply(&mut self, slice: &EndpointSlice) -> Vec<ObjectKey> {
        let key = key_of(&slice.metadata);
        let Some(after) = self.parse(&key, slice) else {
            return self.delete(&key).into_iter().collect();
        };
        if self.slices.get(&key) == Some(&after) {
            return Vec::new();
        }
        let before = self
            .delete(&key)
            .filter(|service| *service != after.service);
        let service = after.service.clone();
        self.by_service
            .entry(service.clone())
            .or_default()
            .insert(key.clone());
        self.slices.insert(key, after);
        before.into_iter().chain([service]).collect()
    }

    pub(super) fn delete(&mut self, key: &ObjectKey) -> Option<ObjectKey> {
        let service = self.slices.remove(key)?.service;
        if let Some(slices) = self.by_service.get_mut(&service) {
            slices.remove(key);
            if slices.is_empty() {
                self.by_service.remove(&service);
            }
        }
        Some(service)
    }

    /// Forget those that a list did not have. The Services that this changes.
    pub(super) fn retain(&mut self, listed: impl Fn(&ObjectKey) -> bool) -> Vec<ObjectKey> {
        let gone: Vec<ObjectKey> = self
            .slices
            .keys()
            .filter(|key| !listed(key))
            .cloned()
            .collect();
        gone.iter().filter_map(|key| self.delete(key)).collect()
    }

    pub(super) fn served(&self, service: &ObjectKey) -> Served {
        let known = || self.of(service).flat_map(|slice| &slice.endpoints);
        let ready = known().filter(|endpoint| endpoint.ready).count();
        let counts = |endpoint: &&Known| endpoint.ready || ready == 0;
        let nodes = known()
            .filter(counts)
            .filter_map(|endpoint| endpoint.node.clone())
            .collect();
        Served {
            ready,
            ending: known().count() - ready,
            nodes,
        }
    }

    /// The ready ones for each port, sorted.
    pub(super) fn endpoints(&self, service: &ObjectKey) -> Vec<Endpoint> {
        let mut endpoints: Vec<Endpoint> = self.of(service).flat_map(Slice::endpoints).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        endpoints
    }

    fn of(&self, service: &ObjectKey) -> impl Iterator<Item = &Slice> {
        self.by_service
            .get(service)
            .into_iter()
            .flatten()
            .filter_map(|key| self.slices.get(key))
    }

    fn parse(&mut self, key: &ObjectKey, slice: &EndpointSlice) -> Option<Slice> {
        let service = slice.metadata.labels.as_ref()?.get(LABEL_SERVICE_NAME)?;
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            Some(Port {
                name: port.name.clone().unwrap_or_default(),
                protocol: parse_protocol(port.protocol.as_deref()),
                port: u16::try_from(port.port?).ok()?,
            })
        });
        let endpoints = slice.endpoints.iter().flatten().filter_map(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            let ready = conditions
                .and_then(|conditions| conditions.ready)
                .unwrap_or(true);
            let serving = conditions
                .and_then(|conditions| conditions.serving)
                .unwrap_or(ready);
            let terminating = conditions
                .and_then(|conditions| conditions.terminating)
                .unwrap_or(false);
            let address = endpoint.addresses.first()?.parse().ok()?;
            let node = endpoint
                .node_name
                .as_deref()
                .map(|name| intern(&mut self.names, name));
            (ready || serving && terminating).then_some(Known {
                address,
                ready,
                node,
            })
        });
        let endpoints = endpoints.collect();
        Some(Slice {
            service: ObjectKey::new(&key.namespace, service),
            ports: ports.collect(),
            endpoints,
        })
    }
}

impl Slice {
    fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        let ready = self.endpoints.iter().filter(|endpoint| endpoint.ready);
        ready.flat_map(|endpoint| {
            self.ports.iter().map(|port| Endpoint {
                address: endpoint.address,
                port_name: port.name.clone(),
                protocol: port.protocol,
                port: port.port,
                node: endpoint.node.as_deref().map(str::to_owned),
            })
        })
    }
}

fn intern(names: &mut HashSet<Arc<str>>, name: &str) -> Arc<str> {
    match names.get(name) {
        Some(known) => Arc::clone(known),
        None => {
            let new: Arc<str> = name.into();
            names.insert(Arc::clone(&new));
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn slice(name: &str, endpoints: Value) -> EndpointSlice {
        let labels = json!({LABEL_SERVICE_NAME: "web"});
        let ports =
            json!([{"name": "http", "port": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let slice = json!({"metadata": {"namespace": "shop", "name": name, "labels": labels}, "addressType": "IPv4",
            "endpoints": endpoints, "ports": ports});
        serde_json::from_value(slice).unwrap()
    }

    #[test]
    fn ready_ones_count_and_ending_ones_where_none_is_ready() {
        let web = ObjectKey::new("shop", "web");
        let mut slices = Slices::default();
        let ending = json!({"addresses": ["10.1.0.2"], "nodeName": "b", "conditions": {"ready": false, "serving": true, "terminating": true}});
        let starting = json!({"addresses": ["10.1.0.3"], "nodeName": "c", "conditions": {"ready": false, "serving": false}});
        assert_eq!(
            slices.apply(&slice("one", json!([ending, starting]))),
            std::slice::from_ref(&web)
        );
        let nodes = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
        assert_eq!(
            slices.served(&web),
            Served {
                ready: 0,
                ending: 1,
                nodes: nodes(&["b"])
            }
        );
        let ready = json!({"addresses": ["10.1.0.1"], "nodeName": "a"});
        assert_eq!(
            slices.apply(&slice("two", json!([ready]))),
            std::slice::from_ref(&web)
        );
        assert_eq!(
            slices.apply(&slice("two", json!([ready]))),
            [],
            "nothing new"
        );
        assert_eq!(
            slices.served(&web),
            Served {
                ready: 1,
                ending: 1,
                nodes: nodes(&["a"])
            }
        );
        let endpoints = slices.endpoints(&web);
        assert_eq!(
            endpoints
                .iter()
                .map(|endpoint| endpoint.port)
                .collect::<Vec<_>>(),
            [53, 8080]
        );
        assert_eq!(
            slices.retain(|key| &*key.name == "one"),
            std::slice::from_ref(&web)
        );
        assert_eq!(
            slices.delete(&ObjectKey::new("shop", "one")).as_ref(),
            Some(&web)
        );
        assert_eq!(slices.served(&web), Served::default());
    }
}
