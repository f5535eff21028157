//! What a pod gets where its author says nothing.

use super::CONTAINER_LISTS;
use crate::kinds::checks::{fill, fill_absent, in_step, items_mut, quantity};
use crate::object;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(super) fn apply(pod: &mut Value) {
    spec(object::child(pod, "spec"));
    if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
        in_step(status, "podIP", "podIPs", Some("ip"));
    }
}

fn spec(spec: &mut Map<String, Value>) {
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "schedulerName", "default-scheduler");
    fill_absent(spec, "securityContext", json!({}));
    fill_absent(spec, "terminationGracePeriodSeconds", 30);
    fill_absent(spec, "enableServiceLinks", true);
    if spec
        .get("terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        .is_some_and(|seconds| seconds < 0)
    {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    }
    account_alias(spec);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in CONTAINER_LISTS {
        for one in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            container(one, host_network && list != "ephemeralContainers");
        }
    }
    for one in spec
        .get_mut("volumes")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        volume(one);
    }
}

/// `serviceAccount` is an older name of `serviceAccountName`, which wins.
fn account_alias(spec: &mut Map<String, Value>) {
    let name = |key: &str| {
        spec.get(key)
            .filter(|name| name.as_str().is_some_and(|name| !name.is_empty()))
    };
    if let Some(account) = name("serviceAccountName")
        .or(name("serviceAccount"))
        .cloned()
    {
        spec.insert("serviceAccountName".to_owned(), account.clone());
        spec.insert("serviceAccount".to_owned(), account);
    }
}

fn container(container: &mut Value, host_network: bool) {
    let pull = if image_tag(object::text(container, "image")) == "latest" {
        "Always"
    } else {
        "IfNotPresent"
    };
    let map = object::map(container);
    fill(map, "imagePullPolicy", pull);
    fill(map, "terminationMessagePath", "/dev/termination-log");
    fill(map, "terminationMessagePolicy", "File");
    for port in items_mut(container, "ports") {
        let port = object::map(port);
        fill(port, "protocol", "TCP");
        if host_network {
            let number = port.get("containerPort").cloned().unwrap_or(Value::Null);
            fill(port, "hostPort", number);
        }
    }
    for variable in items_mut(container, "env") {
        if let Some(Value::Object(reference)) = variable.pointer_mut("/valueFrom/fieldRef") {
            fill(reference, "apiVersion", "v1");
        }
    }
    requests_from_limits(container);
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(one) = container.get_mut(key).filter(|probe| probe.is_object()) {
            probe(one);
        }
    }
    for hook in ["/lifecycle/postStart", "/lifecycle/preStop"] {
        container.pointer_mut(hook).into_iter().for_each(http_get);
    }
}

/// The tag of an image; one without tag and digest means the latest.
fn image_tag(image: &str) -> &str {
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => tag,
        None if digest.is_empty() && !image.is_empty() => "latest",
        None => "",
    }
}

fn requests_from_limits(container: &mut Value) {
    let limits = object::at(container, "resources.limits").clone();
    let Some(resources) = container
        .get_mut("resources")
        .filter(|_| limits.is_object())
    else {
        return;
    };
    let requests = object::child(resources, "requests");
    for (name, amount) in limits.as_object().into_iter().flatten() {
        fill_absent(requests, name, amount.clone());
    }
}

fn probe(probe: &mut Value) {
    http_get(probe);
    if let Some(Value::Object(grpc)) = probe.get_mut("grpc") {
        fill_absent(grpc, "service", "");
    }
    let map = object::map(probe);
    for (key, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        fill(map, key, value);
    }
}

fn http_get(handler: &mut Value) {
    if let Some(Value::Object(request)) = handler.get_mut("httpGet") {
        fill(request, "path", "/");
        fill(request, "scheme", "HTTP");
    }
}

fn volume(volume: &mut Value) {
    let map = object::map(volume);
    if map.keys().all(|key| key == "name") {
        map.insert("emptyDir".to_owned(), json!({}));
    }
    for kind in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(Value::Object(source)) = map.get_mut(kind) {
            fill_absent(source, "defaultMode", 0o644);
        }
    }
    if let Some(Value::Object(source)) = map.get_mut("hostPath") {
        fill_absent(source, "type", "");
    }
    if let Some(source) = map.get_mut("downwardAPI") {
        downward_items(source);
    }
    for source in map
        .get_mut("projected")
        .into_iter()
        .flat_map(|projected| items_mut(projected, "sources"))
    {
        if let Some(Value::Object(token)) = source.get_mut("serviceAccountToken") {
            fill_absent(token, "expirationSeconds", 3600);
        }
        source
            .get_mut("downwardAPI")
            .into_iter()
            .for_each(downward_items);
    }
}

fn downward_items(source: &mut Value) {
    for item in items_mut(source, "items") {
        if let Some(Value::Object(reference)) = item.get_mut("fieldRef") {
            fill(reference, "apiVersion", "v1");
        }
    }
}

/// Guaranteed when every container has equal requests and limits of processor and memory,
/// BestEffort when none has any.
pub(super) fn qos_class(pod: &Value) -> &'static str {
    let containers = ["spec.containers", "spec.initContainers"]
        .map(|list| object::items(pod, list))
        .concat();
    let amounts = |list: &str| {
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        for container in &containers {
            for name in ["cpu", "memory"] {
                let amount = object::at(object::at(container, "resources"), list)
                    .get(name)
                    .and_then(quantity);
                if let Some(amount) = amount.filter(|amount| *amount > 0.0) {
                    *sums.entry(name).or_default() += amount;
                }
            }
        }
        sums
    };
    let limited = |container: &Value, name: &str| {
        object::at(container, "resources.limits")
            .get(name)
            .and_then(quantity)
            .is_some_and(|amount| amount > 0.0)
    };
    let (requests, limits) = (amounts("requests"), amounts("limits"));
    let all_limited = containers
        .iter()
        .all(|container| limited(container, "cpu") && limited(container, "memory"));
    match (
        requests.is_empty() && limits.is_empty(),
        all_limited && requests == limits,
    ) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}
