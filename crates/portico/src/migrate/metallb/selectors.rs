//! MetalLB has lists of label selectors of which one must match; Portico has one selector. Pure.

use super::super::report::Remark;
use serde_json::{Value, json};

/// One selector for a list of them, where one can say the same.
pub(super) fn one_of(
    what: &str,
    mut selectors: Vec<Value>,
    remarks: &mut Vec<Remark>,
) -> Option<Value> {
    // One that is empty is met by everything.
    if selectors.iter().any(is_empty) {
        return None;
    }
    selectors.dedup();
    if let [only] = &selectors[..] {
        return Some(only.clone());
    }
    let first = selectors.first()?.clone();
    if let Some(merged) = merge(&selectors) {
        return Some(merged);
    }
    let others: Vec<String> = selectors.iter().skip(1).map(Value::to_string).collect();
    remarks.push(Remark::Warning(format!(
        "{what}: one selector has to do here, and these cannot be written as one. Only the first \
         is kept, {} is left out: give all of them one label, and select that",
        others.join(", ")
    )));
    Some(first)
}

fn is_empty(selector: &Value) -> bool {
    selector.as_object().is_none_or(|map| {
        map.values().all(|part| {
            part.as_object().is_some_and(|m| m.is_empty())
                || part.as_array().is_some_and(|a| a.is_empty())
                || part.is_null()
        })
    })
}

/// `key in (values)`, if that is all that the selector asks for.
fn single(selector: &Value) -> Option<(String, Vec<Value>)> {
    let labels = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let mut found: Vec<(String, Vec<Value>)> = labels
        .map(|(key, value)| (key.clone(), vec![value.clone()]))
        .collect();
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if expression.get("operator") != Some(&json!("In")) {
            return None;
        }
        let key = expression.get("key")?.as_str()?.to_owned();
        found.push((key, expression.get("values")?.as_array()?.clone()));
    }
    match found.len() {
        1 => found.pop(),
        _ => None,
    }
}

fn merge(selectors: &[Value]) -> Option<Value> {
    let singles: Vec<(String, Vec<Value>)> = selectors.iter().map(single).collect::<Option<_>>()?;
    let (key, _) = singles.first()?.clone();
    let mut values = Vec::new();
    for (other, more) in singles {
        if other != key {
            return None;
        }
        values.extend(more);
    }
    values.sort_by_key(Value::to_string);
    values.dedup();
    Some(json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(key: &str, value: &str) -> Value {
        json!({"matchLabels": {key: value}})
    }

    #[test]
    fn alternatives_of_one_label_become_one_selector() {
        let mut remarks = Vec::new();
        let hosts = vec![
            labelled("host", "b"),
            labelled("host", "a"),
            json!({"matchExpressions": [{"key": "host", "operator": "In", "values": ["c"]}]}),
        ];
        let found = one_of("x", hosts, &mut remarks).unwrap();
        assert_eq!(
            found,
            json!({"matchExpressions": [{"key": "host", "operator": "In", "values": ["a", "b", "c"]}]})
        );
        assert_eq!(
            one_of("x", vec![labelled("a", "1"), json!({})], &mut remarks),
            None
        );
        assert_eq!(one_of("x", Vec::new(), &mut remarks), None);
        assert!(remarks.is_empty());
    }

    #[test]
    fn what_cannot_be_one_is_told() {
        let mut remarks = Vec::new();
        let found = one_of(
            "pool",
            vec![labelled("rack", "a"), labelled("role", "b")],
            &mut remarks,
        )
        .unwrap();
        assert_eq!(found, labelled("rack", "a"));
        assert!(
            matches!(&remarks[..], [Remark::Warning(text)] if text.contains(r#"{"matchLabels":{"role":"b"}} is left out"#)),
            "{remarks:?}"
        );
    }
}
