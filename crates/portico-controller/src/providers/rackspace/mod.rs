//! Rackspace Cloud Load Balancers (API v1.0). Each has one port, so a Service has one for each of its ports, and they share its address.
//!
//! They are proxies: connections reach the nodes from addresses of the cloud (`ipMode: Proxy`). All carry the Service's uid in their
//! names, and are found by that (design/0023).
//!
//! - `config`, `identity`: where it is, and who asks.
//! - `api`: the cloud's resources and calls.
//! - `wanted`, `plan`: what a Service wants, and the steps to it. Pure.
//! - `work`: does them.

mod api;
mod config;
mod description;
mod identity;
mod plan;
mod wanted;
mod work;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderName;

use api::{Api, DIALECT, LoadBalancer};
pub use config::{Config, ConfigError};
pub use description::DESCRIPTION;
use identity::Identity;
use plan::Plan;
use wanted::Wanted;
use work::Work;

use super::cloud::{
    Anonymous, CallError, CallMetrics, Client, Header, Http, HttpOptions, Login, Pace, Poll, Setup, Tokens, Transport,
};
use super::{Abilities, Answer, Balancer, Host, Ingress, IpMode, Provider, ProviderError, Request, Start};

const NAME: &str = "rackspace";
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
/// Writes that the vendor takes in a second.
const RATE: u32 = 5;

/// What it is made of beside its configuration.
pub struct Parts {
    pub transport: Arc<dyn Transport>,
    pub pace: Pace,
    pub poll: Poll,
    pub metrics: CallMetrics,
}

/// The provider `rackspace`.
pub struct Rackspace {
    config: Config,
    identity: Login<Identity>,
    client: Arc<Client>,
    poll: Poll,
    /// What the last call that succeeded left of each Service, by the name of its load balancers: it saves reads, and no more.
    remembered: Mutex<BTreeMap<String, Vec<LoadBalancer>>>,
}

impl Rackspace {
    /// From `--cloud-config` and the environment.
    pub fn start(start: &Start) -> Result<Rackspace, String> {
        let text = match &start.config {
            Some(path) => {
                std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?
            }
            None => String::new(),
        };
        let config = Config::parse(&text, |name| std::env::var(name).ok()).map_err(|error| match &start.config {
            Some(path) => format!("{}: {error}", path.display()),
            None => format!("--cloud-config is not given: {error} (docs/rackspace.md)"),
        })?;
        let transport = Arc::new(Http::new(&HttpOptions::default()).map_err(|error| error.to_string())?);
        let pace = Pace { rate: f64::from(RATE), burst: RATE, ..Pace::default() };
        let metrics = start.metrics.clone();
        Ok(Rackspace::new(config, Parts { transport, pace, poll: Poll::default(), metrics }))
    }

    pub fn new(config: Config, parts: Parts) -> Rackspace {
        let setup = |authorize| Setup {
            provider: NAME,
            transport: Arc::clone(&parts.transport),
            authorize,
            dialect: DIALECT,
            pace: parts.pace,
            metrics: parts.metrics.clone(),
        };
        let client = Client::new(setup(Arc::new(Anonymous)));
        let identity = Login::new(Identity { client, config: config.clone() });
        let tokens = Tokens::new(identity.clone(), Header::Named(TOKEN));
        let client = Arc::new(Client::new(setup(Arc::new(tokens))));
        Rackspace { config, identity, client, poll: parts.poll, remembered: Mutex::default() }
    }

    async fn work<'a>(&'a self, request: &'a Request) -> Result<Work<'a>, CallError> {
        let api = Api { client: Arc::clone(&self.client), url: self.identity.place().await? };
        Ok(Work { api, poll: &self.poll, name: &request.balancer_name })
    }

    /// Taken out: a call that fails leaves nothing, and the next one reads.
    fn recall(&self, request: &Request) -> Option<Vec<LoadBalancer>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.balancer_name)
    }

    fn remember(&self, request: &Request, own: Vec<LoadBalancer>) {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).insert(request.balancer_name.clone(), own);
    }

    async fn find(&self, request: &Request) -> Result<Option<Balancer>, ProviderError> {
        let work = self.work(request).await?;
        let own: Vec<LoadBalancer> = work.own(&work.api.list().await?).cloned().collect();
        Ok((!own.is_empty()).then(|| described(&own, request)))
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let wanted = Wanted::new(request, &self.config)?;
        self.recall(request);
        let work = self.work(request).await?;
        let all = work.settled().await?;
        let own = work.working(&all, !request.ingress.is_empty()).await?;
        let own = work.run(plan::plan(&wanted, &own, &all, request)?, own).await?;
        let balancer = Balancer { pending: None, ..described(&own, request) };
        self.remember(request, own);
        Ok(balancer)
    }

    /// From memory, if that is enough and right; else all is looked at.
    async fn move_nodes(&self, request: &Request) -> Result<(), ProviderError> {
        let wanted = Wanted::new(request, &self.config)?;
        let remembered = self.recall(request);
        let steps = remembered.as_ref().and_then(|own| plan::plan_nodes(&wanted, own));
        if let (Some(own), Some(steps)) = (remembered, steps) {
            let work = self.work(request).await?;
            match work.run(Plan { addresses: Vec::new(), steps }, own).await {
                Ok(own) => {
                    self.remember(request, own);
                    return Ok(());
                }
                Err(error @ ProviderError::RetryAfter { .. }) => return Err(error),
                Err(_) => {}
            }
        }
        self.make(request).await.map(drop)
    }

    async fn remove(&self, request: &Request) -> Result<(), ProviderError> {
        let work = self.work(request).await?;
        if let Some(own) = self.recall(request) {
            let ids: Vec<u64> = own.iter().map(|balancer| balancer.id).collect();
            if work.delete(&ids).await.is_ok() {
                return Ok(());
            }
        }
        let all = work.settled().await?;
        let ids: Vec<u64> = work.own(&all).map(|balancer| balancer.id).collect();
        work.delete(&ids).await
    }
}

impl Provider for Rackspace {
    fn name(&self) -> &str {
        NAME
    }

    fn abilities(&self) -> Abilities {
        Abilities { uses_nodes: true, uses_endpoints: true, ..Abilities::default() }
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

/// As the world sees them. One that is being changed works.
fn described(own: &[LoadBalancer], request: &Request) -> Balancer {
    let addresses = plan::addresses(own, request).into_iter();
    let ingress = addresses.map(|vip| Ingress { host: Host::Ip(vip.address), mode: IpMode::Proxy }).collect();
    let works = |balancer: &&LoadBalancer| ["ACTIVE", "PENDING_UPDATE"].contains(&balancer.status.as_str());
    Balancer { ingress, pending: own.iter().find(|balancer| !works(balancer)).map(LoadBalancer::state) }
}

#[cfg(test)]
mod tests;
