//! Requests and answers against a discovery document, of Google's or in its form.

use std::collections::BTreeMap;

use http::Method;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::schema::{self, Schemas};

/// The document, as `data/cut.py` leaves it.
pub(crate) struct Discovery {
    document: Value,
}

/// A request that is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matched {
    /// `compute.firewalls.insert`
    pub id: String,
    /// Those of the path, and of the query. One that was given several times has commas between.
    pub parameters: BTreeMap<String, String>,
}

/// The schemas of a document, as seen by one direction of one method.
struct Side<'a> {
    document: &'a Value,
    /// The method, for requests; empty for answers, which may have all fields.
    method: &'a str,
}

impl Schemas for Side<'_> {
    fn resolve(&self, reference: &str) -> Option<&Value> {
        self.document["schemas"].get(reference)
    }

    fn check_property(&self, _name: &str, schema: &Value, value: Option<&Value>) -> Option<String> {
        if self.method.is_empty() {
            return None;
        }
        let required = schema["annotations"]["required"]
            .as_array()
            .into_iter()
            .flatten();
        match value {
            None if required.into_iter().any(|method| method == self.method) => {
                Some("is missing".to_owned())
            }
            Some(_) if schema["readOnly"] == true => {
                Some("is written by the server alone".to_owned())
            }
            _ => None,
        }
    }
}

impl Discovery {
    /// The discovery document of Compute Engine.
    pub(crate) fn compute() -> Self {
        let text = include_str!("../data/compute.v1.json");
        Self {
            document: serde_json::from_str(text).expect("the document is JSON"),
        }
    }

    /// A document for Rackspace's Cloud Load Balancers, made from the vendor's schema by
    /// `data/xsd.py`.
    pub(crate) fn load_balancers() -> Self {
        let text = include_str!("../data/loadbalancers.v1.json");
        Self {
            document: serde_json::from_str(text).expect("the document is JSON"),
        }
    }

    /// Where paths begin: `/compute/v1/`.
    pub(crate) fn base(&self) -> &str {
        self.document["basePath"].as_str().unwrap_or_default()
    }

    /// Which method it is, or what is wrong with it. `path` is relative to the base.
    pub(crate) fn check_request(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: &Value,
    ) -> Result<Matched, String> {
        let methods = self.document["methods"].as_array().into_iter().flatten();
        let mut found = methods.filter(|described| described["httpMethod"] == method.as_str());
        let found = found.find_map(|described| {
            Some((described, match_path(described["path"].as_str()?, path)?))
        });
        let Some((described, mut parameters)) = found else {
            return Err(format!("{method} {path} does not exist"));
        };
        let mut problems = Vec::new();
        for (name, value) in parse_query(query) {
            match described["parameters"]
                .get(&name)
                .or(self.document["parameters"].get(&name))
            {
                Some(known) if known["location"] == "query" => {
                    check_parameter(&name, known, &value, &mut problems);
                    match parameters.get_mut(&name) {
                        Some(values) if known["repeated"] == true => {
                            values.push_str(&format!(",{value}"))
                        }
                        _ => _ = parameters.insert(name, value),
                    }
                }
                _ => problems.push(format!("there is no parameter {name}")),
            }
        }
        for (name, known) in described["parameters"].as_object().into_iter().flatten() {
            match parameters.get(name) {
                Some(value) if known["location"] == "path" => {
                    check_parameter(name, known, value, &mut problems)
                }
                Some(_) => {}
                None if known["required"] == true => {
                    problems.push(format!("parameter {name} is missing"))
                }
                None => {}
            }
        }
        let id = described["id"].as_str().unwrap_or_default();
        match described.get("request") {
            Some(schema) => problems.extend(self.check(schema, body, id)),
            None if !body.is_null() => problems.push("a body is not expected".to_owned()),
            None => {}
        }
        let matched = Matched {
            id: id.to_owned(),
            parameters,
        };
        if problems.is_empty() {
            Ok(matched)
        } else {
            Err(format!("{id}: {}", problems.join("; ")))
        }
    }

    pub(crate) fn check_answer(&self, id: &str, body: &Value) -> Result<(), String> {
        let mut methods = self.document["methods"].as_array().into_iter().flatten();
        let method = methods
            .find(|method| method["id"] == id)
            .ok_or_else(|| format!("{id} is not described"))?;
        let problems = self.check(&method["response"], body, "");
        if problems.is_empty() {
            Ok(())
        } else {
            Err(format!("answer of {id}: {}", problems.join("; ")))
        }
    }

    fn check(&self, schema: &Value, body: &Value, method: &str) -> Vec<String> {
        schema::check(
            &Side {
                document: &self.document,
                method,
            },
            schema,
            body,
        )
    }
}

/// `projects/{project}/global/firewalls` with a path; what stands in braces.
pub(crate) fn match_path(template: &str, path: &str) -> Option<BTreeMap<String, String>> {
    let (template, path): (Vec<&str>, Vec<&str>) =
        (template.split('/').collect(), path.split('/').collect());
    if template.len() != path.len() {
        return None;
    }
    let mut parameters = BTreeMap::new();
    for (template, part) in template.into_iter().zip(path) {
        match template
            .strip_prefix('{')
            .and_then(|template| template.strip_suffix('}'))
        {
            Some(name) => _ = parameters.insert(name.to_owned(), decode(part)),
            None if template == part => {}
            None => return None,
        }
    }
    Some(parameters)
}

pub(crate) fn parse_query(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Parameters are text that is to be read as something.
pub(crate) fn check_parameter(name: &str, known: &Value, text: &str, problems: &mut Vec<String>) {
    let fits = match known["type"].as_str() {
        Some("integer") => text.parse().is_ok_and(|number: i64| {
            number >= known["minimum"].as_i64().unwrap_or(number)
                && number <= known["maximum"].as_i64().unwrap_or(number)
        }),
        Some("boolean") => ["true", "false"].contains(&text),
        _ => known["pattern"]
            .as_str()
            .is_none_or(|pattern| schema::matches(pattern, text)),
    };
    if !fits {
        problems.push(format!("parameter {name} cannot be {text:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(method: Method, path: &str, query: &str, body: Value) -> String {
        Discovery::compute()
            .check_request(&method, path, query, &body)
            .map(|_| "fine".to_owned())
            .unwrap_or_else(|it| it)
    }

    #[test]
    fn requests_that_the_vendor_does_not_describe() {
        let rules = "projects/p/regions/r/forwardingRules";
        let table = [
            (
                Method::POST,
                rules,
                "",
                json!({"name": "a", "IPProtocol": "TCP"}),
                "fine",
            ),
            (
                Method::POST,
                rules,
                "",
                json!({"name": "a", "ipProtocol": "TCP"}),
                "ipProtocol does not exist",
            ),
            (
                Method::POST,
                rules,
                "",
                json!({"name": "a", "IPProtocol": "tcp"}),
                "IPProtocol is none of its values",
            ),
            (
                Method::POST,
                rules,
                "",
                json!({"name": "A_b"}),
                "name is not as",
            ),
            (
                Method::POST,
                rules,
                "",
                json!({"name": "a", "selfLink": "x"}),
                "selfLink is written by the server alone",
            ),
            (
                Method::POST,
                "projects/p/global/firewalls",
                "",
                json!({"network": "x"}),
                "name is missing",
            ),
            (
                Method::PATCH,
                "projects/p/regions/r/targetPools/a",
                "",
                json!({}),
                "does not exist",
            ),
            (
                Method::GET,
                "projects/p/global/firewalls/A_B",
                "",
                Value::Null,
                "parameter firewall cannot be \"A_B\"",
            ),
            (
                Method::GET,
                "projects/p/zones/z/instances",
                "maxResults=x",
                Value::Null,
                "maxResults cannot be",
            ),
            (
                Method::GET,
                "projects/p/zones/z/instances",
                "pagetoken=x",
                Value::Null,
                "no parameter pagetoken",
            ),
            (
                Method::GET,
                "projects/p/zones/z/instances",
                "fields=items(name)",
                Value::Null,
                "fine",
            ),
            (
                Method::DELETE,
                "projects/p/global/firewalls/a",
                "",
                json!({"a": 1}),
                "a body is not expected",
            ),
        ];
        for (method, path, query, body, expected) in table {
            let found = problem(method.clone(), path, query, body);
            assert!(found.contains(expected), "{method} {path}: {found}");
        }
    }

    #[test]
    fn answers_are_held_against_it_too() {
        let discovery = Discovery::compute();
        let good = json!({"name": "x", "status": "DONE", "progress": 100, "id": "1"});
        assert_eq!(
            discovery.check_answer("compute.firewalls.insert", &good),
            Ok(())
        );
        let bad = discovery.check_answer(
            "compute.firewalls.insert",
            &json!({"status": "READY", "id": 1}),
        );
        assert_eq!(
            bad.unwrap_err(),
            "answer of compute.firewalls.insert: id is no text: 1; status is none of its values: \
             \"READY\""
        );
    }
}
