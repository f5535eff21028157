//! Nodes. Unlike other kinds they may be created with a status, because kubelets register
//! themselves so.

use super::checks::{self, in_step, invalid_all};
use super::{Column, Info, Kind, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::{names, object};
use serde_json::Value;
use std::collections::BTreeSet;

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE_LABEL: &str = "kubernetes.io/role";

pub(super) struct Node;

static INFO: Info = Info {
    group: "",
    version: "v1",
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    namespaced: false,
    status: true,
    schema: "Node",
    storage: "nodes",
    selectable_fields: &["spec.unschedulable"],
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column("Status", "Whether the node is ready and takes pods."),
    table::column("Roles", "The roles of the node, from its labels."),
    table::AGE,
    table::column("Version", "The version of the kubelet."),
    table::wide("Internal-IP", "The first internal address."),
    table::wide("External-IP", "The first external address."),
    table::wide("OS-Image", "The operating system."),
    table::wide("Kernel-Version", "The kernel."),
    table::wide("Container-Runtime", "The container runtime."),
];

impl Kind for Node {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn default(&self, object: &mut Value, _gates: &Gates) {
        if object.get("spec").is_some_and(Value::is_object) {
            in_step(object::child(object, "spec"), "podCIDR", "podCIDRs", None);
        }
        let capacity = object::at(object, "status.capacity").clone();
        if !capacity.is_null() {
            checks::fill_absent(object::child(object, "status"), "allocatable", capacity);
        }
    }

    fn prepare_create(&self, object: &mut Value, _gates: &Gates) {
        drop_dynamic_config(object);
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let mut errors = taints(object);
        errors.extend(resources(object));
        errors.extend(pod_cidrs(object));
        errors
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _gates: &Gates) {
        drop_dynamic_config(new);
        object::copy_key(old, new, "status");
    }

    fn validate_update(&self, new: &Value, old: &Value, gates: &Gates) -> Errors {
        let mut errors = self.validate_create(new, gates);
        errors.extend(changes(new, old));
        errors
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _gates: &Gates) {
        drop_dynamic_config(new);
        object::copy_key(old, new, "spec");
    }

    fn validate_status_update(&self, new: &Value, old: &Value, _gates: &Gates) -> Errors {
        let mut errors = resources(new);
        errors.extend(changes(new, old));
        errors
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        match object::text(new, "spec.externalID") {
            "" => Vec::new(),
            _ => vec![
                "spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned(),
            ],
        }
    }

    fn selectable_field(&self, object: &Value, field: &str) -> String {
        object::at(object, field)
            .as_bool()
            .unwrap_or_default()
            .to_string()
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        let info = |key: &str| object::text(object, &format!("status.nodeInfo.{key}")).to_owned();
        let known = |key: &str| table::or(&info(key), "<unknown>").to_owned();
        let kernel = match info("architecture").as_str() {
            "" => known("kernelVersion"),
            architecture => format!("{} ({architecture})", known("kernelVersion")),
        };
        vec![
            object::name(object).into(),
            status(object).into(),
            roles(object).into(),
            table::age(object, now),
            info("kubeletVersion").into(),
            first_address(object, "InternalIP").into(),
            first_address(object, "ExternalIP").into(),
            known("osImage").into(),
            kernel.into(),
            known("containerRuntimeVersion").into(),
        ]
    }
}

/// The kubelet's dynamic configuration is gone from Kubernetes; its fields are not stored.
fn drop_dynamic_config(object: &mut Value) {
    for (part, key) in [("spec", "configSource"), ("status", "config")] {
        if let Some(part) = object.get_mut(part).and_then(Value::as_object_mut) {
            part.remove(key);
        }
    }
}

/// The path is `metadata.taints`, as Kubernetes has it.
fn taints(object: &Value) -> Errors {
    let path = Path::new("metadata").child("taints");
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (index, taint) in object::items(object, "spec.taints").iter().enumerate() {
        let path = path.index(index);
        let (key, value, effect) = (
            object::text(taint, "key"),
            object::text(taint, "value"),
            object::text(taint, "effect"),
        );
        errors.extend(invalid_all(
            &path.child("key"),
            key,
            names::qualified_name(key),
        ));
        errors.extend(invalid_all(
            &path.child("value"),
            value,
            names::label_value(value),
        ));
        errors.extend(checks::word(
            effect,
            &path.child("effect"),
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        ));
        if !seen.insert((key, effect)) {
            errors.push(Error::duplicate(&path, taint.clone()));
        }
    }
    errors
}

fn resources(object: &Value) -> Errors {
    let mut errors = Errors::new();
    for list in ["capacity", "allocatable"] {
        let path = Path::new("status").child(list);
        for (name, value) in object::at(object, &format!("status.{list}"))
            .as_object()
            .into_iter()
            .flatten()
        {
            let amount = checks::quantity(value).unwrap_or_default();
            if amount < 0.0 {
                let message = "must be greater than or equal to 0";
                errors.push(Error::invalid(&path.child(name), value.clone(), message));
            }
            if counts_things(name) && amount.fract() != 0.0 {
                errors.push(Error::invalid(
                    &path.child(name),
                    value.clone(),
                    "must be an integer",
                ));
            }
        }
    }
    errors
}

/// Pods and the resources of extensions (`example.com/gpu`) come in whole numbers.
fn counts_things(resource: &str) -> bool {
    resource == "pods" || (resource.contains('/') && !resource.contains("kubernetes.io/"))
}

fn pod_cidrs(object: &Value) -> Errors {
    let path = Path::new("spec").child("podCIDRs");
    let items = object::items(object, "spec.podCIDRs");
    let mut errors = Errors::new();
    let mut addresses = Vec::new();
    for (index, text) in items
        .iter()
        .map(|item| item.as_str().unwrap_or_default())
        .enumerate()
    {
        match checks::cidr(text) {
            Ok(ip) => addresses.push(ip),
            Err(message) => errors.push(Error::invalid(&path.index(index), text, message)),
        }
    }
    if items.len() > 1 && !checks::is_pair(addresses.into_iter()) {
        let message = "may specify no more than one CIDR for each IP family";
        errors.push(Error::invalid(&path, items.to_vec(), message));
    }
    errors
}

fn changes(new: &Value, old: &Value) -> Errors {
    let spec = Path::new("spec");
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (index, address) in object::items(new, "status.addresses").iter().enumerate() {
        if !seen.insert((
            object::text(address, "type"),
            object::text(address, "address"),
        )) {
            errors.push(Error::duplicate(
                &Path::new("status").child("addresses").index(index),
                address.clone(),
            ));
        }
    }
    let before = object::items(old, "spec.podCIDRs");
    if !before.is_empty() && before != object::items(new, "spec.podCIDRs") {
        let message = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(Error::forbidden(&spec.child("podCIDRs"), message));
    }
    let provider = object::text(old, "spec.providerID");
    if !provider.is_empty() && provider != object::text(new, "spec.providerID") {
        let message = "node updates may not change providerID except from \"\" to valid";
        errors.push(Error::forbidden(&spec.child("providerID"), message));
    }
    if object::text(old, "spec.externalID") != object::text(new, "spec.externalID") {
        errors.push(Error::forbidden(
            &spec.child("externalID"),
            "may not be updated",
        ));
    }
    errors
}

fn status(object: &Value) -> String {
    let ready = object::items(object, "status.conditions")
        .iter()
        .rfind(|one| object::text(one, "type") == "Ready");
    let ready = match ready.map(|condition| object::text(condition, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    match object::at(object, "spec.unschedulable").as_bool() {
        Some(true) => format!("{ready},SchedulingDisabled"),
        _ => ready.to_owned(),
    }
}

fn roles(object: &Value) -> String {
    let labels = object::at(object, "metadata.labels").as_object();
    let role = |(key, value): (&'_ String, &'_ Value)| match key.strip_prefix(ROLE_PREFIX) {
        Some(role) => Some(role.to_owned()),
        None => value
            .as_str()
            .filter(|_| key == ROLE_LABEL)
            .map(str::to_owned),
    };
    let roles: BTreeSet<String> = labels
        .into_iter()
        .flatten()
        .filter_map(role)
        .filter(|role| !role.is_empty())
        .collect();
    table::or(&roles.into_iter().collect::<Vec<_>>().join(","), "<none>").to_owned()
}

fn first_address(object: &Value, kind: &str) -> String {
    let addresses = object::items(object, "status.addresses");
    let found = addresses
        .iter()
        .find(|address| object::text(address, "type") == kind);
    found
        .map_or("<none>", |address| object::text(address, "address"))
        .to_owned()
}
