//! A layer-4 balancer that obeys the cloud's resources: forwarding rules, target pools, health
//! checks and firewalls. It is a host that packets for balanced addresses go through. It chooses an
//! instance for each connection and sends its packets there as they are: what arrives has the
//! client's and the balancer's addresses, and answers go straight to the client.
//!
//! On the instances it does what the cloud's agent does on its machines: the balancer's address is
//! theirs, too.

use crate::checks::{CHECKER, Checkers, Health, Healths, Place};
use crate::resources::{CHECKERS, HttpHealthCheck, Instance, Resources, ruleset};
use portico_fakecloud::gce::Gce;
use portico_testbed::{Cluster, Host, Route};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The host that is the balancer: like a client it has routes to each node, chosen by marks.
const HOST: &str = "client2";
/// How often it looks at the cloud.
const PAUSE: Duration = Duration::from_millis(10);

/// What is in the kernel.
#[derive(Clone, Debug, Default)]
struct Installed {
    rules: String,
    sends: BTreeMap<IpAddr, BTreeSet<Instance>>,
}

pub(crate) struct Balancer {
    cloud: Arc<Gce>,
    host: Host,
    healths: Healths,
    installed: Arc<Mutex<Installed>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Balancer {
    /// Packets to `range` go through it from now on.
    pub(crate) fn start(cloud: &Arc<Gce>, cluster: &Cluster, range: &str) -> Self {
        let host = cluster.host(HOST).unwrap().clone();
        let nodes: BTreeMap<Instance, Host> = (1..=3)
            .map(|number| {
                (
                    number,
                    cluster.host(&format!("node{number}")).unwrap().clone(),
                )
            })
            .collect();
        host.sysctl("net/ipv4/ip_forward", "1").unwrap();
        host.address("eth0", &format!("{CHECKER}/32")).unwrap();
        nodes
            .values()
            .for_each(|node| node.route(Route::to(CHECKERS).link("eth0")).unwrap());
        let gateway = cluster.addresses.of(HOST, "ip").unwrap().to_string();
        cluster
            .host("client")
            .unwrap()
            .route(Route::to(range).via(&gateway))
            .unwrap();
        let (healths, installed, stop) = (
            Healths::default(),
            Arc::default(),
            Arc::new(AtomicBool::new(false)),
        );
        let work = Work {
            cloud: Arc::clone(cloud),
            checkers: Checkers::new(host.clone(), Arc::clone(&healths)),
            host: host.clone(),
            nodes,
            guests: BTreeSet::new(),
            healths: Arc::clone(&healths),
            installed: Arc::clone(&installed),
        };
        let until = Arc::clone(&stop);
        let thread = Some(std::thread::spawn(move || work.run(&until)));
        Self {
            cloud: Arc::clone(cloud),
            host,
            healths,
            installed,
            stop,
            thread,
        }
    }

    /// The instances that new connections to an address go to.
    pub(crate) fn sends_to(&self, address: IpAddr) -> BTreeSet<Instance> {
        self.installed
            .lock()
            .unwrap()
            .sends
            .get(&address)
            .cloned()
            .unwrap_or_default()
    }

    /// What the checkers know of an instance, if it is asked.
    pub(crate) fn health(&self, place: Place) -> Option<Health> {
        self.healths.lock().unwrap().get(&place).cloned()
    }

    /// Whether what the cloud has now is in the kernel.
    pub(crate) fn obeys(&self) -> bool {
        let resources = Resources::of(&self.cloud);
        let installed = self.installed.lock().unwrap();
        let known =
            |balanced: &crate::resources::Balanced| installed.sends.contains_key(&balanced.address);
        resources.balanced.iter().all(known)
            && ruleset(&resources, &installed.sends) == installed.rules
    }

    /// Packets that no firewall allowed.
    pub(crate) fn dropped(&self) -> u64 {
        let mut list = Command::new("nft");
        list.args(["list", "counter", "ip", "gce", "dropped"]);
        let text = self.host.run(list, "").unwrap();
        text.split_whitespace()
            .skip_while(|word| *word != "packets")
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
            && !std::thread::panicking()
        {
            panic!("the balancer panicked");
        }
    }
}

struct Work {
    cloud: Arc<Gce>,
    host: Host,
    nodes: BTreeMap<Instance, Host>,
    checkers: Checkers,
    /// Which addresses are whose.
    guests: BTreeSet<Place>,
    healths: Healths,
    installed: Arc<Mutex<Installed>>,
}

impl Work {
    fn run(mut self, stop: &AtomicBool) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            while !stop.load(Ordering::Relaxed) {
                self.obey(&Resources::of(&self.cloud));
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    fn obey(&mut self, resources: &Resources) {
        let (mut places, mut checks) = (
            BTreeSet::<Place>::new(),
            BTreeMap::<Place, HttpHealthCheck>::new(),
        );
        for balanced in &resources.balanced {
            let of_it = || {
                balanced
                    .instances
                    .iter()
                    .map(|instance| (balanced.address, *instance))
            };
            places.extend(of_it());
            checks.extend(
                balanced
                    .check
                    .iter()
                    .flat_map(|check| of_it().map(|place| (place, check.clone()))),
            );
        }
        self.follow_places(places);
        self.checkers.follow(&checks);
        let healths = self.healths.lock().unwrap().clone();
        let is_healthy = |place: Place| healths.get(&place).is_some_and(|health| health.healthy);
        let chosen = resources.balanced.iter().map(|balanced| {
            (
                balanced.address,
                balanced.chosen(|instance| is_healthy((balanced.address, instance))),
            )
        });
        let sends = chosen.collect();
        let rules = ruleset(resources, &sends);
        if self.installed.lock().unwrap().rules != rules {
            let mut nft = Command::new("nft");
            nft.args(["-f", "-"]);
            self.host
                .run(nft, &rules)
                .unwrap_or_else(|error| panic!("{error:?}\n{rules}"));
            *self.installed.lock().unwrap() = Installed { rules, sends };
        }
    }

    /// As the agent on the cloud's machines does.
    fn follow_places(&mut self, places: BTreeSet<Place>) {
        let changes = [
            ("add", places.difference(&self.guests)),
            ("del", self.guests.difference(&places)),
        ];
        for (verb, (address, instance)) in changes
            .into_iter()
            .flat_map(|(verb, all)| all.map(move |one| (verb, one)))
        {
            let mut ip = Command::new("ip");
            ip.args([
                "route",
                verb,
                "local",
                &address.to_string(),
                "dev",
                "eth0",
                "table",
                "local",
            ]);
            self.nodes[instance].run(ip, "").unwrap();
        }
        self.guests = places;
    }
}
