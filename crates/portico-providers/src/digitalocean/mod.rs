//! Load balancers of DigitalOcean.
//!
//! One resource makes up a load balancer: rules, health check, firewall and droplets are in it, and
//! one write replaces all of them. It belongs to the Service whose uid its name ends with. What was
//! read or written last is remembered, so that a change is one write (design/0022).
//!
//! - `config`: the API's address, and the token.
//! - `api`: the cloud's load balancer, and calls.
//! - `options`, `wanted`: what a Service says, what follows from it, and what a load balancer has
//!   to become. Pure.

mod api;
mod config;
mod description;
mod options;
mod wanted;

use std::sync::Arc;

use tracing::info;

use self::api::{Api, DIALECT, LoadBalancer, Spec, URL};
pub use self::config::Config;
use self::options::{Certificate, Options, is_disowned};
use self::wanted::{Wanted, droplets, is_ours};
use super::cloud::{
    Authorize, Basis, CallError, CallMetrics, Client, Pace, Remembered, Setup, Transport, refused,
};
use super::{Abilities, Answer, Balancer, Provider, ProviderError, Request};
pub(crate) use description::DESCRIPTION;

const NAME: &str = "digitalocean";

/// What it is made of beside its configuration.
pub struct Parts {
    /// Sends requests.
    pub transport: Arc<dyn Transport>,
    /// Adds credentials to them.
    pub authorize: Arc<dyn Authorize>,
    /// Where load balancers are.
    pub region: String,
    /// How often calls are made and repeated.
    pub pace: Pace,
    /// Where calls are counted.
    pub metrics: CallMetrics,
}

/// The provider `digitalocean`.
pub struct DigitalOcean {
    api: Api,
    /// Where new load balancers are, if not in the region's default one.
    vpc: Option<String>,
    last: Remembered<LoadBalancer>,
}

impl DigitalOcean {
    /// A provider on this cloud.
    pub fn new(config: Config, parts: Parts) -> Self {
        let Parts {
            transport,
            authorize,
            region,
            pace,
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
        let api = Api {
            client,
            url: config.api_url.unwrap_or_else(|| URL.to_owned()),
            region,
        };
        Self {
            api,
            vpc: config.vpc,
            last: Remembered::default(),
        }
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let wanted = self.wanted(request).await?;
        self.last
            .make(&request.balancer_name, |basis| {
                self.bring_about(request, &wanted, basis)
            })
            .await
    }

    /// A write says everything, so what was there before need not be read again. One that is not
    /// ready is looked at.
    async fn bring_about(
        &self,
        request: &Request,
        wanted: &Wanted,
        basis: Basis<LoadBalancer>,
    ) -> Result<(LoadBalancer, Balancer), ProviderError> {
        let looks = matches!(basis, Basis::Look);
        let found = match basis {
            Basis::Last(last)
                if last.is_known() && (last.is_ready() || wanted.change(&last)?.is_some()) =>
            {
                Some(last)
            }
            Basis::Last(last) => Some(self.again(&last).await?),
            Basis::New | Basis::Look => self.only(request).await?,
        };
        let now = match found {
            None => self.create(&wanted.made()?).await?,
            Some(found) => match wanted.change(&found)? {
                Some(spec) => self.replace(&found, &spec).await?,
                None => found,
            },
        };
        if now.status == "errored" {
            // One that failed before it was used is made anew by the next try. Later it may still
            // carry traffic. (A first try is followed by a second one with a look, which would make
            // it anew at once and for ever.)
            if looks && request.ingress.is_empty() {
                self.api.delete(&now.id).await?;
            }
            return Err(ProviderError::Failed(format!(
                "{now} is errored: the cloud's control panel may tell why"
            )));
        }
        let status = wanted.status(&now);
        Ok((now, status))
    }

    async fn move_nodes(
        &self,
        request: &Request,
        basis: Basis<LoadBalancer>,
    ) -> Result<(LoadBalancer, ()), ProviderError> {
        let found = match basis {
            Basis::Last(last) if last.is_known() => last,
            Basis::Last(last) => self.again(&last).await?,
            Basis::New | Basis::Look => self.only(request).await?.ok_or_else(gone)?,
        };
        let spec = Spec {
            droplet_ids: droplets(request)?,
            ..found.spec.clone()
        };
        if spec == found.spec {
            return Ok((found, ()));
        }
        Ok((self.replace(&found, &spec).await?, ()))
    }

    async fn remove(
        &self,
        request: &Request,
        basis: Basis<LoadBalancer>,
    ) -> Result<(), ProviderError> {
        let found = match basis {
            Basis::Last(last) => vec![last],
            Basis::New | Basis::Look => self.api.balancers(|name| is_ours(name, request)).await?,
        };
        for balancer in found {
            info!(%balancer, "deleting a load balancer");
            self.api.delete(&balancer.id).await?;
        }
        Ok(())
    }

    /// Finds the load balancer. One that another program changed counts as pending, since it is
    /// corrected next.
    async fn find(&self, request: &Request) -> Result<Option<Balancer>, ProviderError> {
        let known = self.last.last(&request.balancer_name);
        let found = match known {
            Some(last) => self.api.balancer(&last.id).await?,
            None => self
                .api
                .balancers(|name| is_ours(name, request))
                .await?
                .into_iter()
                .next(),
        };
        let Some(found) = found else { return Ok(None) };
        let mut wanted = self.wanted(request).await?;
        wanted.droplets = found.spec.droplet_ids.clone();
        let mut balancer = wanted.status(&found);
        if wanted.change(&found)?.is_some() {
            balancer
                .pending
                .get_or_insert_with(|| format!("{found} was changed by somebody else"));
        }
        Ok(Some(balancer))
    }

    async fn again(&self, last: &LoadBalancer) -> Result<LoadBalancer, ProviderError> {
        self.api.balancer(&last.id).await?.ok_or_else(gone)
    }

    /// The one that there is. Should there be several, because an answer was lost, the others go.
    async fn only(&self, request: &Request) -> Result<Option<LoadBalancer>, CallError> {
        let mut found = self
            .api
            .balancers(|name| is_ours(name, request))
            .await?
            .into_iter();
        let first = found.next();
        for other in found {
            info!(balancer = %other, "deleting a load balancer that is there twice");
            self.api.delete(&other.id).await?;
        }
        Ok(first)
    }

    async fn create(&self, spec: &Spec) -> Result<LoadBalancer, ProviderError> {
        info!(name = spec.name, "creating a load balancer");
        self.api.create(spec).await.map_err(refusal)
    }

    async fn replace(
        &self,
        balancer: &LoadBalancer,
        spec: &Spec,
    ) -> Result<LoadBalancer, ProviderError> {
        info!(%balancer, "changing a load balancer");
        self.api.replace(&balancer.id, spec).await.map_err(refusal)
    }

    async fn wanted(&self, request: &Request) -> Result<Wanted, ProviderError> {
        let options = Options::of(request)?;
        let certificate = match &options.certificate {
            None => None,
            Some(Certificate::Id(id)) => Some(id.clone()),
            Some(Certificate::Name(name)) => {
                let id = self.api.certificate(name).await?;
                let message = || {
                    format!(
                        "there is no certificate {name:?}: see `doctl compute certificate list`"
                    )
                };
                Some(id.ok_or_else(|| refused("CertificateNotFound", message()))?)
            }
        };
        Wanted::new(request, options, certificate, self.vpc.as_deref())
    }
}

impl Provider for DigitalOcean {
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
        Box::pin(self.find(request))
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        Box::pin(self.make(request))
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        Box::pin(async {
            if is_disowned(request)? {
                return Err(ProviderError::Elsewhere);
            }
            self.last
                .make(&request.balancer_name, |basis| {
                    self.move_nodes(request, basis)
                })
                .await
        })
    }

    /// What is disowned belongs to another.
    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        Box::pin(async {
            if is_disowned(request)? {
                return Err(ProviderError::Elsewhere);
            }
            self.last
                .delete(&request.balancer_name, |basis| self.remove(request, basis))
                .await
        })
    }

    /// Its id is still good for one read, where a search is one for every 200 load balancers of the
    /// account.
    fn forget(&self, request: &Request) {
        self.last
            .change(&request.balancer_name, LoadBalancer::distrust);
    }
}

fn gone() -> ProviderError {
    ProviderError::Failed("the load balancer is gone".to_owned())
}

/// The error for an answer that would not change by itself; an operator has to act.
fn refusal(error: CallError) -> ProviderError {
    let Some(status) = error.status() else {
        return error.into();
    };
    let reason = match status.status.as_u16() {
        403 => "Forbidden",
        422 if status.message.contains("limit") => "QuotaExceeded",
        400 | 422 => "Rejected",
        _ => return error.into(),
    };
    refused(reason, error.to_string())
}

#[cfg(test)]
mod tests;
