//! Does what plans say, one write at a time: after each, the load balancer is waited for.

use futures_util::future::{try_join, try_join_all};
use serde_json::{Value, json};
use tracing::info;

use super::octavia::{
    LISTENER, LinkedPool, LoadBalancer, MONITOR, NewLoadBalancer, Octavia, POOL, Tree,
};
use super::plan::{Observed, ObservedPool, Step};
use crate::ProviderError;
use crate::cloud::{CallError, Poll, Progress, wait_for};

/// How often a write is tried that finds the load balancer busy with another's.
const TRIES: usize = 3;

/// A load balancer, and calls about it.
pub(super) struct Work<'a> {
    pub octavia: &'a Octavia,
    pub poll: &'a Poll,
    pub id: &'a str,
}

impl Work<'_> {
    /// Waits until it can be written to; `None` if it went away.
    pub(super) async fn settled(&self) -> Result<Option<LoadBalancer>, ProviderError> {
        let settled = wait_for(self.poll, || async {
            Ok(match self.octavia.balancer(self.id).await? {
                Some(balancer) if balancer.is_pending() => Progress::Pending(balancer.state()),
                balancer => Progress::Done(balancer),
            })
        })
        .await?;
        Ok(settled)
    }

    /// What it has for a Service. Its members are read only for what is asked for.
    pub(super) async fn observe(&self, tag: &str) -> Result<Observed, CallError> {
        let pools = self.octavia.pools(self.id, tag);
        let parts = try_join(
            self.octavia.listeners(self.id, tag),
            self.octavia.monitors(tag),
        );
        let ((listeners, monitors), pools) = try_join(parts, pools).await?;
        let with_monitor = |pool: LinkedPool, members| {
            let monitor = monitors
                .iter()
                .find(|monitor| Some(&monitor.id) == pool.healthmonitor_id.as_ref())
                .cloned();
            ObservedPool {
                pool: pool.pool,
                members,
                monitor,
            }
        };
        let members =
            try_join_all(pools.iter().map(|pool| self.octavia.members(&pool.pool.id))).await?;
        let pools = pools
            .into_iter()
            .zip(members)
            .map(|(pool, members)| with_monitor(pool, members))
            .collect();
        Ok(Observed { listeners, pools })
    }

    /// Does steps, and notes in `seen` what there is after each.
    pub(super) async fn run(
        &self,
        steps: Vec<Step>,
        seen: &mut Observed,
    ) -> Result<(), ProviderError> {
        for step in steps {
            info!(balancer = self.id, ?step, "changing a load balancer");
            let created = self.write(&step, seen).await?;
            seen.done(&step, created);
        }
        Ok(())
    }

    /// Another Service or an operator may write to it too: then it is waited for again.
    async fn write(&self, step: &Step, seen: &Observed) -> Result<String, ProviderError> {
        let mut tried = 1;
        let created = loop {
            match self.send(step, seen).await {
                Err(error) if error.is_conflict() && tried < TRIES => tried += 1,
                done => break done?,
            }
            self.settled().await?;
        };
        // A look right after a write sees it pending, always.
        if !self.poll.first.is_zero() {
            tokio::time::sleep(self.poll.first).await;
        }
        match self.settled().await? {
            Some(balancer) if balancer.is_failed() => Err(failed(&balancer)),
            Some(_) => Ok(created),
            None => Err(ProviderError::Failed(format!(
                "load balancer {} was deleted by somebody else",
                self.id
            ))),
        }
    }

    /// The id of what was created.
    async fn send(&self, step: &Step, seen: &Observed) -> Result<String, CallError> {
        let octavia = self.octavia;
        match step {
            Step::CreatePool(pool) => {
                return octavia
                    .create(POOL, with(json!(pool), &[("loadbalancer_id", self.id)]))
                    .await;
            }
            Step::CreateListener(listener, target) => {
                let pool = seen.resolve(target);
                let fields = with(
                    json!(listener),
                    &[("loadbalancer_id", self.id), ("default_pool_id", &pool)],
                );
                return octavia.create(LISTENER, fields).await;
            }
            Step::CreateMonitor(target, monitor) => {
                return octavia
                    .create(
                        MONITOR,
                        with(json!(monitor), &[("pool_id", &seen.resolve(target))]),
                    )
                    .await;
            }
            Step::UpdateListener(id, listener, target) => {
                let fields = with(
                    json!(listener),
                    &[("default_pool_id", &seen.resolve(target))],
                );
                octavia
                    .update(
                        LISTENER,
                        id,
                        without(fields, &["protocol", "protocol_port"]),
                    )
                    .await
            }
            Step::UpdatePool(id, pool) => {
                octavia
                    .update(POOL, id, without(json!(pool), &["protocol"]))
                    .await
            }
            Step::UpdateMonitor(id, monitor) => {
                octavia
                    .update(MONITOR, id, without(json!(monitor), &["type"]))
                    .await
            }
            Step::SetMembers(target, members) => {
                octavia.set_members(&seen.resolve(target), members).await
            }
            Step::DeleteListener(id) => octavia.delete(LISTENER, id).await,
            Step::DeletePool(id) => octavia.delete(POOL, id).await,
            Step::DeleteMonitor(id) => octavia.delete(MONITOR, id).await,
        }
        .map(|()| String::new())
    }

    /// Deletes it with everything in it. It is gone when this returns.
    pub(super) async fn delete(&self) -> Result<(), ProviderError> {
        info!(balancer = self.id, "deleting a load balancer");
        if let Err(error) = self.octavia.delete_balancer(self.id).await {
            // It is busy, perhaps with this very delete.
            if !error.is_conflict() {
                return Err(error.into());
            }
            if self.settled().await?.is_none() {
                return Ok(());
            }
            match self.octavia.delete_balancer(self.id).await {
                Err(error) if error.is_conflict() => {}
                done => done?,
            }
        }
        wait_for(self.poll, || async {
            let left = self.octavia.balancer(self.id).await?;
            Ok(left.map_or(Progress::Done(()), |balancer| {
                Progress::Pending(balancer.state())
            }))
        })
        .await?;
        Ok(())
    }
}

/// A load balancer that works with what was created in it, or the reason why there is none.
pub(super) async fn create(
    octavia: &Octavia,
    poll: &Poll,
    new: &NewLoadBalancer,
) -> Result<(LoadBalancer, Tree), ProviderError> {
    info!(name = new.name, "creating a load balancer");
    let (balancer, tree) = octavia.create_balancer(new).await.map_err(refusal)?;
    let work = Work {
        octavia,
        poll,
        id: &balancer.id,
    };
    match work.settled().await? {
        Some(balancer) if balancer.is_failed() => {
            work.delete().await?;
            Err(failed(&balancer))
        }
        Some(balancer) => Ok((balancer, tree)),
        None => Err(ProviderError::Failed(format!(
            "{balancer} was deleted by somebody else"
        ))),
    }
}

pub(super) fn failed(balancer: &LoadBalancer) -> ProviderError {
    ProviderError::Failed(format!(
        "{}: see `openstack loadbalancer status show {}` and the logs of Octavia's worker",
        balancer.state(),
        balancer.id
    ))
}

/// The error for an answer that would not change by itself; an operator has to act.
pub(super) fn refusal(error: CallError) -> ProviderError {
    let Some(status) = error.status() else {
        return error.into();
    };
    let (code, text) = (status.status.as_u16(), status.message.to_lowercase());
    let reason = match code {
        403 | 409 if text.contains("quota") => "QuotaExceeded",
        409 if text.contains("no more ip addresses") => "NoAddressLeft",
        403 => "Forbidden",
        400 => "Rejected",
        _ => return error.into(),
    };
    ProviderError::Refused {
        reason,
        message: error.to_string(),
    }
}

fn with(mut fields: Value, more: &[(&str, &str)]) -> Value {
    more.iter()
        .for_each(|(name, value)| fields[*name] = (*value).into());
    fields
}

/// Fields that can be said only once.
fn without(mut fields: Value, names: &[&str]) -> Value {
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|name, _| !names.contains(&name.as_str()));
    }
    fields
}
