//! The essentials of a pod: its containers with names, images and ports, and what clients select
//! and schedule by.

use super::{CONTAINER_LISTS, qualified_name};
use crate::field::{Error, Errors, Path};
use crate::kinds::checks::{self, invalid_all};
use crate::{names, object};
use serde_json::Value;
use std::collections::BTreeSet;

const INIT_ONLY: &str = "may not be set for init containers without restartPolicy=Always";

pub(super) fn spec(pod: &Value) -> Errors {
    let path = Path::new("spec");
    let spec = object::at(pod, "spec");
    let mut errors = volumes(spec, &path.child("volumes"));
    if object::items(spec, "containers").is_empty() {
        errors.push(Error::required(&path.child("containers"), ""));
    }
    let mut container_names = BTreeSet::new();
    for list in CONTAINER_LISTS {
        errors.extend(containers(
            spec,
            list,
            &path.child(list),
            &mut container_names,
        ));
    }
    errors.extend(host_ports(spec, &path.child("containers")));
    errors.extend(scalars(spec, &path));
    errors.extend(lists(spec, &path));
    errors
}

fn scalars(spec: &Value, path: &Path) -> Errors {
    let text = |key: &str| object::text(spec, key);
    let policies = ["Always", "OnFailure", "Never"];
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    let mut errors = checks::word(
        text("restartPolicy"),
        &path.child("restartPolicy"),
        &policies,
    );
    errors.extend(checks::word(
        text("dnsPolicy"),
        &path.child("dnsPolicy"),
        &dns,
    ));
    errors.extend(checks::labels(
        object::at(spec, "nodeSelector"),
        &path.child("nodeSelector"),
    ));
    for key in [
        "serviceAccountName",
        "nodeName",
        "priorityClassName",
        "runtimeClassName",
    ] {
        errors.extend(checks::dns_subdomain(spec, key, path));
    }
    for key in ["hostname", "subdomain"] {
        errors.extend(checks::dns_label(spec, key, path));
    }
    let deadline = object::at(spec, "activeDeadlineSeconds").as_i64();
    if let Some(seconds) = deadline.filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds)) {
        let message = "must be between 1 and 2147483647, inclusive";
        errors.push(Error::invalid(
            &path.child("activeDeadlineSeconds"),
            seconds,
            message,
        ));
    }
    errors
}

fn lists(spec: &Value, path: &Path) -> Errors {
    let mut errors = tolerations(spec, &path.child("tolerations"));
    for (index, alias) in object::items(spec, "hostAliases").iter().enumerate() {
        let path = path.child("hostAliases").index(index);
        errors.extend(checks::address(
            object::text(alias, "ip"),
            &path.child("ip"),
        ));
        for (index, name) in object::items(alias, "hostnames")
            .iter()
            .filter_map(Value::as_str)
            .enumerate()
        {
            errors.extend(invalid_all(
                &path.child("hostnames").index(index),
                name,
                names::dns_subdomain(name, false),
            ));
        }
    }
    for (index, gate) in object::items(spec, "readinessGates").iter().enumerate() {
        let path = path
            .child("readinessGates")
            .index(index)
            .child("conditionType");
        errors.extend(qualified_name(object::text(gate, "conditionType"), &path));
    }
    let mut seen = BTreeSet::new();
    for (index, gate) in object::items(spec, "schedulingGates").iter().enumerate() {
        let (name, path) = (
            object::text(gate, "name"),
            path.child("schedulingGates").index(index),
        );
        errors.extend(qualified_name(name, &path));
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path, name));
        }
    }
    errors
}

fn volumes(spec: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (index, volume) in object::items(spec, "volumes").iter().enumerate() {
        let path = path.index(index).child("name");
        let name = object::text(volume, "name");
        errors.extend(required_label(name, &path));
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path, name));
        }
    }
    errors
}

fn required_label(name: &str, path: &Path) -> Errors {
    match name {
        "" => vec![Error::required(path, "")],
        name => invalid_all(path, name, names::dns_label(name, false)),
    }
}

/// Containers share one space of names over their three lists.
fn containers<'a>(
    spec: &'a Value,
    list: &str,
    path: &Path,
    seen: &mut BTreeSet<&'a str>,
) -> Errors {
    let mut errors = Errors::new();
    for (index, one) in object::items(spec, list).iter().enumerate() {
        let path = path.index(index);
        errors.extend(container(one, spec, &path));
        let name = object::text(one, "name");
        if !seen.insert(name) && !name.is_empty() {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
        if list == "initContainers" && object::text(one, "restartPolicy") != "Always" {
            let set = [
                "lifecycle",
                "livenessProbe",
                "readinessProbe",
                "startupProbe",
            ];
            let set = set.into_iter().filter(|key| one.get(*key).is_some());
            errors.extend(set.map(|key| Error::forbidden(&path.child(key), INIT_ONLY)));
        }
    }
    errors
}

fn container(container: &Value, spec: &Value, path: &Path) -> Errors {
    let text = |key: &str| object::text(container, key);
    let mut errors = required_label(text("name"), &path.child("name"));
    match text("image") {
        "" => errors.push(Error::required(&path.child("image"), "")),
        image if image.trim() != image => {
            let message = "must not have leading or trailing whitespace";
            errors.push(Error::invalid(&path.child("image"), image, message));
        }
        _ => {}
    }
    let policies = ["File", "FallbackToLogsOnError"];
    let policy = "terminationMessagePolicy";
    errors.extend(checks::word(text(policy), &path.child(policy), &policies));
    let pulls = ["Always", "IfNotPresent", "Never"];
    errors.extend(checks::word(
        text("imagePullPolicy"),
        &path.child("imagePullPolicy"),
        &pulls,
    ));
    errors.extend(ports(container, &path.child("ports")));
    errors.extend(environment(container, &path.child("env")));
    errors.extend(mounts(container, spec, &path.child("volumeMounts")));
    errors.extend(resources(container, &path.child("resources")));
    errors
}

fn ports(container: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (index, port) in object::items(container, "ports").iter().enumerate() {
        let path = path.index(index);
        let name = object::text(port, "name");
        let problems = if name.is_empty() {
            Vec::new()
        } else {
            names::port_name(name)
        };
        if !name.is_empty() && problems.is_empty() && !seen.insert(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
        errors.extend(invalid_all(&path.child("name"), name, problems));
        for key in ["containerPort", "hostPort"] {
            let number = object::at(port, key).as_i64().unwrap_or_default();
            match (number, key) {
                (0, "containerPort") => errors.push(Error::required(&path.child(key), "")),
                (0, _) => {}
                _ => errors.extend(
                    names::port_number(number)
                        .into_iter()
                        .map(|why| Error::invalid(&path.child(key), number, why)),
                ),
            }
        }
        errors.extend(checks::protocol(
            object::text(port, "protocol"),
            &path.child("protocol"),
        ));
    }
    errors
}

fn environment(container: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (index, name) in object::items(container, "env")
        .iter()
        .map(|one| object::text(one, "name"))
        .enumerate()
    {
        let path = path.index(index).child("name");
        let printable = name
            .bytes()
            .all(|b| (b' '..=b'~').contains(&b) && b != b'=');
        match (name, printable) {
            ("", _) => errors.push(Error::required(&path, "")),
            (_, false) => {
                let message = "a valid environment variable name must consist only of printable ASCII \
                               characters other than '='";
                errors.push(Error::invalid(&path, name, message));
            }
            _ => {}
        }
    }
    errors
}

fn mounts(container: &Value, spec: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (index, mount) in object::items(container, "volumeMounts").iter().enumerate() {
        let path = path.index(index);
        let (name, at) = (
            object::text(mount, "name"),
            object::text(mount, "mountPath"),
        );
        if name.is_empty() {
            errors.push(Error::required(&path.child("name"), ""));
        }
        if !object::items(spec, "volumes")
            .iter()
            .any(|volume| object::text(volume, "name") == name)
        {
            errors.push(Error::not_found(&path.child("name"), name));
        }
        if at.is_empty() {
            errors.push(Error::required(&path.child("mountPath"), ""));
        }
        if !seen.insert(at) {
            errors.push(Error::invalid(
                &path.child("mountPath"),
                at,
                "must be unique",
            ));
        }
    }
    errors
}

fn resources(container: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let amounts = |list: &str| {
        object::at(object::at(container, "resources"), list)
            .as_object()
            .into_iter()
            .flatten()
    };
    for list in ["limits", "requests"] {
        let negative = amounts(list)
            .filter(|(_, amount)| checks::quantity(amount).is_some_and(|amount| amount < 0.0));
        errors.extend(negative.map(|(name, amount)| {
            Error::invalid(
                &path.child(list).key(name),
                amount.clone(),
                "must be greater than or equal to 0",
            )
        }));
    }
    for (name, limit) in amounts("limits") {
        let request = object::at(container, "resources.requests").get(name);
        if request.and_then(checks::quantity) > checks::quantity(limit) {
            let request = request.cloned().unwrap_or(Value::Null);
            let message = format!(
                "must be less than or equal to {name} limit of {}",
                limit.as_str().unwrap_or_default()
            );
            errors.push(Error::invalid(&path.child("requests"), request, message));
        }
    }
    errors
}

fn host_ports(spec: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    let host_network = object::at(spec, "hostNetwork") == true;
    for (index, container) in object::items(spec, "containers").iter().enumerate() {
        for (port_index, port) in object::items(container, "ports").iter().enumerate() {
            let path = path
                .index(index)
                .child("ports")
                .index(port_index)
                .child("hostPort");
            let number = |key: &str| object::at(port, key).as_i64().unwrap_or_default();
            let host = number("hostPort");
            let key = format!(
                "{}/{}/{host}",
                object::text(port, "protocol"),
                object::text(port, "hostIP")
            );
            if host != 0 && !seen.insert(key.clone()) {
                errors.push(Error::duplicate(&path, key));
            }
            if host_network && host != number("containerPort") {
                let message = "must match `containerPort` when `hostNetwork` is true";
                errors.push(Error::invalid(&path, host, message));
            }
        }
    }
    errors
}

pub(super) fn tolerations(spec: &Value, path: &Path) -> Errors {
    let tolerations = object::items(spec, "tolerations").iter().enumerate();
    tolerations
        .flat_map(|(index, one)| toleration(one, &path.index(index)))
        .collect()
}

fn toleration(toleration: &Value, path: &Path) -> Errors {
    let text = |name: &str| object::text(toleration, name);
    let (key, operator, value, effect) =
        (text("key"), text("operator"), text("value"), text("effect"));
    let operator_path = path.child("operator");
    let mut errors = Errors::new();
    if !key.is_empty() {
        errors.extend(qualified_name(key, &path.child("key")));
    } else if operator != "Exists" {
        let message = "operator must be Exists when `key` is empty, which means \"match all values and \
                       all keys\"";
        errors.push(Error::invalid(&operator_path, operator, message));
    }
    if toleration.get("tolerationSeconds").is_some() && effect != "NoExecute" {
        let message = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(Error::invalid(&path.child("effect"), effect, message));
    }
    match operator {
        "Equal" | "" => errors.extend(invalid_all(
            &operator_path,
            value,
            names::label_value(value),
        )),
        "Exists" if !value.is_empty() => {
            errors.push(Error::invalid(
                &operator_path,
                value,
                "value must be empty when `operator` is 'Exists'",
            ));
        }
        "Exists" => {}
        unknown => errors.push(Error::not_supported(
            &operator_path,
            unknown,
            &["Equal", "Exists"],
        )),
    }
    if !effect.is_empty() {
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        errors.extend(checks::word(effect, &path.child("effect"), &effects));
    }
    errors
}
