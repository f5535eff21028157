//! A cloud with three droplets and a load balancer of others, and providers that are started on it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Request as HttpRequest;
use portico_fakecloud::digitalocean::DigitalOcean as Cloud;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::cloud::faults::{Faulty, no_waits};
use crate::cloud::{CallMetrics, Fixed, Header, Transport, TransportError};
use crate::conformance::{FaultPlan, Lab as ConformanceLab, World};
use crate::digitalocean::{Config, DigitalOcean, Parts};
use crate::{Family, HealthCheck, Node, Port, Protocol, Provider, Request, ServiceRef};
use portico_controller::balancers::balancer_name;

/// Load balancers of other users, with names that are near to ours.
const FOREIGN: [&str; 3] = ["website", "auida-old", "xauida"];
pub(super) const VPC: &str = "587d698c-de84-11e8-80bc-3cfdfea9fcd1";

pub(super) struct Lab {
    pub cloud: Arc<Cloud>,
    pub plan: Arc<FaultPlan>,
}

impl Lab {
    pub(super) fn new() -> Self {
        let cloud = Arc::new(Cloud::default());
        (1..=3).for_each(|number| cloud.add_droplet(3_164_440 + number));
        cloud.add_certificate("shop", "892071a0-bb95-49bc-8021-3afd67a210bf");
        FOREIGN
            .into_iter()
            .for_each(|name| cloud.put(name, &json!({})));
        Self {
            cloud,
            plan: Arc::default(),
        }
    }

    /// As after a start of the program.
    pub(super) fn provider(&self) -> DigitalOcean {
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
        let ((pace, _), metrics) = (no_waits(), CallMetrics::default());
        let config = Config {
            vpc: Some(VPC.to_owned()),
            ..Config::default()
        };
        DigitalOcean::new(
            config,
            Parts {
                transport,
                authorize,
                region: Cloud::REGION.to_owned(),
                pace,
                metrics,
            },
        )
    }

    /// Until it is ready.
    pub(super) async fn settled(
        &self,
        provider: &DigitalOcean,
        request: &Request,
    ) -> crate::Balancer {
        provider.ensure(request).await.unwrap();
        self.cloud.settle();
        let balancer = provider.ensure(request).await.unwrap();
        assert_eq!(balancer.pending, None);
        self.calls();
        balancer
    }

    /// What was called since the last time, with `ID` for ids: `PUT load_balancers/ID`.
    pub(super) fn calls(&self) -> Vec<String> {
        let calls = self.plan.calls();
        self.plan.set(None);
        let short = |call: String| match call.replace("/v2/", "").split_once("load_balancers/") {
            Some((method, _)) => format!("{method}load_balancers/ID"),
            None => call.replace("/v2/", ""),
        };
        calls.into_iter().map(short).collect()
    }

    /// What is not others'.
    pub(super) fn ours(&self) -> Vec<Value> {
        self.all(false)
    }

    /// The only one of ours.
    pub(super) fn only(&self) -> Value {
        let [only] = &self.ours()[..] else {
            panic!("{:?}", self.ours())
        };
        only.clone()
    }

    fn all(&self, foreign: bool) -> Vec<Value> {
        let is_foreign = |balancer: &Value| FOREIGN.iter().any(|name| balancer["name"] == *name);
        self.cloud
            .all()
            .into_iter()
            .filter(|balancer| is_foreign(balancer) == foreign)
            .collect()
    }

    /// Without what changes by itself, or when it is made anew.
    fn lines(&self, foreign: bool) -> Vec<String> {
        let line = |mut balancer: Value| {
            for name in ["id", "created_at", "status", "ip", "ipv6"] {
                balancer.as_object_mut().unwrap().remove(name);
            }
            format!("balancer {balancer}")
        };
        self.all(foreign).into_iter().map(line).collect()
    }

    /// What was asked and answered is as the vendor describes it.
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
        provider_id: format!("digitalocean://{}", 3_164_440 + number),
        addresses: vec![format!("10.116.0.{number}").parse().unwrap()],
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

pub(super) fn port(protocol: Protocol, port: u16) -> Port {
    Port {
        name: port.to_string(),
        protocol,
        port,
        node_port: 30000 + port,
        app_protocol: None,
    }
}

/// With annotations of the provider.
pub(super) fn annotated(request: Request, annotations: &[(&str, &str)]) -> Request {
    let prefixed = annotations.iter().map(|(name, value)| {
        (
            format!("service.beta.kubernetes.io/do-loadbalancer-{name}"),
            (*value).to_owned(),
        )
    });
    Request {
        annotations: prefixed.collect(),
        ..request
    }
}
