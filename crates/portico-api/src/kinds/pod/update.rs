//! What may change in a pod: images, the deadline, added tolerations, removed scheduling gates; and
//! its status.

use super::{qualified_name, validation};
use crate::field::{Error, Errors, Path};
use crate::kinds::checks;
use crate::object;
use serde_json::Value;
use std::collections::HashSet;

const CHANGEABLE: &str = "pod updates may not change fields other than \
         `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
         (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it \
         to be set to 1 if it was previously negative)";

pub(super) fn validate(new: &Value, old: &Value) -> Errors {
    let path = Path::new("spec");
    let (spec, before) = (object::at(new, "spec"), object::at(old, "spec"));
    for list in ["containers", "initContainers"] {
        if object::items(spec, list).len() != object::items(before, list).len() {
            let message = "pod updates may not add or remove containers";
            return vec![Error::forbidden(&path.child(list), message)];
        }
    }
    let mut errors = deadline(spec, before, &path.child("activeDeadlineSeconds"));
    errors.extend(tolerations(spec, before, &path.child("tolerations")));
    errors.extend(gates(spec, before, &path.child("schedulingGates")));
    if !same_but_changeable(spec, before) {
        errors.push(Error::forbidden(&path, CHANGEABLE));
    }
    errors
}

fn deadline(spec: &Value, before: &Value, path: &Path) -> Errors {
    let seconds = |spec: &Value| object::at(spec, "activeDeadlineSeconds").as_i64();
    match (seconds(spec), seconds(before)) {
        (Some(now), Some(then)) if then < now => {
            vec![Error::invalid(
                path,
                now,
                "must be less than or equal to previous value",
            )]
        }
        (None, Some(_)) => {
            vec![Error::invalid(
                path,
                Value::Null,
                "must not update from a positive integer to nil value",
            )]
        }
        _ => Errors::new(),
    }
}

/// Tolerations can be added; of those there are only the seconds can change.
fn tolerations(spec: &Value, before: &Value, path: &Path) -> Errors {
    let but_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        object::map(&mut toleration).remove("tolerationSeconds");
        toleration
    };
    let kept: HashSet<Value> = object::items(spec, "tolerations")
        .iter()
        .map(but_seconds)
        .collect();
    if object::items(before, "tolerations")
        .iter()
        .all(|old| kept.contains(&but_seconds(old)))
    {
        return validation::tolerations(spec, path);
    }
    vec![Error::forbidden(
        path,
        "existing toleration can not be modified except its tolerationSeconds",
    )]
}

fn gates(spec: &Value, before: &Value, path: &Path) -> Errors {
    let known = object::items(before, "schedulingGates");
    let added = object::items(spec, "schedulingGates")
        .iter()
        .enumerate()
        .filter(|(_, gate)| !known.contains(gate));
    added
        .map(|(index, gate)| {
            let name = object::text(gate, "name");
            let message =
                format!("only deletion is allowed, but found new scheduling gate '{name}'");
            Error::forbidden(&path.index(index).child("name"), message)
        })
        .collect()
}

fn same_but_changeable(spec: &Value, before: &Value) -> bool {
    let mut masked = spec.clone();
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        object::copy_key(before, &mut masked, key);
    }
    for list in ["containers", "initContainers"] {
        let containers = checks::items_mut(&mut masked, list).zip(object::items(before, list));
        containers.for_each(|(container, old)| object::copy_key(old, container, "image"));
    }
    // A pod that still waits for its gates may be narrowed to fewer nodes.
    if !object::items(before, "schedulingGates").is_empty() && narrows(spec, before) {
        object::copy_key(before, &mut masked, "nodeSelector");
    }
    masked == *before
}

fn narrows(spec: &Value, before: &Value) -> bool {
    let selector = object::at(spec, "nodeSelector");
    let old = object::at(before, "nodeSelector").as_object();
    old.into_iter()
        .flatten()
        .all(|(key, value)| selector.get(key) == Some(value))
}

pub(super) fn validate_status(new: &Value, old: &Value) -> Errors {
    let path = Path::new("status");
    let (status, before) = (object::at(new, "status"), object::at(old, "status"));
    let mut errors = conditions(status, &path.child("conditions"));
    errors.extend(nominated_node(new, old, &path));
    if object::at(status, "observedGeneration")
        .as_i64()
        .is_some_and(|generation| generation < 0)
    {
        let generation = object::at(status, "observedGeneration").clone();
        errors.push(Error::invalid(
            &path.child("observedGeneration"),
            generation,
            "must be a non-negative integer",
        ));
    }
    let class = "qosClass";
    errors.extend(checks::immutable(
        object::at(status, class),
        object::at(before, class),
        &path.child(class),
    ));
    for list in ["containerStatuses", "initContainerStatuses"] {
        errors.extend(not_revived(new, old, list, &path.child(list)));
    }
    for list in ["podIPs", "hostIPs"] {
        errors.extend(checks::one_per_family(
            object::items(status, list),
            &path.child(list),
        ));
    }
    if let Some(first) = object::items(status, "hostIPs")
        .first()
        .map(|ip| object::text(ip, "ip"))
        && first != object::text(status, "hostIP")
    {
        let path = path.child("hostIPs").index(0).child("ip");
        errors.push(Error::invalid(&path, first, "must be equal to `hostIP`"));
    }
    errors
}

fn conditions(status: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (index, condition) in object::items(status, "conditions").iter().enumerate() {
        let path = path.index(index);
        let generation = object::at(condition, "observedGeneration")
            .as_i64()
            .unwrap_or_default();
        if generation < 0 {
            let message = "must be a non-negative integer";
            errors.push(Error::invalid(
                &path.child("observedGeneration"),
                generation,
                message,
            ));
        }
        errors.extend(qualified_name(
            object::text(condition, "type"),
            &path.child("Type"),
        ));
    }
    errors
}

fn nominated_node(new: &Value, old: &Value, path: &Path) -> Errors {
    let key = "nominatedNodeName";
    let (status, before) = (object::at(new, "status"), object::at(old, "status"));
    let name = object::text(status, key);
    if name.is_empty() || name == object::text(before, key) {
        return Errors::new();
    }
    let mut errors = checks::dns_subdomain(status, key, path);
    if !object::text(old, "spec.nodeName").is_empty() {
        let message = "may not be set on pods that are already bound to a node";
        errors.push(Error::forbidden(&path.child(key), message));
    }
    errors
}

/// A container that has ended stays so where the pod does not restart it.
fn not_revived(new: &Value, old: &Value, list: &str, path: &Path) -> Errors {
    let policy = object::text(old, "spec.restartPolicy");
    let statuses = |pod: &'_ Value| object::items(object::at(pod, "status"), list).to_vec();
    let (now, mut errors) = (statuses(new), Errors::new());
    for (index, status) in statuses(old).iter().enumerate() {
        let ended = object::at(status, "state.terminated");
        let failed = object::at(ended, "exitCode").as_i64().unwrap_or_default() != 0;
        if ended.is_null() || policy == "Always" || (policy == "OnFailure" && failed) {
            continue;
        }
        let name = object::text(status, "name");
        let revived = |one: &Value| {
            object::text(one, "name") == name && object::at(one, "state.terminated").is_null()
        };
        if now.iter().any(revived) {
            let message = "may not be transitioned to non-terminated state";
            errors.push(Error::forbidden(&path.index(index).child("state"), message));
        }
    }
    errors
}
