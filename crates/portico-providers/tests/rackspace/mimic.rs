//! `mimic` as a server of its own, with a load balancer of somebody else, and looks behind the
//! provider.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Method;
use portico_providers::cloud::{
    Anonymous, Call, CallMetrics, Client, Dialect, Http, HttpOptions, Pace, Poll, Reply, Setup,
    Transport,
};
use portico_providers::conformance::World;
use portico_providers::rackspace::{Config, Parts, Rackspace};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// For it to be there, on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(180);
const USER: &str = "shop";

pub(crate) struct Mimic {
    _process: Child,
    url: String,
    client: Client,
    transport: Arc<dyn Transport>,
    balancers: String,
    /// Where states are set.
    control: String,
}

impl Mimic {
    pub(crate) async fn start() -> Self {
        let (process, port) = serve().await;
        let url = format!("http://127.0.0.1:{port}/identity");
        let transport: Arc<dyn Transport> = Arc::new(Http::new(&HttpOptions::default()).unwrap());
        let client = Client::new(Setup {
            provider: "raw",
            transport: Arc::clone(&transport),
            authorize: Arc::new(Anonymous),
            dialect: Dialect {
                read: |_| None,
                is_throttled: |_, _| false,
            },
            pace: pace(),
            metrics: CallMetrics::default(),
        });
        let credentials = json!({"username": USER, "apiKey": "hush"});
        let call = Call::post("raw", format!("{url}/v2.0/tokens"));
        let call = call.json(&json!({"auth": {"RAX-KSKEY:apiKeyCredentials": credentials}}));
        let catalog: Value = client.send(call).await.unwrap().json().unwrap();
        let endpoint = |name: &str| {
            let services = catalog["access"]["serviceCatalog"].as_array().unwrap();
            let service = services
                .iter()
                .find(|service| service["name"] == name)
                .unwrap();
            service["endpoints"][0]["publicURL"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let (balancers, control) = (
            endpoint("cloudLoadBalancers"),
            endpoint("cloudLoadBalancerControl"),
        );
        let mimic = Self {
            _process: process,
            url,
            client,
            transport,
            balancers,
            control,
        };
        let foreign = json!({"name": "foreign", "protocol": "HTTP", "port": 80, "virtualIps": [{"type": "PUBLIC"}]});
        let url = format!("{}/loadbalancers", mimic.balancers);
        mimic
            .send(Method::POST, url, Some(json!({ "loadBalancer": foreign })))
            .await;
        mimic
    }

    /// As after a start of the program.
    pub(crate) fn provider(&self, region: &str, node_limit: usize) -> Rackspace {
        let poll = Poll {
            first: Duration::from_millis(5),
            last: Duration::from_millis(50),
            ..Poll::default()
        };
        self.provider_with(region, node_limit, poll)
    }

    pub(crate) fn provider_with(&self, region: &str, node_limit: usize, poll: Poll) -> Rackspace {
        let text = format!(
            "[Global]\nauth-url = {}\nusername = {USER}\napi-key = hush\nregion = \
             {region}\nnode-limit = {node_limit}\n",
            self.url
        );
        let config = Config::parse(&text, |_| None).unwrap();
        let transport = Arc::clone(&self.transport);
        Rackspace::new(
            config,
            Parts {
                transport,
                pace: pace(),
                poll,
                metrics: CallMetrics::default(),
            },
        )
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.send(Method::GET, format!("{}/{path}", self.balancers), None)
            .await
            .json()
            .unwrap()
    }

    /// Of those whose name begins with a word.
    pub(crate) async fn ids(&self, word: &str) -> Vec<u64> {
        let listed = self.get("loadbalancers").await;
        let all = listed["loadBalancers"].as_array().unwrap().iter();
        let own = all.filter(|it| it["name"].as_str().unwrap().split(' ').next() == Some(word));
        own.map(|it| it["id"].as_u64().unwrap()).collect()
    }

    pub(crate) async fn set_status(&self, id: u64, status: &str) {
        let url = format!("{}/loadbalancer/{id}/attributes", self.control);
        self.send(Method::PATCH, url, Some(json!({ "status": status })))
            .await;
    }

    async fn send(&self, method: Method, url: String, body: Option<Value>) -> Reply {
        let call = Call::new("raw", method, url);
        let call = if let Some(body) = body {
            call.json(&body)
        } else {
            call
        };
        self.client.send(call).await.unwrap()
    }

    async fn lines(&self, foreign: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for balancer in self.get("loadbalancers").await["loadBalancers"]
            .as_array()
            .unwrap()
        {
            if (balancer["name"] == "foreign") != foreign {
                continue;
            }
            let shown =
                self.get(&format!("loadbalancers/{}", balancer["id"])).await["loadBalancer"].take();
            let fields = ["name", "protocol", "port", "algorithm", "timeout", "status"]
                .map(|field| shown[field].to_string());
            lines.push(format!("loadBalancer {}", fields.join(" ")));
            for node in shown["nodes"].as_array().into_iter().flatten() {
                let [address, port] = ["address", "port"].map(|field| node[field].to_string());
                lines.push(format!(
                    "node of {} {}: {address} {port}",
                    fields[0], fields[2]
                ));
            }
        }
        lines
    }
}

impl World for Mimic {
    fn owned(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async { Ok(self.lines(false).await) })
    }

    fn foreign(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async { Ok(self.lines(true).await) })
    }
}

fn pace() -> Pace {
    Pace {
        rate: 1e6,
        burst: 1_000_000,
        ..Pace::default()
    }
}

fn program() -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .with_file_name("mimic")
        .join("bin/twistd");
    assert!(
        program.exists(),
        "{} is not there: run `make deps`",
        program.display()
    );
    program
}

/// The port it chose.
async fn serve() -> (Child, u16) {
    let mut process = Command::new(program())
        .args([
            "--nodaemon",
            "--pidfile=",
            "mimic",
            "--listen",
            "tcp:0:interface=127.0.0.1",
        ])
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let port = timeout(PATIENCE, async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, port)) = line.split_once("starting on ") {
                return port.trim().parse().unwrap();
            }
        }
        panic!("mimic ended: {:?}", process.wait().await);
    });
    let port = port.await.expect("mimic says where it listens");
    // Whatever it has to say later is read, or it would stop.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (process, port)
}
