//! A provider whose load balancers are in memory. It checks what it is told as a real one would,
//! and fails where a script says so.

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client};
use portico_controller::balancers::FINALIZER;
use portico_providers::{
    Abilities, Answer, Balancer, Host, Ingress, IpMode, Provider, ProviderError, Request,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// It fails, and nothing happened.
    Before,
    /// It fails, and all has happened.
    After,
    /// Whoever called is killed, and nothing happened.
    KillBefore,
    /// Whoever called is killed before it has the answer.
    KillAfter,
}

impl Fault {
    pub(crate) const ALL: [Self; 4] =
        [Self::Before, Self::After, Self::KillBefore, Self::KillAfter];
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Made {
    pub address: IpAddr,
    pub ports: Vec<u16>,
    pub nodes: Vec<String>,
}

#[derive(Default)]
struct World {
    /// By uid.
    made: BTreeMap<String, Made>,
    /// Uids with the addresses that they ever had.
    history: BTreeMap<String, BTreeSet<IpAddr>>,
    last: u8,
    calls: Vec<String>,
    /// Services that a call is under way for.
    busy: BTreeSet<String>,
    most_busy: usize,
    /// The number of the call that goes wrong, and how.
    fault: Option<(usize, Fault)>,
    refuse: bool,
    violations: Vec<String>,
}

/// Clones are the same cloud, also for controllers that come later.
#[derive(Clone)]
pub(crate) struct Cloud {
    client: Client,
    abilities: Abilities,
    world: Arc<Mutex<World>>,
    /// Somebody is to be killed.
    pub kill: Arc<Notify>,
}

impl Cloud {
    pub(crate) fn new(client: Client, abilities: Abilities) -> Self {
        Self {
            client,
            abilities,
            world: Arc::default(),
            kill: Arc::default(),
        }
    }

    pub(crate) fn fail(&self, call: usize, fault: Fault) {
        self.world.lock().unwrap().fault = Some((call, fault));
    }

    pub(crate) fn refuse(&self, refuse: bool) {
        self.world.lock().unwrap().refuse = refuse;
    }

    /// Somebody removes a load balancer behind the controller's back.
    pub(crate) fn lose(&self, uid: &str) {
        self.world.lock().unwrap().made.remove(uid).unwrap();
    }

    pub(crate) fn made(&self) -> BTreeMap<String, Made> {
        self.world.lock().unwrap().made.clone()
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.world.lock().unwrap().calls.clone()
    }

    pub(crate) fn forget_calls(&self) {
        self.world.lock().unwrap().calls.clear();
    }

    pub(crate) fn most_busy(&self) -> usize {
        self.world.lock().unwrap().most_busy
    }

    pub(crate) fn fault_is_over(&self) -> bool {
        self.world.lock().unwrap().fault.is_none()
    }

    /// No Service ever had two addresses, and nothing was made for one that was not held.
    pub(crate) fn check(&self) {
        let world = self.world.lock().unwrap();
        assert_eq!(world.violations, [""; 0]);
        for (uid, addresses) in &world.history {
            assert_eq!(addresses.len(), 1, "{uid} had {addresses:?}");
        }
    }

    /// Whoever is killed leaves no call behind.
    pub(crate) fn restart(&self) {
        self.world.lock().unwrap().busy.clear();
    }

    async fn call<T>(
        &self,
        what: &str,
        request: &Request,
        act: impl FnOnce(&mut World) -> T,
    ) -> Result<T, ProviderError> {
        let uid = request.service.uid.clone();
        let fault = {
            let mut world = self.world.lock().unwrap();
            let number = world.calls.len();
            world.calls.push(format!("{what} {}", request.service.name));
            if !world.busy.insert(uid.clone()) {
                world
                    .violations
                    .push(format!("two calls at once for {}", request.service));
            }
            world.most_busy = world.most_busy.max(world.busy.len());
            world
                .fault
                .take_if(|(call, _)| *call == number)
                .map(|(_, fault)| fault)
        };
        tokio::task::yield_now().await;
        if what == "ensure" {
            self.check_finalizers(request).await;
        }
        let failed = || ProviderError::Failed("on purpose".to_owned());
        match fault {
            Some(Fault::Before) => {
                self.world.lock().unwrap().busy.remove(&uid);
                return Err(failed());
            }
            Some(Fault::KillBefore) => return self.die().await,
            _ => {}
        }
        let answer = act(&mut self.world.lock().unwrap());
        if fault == Some(Fault::KillAfter) {
            return self.die().await;
        }
        self.world.lock().unwrap().busy.remove(&uid);
        if fault == Some(Fault::After) {
            Err(failed())
        } else {
            Ok(answer)
        }
    }

    async fn die<T>(&self) -> T {
        self.kill.notify_one();
        std::future::pending().await
    }

    async fn check_finalizers(&self, request: &Request) {
        let api: Api<Service> = Api::namespaced(self.client.clone(), &request.service.namespace);
        let Ok(Some(service)) = api.get_opt(&request.service.name).await else {
            return;
        };
        let finalizers = service.metadata.finalizers.unwrap_or_default();
        if service.metadata.uid.as_ref() == Some(&request.service.uid)
            && !finalizers.iter().any(|name| name == FINALIZER)
        {
            self.world
                .lock()
                .unwrap()
                .violations
                .push(format!("{} is not held", request.service));
        }
    }
}

fn balancer(made: &Made) -> Balancer {
    Balancer {
        ingress: vec![Ingress {
            host: Host::Ip(made.address),
            mode: IpMode::Vip,
        }],
        pending: None,
    }
}

fn node_names(request: &Request) -> Vec<String> {
    request.nodes.iter().map(|node| node.name.clone()).collect()
}

impl Provider for Cloud {
    fn name(&self) -> &str {
        "scripted"
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        self.call("describe", request, |world| {
            world.made.get(&request.service.uid).map(balancer)
        })
        .boxed()
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        let ensure = |world: &mut World| {
            if world.refuse {
                let message = "no address is left".to_owned();
                return Err(ProviderError::Refused {
                    reason: "PoolsExhausted",
                    message,
                });
            }
            let uid = &request.service.uid;
            if !world.made.contains_key(uid) {
                // As a cloud would: what is made twice has two addresses, unless it is the same.
                let known = world.history.get(uid).and_then(|had| had.first().copied());
                world.last += u8::from(known.is_none());
                let address = known.unwrap_or(IpAddr::V4(Ipv4Addr::new(192, 0, 2, world.last)));
                world
                    .history
                    .entry(uid.clone())
                    .or_default()
                    .insert(address);
                world.made.insert(
                    uid.clone(),
                    Made {
                        address,
                        ports: Vec::new(),
                        nodes: Vec::new(),
                    },
                );
            }
            let made = world.made.get_mut(uid).unwrap();
            made.ports = request.ports.iter().map(|port| port.port).collect();
            made.nodes = node_names(request);
            Ok(balancer(made))
        };
        async move { self.call("ensure", request, ensure).await? }.boxed()
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        let update = |world: &mut World| match world.made.get_mut(&request.service.uid) {
            Some(made) => {
                made.nodes = node_names(request);
                Ok(())
            }
            None => Err(ProviderError::Failed(
                "there is no such load balancer".to_owned(),
            )),
        };
        async move { self.call("update", request, update).await? }.boxed()
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.call("delete", request, |world| {
            _ = world.made.remove(&request.service.uid)
        })
        .boxed()
    }
}
