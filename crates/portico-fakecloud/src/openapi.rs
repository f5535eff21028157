//! Requests and answers against an OpenAPI document.

use http::Method;
use serde_json::Value;

use crate::discovery::{Matched, check_parameter, match_path, parse_query};
use crate::schema::{self, Schemas};

/// The document, as `data/cut_digitalocean.py` leaves it: without references.
pub(crate) struct OpenApi {
    document: Value,
}

/// Requests may not have what only the server writes; answers may have all fields.
struct Side {
    is_request: bool,
}

impl Schemas for Side {
    fn resolve(&self, _reference: &str) -> Option<&Value> {
        None
    }

    fn check_property(&self, _name: &str, schema: &Value, value: Option<&Value>) -> Option<String> {
        let written = self.is_request && schema["readOnly"] == true && value.is_some();
        written.then(|| "is written by the server alone".to_owned())
    }
}

impl OpenApi {
    pub(crate) fn digitalocean() -> Self {
        let text = include_str!("../data/digitalocean.v2.json");
        Self {
            document: serde_json::from_str(text).expect("the document is JSON"),
        }
    }

    /// Which operation it is, or what is wrong with it.
    pub(crate) fn check_request(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: &Value,
    ) -> Result<Matched, String> {
        let method = method.as_str().to_lowercase();
        let mut paths = self.document["paths"].as_object().into_iter().flatten();
        let found = paths.find_map(|(template, methods)| {
            Some((methods.get(&method)?, match_path(template, path)?))
        });
        let Some((operation, mut parameters)) = found else {
            return Err(format!("{method} {path} does not exist"));
        };
        let mut problems = Vec::new();
        for (name, value) in parse_query(query) {
            match operation["parameters"]
                .get(&name)
                .filter(|known| known["in"] == "query")
            {
                Some(known) => check_parameter(&name, known, &value, &mut problems),
                None => problems.push(format!("there is no parameter {name}")),
            }
            parameters.insert(name, value);
        }
        match operation.get("requestBody") {
            Some(schema) => {
                problems.extend(schema::check(&Side { is_request: true }, schema, body))
            }
            None if !body.is_null() => problems.push("a body is not expected".to_owned()),
            None => {}
        }
        let id = operation["operationId"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if problems.is_empty() {
            Ok(Matched { id, parameters })
        } else {
            Err(format!("{id}: {}", problems.join("; ")))
        }
    }

    /// `body` is null where there is none.
    pub(crate) fn check_answer(&self, id: &str, status: u16, body: &Value) -> Result<(), String> {
        let methods = self.document["paths"]
            .as_object()
            .into_iter()
            .flatten()
            .flat_map(|(_, path)| path.as_object());
        let mut operations = methods.flat_map(|methods| methods.values());
        let operation = operations.find(|operation| operation["operationId"] == id);
        let responses =
            operation.ok_or_else(|| format!("{id} is not described"))?["responses"].clone();
        let problems = match responses
            .get(status.to_string())
            .or(responses.get("default"))
        {
            None => vec![format!("{status} is not described")],
            Some(Value::Null) if body.is_null() => Vec::new(),
            Some(Value::Null) => vec!["a body is not expected".to_owned()],
            Some(schema) => schema::check(&Side { is_request: false }, schema, body),
        };
        if problems.is_empty() {
            Ok(())
        } else {
            Err(format!("answer {status} of {id}: {}", problems.join("; ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_that_the_vendor_does_not_describe() {
        let rule = json!({"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 30080});
        let balancer = |name: &str, value: Value| {
            let mut body =
                json!({"region": "nyc3", "droplet_ids": [1], "forwarding_rules": [rule]});
            body[name] = value;
            body
        };
        let (all, one) = ("/v2/load_balancers", "/v2/load_balancers/1");
        let table = [
            (Method::POST, all, "", balancer("name", json!("a")), "fine"),
            (
                Method::POST,
                all,
                "",
                balancer("nmae", json!("a")),
                "nmae does not exist",
            ),
            (
                Method::POST,
                all,
                "",
                balancer("tags", json!(["a"])),
                "tags does not exist",
            ),
            (
                Method::POST,
                all,
                "",
                balancer("status", json!("new")),
                "status is written by the server alone",
            ),
            (
                Method::POST,
                all,
                "",
                balancer("region", json!("mars")),
                "region is none of its values",
            ),
            (
                Method::POST,
                all,
                "",
                balancer("forwarding_rules", json!([])),
                "forwarding_rules has 0 items",
            ),
            (
                Method::POST,
                all,
                "",
                balancer("size_unit", json!(101)),
                "size_unit is out of range",
            ),
            (
                Method::PUT,
                one,
                "",
                balancer("network_stack", json!("IPV6")),
                "network_stack is none of its values",
            ),
            (
                Method::PUT,
                one,
                "",
                json!({"name": "a"}),
                "droplet_ids is missing",
            ),
            (Method::PATCH, one, "", json!({}), "does not exist"),
            (Method::GET, all, "page=2&per_page=200", Value::Null, "fine"),
            (
                Method::GET,
                all,
                "page=two",
                Value::Null,
                "parameter page cannot be \"two\"",
            ),
            (
                Method::GET,
                all,
                "per_page=201",
                Value::Null,
                "parameter per_page cannot be \"201\"",
            ),
            (
                Method::GET,
                all,
                "name=a",
                Value::Null,
                "there is no parameter name",
            ),
            (Method::DELETE, one, "", json!({}), "a body is not expected"),
        ];
        for (method, path, query, body, expected) in table {
            let found = OpenApi::digitalocean().check_request(&method, path, query, &body);
            let found = found.map_or_else(|problem| problem, |_| "fine".to_owned());
            assert!(found.contains(expected), "{method} {path} {body}: {found}");
        }
    }

    #[test]
    fn answers_are_held_against_it_too() {
        let api = OpenApi::digitalocean();
        let error = json!({"id": "not_found", "message": "no"});
        assert_eq!(api.check_answer("loadBalancers_get", 404, &error), Ok(()));
        assert_eq!(
            api.check_answer("loadBalancers_create", 422, &error),
            Ok(())
        );
        assert_eq!(
            api.check_answer("loadBalancers_delete", 204, &Value::Null),
            Ok(())
        );
        let wrong = api.check_answer("loadBalancers_get", 404, &json!({"id": "not_found"}));
        assert_eq!(
            wrong.unwrap_err(),
            "answer 404 of loadBalancers_get: message is missing"
        );
        assert!(
            api.check_answer("loadBalancers_delete", 204, &error)
                .is_err()
        );
    }
}
