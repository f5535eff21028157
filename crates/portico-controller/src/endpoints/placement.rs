//! Which endpoint goes into which slice, for endpoints that share ports and family.
//!
//! Every write of a slice is sent to every node, so writes are what is saved: endpoints stay where
//! they are; slices that change anyway are filled first; the rest goes into one slice that is left
//! alone so far, if it fits, and else into new ones. Slices are not merged: that would cost more
//! than the space it saves.

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::wanted::{EndpointId, Group};

pub(super) struct Placement<'a> {
    pub kept: Vec<Slot<'a>>,
    /// Endpoints of slices to be created.
    pub added: Vec<Vec<Endpoint>>,
    /// Slices none of whose endpoints is wanted any more.
    pub emptied: Vec<&'a EndpointSlice>,
}

/// An existing slice and the endpoints it should hold.
pub(super) struct Slot<'a> {
    pub slice: &'a EndpointSlice,
    pub endpoints: Vec<Endpoint>,
    pub changed: bool,
}

type Homeless<'a> = BTreeMap<EndpointId, &'a Endpoint>;

pub(super) fn place<'a>(
    group: &Group,
    existing: &[&'a EndpointSlice],
    labels: &BTreeMap<String, String>,
    max_per_slice: usize,
) -> Placement<'a> {
    let max = max_per_slice.max(1);
    let mut homeless: Homeless<'_> = group
        .endpoints
        .iter()
        .map(|(id, endpoint)| (id.clone(), endpoint))
        .collect();
    let mut kept = Vec::new();
    let mut emptied = Vec::new();
    for slice in existing {
        let had = slice.endpoints.as_ref().map_or(0, Vec::len);
        let mut slot = keep(slice, &mut homeless, max);
        slot.changed |= slice.metadata.labels.as_ref() != Some(labels);
        if slot.endpoints.is_empty() && had > 0 {
            emptied.push(*slice)
        } else {
            kept.push(slot)
        }
    }
    fill_changed(&mut kept, &mut homeless, max);
    fill_one_unchanged(&mut kept, &mut homeless, max);
    let mut added = Vec::new();
    while !homeless.is_empty() {
        let mut endpoints = Vec::new();
        fill(&mut endpoints, &mut homeless, max);
        added.push(endpoints);
        fill_one_unchanged(&mut kept, &mut homeless, max);
    }
    Placement {
        kept,
        added,
        emptied,
    }
}

/// Keeps the wanted endpoints of a slice, in their order, as they should be now.
fn keep<'a>(slice: &'a EndpointSlice, homeless: &mut Homeless<'_>, max: usize) -> Slot<'a> {
    let mut slot = Slot {
        slice,
        endpoints: Vec::new(),
        changed: false,
    };
    for endpoint in slice.endpoints.iter().flatten() {
        let room = slot.endpoints.len() < max;
        match room
            .then(|| homeless.remove(&EndpointId::of(endpoint)))
            .flatten()
        {
            Some(wanted) => {
                slot.changed |= !is_same(endpoint, wanted);
                slot.endpoints.push(wanted.clone());
            }
            None => slot.changed = true,
        }
    }
    slot
}

fn fill_changed(slots: &mut [Slot<'_>], homeless: &mut Homeless<'_>, max: usize) {
    let mut changed: Vec<_> = slots.iter_mut().filter(|slot| slot.changed).collect();
    changed.sort_by_key(|slot| std::cmp::Reverse(slot.endpoints.len()));
    for slot in changed {
        fill(&mut slot.endpoints, homeless, max);
    }
}

/// Puts all that is left into the slice it fills best, or into none.
fn fill_one_unchanged(slots: &mut [Slot<'_>], homeless: &mut Homeless<'_>, max: usize) {
    let count = homeless.len();
    if count == 0 || count >= max {
        return;
    }
    let fits = slots
        .iter_mut()
        .filter(|slot| !slot.changed && slot.endpoints.len() + count <= max);
    if let Some(slot) = fits.max_by_key(|slot| slot.endpoints.len()) {
        fill(&mut slot.endpoints, homeless, max);
        slot.changed = true;
    }
}

fn fill(endpoints: &mut Vec<Endpoint>, homeless: &mut Homeless<'_>, max: usize) {
    while endpoints.len() < max
        && let Some((_, endpoint)) = homeless.pop_first()
    {
        endpoints.push(endpoint.clone());
    }
}

/// Equal apart from the version of the Pod, which changes for reasons that are no business of an
/// endpoint.
fn is_same(existing: &Endpoint, wanted: &Endpoint) -> bool {
    let mut existing = existing.clone();
    if let Some(target) = &mut existing.target_ref {
        target.resource_version = None;
    }
    existing == *wanted
}
