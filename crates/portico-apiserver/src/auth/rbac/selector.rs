//! Label selectors of aggregated ClusterRoles.

use portico_api::object;
use serde_json::Value;

/// Does a `LabelSelector` choose an object with these labels? An empty selector chooses everything;
/// an operator that is not known chooses nothing.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = object::at(selector, "matchLabels")
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, wanted)| {
            wanted
                .as_str()
                .is_some_and(|wanted| label(key) == Some(wanted))
        });
    let expressions = object::items(selector, "matchExpressions")
        .iter()
        .all(|expression| {
            let found = label(object::text(expression, "key"));
            let among = || {
                object::items(expression, "values")
                    .iter()
                    .any(|value| value.as_str() == found)
            };
            match object::text(expression, "operator") {
                "In" => found.is_some() && among(),
                "NotIn" => found.is_none() || !among(),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        });
    selector.is_object() && equal && expressions
}
