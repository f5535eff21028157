//! Everything that is shown: Services with their conditions and endpoints, nodes with what they
//! told. Objects go in, rows come out. Pure.

use super::metrics::{Measured, seconds};
use portico_api::object::{at, items, text};
use portico_model::report::{self, NodeReport};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Conditions of a load balancer, in the order in which they come true.
const CONDITIONS: [&str; 4] = ["Allocated", "Programmed", "Announced", "Reachable"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Service,
    Slice,
    Node,
    Report,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Service, Kind::Slice, Kind::Node, Kind::Report];
}

/// What happened at the API server.
#[derive(Clone, Debug)]
pub enum News {
    /// A list begins: what is not in it is gone.
    Begin(Kind),
    There(Kind, Value),
    Gone(Kind, Value),
    End(Kind),
    Failed(String),
}

#[derive(Clone, Debug, Default)]
pub struct Fleet {
    objects: BTreeMap<(Kind, String), Value>,
    /// Of lists that come in: what was in them.
    listing: BTreeMap<Kind, BTreeSet<String>>,
    complete: BTreeSet<Kind>,
    measured: BTreeMap<String, Result<Measured, String>>,
    /// Why what is shown may be old.
    pub trouble: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRow {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub addresses: Vec<String>,
    pub ports: Vec<String>,
    pub ready: usize,
    pub endpoints: usize,
    /// By the name of the condition.
    pub conditions: BTreeMap<String, bool>,
    /// What of the conditions is not as it should be, in words.
    pub problem: String,
    /// Unknown where no node counts them.
    pub connections: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    pub name: String,
    pub address: String,
    /// It told lately what it serves.
    pub reports: bool,
    /// Services and slices of the API server are in its kernel up to here.
    pub installed: String,
    /// Half of all changes, and all but one in a hundred, were installed within this time.
    pub median: String,
    pub slowest: String,
    pub connections: Option<u64>,
    pub problem: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointRow {
    pub endpoint: String,
    pub node: String,
    pub state: &'static str,
    pub connections: Option<u64>,
}

impl Fleet {
    pub fn hear(&mut self, news: News) {
        match news {
            News::Begin(kind) => drop(self.listing.insert(kind, BTreeSet::new())),
            News::There(kind, object) => {
                let name = key(&object);
                if let Some(listed) = self.listing.get_mut(&kind) {
                    listed.insert(name.clone());
                }
                self.objects.insert((kind, name), object);
            }
            News::Gone(kind, object) => drop(self.objects.remove(&(kind, key(&object)))),
            News::End(kind) => {
                let listed = self.listing.remove(&kind).unwrap_or_default();
                self.objects
                    .retain(|(of, name), _| *of != kind || listed.contains(name));
                self.complete.insert(kind);
                self.trouble = None;
            }
            News::Failed(problem) => self.trouble = Some(problem),
        }
    }

    /// All lists came in, but for reports, which a server need not have.
    pub fn is_complete(&self) -> bool {
        Kind::ALL
            .iter()
            .all(|kind| *kind == Kind::Report || self.complete.contains(kind))
    }

    /// What was read from a node, or why it could not be.
    pub fn measure(&mut self, node: &str, measured: Result<Measured, String>) {
        self.measured.insert(node.to_owned(), measured);
    }

    /// Where the metrics of nodes may be.
    pub fn metrics_addresses(&self, port: u16) -> Vec<(String, SocketAddr)> {
        let address = |node: &Value| Some(SocketAddr::new(address_of(node)?.parse().ok()?, port));
        self.of(Kind::Node)
            .filter_map(|(name, node)| Some((name.to_owned(), address(node)?)))
            .collect()
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = (&str, &Value)> {
        self.objects
            .iter()
            .filter(move |((of, _), _)| *of == kind)
            .map(|((_, name), object)| (name.as_str(), object))
    }

    pub fn services(&self) -> Vec<ServiceRow> {
        self.of(Kind::Service)
            .map(|(name, service)| self.service(name, service))
            .collect()
    }

    fn service(&self, name: &str, service: &Value) -> ServiceRow {
        let endpoints = self.endpoints(name);
        let all = items(service, "status.conditions");
        let condition = |wanted: &&str| {
            all.iter()
                .find(|condition| text(condition, "type") == *wanted)
        };
        let conditions: BTreeMap<String, bool> = CONDITIONS
            .iter()
            .filter_map(|name| {
                Some((
                    (*name).to_owned(),
                    text(condition(name)?, "status") == "True",
                ))
            })
            .collect();
        let wrong = CONDITIONS
            .iter()
            .filter_map(condition)
            .find(|found| text(found, "status") != "True");
        let ready = endpoints
            .iter()
            .filter(|endpoint| endpoint.state == "ready")
            .count();
        let problem = match wrong {
            Some(wrong) => format!("{}: {}", text(wrong, "reason"), text(wrong, "message")),
            None if endpoints.is_empty() && text(service, "spec.type") != "ExternalName" => {
                "no endpoints".to_owned()
            }
            None if ready == 0 && !endpoints.is_empty() => "no endpoint is ready".to_owned(),
            None => String::new(),
        };
        ServiceRow {
            name: name.to_owned(),
            kind: text(service, "spec.type").to_owned(),
            addresses: addresses(service),
            ports: items(service, "spec.ports").iter().map(port).collect(),
            ready,
            endpoints: endpoints.len(),
            conditions,
            problem,
            connections: endpoints.iter().map(|endpoint| endpoint.connections).sum(),
        }
    }

    /// Of the Service with this name (`namespace/name`).
    pub fn endpoints(&self, service: &str) -> Vec<EndpointRow> {
        let counted = self.connections();
        let mut rows = BTreeMap::new();
        for (_, slice) in self
            .of(Kind::Slice)
            .filter(|(_, slice)| service_of(slice) == service)
        {
            let ports: Vec<u16> = items(slice, "ports")
                .iter()
                .filter_map(|port| number(port, "port"))
                .collect();
            for endpoint in items(slice, "endpoints") {
                let addresses = items(endpoint, "addresses")
                    .iter()
                    .filter_map(Value::as_str);
                for (address, port) in
                    addresses.flat_map(|address| ports.iter().map(move |port| (address, *port)))
                {
                    let at = address
                        .parse()
                        .map(|address| SocketAddr::new(address, port))
                        .ok();
                    let connections = counted
                        .as_ref()
                        .map(|counted| at.and_then(|at| counted.get(&at)).copied().unwrap_or(0));
                    let name = at.map_or_else(|| format!("{address}:{port}"), |at| at.to_string());
                    let row = EndpointRow {
                        endpoint: name.clone(),
                        node: text(endpoint, "nodeName").to_owned(),
                        state: state(endpoint),
                        connections,
                    };
                    rows.insert(name, row);
                }
            }
        }
        rows.into_values().collect()
    }

    /// By endpoint, over all nodes; nothing where no node counts.
    fn connections(&self) -> Option<BTreeMap<SocketAddr, u64>> {
        let counting = self
            .measured
            .values()
            .flatten()
            .filter(|measured| !measured.connections.is_empty());
        let mut sum: Option<BTreeMap<SocketAddr, u64>> = None;
        for (endpoint, count) in counting.flat_map(|measured| &measured.connections) {
            *sum.get_or_insert_default().entry(*endpoint).or_default() += count;
        }
        sum
    }

    pub fn nodes(&self) -> Vec<NodeRow> {
        self.of(Kind::Node)
            .map(|(name, node)| self.node(name, node))
            .collect()
    }

    fn node(&self, name: &str, node: &Value) -> NodeRow {
        let lease = self.objects.get(&(
            Kind::Report,
            format!("{}/{}", report::NAMESPACE, report::lease_name(name)),
        ));
        let written = lease.map(|lease| {
            at(lease, "metadata.annotations")
                .get(report::ANNOTATION)
                .cloned()
                .unwrap_or_default()
        });
        let told: Option<NodeReport> =
            written.and_then(|text| serde_json::from_str(text.as_str()?).ok());
        let measured = self.measured.get(name);
        let known = measured.and_then(|measured| measured.as_ref().ok());
        let within = |share| {
            known
                .and_then(|known| known.programmed_within(share))
                .map(seconds)
                .unwrap_or_default()
        };
        let problem = match (&told, measured) {
            (Some(told), _) if !told.trouble.is_empty() => told.trouble.clone(),
            (Some(told), _) if !told.behind.is_empty() => {
                format!(
                    "{} Services are not installed",
                    told.behind.len() + told.more_behind
                )
            }
            (None, _) => "does not report".to_owned(),
            (_, Some(Err(problem))) => format!("metrics: {problem}"),
            _ => String::new(),
        };
        NodeRow {
            name: name.to_owned(),
            address: address_of(node).unwrap_or_default().to_owned(),
            reports: told.is_some(),
            installed: told
                .map(|told| format!("{}/{}", told.services, told.slices))
                .unwrap_or_default(),
            median: within(0.5),
            slowest: within(0.99),
            connections: known.map(|known| known.connections.values().sum()),
            problem,
        }
    }
}

/// `namespace/name`, or the name of what is in none.
fn key(object: &Value) -> String {
    match text(object, "metadata.namespace") {
        "" => text(object, "metadata.name").to_owned(),
        namespace => format!("{namespace}/{}", text(object, "metadata.name")),
    }
}

fn service_of(slice: &Value) -> String {
    let label = at(slice, "metadata.labels")
        .get("kubernetes.io/service-name")
        .and_then(Value::as_str);
    format!(
        "{}/{}",
        text(slice, "metadata.namespace"),
        label.unwrap_or_default()
    )
}

fn number(object: &Value, path: &str) -> Option<u16> {
    u16::try_from(at(object, path).as_u64()?).ok()
}

fn port(port: &Value) -> String {
    let protocol = text(port, "protocol").to_ascii_lowercase();
    format!("{}/{protocol}", number(port, "port").unwrap_or_default())
}

/// Those of the load balancer, or else inside the cluster.
fn addresses(service: &Value) -> Vec<String> {
    let of = |ingress: &Value| {
        Some(text(ingress, "ip"))
            .filter(|ip| !ip.is_empty())
            .unwrap_or(text(ingress, "hostname"))
            .to_owned()
    };
    let balancer: Vec<String> = items(service, "status.loadBalancer.ingress")
        .iter()
        .map(of)
        .collect();
    match balancer.is_empty() {
        true => items(service, "spec.clusterIPs")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        false => balancer,
    }
}

fn address_of(node: &Value) -> Option<&str> {
    let internal = items(node, "status.addresses")
        .iter()
        .find(|address| text(address, "type") == "InternalIP");
    internal.map(|address| text(address, "address"))
}

fn state(endpoint: &Value) -> &'static str {
    let is = |condition: &str, default| {
        at(endpoint, "conditions")
            .get(condition)
            .and_then(Value::as_bool)
            .unwrap_or(default)
    };
    match (
        is("ready", true),
        is("terminating", false),
        is("serving", false),
    ) {
        (true, _, _) => "ready",
        (false, true, true) => "draining",
        (false, true, false) => "ending",
        (false, false, _) => "not ready",
    }
}
