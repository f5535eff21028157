//! The all-in-one server of a machine: API server, controllers and node, each a process that is
//! started again when it ends.

use super::keeper::Keeper;
use super::{api, notify, objects, text};
use crate::machine::Machine;
use crate::signals::Signals;
use anyhow::{Context, bail};
use kube::Client;
use kube::config::Kubeconfig;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const DATA: &str = "/var/lib/portico";
/// The time limit for the API server to be ready.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);
/// Those that serve people end last.
const ORDER: [&str; 3] = ["node", "controller", "apiserver"];

#[derive(clap::Args, Clone)]
#[command(rename_all = "kebab-case")]
#[group(id = "server")]
pub(super) struct Arguments {
    /// The name of this machine's Node [default: its hostname].
    #[arg(long, value_name = "NAME", conflicts_with = "demo")]
    node_name: Option<String>,
    /// The addresses of Services: one range, or two of different families.
    #[arg(
        long,
        value_name = "CIDR[,CIDR]",
        default_value = "10.96.0.0/16",
        conflicts_with = "demo"
    )]
    service_cluster_ip_range: String,
    /// The addresses of pods or containers, whose source address is kept.
    #[arg(long, value_name = "CIDR[,CIDR]", conflicts_with = "demo")]
    cluster_cidr: Option<String>,
    /// nftables, iptables or ipvs.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "nftables",
        conflicts_with = "demo"
    )]
    proxy_mode: String,
    /// Addresses for load balancers, such as 192.0.2.200-192.0.2.220: kept as the AddressPool
    /// `default`.
    #[arg(
        long,
        value_name = "RANGE,...",
        value_delimiter = ',',
        conflicts_with = "demo"
    )]
    pool: Vec<String>,
    #[command(flatten)]
    pub machine: Machine,
}

pub(super) async fn run(arguments: super::Arguments) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let mut server = Server::new(&arguments)?;
    let result = tokio::select! {
        result = server.work() => result,
        () = signals.wait() => Ok(()),
    };
    server.keeper.stop(&ORDER);
    result
}

struct Server {
    keeper: Keeper,
    kubeconfig: PathBuf,
    node: String,
    pool: Vec<String>,
    machine: Machine,
}

impl Server {
    fn new(arguments: &super::Arguments) -> anyhow::Result<Self> {
        let dir = arguments
            .data_dir
            .clone()
            .unwrap_or_else(|| PathBuf::from(DATA));
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir);
        made.with_context(|| format!("cannot make {}", dir.display()))?;
        let node = match &arguments.server.node_name {
            Some(name) => name.clone(),
            None => fs::read_to_string("/proc/sys/kernel/hostname")?
                .trim()
                .to_lowercase(),
        };
        let kubeconfig = dir.join("api/pki/admin.kubeconfig");
        Ok(Self {
            keeper: Keeper::new(commands(arguments, &dir, &kubeconfig, &node))?,
            kubeconfig,
            node,
            pool: arguments.server.pool.clone(),
            machine: arguments.server.machine.clone(),
        })
    }

    async fn work(&mut self) -> anyhow::Result<()> {
        self.keeper.start("apiserver")?;
        let client = self.first_client().await?;
        self.make_objects(&client).await?;
        self.keeper.start("controller")?;
        self.keeper.start("node")?;
        notify::ready();
        tracing::info!(
            "everything is started; try: kubectl --kubeconfig {} get services -A",
            self.kubeconfig.display()
        );
        tracing::info!(
            "another machine becomes a node with what this prints: portico token create \
             --kubeconfig {}",
            self.kubeconfig.display()
        );
        loop {
            sleep(LOOK).await;
            self.keeper.restart_what_ended()?;
        }
    }

    async fn first_client(&mut self) -> anyhow::Result<Client> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Written before the server is ready, and on its first start some time after it begins.
            if let Ok(kubeconfig) = Kubeconfig::read_from(&self.kubeconfig) {
                let client = api::client(kubeconfig).await?;
                if api::is_ready(&client).await {
                    return Ok(client);
                }
            }
            self.keeper.programs.check()?;
            if Instant::now() > deadline {
                bail!("the API server was not ready after {PATIENCE:?}: see above what it says");
            }
            sleep(LOOK).await;
        }
    }

    /// This machine as a Node, and the pool.
    async fn make_objects(&self, client: &Client) -> anyhow::Result<()> {
        let endpoints =
            objects::get(client, "/api/v1/namespaces/default/endpoints/kubernetes").await?;
        let own = endpoints["subsets"][0]["addresses"][0]["ip"]
            .as_str()
            .and_then(|own| own.parse().ok())
            .context("the API server does not know its address")?;
        let path = format!("/api/v1/nodes/{}", self.node);
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node},
            "spec": self.machine.spec()});
        objects::apply(client, &path, &node).await?;
        let reason = ["PorticoUp", "portico up runs"];
        let status = self.machine.status(&self.node, own, reason);
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}, "status": status});
        objects::apply(client, &format!("{path}/status"), &node).await?;
        if self.pool.is_empty() {
            return Ok(());
        }
        let pool = json!({"apiVersion": "portico.dev/v1", "kind": "AddressPool", "metadata": {"name": "default"},
            "spec": {"addresses": self.pool}});
        objects::apply(client, "/apis/portico.dev/v1/addresspools/default", &pool)
            .await
            .context("--pool")
    }
}

fn commands(
    arguments: &super::Arguments,
    dir: &Path,
    kubeconfig: &Path,
    node: &str,
) -> BTreeMap<&'static str, Vec<String>> {
    let (api, data, kubeconfig) = (
        dir.join("api"),
        dir.join("node"),
        kubeconfig.display().to_string(),
    );
    let (api, data, port) = (
        api.display().to_string(),
        data.display().to_string(),
        arguments.port.to_string(),
    );
    let range = &arguments.server.service_cluster_ip_range;
    let apiserver = [
        "apiserver",
        "--data-dir",
        &api,
        "--secure-port",
        &port,
        "--service-cluster-ip-range",
        range,
    ];
    let controller = [
        "controller",
        "--kubeconfig",
        &kubeconfig,
        "--controllers",
        "service-lb",
        "--cloud-provider",
        "metal",
    ];
    let mode = &arguments.server.proxy_mode;
    let node = [
        "node",
        "--kubeconfig",
        &kubeconfig,
        "--hostname-override",
        node,
        "--data-dir",
        &data,
        "--proxy-mode",
        mode,
    ];
    let mut node = text(&node);
    if let Some(pods) = &arguments.server.cluster_cidr {
        node.extend(text(&["--cluster-cidr", pods]));
    }
    BTreeMap::from([
        ("apiserver", text(&apiserver)),
        ("controller", text(&controller)),
        ("node", node),
    ])
}
