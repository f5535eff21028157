//! Load balancers of Google Compute Engine: external passthrough ones, of a forwarding rule and a target pool.
//!
//! Packets reach a node with the balancer's address and port in them. Nodes are asked for their health over HTTP: for Services with
//! policy `Cluster` at their healthz by one check that all such Services share, for `Local` ones at the Service's health-check
//! node port (design/0019).
//!
//! - `config`, `start`, `auth`: where it is, and who asks.
//! - `resources`, `api`: the cloud's resources and calls.
//! - `names`, `wanted`: what a Service wants. Pure.
//! - `plan`: the next steps from wanted and observed. Pure.
//! - `act`: reading and doing.

mod act;
mod api;
mod auth;
mod config;
mod description;
mod names;
mod plan;
mod resources;
mod start;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use tokio::sync::RwLock;

use self::act::{Actor, explain};
use self::api::{Api, is_absent_instance};
use self::names::Names;
use self::resources::{ForwardingRule, TargetPool};
use self::wanted::{InstanceRef, Wanted};
use super::cloud::CallError;
use super::{Abilities, Answer, Balancer, Host, Ingress, IpMode, Provider, ProviderError, Request};
pub use description::DESCRIPTION;

const NAME: &str = "gce";
/// More steps in a row than any change takes, but for instances, which come in batches.
const MOST_ROUNDS: usize = 100;

/// The provider `gce`.
pub struct Gce {
    actor: Actor,
    /// Tags by instance, for the instances that were asked for last.
    tags: Mutex<Option<(BTreeSet<InstanceRef>, Instances)>>,
}

/// Those that exist, with their tags.
type Instances = BTreeMap<InstanceRef, Vec<String>>;

impl Gce {
    fn new(api: Api) -> Gce {
        Gce { actor: Actor { api, shared: RwLock::default() }, tags: Mutex::default() }
    }

    fn api(&self) -> &Api {
        &self.actor.api
    }

    fn names(&self, request: &Request) -> Names {
        Names::new(&request.balancer_name, &self.api().place.cluster_id)
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let mut wanted = self.wanted(request).await?;
        // Until it is clear that the shared check is not about to be used, nobody gives it back.
        let sharing = self.actor.shared.read().await;
        let mut observed = self.actor.observe(&wanted).await?;
        let _sharing = plan::will_share(&wanted, &observed).then_some(sharing);
        for _ in 0..MOST_ROUNDS {
            let steps = plan::next(&wanted, &observed, self.api())?;
            if steps.is_empty() {
                return observed.rule.as_ref().map(balancer).ok_or_else(|| failed("there is no forwarding rule"))?;
            }
            match self.actor.act(steps, &wanted, &mut observed).await {
                Err(error) if error.call().is_some_and(is_absent_instance) => self.drop_absent(&mut wanted).await?,
                done => done.map_err(explain)?,
            }
        }
        Err(failed("the load balancer does not become what is wanted"))
    }

    async fn move_nodes(&self, request: &Request) -> Result<(), ProviderError> {
        // Tags follow the instances, and the firewalls follow the tags.
        if self.api().place.node_tags.is_empty() {
            return self.make(request).await.map(drop);
        }
        let mut wanted = self.wanted(request).await?;
        let pool = self.api().get::<TargetPool>(&wanted.names.balancer).await?;
        let mut observed = plan::Observed { pool, ..plan::Observed::default() };
        for _ in 0..MOST_ROUNDS {
            let steps = observed.pool.as_ref().and_then(|pool| plan::next_nodes(&wanted, pool, self.api()));
            let Some(steps) = steps else { return self.make(request).await.map(drop) };
            if steps.is_empty() {
                return Ok(());
            }
            match self.actor.act(steps, &wanted, &mut observed).await {
                Err(error) if error.call().is_some_and(is_absent_instance) => self.drop_absent(&mut wanted).await?,
                done => done.map_err(explain)?,
            }
        }
        Err(failed("the target pool does not become what is wanted"))
    }

    async fn wanted(&self, request: &Request) -> Result<Wanted, ProviderError> {
        let place = &self.api().place;
        if !place.node_tags.is_empty() {
            return Wanted::new(request, place, place.node_tags.clone());
        }
        let nodes: BTreeSet<InstanceRef> = request.nodes.iter().filter_map(wanted::instance).collect();
        let known = self.tags.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let instances = match known {
            Some((asked, instances)) if asked == nodes => instances,
            _ => self.existing(&nodes).await?,
        };
        let by_name = instances.iter().map(|(instance, tags)| (instance.name.clone(), tags.clone())).collect();
        let mut wanted = Wanted::new(request, place, wanted::tags_of(&by_name)?)?;
        wanted.instances.retain(|instance| instances.contains_key(instance));
        *self.tags.lock().unwrap_or_else(PoisonError::into_inner) = Some((nodes, instances));
        Ok(wanted)
    }

    /// Those of some instances that there are: a Node may outlive its machine.
    async fn existing(&self, asked: &BTreeSet<InstanceRef>) -> Result<Instances, CallError> {
        let zones: BTreeSet<&str> = asked.iter().map(|instance| instance.zone.as_str()).collect();
        let mut found = Instances::new();
        for zone in zones {
            for instance in self.api().instances(zone).await? {
                let key = InstanceRef { zone: zone.to_owned(), name: instance.name };
                if asked.contains(&key) {
                    found.insert(key, instance.tags.items);
                }
            }
        }
        Ok(found)
    }

    async fn drop_absent(&self, wanted: &mut Wanted) -> Result<(), ProviderError> {
        let there = self.existing(&wanted.instances).await?;
        wanted.instances.retain(|instance| there.contains_key(instance));
        Ok(())
    }
}

impl Provider for Gce {
    fn name(&self) -> &str {
        NAME
    }

    fn abilities(&self) -> Abilities {
        Abilities { uses_nodes: true, needs_health_check_port: true, ..Abilities::default() }
    }

    /// A forwarding rule is the last thing that is made: where there is one, all is there.
    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        Box::pin(async {
            let rule = self.api().get::<ForwardingRule>(&self.names(request).balancer).await?;
            rule.as_ref().map(balancer).transpose()
        })
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        Box::pin(self.make(request))
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        Box::pin(self.move_nodes(request))
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        Box::pin(async { self.actor.delete(&self.names(request)).await.map_err(explain) })
    }
}

fn failed(text: &str) -> ProviderError {
    ProviderError::Failed(text.to_owned())
}

fn balancer(rule: &ForwardingRule) -> Result<Balancer, ProviderError> {
    let address: IpAddr =
        rule.address.parse().map_err(|_| failed(&format!("{:?} of a forwarding rule is no address", rule.address)))?;
    Ok(Balancer { ingress: vec![Ingress { host: Host::Ip(address), mode: IpMode::Vip }], pending: None })
}

#[cfg(test)]
mod tests;
