//! ServiceAccounts.

use super::checks::items_mut;
use super::{Column, Info, Kind, table};
use crate::gates::Gates;
use crate::object;
use serde_json::Value;

const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

pub(super) struct ServiceAccount;

static INFO: Info = Info {
    group: "",
    version: "v1",
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    namespaced: true,
    status: false,
    schema: "ServiceAccount",
    storage: "serviceaccounts",
    delete_returns_object: true,
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[table::NAME, table::AGE];

impl Kind for ServiceAccount {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn prepare_create(&self, object: &mut Value, _gates: &Gates) {
        name_secrets(object);
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value, _gates: &Gates) {
        name_secrets(new);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let has = |object: &Value| {
            object::at(object, "metadata.annotations")
                .get(MOUNTABLE)
                .is_some()
        };
        if !has(new) || old.is_some_and(has) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces \
             to isolate access to mounted secrets"
        )]
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        vec![object::name(object).into(), table::age(object, now)]
    }
}

/// Secrets are referred to by name alone.
fn name_secrets(object: &mut Value) {
    for secret in items_mut(object, "secrets") {
        object::map(secret).retain(|key, _| key == "name");
    }
}
