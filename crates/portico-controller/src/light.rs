//! Services without what no code here reads. managedFields are half of a Service that several
//! programs write to, and every change of each comes back twice: in the answer and by the watch.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServiceSpec, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

/// A Service whose metadata has what [`Metadata`] names.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Read")]
pub struct LightService(pub Service);

#[derive(Deserialize)]
struct Read {
    metadata: Metadata,
    spec: Option<ServiceSpec>,
    status: Option<ServiceStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
}

impl From<Read> for LightService {
    fn from(
        Read {
            metadata,
            spec,
            status,
        }: Read,
    ) -> Self {
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            labels: metadata.labels,
            annotations: metadata.annotations,
            finalizers: metadata.finalizers,
            ..ObjectMeta::default()
        };
        Self(Service {
            metadata,
            spec,
            status,
        })
    }
}

impl Resource for LightService {
    type DynamicType = ();
    type Scope = <Service as Resource>::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        Service::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        Service::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        Service::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        Service::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_is_there_but_who_set_it() {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e"],
                "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]},
            "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        });
        let light: LightService = serde_json::from_value(service.clone()).unwrap();
        service["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("managedFields");
        assert_eq!(light.0, serde_json::from_value(service).unwrap());
    }
}
