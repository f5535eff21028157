//! Amazon's cloud: Network Load Balancers, or classic ones, whose targets are the instances of the
//! cluster's nodes (docs/aws.md, design/0020).
//!
//! Everything is found by names that follow from the Service's uid, and is ours only if it has the
//! cluster's tag. What the last call left is remembered, so that a change costs the calls that make
//! it and no others. The security group is made first and deleted last, and its name can be had
//! only once: the call that gets it knows that nothing else is there yet.

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

use futures_util::{FutureExt, TryFutureExt};

use annotations::Kind;
use surroundings::Surroundings;
use wanted::{Names, Wanted, refused};

use super::cloud::{Basis, Remembered};
use super::{Abilities, Answer, Balancer, Host, Ingress, IpMode, Provider, ProviderError, Request};

pub use config::{Config, Endpoint};
pub(crate) use description::DESCRIPTION;
pub use start::Parts;

/// The provider.
pub struct Aws {
    around: Surroundings,
    /// By the name of the balancer.
    last: Remembered<Last>,
}

/// Everything of a Service.
#[derive(Clone, Debug)]
enum Last {
    Network(network::Observed),
    Classic(classic::Observed),
}

impl Last {
    fn kind(&self) -> Kind {
        match self {
            Self::Network(_) => Kind::Network,
            Self::Classic(_) => Kind::Classic,
        }
    }
}

/// A balancer of either kind, or that there is none.
enum Found {
    Network(Option<network::Balancer>),
    Classic(Option<classic::Balancer>),
}

impl Found {
    fn kind(&self) -> Kind {
        match self {
            Self::Network(_) => Kind::Network,
            Self::Classic(_) => Kind::Classic,
        }
    }

    fn is_there(&self) -> bool {
        matches!(self, Self::Network(Some(_)) | Self::Classic(Some(_)))
    }
}

impl Aws {
    fn names(&self, request: &Request) -> Names {
        Names::of(request, &self.around.cluster)
    }

    async fn look(&self, kind: Kind, names: &Names) -> Result<Found, ProviderError> {
        Ok(match kind {
            Kind::Network => {
                Found::Network(self.around.api.network.balancer(&names.balancer).await?)
            }
            Kind::Classic => {
                Found::Classic(self.around.api.classic.classic(&names.balancer).await?)
            }
        })
    }

    /// Finds the load balancer of this Service: of the desired kind, unless there is one of the
    /// other.
    async fn find(&self, desired: Option<Kind>, names: &Names) -> Result<Found, ProviderError> {
        let kind = desired.unwrap_or(Kind::Network);
        let found = self.look(kind, names).await?;
        if found.is_there() {
            return Ok(found);
        }
        let other = self.look(kind.other(), names).await?;
        Ok(if other.is_there() { other } else { found })
    }

    async fn find_to_describe(&self, request: &Request) -> Result<Option<Balancer>, ProviderError> {
        Ok(
            match self.find(Kind::of(request)?, &self.names(request)).await? {
                Found::Network(balancer) => balancer
                    .map(|balancer| told(&balancer.host, &balancer.state))
                    .transpose()?,
                Found::Classic(balancer) => balancer
                    .map(|balancer| told(&balancer.host, "active"))
                    .transpose()?,
            },
        )
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let (names, desired) = (self.names(request), Kind::of(request)?);
        let work = |basis| self.make_from(basis, request, desired, &names);
        self.last.make(&names.balancer, work).await
    }

    async fn make_from(
        &self,
        basis: Basis<Last>,
        request: &Request,
        desired: Option<Kind>,
        names: &Names,
    ) -> Result<(Last, Balancer), ProviderError> {
        let (around, fits) = (&self.around, |kind| {
            desired.is_none_or(|desired| desired == kind)
        });
        let wanted = |kind: Kind| match fits(kind) {
            true => Wanted::of(request, kind, names),
            false => refused(
                "TypeChanged",
                format!(
                    "there is a {} load balancer: create the Service anew for another",
                    kind.word()
                ),
            ),
        };
        let (last, wanted) = match basis {
            Basis::Last(last) => {
                let wanted = wanted(last.kind())?;
                (self.settled(last, names).await?, wanted)
            }
            // One with an address was made by another program, perhaps in another way.
            Basis::New if request.ingress.is_empty() => {
                let wanted = wanted(desired.unwrap_or(Kind::Network))?;
                let last = match wanted.kind {
                    Kind::Network => {
                        Last::Network(network::act::begin(around, names, &wanted).await?)
                    }
                    Kind::Classic => {
                        Last::Classic(classic::act::begin(around, names, &wanted).await?)
                    }
                };
                (last, wanted)
            }
            Basis::New | Basis::Look => {
                let found = self.find(desired, names).await?;
                let wanted = wanted(found.kind())?;
                let last = match found {
                    Found::Network(it) => {
                        Last::Network(network::act::observe(around, names, it, &wanted).await?)
                    }
                    Found::Classic(it) => {
                        Last::Classic(classic::act::observe(around, names, it, &wanted).await?)
                    }
                };
                (last, wanted)
            }
        };
        self.change(last, &wanted).await
    }

    /// Looks again at a balancer that was being provisioned.
    async fn settled(&self, mut last: Last, names: &Names) -> Result<Last, ProviderError> {
        if let Last::Network(network::Observed {
            balancer: Some(balancer),
            ..
        }) = &mut last
            && !is_ready(&balancer.state)
        {
            let gone =
                || ProviderError::Failed(format!("the load balancer {} is gone", names.balancer));
            balancer.state = self
                .around
                .api
                .network
                .balancer(&names.balancer)
                .await?
                .ok_or_else(gone)?
                .state;
        }
        Ok(last)
    }

    async fn change(&self, last: Last, wanted: &Wanted) -> Result<(Last, Balancer), ProviderError> {
        let around = &self.around;
        match last {
            Last::Network(seen) => {
                let steps = network::plan(wanted, &seen)?;
                let seen = network::act::Actor { around, seen }.run(steps).await?;
                let balancer = seen.balancer.clone().unwrap_or_default();
                Ok((Last::Network(seen), told(&balancer.host, &balancer.state)?))
            }
            Last::Classic(seen) => {
                let steps = classic::plan(wanted, &seen)?;
                let seen = classic::act::Actor {
                    around,
                    name: &wanted.name,
                    seen,
                }
                .run(steps)
                .await?;
                let balancer = seen.balancer.clone().unwrap_or_default();
                Ok((Last::Classic(seen), told(&balancer.host, "active")?))
            }
        }
    }

    async fn remove(&self, request: &Request) -> Result<(), ProviderError> {
        let names = self.names(request);
        self.last
            .delete(&names.balancer, |basis| self.remove_from(basis, &names))
            .await
    }

    async fn remove_from(&self, basis: Basis<Last>, names: &Names) -> Result<(), ProviderError> {
        let around = &self.around;
        let seen = match basis {
            Basis::Last(Last::Network(seen)) => seen,
            Basis::Last(Last::Classic(seen)) => return self.remove_classic(seen, names).await,
            Basis::New | Basis::Look => {
                self.remove_classic(classic::act::observe_to_remove(around, names).await?, names)
                    .await?;
                let balancer = around.api.network.balancer(&names.balancer).await?;
                network::act::observe_to_remove(around, names, balancer).await?
            }
        };
        let steps = network::removal(&seen);
        network::act::Actor { around, seen }
            .run(steps)
            .await
            .map(drop)
    }

    async fn remove_classic(
        &self,
        seen: classic::Observed,
        names: &Names,
    ) -> Result<(), ProviderError> {
        let steps = classic::removal(&seen);
        classic::act::Actor {
            around: &self.around,
            name: &names.balancer,
            seen,
        }
        .run(steps)
        .await
        .map(drop)
    }
}

fn is_ready(state: &str) -> bool {
    ["active", "active_impaired"].contains(&state)
}

/// `state` in the vendor's words.
fn told(host: &str, state: &str) -> Result<Balancer, ProviderError> {
    let pending = match state {
        ready if is_ready(ready) => None,
        "failed" => {
            return Err(ProviderError::Failed(format!(
                "the cloud could not make the load balancer {host}"
            )));
        }
        _ => Some("the load balancer is being provisioned".to_owned()),
    };
    let ingress = Ingress {
        host: Host::Name(host.to_owned()),
        mode: IpMode::Vip,
    };
    Ok(Balancer {
        ingress: vec![ingress],
        pending,
    })
}

impl Provider for Aws {
    fn name(&self) -> &str {
        DESCRIPTION.name
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            uses_nodes: true,
            needs_health_check_port: true,
            ..Abilities::default()
        }
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        self.find_to_describe(request).boxed()
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        self.make(request).boxed()
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.make(request).map_ok(drop).boxed()
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.remove(request).boxed()
    }

    fn forget(&self, request: &Request) {
        self.last.forget(&request.balancer_name);
    }
}
