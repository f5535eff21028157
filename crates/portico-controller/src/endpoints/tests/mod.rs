//! Tests of the planner: objects as JSON, and a server that is only a list.

mod legacy;
mod properties;
mod slices;
mod trigger;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Endpoints, Node, Pod, Service},
    discovery::v1::{Endpoint, EndpointSlice},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::*;
use crate::light::LightService;

/// A Service as the watch of Services has it.
pub(super) fn light(service: Service) -> Arc<LightService> {
    Arc::new(LightService(service))
}

/// The objects of one namespace, and what a server does with the writes of a plan.
#[derive(Default)]
pub(super) struct World {
    pub service: Option<Service>,
    pub pods: BTreeMap<String, Pod>,
    pub nodes: BTreeMap<String, Node>,
    pub slices: BTreeMap<String, EndpointSlice>,
    pub endpoints: Option<Endpoints>,
    pub max_per_slice: usize,
    writes: usize,
}

impl World {
    /// A Service on port 80 that selects `app=a`, and two nodes in zones `east` and `west`.
    pub(super) fn new() -> Self {
        let mut world = Self {
            max_per_slice: 100,
            ..Self::default()
        };
        world.nodes = [("n1", "east"), ("n2", "west")]
            .map(|(name, zone)| (name.into(), node(name, Some(zone))))
            .into();
        world.service = Some(service(json!({})));
        world
    }

    pub(super) fn with(service_patch: Value) -> Self {
        Self {
            service: Some(service(service_patch)),
            ..Self::new()
        }
    }

    pub(super) fn pod(&mut self, name: &str, ip: &str, patch: Value) -> &mut Self {
        self.pods.insert(name.into(), pod(name, ip, patch));
        self
    }

    /// Ready Pods with addresses in `10.<net>.0.0/24`.
    pub(super) fn pods(&mut self, net: u8, count: u8) {
        for i in 0..count {
            self.pod(
                &format!("p{net}-{i}"),
                &format!("10.{net}.0.{i}"),
                json!({}),
            );
        }
    }

    pub(super) fn index(&self) -> Index {
        let mut index = Index::default();
        self.service
            .iter()
            .for_each(|service| index.apply_service(light(service.clone())));
        self.pods.values().for_each(|pod| index.apply_pod(pod));
        self.nodes.values().for_each(|node| index.apply_node(node));
        self.slices
            .values()
            .for_each(|slice| index.apply_slice(slice.clone()));
        self.endpoints
            .iter()
            .for_each(|endpoints| index.apply_endpoints(endpoints.clone()));
        index
    }

    pub(super) fn plan(&self) -> Plan {
        plan(&self.index().snapshot(&web()), self.max_per_slice, None)
    }

    pub(super) fn plan_endpoints(&self) -> EndpointsPlan {
        plan_endpoints(&self.index().snapshot(&web()), None)
    }

    /// Applies the plan as a server would and returns it.
    pub(super) fn sync(&mut self) -> Plan {
        let plan = self.plan();
        for slice in &plan.create {
            self.writes += 1;
            let name = format!(
                "{}{}",
                slice.metadata.generate_name.as_deref().unwrap(),
                self.writes
            );
            self.store(&name, slice.clone());
        }
        for slice in &plan.update {
            let name = slice.metadata.name.clone().unwrap();
            let stored = &self.slices[&name].metadata;
            assert_eq!(
                slice.metadata.resource_version, stored.resource_version,
                "update without conflict detection"
            );
            self.store(&name, slice.clone());
        }
        for slice in &plan.delete {
            self.slices
                .remove(slice.metadata.name.as_deref().unwrap())
                .expect("deletes what exists");
        }
        plan
    }

    pub(super) fn store(&mut self, name: &str, mut slice: EndpointSlice) {
        self.writes += 1;
        slice.metadata.name = Some(name.into());
        slice.metadata.uid.get_or_insert(format!("uid-{name}"));
        slice.metadata.resource_version = Some(self.writes.to_string());
        self.slices.insert(name.into(), slice);
    }

    pub(super) fn sync_endpoints(&mut self) {
        match self.plan_endpoints() {
            EndpointsPlan::Keep => {}
            EndpointsPlan::Create(endpoints) | EndpointsPlan::Update(endpoints) => {
                self.endpoints = Some(*endpoints)
            }
            EndpointsPlan::Delete(_) => self.endpoints = None,
        }
    }

    pub(super) fn only_slice(&self) -> &EndpointSlice {
        assert_eq!(self.slices.len(), 1, "{:?}", self.slices);
        self.slices.values().next().unwrap()
    }

    pub(super) fn only_endpoint(&self) -> &Endpoint {
        let endpoints = self.only_slice().endpoints.as_ref().unwrap();
        assert_eq!(endpoints.len(), 1, "{endpoints:?}");
        &endpoints[0]
    }

    pub(super) fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<_> = self
            .slices
            .values()
            .map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len))
            .collect();
        sizes.sort_unstable();
        sizes
    }
}

pub(super) fn web() -> ObjectKey {
    ObjectKey::new("shop", "web")
}

pub(super) fn service(patch: Value) -> Service {
    let mut service = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "service-1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "selector": {"app": "a"},
            "clusterIP": "10.0.0.10",
            "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
        },
    });
    merge(&mut service, patch);
    serde_json::from_value(service).unwrap()
}

pub(super) fn pod(name: &str, ip: &str, patch: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "labels": {"app": "a"}},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
        },
    });
    merge(&mut pod, patch);
    serde_json::from_value(pod).unwrap()
}

pub(super) fn node(name: &str, zone: Option<&str>) -> Node {
    let labels = zone.map(|zone| json!({LABEL_ZONE: zone}));
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
}

pub(super) fn not_ready() -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
}

pub(super) fn terminating() -> Value {
    json!({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}})
}

/// A JSON merge patch.
pub(super) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        return *target = patch;
    };
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(&key);
        } else {
            if !target.is_object() {
                *target = json!({});
            }
            merge(&mut target[key], value);
        }
    }
}
