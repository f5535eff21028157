//! A cloud with a load balancer of another user, and providers that are started on it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Request as HttpRequest;
use portico_fakecloud::rackspace::Rackspace as Cloud;
use serde_json::Value;

use crate::cloud::faults::{Faulty, no_waits};
use crate::cloud::{CallMetrics, Transport, TransportError};
use crate::conformance::{FaultPlan, Lab as ConformanceLab, World};
use crate::rackspace::{Config, Parts, Rackspace};
use crate::{
    Abilities, Answer, Balancer, Endpoint, Family, Host, IpMode, Node, Port, Protocol, Provider,
    Request, ServiceRef,
};
use portico_controller::balancers::balancer_name;

pub(crate) struct Lab {
    pub cloud: Arc<Cloud>,
    pub plan: Arc<FaultPlan>,
    /// Providers that are started look at everything in every call.
    forgetful: bool,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let cloud = Arc::new(Cloud::default());
        cloud.add("foreign", 80);
        Self {
            cloud,
            plan: Arc::default(),
            forgetful: false,
        }
    }

    pub(crate) fn forgetful() -> Self {
        Self {
            forgetful: true,
            ..Self::new()
        }
    }

    /// As after a start of the program.
    pub(crate) fn provider(&self) -> Rackspace {
        let cloud = Arc::clone(&self.cloud);
        let wire = move |request: HttpRequest<Bytes>| -> Result<_, TransportError> {
            Ok(cloud.answer(&request))
        };
        let transport: Arc<dyn Transport> =
            Arc::new(Faulty::over(Arc::new(wire), Arc::clone(&self.plan)));
        let (pace, poll) = no_waits();
        let parts = Parts {
            transport,
            pace,
            poll,
            metrics: CallMetrics::default(),
        };
        Rackspace::new(config(), parts)
    }

    /// What was called since the last time: `POST loadbalancers/1/nodes`, without logins; ids are
    /// left out.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = self.plan.calls();
        self.plan.set(None);
        let short = |call: &String| {
            let (method, path) = call.split_once(' ')?;
            let parts: Vec<&str> = path.split("/110011/").nth(1)?.split('/').collect();
            let parts: Vec<&str> = parts
                .into_iter()
                .filter(|part| part.parse::<u64>().is_err())
                .collect();
            Some(format!("{method} {}", parts.join("/")))
        };
        calls.iter().filter_map(short).collect()
    }

    /// Those of Services, oldest first.
    pub(crate) fn balancers(&self) -> Vec<Value> {
        self.cloud.settle();
        self.cloud
            .all()
            .into_iter()
            .filter(|value| value["name"] != "foreign")
            .collect()
    }

    /// A field of each.
    pub(crate) fn fields(&self, name: &str) -> Vec<Value> {
        self.balancers()
            .iter()
            .map(|value| value[name].clone())
            .collect()
    }

    /// Changes the only one, as another user would.
    pub(crate) fn change(&self, field: &str, to: Value) {
        let id = self.fields("id")[0].as_u64().unwrap();
        self.cloud.change(id, |value| match to.is_null() {
            true => _ = value.as_object_mut().unwrap().remove(field),
            false => value[field] = to,
        });
    }

    /// What was asked and answered is as it is described.
    pub(crate) fn assert_described(&self) {
        assert_eq!(self.cloud.problems(), Vec::<String>::new());
    }

    fn lines(&self, foreign: bool) -> Vec<String> {
        self.cloud.settle();
        let all = self
            .cloud
            .all()
            .into_iter()
            .filter(|value| (value["name"] == "foreign") == foreign);
        all.flat_map(|value| lines(&value)).collect()
    }
}

/// One for the load balancer, and one for each node and network item.
fn lines(value: &Value) -> Vec<String> {
    let mut own = value.clone();
    let fields = own.as_object_mut().unwrap();
    // Others after it was made anew, or changed.
    [
        "id",
        "created",
        "updated",
        "metadata",
        "nodes",
        "accessList",
    ]
    .iter()
    .for_each(|name| _ = fields.remove(*name));
    let key = format!("{} {} {}", value["name"], value["protocol"], value["port"]);
    let part = |field: &'static str| {
        let items = value[field].as_array().cloned().unwrap_or_default();
        let key = key.clone();
        items.into_iter().map(move |item| {
            format!(
                "{field} of {key} {} {} {}",
                item["address"], item["port"], item["type"]
            )
        })
    };
    [format!("loadBalancer {own}")]
        .into_iter()
        .chain(part("nodes"))
        .chain(part("accessList"))
        .collect()
}

impl World for Lab {
    fn owned(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async { Ok(self.lines(false)) })
    }

    fn foreign(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async { Ok(self.lines(true)) })
    }
}

impl ConformanceLab for Lab {
    fn start(&self) -> BoxFuture<'_, Arc<dyn Provider>> {
        Box::pin(async {
            match self.forgetful {
                true => Arc::new(Forgetful(self.provider())) as Arc<dyn Provider>,
                false => Arc::new(self.provider()) as Arc<dyn Provider>,
            }
        })
    }

    fn plan(&self) -> &FaultPlan {
        &self.plan
    }
}

struct Forgetful(Rackspace);

impl Forgetful {
    fn anew(&self, request: &Request) -> &Rackspace {
        self.0.forget(request);
        &self.0
    }
}

impl Provider for Forgetful {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        self.0.describe(request)
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        self.anew(request).ensure(request)
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.anew(request).update_nodes(request)
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.anew(request).delete(request)
    }
}

pub(crate) fn config() -> Config {
    let text = format!(
        "[Global]\nauth-url = {}\nusername = {}\napi-key = {}\nregion = ord\n",
        Cloud::URL,
        Cloud::USER,
        Cloud::KEY
    );
    Config::parse(&text, |_| None).unwrap()
}

pub(crate) fn node(number: usize) -> Node {
    let addresses = vec![
        format!("10.0.0.{number}").parse().unwrap(),
        format!("fd00::{number}").parse().unwrap(),
    ];
    Node {
        name: format!("node-{number}"),
        addresses,
        ..Node::default()
    }
}

pub(crate) fn nodes(count: usize) -> Vec<Node> {
    (1..=count).map(node).collect()
}

/// A Service with these TCP ports on nodes 1 and 2.
pub(crate) fn service(name: &str, ports: &[u16]) -> Request {
    let uid = format!("uid-{name}");
    Request {
        cluster: "shop".into(),
        balancer_name: balancer_name(&uid),
        service: ServiceRef {
            namespace: "shop".into(),
            name: name.into(),
            uid,
        },
        families: vec![Family::V4],
        ports: ports
            .iter()
            .map(|number| port(Protocol::Tcp, *number))
            .collect(),
        nodes: nodes(2),
        ..Request::default()
    }
}

pub(crate) fn port(protocol: Protocol, port: u16) -> Port {
    Port {
        name: port.to_string(),
        protocol,
        port,
        node_port: 30000 + port,
        app_protocol: None,
    }
}

pub(crate) fn endpoint(port: &Port, node: &str) -> Endpoint {
    let address = "10.244.0.1".parse().unwrap();
    Endpoint {
        address,
        port_name: port.name.clone(),
        protocol: port.protocol,
        port: 8080,
        node: Some(node.into()),
    }
}

/// Its addresses; all are of a proxy.
pub(crate) fn addresses(balancer: &Balancer) -> Vec<String> {
    let address = |ingress: &crate::Ingress| match (&ingress.host, ingress.mode) {
        (Host::Ip(address), IpMode::Proxy) => address.to_string(),
        other => panic!("{other:?}"),
    };
    balancer.ingress.iter().map(address).collect()
}
