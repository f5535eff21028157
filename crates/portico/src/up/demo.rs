//! The demo from the first step to Ctrl-C: builds the lab, starts the programs in it, makes
//! objects, waits until a client outside is answered, prints the screenful, and then tells what
//! happens and takes orders of `portico lab`.

use super::objects::{self, BALANCED, INTERNAL, NODE_PORT};
use super::programs::Programs;
use super::relay::{self, Relay};
use super::screen::{self, Facts};
use super::{Arguments, api, orders, text};
use crate::lab::control;
use crate::signals::Signals;
use anyhow::{Context, bail};
use kube::Client;
use portico_netns::Lab;
use portico_netns::lab::{CLIENT, CONTROL_PLANE, PLACES, POD_RANGE};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

const STEPS: usize = 6;
/// The time limit for each step.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
const API_INSIDE: &str = "192.0.2.2:6443";
pub(crate) const DNS_SERVER: &str = "192.0.2.2";
pub(crate) const DNS_ZONE: &str = "demo.example";
/// Where the DNS server tells of itself, inside its host.
const DNS_STATE: &str = "127.0.0.1:10253";
/// Where a node says whether it is fit.
const NODE_HEALTH: u16 = 10256;

/// What runs.
pub(crate) struct Demo {
    pub lab: Lab,
    pub programs: Programs,
    dir: PathBuf,
    /// Load balancers' addresses, and the node that answered for each at the last look.
    pub owners: Vec<(IpAddr, Option<&'static str>)>,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    tokio::select! {
        result = play(arguments) => result,
        () = signals.wait() => Ok(()),
    }
    // Whatever is left of the lab is gone as `play` is dropped.
}

async fn play(arguments: Arguments) -> anyhow::Result<()> {
    let folder = Folder::new(arguments.data_dir)?;
    let mut progress = Progress {
        number: 0,
        since: Instant::now(),
    };
    let lab = Lab::new()
        .context("cannot make the network: are network namespaces, veth and bridges there?")?;
    progress.done("network: three nodes, a router, a client");
    let mut demo = Demo::new(lab, folder.path.clone())?;
    let relay = Relay::bind(arguments.port).await.with_context(|| {
        format!(
            "127.0.0.1:{} is taken: give another port (make run PORT=7443)",
            arguments.port
        )
    })?;
    let api = relay.address;
    let client = demo.start_api(relay).await?;
    progress.done("API server, with an embedded store");
    objects::apply_all(&client).await?;
    progress.done("objects: Nodes, Pods, a pool, a Service of each visibility");
    demo.start_controller()?;
    PLACES
        .iter()
        .try_for_each(|place| demo.start_node(place.node))?;
    let balancer = demo.wait_for_balancer(&client).await?;
    progress.done("controller: an address from the pool");
    demo.wait_for_answer(SocketAddr::new(balancer, 80)).await?;
    demo.wait_for_nodes().await?;
    // Once they all are fit: of one that was not the DNS server would only ask again after seconds.
    demo.start_dns()?;
    demo.wait_for_dns().await?;
    progress.done("nodes: rules installed, the address announced");
    let owner = demo.wait_for_owner(balancer).await?;
    let dashboard = demo.start_dashboard(arguments.dashboard_port).await?;
    let internal = objects::get(&client, &objects::service_path(INTERNAL)).await?;
    let listening = orders::listen(&control::socket(&arguments.lab)?)?;
    progress.done("a client outside is answered");
    let facts = Facts {
        api,
        dashboard: &dashboard,
        kubeconfig: &folder.path.join("kubeconfig"),
        logs: &folder.path.join("logs"),
        balancer,
        owner,
        cluster_ip: internal["spec"]["clusterIP"].as_str().unwrap_or_default(),
        node_port: NODE_PORT,
        portico: &std::env::current_exe()?.display().to_string(),
        lab: &if arguments.lab == control::DEFAULT {
            String::new()
        } else {
            format!(" --lab {}", arguments.lab)
        },
        lab_name: &arguments.lab,
    };
    crate::print(&facts.screen());
    orders::follow(demo, listening).await
}

/// Says what is done and how long it took.
struct Progress {
    number: usize,
    since: Instant,
}

impl Progress {
    fn done(&mut self, what: &str) {
        self.number += 1;
        crate::print(&screen::step(
            self.number,
            STEPS,
            what,
            self.since.elapsed(),
        ));
        self.since = Instant::now();
    }
}

/// Where everything is kept; removed at the end unless it was given by a flag.
struct Folder {
    path: PathBuf,
    _removed_at_the_end: Option<tempfile::TempDir>,
}

impl Folder {
    fn new(chosen: Option<PathBuf>) -> anyhow::Result<Self> {
        match chosen {
            Some(path) => {
                fs::create_dir_all(&path)
                    .with_context(|| format!("cannot make {}", path.display()))?;
                Ok(Self {
                    path: path.canonicalize()?,
                    _removed_at_the_end: None,
                })
            }
            None => {
                let made = tempfile::Builder::new().prefix("portico-demo-").tempdir()?;
                Ok(Self {
                    path: made.path().to_owned(),
                    _removed_at_the_end: Some(made),
                })
            }
        }
    }
}

impl Demo {
    /// The demo in a lab in which nothing runs yet, with its files in this folder.
    pub(crate) fn new(lab: Lab, dir: PathBuf) -> anyhow::Result<Self> {
        let programs = Programs::new(Some(dir.join("logs")))?;
        Ok(Self {
            lab,
            programs,
            dir,
            owners: Vec::new(),
        })
    }

    /// Starts the daemon of a node.
    pub(crate) fn start_node(&mut self, name: &str) -> anyhow::Result<()> {
        let host = self
            .lab
            .host(name)
            .with_context(|| format!("there is no node {name}"))?
            .clone();
        let arguments = [
            "node",
            "--kubeconfig",
            &self.inside(),
            "--hostname-override",
            name,
            "--cluster-cidr",
            POD_RANGE,
            "--data-dir",
        ];
        let data = self.dir.join(name).display().to_string();
        self.programs.start(
            name,
            Some(&host),
            &text(&[&arguments[..], &[&data]].concat()),
        )
    }

    /// Where the API server is, for programs inside.
    fn inside(&self) -> String {
        self.dir.join("inside.kubeconfig").display().to_string()
    }

    fn start_controller(&mut self) -> anyhow::Result<()> {
        let host = self
            .lab
            .host(CONTROL_PLANE)
            .context("there is a control plane")?
            .clone();
        let arguments = [
            "controller",
            "--kubeconfig",
            &self.inside(),
            "--controllers",
            "service-lb",
            "--cloud-provider",
            "metal",
        ];
        self.programs
            .start("controller", Some(&host), &text(&arguments))
    }

    fn start_dns(&mut self) -> anyhow::Result<()> {
        let host = self
            .lab
            .host(CONTROL_PLANE)
            .context("there is a control plane")?
            .clone();
        let arguments = [
            "dns",
            "--kubeconfig",
            &self.inside(),
            "--zone",
            DNS_ZONE,
            "--listen",
            DNS_SERVER,
        ];
        self.programs.start("dns", Some(&host), &text(&arguments))
    }

    /// Until each says itself that it is fit.
    async fn wait_for_nodes(&mut self) -> anyhow::Result<()> {
        let host = self
            .lab
            .host(CONTROL_PLANE)
            .context("there is a control plane")?
            .clone();
        for place in &PLACES {
            let address = SocketAddr::new(place.address.into(), NODE_HEALTH);
            let what = format!("{} is fit", place.node);
            self.until(&what, async || {
                Ok(is_well(&host, address, "/healthz").await.then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Until then it says that it does not know.
    async fn wait_for_dns(&mut self) -> anyhow::Result<()> {
        let host = self
            .lab
            .host(CONTROL_PLANE)
            .context("there is a control plane")?
            .clone();
        let address = DNS_STATE.parse()?;
        self.until("the DNS server is ready", async || {
            Ok(is_well(&host, address, "/readyz").await.then_some(()))
        })
        .await
    }

    /// Starts the API server; its client from outside of the lab, whose kubeconfig is in the
    /// folder.
    pub(crate) async fn start_api(&mut self, relay: Relay) -> anyhow::Result<Client> {
        let host = self
            .lab
            .host(CONTROL_PLANE)
            .context("there is a control plane")?
            .clone();
        let data = self.dir.join("api");
        let arguments = [
            "apiserver",
            "--data-dir",
            &data.display().to_string(),
            "--advertise-address",
            "192.0.2.2",
        ];
        self.programs
            .start("apiserver", Some(&host), &text(&arguments))?;
        let outside = format!("https://{}", relay.address);
        tokio::spawn(relay.run(host, API_INSIDE.parse()?));
        let made = data.join("pki/admin.kubeconfig");
        self.until("the API server makes its credentials", async || {
            Ok(made.exists().then_some(()))
        })
        .await?;
        api::write_kubeconfig(
            &made,
            &format!("https://{API_INSIDE}"),
            &self.dir.join("inside.kubeconfig"),
        )?;
        let kubeconfig = api::write_kubeconfig(&made, &outside, &self.dir.join("kubeconfig"))?;
        let client = api::client(kubeconfig).await?;
        self.until("the API server is ready", async || {
            Ok(api::is_ready(&client).await.then_some(()))
        })
        .await?;
        Ok(client)
    }

    /// On this machine, for its browser; the address with the key that opens it.
    async fn start_dashboard(&mut self, port: u16) -> anyhow::Result<String> {
        let (kubeconfig, listen) = (
            self.dir.join("kubeconfig").display().to_string(),
            format!("127.0.0.1:{port}"),
        );
        let arguments = [
            "dashboard",
            "--kubeconfig",
            &kubeconfig,
            "--listen",
            &listen,
            "--cluster-cidr",
            POD_RANGE,
        ];
        self.programs.start("dashboard", None, &text(&arguments))?;
        let log = self.dir.join("logs/dashboard.log");
        let printed = async || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            Ok(text
                .lines()
                .find(|line| line.starts_with("http://"))
                .map(str::to_owned))
        };
        self.until("the dashboard listens", printed).await
    }

    async fn wait_for_balancer(&mut self, client: &Client) -> anyhow::Result<IpAddr> {
        let address = async || {
            let service = objects::get(client, &objects::service_path(BALANCED)).await?;
            Ok(service["status"]["loadBalancer"]["ingress"][0]["ip"]
                .as_str()
                .and_then(|text| text.parse().ok()))
        };
        self.until("the Service has an address", address).await
    }

    async fn wait_for_answer(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let host = self.lab.host(CLIENT).context("there is a client")?.clone();
        self.until("the client is answered", async || {
            Ok(is_well(&host, address, "/").await.then_some(()))
        })
        .await
    }

    async fn wait_for_owner(&mut self, balancer: IpAddr) -> anyhow::Result<&'static str> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(place) = self.lab.owner(balancer)? {
                self.owners = vec![(balancer, Some(place.node))];
                return Ok(place.node);
            }
            if Instant::now() > deadline {
                bail!("no node answers for {balancer}");
            }
            sleep(LOOK).await;
        }
    }

    /// Asks until there is an answer, all programs run, and it is not too late.
    async fn until<T>(
        &mut self,
        what: &str,
        ask: impl AsyncFn() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = ask().await? {
                return Ok(found);
            }
            self.programs.check()?;
            if Instant::now() > deadline {
                bail!(
                    "waited {PATIENCE:?} in vain until {what}: see the logs in {}",
                    self.dir.join("logs").display()
                );
            }
            sleep(LOOK).await;
        }
    }
}

/// Whether a server answers well, asked from a host.
async fn is_well(host: &portico_netns::Host, address: SocketAddr, path: &str) -> bool {
    let asked = timeout(Duration::from_secs(1), ask(host, address, path)).await;
    asked
        .ok()
        .and_then(Result::ok)
        .is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

async fn ask(
    host: &portico_netns::Host,
    address: SocketAddr,
    path: &str,
) -> std::io::Result<String> {
    let mut stream = relay::connect(host, address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
