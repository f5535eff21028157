//! The cloud as its users and administrators see it: what tests set up, and what they look at
//! behind the provider.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderName, Method};
use portico_providers::cloud::{
    Anonymous, Authorize, Call, CallMetrics, Client, Dialect, Fixed, Header, Pace, Reply, Setup,
    Transport,
};
use portico_providers::conformance::World;
use secrecy::SecretString;
use serde_json::{Value, json};

/// Calls with a token.
pub(super) struct Raw {
    client: Client,
    pub keystone: String,
    pub neutron: String,
    pub octavia: String,
}

impl Raw {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        token: Option<String>,
        urls: [String; 3],
    ) -> Self {
        let header = Header::Named(HeaderName::from_static("x-auth-token"));
        let authorize: Arc<dyn Authorize> = match token {
            Some(token) => Arc::new(Fixed {
                header,
                token: SecretString::from(token),
            }),
            None => Arc::new(Anonymous),
        };
        let dialect = Dialect {
            read: |_| None,
            is_throttled: |_, _| false,
        };
        let pace = Pace {
            rate: 1e6,
            burst: 1_000_000,
            ..Pace::default()
        };
        let metrics = CallMetrics::default();
        let setup = Setup {
            provider: "raw",
            transport,
            authorize,
            dialect,
            pace,
            metrics,
        };
        let [keystone, neutron, octavia] = urls;
        Self {
            client: Client::new(setup),
            keystone,
            neutron,
            octavia,
        }
    }

    async fn send(
        &self,
        method: Method,
        url: String,
        body: Option<&Value>,
    ) -> Result<Reply, String> {
        let call = Call::new("raw", method.clone(), url.clone());
        let call = if let Some(body) = body {
            call.json(body)
        } else {
            call
        };
        self.client
            .send(call)
            .await
            .map_err(|error| format!("{method} {url}: {error}"))
    }

    pub(super) async fn post(&self, url: String, body: Value) -> Value {
        self.send(Method::POST, url, Some(&body))
            .await
            .unwrap()
            .json()
            .unwrap()
    }

    pub(super) async fn put(&self, url: String, body: Value) {
        self.send(Method::PUT, url, Some(&body)).await.unwrap();
    }

    pub(super) async fn get(&self, url: String) -> Result<Value, String> {
        self.send(Method::GET, url, None)
            .await?
            .json()
            .map_err(|error| error.to_string())
    }

    async fn list(&self, service: &str, path: &str) -> Result<Vec<Value>, String> {
        let name = path
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .split('?')
            .next()
            .unwrap_or_default();
        let mut answer = self.get(format!("{service}/{path}")).await?;
        serde_json::from_value(answer[name].take()).map_err(|error| format!("{path}: {error}"))
    }

    /// A token, and nothing else of the answer.
    pub(super) async fn log_in(&self, auth: Value) -> String {
        let reply = self
            .send(
                Method::POST,
                format!("{}/auth/tokens", self.keystone),
                Some(&auth),
            )
            .await
            .unwrap();
        reply.header("x-subject-token").unwrap().to_owned()
    }

    pub(super) async fn load_balancers(&self) -> Result<Vec<Value>, String> {
        self.list(&self.octavia, "loadbalancers").await
    }

    pub(super) async fn floating_ips(&self) -> Result<Vec<Value>, String> {
        self.list(&self.neutron, "floatingips").await
    }

    async fn tree(&self, balancer: Value) -> Result<Tree, String> {
        let id = balancer["id"].as_str().unwrap_or_default().to_owned();
        let listeners = self
            .list(&self.octavia, &format!("listeners?load_balancer_id={id}"))
            .await?;
        let pools = self
            .list(&self.octavia, &format!("pools?loadbalancer_id={id}"))
            .await?;
        let (mut members, mut monitors) = (Vec::new(), Vec::new());
        for pool in &pools {
            let id = pool["id"].as_str().unwrap_or_default();
            let of_pool = |mut it: Value| {
                it["pool_id"] = id.into();
                it
            };
            members.extend(
                self.list(&self.octavia, &format!("pools/{id}/members"))
                    .await?
                    .into_iter()
                    .map(of_pool),
            );
            monitors.extend(
                self.list(&self.octavia, &format!("healthmonitors?pool_id={id}"))
                    .await?
                    .into_iter()
                    .map(of_pool),
            );
        }
        Ok(Tree {
            balancer,
            listeners,
            pools,
            members,
            monitors,
        })
    }

    /// Load balancers and floating IPs, of the test's Services or of others.
    async fn all(&self, ours: bool) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        for balancer in self.load_balancers().await? {
            if is_ours(&balancer) == ours {
                lines.extend(self.tree(balancer).await?.lines());
            }
        }
        let addresses = self.floating_ips().await?;
        lines.extend(
            addresses
                .iter()
                .filter(|ip| is_ours(ip) == ours)
                .map(floating_line),
        );
        Ok(lines)
    }
}

/// Whether a load balancer or a floating IP was made for a Service of the test.
pub(super) fn is_ours(it: &Value) -> bool {
    let is = |field: &str, prefix: &str| {
        it[field]
            .as_str()
            .is_some_and(|text| text.starts_with(prefix))
    };
    is("name", "kube_service_conformance_")
        || is("description", "Floating IP of Kubernetes service")
}

/// A load balancer with everything in it. Members and monitors have `pool_id`.
pub(super) struct Tree {
    pub balancer: Value,
    pub listeners: Vec<Value>,
    pub pools: Vec<Value>,
    pub members: Vec<Value>,
    pub monitors: Vec<Value>,
}

impl Tree {
    pub(super) fn lines(&self) -> Vec<String> {
        let pool = |id: &Value| {
            self.pools
                .iter()
                .find(|pool| pool["id"] == *id)
                .map_or(&Value::Null, |pool| &pool["name"])
        };
        let listener = |it: &Value| {
            let fields = [
                "name",
                "protocol",
                "protocol_port",
                "connection_limit",
                "allowed_cidrs",
                "insert_headers",
                "tags",
            ];
            format!(
                "{} to {}",
                line("listener", it, &fields),
                pool(&it["default_pool_id"])
            )
        };
        let member = |it: &Value| {
            let fields = [
                "name",
                "address",
                "protocol_port",
                "monitor_port",
                "subnet_id",
            ];
            format!(
                "{} of {}",
                line("member", it, &fields),
                pool(&it["pool_id"])
            )
        };
        let monitor = |it: &Value| {
            let fields = [
                "name",
                "type",
                "delay",
                "timeout",
                "max_retries",
                "url_path",
                "expected_codes",
                "tags",
            ];
            format!(
                "{} of {}",
                line("monitor", it, &fields),
                pool(&it["pool_id"])
            )
        };
        let mut lines = vec![line(
            "loadbalancer",
            &self.balancer,
            &["name", "vip_address", "tags", "provider"],
        )];
        lines.extend(self.listeners.iter().map(listener));
        let fields = [
            "name",
            "protocol",
            "lb_algorithm",
            "session_persistence",
            "tags",
        ];
        lines.extend(self.pools.iter().map(|it| line("pool", it, &fields)));
        lines.extend(self.members.iter().map(member));
        lines.extend(self.monitors.iter().map(monitor));
        lines
    }
}

pub(super) fn floating_line(ip: &Value) -> String {
    let attached = if ip["port_id"].is_null() {
        "free"
    } else {
        "attached"
    };
    format!(
        "{} {attached}",
        line("floatingip", ip, &["floating_ip_address", "description"])
    )
}

fn line(kind: &str, of: &Value, fields: &[&str]) -> String {
    let fields = fields
        .iter()
        .map(|field| format!("{field}={}", sorted(of[*field].clone())));
    format!("{kind} {}", fields.collect::<Vec<_>>().join(" "))
}

/// Lists of texts are sets here.
fn sorted(mut value: Value) -> Value {
    if let Some(list) = value.as_array_mut() {
        list.sort_by_key(ToString::to_string);
    }
    value
}

impl World for Raw {
    fn owned(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(self.all(true))
    }

    fn foreign(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async {
            let mut lines = self.all(false).await?;
            for network in self.list(&self.neutron, "networks").await? {
                lines.push(line("network", &network, &["name", "subnets"]));
            }
            Ok(lines)
        })
    }
}

/// A load balancer that is somebody else's, with everything in it, and free addresses that are too.
/// The addresses.
pub(super) async fn settle_others(raw: &Raw, subnet: &str, external: &str) -> String {
    let pool = json!({
        "name": "their-pool", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
        "members": [{"name": "node-1", "address": "10.20.200.1", "protocol_port": 1}],
        "healthmonitor": {"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1},
    });
    let listener =
        json!({"name": "theirs", "protocol": "TCP", "protocol_port": 8001, "default_pool": pool});
    let balancer = json!({"name": "theirs", "vip_subnet_id": subnet, "tags": ["theirs"], "listeners": [listener]});
    raw.post(
        format!("{}/loadbalancers", raw.octavia),
        json!({ "loadbalancer": balancer }),
    )
    .await;
    let address = json!({"floatingip": {"floating_network_id": external, "description": "reserved by people"}});
    let made = raw
        .post(format!("{}/floatingips", raw.neutron), address)
        .await;
    made["floatingip"]["floating_ip_address"]
        .as_str()
        .unwrap()
        .to_owned()
}
