//! The cluster, the cloud and the balancer, and what the tests do and see there.

use crate::balancer::Balancer;
use crate::checks::status;
use crate::cloud::Api;
use crate::resources::{Instance, TAG};
use crate::rig::{FAR, NODES, PORT, Rig, slices};
use portico_fakecloud::gce::{Gce, Kind};
use portico_testbed::Ask as _;
use portico_testbed::{Flow, Host, Process, Protocol, Seen};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// For a request that has to be answered, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// For one that may not be.
pub(crate) const SHORT: Duration = Duration::from_secs(1);
/// Requests in a row that show that none fails.
pub(crate) const MANY: usize = 60;
const ALL: [Instance; 3] = [1, 2, 3];
/// Where nodes answer for their health.
const HEALTHZ: u16 = 10256;

/// What a node runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Age {
    /// Too old for healthz.
    Old,
    New,
}

pub(crate) struct World {
    pub balancer: Balancer,
    pub cloud: Arc<Gce>,
    controller: Option<Process>,
    pub rig: Rig,
    api: Api,
    runtime: tokio::runtime::Runtime,
}

impl World {
    /// Everything runs, and there is no Service.
    pub(crate) fn start(age: Age) -> Self {
        let rig = Rig::with_apiserver();
        let cloud = Arc::new(Gce::default());
        // Each wait for an operation finds it done.
        cloud.set_looks(1);
        let api = Api::serve(&cloud, rig.host("cp"));
        let balancer = Balancer::start(&cloud, &rig.cluster, FAR[0]);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut world = Self {
            balancer,
            cloud,
            controller: None,
            rig,
            api,
            runtime,
        };
        for name in NODES {
            let zone = format!("{}-b", Gce::REGION);
            world.cloud.add_instance(&zone, name, &[TAG]);
            let spec =
                json!({"spec": {"providerID": format!("gce://{}/{zone}/{name}", Gce::PROJECT)}})
                    .to_string();
            world
                .rig
                .kubectl(&["patch", "node", name, "--type=merge", "-p", &spec], "");
            world.start_node(name, age);
            world.tell_version(name, age);
        }
        world.restart_controller();
        world
    }

    /// It begins anew, and looks at everything.
    pub(crate) fn restart_controller(&mut self) {
        self.controller = None;
        let config = self.rig.path("gce.conf");
        fs::write(&config, self.api.config()).unwrap();
        let mut command = self.rig.controller("gce");
        command
            .arg("--cloud-config")
            .arg(config)
            .env("GCE_METADATA_HOST", self.api.address.to_string());
        command.env_remove("GOOGLE_APPLICATION_CREDENTIALS");
        self.controller = Some(self.rig.spawn("cp", command, "controller"));
    }

    /// Starts the daemon of a node, which may have run before. Checks come to the balancer's
    /// address, so the ports of Services' health checks have to be everywhere.
    pub(crate) fn start_node(&mut self, name: &'static str, age: Age) {
        let flags: &[&str] = match age {
            Age::Old => &["--nodeport-addresses=0.0.0.0/0", "--healthz-bind-address="],
            Age::New => &["--nodeport-addresses=0.0.0.0/0"],
        };
        self.rig.start_node_with(name, flags);
    }

    pub(crate) fn stop_node(&mut self, name: &str) {
        self.rig.node(name).terminate(LONG).unwrap();
    }

    /// Another version comes to a node: first the programs, then the kubelet tells of it.
    pub(crate) fn exchange_node(&mut self, name: &'static str, age: Age) {
        self.stop_node(name);
        self.start_node(name, age);
        if age == Age::New {
            let address = self.rig.cluster.addresses.of(name, "ip").unwrap();
            self.wait_for_status(
                "cp",
                Flow::new(Protocol::Tcp, SocketAddr::new(address, HEALTHZ)),
                200,
            );
        }
        self.tell_version(name, age);
    }

    fn tell_version(&self, name: &str, age: Age) {
        let version = if age == Age::Old {
            "v1.6.13"
        } else {
            "v1.36.4"
        };
        let versions = json!({"kubeletVersion": version, "kubeProxyVersion": version});
        self.patch_status(name, &json!({"nodeInfo": versions}));
    }

    /// The kubelet has not been heard of, and the control plane says so.
    pub(crate) fn go_stale(&self, name: &str) {
        let ready = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"});
        self.patch_status(name, &json!({"conditions": [ready]}));
    }

    fn patch_status(&self, name: &str, status: &Value) {
        let patch = json!({"status": status}).to_string();
        self.rig.kubectl(
            &[
                "patch",
                "node",
                name,
                "--subresource=status",
                "--type=merge",
                "-p",
                &patch,
            ],
            "",
        );
    }

    /// Makes a Service with these endpoints; its address, once the balancer has it and each node
    /// with endpoints forwards it.
    pub(crate) fn serve(&self, name: &str, spec: Value, pods: &[&str]) -> IpAddr {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"type": "LoadBalancer", "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"],
                "ports": [{"name": "http", "port": PORT, "targetPort": 8080}]},
        });
        service["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        self.rig
            .apply(&[vec![service], slices(name, pods)].concat());
        let address = self.rig.addresses(name)[0];
        self.wait_until("the balancer sends", || {
            if_so(!self.balancer.sends_to(address).is_empty(), address)
        });
        address
    }

    /// Waits until the balancer sends to these nodes, and each of them forwards to one of these
    /// pods.
    pub(crate) fn wait_for_ways(&self, address: IpAddr, nodes: &[Instance], pods: &[&str]) {
        self.wait_for_sends(address, nodes);
        nodes
            .iter()
            .for_each(|node| self.wait_for_pods(*node, address, pods));
    }

    /// Waits until the balancer sends to these nodes and no others.
    pub(crate) fn wait_for_sends(&self, address: IpAddr, nodes: &[Instance]) {
        let wanted = nodes.iter().copied().collect();
        self.wait_until(&format!("the balancer sends to {nodes:?}"), || {
            let sends = self.balancer.sends_to(address);
            if_so(
                sends == wanted,
                Box::new((sends, ALL.map(|node| self.balancer.health((address, node))))),
            )
        });
    }

    pub(crate) fn wait_for_health(&self, address: IpAddr, nodes: &[Instance], healthy: bool) {
        for node in nodes {
            self.wait_until(&format!("node{node} is healthy: {healthy}"), || {
                let health = self.balancer.health((address, *node));
                if_so(
                    health
                        .as_ref()
                        .is_some_and(|health| health.healthy == healthy),
                    health,
                )
            });
        }
    }

    /// Waits until a node forwards to one of these pods, whatever the balancer thinks of it.
    pub(crate) fn wait_for_pods(&self, node: Instance, address: IpAddr, pods: &[&str]) {
        self.wait_until(&format!("node{node} forwards to {pods:?}"), || {
            match self.ask_through(node, address) {
                Ok(seen) if pods.contains(&seen.host.as_str()) => Ok(()),
                other => Err(other),
            }
        });
    }

    pub(crate) fn wait_until_obeyed(&self) {
        self.wait_until("the balancer obeys", || if_so(self.balancer.obeys(), ()));
    }

    pub(crate) fn wait_for_status(&self, from: &str, flow: Flow, wanted: u16) {
        self.wait_until(&format!("{} answers {wanted}", flow.to), || {
            let found = self
                .runtime
                .block_on(status(self.rig.host(from), &flow, "/healthz"));
            if_so(found == Some(wanted), found)
        });
    }

    /// Asks past the balancer: only to show what would happen.
    pub(crate) fn ask_through(&self, node: Instance, address: IpAddr) -> Result<Seen, String> {
        self.rig.ask_by(
            "client",
            &Flow {
                mark: Some(node.into()),
                patience: SHORT,
                ..flow(address)
            },
        )
    }

    /// Asks once from another address of the client.
    pub(crate) fn ask_from(
        &self,
        source: &str,
        address: IpAddr,
        patience: Duration,
    ) -> Result<Seen, String> {
        self.rig.ask_by(
            "client",
            &Flow {
                source: source.parse().ok(),
                patience,
                ..flow(address)
            },
        )
    }

    /// Many requests in a row, none of which may fail; the nodes that they went through, and the
    /// pods that answered.
    pub(crate) fn ask_many(&self, address: IpAddr) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut nodes, mut pods) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..MANY {
            let seen = self
                .rig
                .ask_within(LONG, "client", address)
                .unwrap_or_else(|error| {
                    let healths = ALL.map(|node| self.balancer.health((address, node)));
                    panic!(
                        "request {number} failed: {error}; {healths:?}\n{}",
                        self.rig.logs()
                    )
                });
            nodes.extend(
                self.rig
                    .cluster
                    .addresses
                    .owner(seen.source.ip())
                    .map(str::to_owned),
            );
            pods.insert(seen.host);
        }
        (nodes, pods)
    }

    /// Asks all the time until it is told to end.
    pub(crate) fn keep_asking(&self, address: IpAddr) -> Requests {
        let (host, stop) = (
            self.rig.host("client").clone(),
            Arc::new(AtomicBool::new(false)),
        );
        let until = Arc::clone(&stop);
        Requests {
            stop,
            thread: std::thread::spawn(move || ask_until(&host, address, &until)),
        }
    }

    /// The names of a kind of resources in the cloud.
    pub(crate) fn names(&self, kind: Kind) -> Vec<String> {
        self.cloud
            .all(kind)
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    /// The only resource of a kind, but for those whose name ends so.
    pub(crate) fn resource(&self, kind: Kind, but: &str) -> (String, Value) {
        let mut all: Vec<_> = self
            .cloud
            .all(kind)
            .into_iter()
            .filter(|(name, _)| !name.ends_with(but))
            .collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Links of the only target pool.
    pub(crate) fn in_pool(&self, field: &str) -> usize {
        self.resource(Kind::TargetPool, "!").1[field]
            .as_array()
            .map_or(0, Vec::len)
    }

    pub(crate) fn wait_until<E: std::fmt::Debug>(
        &self,
        what: &str,
        is_so: impl FnMut() -> Result<(), E>,
    ) {
        self.rig.wait_until(what, is_so);
    }

    /// Deletes a Service: nothing of it is left in the cloud. All that was asked of the cloud is as
    /// its vendor describes it.
    pub(crate) fn delete(&self, name: &str) {
        self.rig
            .kubectl(&["delete", "service", name, "--timeout=60s"], "");
        for kind in [
            Kind::ForwardingRule,
            Kind::TargetPool,
            Kind::HttpHealthCheck,
            Kind::Firewall,
            Kind::Address,
        ] {
            assert_eq!(self.names(kind), Vec::<String>::new());
        }
        assert_eq!(self.cloud.problems(), Vec::<String>::new());
    }
}

fn flow(address: IpAddr) -> Flow {
    Flow::new(Protocol::Tcp, SocketAddr::new(address, PORT))
}

pub(crate) fn if_so<E>(so: bool, instead: E) -> Result<(), E> {
    if so { Ok(()) } else { Err(instead) }
}

/// Requests that go on in the background.
pub(crate) struct Requests {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(usize, Vec<String>)>,
}

impl Requests {
    /// None has failed.
    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (asked, failed) = self.thread.join().unwrap();
        assert!(asked > MANY, "only {asked} requests");
        assert_eq!(failed, Vec::<String>::new(), "of {asked} requests");
    }
}

fn ask_until(host: &Host, address: IpAddr, stop: &AtomicBool) -> (usize, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (mut asked, mut failed) = (0, vec![]);
    while !stop.load(Ordering::Relaxed) {
        let answer = runtime.block_on(host.ask(&Flow {
            patience: LONG,
            ..flow(address)
        }));
        failed.extend(
            answer
                .err()
                .map(|failure| format!("request {asked}: {failure:?}")),
        );
        asked += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    (asked, failed)
}
