//! Reads what is there, and does the steps of a plan.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::RwLock;

use super::api::{Api, is_in_use, is_quota};
use super::names::Names;
use super::plan::{Links, Observed, Step};
use super::resources::{Address, Firewall, ForwardingRule, HttpHealthCheck, TargetPool, name_of};
use super::wanted::{Check, InstanceRef, Wanted, refused};
use crate::providers::ProviderError;
use crate::providers::cloud::{CallError, WaitError};

/// Something that was asked for is being made; an earlier pass may have asked.
const BEING_MADE: Duration = Duration::from_secs(2);

pub struct Actor {
    pub api: Api,
    /// Whoever is about to use the shared check reads, whoever gives it back writes.
    pub shared: RwLock<()>,
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
    pub async fn observe(&self, wanted: &Wanted) -> Result<Observed, CallError> {
        let (api, names) = (&self.api, &wanted.names);
        let shares = matches!(wanted.check, Check::Shared(..));
        let owns = matches!(wanted.check, Check::Own(..));
        let requested = wanted.requested.map(|address| address.to_string());
        let (rule, address, firewall, pool, own_check, own_firewall, shared_check, shared_firewall, reserved) = tokio::try_join!(
            api.get::<ForwardingRule>(&names.balancer),
            api.get::<Address>(&names.balancer),
            api.get::<Firewall>(&names.firewall),
            api.get::<TargetPool>(&names.balancer),
            api.get::<HttpHealthCheck>(&names.balancer),
            given(owns, api.get::<Firewall>(&names.own_firewall)),
            given(shares, api.get::<HttpHealthCheck>(&names.shared_check)),
            given(shares, api.get::<Firewall>(&names.shared_firewall)),
            given(requested.is_some(), api.address_with(requested.as_deref().unwrap_or_default())),
        )?;
        let mut observed = Observed {
            rule,
            address,
            firewall,
            pool,
            own_check,
            own_firewall,
            shared_check,
            shared_firewall,
            // One of the balancer's own name is held for this pass only.
            reserved: reserved.filter(|reserved| reserved.name != names.balancer),
        };
        let attached = |pool: &TargetPool| pool.health_checks.iter().any(|link| name_of(link) == names.balancer);
        if owns && observed.pool.as_ref().is_some_and(|pool| !attached(pool)) {
            (observed.shared_check, observed.shared_firewall) =
                tokio::try_join!(api.get(&names.shared_check), api.get(&names.shared_firewall))?;
        }
        Ok(observed)
    }

    /// Steps that do not depend on each other. What was done is in `observed` also if others failed.
    pub async fn act(&self, steps: Vec<Step>, wanted: &Wanted, observed: &mut Observed) -> Result<(), WaitError> {
        let done = join_all(steps.into_iter().map(|step| self.step(step, &wanted.names))).await;
        let mut failed = None;
        for result in done {
            match result {
                Ok(step) => observed.apply(&step, wanted),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Gives back what was done, with what only the cloud knew.
    async fn step(&self, mut step: Step, names: &Names) -> Result<Step, WaitError> {
        let (api, pool) = (&self.api, &names.balancer);
        match &mut step {
            Step::InsertAddress(address) => {
                new(api.insert(address).await)?;
                *address = api.get(&address.name).await?.unwrap_or_default();
            }
            Step::DeleteAddress => api.delete::<Address>(&names.balancer).await?,
            Step::InsertFirewall(firewall) if firewall.name == names.shared_firewall => {
                exists(api.insert(firewall).await)?;
            }
            Step::InsertFirewall(firewall) => new(api.insert(firewall).await)?,
            Step::PatchFirewall(firewall) => api.patch_firewall(firewall).await?,
            Step::InsertCheck(check) if check.name == names.shared_check => exists(api.insert(check).await)?,
            Step::InsertCheck(check) => new(api.insert(check).await)?,
            Step::UpdateCheck(check) => api.update_check(check).await?,
            Step::InsertPool(pool) => new(api.insert(pool).await)?,
            Step::DeletePool => api.delete::<TargetPool>(pool).await?,
            Step::AddInstances(links) => api.add_instances(pool, links).await?,
            Step::RemoveInstances(links) => api.remove_instances(pool, links).await?,
            Step::AttachCheck(link) => api.attach_check(pool, link).await?,
            Step::DetachCheck(link) => api.detach_check(pool, link).await?,
            Step::InsertRule(rule) => new(api.insert(rule).await)?,
            Step::DeleteRule => api.delete::<ForwardingRule>(&names.balancer).await?,
            Step::DeleteOwnCheck => self.delete_own_check(names).await?,
            Step::ReleaseShared => self.release_shared(names).await?,
        }
        Ok(step)
    }

    pub async fn delete(&self, names: &Names) -> Result<(), WaitError> {
        let (api, name) = (&self.api, names.balancer.as_str());
        let first = futures_util::future::join3(
            api.delete::<ForwardingRule>(name),
            api.delete::<Firewall>(&names.firewall),
            api.delete::<Address>(name),
        );
        let (rule, firewall, address) = first.await;
        rule.and(firewall).and(address)?;
        api.delete::<TargetPool>(name).await?;
        self.delete_own_check(names).await?;
        self.release_shared(names).await
    }

    /// The check last: as long as it is there, its firewall is looked for.
    async fn delete_own_check(&self, names: &Names) -> Result<(), WaitError> {
        self.api.delete::<Firewall>(&names.own_firewall).await?;
        self.api.delete::<HttpHealthCheck>(&names.balancer).await
    }

    /// The cloud refuses while a pool uses it, which is the count of its users.
    async fn release_shared(&self, names: &Names) -> Result<(), WaitError> {
        let _alone = self.shared.write().await;
        match self.api.delete::<HttpHealthCheck>(&names.shared_check).await {
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

fn is_there(result: &Result<(), WaitError>) -> bool {
    result.as_ref().is_err_and(|error| error.call().is_some_and(CallError::is_conflict))
}

/// It was not there a moment ago: an earlier pass asked for it, and the next will see it.
fn new(result: Result<(), WaitError>) -> Result<(), WaitError> {
    if is_there(&result) {
        return Err(WaitError::Slow { after: BEING_MADE, reason: "part of it is still being made".to_owned() });
    }
    result
}

/// Another Service wants the same, and was faster.
fn exists(result: Result<(), WaitError>) -> Result<(), WaitError> {
    if is_there(&result) { Ok(()) } else { result }
}

/// What people can do something about.
pub fn explain(error: WaitError) -> ProviderError {
    match error.call() {
        Some(call) if is_quota(call) => refused("QuotaExceeded", format!("{call}: ask for a higher quota")),
        _ => error.into(),
    }
}
