//! Label selectors in their object form.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All conditions must hold; without any, everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<SelectorRequirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectorRequirement {
    pub key: String,
    pub operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl LabelSelector {
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.matches(labels.get(&requirement.key)))
    }
}

impl SelectorRequirement {
    /// An operator that nobody knows matches nothing.
    fn matches(&self, label: Option<&String>) -> bool {
        match self.operator.as_str() {
            "In" => label.is_some_and(|label| self.values.contains(label)),
            "NotIn" => !label.is_some_and(|label| self.values.contains(label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => false,
        }
    }
}
