//! Pods, as records: selectors match them and their status says where they are. Nothing runs them
//! here, so deleting one is immediate unless finalizers hold it.

mod defaults;
mod table;
mod update;
mod validation;

use super::checks::{self, invalid_all};
use super::{Info, Kind};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::{names, object};
use serde_json::{Value, json};

pub(super) struct Pod;

static INFO: Info = Info {
    group: "",
    version: "v1",
    kind: "Pod",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    namespaced: true,
    status: true,
    schema: "Pod",
    storage: "pods",
    delete_returns_object: true,
    selectable_fields: &[
        "spec.nodeName",
        "spec.host",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ],
    columns: table::COLUMNS,
    ..Info::USUAL
};

impl Kind for Pod {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn default(&self, object: &mut Value, _gates: &Gates) {
        defaults::apply(object);
    }

    fn prepare_create(&self, object: &mut Value, _gates: &Gates) {
        object::child(object, "metadata").insert("generation".to_owned(), 1.into());
        let mut status = json!({"phase": "Pending", "qosClass": defaults::qos_class(object)});
        if !object::items(object, "spec.schedulingGates").is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        object::map(object).insert("status".to_owned(), status);
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let mut errors = validation::spec(object);
        let spec = Path::new("spec");
        if !object::items(object, "spec.ephemeralContainers").is_empty() {
            errors.push(Error::forbidden(
                &spec.child("ephemeralContainers"),
                "cannot be set on create",
            ));
        }
        let bound = !object::text(object, "spec.nodeName").is_empty();
        if bound && !object::items(object, "spec.schedulingGates").is_empty() {
            let message = "cannot be set until all schedulingGates have been cleared";
            errors.push(Error::forbidden(&spec.child("nodeName"), message));
        }
        errors
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _gates: &Gates) {
        object::copy_key(old, new, "status");
        if new.get("spec") != old.get("spec") {
            let generation = object::at(old, "metadata.generation")
                .as_i64()
                .unwrap_or_default();
            object::child(new, "metadata").insert("generation".to_owned(), (generation + 1).into());
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, _gates: &Gates) -> Errors {
        let mut errors = validation::spec(new);
        errors.extend(update::validate(new, old));
        errors
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _gates: &Gates) {
        object::copy_key(old, new, "spec");
        object::child(new, "metadata");
        if let Some(metadata) = new.get_mut("metadata") {
            object::copy_key(object::at(old, "metadata"), metadata, "ownerReferences");
        }
        let status = object::child(new, "status");
        for key in ["qosClass", "observedGeneration"] {
            let before = object::at(old, "status").get(key).cloned();
            before
                .into_iter()
                .for_each(|value| checks::fill(status, key, value));
        }
    }

    fn validate_status_update(&self, new: &Value, old: &Value, _gates: &Gates) -> Errors {
        update::validate_status(new, old)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let problems = names::dns_label(object::name(new), false);
        if old.is_some() || problems.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising \
             behavior; a DNS label is recommended: [{}]",
            problems.join(" ")
        )]
    }

    fn selectable_field(&self, object: &Value, field: &str) -> String {
        match field {
            "spec.host" => object::text(object, "spec.nodeName").to_owned(),
            "spec.hostNetwork" => object::at(object, field)
                .as_bool()
                .unwrap_or_default()
                .to_string(),
            _ => object::text(object, field).to_owned(),
        }
    }

    fn is_stored_as_selected(&self, field: &str) -> bool {
        field == "spec.nodeName"
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        table::row(object, now)
    }
}

/// The three lists of containers.
const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

fn qualified_name(name: &str, path: &Path) -> Errors {
    invalid_all(path, name, names::qualified_name(name))
}
