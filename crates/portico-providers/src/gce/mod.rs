//! Load balancers of Google Compute Engine: external passthrough ones, of a forwarding rule and a
//! target pool.
//!
//! Packets reach a node with the balancer's address and port in them. Nodes are asked for their
//! health over HTTP: for Services with policy `Cluster` at their healthz by one check that all such
//! Services share, for `Local` ones at the Service's health-check node port (design/0019).
//!
//! - `config`, `start`, `auth`: the project and its place, and credentials.
//! - `resources`, `api`: the cloud's resources and calls.
//! - `names`, `wanted`: what a Service wants. Pure.
//! - `plan`: the next steps from wanted and observed. Pure.
//! - `act`: reading and doing. `shared`: the check that Services share. `last`: what is remembered
//!   of each.
//!
//! A call plans from what the last one left, and reads only what that does not tell
//! ([`Remembered`]).

mod act;
mod api;
mod auth;
mod config;
mod description;
mod last;
mod names;
mod plan;
mod resources;
mod shared;
mod start;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use self::act::{Actor, being_made, explain};
use self::api::{Api, DIALECT, is_absent_instance};
pub use self::config::{Config, Place};
use self::last::{Last, Latest};
use self::names::Names;
use self::plan::Observed;
use self::resources::ForwardingRule;
use self::shared::Shared;
use self::wanted::{InstanceRef, Wanted};
use super::cloud::{
    Authorize, Basis, CallError, CallMetrics, Client, Pace, Poll, Remembered, Setup, Transport,
};
use super::{Abilities, Answer, Balancer, Host, Ingress, IpMode, Provider, ProviderError, Request};
pub(crate) use description::DESCRIPTION;

const NAME: &str = "gce";
/// More steps in a row than any change takes, but for instances, which come in batches.
const MOST_ROUNDS: usize = 100;

/// What it is made of beside its place.
pub struct Parts {
    /// Sends requests.
    pub transport: Arc<dyn Transport>,
    /// Adds credentials to them.
    pub authorize: Arc<dyn Authorize>,
    /// How often calls are made and repeated.
    pub pace: Pace,
    /// How often an operation is looked at.
    pub poll: Poll,
    /// Where calls are counted.
    pub metrics: CallMetrics,
}

/// The provider `gce`.
pub struct Gce {
    actor: Actor,
    /// By the name of the balancer.
    last: Remembered<Last>,
    latest: Latest,
    /// Tags by instance, for the instances that were asked for last.
    tags: Mutex<Option<(BTreeSet<InstanceRef>, Instances)>>,
}

/// Those that exist, with their tags.
type Instances = BTreeMap<InstanceRef, Vec<String>>;

impl Gce {
    /// A provider at this place.
    pub fn new(place: Place, parts: Parts) -> Self {
        let Parts {
            transport,
            authorize,
            pace,
            poll,
            metrics,
        } = parts;
        let client = Client::new(Setup {
            provider: NAME,
            transport,
            authorize,
            dialect: DIALECT,
            pace,
            metrics,
        });
        Self {
            actor: Actor {
                api: Api {
                    client,
                    place,
                    poll,
                },
                shared: Shared::default(),
            },
            last: Remembered::default(),
            latest: Latest::default(),
            tags: Mutex::default(),
        }
    }

    fn api(&self) -> &Api {
        &self.actor.api
    }

    fn names(&self, request: &Request) -> Names {
        Names::new(&request.balancer_name, &self.api().place.cluster_id)
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let wanted = self.wanted(request).await?;
        let work = |basis| async {
            let made = self.make_from(basis, request, wanted.clone()).await;
            // Whatever went wrong, it may be with what others use.
            made.inspect_err(|_| self.actor.shared.forget())
        };
        self.last.make(&wanted.names.balancer, work).await
    }

    async fn make_from(
        &self,
        basis: Basis<Last>,
        request: &Request,
        mut wanted: Wanted,
    ) -> Result<(Last, Balancer), ProviderError> {
        let (actor, name) = (&self.actor, wanted.names.balancer.clone());
        // The lock keeps another Service from giving the shared check back while it is not known
        // whether this one needs it.
        let sharing = actor.shared.hold().await;
        let (mut observed, looked) = match basis {
            Basis::Last(last) => (
                actor
                    .recall(last.recall(&self.api().place), &wanted)
                    .await?,
                false,
            ),
            // The pool is made before all others and goes after them: if its name is free, nothing
            // is there.
            Basis::New if request.ingress.is_empty() => {
                (actor.recall(Observed::default(), &wanted).await?, false)
            }
            Basis::New | Basis::Look => (actor.observe(&wanted).await?, true),
        };
        let _sharing = plan::will_share(&wanted, &observed).then_some(sharing);
        for _ in 0..MOST_ROUNDS {
            let steps = plan::next(&wanted, &observed, self.api())?;
            if steps.is_empty() {
                if observed.has_check(&wanted.names.shared_check) {
                    actor.shared.join(&name);
                }
                let balancer = observed.rule.as_ref().map(balancer);
                let balancer = balancer.ok_or_else(|| failed("there is no forwarding rule"))??;
                return Ok((self.latest.keep(observed), balancer));
            }
            match actor.act(steps, &wanted.names, &mut observed).await {
                Err(error) if error.call().is_some_and(is_absent_instance) => {
                    self.drop_absent(&mut wanted).await?
                }
                Err(error) => return Err(explain(if looked { being_made(error) } else { error })),
                Ok(()) => {}
            }
        }
        Err(failed("the load balancer does not become what is wanted"))
    }

    async fn remove(&self, request: &Request) -> Result<(), ProviderError> {
        let names = self.names(request);
        let work = |basis| self.remove_from(basis, &names);
        self.last.delete(&names.balancer, work).await
    }

    async fn remove_from(&self, basis: Basis<Last>, names: &Names) -> Result<(), ProviderError> {
        let Basis::Last(last) = basis else {
            return self.actor.delete_all(names).await.map_err(explain);
        };
        let mut observed = last.recall(&self.api().place);
        let shares = observed.has_check(&names.shared_check);
        loop {
            let steps = plan::next_removal(names, &observed);
            if steps.is_empty() {
                break;
            }
            self.actor
                .act(steps, names, &mut observed)
                .await
                .map_err(explain)?;
        }
        if shares {
            self.actor.release_shared(names).await.map_err(explain)
        } else {
            Ok(())
        }
    }

    async fn wanted(&self, request: &Request) -> Result<Wanted, ProviderError> {
        let place = &self.api().place;
        if !place.node_tags.is_empty() {
            return Wanted::new(request, place, place.node_tags.clone());
        }
        let nodes: BTreeSet<InstanceRef> =
            request.nodes.iter().filter_map(wanted::instance).collect();
        let known = self
            .tags
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let instances = match known {
            Some((asked, instances)) if asked == nodes => instances,
            _ => self.existing(&nodes).await?,
        };
        let by_name = instances
            .iter()
            .map(|(instance, tags)| (instance.name.clone(), tags.clone()))
            .collect();
        let mut wanted = Wanted::new(request, place, wanted::tags_of(&by_name)?)?;
        wanted
            .instances
            .retain(|instance| instances.contains_key(instance));
        *self.tags.lock().unwrap_or_else(PoisonError::into_inner) = Some((nodes, instances));
        Ok(wanted)
    }

    /// Those of these instances that exist: a Node may outlive its machine.
    async fn existing(&self, asked: &BTreeSet<InstanceRef>) -> Result<Instances, CallError> {
        let zones: BTreeSet<&str> = asked
            .iter()
            .map(|instance| instance.zone.as_str())
            .collect();
        let mut found = Instances::new();
        for zone in zones {
            for instance in self.api().instances(zone).await? {
                let key = InstanceRef {
                    zone: zone.to_owned(),
                    name: instance.name,
                };
                if asked.contains(&key) {
                    found.insert(key, instance.tags.items);
                }
            }
        }
        Ok(found)
    }

    async fn drop_absent(&self, wanted: &mut Wanted) -> Result<(), ProviderError> {
        let there = self.existing(&wanted.instances).await?;
        wanted
            .instances
            .retain(|instance| there.contains_key(instance));
        Ok(())
    }
}

impl Provider for Gce {
    fn name(&self) -> &str {
        NAME
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            uses_nodes: true,
            needs_health_check_port: true,
            ..Abilities::default()
        }
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        Box::pin(async {
            let rule = self
                .api()
                .get::<ForwardingRule>(&self.names(request).balancer)
                .await?;
            let found = rule.as_ref().map(balancer).transpose()?;
            let ingress = found
                .as_ref()
                .map(|balancer| balancer.ingress.as_slice())
                .unwrap_or_default();
            // Another program changed it.
            if found.is_none() || (!request.ingress.is_empty() && ingress != request.ingress) {
                self.forget(request);
            }
            Ok(found)
        })
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        Box::pin(self.make(request))
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        Box::pin(async { self.make(request).await.map(drop) })
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        Box::pin(self.remove(request))
    }

    fn forget(&self, request: &Request) {
        self.last.forget(&request.balancer_name);
        self.actor.shared.forget();
    }
}

fn failed(text: &str) -> ProviderError {
    ProviderError::Failed(text.to_owned())
}

fn balancer(rule: &ForwardingRule) -> Result<Balancer, ProviderError> {
    let address: IpAddr = rule.address.parse().map_err(|_| {
        failed(&format!(
            "{:?} of a forwarding rule is no address",
            rule.address
        ))
    })?;
    Ok(Balancer {
        ingress: vec![Ingress {
            host: Host::Ip(address),
            mode: IpMode::Vip,
        }],
        pending: None,
    })
}

#[cfg(test)]
mod tests;
