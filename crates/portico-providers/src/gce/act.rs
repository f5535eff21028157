//! Reads what is there, and does the steps of a plan.

use std::time::Duration;

use futures_util::future::{join_all, join3};

use super::api::{Api, is_in_use, is_quota};
use super::names::Names;
use super::plan::{Links, Observed, Step};
use super::resources::{Address, Firewall, ForwardingRule, HttpHealthCheck, TargetPool};
use super::shared::{Pair, Shared};
use super::wanted::{Check, InstanceRef, Wanted, refused};
use crate::ProviderError;
use crate::cloud::{CallError, WaitError};

/// Something that was asked for is being made; an earlier pass may have asked.
const BEING_MADE: Duration = Duration::from_secs(2);

pub(super) struct Actor {
    pub api: Api,
    pub shared: Shared,
}

impl Links for Api {
    fn pool(&self, name: &str) -> String {
        self.url::<TargetPool>(name)
    }

    fn check(&self, name: &str) -> String {
        self.url::<HttpHealthCheck>(name)
    }

    fn instance(&self, instance: &InstanceRef) -> String {
        instance.link(&self.place)
    }
}

impl Actor {
    /// What a plan has to know, and no more.
    pub(super) async fn observe(&self, wanted: &Wanted) -> Result<Observed, CallError> {
        let (api, names) = (&self.api, &wanted.names);
        let owns = matches!(wanted.check, Check::Own(..));
        let (rule, address, firewall, pool, own_check, own_firewall) = tokio::try_join!(
            api.get(&names.balancer),
            api.get(&names.balancer),
            api.get(&names.firewall),
            api.get(&names.balancer),
            api.get(&names.balancer),
            given(owns, api.get(&names.own_firewall)),
        )?;
        let own = Observed {
            rule,
            address,
            firewall,
            pool,
            own_check,
            own_firewall,
            ..Observed::default()
        };
        // An earlier pass may have made the shared one for this Service.
        let gives_back = match wanted.check {
            Check::Own(..) => !own.has_check(&names.balancer),
            Check::Without => true,
            Check::Skip | Check::Shared(..) => false,
        };
        self.complete(own, wanted, gives_back).await
    }

    /// What is known of the Service's own, with what is not its own.
    pub(super) async fn recall(
        &self,
        own: Observed,
        wanted: &Wanted,
    ) -> Result<Observed, CallError> {
        let leaves = matches!(wanted.check, Check::Own(..) | Check::Without);
        let gives_back = leaves && own.has_check(&wanted.names.shared_check);
        self.complete(own, wanted, gives_back).await
    }

    async fn complete(
        &self,
        own: Observed,
        wanted: &Wanted,
        gives_back: bool,
    ) -> Result<Observed, CallError> {
        let Pair { check, firewall } = match matches!(wanted.check, Check::Shared(..)) || gives_back
        {
            true => self.shared_pair(&wanted.names).await?,
            false => Pair::default(),
        };
        let requested = wanted.requested.map(|address| address.to_string());
        let reserved = match (requested, own.reserved) {
            (Some(requested), Some(known)) if known.address == requested => Some(known),
            (Some(requested), _) => self.api.address_with(&requested).await?,
            (None, _) => None,
        };
        // One of the balancer's own name is held for this pass only.
        let reserved = reserved.filter(|reserved| reserved.name != wanted.names.balancer);
        Ok(Observed {
            shared_check: check,
            shared_firewall: firewall,
            reserved,
            ..own
        })
    }

    async fn shared_pair(&self, names: &Names) -> Result<Pair, CallError> {
        if let Some(pair) = self.shared.pair() {
            return Ok(pair);
        }
        // At a start all Services ask for it at once, and it is read once.
        let _looking = self.shared.looking().await;
        if let Some(pair) = self.shared.pair() {
            return Ok(pair);
        }
        let (check, firewall) = tokio::try_join!(
            self.api.get(&names.shared_check),
            self.api.get(&names.shared_firewall)
        )?;
        let pair = Pair { check, firewall };
        self.shared.saw(pair.clone());
        Ok(pair)
    }

    /// Steps that do not depend on each other. What was done is in `observed` also if others
    /// failed.
    pub(super) async fn act(
        &self,
        steps: Vec<Step>,
        names: &Names,
        observed: &mut Observed,
    ) -> Result<(), WaitError> {
        let done = join_all(steps.into_iter().map(|step| self.step(step, names))).await;
        let mut failed = None;
        for result in done {
            match result {
                Ok(step) => observed.apply(&step, names),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Gives back what was done, with what only the cloud knew.
    async fn step(&self, mut step: Step, names: &Names) -> Result<Step, WaitError> {
        let (api, pool) = (&self.api, &names.balancer);
        match &mut step {
            Step::InsertAddress(address) => api.insert(address).await?,
            Step::DeleteAddress => api.delete::<Address>(&names.balancer).await?,
            Step::InsertFirewall(firewall) if firewall.name == names.shared_firewall => {
                exists(api.insert(firewall).await)?;
                self.shared
                    .changed(|pair| pair.firewall = Some(firewall.clone()));
            }
            Step::InsertFirewall(firewall) => api.insert(firewall).await?,
            Step::PatchFirewall(firewall) => {
                api.patch_firewall(firewall).await?;
                if firewall.name == names.shared_firewall {
                    self.shared
                        .changed(|pair| pair.firewall = Some(firewall.clone()));
                }
            }
            Step::InsertCheck(check) if check.name == names.shared_check => {
                exists(api.insert(check).await)?;
                self.shared.changed(|pair| pair.check = Some(check.clone()));
            }
            Step::InsertCheck(check) => api.insert(check).await?,
            Step::UpdateCheck(check) => {
                api.update_check(check).await?;
                if check.name == names.shared_check {
                    self.shared.changed(|pair| pair.check = Some(check.clone()));
                }
            }
            Step::InsertPool(pool) => api.insert(pool).await?,
            Step::DeletePool => api.delete::<TargetPool>(pool).await?,
            Step::AddInstances(links) => api.add_instances(pool, links).await?,
            Step::RemoveInstances(links) => api.remove_instances(pool, links).await?,
            Step::AttachCheck(link) => api.attach_check(pool, link).await?,
            Step::DetachCheck(link) => api.detach_check(pool, link).await?,
            Step::InsertRule(rule) => {
                api.insert(rule).await?;
                // One without an address got one.
                if rule.address.is_empty() {
                    *rule = api.get(&rule.name).await?.unwrap_or_default();
                }
            }
            Step::DeleteFirewall => api.delete::<Firewall>(&names.firewall).await?,
            Step::DeleteRule => api.delete::<ForwardingRule>(&names.balancer).await?,
            Step::DeleteOwnCheck => self.delete_own_check(names).await?,
            Step::ReleaseShared => self.release_shared(names).await?,
        }
        Ok(step)
    }

    /// Everything, wherever it came from. The pool goes last of what is the Service's own
    /// (design/0019).
    pub(super) async fn delete_all(&self, names: &Names) -> Result<(), WaitError> {
        let (api, name) = (&self.api, names.balancer.as_str());
        let pool: Option<TargetPool> = api.get(name).await?;
        let first = join3(
            api.delete::<ForwardingRule>(name),
            api.delete::<Firewall>(&names.firewall),
            api.delete::<Address>(name),
        );
        let (rule, firewall, address) = first.await;
        rule.and(firewall).and(address)?;
        let observed = Observed {
            pool,
            ..Observed::default()
        };
        if observed.has_check(name) {
            api.detach_check(name, &api.check(name)).await?;
        }
        self.delete_own_check(names).await?;
        api.delete::<TargetPool>(name).await?;
        self.release_shared(names).await
    }

    /// The check last: as long as it is there, its firewall is looked for.
    async fn delete_own_check(&self, names: &Names) -> Result<(), WaitError> {
        self.api.delete::<Firewall>(&names.own_firewall).await?;
        self.api.delete::<HttpHealthCheck>(&names.balancer).await
    }

    /// The cloud refuses while a pool uses it, which is the count of its users. It is not asked
    /// where one is known.
    pub(super) async fn release_shared(&self, names: &Names) -> Result<(), WaitError> {
        let _alone = self.shared.alone().await;
        if !self.shared.leave(&names.balancer) {
            return Ok(());
        }
        self.shared.forget();
        match self
            .api
            .delete::<HttpHealthCheck>(&names.shared_check)
            .await
        {
            Ok(()) => self.api.delete::<Firewall>(&names.shared_firewall).await,
            Err(error) if error.call().is_some_and(is_in_use) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

async fn given<T>(
    wanted: bool,
    read: impl Future<Output = Result<Option<T>, CallError>>,
) -> Result<Option<T>, CallError> {
    if wanted { read.await } else { Ok(None) }
}

fn is_taken(error: &WaitError) -> bool {
    error.call().is_some_and(CallError::is_conflict)
}

/// Another Service wants the same, and was faster.
fn exists(result: Result<(), WaitError>) -> Result<(), WaitError> {
    match result {
        Err(error) if is_taken(&error) => Ok(()),
        result => result,
    }
}

/// The error for a resource that was not there a moment ago and is being made by an earlier pass;
/// the next call will see it.
pub(super) fn being_made(error: WaitError) -> WaitError {
    match is_taken(&error) {
        true => WaitError::Slow {
            after: BEING_MADE,
            reason: "part of it is still being made".to_owned(),
        },
        false => error,
    }
}

/// What people can do something about.
pub(super) fn explain(error: WaitError) -> ProviderError {
    match error.call() {
        Some(call) if is_quota(call) => {
            refused("QuotaExceeded", format!("{call}: ask for a higher quota"))
        }
        _ => error.into(),
    }
}
