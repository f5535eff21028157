//! MetalLB's resources become AddressPools and BgpPeers. Pure.
//!
//! There, a pool has addresses and advertisements say how which pools are announced; here a pool
//! says both.

mod advertisements;
mod old;
mod peers;
mod selectors;
#[cfg(test)]
mod tests;

use super::fields::Fields;
use super::report::{Document, File, Remark};
use advertisements::{Advertisement, Way};
use selectors::one_of;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Resources that have no settings of ours in them.
const NOT_READ: &str = "is not read: it has no settings for pools, announcements or peers";
/// A label that no node has.
const NOWHERE: &str = "portico.dev/announce-nowhere";

/// An object of MetalLB, taken apart field by field.
pub(super) struct Resource {
    pub kind: String,
    pub name: String,
    pub namespace: String,
    pub labels: Value,
    pub annotations: Value,
    pub fields: Fields,
}

impl Resource {
    fn new(object: &Value) -> Self {
        let text = |path: &str| {
            object
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let namespace = Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty());
        let value = |path: &str| object.pointer(path).cloned().unwrap_or_default();
        Self {
            kind: text("/kind"),
            name: text("/metadata/name"),
            namespace: namespace.unwrap_or_else(|| "metallb-system".to_owned()),
            labels: value("/metadata/labels"),
            annotations: value("/metadata/annotations"),
            fields: Fields::new(value("/spec")),
        }
    }

    pub(super) fn title(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }

    /// The same name and labels.
    pub(super) fn metadata(&self) -> Value {
        let mut metadata = json!({"name": self.name});
        if self
            .labels
            .as_object()
            .is_some_and(|labels| !labels.is_empty())
        {
            metadata["labels"] = self.labels.clone();
        }
        metadata
    }

    /// A remark for each field that no part of the migration read.
    pub(super) fn left(&self) -> Vec<Remark> {
        let fields = self.fields.left();
        let annotations = self.annotations.as_object().into_iter().flatten();
        let annotations = annotations
            .filter(|(name, _)| *name != "kubectl.kubernetes.io/last-applied-configuration")
            .map(|(name, _)| {
                Remark::Note(format!(
                    "{}: the annotation {name} is left out",
                    self.title()
                ))
            });
        let fields = fields
            .into_iter()
            .map(|field| Remark::Warning(format!("{}: {field} has no equivalent", self.title())));
        fields.chain(annotations).collect()
    }
}

pub(super) fn translate(documents: Vec<Value>) -> File {
    let mut file = File {
        name: "objects.yaml".to_owned(),
        usage: "kubectl apply -f objects.yaml, with deploy/crds and deploy/rbac in place where \
                the API server is not Portico's"
            .to_owned(),
        ..File::default()
    };
    let mut kinds: BTreeMap<String, Vec<Resource>> = BTreeMap::new();
    for object in documents {
        for object in modern(object, &mut file) {
            let resource = Resource::new(&object);
            kinds
                .entry(resource.kind.clone())
                .or_default()
                .push(resource);
        }
    }
    let mut all = |kind: &str| kinds.remove(kind).unwrap_or_default();
    let (pools, communities, routers) = (all("IPAddressPool"), all("Community"), all("BGPPeer"));
    let ways = [
        ("L2Advertisement", Way::Layer2),
        ("BGPAdvertisement", Way::Bgp),
    ];
    let read = ways.map(|(kind, way)| all(kind).into_iter().map(|r| (way, r)).collect::<Vec<_>>());
    let known = advertisements::communities(communities, &mut file);
    let advertisements: Vec<Advertisement> = read
        .into_iter()
        .flatten()
        .map(|(way, resource)| advertisements::read(way, resource, &known, &mut file))
        .collect();
    for resource in kinds.into_values().flatten() {
        match resource.kind.as_str() {
            "BFDProfile" => file.warn(format!(
                "{} has no equivalent: there is no BFD",
                resource.title()
            )),
            "ConfigMap" => file.warn(format!("config: {} has no equivalent", resource.name)),
            _ => file.note(format!("{} {NOT_READ}", resource.title())),
        }
    }
    add_pools(pools, &advertisements, &mut file);
    for router in routers {
        let documents = peers::translate(router, &mut file);
        file.documents.extend(documents);
    }
    file.check_objects();
    file
}

/// Resources of today.
fn modern(object: Value, file: &mut File) -> Vec<Value> {
    let resource = Resource::new(&object);
    match resource.kind.as_str() {
        "AddressPool" => old::address_pool(
            &resource.name,
            resource.labels,
            object.get("spec").cloned().unwrap_or_default(),
        ),
        "ConfigMap" => {
            let Some(text) = object.pointer("/data/config").and_then(Value::as_str) else {
                file.note(format!(
                    "{}: no key `config`, so it is not MetalLB's",
                    resource.title()
                ));
                return Vec::new();
            };
            old::config_map(text).unwrap_or_else(|problem| {
                file.warn(format!(
                    "{}: config cannot be read: {problem}",
                    resource.title()
                ));
                Vec::new()
            })
        }
        _ => vec![object],
    }
}

fn add_pools(pools: Vec<Resource>, advertisements: &[Advertisement], file: &mut File) {
    for advertisement in advertisements {
        for missing in advertisement
            .pools
            .iter()
            .filter(|name| pools.iter().all(|pool| pool.name != **name))
        {
            file.warn(format!(
                "{}: there is no IPAddressPool {missing} in what was read",
                advertisement.title
            ));
        }
    }
    let mut read: Vec<(Resource, i64)> = Vec::new();
    for mut pool in pools {
        let priority = pool
            .fields
            .number("serviceAllocation.priority")
            .unwrap_or_default();
        read.push((pool, priority));
    }
    let last = read
        .iter()
        .map(|(_, priority)| *priority)
        .max()
        .unwrap_or_default();
    for (pool, priority) in read {
        let of_pool: Vec<&Advertisement> =
            advertisements.iter().filter(|a| a.selects(&pool)).collect();
        file.documents
            .push(one_pool(pool, (priority, last), &of_pool));
    }
}

fn one_pool(
    mut pool: Resource,
    (priority, last): (i64, i64),
    advertisements: &[&Advertisement],
) -> Document {
    let (mut spec, mut remarks) = (Map::new(), Vec::new());
    spec.insert(
        "addresses".to_owned(),
        addresses(pool.fields.texts("addresses"), &mut remarks).into(),
    );
    for key in ["autoAssign", "avoidBuggyIPs"] {
        if let Some(value) = pool.fields.switch(key) {
            spec.insert(key.to_owned(), value.into());
        }
    }
    if priority > 0 {
        spec.insert("priority".to_owned(), (last + 1 - priority).into());
        remarks.push(Remark::Note(format!(
            "priority {priority} of MetalLB, where the lowest number is first: here the highest is"
        )));
    }
    let namespaces = pool.fields.texts("serviceAllocation.namespaces");
    if !namespaces.is_empty() {
        spec.insert("namespaces".to_owned(), namespaces.into());
    }
    for (list, key) in [
        ("namespaceSelectors", "namespaceSelector"),
        ("serviceSelectors", "serviceSelector"),
    ] {
        let selectors = pool.fields.list(&format!("serviceAllocation.{list}"));
        if let Some(selector) = one_of(
            &format!("serviceAllocation.{list}"),
            selectors,
            &mut remarks,
        ) {
            spec.insert(key.to_owned(), selector);
        }
    }
    announcing(&mut spec, advertisements, &mut remarks);
    remarks.extend(pool.left());
    let content = json!({
        "apiVersion": "portico.dev/v1",
        "kind": "AddressPool",
        "metadata": pool.metadata(),
        "spec": spec,
    });
    Document { remarks, content }
}

/// Networks without bits of a host.
fn addresses(written: Vec<String>, remarks: &mut Vec<Remark>) -> Vec<String> {
    let mut network = |text: String| match text.parse::<ipnet::IpNet>() {
        Ok(network) if network != network.trunc() => {
            remarks.push(Remark::Note(format!(
                "{text} is the network {}",
                network.trunc()
            )));
            network.trunc().to_string()
        }
        _ => text,
    };
    written.into_iter().map(&mut network).collect()
}

fn announcing(
    spec: &mut Map<String, Value>,
    advertisements: &[&Advertisement],
    remarks: &mut Vec<Remark>,
) {
    if advertisements.is_empty() {
        remarks.push(Remark::Note(format!(
            "no advertisement selects this pool, so MetalLB does not announce it. The label \
             {NOWHERE}, which no node has, keeps it so: remove nodeSelector to have it announced"
        )));
        spec.insert(
            "nodeSelector".to_owned(),
            json!({"matchLabels": {NOWHERE: "true"}}),
        );
        return;
    }
    let of = |way: Way| {
        advertisements
            .iter()
            .copied()
            .filter(|a| a.way == way)
            .collect::<Vec<_>>()
    };
    let (layer2, bgp) = (of(Way::Layer2), of(Way::Bgp));
    let ways = [("Layer2", &layer2), ("BGP", &bgp)];
    let announce: Vec<&str> = ways
        .iter()
        .filter(|(_, some)| !some.is_empty())
        .map(|(name, _)| *name)
        .collect();
    spec.insert("announce".to_owned(), json!(announce));
    if let Some(selector) = advertisements::nodes(advertisements, remarks) {
        spec.insert("nodeSelector".to_owned(), selector);
    }
    // Where one of them names none, all links are meant.
    if layer2.iter().all(|a| !a.interfaces.is_empty()) && !layer2.is_empty() {
        let mut interfaces: Vec<String> =
            layer2.iter().flat_map(|a| a.interfaces.clone()).collect();
        interfaces.sort();
        interfaces.dedup();
        spec.insert("interfaces".to_owned(), interfaces.into());
    }
    if let Some(routes) = advertisements::routes(&bgp, remarks) {
        spec.insert("bgp".to_owned(), routes);
    }
}
