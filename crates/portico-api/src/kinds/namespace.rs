//! Namespaces: labelled with their own name, and held by `spec.finalizers` until they are empty.

use super::checks::{fill, invalid_all};
use super::{Column, Info, Kind, metadata, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::{names, object};
use serde_json::{Value, json};

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const FINALIZER: &str = "kubernetes";

/// The kind Namespace.
pub struct Namespace;

static INFO: Info = Info {
    group: "",
    version: "v1",
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    namespaced: false,
    status: true,
    schema: "Namespace",
    storage: "namespaces",
    delete_returns_object: true,
    selectable_fields: &["status.phase"],
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column(
        "Status",
        "Whether the namespace is active or being deleted.",
    ),
    table::AGE,
];

impl Kind for Namespace {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn default(&self, object: &mut Value, _gates: &Gates) {
        label_with_name(object);
        fill(object::child(object, "status"), "phase", "Active");
    }

    fn prepare_create(&self, object: &mut Value, _gates: &Gates) {
        label_with_name(object);
        object::map(object).insert("status".to_owned(), json!({"phase": "Active"}));
        let mut finalizers = object::items(object, "spec.finalizers").to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            finalizers.push(FINALIZER.into());
        }
        object::child(object, "spec").insert("finalizers".to_owned(), finalizers.into());
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let path = Path::new("spec").child("finalizers");
        spec_finalizers(object)
            .flat_map(|finalizer| finalizer_problems(finalizer, &path))
            .collect()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _gates: &Gates) {
        label_with_name(new);
        object::copy_key(old, new, "spec");
        object::copy_key(old, new, "status");
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _gates: &Gates) {
        label_with_name(new);
        object::copy_key(old, new, "spec");
    }

    fn validate_status_update(&self, new: &Value, _old: &Value, _gates: &Gates) -> Errors {
        let (phase, message) = match object::text(new, "metadata.deletionTimestamp") {
            "" => (
                "Active",
                "may only be 'Active' if `deletionTimestamp` is empty",
            ),
            _ => (
                "Terminating",
                "may only be 'Terminating' if `deletionTimestamp` is not empty",
            ),
        };
        match object::text(new, "status.phase") {
            given if given == phase => Errors::new(),
            given => vec![Error::invalid(
                &Path::new("status").child("Phase"),
                given,
                message,
            )],
        }
    }

    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        names::dns_label(name, prefix)
    }

    fn is_held(&self, object: &Value) -> bool {
        !object::items(object, "metadata.finalizers").is_empty()
            || !object::items(object, "spec.finalizers").is_empty()
    }

    fn undeletable(&self, name: &str) -> Option<&'static str> {
        ["default", "kube-system", "kube-public"]
            .contains(&name)
            .then_some("this namespace may not be deleted")
    }

    fn mark_deleted(&self, object: &mut Value) {
        object::child(object, "status").insert("phase".to_owned(), "Terminating".into());
        object::child(object, "metadata").remove("deletionGracePeriodSeconds");
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        vec![
            object::name(object).into(),
            object::text(object, "status.phase").into(),
            table::age(object, now),
        ]
    }
}

/// The `finalize` subresource changes `spec.finalizers`: carry over the rest of what an update may
/// not change.
pub fn prepare_finalize(new: &mut Value, old: &Value) {
    label_with_name(new);
    object::copy_key(old, new, "status");
}

/// What is wrong with a write to the subresource `finalize`.
pub fn validate_finalize(new: &Value) -> Errors {
    let path = Path::new("spec").child("finalizers");
    let finalizers = spec_finalizers(new).enumerate();
    finalizers
        .flat_map(|(index, finalizer)| finalizer_problems(finalizer, &path.index(index)))
        .collect()
}

fn spec_finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object::items(object, "spec.finalizers")
        .iter()
        .filter_map(Value::as_str)
}

fn finalizer_problems(finalizer: &str, path: &Path) -> Errors {
    let mut errors = invalid_all(path, finalizer, names::qualified_name(finalizer));
    errors.extend(metadata::known_finalizer(finalizer, path));
    errors
}

/// Selectors of namespaces rely on this label, so it always is the name.
fn label_with_name(namespace: &mut Value) {
    let name = object::name(namespace).to_owned();
    if name.is_empty() {
        return;
    }
    object::child(namespace, "metadata");
    if let Some(metadata) = namespace.get_mut("metadata") {
        object::child(metadata, "labels").insert(NAME_LABEL.to_owned(), name.into());
    }
}
