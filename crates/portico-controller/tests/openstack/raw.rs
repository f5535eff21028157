//! The cloud as its users and administrators see it: what tests set up, and what they look at behind the provider.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderName, Method};
use portico_controller::conformance::World;
use portico_controller::providers::cloud::{
    Anonymous, Authorize, Call, CallMetrics, Client, Dialect, Fixed, Header, Pace, Reply, Setup, Transport,
};
use secrecy::SecretString;
use serde_json::{Value, json};

/// What was made for Services of a test is called this.
const OURS: &str = "kube_service_conformance_";
const OUR_FLOATING_IPS: &str = "Floating IP of Kubernetes service";

/// Calls with a token.
pub struct Raw {
    client: Client,
    pub keystone: String,
    pub neutron: String,
    pub octavia: String,
}

impl Raw {
    pub fn new(transport: Arc<dyn Transport>, token: Option<String>, urls: [String; 3]) -> Raw {
        let header = Header::Named(HeaderName::from_static("x-auth-token"));
        let authorize: Arc<dyn Authorize> = match token {
            Some(token) => Arc::new(Fixed { header, token: SecretString::from(token) }),
            None => Arc::new(Anonymous),
        };
        let dialect = Dialect { read: |_| None, is_throttled: |_, _| false };
        let pace = Pace { rate: 1e6, burst: 1_000_000, ..Pace::default() };
        let metrics = CallMetrics::default();
        let setup = Setup { provider: "raw", transport, authorize, dialect, pace, metrics };
        let [keystone, neutron, octavia] = urls;
        Raw { client: Client::new(setup), keystone, neutron, octavia }
    }

    async fn send(&self, method: Method, url: String, body: Option<&Value>) -> Result<Reply, String> {
        let call = Call::new("raw", method.clone(), url.clone());
        let call = if let Some(body) = body { call.json(body) } else { call };
        self.client.send(call).await.map_err(|error| format!("{method} {url}: {error}"))
    }

    pub async fn post(&self, url: String, body: Value) -> Value {
        self.send(Method::POST, url, Some(&body)).await.unwrap().json().unwrap()
    }

    pub async fn put(&self, url: String, body: Value) {
        self.send(Method::PUT, url, Some(&body)).await.unwrap();
    }

    pub async fn get(&self, url: String) -> Result<Value, String> {
        self.send(Method::GET, url, None).await?.json().map_err(|error| error.to_string())
    }

    async fn list(&self, service: &str, path: &str) -> Result<Vec<Value>, String> {
        let name = path.rsplit('/').next().unwrap_or_default().split('?').next().unwrap_or_default();
        let mut answer = self.get(format!("{service}/{path}")).await?;
        serde_json::from_value(answer[name].take()).map_err(|error| format!("{path}: {error}"))
    }

    /// A token, and nothing else of the answer.
    pub async fn log_in(&self, auth: Value) -> String {
        let reply = self.send(Method::POST, format!("{}/auth/tokens", self.keystone), Some(&auth)).await.unwrap();
        reply.header("x-subject-token").unwrap().to_owned()
    }

    pub async fn load_balancers(&self) -> Result<Vec<Value>, String> {
        self.list(&self.octavia, "loadbalancers").await
    }

    pub async fn floating_ips(&self) -> Result<Vec<Value>, String> {
        self.list(&self.neutron, "floatingips").await
    }

    /// Everything in a load balancer, a line each.
    async fn tree(&self, balancer: &Value) -> Result<Vec<String>, String> {
        let id = balancer["id"].as_str().unwrap_or_default();
        let mut lines = vec![line("loadbalancer", balancer, &["name", "vip_address", "tags", "provider"])];
        for listener in self.list(&self.octavia, &format!("listeners?load_balancer_id={id}")).await? {
            let pool = listener["default_pool_id"].as_str().unwrap_or_default().to_owned();
            let pools = self.list(&self.octavia, &format!("pools?id={pool}")).await?;
            let fields =
                ["name", "protocol", "protocol_port", "connection_limit", "allowed_cidrs", "insert_headers", "tags"];
            lines.push(format!("{} {}", line("listener", &listener, &fields), line("to", &pools[0], &["name"])));
        }
        for pool in self.list(&self.octavia, &format!("pools?loadbalancer_id={id}")).await? {
            let fields = ["name", "protocol", "lb_algorithm", "session_persistence", "tags"];
            lines.push(line("pool", &pool, &fields));
            let (id, name) = (pool["id"].as_str().unwrap_or_default(), &pool["name"]);
            for member in self.list(&self.octavia, &format!("pools/{id}/members")).await? {
                let fields = ["name", "address", "protocol_port", "monitor_port", "subnet_id"];
                lines.push(format!("{} of {name}", line("member", &member, &fields)));
            }
            for monitor in self.list(&self.octavia, &format!("healthmonitors?pool_id={id}")).await? {
                let fields = ["name", "type", "delay", "timeout", "max_retries", "url_path", "expected_codes", "tags"];
                lines.push(format!("{} of {name}", line("monitor", &monitor, &fields)));
            }
        }
        Ok(lines)
    }

    /// Load balancers and floating IPs, of the test's Services or of others.
    async fn all(&self, ours: bool) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        for balancer in self.load_balancers().await? {
            if balancer["name"].as_str().unwrap_or_default().starts_with(OURS) == ours {
                lines.extend(self.tree(&balancer).await?);
            }
        }
        for ip in self.floating_ips().await? {
            if ip["description"].as_str().unwrap_or_default().starts_with(OUR_FLOATING_IPS) == ours {
                let attached = if ip["port_id"].is_null() { "free" } else { "attached" };
                lines.push(format!("{} {attached}", line("floatingip", &ip, &["floating_ip_address", "description"])));
            }
        }
        Ok(lines)
    }
}

fn line(kind: &str, of: &Value, fields: &[&str]) -> String {
    let fields = fields.iter().map(|field| format!("{field}={}", sorted(of[*field].clone())));
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

/// A load balancer that is somebody else's, with everything in it, and free addresses that are too. The addresses.
pub async fn settle_others(raw: &Raw, subnet: &str, external: &str) -> String {
    let pool = json!({
        "name": "their-pool", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
        "members": [{"name": "node-1", "address": "10.20.200.1", "protocol_port": 1}],
        "healthmonitor": {"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1},
    });
    let listener = json!({"name": "theirs", "protocol": "TCP", "protocol_port": 8001, "default_pool": pool});
    let balancer = json!({"name": "theirs", "vip_subnet_id": subnet, "tags": ["theirs"], "listeners": [listener]});
    raw.post(format!("{}/loadbalancers", raw.octavia), json!({ "loadbalancer": balancer })).await;
    let address = json!({"floatingip": {"floating_network_id": external, "description": "reserved by people"}});
    let made = raw.post(format!("{}/floatingips", raw.neutron), address).await;
    made["floatingip"]["floating_ip_address"].as_str().unwrap().to_owned()
}
