//! `portico controller`: what keeps objects in step with each other, as a client of any API server.

use crate::check_plugin;
use crate::signals::Signals;
use anyhow::Context;
use clap::{ArgAction, Args, Subcommand};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use portico_api::gates::Gates;
use portico_client::access;
use portico_client::lease::{LeaseOptions, lead};
use portico_controller::cluster::Cluster;
use portico_controller::{balancers, endpoints, health};
use portico_model::checks::{Range, Ranges};
use portico_model::duration;
use portico_node::health::listen;
use portico_providers::cloud::CallMetrics;
use portico_providers::{Start, StartError};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

#[derive(Args)]
#[command(rename_all = "kebab-case", args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub task: Option<Task>,
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config or the pod's own].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// What to run: endpointslice (where no other controller does it), endpoint-health (checks of
    /// what `portico expose` made), service-lb, or * for all.
    #[arg(long, value_name = "NAMES", default_value = "*", value_delimiter = ',')]
    controllers: Vec<String>,
    /// Where load balancers come from: metal, aws, digitalocean, gce, openstack, rackspace,
    /// haproxy, plugin:SOCKET, or none.
    #[arg(long, value_name = "NAME", default_value = "none")]
    cloud_provider: String,
    /// The provider's own configuration.
    #[arg(long, value_name = "FILE")]
    cloud_config: Option<PathBuf>,
    /// Tells the load balancers of several clusters in one account apart.
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    cluster_name: String,
    /// Serve only Services of this class [default: those without a class and those of
    /// portico.dev/PROVIDER].
    #[arg(long, value_name = "CLASS")]
    load_balancer_class: Option<String>,
    /// Where nodes say whether they are fit.
    #[arg(long, value_name = "PORT", default_value_t = 10256)]
    node_healthz_port: u16,
    /// How many Services are worked on at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 32)]
    concurrent_service_syncs: usize,
    /// How often each load balancer is compared with what it should be.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    resync_period: Duration,
    /// LoadBalancerIPMode=false to write addresses of load balancers without their ipMode.
    #[arg(long, value_name = "NAME=BOOL,...", default_value = "")]
    feature_gates: String,
    /// Also keep the older Endpoints objects.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    endpoints: bool,
    /// Which addresses endpoint-health may ask: networks, and `cluster` for the nodes' addresses and
    /// their networks of pods. Loopback, link-local and metadata addresses are only asked where a
    /// range of their own is listed.
    #[arg(
        long,
        value_name = "RANGES",
        default_value = "cluster",
        value_delimiter = ','
    )]
    health_check_ranges: Vec<Range>,
    /// Serve /metrics and /healthz here; 0 is nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10258")]
    metrics_bind_address: String,
    /// Take back every load balancer that this controller gave, with its addresses and finalizers,
    /// and end: for when Portico is about to leave the cluster.
    #[arg(long)]
    release: bool,
    /// With --release: scale this Deployment, whose pods are the controllers, to 0 first.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "release", value_parser = parse_object)]
    stop_deployment: Option<(String, String)>,
    #[command(flatten)]
    election: Election,
}

/// What there is to do beside running.
#[derive(Subcommand)]
pub(crate) enum Task {
    /// Check whether a plugin keeps the contract of providers: a line for each step, and an error
    /// if one failed.
    CheckPlugin(check_plugin::Arguments),
}

/// Which of several controllers works.
#[derive(Args, Clone)]
#[command(rename_all = "kebab-case")]
struct Election {
    /// Let only one of several controllers work at a time.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    leader_elect: bool,
    /// For how long others leave a lease alone that is not renewed.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    leader_elect_lease_duration: Duration,
    /// After how long without a renewal the work stops.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    leader_elect_renew_deadline: Duration,
    /// How often the lease is renewed or asked for.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    leader_elect_retry_period: Duration,
    /// The namespace of the leases.
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
    /// The name of the lease of the load-balancer controller.
    #[arg(long, value_name = "NAME", default_value = "portico-controller")]
    leader_elect_resource_name: String,
}

impl Default for Election {
    fn default() -> Self {
        Self {
            leader_elect: true,
            leader_elect_lease_duration: Duration::from_secs(15),
            leader_elect_renew_deadline: Duration::from_secs(10),
            leader_elect_retry_period: Duration::from_secs(2),
            leader_elect_resource_namespace: "kube-system".to_owned(),
            leader_elect_resource_name: "portico-controller".to_owned(),
        }
    }
}

const ENDPOINTS: &str = "endpointslice";
const HEALTH: &str = "endpoint-health";
const BALANCERS: &str = "service-lb";
const ENDPOINTS_LEASE: &str = "portico-endpoint-controller";
const HEALTH_LEASE: &str = "portico-endpoint-health";

/// Which controllers to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Selected {
    endpoints: bool,
    health: bool,
    balancers: bool,
}

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "not a duration, write it as 90s or 10m".to_owned())
}

fn parse_object(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("write it as NAMESPACE/NAME".to_owned()),
    }
}

/// Work until SIGINT or SIGTERM, or with `--release` until there is nothing left to take back.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut selected = selected(&arguments.controllers)?;
    if arguments.release {
        // The others would not end by themselves.
        selected = Selected {
            endpoints: false,
            health: false,
            balancers: true,
        };
        anyhow::ensure!(
            arguments.cloud_provider != "none",
            "--release needs the --cloud-provider that made the load balancers"
        );
    }
    crate::runtime()?.block_on(async {
        let mut signals = Signals::new()?;
        let client = access::client(arguments.kubeconfig.as_deref()).await?;
        if let Some((namespace, name)) = &arguments.stop_deployment {
            scale_to_none(client.clone(), namespace, name).await?;
        }
        let (stop, stopped) = watch::channel(false);
        let mut work = tokio::spawn(run_selected(client, arguments, selected, stopped));
        tokio::select! {
            () = signals.wait() => {
                stop.send_replace(true);
                (&mut work).await
            }
            ended = &mut work => ended,
        }
        .context("the controller did not end in order")?
    })
}

/// The controllers of the Deployment give their Lease back when they end. One that is gone already
/// is no error.
async fn scale_to_none(client: Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client, namespace);
    let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
    match deployments
        .patch_scale(name, &PatchParams::default(), &none)
        .await
    {
        Ok(_) => tracing::info!(namespace, name, "the Deployment was scaled to 0"),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            tracing::info!(namespace, name, "there is no such Deployment");
        }
        Err(error) => {
            return Err(error)
                .with_context(|| format!("scaling the Deployment {namespace}/{name} to 0"));
        }
    }
    Ok(())
}

fn selected(names: &[String]) -> anyhow::Result<Selected> {
    let known = |name: &String| ["*", ENDPOINTS, HEALTH, BALANCERS].contains(&name.as_str());
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        anyhow::bail!(
            "--controllers={unknown} is not known: use {ENDPOINTS}, {HEALTH}, {BALANCERS} or *"
        );
    }
    let has = |wanted: &str| names.iter().any(|name| name == "*" || name == wanted);
    Ok(Selected {
        endpoints: has(ENDPOINTS),
        health: has(HEALTH),
        balancers: has(BALANCERS),
    })
}

/// As the API server has them, so that one line serves both.
fn gates(text: &str) -> anyhow::Result<Gates> {
    Gates::parse(text)
        .map_err(anyhow::Error::msg)
        .context("--feature-gates")
}

async fn run_selected(
    client: Client,
    arguments: Arguments,
    selected: Selected,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let gates = gates(&arguments.feature_gates)?;
    let cluster = Cluster::new(client);
    let metrics = Arc::new(balancers::Metrics::default());
    let calls = CallMetrics::default();
    metrics.add(|registry| calls.register(registry));
    metrics.show_features(gates.load_balancer_ip_mode);
    let pages = serve(&arguments.metrics_bind_address, Arc::clone(&metrics))?;
    let balancers = selected.balancers && arguments.cloud_provider != "none";
    let election = arguments.election.clone();
    let slices = async {
        if selected.endpoints {
            run_elected_endpoints(&cluster, &election, arguments.endpoints, stop.clone()).await;
        }
        Ok(())
    };
    let checks = async {
        if selected.health {
            let ranges = arguments.health_check_ranges.clone().into();
            run_elected_health(&cluster, &election, ranges, stop.clone()).await;
        }
        Ok(())
    };
    let load_balancers = async {
        match balancers {
            true => run_balancers(&cluster, &arguments, gates, metrics, calls, stop.clone()).await,
            false => Ok(()),
        }
    };
    let result = tokio::try_join!(slices, checks, load_balancers);
    if let Some(pages) = pages {
        pages.abort();
    }
    result.map(|_| ())
}

/// The endpoint-slice controller, alone or in turns with others.
pub(crate) async fn run_endpoints(
    cluster: Cluster,
    leader_elect: bool,
    write_endpoints: bool,
    stop: watch::Receiver<bool>,
) {
    let election = Election {
        leader_elect,
        ..Election::default()
    };
    run_elected_endpoints(&cluster, &election, write_endpoints, stop).await;
}

/// Health checks of endpoints, alone or in turns with others.
pub(crate) async fn run_health(
    cluster: Cluster,
    leader_elect: bool,
    ranges: Ranges,
    stop: watch::Receiver<bool>,
) {
    let election = Election {
        leader_elect,
        ..Election::default()
    };
    run_elected_health(&cluster, &election, ranges, stop).await;
}

async fn run_elected_endpoints(
    cluster: &Cluster,
    election: &Election,
    write_endpoints: bool,
    stop: watch::Receiver<bool>,
) {
    let options = endpoints::Options {
        write_endpoints,
        ..endpoints::Options::default()
    };
    let work = |stop| endpoints::run(cluster.clone(), options.clone(), stop);
    election
        .run(cluster.client.clone(), ENDPOINTS_LEASE, stop, work)
        .await;
}

async fn run_elected_health(
    cluster: &Cluster,
    election: &Election,
    ranges: Ranges,
    stop: watch::Receiver<bool>,
) {
    let options = health::Options {
        ranges,
        ..health::Options::default()
    };
    let work = |stop| health::run(cluster.clone(), options.clone(), stop);
    election
        .run(cluster.client.clone(), HEALTH_LEASE, stop, work)
        .await;
}

/// The load-balancer controller, alone or in turns with others. A provider that cannot be started
/// ends it.
async fn run_balancers(
    cluster: &Cluster,
    arguments: &Arguments,
    gates: Gates,
    metrics: Arc<balancers::Metrics>,
    calls: CallMetrics,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let options = balancers::Options {
        cluster: arguments.cluster_name.clone(),
        class: arguments.load_balancer_class.clone(),
        node_healthz_port: arguments.node_healthz_port,
        load_balancer_ip_mode: gates.load_balancer_ip_mode,
        concurrency: arguments.concurrent_service_syncs,
        resync: arguments.resync_period,
        release: arguments.release,
        metrics,
        ..balancers::Options::default()
    };
    let failed: Arc<Mutex<Option<StartError>>> = Arc::default();
    let work = |stop: watch::Receiver<bool>| {
        let start = Start {
            cluster: cluster.clone(),
            config: arguments.cloud_config.clone(),
            cluster_name: arguments.cluster_name.clone(),
            metrics: calls.clone(),
            shutdown: stop.clone(),
        };
        let (cluster, options, failed) = (cluster.clone(), options.clone(), Arc::clone(&failed));
        async move {
            match portico_providers::start(&arguments.cloud_provider, start).await {
                Ok(provider) => balancers::run(cluster, provider, options, stop).await,
                Err(error) => *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
            }
        }
    };
    let election = &arguments.election;
    election
        .run(
            cluster.client.clone(),
            &election.leader_elect_resource_name,
            stop,
            work,
        )
        .await;
    let failed = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    failed.map_or(Ok(()), |error| Err(error.into()))
}

impl Election {
    /// Works while the lease is held, or at once where the election is turned off.
    async fn run<W: Future<Output = ()>>(
        &self,
        client: Client,
        lease: &str,
        stop: watch::Receiver<bool>,
        mut work: impl FnMut(watch::Receiver<bool>) -> W,
    ) {
        match self.leader_elect {
            true => lead(client, self.lease(lease), stop, work).await,
            false => work(stop).await,
        }
    }

    fn lease(&self, name: &str) -> LeaseOptions {
        let identity = format!("{}_{}", hostname(), std::process::id());
        LeaseOptions {
            lease_duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
            ..LeaseOptions::new(&self.leader_elect_resource_namespace, name, &identity)
        }
    }
}

/// `/metrics` and `/healthz`. Whether this controller leads is among the metrics: one that waits is
/// healthy too.
fn serve(
    address: &str,
    metrics: Arc<balancers::Metrics>,
) -> anyhow::Result<Option<tokio::task::JoinHandle<()>>> {
    if address == "0" {
        return Ok(None);
    }
    let address: SocketAddr = address
        .parse()
        .with_context(|| format!("--metrics-bind-address={address}"))?;
    let listener =
        listen::bind_everywhere(address).with_context(|| format!("cannot listen on {address}"))?;
    let pages = listen::serve(listener, move |request| match request.uri().path() {
        "/metrics" => listen::metrics(metrics.text()),
        "/healthz" | "/livez" | "/readyz" => listen::text("ok".to_owned()),
        _ => listen::not_found(),
    });
    Ok(Some(tokio::spawn(async { match pages.await {} })))
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() {
        "portico".to_owned()
    } else {
        name.trim().to_owned()
    }
}
