//! Everything the controller knows, and which Services a change touches.
//!
//! Pods are found by their labels and Services by one label of their selector, so a change costs
//! what it touches and not the number of Services times the number of Pods. A change that no
//! endpoint can depend on touches nothing.

use portico_view::key_of;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{Endpoints, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};

use super::{
    LABEL_SERVICE_NAME, LABEL_SLICE_MANAGED_BY, LABEL_ZONE, ObjectKey, PodFacts, SLICE_MANAGER,
    cache::Cache,
    wanted::{Zones, selector},
};
use crate::light::LightService;

/// What a plan for one Service is made from.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The Service; `None` where it is gone.
    pub service: Option<&'a Service>,
    /// The Pods that its selector matches.
    pub pods: Vec<&'a PodFacts>,
    /// The zone of each node.
    pub zones: &'a Zones,
    /// The slices that this controller wrote for it.
    pub slices: Vec<&'a EndpointSlice>,
    /// The Endpoints of its name, if there are any.
    pub endpoints: Option<&'a Endpoints>,
}

/// The kinds that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Services.
    Service,
    /// Pods.
    Pod,
    /// Nodes.
    Node,
    /// EndpointSlices.
    EndpointSlice,
    /// Endpoints.
    Endpoints,
}

/// The objects that are followed, by what plans look them up.
pub struct Index {
    services: BTreeMap<ObjectKey, Arc<LightService>>,
    services_by_label: Postings,
    pods: BTreeMap<ObjectKey, PodFacts>,
    pods_by_label: Postings,
    pods_by_node: HashMap<String, BTreeSet<ObjectKey>>,
    zones: Zones,
    pub(super) slices: Cache<EndpointSlice>,
    pub(super) endpoints: Cache<Endpoints>,
    touched: BTreeSet<ObjectKey>,
    /// Keys seen so far by the lists under way.
    listings: BTreeMap<Kind, BTreeSet<ObjectKey>>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            services: BTreeMap::new(),
            services_by_label: Postings::default(),
            pods: BTreeMap::new(),
            pods_by_label: Postings::default(),
            pods_by_node: HashMap::new(),
            zones: Zones::new(),
            slices: Cache::new(service_of_slice),
            endpoints: Cache::new(|endpoints| Some(key_of(&endpoints.metadata))),
            touched: BTreeSet::new(),
            listings: BTreeMap::new(),
        }
    }
}

impl Index {
    /// The Services touched since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<ObjectKey> {
        mem::take(&mut self.touched)
    }

    /// What the plan for this Service is made from.
    pub fn snapshot(&self, key: &ObjectKey) -> Snapshot<'_> {
        let service = self.services.get(key).map(|service| &service.0);
        Snapshot {
            service,
            pods: service
                .map(|service| self.pods_of(key, service))
                .unwrap_or_default(),
            zones: &self.zones,
            slices: self.slices.of_service(key).collect(),
            endpoints: self.endpoints.of_service(key).next(),
        }
    }

    /// A Service is there, or changed.
    pub fn apply_service(&mut self, service: Arc<LightService>) {
        let key = key_of(&service.0.metadata);
        self.note(Kind::Service, &key);
        if let Some(before) = self.services.get_mut(&key)
            && is_same_service(&before.0, &service.0)
        {
            // The one that others in the process hold as well.
            *before = service;
            return;
        }
        self.forget_service(&key);
        if let Some(label) =
            selector(&service.0).and_then(|selector| self.rarest_label(&key, selector))
        {
            self.services_by_label.insert(label, &key);
        }
        self.services.insert(key.clone(), service);
        self.touched.insert(key);
    }

    /// Forgets a Service.
    pub fn delete_service(&mut self, service: &Service) {
        self.remove_service(&key_of(&service.metadata));
    }

    /// Takes in a Pod as it is now.
    pub fn apply_pod(&mut self, pod: &Pod) {
        let facts = PodFacts::of(pod);
        self.note(Kind::Pod, &facts.key);
        if self.pods.get(&facts.key) == Some(&facts) {
            return;
        }
        self.remove_pod(&facts.key.clone());
        for label in labels_of(&facts.key, &facts.labels) {
            self.pods_by_label.insert(label, &facts.key);
        }
        if let Some(node) = &facts.node {
            self.pods_by_node
                .entry(node.clone())
                .or_default()
                .insert(facts.key.clone());
        }
        self.touch_services_of(&facts);
        self.pods.insert(facts.key.clone(), facts);
    }

    /// Forgets a Pod.
    pub fn delete_pod(&mut self, pod: &Pod) {
        self.remove_pod(&key_of(&pod.metadata));
    }

    /// Takes in a Node as it is now.
    pub fn apply_node(&mut self, node: &Node) {
        let key = key_of(&node.metadata);
        self.note(Kind::Node, &key);
        let zone = node
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(LABEL_ZONE));
        let zone = zone.cloned().filter(|zone| !zone.is_empty());
        let name = key.name.to_string();
        if self.zones.get(&name) != Some(&zone) {
            self.touch_pods_on(&name);
            self.zones.insert(name, zone);
        }
    }

    /// Touches nothing: the node may be registered again in a moment, and its Pods are removed if
    /// not.
    pub fn delete_node(&mut self, node: &Node) {
        self.zones
            .remove(node.metadata.name.as_deref().unwrap_or_default());
    }

    /// An EndpointSlice is there, or changed.
    pub fn apply_slice(&mut self, slice: impl Into<Arc<EndpointSlice>>) {
        self.touched.extend(self.slices.observe(slice));
    }

    /// Forgets an EndpointSlice.
    pub fn delete_slice(&mut self, slice: &EndpointSlice) {
        self.touched.extend(self.slices.observe_deleted(slice));
    }

    /// Takes in Endpoints as they are now.
    pub fn apply_endpoints(&mut self, endpoints: Endpoints) {
        self.touched.extend(self.endpoints.observe(endpoints));
    }

    /// Forgets Endpoints.
    pub fn delete_endpoints(&mut self, endpoints: &Endpoints) {
        self.touched
            .extend(self.endpoints.observe_deleted(endpoints));
    }

    /// A list of a kind begins; what it does not contain is gone when it is complete.
    pub fn begin_list(&mut self, kind: Kind) {
        match kind {
            Kind::EndpointSlice => self.slices.begin_list(),
            Kind::Endpoints => self.endpoints.begin_list(),
            kind => drop(self.listings.insert(kind, BTreeSet::new())),
        }
    }

    /// Forgets objects of this kind that the list that has ended did not have.
    pub fn finish_list(&mut self, kind: Kind) {
        let listed = self.listings.remove(&kind).unwrap_or_default();
        match kind {
            Kind::EndpointSlice => self.touched.extend(self.slices.finish_list()),
            Kind::Endpoints => self.touched.extend(self.endpoints.finish_list()),
            Kind::Service => missing(&self.services, &listed)
                .iter()
                .for_each(|key| self.remove_service(key)),
            Kind::Pod => missing(&self.pods, &listed)
                .iter()
                .for_each(|key| self.remove_pod(key)),
            Kind::Node => self
                .zones
                .retain(|name, _| listed.contains(&ObjectKey::new("", name))),
        }
    }

    fn note(&mut self, kind: Kind, key: &ObjectKey) {
        if let Some(listed) = self.listings.get_mut(&kind) {
            listed.insert(key.clone());
        }
    }

    fn remove_service(&mut self, key: &ObjectKey) {
        self.forget_service(key);
        self.touched.insert(key.clone());
    }

    fn forget_service(&mut self, key: &ObjectKey) {
        let Some(service) = self.services.remove(key) else {
            return;
        };
        for label in selector(&service.0)
            .into_iter()
            .flat_map(|selector| labels_of(key, selector))
        {
            self.services_by_label.remove(&label, key);
        }
    }

    fn remove_pod(&mut self, key: &ObjectKey) {
        let Some(facts) = self.pods.remove(key) else {
            return;
        };
        for label in labels_of(key, &facts.labels) {
            self.pods_by_label.remove(&label, key);
        }
        if let Some(node) = &facts.node
            && let Some(pods) = self.pods_by_node.get_mut(node)
        {
            pods.remove(key);
            if pods.is_empty() {
                self.pods_by_node.remove(node);
            }
        }
        self.touch_services_of(&facts);
    }

    fn touch_services_of(&mut self, pod: &PodFacts) {
        for label in labels_of(&pod.key, &pod.labels) {
            for key in self.services_by_label.get(&label) {
                if self
                    .services
                    .get(key)
                    .and_then(|service| selector(&service.0))
                    .is_some_and(|selector| matches(selector, pod))
                {
                    self.touched.insert(key.clone());
                }
            }
        }
    }

    fn touch_pods_on(&mut self, node: &str) {
        let pods = self.pods_by_node.get(node).cloned().unwrap_or_default();
        for facts in pods
            .iter()
            .filter_map(|pod| self.pods.get(pod).cloned())
            .collect::<Vec<_>>()
        {
            self.touch_services_of(&facts);
        }
    }

    fn pods_of(&self, key: &ObjectKey, service: &Service) -> Vec<&PodFacts> {
        let Some(selector) = selector(service) else {
            return Vec::new();
        };
        let candidates = labels_of(key, selector)
            .map(|label| self.pods_by_label.get(&label))
            .min_by_key(|set| set.len());
        let pods = candidates
            .into_iter()
            .flatten()
            .filter_map(|pod| self.pods.get(pod));
        pods.filter(|pod| matches(selector, pod)).collect()
    }

    /// The label of a selector that the fewest Services are listed under.
    fn rarest_label(&self, key: &ObjectKey, selector: &BTreeMap<String, String>) -> Option<String> {
        labels_of(key, selector).min_by_key(|label| self.services_by_label.get(label).len())
    }
}

/// Keys of objects by label.
#[derive(Default)]
struct Postings {
    keys: HashMap<String, BTreeSet<ObjectKey>>,
}

static NOTHING: BTreeSet<ObjectKey> = BTreeSet::new();

impl Postings {
    fn get(&self, label: &str) -> &BTreeSet<ObjectKey> {
        self.keys.get(label).unwrap_or(&NOTHING)
    }

    fn insert(&mut self, label: String, key: &ObjectKey) {
        self.keys.entry(label).or_default().insert(key.clone());
    }

    fn remove(&mut self, label: &str, key: &ObjectKey) {
        let Some(keys) = self.keys.get_mut(label) else {
            return;
        };
        keys.remove(key);
        if keys.is_empty() {
            self.keys.remove(label);
        }
    }
}

/// Neither a namespace nor a label contains `=`, and a namespace no `/`: the text stands for one
/// label in one namespace.
fn labels_of<'a>(
    key: &'a ObjectKey,
    labels: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = String> + 'a {
    labels
        .iter()
        .map(|(name, value)| format!("{}/{name}={value}", key.namespace))
}

fn matches(selector: &BTreeMap<String, String>, pod: &PodFacts) -> bool {
    selector
        .iter()
        .all(|(name, value)| pod.labels.get(name) == Some(value))
}

fn is_same_service(before: &Service, after: &Service) -> bool {
    let (a, b) = (&before.metadata, &after.metadata);
    before.spec == after.spec
        && a.uid == b.uid
        && a.labels == b.labels
        && a.annotations == b.annotations
        && a.deletion_timestamp == b.deletion_timestamp
}

fn service_of_slice(slice: &EndpointSlice) -> Option<ObjectKey> {
    let labels = slice.metadata.labels.as_ref()?;
    let name = labels
        .get(LABEL_SERVICE_NAME)
        .filter(|name| !name.is_empty())?;
    let is_own = labels
        .get(LABEL_SLICE_MANAGED_BY)
        .is_some_and(|manager| manager == SLICE_MANAGER);
    is_own.then(|| {
        ObjectKey::new(
            slice.metadata.namespace.as_deref().unwrap_or_default(),
            name,
        )
    })
}

fn missing<V>(known: &BTreeMap<ObjectKey, V>, listed: &BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
    known
        .keys()
        .filter(|key| !listed.contains(*key))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests;
