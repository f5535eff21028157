//! Amazon's cloud: Network Load Balancers, or classic ones, whose targets are the instances of the cluster's nodes (docs/aws.md,
//! design/0020).
//!
//! Everything is found by names that follow from the Service's uid, and is ours only if it has the cluster's tag. Which instances
//! were registered last is remembered, so that nodes that come and go cost no call but those that register them; whoever does
//! not remember ensures.

mod annotations;
pub mod api;
pub mod auth;
mod classic;
mod config;
mod description;
mod groups;
mod network;
mod settings;
mod start;
mod subnets;
mod surroundings;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;

use annotations::Kind;
use network::changes;
use surroundings::Surroundings;
use wanted::{Names, Wanted, refused};

use super::{Abilities, Answer, Balancer, Host, Ingress, IpMode, Provider, ProviderError, Request};

pub use config::{Config, Endpoint};
pub use description::DESCRIPTION;
pub use start::Parts;

pub struct Aws {
    around: Surroundings,
    /// By the name of the balancer.
    registered: Mutex<BTreeMap<String, Registered>>,
}

/// What the last call for a Service left.
#[derive(Clone, Debug)]
struct Registered {
    /// ARNs of target groups; a classic balancer has none.
    groups: Option<Vec<String>>,
    instances: BTreeSet<String>,
}

/// A balancer of either kind, or that there is none.
enum Found {
    Network(Option<network::Balancer>),
    Classic(Option<classic::Balancer>),
}

impl Found {
    fn kind(&self) -> Kind {
        match self {
            Found::Network(_) => Kind::Network,
            Found::Classic(_) => Kind::Classic,
        }
    }

    fn is_there(&self) -> bool {
        matches!(self, Found::Network(Some(_)) | Found::Classic(Some(_)))
    }
}

impl Aws {
    fn names(&self, request: &Request) -> Names {
        Names::of(request, &self.around.cluster)
    }

    async fn look(&self, kind: Kind, names: &Names) -> Result<Found, ProviderError> {
        Ok(match kind {
            Kind::Network => Found::Network(self.around.api.network.balancer(&names.balancer).await?),
            Kind::Classic => Found::Classic(self.around.api.classic.classic(&names.balancer).await?),
        })
    }

    /// Of the wished kind, if there is none of the other.
    async fn find(&self, wish: Option<Kind>, names: &Names) -> Result<Found, ProviderError> {
        let kind = wish.unwrap_or(Kind::Network);
        let found = self.look(kind, names).await?;
        if found.is_there() {
            return Ok(found);
        }
        let other = self.look(kind.other(), names).await?;
        Ok(if other.is_there() { other } else { found })
    }

    async fn find_to_describe(&self, request: &Request) -> Result<Option<Balancer>, ProviderError> {
        Ok(match self.find(Kind::of(request)?, &self.names(request)).await? {
            Found::Network(balancer) => balancer.map(|balancer| told(&balancer.host, &balancer.state)).transpose()?,
            Found::Classic(balancer) => balancer.map(|balancer| told(&balancer.host, "active")).transpose()?,
        })
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let (names, wish) = (self.names(request), Kind::of(request)?);
        let found = self.find(wish, &names).await?;
        if wish.is_some_and(|wish| wish != found.kind()) {
            let message =
                format!("there is a {} load balancer: create the Service anew for another", found.kind().word());
            return refused("TypeChanged", message);
        }
        let wanted = Wanted::of(request, found.kind(), &names)?;
        self.remembered().remove(&names.balancer);
        match found {
            Found::Network(balancer) => self.make_network(&names, &wanted, balancer).await,
            Found::Classic(balancer) => self.make_classic(&names, &wanted, balancer).await,
        }
    }

    async fn make_network(
        &self,
        names: &Names,
        wanted: &Wanted,
        balancer: Option<network::Balancer>,
    ) -> Result<Balancer, ProviderError> {
        let seen = network::act::observe(&self.around, names, balancer, wanted).await?;
        let mut actor = network::act::Actor::new(&self.around, &seen);
        for step in network::plan(wanted, &seen)? {
            actor.act(&step).await?;
        }
        self.remember(wanted, Some(actor.targets.into_values().collect()));
        let balancer = actor.balancer.unwrap_or_default();
        told(&balancer.host, &balancer.state)
    }

    async fn make_classic(
        &self,
        names: &Names,
        wanted: &Wanted,
        balancer: Option<classic::Balancer>,
    ) -> Result<Balancer, ProviderError> {
        let seen = classic::act::observe(&self.around, names, balancer, wanted).await?;
        let mut actor = classic::act::Actor::new(&self.around, &names.balancer, &seen);
        for step in classic::plan(wanted, &seen)? {
            actor.act(&step).await?;
        }
        self.remember(wanted, None);
        told(&actor.host, "active")
    }

    async fn move_nodes(&self, request: &Request) -> Result<(), ProviderError> {
        let name = &request.balancer_name;
        let Some(last) = self.remembered().remove(name) else { return self.make(request).await.map(drop) };
        let instances = wanted::instances(request);
        let (gone, new) = changes(&last.instances, &instances);
        let (gone, new) = (gone.unwrap_or_default(), new.unwrap_or_default());
        match &last.groups {
            Some(groups) => {
                for group in groups {
                    self.around.api.network.deregister(group, &gone).await?;
                    network::act::register(&self.around, group, &new).await?;
                }
            }
            None => {
                self.around.api.classic.deregister_classic(name, &gone).await?;
                classic::act::register(&self.around, name, &new).await?;
            }
        }
        self.remembered().insert(name.clone(), Registered { instances, ..last });
        Ok(())
    }

    async fn remove(&self, request: &Request) -> Result<(), ProviderError> {
        let names = self.names(request);
        self.remembered().remove(&names.balancer);
        classic::act::remove(&self.around, &names).await?;
        let balancer = self.around.api.network.balancer(&names.balancer).await?;
        let seen = network::act::observe_to_remove(&self.around, &names, balancer).await?;
        let mut actor = network::act::Actor::new(&self.around, &seen);
        for step in network::removal(&seen) {
            actor.act(&step).await?;
        }
        Ok(())
    }

    fn remember(&self, wanted: &Wanted, groups: Option<Vec<String>>) {
        let registered = Registered { groups, instances: wanted.instances.clone() };
        self.remembered().insert(wanted.name.clone(), registered);
    }

    fn remembered(&self) -> MutexGuard<'_, BTreeMap<String, Registered>> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `state` in the vendor's words.
fn told(host: &str, state: &str) -> Result<Balancer, ProviderError> {
    let pending = match state {
        "active" | "active_impaired" => None,
        "failed" => return Err(ProviderError::Failed(format!("the cloud could not make the load balancer {host}"))),
        _ => Some("the load balancer is being provisioned".to_owned()),
    };
    let ingress = Ingress { host: Host::Name(host.to_owned()), mode: IpMode::Vip };
    Ok(Balancer { ingress: vec![ingress], pending })
}

impl Provider for Aws {
    fn name(&self) -> &str {
        DESCRIPTION.name
    }

    fn abilities(&self) -> Abilities {
        Abilities { uses_nodes: true, needs_health_check_port: true, ..Abilities::default() }
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        self.find_to_describe(request).boxed()
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        self.make(request).boxed()
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.move_nodes(request).boxed()
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.remove(request).boxed()
    }
}
