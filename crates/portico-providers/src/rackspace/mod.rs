//! Rackspace Cloud Load Balancers (API v1.0). Each has one port, so a Service has one for each of
//! its ports, and they share its address.
//!
//! They are proxies: connections reach the nodes from addresses of the cloud (`ipMode: Proxy`). All
//! carry the Service's uid in their names, and are found by that (design/0023).
//!
//! - `config`, `identity`: the API's address, and credentials.
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

use std::sync::Arc;

use http::HeaderName;

use api::{Api, DIALECT, LoadBalancer};
pub use config::Config;
pub(crate) use description::DESCRIPTION;
use identity::Identity;
use wanted::Wanted;
use work::Work;

use super::cloud::{
    Anonymous, Basis, CallError, CallMetrics, Client, Header, Http, HttpOptions, Login, Pace, Poll,
    Remembered, Setup, Tokens, Transport,
};
use super::{
    Abilities, Answer, Balancer, Host, Ingress, IpMode, Provider, ProviderError, Request, Start,
};

const NAME: &str = "rackspace";
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
/// Writes that the vendor takes in a second.
const RATE: u32 = 5;

/// What it is made of beside its configuration.
pub struct Parts {
    /// Sends requests.
    pub transport: Arc<dyn Transport>,
    /// How often calls are made and repeated.
    pub pace: Pace,
    /// How often a load balancer that is being built is looked at.
    pub poll: Poll,
    /// Where calls are counted.
    pub metrics: CallMetrics,
}

/// The provider `rackspace`.
pub struct Rackspace {
    config: Config,
    identity: Login<Identity>,
    client: Arc<Client>,
    poll: Poll,
    /// With details.
    remembered: Remembered<Vec<LoadBalancer>>,
}

impl Rackspace {
    /// Starts the provider with `--cloud-config` and the environment.
    pub fn start(start: &Start) -> Result<Self, String> {
        let text = match &start.config {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
            None => String::new(),
        };
        let config =
            Config::parse(&text, |name| std::env::var(name).ok()).map_err(|error| match &start
                .config
            {
                Some(path) => format!("{}: {error}", path.display()),
                None => format!("--cloud-config is not given: {error} (docs/rackspace.md)"),
            })?;
        let transport =
            Arc::new(Http::new(&HttpOptions::default()).map_err(|error| error.to_string())?);
        let pace = Pace {
            rate: f64::from(RATE),
            burst: RATE,
            ..Pace::default()
        };
        let metrics = start.metrics.clone();
        Ok(Self::new(
            config,
            Parts {
                transport,
                pace,
                poll: Poll::default(),
                metrics,
            },
        ))
    }

    /// A provider on this cloud.
    pub fn new(config: Config, parts: Parts) -> Self {
        let setup = |authorize| Setup {
            provider: NAME,
            transport: Arc::clone(&parts.transport),
            authorize,
            dialect: DIALECT,
            pace: parts.pace,
            metrics: parts.metrics.clone(),
        };
        let client = Client::new(setup(Arc::new(Anonymous)));
        let identity = Login::new(Identity {
            client,
            config: config.clone(),
        });
        let tokens = Tokens::new(identity.clone(), Header::Named(TOKEN));
        let client = Arc::new(Client::new(setup(Arc::new(tokens))));
        Self {
            config,
            identity,
            client,
            poll: parts.poll,
            remembered: Remembered::default(),
        }
    }

    async fn work<'a>(&'a self, request: &'a Request) -> Result<Work<'a>, CallError> {
        let api = Api {
            client: Arc::clone(&self.client),
            url: self.identity.place().await?,
        };
        Ok(Work {
            api,
            poll: &self.poll,
            name: &request.balancer_name,
        })
    }

    async fn find(&self, request: &Request) -> Result<Option<Balancer>, ProviderError> {
        let work = self.work(request).await?;
        let own: Vec<LoadBalancer> = work.own(&work.api.list().await?).cloned().collect();
        Ok((!own.is_empty()).then(|| described(&own, request)))
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let wanted = &Wanted::new(request, &self.config)?;
        let make = |basis: Basis<Vec<LoadBalancer>>| async move {
            let work = self.work(request).await?;
            let (own, all) = match basis {
                Basis::Last(own) => (own, Vec::new()),
                Basis::New | Basis::Look => {
                    let all = work.settled().await?;
                    (work.working(&all, !request.ingress.is_empty()).await?, all)
                }
            };
            let own = work
                .run(plan::plan(wanted, &own, &all, request)?, own)
                .await?;
            let balancer = Balancer {
                pending: None,
                ..described(&own, request)
            };
            Ok::<_, ProviderError>((own, balancer))
        };
        self.remembered.make(&request.balancer_name, make).await
    }

    async fn remove(&self, request: &Request) -> Result<(), ProviderError> {
        let remove = |basis: Basis<Vec<LoadBalancer>>| async move {
            let work = self.work(request).await?;
            let own = match basis {
                Basis::Last(own) => own,
                Basis::New | Basis::Look => work.own(&work.settled().await?).cloned().collect(),
            };
            work.delete(&own.iter().map(|balancer| balancer.id).collect::<Vec<u64>>())
                .await
        };
        self.remembered.delete(&request.balancer_name, remove).await
    }
}

impl Provider for Rackspace {
    fn name(&self) -> &str {
        NAME
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            uses_nodes: true,
            uses_endpoints: true,
            ..Abilities::default()
        }
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        Box::pin(self.find(request))
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
        self.remembered.forget(&request.balancer_name);
    }
}

/// As the world sees them. One that is being changed works.
fn described(own: &[LoadBalancer], request: &Request) -> Balancer {
    let addresses = plan::addresses(own, request).into_iter();
    let ingress = addresses
        .map(|vip| Ingress {
            host: Host::Ip(vip.address),
            mode: IpMode::Proxy,
        })
        .collect();
    let works =
        |balancer: &&LoadBalancer| ["ACTIVE", "PENDING_UPDATE"].contains(&balancer.status.as_str());
    Balancer {
        ingress,
        pending: own
            .iter()
            .find(|balancer| !works(balancer))
            .map(LoadBalancer::state),
    }
}

#[cfg(test)]
mod tests;
