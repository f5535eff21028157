//! The objects in a file: YAML or JSON, one, several documents, or a `List`.

use serde_json::Value;

/// An object of the change: to be applied, or to be deleted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Document {
    pub api_version: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
    pub value: Value,
}

impl Document {
    /// `Service shop/web`
    pub(super) fn title(&self) -> String {
        title(&self.kind, self.namespace.as_deref(), &self.name)
    }
}

pub(super) fn title(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

pub(super) fn parse(text: &str) -> Result<Vec<Document>, String> {
    // Every JSON is YAML.
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
    let objects: Vec<&Value> = documents
        .iter()
        .filter(|document| !document.is_null())
        .flat_map(items)
        .collect();
    if objects.is_empty() {
        return Err("there is no object in it".to_owned());
    }
    objects
        .into_iter()
        .enumerate()
        .map(|(at, value)| read(at + 1, value))
        .collect()
}

fn items(document: &Value) -> Vec<&Value> {
    match (document["kind"].as_str(), document["items"].as_array()) {
        (Some(kind), Some(items)) if kind.ends_with("List") => items.iter().collect(),
        _ => vec![document],
    }
}

fn read(at: usize, value: &Value) -> Result<Document, String> {
    let text = |path: &str| {
        let found = value
            .pointer(path)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty());
        found.map(str::to_owned).ok_or_else(|| {
            format!(
                "object {at} has no {}",
                path.trim_start_matches('/').replace('/', ".")
            )
        })
    };
    Ok(Document {
        api_version: text("/apiVersion")?,
        kind: text("/kind")?,
        namespace: text("/metadata/namespace").ok(),
        name: text("/metadata/name")?,
        value: value.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_lists() {
        let text = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n---\n\
                    apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Node, metadata: {name: n1}}]\n---\n";
        let titles: Vec<String> = parse(text).unwrap().iter().map(Document::title).collect();
        assert_eq!(titles, ["Service shop/web", "Node n1"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, says) in [
            ("", "no object"),
            ("a: [", ""),
            (
                "kind: Service\nmetadata: {name: web}",
                "object 1 has no apiVersion",
            ),
            (
                "apiVersion: v1\nkind: Service\n",
                "object 1 has no metadata.name",
            ),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(says), "{text:?}: {problem}");
        }
    }
}
