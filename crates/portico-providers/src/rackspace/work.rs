//! Does what plans say. A load balancer takes one write at a time: before the next it is waited
//! for.

use futures_util::future::try_join_all;
use tracing::info;

use super::api::{Api, BATCH, LoadBalancer, NewVirtualIp, is_busy};
use super::plan::{Plan, Step};
use super::wanted::{is_owned, refused};
use crate::ProviderError;
use crate::cloud::{CallError, Poll, Progress, wait_for};

/// How often a write is tried that finds its load balancer busy with another's.
const TRIES: usize = 3;

/// The load balancers of a Service, and calls about them.
pub(super) struct Work<'a> {
    pub api: Api,
    pub poll: &'a Poll,
    /// What they are found by.
    pub name: &'a str,
}

impl Work<'_> {
    pub(super) fn own<'b>(
        &self,
        all: &'b [LoadBalancer],
    ) -> impl Iterator<Item = &'b LoadBalancer> {
        all.iter()
            .filter(|balancer| is_owned(balancer, self.name) && !balancer.is_leaving())
    }

    /// All of the account, when those of the Service can be written to.
    pub(super) async fn settled(&self) -> Result<Vec<LoadBalancer>, ProviderError> {
        let settled = wait_for(self.poll, || async {
            let all = self.api.list().await?;
            let pending = self
                .own(&all)
                .find(|balancer| balancer.is_pending())
                .map(LoadBalancer::state);
            Ok(pending.map_or(Progress::Done(all), Progress::Pending))
        })
        .await?;
        Ok(settled)
    }

    /// The load balancers of the Service that work, with details. One that failed before it was
    /// used is deleted; later it may still carry traffic.
    pub(super) async fn working(
        &self,
        all: &[LoadBalancer],
        in_use: bool,
    ) -> Result<Vec<LoadBalancer>, ProviderError> {
        let failed: Vec<&LoadBalancer> = self
            .own(all)
            .filter(|balancer| balancer.status != "ACTIVE")
            .collect();
        if let Some(failed) = failed
            .iter()
            .find(|failed| in_use || failed.status != "ERROR")
        {
            return Err(failed_as(failed));
        }
        self.delete(&failed.iter().map(|failed| failed.id).collect::<Vec<u64>>())
            .await?;
        let works = self.own(all).filter(|balancer| balancer.status == "ACTIVE");
        let found = try_join_all(works.map(|balancer| self.api.get(balancer.id))).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// What there is afterwards. All that is created is ready then; what is changed works, and may
    /// still be busy.
    pub(super) async fn run(
        &self,
        plan: Plan,
        mut own: Vec<LoadBalancer>,
    ) -> Result<Vec<LoadBalancer>, ProviderError> {
        let (mut addresses, mut last) = (plan.addresses, None);
        let known: Vec<u64> = own.iter().map(|balancer| balancer.id).collect();
        for step in plan.steps {
            if last.is_some() && last == step.target() {
                self.pause().await;
                self.settled().await?;
            }
            last = step.target();
            info!(name = self.name, ?step, "changing load balancers");
            self.step(step, &mut addresses, &mut own).await?;
        }
        let created: Vec<u64> = own
            .iter()
            .map(|balancer| balancer.id)
            .filter(|id| !known.contains(id))
            .collect();
        if !created.is_empty() {
            self.pause().await;
            if let Some(failed) = self
                .looked(&created)
                .await?
                .iter()
                .find(|balancer| balancer.status != "ACTIVE")
            {
                return Err(failed_as(failed));
            }
        }
        Ok(own)
    }

    /// Waits for the load balancers that were just created. Each is read by itself: a list is a
    /// call for each hundred in the account.
    async fn looked(&self, created: &[u64]) -> Result<Vec<LoadBalancer>, ProviderError> {
        let [id] = created else {
            return Ok(self.own(&self.settled().await?).cloned().collect());
        };
        let found = wait_for(self.poll, || async {
            let found = self.api.get(*id).await?;
            let pending = found
                .as_ref()
                .filter(|balancer| balancer.is_pending())
                .map(LoadBalancer::state);
            Ok(pending.map_or(Progress::Done(found), Progress::Pending))
        })
        .await?;
        Ok(found.into_iter().collect())
    }

    async fn step(
        &self,
        step: Step,
        addresses: &mut Vec<NewVirtualIp>,
        own: &mut Vec<LoadBalancer>,
    ) -> Result<(), ProviderError> {
        match step {
            Step::Create(mut new) => {
                new.virtual_ips = addresses.clone();
                let made = self.api.create(&new).await.map_err(refusal)?;
                *addresses = made
                    .virtual_ips
                    .iter()
                    .map(|vip| NewVirtualIp::Shared { id: vip.id })
                    .collect();
                own.push(made);
            }
            Step::Delete(ids) => {
                self.delete(&ids).await?;
                own.retain(|balancer| !ids.contains(&balancer.id));
            }
            step => {
                let target = step.target();
                if let Some(balancer) = own.iter_mut().find(|balancer| Some(balancer.id) == target)
                {
                    self.change(step, balancer).await?;
                }
            }
        }
        Ok(())
    }

    /// Makes a change in the cloud, and then in what is remembered.
    async fn change(&self, step: Step, balancer: &mut LoadBalancer) -> Result<(), ProviderError> {
        let api = &self.api;
        match step {
            Step::Create(_) | Step::Delete(_) => {}
            Step::Update(id, settings) => {
                self.write(|| api.update(id, &settings)).await?;
                (balancer.algorithm, balancer.timeout) = (settings.algorithm, settings.timeout);
            }
            Step::SetMonitor(id, monitor) => {
                self.write(|| api.set_monitor(id, &monitor)).await?;
                balancer.health_monitor = Some(monitor);
            }
            Step::SetPersistence(id, wanted) => {
                self.write(|| api.set_persistence(id, wanted.as_ref()))
                    .await?;
                balancer.session_persistence = wanted;
            }
            Step::AddNodes(id, nodes) => balancer
                .nodes
                .extend(self.write(|| api.add_nodes(id, &nodes)).await?),
            Step::RemoveNodes(id, nodes) => {
                self.write(|| api.remove_nodes(id, &nodes)).await?;
                balancer.nodes.retain(|node| !nodes.contains(&node.id));
            }
            Step::AddItems(id, items) => {
                self.write(|| api.add_items(id, &items)).await?;
                // The answer does not say what their ids are.
                balancer.access_list = api
                    .get(id)
                    .await?
                    .map(|shown| shown.access_list)
                    .unwrap_or_default();
            }
            Step::RemoveItems(id, items) => {
                self.write(|| api.remove_items(id, &items)).await?;
                balancer
                    .access_list
                    .retain(|item| !items.is_empty() && !items.contains(&item.id));
            }
        }
        Ok(())
    }

    /// They are gone soon after this returns, and cannot come back.
    pub(super) async fn delete(&self, ids: &[u64]) -> Result<(), ProviderError> {
        for ids in ids.chunks(BATCH) {
            info!(name = self.name, ?ids, "deleting load balancers");
            self.write(|| self.api.delete(ids)).await?;
        }
        Ok(())
    }

    /// The last change, or one of another client, may not be over yet: then it is waited for.
    async fn write<T, F>(&self, send: impl Fn() -> F) -> Result<T, ProviderError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        for _ in 1..TRIES {
            match send().await {
                Err(error) if is_busy(&error) => _ = self.settled().await?,
                done => return done.map_err(refusal),
            }
        }
        send().await.map_err(refusal)
    }

    /// A look right after a write sees it pending, always.
    async fn pause(&self) {
        if !self.poll.first.is_zero() {
            tokio::time::sleep(self.poll.first).await;
        }
    }
}

fn failed_as(balancer: &LoadBalancer) -> ProviderError {
    ProviderError::Failed(format!(
        "{}: ask the vendor's support what it is about",
        balancer.state()
    ))
}

/// The error for an answer that would not change by itself; an operator has to act.
fn refusal(error: CallError) -> ProviderError {
    let Some(status) = error
        .status()
        .filter(|status| !status.throttled && !is_busy(&error))
    else {
        return error.into();
    };
    let reason = match status.status.as_u16() {
        // What is gone already needs no action.
        400 if !status.message.contains("could not be found") => "Rejected",
        403 => "Forbidden",
        413 => "QuotaExceeded",
        _ => return error.into(),
    };
    refused(reason, error.to_string())
}
