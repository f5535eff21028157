//! Load balancers of OpenStack: Octavia makes and carries them, Neutron has their floating IPs,
//! Keystone issues tokens.
//!
//! Everything of a Service carries a tag (or, for floating IPs, a description) with its uid, and is
//! found by that. What the last call left is remembered. What is wanted and what is there become
//! steps in `plan` and `floating`, which are pure; `work` does them (design/0021).

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

use apis::{Apis, Floating};
pub use config::Config;
pub(crate) use description::DESCRIPTION;
use keystone::Keystone;
use neutron::{FloatingIp, Neutron};
use octavia::{LoadBalancer, NewLoadBalancer, Octavia};
use options::Options;
use plan::Observed;
use status::{check_unchangeable, described, requested_ip};
use work::{Work, failed};

use super::cloud::{
    Anonymous, Basis, CallError, CallMetrics, Client, Dialect, Header, Http, HttpOptions, Login,
    Pace, Poll, Remembered, Setup, Tokens, Transport,
};
use super::{Abilities, Answer, Balancer, Provider, ProviderError, Request, Start};

const NAME: &str = "openstack";
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

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

/// The provider.
pub struct OpenStack {
    config: Config,
    keystone: Login<Keystone>,
    client: Arc<Client>,
    poll: Poll,
    /// By the tag.
    last: Remembered<Last>,
}

/// Everything of a Service.
struct Last {
    balancer: LoadBalancer,
    /// What is in it; `None` where an answer did not say.
    seen: Option<Observed>,
    /// Floating IPs at it.
    attached: Vec<FloatingIp>,
}

impl OpenStack {
    /// Starts the provider with `--cloud-config`.
    pub fn start(start: &Start) -> Result<Self, String> {
        let path = start.config.as_ref().ok_or(
            "--cloud-config is needed: a cloud.conf with [Global] auth-url (docs/openstack.md)",
        )?;
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let config =
            Config::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let options = HttpOptions {
            ca_file: config.global.ca_file.clone(),
            ..HttpOptions::default()
        };
        let transport = Arc::new(Http::new(&options).map_err(|error| error.to_string())?);
        let metrics = start.metrics.clone();
        Ok(Self::new(
            config,
            Parts {
                transport,
                pace: Pace::default(),
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
        let keystone = Login::new(Keystone {
            client,
            global: config.global.clone(),
        });
        let tokens = Tokens::new(keystone.clone(), Header::Named(TOKEN));
        let client = Arc::new(Client::new(setup(Arc::new(tokens))));
        Self {
            config,
            keystone,
            client,
            poll: parts.poll,
            last: Remembered::default(),
        }
    }

    async fn apis(&self) -> Result<Apis, CallError> {
        let endpoints = self.keystone.place().await?;
        let octavia = Octavia {
            client: Arc::clone(&self.client),
            url: format!("{}/v2.0/lbaas", endpoints.load_balancer),
        };
        let neutron = |url| Neutron {
            client: Arc::clone(&self.client),
            url: format!("{url}/v2.0"),
        };
        Ok(Apis {
            octavia,
            neutron: endpoints.network.map(neutron),
        })
    }

    async fn find(&self, request: &Request) -> Result<Option<Balancer>, ProviderError> {
        let options = Options::of(request, &self.config)?;
        let apis = self.apis().await?;
        let Some(balancer) = apis
            .octavia
            .tagged(wanted::tag(request))
            .await?
            .into_iter()
            .next()
        else {
            return Ok(None);
        };
        let floating = apis.attached(&balancer, &options).await?;
        Ok(Some(described(&balancer, floating, request, &options)))
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let options = Options::of(request, &self.config)?;
        let work = |basis| self.make_from(basis, request, &options);
        self.last.make(wanted::tag(request), work).await
    }

    async fn make_from(
        &self,
        basis: Basis<Last>,
        request: &Request,
        options: &Options,
    ) -> Result<(Last, Balancer), ProviderError> {
        let apis = self.apis().await?;
        // One with an address was made by another program, which may have left more than a load
        // balancer.
        let is_new = matches!(basis, Basis::New) && request.ingress.is_empty();
        let (found, known) = match basis {
            Basis::Last(last) => (
                Some((last.balancer, last.seen)),
                Floating::Attached(last.attached),
            ),
            Basis::New | Basis::Look => {
                let found = self.existing(&apis.octavia, request).await?;
                let known = if is_new && found.is_none() {
                    Floating::New
                } else {
                    Floating::Unknown
                };
                (found.map(|balancer| (balancer, None)), known)
            }
        };
        let (balancer, seen) = match found {
            Some((balancer, seen)) => {
                let seen = self
                    .repair(&apis.octavia, &balancer, seen, request, options)
                    .await?;
                (balancer, Some(seen))
            }
            None => self.create(&apis, request, options).await?,
        };
        let attached = apis.float(&balancer, known, request, options).await?;
        let floating = attached
            .first()
            .filter(|_| status::floats(&balancer, options))
            .map(|ip| ip.floating_ip_address);
        let described = described(&balancer, floating, request, options);
        Ok((
            Last {
                balancer,
                seen,
                attached,
            },
            described,
        ))
    }

    /// The one that there is, when it can be written to. Should there be several, because an answer
    /// was lost, the others go.
    async fn existing(
        &self,
        octavia: &Octavia,
        request: &Request,
    ) -> Result<Option<LoadBalancer>, ProviderError> {
        let mut found = octavia.tagged(wanted::tag(request)).await?.into_iter();
        let Some(first) = found.next() else {
            return Ok(None);
        };
        for other in found {
            Work {
                octavia,
                poll: &self.poll,
                id: &other.id,
            }
            .delete()
            .await?;
        }
        let work = Work {
            octavia,
            poll: &self.poll,
            id: &first.id,
        };
        let Some(balancer) = (if first.is_pending() {
            work.settled().await?
        } else {
            Some(first.clone())
        }) else {
            return Ok(None);
        };
        // One that failed before it was used is made anew by the next try. Later it may still carry
        // traffic.
        if balancer.is_failed() && request.ingress.is_empty() {
            work.delete().await?;
            return Err(failed(&balancer));
        }
        Ok(Some(balancer))
    }

    /// Make what is in it what is wanted, from what is known of that.
    async fn repair(
        &self,
        octavia: &Octavia,
        balancer: &LoadBalancer,
        seen: Option<Observed>,
        request: &Request,
        options: &Options,
    ) -> Result<Observed, ProviderError> {
        check_unchangeable(balancer, request, options)?;
        let work = Work {
            octavia,
            poll: &self.poll,
            id: &balancer.id,
        };
        let wanted = wanted::listeners(request, options, member_subnet(options, balancer))?;
        let mut seen = match seen {
            Some(seen) => seen,
            None => work.observe(wanted::tag(request)).await?,
        };
        let steps = plan::plan(&wanted, &seen);
        if steps.is_empty() && balancer.is_failed() {
            return Err(failed(balancer));
        }
        work.run(steps, &mut seen).await?;
        Ok(seen)
    }

    async fn create(
        &self,
        apis: &Apis,
        request: &Request,
        options: &Options,
    ) -> Result<(LoadBalancer, Option<Observed>), ProviderError> {
        let place = place::choose(apis.neutron.as_ref(), request, options).await?;
        let subnet = options
            .networks
            .member_subnet
            .as_ref()
            .or(place.subnet.as_ref());
        let listeners = wanted::listeners(request, options, subnet.map(String::as_str))?;
        let new = NewLoadBalancer {
            name: wanted::name(request),
            description: format!(
                "Kubernetes service {} of cluster {}",
                request.service, request.cluster
            ),
            tags: vec![wanted::tag(request).to_owned()],
            vip_address: if options.internal {
                requested_ip(request)?
            } else {
                None
            },
            vip_network_id: place.network,
            vip_subnet_id: place.subnet,
            vip_port_id: place.port,
            additional_vips: place.more,
            provider: self.config.balancers.provider.clone(),
            flavor_id: options.flavor.clone(),
            availability_zone: options.availability_zone.clone(),
            listeners: if self.config.balancers.serial {
                Vec::new()
            } else {
                listeners
            },
        };
        let (balancer, tree) = work::create(&apis.octavia, &self.poll, &new).await?;
        let mut seen = Observed::created(&new.listeners, &tree);
        if self.config.balancers.serial {
            seen = Some(
                self.repair(&apis.octavia, &balancer, seen, request, options)
                    .await?,
            );
        }
        Ok((balancer, seen))
    }

    async fn remove(&self, request: &Request) -> Result<(), ProviderError> {
        self.last
            .delete(wanted::tag(request), |basis| {
                self.remove_from(basis, request)
            })
            .await
    }

    /// Floating IPs first: they are found by the load balancer.
    async fn remove_from(
        &self,
        basis: Basis<Last>,
        request: &Request,
    ) -> Result<(), ProviderError> {
        let apis = self.apis().await?;
        let (found, known) = match basis {
            Basis::Last(last) => (vec![last.balancer], Floating::Attached(last.attached)),
            Basis::New | Basis::Look => (
                apis.octavia.tagged(wanted::tag(request)).await?,
                Floating::Unknown,
            ),
        };
        apis.sink(&found, known, request).await?;
        for balancer in &found {
            Work {
                octavia: &apis.octavia,
                poll: &self.poll,
                id: &balancer.id,
            }
            .delete()
            .await?;
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
        Abilities {
            uses_nodes: true,
            needs_health_check_port: asks_nodes,
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
        self.last.forget(wanted::tag(request));
    }
}

fn member_subnet<'a>(options: &'a Options, balancer: &'a LoadBalancer) -> Option<&'a str> {
    options
        .networks
        .member_subnet
        .as_deref()
        .or(balancer.vip_subnet_id.as_deref())
}

/// Octavia, Neutron and Keystone tell mistakes in three ways.
const DIALECT: Dialect = Dialect {
    read: |body| {
        let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let octavia = || Some((String::new(), text(&answer["faultstring"])?));
        let neutron = || {
            Some((
                text(&answer["NeutronError"]["type"])?,
                text(&answer["NeutronError"]["message"])?,
            ))
        };
        let keystone = || {
            Some((
                text(&answer["error"]["title"])?,
                text(&answer["error"]["message"])?,
            ))
        };
        octavia().or_else(neutron).or_else(keystone)
    },
    is_throttled: |_, _| false,
};

#[cfg(test)]
mod tests;
