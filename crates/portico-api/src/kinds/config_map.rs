//! ConfigMaps.

use super::checks::{data_key, invalid_all};
use super::{Column, Info, Kind, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::object;
use serde_json::{Map, Value};

/// The most bytes that a ConfigMap or Secret may hold.
pub(super) const MOST_BYTES: usize = 1 << 20;

pub(super) struct ConfigMap;

static INFO: Info = Info {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    namespaced: true,
    status: false,
    schema: "ConfigMap",
    storage: "configmaps",
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column("Data", "The number of entries."),
    table::AGE,
];

impl Kind for ConfigMap {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let (data, binary) = (Path::new("data"), Path::new("binaryData"));
        let mut errors = Errors::new();
        let mut size = 0;
        for (key, value) in entries(object, "data") {
            errors.extend(invalid_all(&data.key(key), key, data_key(key)));
            if object::at(object, "binaryData").get(key).is_some() {
                errors.push(Error::invalid(
                    &data.key(key),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
            size += value.as_str().map_or(0, str::len);
        }
        for (key, value) in entries(object, "binaryData") {
            errors.extend(invalid_all(&binary.key(key), key, data_key(key)));
            size += decoded_length(value);
        }
        if size > MOST_BYTES {
            errors.push(Error::too_long(&Path::new("[]"), MOST_BYTES));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, gates: &Gates) -> Errors {
        let mut errors = kept_immutable(new, old, &["data", "binaryData"]);
        errors.extend(self.validate_create(new, gates));
        errors
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        let count = entries(object, "data").count() + entries(object, "binaryData").count();
        vec![
            object::name(object).into(),
            count.into(),
            table::age(object, now),
        ]
    }
}

pub(super) fn entries<'a>(
    object: &'a Value,
    key: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object
        .get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
}

/// The number of bytes in base64 text.
pub(super) fn decoded_length(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default().trim_end_matches('=');
    text.len() * 3 / 4
}

/// An object that was made immutable stays so, and so do these fields.
pub(super) fn kept_immutable(new: &Value, old: &Value, fields: &[&str]) -> Errors {
    const MESSAGE: &str = "field is immutable when `immutable` is set";
    if object::at(old, "immutable") != true {
        return Errors::new();
    }
    let released = (object::at(new, "immutable") != true).then_some("immutable");
    let changed = fields
        .iter()
        .copied()
        .filter(|field| new.get(field) != old.get(field));
    released
        .into_iter()
        .chain(changed)
        .map(|field| Error::forbidden(&Path::new(field), MESSAGE))
        .collect()
}
