//! Which API servers there are: the endpoints of `default/kubernetes`, read from any of them that
//! answers.
//!
//! They are listed every few seconds and not watched: they change rarely, when a machine is added,
//! and the server that would be watched may be the one that goes.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use kube::{Client, Config};
use portico_client::error::chain;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";
const PORT: &str = "https";
/// The time limit for all that is asked of one server.
const PATIENCE: Duration = Duration::from_secs(2);

/// What an API server says of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub servers: BTreeSet<SocketAddr>,
    /// The cluster IPs with their port.
    pub cluster: Vec<SocketAddr>,
}

pub struct Discovery {
    config: Config,
    /// The server that answered last time: it is asked first.
    last: Option<http::Uri>,
}

impl Discovery {
    pub fn new(config: Config) -> Self {
        Self { config, last: None }
    }

    /// Asks the server that answered last time, then the one of the kubeconfig, then the known
    /// servers, one after the other.
    pub async fn find(&mut self, known: &[SocketAddr]) -> Result<Found, String> {
        let direct = known
            .iter()
            .filter_map(|server| format!("https://{server}").parse().ok());
        let candidates: Vec<http::Uri> = self
            .last
            .take()
            .into_iter()
            .chain([self.config.cluster_url.clone()])
            .chain(direct)
            .collect();
        let mut problems = Vec::new();
        for uri in candidates {
            match tokio::time::timeout(PATIENCE, self.ask(&uri)).await {
                Ok(Ok(found)) if !found.servers.is_empty() => {
                    self.last = Some(uri);
                    return Ok(found);
                }
                Ok(Ok(_)) => {
                    problems.push(format!("{uri} knows no endpoints of {NAMESPACE}/{NAME}"))
                }
                Ok(Err(error)) => problems.push(format!("{uri}: {}", chain(&error))),
                Err(_) => problems.push(format!("{uri}: no answer within {PATIENCE:?}")),
            }
        }
        problems.dedup();
        Err(problems.join("; "))
    }

    async fn ask(&self, uri: &http::Uri) -> Result<Found, kube::Error> {
        let mut config = self.config.clone();
        config.cluster_url = uri.clone();
        let client = Client::try_from(config)?;
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
        let labels = ListParams::default().labels(&format!("kubernetes.io/service-name={NAME}"));
        let slices = slices.list(&labels).await?;
        let services: Api<Service> = Api::namespaced(client, NAMESPACE);
        let service = services.get_opt(NAME).await?;
        let cluster = service
            .map(|service| cluster_addresses(&service))
            .unwrap_or_default();
        Ok(Found {
            servers: slices.items.iter().flat_map(endpoints).collect(),
            cluster,
        })
    }
}

/// All that are listed: which of them work is for the probes to say.
fn endpoints(slice: &EndpointSlice) -> Vec<SocketAddr> {
    let ports = slice.ports.iter().flatten();
    let named = |port: &&k8s_openapi::api::discovery::v1::EndpointPort| {
        port.name.as_deref().is_none_or(|name| name == PORT)
    };
    let Some(port) = ports
        .filter(named)
        .find_map(|port| u16::try_from(port.port?).ok())
    else {
        return Vec::new();
    };
    let addresses = slice
        .endpoints
        .iter()
        .flatten()
        .flat_map(|endpoint| &endpoint.addresses);
    addresses
        .filter_map(|address| Some(SocketAddr::new(address.parse::<IpAddr>().ok()?, port)))
        .collect()
}

fn cluster_addresses(service: &Service) -> Vec<SocketAddr> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    let ports = spec.ports.iter().flatten();
    let named = |port: &&k8s_openapi::api::core::v1::ServicePort| {
        port.name.as_deref().is_none_or(|name| name == PORT)
    };
    let Some(port) = ports
        .filter(named)
        .find_map(|port| u16::try_from(port.port).ok())
    else {
        return Vec::new();
    };
    let addresses = spec.cluster_ips.iter().flatten();
    addresses
        .filter_map(|address| Some(SocketAddr::new(address.parse().ok()?, port)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn slice(ports: Value) -> EndpointSlice {
        let endpoints = json!([{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}]);
        serde_json::from_value(
            json!({"addressType": "IPv4", "metadata": {}, "ports": ports, "endpoints": endpoints}),
        )
        .unwrap()
    }

    #[test]
    fn takes_every_endpoint_with_the_port_of_https() {
        let both = [
            "10.0.0.1:6443".parse().unwrap(),
            "10.0.0.2:6443".parse().unwrap(),
        ];
        assert_eq!(
            endpoints(&slice(
                json!([{"name": "x", "port": 1}, {"name": "https", "port": 6443}])
            )),
            both
        );
        assert_eq!(endpoints(&slice(json!([{"port": 6443}]))), both);
        assert_eq!(
            endpoints(&slice(json!([{"name": "https", "port": 99_999}]))),
            []
        );
        assert_eq!(endpoints(&slice(json!([]))), []);
    }

    #[test]
    fn reads_the_cluster_addresses() {
        let service = json!({"spec": {"clusterIPs": ["10.96.0.1", "fd00::1", "None"], "ports": [{"name": "https", "port": 443}]}});
        let service: Service = serde_json::from_value(service).unwrap();
        assert_eq!(
            cluster_addresses(&service),
            [
                "10.96.0.1:443".parse().unwrap(),
                "[fd00::1]:443".parse().unwrap()
            ]
        );
    }
}
