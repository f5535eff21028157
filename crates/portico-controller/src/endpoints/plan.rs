//! What has to be written so that the slices of one Service hold the endpoints it should have: a
//! pure function of the Service, its Pods and the slices there are.
//!
//! Slices that the Service no longer needs are reused before new ones are made, so a change of
//! ports is one update per slice and clients never see the Service without endpoints.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::Service, discovery::v1::EndpointSlice},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use portico_model::table::Family;

use super::{
    ANNOTATION_TRIGGER_TIME, LABEL_SERVICE_NAME, LABEL_SLICE_MANAGED_BY, SLICE_MANAGER, Snapshot,
    placement::{Placement, place},
    wanted::{self, Group, Port, families, groups, port_set},
};

/// Writes in the order in which they are made: an endpoint that moves is in two slices for a
/// moment, never in none.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Without a name: the server makes one from `generateName`.
    pub create: Vec<EndpointSlice>,
    /// With the resourceVersion that the plan was made from.
    pub update: Vec<EndpointSlice>,
    /// Slices to delete.
    pub delete: Vec<EndpointSlice>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }

    fn extend(&mut self, other: Self) {
        self.create.extend(other.create);
        self.update.extend(other.update);
        self.delete.extend(other.delete);
    }
}

/// The slices of a Service that is gone are removed; the slices of one without a selector belong to
/// other programs.
pub fn plan(
    snapshot: &Snapshot<'_>,
    max_per_slice: usize,
    trigger_time: Option<Timestamp>,
) -> Plan {
    let slices = snapshot
        .slices
        .iter()
        .copied()
        .filter(|slice| slice.metadata.deletion_timestamp.is_none());
    let Some(service) = snapshot.service else {
        return Plan {
            delete: slices.cloned().collect(),
            ..Plan::default()
        };
    };
    if wanted::selector(service).is_none() {
        return Plan::default();
    }
    let families = families(service);
    let (served, unserved): (Vec<_>, Vec<_>) = slices.partition(|slice| {
        families
            .iter()
            .any(|family| family.as_str() == slice.address_type)
    });
    let mut plan = Plan {
        delete: unserved.into_iter().cloned().collect(),
        ..Plan::default()
    };
    for family in families {
        let existing = served
            .iter()
            .copied()
            .filter(|slice| slice.address_type == family.as_str());
        plan.extend(plan_family(
            service,
            family,
            existing.collect(),
            snapshot,
            max_per_slice,
        ));
    }
    // A Service that is being deleted loses its slices soon; new ones would race with that.
    if service.metadata.deletion_timestamp.is_some() {
        plan.create.clear();
    }
    plan.create
        .iter_mut()
        .chain(&mut plan.update)
        .for_each(|slice| set_trigger_time(&mut slice.metadata, trigger_time));
    plan
}

fn plan_family(
    service: &Service,
    family: Family,
    existing: Vec<&EndpointSlice>,
    snapshot: &Snapshot<'_>,
    max_per_slice: usize,
) -> Plan {
    let template = Template {
        service,
        family,
        labels: slice_labels(service),
    };
    let total = existing.len();
    let (mut by_ports, mut unwanted) = by_port_set(service, existing);
    let mut plan = Plan::default();
    for (ports, group) in groups(service, &snapshot.pods, snapshot.zones, family) {
        let existing = by_ports.remove(&ports).unwrap_or_default();
        unwanted.extend(plan_group(
            &template,
            &group,
            existing,
            max_per_slice,
            &mut plan,
        ));
    }
    unwanted.extend(by_ports.into_values().flatten());
    // A slice that has emptied stays as a placeholder; a Service that never had an endpoint needs
    // none.
    if total > 0 && unwanted.len() == total && plan.create.is_empty() {
        match unwanted.as_slice() {
            [only] if template.is_placeholder(only) => unwanted.clear(),
            _ => plan.create.push(template.slice(&[], Vec::new())),
        }
    }
    reuse(service, unwanted, &mut plan);
    plan
}

/// Slices of this very Service by the ports they hold, and those left by an earlier Service of the
/// same name.
fn by_port_set<'a>(
    service: &Service,
    slices: Vec<&'a EndpointSlice>,
) -> (
    BTreeMap<Vec<Port>, Vec<&'a EndpointSlice>>,
    Vec<&'a EndpointSlice>,
) {
    let mut by_ports: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let (own, foreign): (Vec<_>, Vec<_>) = slices
        .into_iter()
        .partition(|slice| is_owned(slice, service));
    for slice in own {
        let ports = slice.ports.iter().flatten().map(Port::of).collect();
        by_ports.entry(port_set(ports)).or_default().push(slice);
    }
    (by_ports, foreign)
}

/// Adds what one group needs to the plan and returns the slices it has no use for.
fn plan_group<'a>(
    template: &Template<'_>,
    group: &Group,
    existing: Vec<&'a EndpointSlice>,
    max_per_slice: usize,
    plan: &mut Plan,
) -> Vec<&'a EndpointSlice> {
    let Placement {
        kept,
        added,
        emptied,
    } = place(group, &existing, &template.labels, max_per_slice);
    for slot in kept.into_iter().filter(|slot| slot.changed) {
        let mut slice = slot.slice.clone();
        slice.endpoints = Some(slot.endpoints);
        slice.metadata.labels = Some(template.labels.clone());
        plan.update.push(slice);
    }
    plan.create.extend(
        added
            .into_iter()
            .map(|endpoints| template.slice(&group.ports, endpoints)),
    );
    emptied
}

/// Turns pairs of a new and an unwanted slice into updates; what is left over is deleted.
fn reuse(service: &Service, unwanted: Vec<&EndpointSlice>, plan: &mut Plan) {
    for old in unwanted {
        let new = if is_owned(old, service) {
            plan.create.pop()
        } else {
            None
        };
        match new {
            Some(new) => plan.update.push(EndpointSlice {
                metadata: reused_meta(old, new.metadata),
                ..new
            }),
            None => plan.delete.push(old.clone()),
        }
    }
}

fn reused_meta(old: &EndpointSlice, new: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        labels: new.labels,
        owner_references: new.owner_references,
        ..old.metadata.clone()
    }
}

/// What every slice of one Service and family has in common.
struct Template<'a> {
    service: &'a Service,
    family: Family,
    labels: BTreeMap<String, String>,
}

impl Template<'_> {
    fn slice(
        &self,
        ports: &[Port],
        endpoints: Vec<k8s_openapi::api::discovery::v1::Endpoint>,
    ) -> EndpointSlice {
        let meta = &self.service.metadata;
        EndpointSlice {
            address_type: self.family.as_str().into(),
            endpoints: Some(endpoints),
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", meta.name.as_deref().unwrap_or_default())),
                namespace: meta.namespace.clone(),
                labels: Some(self.labels.clone()),
                owner_references: Some(vec![owner_reference(self.service)]),
                ..ObjectMeta::default()
            },
            ports: Some(ports.iter().map(Port::to_endpoint_port).collect()),
        }
    }

    /// A Service without endpoints has one empty slice, so that clients can tell "none" from "not
    /// known yet".
    fn is_placeholder(&self, slice: &EndpointSlice) -> bool {
        slice.endpoints.iter().flatten().next().is_none()
            && slice.ports.iter().flatten().next().is_none()
            && slice.metadata.labels.as_ref() == Some(&self.labels)
            && is_owned(slice, self.service)
    }
}

fn slice_labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = wanted::copied_labels(service, &[LABEL_SERVICE_NAME, LABEL_SLICE_MANAGED_BY]);
    labels.insert(
        LABEL_SERVICE_NAME.into(),
        service.metadata.name.clone().unwrap_or_default(),
    );
    labels.insert(LABEL_SLICE_MANAGED_BY.into(), SLICE_MANAGER.into());
    labels
}

fn owner_reference(service: &Service) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Service".into(),
        name: service.metadata.name.clone().unwrap_or_default(),
        uid: service.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn is_owned(slice: &EndpointSlice, service: &Service) -> bool {
    slice
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| {
            owner.api_version == "v1"
                && owner.kind == "Service"
                && Some(&owner.uid) == service.metadata.uid.as_ref()
        })
}

/// Clients measure from this time to their own update; a stale one would mislead them.
pub(super) fn set_trigger_time(meta: &mut ObjectMeta, trigger_time: Option<Timestamp>) {
    let annotations = meta.annotations.get_or_insert_default();
    match trigger_time {
        Some(time) => annotations.insert(ANNOTATION_TRIGGER_TIME.into(), time.to_string()),
        None => annotations.remove(ANNOTATION_TRIGGER_TIME),
    };
    if annotations.is_empty() {
        meta.annotations = None;
    }
}
