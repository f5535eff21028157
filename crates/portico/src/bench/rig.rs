//! The lab with an API server, a node's daemon and many Services, and how long things take in it.

use crate::fetch;
use crate::up::demo::Demo;
use crate::up::{objects, relay};
use anyhow::{Context, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::Client;
use portico_netns::lab::{PLACES, POD_PORT};
use portico_netns::{Host, Lab};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const METRICS: &str = "127.0.0.1:10249";
/// The name of the Service whose endpoint moves.
const SENTINEL: &str = "bench";
/// Endpoints of each Service that is only there.
const ENDPOINTS: usize = 10;
/// Requests at a time while Services are made.
const AT_A_TIME: usize = 16;
/// A connection whose first packet was lost is given up after this, and another is made.
const ATTEMPT: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Rig {
    demo: Demo,
    client: Client,
    /// The host whose connections are measured.
    node: Host,
    sentinel: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Rig {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("portico-bench-")
            .tempdir()?;
        let lab = Lab::new()
            .context("cannot make the network: are network namespaces, veth and bridges there?")?;
        let node = lab.host(PLACES[0].node).context("there is a node")?.clone();
        let mut demo = Demo::new(lab, folder.path().to_owned())?;
        let client = demo.start_api(relay::Relay::bind(0).await?).await?;
        objects::apply_all(&client).await?;
        create(
            &client,
            SLICES,
            &slice(SENTINEL, &[PLACES[0].pod_address.into()]),
        )
        .await?;
        let sentinel = address(&create(&client, SERVICES, &service(SENTINEL)).await?)?;
        Ok(Self {
            demo,
            client,
            node,
            sentinel,
            _folder: folder,
        })
    }

    /// So many Services, whose endpoints do not exist: they cost rules, not traffic.
    pub(super) async fn load(&self, services: usize) -> anyhow::Result<()> {
        let one = |n: usize| async move {
            let name = format!("bulk-{n}");
            let addresses: Vec<IpAddr> =
                (0..ENDPOINTS).map(|e| nobody(n * ENDPOINTS + e)).collect();
            create(&self.client, SLICES, &slice(&name, &addresses)).await?;
            create(&self.client, SERVICES, &service(&name))
                .await
                .map(drop)
        };
        stream::iter(0..services)
            .map(one)
            .buffer_unordered(AT_A_TIME)
            .try_collect()
            .await
    }

    /// Until the first connection.
    pub(super) async fn start_node(&mut self) -> anyhow::Result<Duration> {
        let started = Instant::now();
        self.demo.start_node(PLACES[0].node)?;
        self.until_answered(self.sentinel, PLACES[0].pod, started)
            .await
    }

    /// The kernel's time for all installations so far.
    pub(super) async fn kernel(&self) -> anyhow::Result<Duration> {
        let at: SocketAddr = METRICS.parse()?;
        let stream = relay::connect(&self.node, at)
            .await
            .context("cannot reach the node's metrics")?;
        let text = fetch::over(stream, at, "/metrics", PATIENCE).await?.body;
        let sum = text
            .lines()
            .find_map(|line| line.strip_prefix("portico_kernel_duration_seconds_sum "));
        Ok(Duration::from_secs_f64(
            sum.context("the node does not tell the kernel's part")?
                .parse()?,
        ))
    }

    /// From the API server's answer to the first connection.
    pub(super) async fn new_service(&self, number: usize) -> anyhow::Result<Duration> {
        let name = format!("new-{number}");
        create(
            &self.client,
            SLICES,
            &slice(&name, &[PLACES[0].pod_address.into()]),
        )
        .await?;
        let made = create(&self.client, SERVICES, &service(&name)).await?;
        self.until_answered(address(&made)?, PLACES[0].pod, Instant::now())
            .await
    }

    /// To the pod at this place; from the API server's answer to the first connection that gets
    /// there.
    pub(super) async fn move_endpoint(&self, place: usize) -> anyhow::Result<Duration> {
        let place = PLACES.get(place).context("there is such a place")?;
        let body = serde_json::to_vec(&slice(SENTINEL, &[place.pod_address.into()]))?;
        let request = http::Request::put(format!("{SLICES}/{SENTINEL}-s"))
            .header("content-type", "application/json");
        self.client.request::<Value>(request.body(body)?).await?;
        self.until_answered(self.sentinel, place.pod, Instant::now())
            .await
    }

    async fn until_answered(
        &self,
        at: SocketAddr,
        pod: &'static str,
        since: Instant,
    ) -> anyhow::Result<Duration> {
        let node = self.node.clone();
        let wait = move || loop {
            if node
                .enter(|| ask(at, ATTEMPT))
                .is_ok_and(|answer| answer.contains(pod))
            {
                return Ok(since.elapsed());
            }
            if since.elapsed() > PATIENCE {
                bail!("{pod} is not reached at {at} within {PATIENCE:?}");
            }
        };
        tokio::task::spawn_blocking(wait).await?
    }

    /// Times of new connections through a Service, and straight to its endpoint, by turns.
    pub(super) async fn connections(
        &self,
        count: usize,
    ) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
        self.move_endpoint(0).await?;
        let (node, through) = (self.node.clone(), self.sentinel);
        let direct = SocketAddr::new(PLACES[0].pod_address.into(), POD_PORT);
        let measure = move || {
            let mut times = (Vec::new(), Vec::new());
            for n in 0..2 * count {
                let (at, times) = if n % 2 == 0 {
                    (through, &mut times.0)
                } else {
                    (direct, &mut times.1)
                };
                let started = Instant::now();
                // One in thousands meets a port whose last connection is not forgotten yet; it
                // counts as slow.
                let _ = node.enter(|| ask(at, Duration::from_secs(1)));
                times.push(started.elapsed());
            }
            times
        };
        Ok(tokio::task::spawn_blocking(measure).await?)
    }
}

/// The answer of the server behind this address, which names its endpoint.
fn ask(at: SocketAddr, patience: Duration) -> std::io::Result<String> {
    let mut connection = TcpStream::connect_timeout(&at, patience)?;
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}

async fn create(client: &Client, path: &str, object: &Value) -> anyhow::Result<Value> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let made = client
        .request(request.body(serde_json::to_vec(object)?)?)
        .await;
    made.with_context(|| format!("cannot make {}", object["metadata"]["name"]))
}

fn address(service: &Value) -> anyhow::Result<SocketAddr> {
    let text = service["spec"]["clusterIP"]
        .as_str()
        .context("the Service has a cluster IP")?;
    Ok(SocketAddr::new(text.parse()?, 80))
}

fn nobody(number: usize) -> IpAddr {
    let [_, a, b, c] = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    IpAddr::from([172, 16 | (a & 15), b, c])
}

fn service(name: &str) -> Value {
    let spec = json!({"ports": [{"port": 80, "targetPort": POD_PORT}]});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

fn slice(service: &str, addresses: &[IpAddr]) -> Value {
    let endpoint =
        |address: &IpAddr| json!({"addresses": [address], "conditions": {"ready": true}});
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": format!("{service}-s"), "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"port": POD_PORT, "protocol": "TCP"}],
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
    })
}
