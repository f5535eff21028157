//! Everything that forwarding follows from, before and after: objects by kind and name, and the
//! EndpointSlices that follow from Pods.

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use portico_controller::endpoints::{self, LABEL_SLICE_MANAGED_BY, SLICE_MANAGER};
use portico_controller::light::LightService;
use portico_model::key::ObjectKey;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// As controllers fill slices.
const MOST_ENDPOINTS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Node,
    Pod,
    Service,
    Slice,
    ServiceCidr,
    PortPartition,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Node,
        Self::Pod,
        Self::Service,
        Self::Slice,
        Self::ServiceCidr,
        Self::PortPartition,
    ];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Node => "/api/v1/nodes",
            Self::Pod => "/api/v1/pods",
            Self::Service => "/api/v1/services",
            Self::Slice => "/apis/discovery.k8s.io/v1/endpointslices",
            Self::ServiceCidr => "/apis/networking.k8s.io/v1/servicecidrs",
            Self::PortPartition => "/apis/portico.dev/v1/portpartitions",
        }
    }

    /// `None` for a kind that no packet depends on.
    pub(super) fn of(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("v1", "Node") => Some(Self::Node),
            ("v1", "Pod") => Some(Self::Pod),
            ("v1", "Service") => Some(Self::Service),
            ("discovery.k8s.io/v1", "EndpointSlice") => Some(Self::Slice),
            ("networking.k8s.io/v1", "ServiceCIDR") => Some(Self::ServiceCidr),
            ("portico.dev/v1", "PortPartition") => Some(Self::PortPartition),
            _ => None,
        }
    }
}

pub(super) fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

/// What becomes of an object: `None` is that it goes.
pub(super) type Changes = Vec<(Kind, ObjectKey, Option<Value>)>;

#[derive(Clone, Debug, Default)]
pub(super) struct World {
    objects: BTreeMap<Kind, BTreeMap<ObjectKey, Value>>,
}

impl World {
    pub(super) fn insert(&mut self, kind: Kind, object: Value) {
        self.objects
            .entry(kind)
            .or_default()
            .insert(key_of(&object), object);
    }

    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects
            .get(&kind)
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    pub(super) fn get(&self, kind: Kind, name: &ObjectKey) -> Option<&Value> {
        self.objects.get(&kind)?.get(name)
    }

    pub(super) fn with(&self, changes: &Changes) -> Self {
        let mut after = self.clone();
        for (kind, name, object) in changes {
            let of_kind = after.objects.entry(*kind).or_default();
            match object {
                Some(object) => drop(of_kind.insert(name.clone(), object.clone())),
                None => drop(of_kind.remove(name)),
            }
        }
        after
    }

    /// The changes, and those of EndpointSlices that a controller will make of them.
    pub(super) fn consequences(&self, changes: Changes) -> Changes {
        let mut index = endpoints::Index::default();
        for kind in Kind::ALL {
            self.of(kind)
                .for_each(|object| feed(&mut index, kind, object, true));
        }
        // What is not in step already is not a consequence.
        index.take_touched();
        for (kind, name, object) in &changes {
            match object {
                Some(object) => feed(&mut index, *kind, object, true),
                None => self
                    .get(*kind, name)
                    .into_iter()
                    .for_each(|object| feed(&mut index, *kind, object, false)),
            }
        }
        let mut all = changes;
        for key in index.take_touched() {
            let plan = endpoints::plan(&index.snapshot(&key), MOST_ENDPOINTS, None);
            for (at, mut slice) in plan.create.into_iter().enumerate() {
                slice.metadata.name = Some(format!("{}-planned-{}", key.name, at + 1));
                all.extend(written(slice, true));
            }
            all.extend(
                plan.update
                    .into_iter()
                    .filter_map(|slice| written(slice, true)),
            );
            all.extend(
                plan.delete
                    .into_iter()
                    .filter_map(|slice| written(slice, false)),
            );
        }
        all
    }
}

fn written(slice: EndpointSlice, stays: bool) -> Option<(Kind, ObjectKey, Option<Value>)> {
    let value = serde_json::to_value(slice).ok()?;
    Some((Kind::Slice, key_of(&value), stays.then_some(value)))
}

fn feed(index: &mut endpoints::Index, kind: Kind, object: &Value, stays: bool) {
    match (kind, stays) {
        (Kind::Node, true) => read::<Node>(object)
            .into_iter()
            .for_each(|node| index.apply_node(&node)),
        (Kind::Pod, true) => read::<Pod>(object)
            .into_iter()
            .for_each(|pod| index.apply_pod(&pod)),
        (Kind::Pod, false) => read::<Pod>(object)
            .into_iter()
            .for_each(|pod| index.delete_pod(&pod)),
        (Kind::Service, true) => read::<Service>(object)
            .into_iter()
            .for_each(|one| index.apply_service(Arc::new(LightService(one)))),
        (Kind::Service, false) => read::<Service>(object)
            .into_iter()
            .for_each(|one| index.delete_service(&one)),
        (Kind::Slice, true) if is_made_from_pods(object) => {
            read::<EndpointSlice>(object)
                .into_iter()
                .for_each(|slice| index.apply_slice(slice));
        }
        _ => {}
    }
}

fn is_made_from_pods(slice: &Value) -> bool {
    slice["metadata"]["labels"][LABEL_SLICE_MANAGED_BY] == SLICE_MANAGER
}

/// An object that cannot be read is one that forwarding cannot use either.
fn read<T: DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_value(object.clone()).ok()
}
