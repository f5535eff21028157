//! An endpoint of a Service, and in what state it is.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointSlice};
use portico_model::objects::{HEALTH_CHECK, HEALTH_FAILING, SERVICE_NAME};
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

/// Whether an endpoint gets connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum EndpointState {
    /// It gets connections.
    Ready,
    /// It ends, and still serves: it gets connections where no endpoint is ready.
    Draining,
    /// It ends, and serves no more.
    Terminating,
    /// It gets no connections: its Pod or its check says that it is not ready.
    NotReady,
}

impl EndpointState {
    /// Conditions that are not set are read as the API defines: an endpoint is ready, it is not
    /// terminating, and it serves if it is ready.
    fn of(conditions: Option<&EndpointConditions>) -> Self {
        let ready = conditions.and_then(|all| all.ready).unwrap_or(true);
        let terminating = conditions.and_then(|all| all.terminating).unwrap_or(false);
        let serving = conditions.and_then(|all| all.serving).unwrap_or(ready);
        match (ready, terminating, serving) {
            (true, _, _) => Self::Ready,
            (false, true, true) => Self::Draining,
            (false, true, false) => Self::Terminating,
            (false, false, _) => Self::NotReady,
        }
    }
}

impl fmt::Display for EndpointState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Terminating => "terminating",
            Self::NotReady => "not ready",
        })
    }
}

/// One endpoint of a Service with one of its ports.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointView {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub service: String,
    /// The name of its Pod, where it is one; its address otherwise.
    pub name: String,
    /// With its port.
    pub address: String,
    /// The name of the Service's port; empty where that has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub port_name: String,
    /// The node that it runs on; empty where the slice does not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The zone that it is in; empty where the slice does not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Whether it gets connections.
    pub state: EndpointState,
    /// How it is checked, where Portico checks it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub check: String,
    /// Why it fails its check.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trouble: String,
}

impl EndpointView {
    /// One view for each endpoint and port of a slice.
    pub fn of(slice: &EndpointSlice) -> Vec<Self> {
        let ports = slice.ports.as_deref().unwrap_or_default();
        let endpoints = slice.endpoints.as_deref().unwrap_or_default();
        endpoints
            .iter()
            .flat_map(|endpoint| {
                ports.iter().map(move |port| {
                    let name = port.name.clone().unwrap_or_default();
                    view(slice, endpoint, name, port.port)
                })
            })
            .collect()
    }

    /// Whether it gets connections as long as it is not terminating.
    pub fn is_ready(&self) -> bool {
        self.state == EndpointState::Ready
    }

    /// The address without its port, by which endpoints are counted.
    pub(crate) fn host(&self) -> &str {
        self.address
            .rsplit_once(':')
            .map_or(self.address.as_str(), |(host, _)| host)
    }
}

/// The name of the Service that a slice is for.
pub(crate) fn service_of(slice: &EndpointSlice) -> &str {
    let labels = slice.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(SERVICE_NAME))
        .map_or("", String::as_str)
}

fn view(
    slice: &EndpointSlice,
    endpoint: &Endpoint,
    port_name: String,
    port: Option<i32>,
) -> EndpointView {
    let annotation = |name: &str| {
        let annotations = slice.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(name))
            .cloned()
            .unwrap_or_default()
    };
    let address = endpoint.addresses.first().cloned().unwrap_or_default();
    let state = EndpointState::of(endpoint.conditions.as_ref());
    let failing = annotation(HEALTH_FAILING);
    let reason = failing
        .lines()
        .find_map(|line| line.strip_prefix(&address)?.strip_prefix(": "));
    let target = endpoint.target_ref.as_ref();
    let name = target
        .and_then(|target| target.name.clone())
        .unwrap_or_else(|| address.clone());
    EndpointView {
        namespace: slice.metadata.namespace.clone().unwrap_or_default(),
        service: service_of(slice).to_owned(),
        name,
        port_name,
        node: endpoint.node_name.clone().unwrap_or_default(),
        zone: endpoint.zone.clone().unwrap_or_default(),
        check: annotation(HEALTH_CHECK),
        trouble: match state {
            EndpointState::Ready => String::new(),
            _ => reason.unwrap_or_default().to_owned(),
        },
        address: with_port(&address, port),
        state,
    }
}

fn with_port(address: &str, port: Option<i32>) -> String {
    let port = port.map_or("*".to_owned(), |port| port.to_string());
    match address.parse() {
        Ok(IpAddr::V6(_)) => format!("[{address}]:{port}"),
        _ => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::slice;
    use serde_json::json;

    #[test]
    fn in_what_state_an_endpoint_is() {
        use EndpointState::{Draining, NotReady, Ready, Terminating};
        let table = [
            (json!({}), Ready),
            (json!({"ready": true}), Ready),
            (json!({"ready": false}), NotReady),
            (json!({"ready": false, "serving": true}), NotReady),
            (
                json!({"ready": false, "serving": true, "terminating": true}),
                Draining,
            ),
            (
                json!({"ready": false, "serving": false, "terminating": true}),
                Terminating,
            ),
            (json!({"ready": false, "terminating": true}), Terminating),
        ];
        for (conditions, expected) in table {
            let parsed = serde_json::from_value(conditions.clone()).unwrap();
            assert_eq!(EndpointState::of(Some(&parsed)), expected, "{conditions}");
        }
        assert_eq!(EndpointState::of(None), Ready);
    }

    #[test]
    fn an_endpoint_tells_why_it_is_not_ready() {
        let endpoints = json!([{"addresses": ["10.0.0.5"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.6"], "targetRef": {"kind": "Pod", "name": "web-1"}}]);
        let views = EndpointView::of(&slice("web", endpoints));
        assert_eq!(
            (views[0].state, views[0].trouble.as_str()),
            (EndpointState::NotReady, "connection refused")
        );
        assert_eq!(views[0].name, "10.0.0.5");
        assert!(views[1].is_ready() && views[1].name == "web-1");
        assert_eq!(views[1].address, "10.0.0.6:8080");
    }
}
