//! A cloud with three instances and resources of others, and providers that are started on it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Request as HttpRequest;
use portico_fakecloud::gce::{Gce as Cloud, Kind};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::cloud::faults::{Faulty, no_waits};
use crate::cloud::{CallMetrics, Fixed, Header, Transport, TransportError};
use crate::conformance::{FaultPlan, Lab as ConformanceLab, World};
use crate::gce::{Config, Gce, Parts, Place};
use crate::{Family, HealthCheck, Host, Node, Port, Protocol, Provider, Request, ServiceRef};
use portico_controller::balancers::balancer_name;

pub(super) const CLUSTER_ID: &str = "0123456789abcdef";
pub(super) const SHARED: &str = "k8s-0123456789abcdef-node";
const KINDS: [Kind; 5] = [
    Kind::Address,
    Kind::Firewall,
    Kind::ForwardingRule,
    Kind::HttpHealthCheck,
    Kind::TargetPool,
];

pub(super) struct Lab {
    pub cloud: Arc<Cloud>,
    pub plan: Arc<FaultPlan>,
    config: &'static str,
}

impl Lab {
    pub(super) fn new() -> Self {
        Self::with("[global]\nnode-tags = nodes\n")
    }

    pub(super) fn with(config: &'static str) -> Self {
        let cloud = Arc::new(Cloud::default());
        (1..=3).for_each(|number| {
            cloud.add_instance(
                "europe-west1-b",
                &format!("node-{number}"),
                &["node", "web"],
            )
        });
        for kind in KINDS {
            cloud.put(
                kind,
                "foreign",
                json!({"name": "foreign", "description": "of somebody else"}),
            );
        }
        Self {
            cloud,
            plan: Arc::default(),
            config,
        }
    }

    /// As after a start of the program.
    pub(super) fn provider(&self) -> Gce {
        let cloud = Arc::clone(&self.cloud);
        let wire = move |request: HttpRequest<Bytes>| -> Result<_, TransportError> {
            assert_eq!(request.headers()["authorization"], "Bearer hush");
            Ok(cloud.answer(&request))
        };
        let transport: Arc<dyn Transport> =
            Arc::new(Faulty::over(Arc::new(wire), Arc::clone(&self.plan)));
        let authorize = Arc::new(Fixed {
            header: Header::Bearer,
            token: SecretString::from("hush"),
        });
        let ((pace, poll), metrics) = (no_waits(), CallMetrics::default());
        let config = Config::parse(self.config).unwrap();
        let place = Place::new(
            &config,
            Cloud::PROJECT.into(),
            "europe-west1-b",
            "default",
            CLUSTER_ID.into(),
        );
        Gce::new(
            place,
            Parts {
                transport,
                authorize,
                pace,
                poll,
                metrics,
            },
        )
    }

    /// The names of what there is of a kind, without others'.
    pub(super) fn names(&self, kind: Kind) -> Vec<String> {
        self.cloud.settle();
        self.cloud
            .all(kind)
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| name != "foreign")
            .collect()
    }

    pub(super) fn field(&self, kind: Kind, name: &str, field: &str) -> Value {
        self.cloud.settle();
        self.cloud.get(kind, name).unwrap_or_default()[field].clone()
    }

    /// What was called since the last time: `POST targetPools/x/addInstance`, without looks at
    /// operations.
    pub(super) fn calls(&self) -> Vec<String> {
        let calls = self.plan.calls();
        self.plan.set(None);
        let short = |call: &String| {
            let (method, path) = call.split_once(' ')?;
            let path = path
                .split_once("/global/")
                .or(path.split_once("/europe-west1/"))?
                .1;
            (!path.starts_with("operations/")).then(|| format!("{method} {path}"))
        };
        calls.iter().filter_map(short).collect()
    }

    fn lines(&self, foreign: bool) -> Vec<String> {
        self.cloud.settle();
        let of_kind = |kind: Kind| {
            let all = self
                .cloud
                .all(kind)
                .into_iter()
                .filter(move |(name, _)| (name == "foreign") == foreign);
            all.map(move |(name, mut value)| {
                // Another one after it was made anew.
                value.as_object_mut().unwrap().remove("id");
                format!("{kind:?} {name} {value}")
            })
        };
        KINDS.into_iter().flat_map(of_kind).collect()
    }

    /// What was asked and answered is as Google describes it.
    pub(super) fn assert_described(&self) {
        assert_eq!(self.cloud.problems(), Vec::<String>::new());
    }
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
        Box::pin(async { Arc::new(self.provider()) as Arc<dyn Provider> })
    }

    fn plan(&self) -> &FaultPlan {
        &self.plan
    }
}

pub(super) fn node(number: usize) -> Node {
    Node {
        name: format!("node-{number}"),
        provider_id: format!("gce://shop/europe-west1-b/node-{number}"),
        zone: "europe-west1-b".into(),
        version: "v1.36.4".into(),
        ..Node::default()
    }
}

/// A Service with TCP/80 on nodes 1 and 2.
pub(super) fn service(name: &str) -> Request {
    let uid = format!("uid-{name}");
    Request {
        balancer_name: balancer_name(&uid),
        service: ServiceRef {
            namespace: "shop".into(),
            name: name.into(),
            uid,
        },
        families: vec![Family::V4],
        ports: vec![port(Protocol::Tcp, 80)],
        health_check: Some(HealthCheck {
            port: 10256,
            path: "/healthz".into(),
        }),
        nodes: vec![node(1), node(2)],
        ..Request::default()
    }
}

pub(super) fn local(request: Request, port: u16) -> Request {
    Request {
        local: true,
        health_check: Some(HealthCheck {
            port,
            path: "/healthz".into(),
        }),
        ..request
    }
}

pub(super) fn port(protocol: Protocol, port: u16) -> Port {
    Port {
        name: port.to_string(),
        protocol,
        port,
        node_port: 30000 + port,
        app_protocol: None,
    }
}

/// The only address.
pub(super) fn address(balancer: &crate::Balancer) -> String {
    match &balancer.ingress[..] {
        [ingress] => match &ingress.host {
            Host::Ip(address) => address.to_string(),
            Host::Name(name) => panic!("{name}"),
        },
        other => panic!("{other:?}"),
    }
}
