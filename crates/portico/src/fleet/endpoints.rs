//! An endpoint of a Service.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use portico_controller::health;
use portico_model::objects::SERVICE_NAME;
use serde::Serialize;
use std::net::IpAddr;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointView {
    pub namespace: String,
    pub service: String,
    /// With its port.
    pub address: String,
    /// Of the Service's port; empty where there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub port_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    pub ready: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub terminating: bool,
    /// How it is checked, where Portico does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub check: String,
    /// Why it fails its check.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trouble: String,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl EndpointView {
    /// One for each endpoint and port.
    pub fn of(slice: &EndpointSlice) -> Vec<EndpointView> {
        let ports = slice.ports.as_deref().unwrap_or_default();
        let endpoints = slice.endpoints.as_deref().unwrap_or_default();
        let each = |endpoint: &Endpoint| -> Vec<EndpointView> {
            ports
                .iter()
                .map(|port| {
                    view(
                        slice,
                        endpoint,
                        port.name.clone().unwrap_or_default(),
                        port.port,
                    )
                })
                .collect()
        };
        endpoints.iter().flat_map(each).collect()
    }

    /// In a word.
    pub fn state(&self) -> &'static str {
        match (self.ready, self.terminating) {
            (true, _) => "ready",
            (false, true) => "terminating",
            (false, false) => "not ready",
        }
    }
}

/// The Service that a slice is for.
pub fn service_of(slice: &EndpointSlice) -> &str {
    slice
        .metadata
        .labels
        .as_ref()
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
        slice
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(name))
            .cloned()
    };
    let address = endpoint.addresses.first().cloned().unwrap_or_default();
    let conditions = endpoint.conditions.as_ref();
    let failing = annotation(health::FAILING).unwrap_or_default();
    let trouble = failing
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{address}: ")))
        .unwrap_or_default();
    // What is not said is that it is ready.
    let ready = conditions
        .and_then(|conditions| conditions.ready)
        .unwrap_or(true);
    EndpointView {
        namespace: slice.metadata.namespace.clone().unwrap_or_default(),
        service: service_of(slice).to_owned(),
        port_name,
        node: endpoint.node_name.clone().unwrap_or_default(),
        zone: endpoint.zone.clone().unwrap_or_default(),
        terminating: conditions
            .and_then(|conditions| conditions.terminating)
            .unwrap_or(false),
        check: annotation(health::CHECK).unwrap_or_default(),
        trouble: if ready {
            String::new()
        } else {
            trouble.to_owned()
        },
        address: with_port(&address, port),
        ready,
    }
}

fn with_port(address: &str, port: Option<i32>) -> String {
    let port = port.map_or("*".to_owned(), |port| port.to_string());
    match address.parse() {
        Ok(IpAddr::V6(_)) => format!("[{address}]:{port}"),
        _ => format!("{address}:{port}"),
    }
}
