//! How an object changes, field by field.

use serde::Serialize;
use serde_json::Value;

/// What the server writes by itself at every change.
const OWN: [&str; 6] = [
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.uid",
    "metadata.creationTimestamp",
    "metadata.annotations.kubectl.kubernetes.io/last-applied-configuration",
];

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectChange {
    /// `Service shop/web`
    pub object: String,
    pub what: What,
    /// `spec.ports[0].port: 80 → 81`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// What could not be tried, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum What {
    Created,
    Changed,
    Deleted,
    Same,
}

impl ObjectChange {
    pub(super) fn of(object: String, before: Option<&Value>, after: Option<&Value>) -> Self {
        let fields = match (before, after) {
            (Some(before), Some(after)) => fields(before, after),
            _ => Vec::new(),
        };
        let what = match (before, after) {
            (None, Some(_)) => What::Created,
            (Some(_), None) => What::Deleted,
            (Some(_), Some(_)) if !fields.is_empty() => What::Changed,
            _ => What::Same,
        };
        Self {
            object,
            what,
            fields,
            note: String::new(),
        }
    }
}

fn fields(before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", before, after, &mut found);
    found
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    let below = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    if before == after || OWN.contains(&path) {
        return;
    }
    match (before, after) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: std::collections::BTreeSet<&String> =
                left.keys().chain(right.keys()).collect();
            for key in keys {
                compare(
                    &below(key),
                    &before[key.as_str()],
                    &after[key.as_str()],
                    found,
                );
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (at, (left, right)) in left.iter().zip(right).enumerate() {
                compare(&format!("{path}[{at}]"), left, right, found);
            }
        }
        _ => found.push(format!("{path}: {} → {}", shown(before), shown(after))),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "unset".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_people_wrote_is_told() {
        let before = json!({"metadata": {"name": "a", "resourceVersion": "1", "managedFields": [1]}, "spec": {"ports": [{"port": 80}], "x": 1}});
        let after = json!({"metadata": {"name": "a", "resourceVersion": "2"}, "spec": {"ports": [{"port": 81}], "y": ["z"]}});
        let change = ObjectChange::of("Service a".into(), Some(&before), Some(&after));
        assert_eq!(change.what, What::Changed);
        assert_eq!(
            change.fields,
            [
                "spec.ports[0].port: 80 → 81",
                "spec.x: 1 → unset",
                "spec.y: unset → [\"z\"]"
            ]
        );
        let mut same = before.clone();
        same["metadata"]["resourceVersion"] = "9".into();
        assert_eq!(
            ObjectChange::of(String::new(), Some(&before), Some(&same)).what,
            What::Same
        );
        assert_eq!(
            ObjectChange::of(String::new(), None, Some(&after)).what,
            What::Created
        );
        assert_eq!(
            ObjectChange::of(String::new(), Some(&after), None).what,
            What::Deleted
        );
        assert_eq!(ObjectChange::of(String::new(), None, None).what, What::Same);
    }
}
