//! Secrets. `stringData` is a convenience on write: it ends up in `data`.

use super::checks::{data_key, fill, immutable, invalid_all};
use super::config_map::{MOST_BYTES, decoded_length, entries, kept_immutable};
use super::{Column, Info, Kind, table};
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::object;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

pub(super) struct Secret;

static INFO: Info = Info {
    group: "",
    version: "v1",
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    namespaced: true,
    status: false,
    schema: "Secret",
    storage: "secrets",
    selectable_fields: &["type"],
    columns: COLUMNS,
    ..Info::USUAL
};

const COLUMNS: &[Column] = &[
    table::NAME,
    table::column("Type", "What the secret is for."),
    table::column("Data", "The number of entries."),
    table::AGE,
];

impl Kind for Secret {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn default(&self, object: &mut Value, _gates: &Gates) {
        fill(object::map(object), "type", "Opaque");
        if let Some(Value::Object(texts)) = object::map(object).remove("stringData") {
            let data = object::child(object, "data");
            for (key, text) in texts {
                data.insert(
                    key,
                    STANDARD.encode(text.as_str().unwrap_or_default()).into(),
                );
            }
        }
    }

    fn validate_create(&self, object: &Value, _gates: &Gates) -> Errors {
        let path = Path::new("data");
        let mut errors: Errors = entries(object, "data")
            .flat_map(|(key, _)| invalid_all(&path.key(key), key, data_key(key)))
            .collect();
        if entries(object, "data")
            .map(|(_, value)| decoded_length(value))
            .sum::<usize>()
            > MOST_BYTES
        {
            errors.push(Error::too_long(&path, MOST_BYTES));
        }
        errors.extend(of_type(object, &path));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, gates: &Gates) -> Errors {
        let mut errors = immutable(
            object::at(new, "type"),
            object::at(old, "type"),
            &Path::new("type"),
        );
        errors.extend(kept_immutable(new, old, &["data"]));
        errors.extend(self.validate_create(new, gates));
        errors
    }

    fn row(&self, object: &Value, now: i64) -> Vec<Value> {
        vec![
            object::name(object).into(),
            object::text(object, "type").into(),
            entries(object, "data").count().into(),
            table::age(object, now),
        ]
    }
}

/// What a well-known type of secret must hold.
fn of_type(object: &Value, path: &Path) -> Errors {
    const ACCOUNT: &str = "kubernetes.io/service-account.name";
    let data = object::at(object, "data");
    let lacks = |key: &str| data.get(key).is_none();
    let required = |key: &str| Error::required(&path.key(key), "");
    match object::text(object, "type") {
        "kubernetes.io/service-account-token" => {
            let account = object::at(object, "metadata.annotations")
                .get(ACCOUNT)
                .and_then(Value::as_str);
            let path = Path::new("metadata").child("annotations").key(ACCOUNT);
            let missing = account.unwrap_or_default().is_empty();
            missing
                .then(|| Error::required(&path, ""))
                .into_iter()
                .collect()
        }
        "kubernetes.io/dockercfg" => json_object(data, ".dockercfg", path),
        "kubernetes.io/dockerconfigjson" => json_object(data, ".dockerconfigjson", path),
        "kubernetes.io/basic-auth" if lacks("username") && lacks("password") => {
            ["username", "password"].map(required).into()
        }
        "kubernetes.io/ssh-auth" if object::text(data, "ssh-privatekey").is_empty() => {
            vec![required("ssh-privatekey")]
        }
        "kubernetes.io/tls" => ["tls.crt", "tls.key"]
            .into_iter()
            .filter(|key| lacks(key))
            .map(required)
            .collect(),
        _ => Errors::new(),
    }
}

fn json_object(data: &Value, key: &str, path: &Path) -> Errors {
    let Some(encoded) = data.get(key) else {
        return vec![Error::required(&path.key(key), "")];
    };
    let bytes = STANDARD
        .decode(encoded.as_str().unwrap_or_default())
        .unwrap_or_default();
    match serde_json::from_slice::<Option<Map<String, Value>>>(&bytes) {
        Ok(_) => Errors::new(),
        Err(why) => vec![Error::invalid(
            &path.key(key),
            "<secret contents redacted>",
            why.to_string(),
        )],
    }
}
