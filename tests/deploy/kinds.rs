//! Whether an object is of its kind, with no field that the kind does not have: by the types of
//! k8s-openapi, and for those of the Prometheus operator by the fields that it documents.

use crate::objects::title;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What is wrong with it.
pub(crate) fn problem(object: &Value) -> Option<String> {
    let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let problem = match (version, kind) {
        ("apps/v1", "DaemonSet") => of::<DaemonSet>(object),
        ("apps/v1", "Deployment") => of::<Deployment>(object),
        ("batch/v1", "Job") => of::<Job>(object),
        ("v1", "ConfigMap") => of::<ConfigMap>(object),
        ("v1", "Pod") => of::<Pod>(object),
        ("v1", "Service") => of::<Service>(object),
        ("v1", "ServiceAccount") => of::<ServiceAccount>(object),
        ("policy/v1", "PodDisruptionBudget") => of::<PodDisruptionBudget>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => of::<ClusterRole>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => of::<ClusterRoleBinding>(object),
        ("rbac.authorization.k8s.io/v1", "Role") => of::<Role>(object),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => of::<RoleBinding>(object),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => {
            of::<CustomResourceDefinition>(object)
        }
        ("monitoring.coreos.com/v1", "PodMonitor") => of::<Monitoring<PodMonitor>>(object),
        ("monitoring.coreos.com/v1", "PrometheusRule") => of::<Monitoring<Rules>>(object),
        _ => Some("nobody knows the kind".to_owned()),
    };
    problem.map(|problem| format!("{}: {problem}", title(object)))
}

/// Fields that the type does not have are lost on the way there and back.
fn of<T: DeserializeOwned + Serialize>(object: &Value) -> Option<String> {
    match serde_json::from_value::<T>(object.clone()) {
        Err(error) => Some(error.to_string()),
        Ok(read) => lost(object, &serde_json::to_value(read).unwrap(), "")
            .map(|field| format!("{field} is no field")),
    }
}

fn lost(before: &Value, after: &Value, path: &str) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            after
                .get(key)
                .map_or_else(|| Some(path.clone()), |after| lost(value, after, &path))
        }),
        (Value::Array(before), Value::Array(after)) => {
            let pairs = before.iter().zip(after).enumerate();
            pairs.into_iter().find_map(|(index, (before, after))| {
                lost(before, after, &format!("{path}.{index}"))
            })
        }
        // A number may be written with a fraction.
        (Value::Number(before), Value::Number(after)) if before.as_f64() == after.as_f64() => None,
        _ => (before != after).then(|| format!("{path} ({before})")),
    }
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Monitoring<Spec> {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodMonitor {
    job_label: String,
    selector: Selector,
    pod_metrics_endpoints: Vec<Endpoint>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selector {
    match_labels: BTreeMap<String, String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Endpoint {
    path: String,
    interval: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port_number: Option<u16>,
    relabelings: Vec<Relabeling>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Relabeling {
    source_labels: Vec<String>,
    target_label: String,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    lasting: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[test]
fn a_field_that_is_none_is_found() {
    use serde_json::json;
    let pod = |spec: Value| {
        problem(
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}),
        )
    };
    assert_eq!(
        pod(json!({"containers": [{"name": "a", "image": "b"}]})),
        None
    );
    let wrong = pod(json!({"containers": [{"name": "a", "imag": "b"}]})).unwrap();
    assert_eq!(wrong, "Pod a: .spec.containers.0.imag is no field");
}
