//! Load balancers of OpenStack: Octavia makes and carries them, Neutron has their floating IPs, Keystone knows who asks.
//!
//! Everything of a Service carries a tag (or, for floating IPs, a description) with its uid, and is found by that: nothing is
//! remembered. What is wanted and what is there become steps in `plan` and `floating`, which are pure; `work` does them
//! (design/0021).

mod apis;
mod config;
mod description;
mod floating;
mod keystone;
mod list;
mod neutron;
mod octavia;
mod options;
mod place;
mod plan;
mod status;
mod wanted;
mod work;

use std::sync::Arc;

use http::HeaderName;

use apis::Apis;
pub use config::{Config, ConfigError};
pub use description::DESCRIPTION;
use keystone::Keystone;
use neutron::Neutron;
use octavia::{LoadBalancer, NewLoadBalancer, Octavia};
use options::Options;
use status::{check_unchangeable, described, requested_ip};
use work::{Work, failed};

use super::cloud::{
    Anonymous, CallError, CallMetrics, Client, Dialect, Header, Http, HttpOptions, Login, Pace, Poll, Setup, Tokens,
    Transport,
};
use super::{Abilities, Answer, Balancer, Provider, ProviderError, Request, Start};

const NAME: &str = "openstack";
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// What it is made of beside its configuration.
pub struct Parts {
    pub transport: Arc<dyn Transport>,
    pub pace: Pace,
    pub poll: Poll,
    pub metrics: CallMetrics,
}

pub struct OpenStack {
    config: Config,
    keystone: Login<Keystone>,
    client: Arc<Client>,
    poll: Poll,
}

impl OpenStack {
    /// From `--cloud-config`.
    pub fn start(start: &Start) -> Result<OpenStack, String> {
        let path = start
            .config
            .as_ref()
            .ok_or("--cloud-config is needed: a cloud.conf with [Global] auth-url (docs/openstack.md)")?;
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let config = Config::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let options = HttpOptions { ca_file: config.global.ca_file.clone(), ..HttpOptions::default() };
        let transport = Arc::new(Http::new(&options).map_err(|error| error.to_string())?);
        let metrics = start.metrics.clone();
        Ok(OpenStack::new(config, Parts { transport, pace: Pace::default(), poll: Poll::default(), metrics }))
    }

    pub fn new(config: Config, parts: Parts) -> OpenStack {
        let setup = |authorize| Setup {
            provider: NAME,
            transport: Arc::clone(&parts.transport),
            authorize,
            dialect: DIALECT,
            pace: parts.pace,
            metrics: parts.metrics.clone(),
        };
        let client = Client::new(setup(Arc::new(Anonymous)));
        let keystone = Login::new(Keystone { client, global: config.global.clone() });
        let tokens = Tokens::new(keystone.clone(), Header::Named(TOKEN));
        let client = Arc::new(Client::new(setup(Arc::new(tokens))));
        OpenStack { config, keystone, client, poll: parts.poll }
    }

    async fn apis(&self) -> Result<Apis, CallError> {
        let endpoints = self.keystone.place().await?;
        let octavia =
            Octavia { client: Arc::clone(&self.client), url: format!("{}/v2.0/lbaas", endpoints.load_balancer) };
        let neutron = |url| Neutron { client: Arc::clone(&self.client), url: format!("{url}/v2.0") };
        Ok(Apis { octavia, neutron: endpoints.network.map(neutron) })
    }

    async fn find(&self, request: &Request) -> Result<Option<Balancer>, ProviderError> {
        let options = Options::of(request, &self.config)?;
        let apis = self.apis().await?;
        let Some(balancer) = apis.octavia.tagged(wanted::tag(request)).await?.into_iter().next() else {
            return Ok(None);
        };
        let floating = apis.attached(&balancer, &options).await?;
        Ok(Some(described(&balancer, floating, request, &options)))
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let options = Options::of(request, &self.config)?;
        let apis = self.apis().await?;
        let balancer = match self.existing(&apis.octavia, request).await? {
            Some(balancer) => self.repair(&apis.octavia, balancer, request, &options).await?,
            None => self.create(&apis, request, &options).await?,
        };
        let floating = apis.float(&balancer, request, &options).await?;
        Ok(described(&balancer, floating, request, &options))
    }

    /// The one that there is, when it can be written to. Should there be several, because an answer was lost, the others go.
    async fn existing(&self, octavia: &Octavia, request: &Request) -> Result<Option<LoadBalancer>, ProviderError> {
        let mut found = octavia.tagged(wanted::tag(request)).await?.into_iter();
        let Some(first) = found.next() else { return Ok(None) };
        for other in found {
            Work { octavia, poll: &self.poll, id: &other.id }.delete().await?;
        }
        let work = Work { octavia, poll: &self.poll, id: &first.id };
        let Some(balancer) = (if first.is_pending() { work.settled().await? } else { Some(first.clone()) }) else {
            return Ok(None);
        };
        // One that failed before anybody used it is made anew by the next try. Later it may still carry traffic.
        if balancer.is_failed() && request.ingress.is_empty() {
            work.delete().await?;
            return Err(failed(&balancer));
        }
        Ok(Some(balancer))
    }

    async fn repair(
        &self,
        octavia: &Octavia,
        balancer: LoadBalancer,
        request: &Request,
        options: &Options,
    ) -> Result<LoadBalancer, ProviderError> {
        check_unchangeable(&balancer, request, options)?;
        let work = Work { octavia, poll: &self.poll, id: &balancer.id };
        let wanted = wanted::listeners(request, options, member_subnet(options, &balancer))?;
        let steps = plan::plan(&wanted, &work.observe(wanted::tag(request)).await?);
        if steps.is_empty() && balancer.is_failed() {
            return Err(failed(&balancer));
        }
        work.run(steps).await?;
        Ok(balancer)
    }

    async fn create(&self, apis: &Apis, request: &Request, options: &Options) -> Result<LoadBalancer, ProviderError> {
        let place = place::choose(apis.neutron.as_ref(), request, options).await?;
        let subnet = options.networks.member_subnet.as_ref().or(place.subnet.as_ref());
        let listeners = wanted::listeners(request, options, subnet.map(String::as_str))?;
        let new = NewLoadBalancer {
            name: wanted::name(request),
            description: format!("Kubernetes service {} of cluster {}", request.service, request.cluster),
            tags: vec![wanted::tag(request).to_owned()],
            vip_address: if options.internal { requested_ip(request)? } else { None },
            vip_network_id: place.network,
            vip_subnet_id: place.subnet,
            vip_port_id: place.port,
            additional_vips: place.more,
            provider: self.config.balancers.provider.clone(),
            flavor_id: options.flavor.clone(),
            availability_zone: options.availability_zone.clone(),
            listeners: if self.config.balancers.serial { Vec::new() } else { listeners },
        };
        let balancer = work::create(&apis.octavia, &self.poll, &new).await?;
        match self.config.balancers.serial {
            true => self.repair(&apis.octavia, balancer, request, options).await,
            false => Ok(balancer),
        }
    }

    async fn move_nodes(&self, request: &Request) -> Result<(), ProviderError> {
        let options = Options::of(request, &self.config)?;
        let octavia = self.apis().await?.octavia;
        let Some(balancer) = self.existing(&octavia, request).await? else {
            return Err(ProviderError::Failed("the load balancer is gone".to_owned()));
        };
        let work = Work { octavia: &octavia, poll: &self.poll, id: &balancer.id };
        let wanted = wanted::listeners(request, &options, member_subnet(&options, &balancer))?;
        let pools = work.observe_members(wanted::tag(request)).await?;
        work.run(plan::plan_members(&wanted, &pools)).await
    }

    /// Floating IPs first: they are found by the load balancer.
    async fn remove(&self, request: &Request) -> Result<(), ProviderError> {
        let apis = self.apis().await?;
        let found = apis.octavia.tagged(wanted::tag(request)).await?;
        apis.sink(&found, request).await?;
        for balancer in &found {
            Work { octavia: &apis.octavia, poll: &self.poll, id: &balancer.id }.delete().await?;
        }
        Ok(())
    }
}

impl Provider for OpenStack {
    fn name(&self) -> &str {
        NAME
    }

    fn abilities(&self) -> Abilities {
        let balancers = &self.config.balancers;
        let asks_nodes = balancers.monitor && balancers.provider.as_deref() != Some("ovn");
        Abilities { uses_nodes: true, needs_health_check_port: asks_nodes, ..Abilities::default() }
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        Box::pin(self.find(request))
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        Box::pin(self.make(request))
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        Box::pin(self.move_nodes(request))
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        Box::pin(self.remove(request))
    }
}

fn member_subnet<'a>(options: &'a Options, balancer: &'a LoadBalancer) -> Option<&'a str> {
    options.networks.member_subnet.as_deref().or(balancer.vip_subnet_id.as_deref())
}

/// Octavia, Neutron and Keystone tell mistakes in three ways.
const DIALECT: Dialect = Dialect {
    read: |body| {
        let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let octavia = || Some((String::new(), text(&answer["faultstring"])?));
        let neutron = || Some((text(&answer["NeutronError"]["type"])?, text(&answer["NeutronError"]["message"])?));
        let keystone = || Some((text(&answer["error"]["title"])?, text(&answer["error"]["message"])?));
        octavia().or_else(neutron).or_else(keystone)
    },
    is_throttled: |_, _| false,
};

#[cfg(test)]
mod tests;
