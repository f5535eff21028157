//! The contract of what makes load balancers: the trait [`Provider`] and what its calls say. It is
//! small and idempotent; everything else (which controller owns a Service, finalizers, which nodes
//! count, when to try again, what people see) is the controller's (`balancers`). Those that there
//! are live in `portico-providers`.
//!
//! Every call says all that is wanted, so that a provider keeps nothing that it could not read
//! again. A call may be repeated at any time, and a call that failed, or whose answer was lost, is
//! repeated until it succeeds.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ipnet::IpNet;
pub use portico_model::table::{Family, Protocol};
use tokio::sync::watch;

/// What a provider can do, and what it wants to know. The controller calls it only when something
/// changed that it asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// It sends traffic to nodes, so a node that comes or goes means [`Provider::update_nodes`].
    pub uses_nodes: bool,
    /// It sends traffic to endpoints: [`Request::endpoints`] is filled, and a change of them means
    /// `update_nodes`.
    pub uses_endpoints: bool,
    /// Portico's nodes attract the traffic (`Announced` is what they report), and nothing else
    /// does.
    pub announced_by_nodes: bool,
    /// It has to know on which port to ask a node with local endpoints for its health: a Service
    /// without one is refused.
    pub needs_health_check_port: bool,
}

/// A provider's answer, or that it takes time.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, ProviderError>>;

/// What makes load balancers.
pub trait Provider: Send + Sync {
    /// The name of the provider, as in `--cloud-provider`.
    fn name(&self) -> &str;

    /// What the controller has to know of the provider.
    fn abilities(&self) -> Abilities;

    /// The load balancer as it is, `None` if there is none. Changes nothing.
    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>>;

    /// Make the load balancer what is wanted, creating what is missing and removing what is too
    /// much.
    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer>;

    /// Brings nodes and endpoints up to date. Nothing else has changed since `ensure`.
    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()>;

    /// Remove everything that belongs to the Service. What is not there is no failure. Of the
    /// request only what names the Service is certain: its ports may be gone.
    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()>;

    /// The next call for this Service trusts nothing that was seen before: another program may have
    /// changed something meanwhile.
    fn forget(&self, request: &Request) {
        let _ = request;
    }

    /// What a provider says on its own accord; `None` where nothing but calls changes what it would
    /// answer.
    fn news(&self) -> Option<watch::Receiver<News>> {
        None
    }

    /// Waits for what `delete` left to be done after its answer. The controller calls it before it
    /// leaves the cluster for good.
    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Numbers that grow when something happened that the controller could not know of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Something became free: what was refused is tried again.
    pub freed: u64,
    /// What there is to give changed (pools, a configuration): every Service is ensured again.
    pub changed: u64,
}

/// A Service, as far as its load balancer goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The name of the cluster among all in one account (`--cluster-name`).
    pub cluster: String,
    /// The Service.
    pub service: ServiceRef,
    /// A name that no other Service has had: `a` and the uid, at most 32 characters.
    pub balancer_name: String,
    /// `spec.loadBalancerClass`
    pub class: Option<String>,
    /// The labels of the Service.
    pub labels: BTreeMap<String, String>,
    /// The annotations of the Service.
    pub annotations: BTreeMap<String, String>,
    /// `spec.loadBalancerIP`
    pub requested_ip: Option<String>,
    /// The families that the Service has, its primary one first.
    pub families: Vec<Family>,
    /// Both families or nothing (`ipFamilyPolicy: RequireDualStack`).
    pub require_all_families: bool,
    /// The ports of the Service.
    pub ports: Vec<Port>,
    /// `externalTrafficPolicy: Local`
    pub local: bool,
    /// What else decides whether two Services may share an address under `Local`.
    pub selector: BTreeMap<String, String>,
    /// Seconds for which a client stays at its endpoint.
    pub affinity: Option<u32>,
    /// Empty is from everywhere.
    pub source_ranges: Vec<IpNet>,
    /// Where a node says whether it should get traffic of this Service.
    pub health_check: Option<HealthCheck>,
    /// The nodes that may get traffic, sorted by name.
    pub nodes: Vec<Node>,
    /// Ready endpoints, sorted; only for a provider that uses them.
    pub endpoints: Vec<Endpoint>,
    /// What the status says at the moment.
    pub ingress: Vec<Ingress>,
}

/// A Service by its name and uid.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, which no later Service of that name has.
    pub uid: String,
}

impl fmt::Display for ServiceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name; empty for an only port without one.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// The port that clients connect to.
    pub port: u16,
    /// 0 where none is allocated.
    pub node_port: u16,
    /// `appProtocol`, if it is set.
    pub app_protocol: Option<String>,
}

/// An HTTP request that is answered with 200 by a node that is fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The port on the node.
    pub port: u16,
    /// The path to ask for.
    pub path: String,
}

/// A node that may get traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The name of the Node.
    pub name: String,
    /// `spec.providerID`; empty where it is not set.
    pub provider_id: String,
    /// The label of its zone; empty where it has none.
    pub zone: String,
    /// Internal ones first.
    pub addresses: Vec<IpAddr>,
    /// The version of Kubernetes on it: `v1.36.4`.
    pub version: String,
}

/// A ready endpoint of the Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// The port of the Service that it serves: its name and protocol.
    pub port_name: String,
    /// The protocol of that port.
    pub protocol: Protocol,
    /// The port of the endpoint.
    pub port: u16,
    /// The node that it runs on, if that is known.
    pub node: Option<String>,
}

/// A load balancer, as the world sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balancer {
    /// Its addresses and names, for the Service's status.
    pub ingress: Vec<Ingress>,
    /// What it still has to do before traffic flows, for people; `None` when it is done. The
    /// controller asks again.
    pub pending: Option<String>,
}

/// One address or name of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// The address or name.
    pub host: Host,
    /// How packets reach a node.
    pub mode: IpMode,
}

/// An address or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A DNS name.
    Name(String),
}

/// How packets reach a node: still with the balancer's address in them, or on connections of its
/// own. (Only addresses have one in the API.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpMode {
    /// With the balancer's address as their destination.
    #[default]
    Vip,
    /// On connections that the balancer makes to the node.
    Proxy,
}

/// Why a call did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// It is on its way; ask again then. This is no failure.
    #[error("{reason}")]
    RetryAfter {
        /// When to ask again.
        after: Duration,
        /// What it waits for, for people.
        reason: String,
    },
    /// Another program makes this load balancer.
    #[error("another program makes this load balancer")]
    Elsewhere,
    /// It cannot be done as long as the Service (or the pools, quotas, ...) is as it is. `reason`
    /// is one CamelCase word.
    #[error("{message}")]
    Refused {
        /// The reason of the condition.
        reason: &'static str,
        /// What is wrong and the way out.
        message: String,
    },
    /// Something went wrong; trying again may help.
    #[error("{0}")]
    Failed(String),
}
