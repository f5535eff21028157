//! The calls that are needed, one short method each. A change is over when its operation is.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use super::config::Place;
use super::resources::{
    Address, Firewall, HttpHealthCheck, Instance, List, Operation, Resource, TargetPool, name_of,
};
use crate::cloud::{
    Call, CallError, Client, Dialect, Page, Poll, Progress, StatusError, WaitError, all_pages,
    found, wait_for,
};

/// The cloud answers a wait when it is over, at the latest after two minutes.
const WAIT: Duration = Duration::from_secs(125);

pub(super) const DIALECT: Dialect = Dialect {
    read: |body| {
        let said: serde_json::Value = serde_json::from_slice(body).ok()?;
        let reason = said["error"]["errors"][0]["reason"]
            .as_str()
            .unwrap_or_default();
        Some((
            reason.to_owned(),
            said["error"]["message"].as_str()?.to_owned(),
        ))
    },
    is_throttled: |status, code| {
        status == StatusCode::FORBIDDEN
            && ["rateLimitExceeded", "userRateLimitExceeded"].contains(&code)
    },
};

pub(super) struct Api {
    pub client: Client,
    pub place: Place,
    pub poll: Poll,
}

impl Api {
    pub(super) async fn get<R: Resource>(&self, name: &str) -> Result<Option<R>, CallError> {
        let reply = self
            .client
            .send(Call::get(R::GET, self.url::<R>(name)))
            .await;
        found(reply)?.map(|reply| reply.json()).transpose()
    }

    pub(super) async fn insert<R: Resource>(&self, resource: &R) -> Result<(), WaitError> {
        self.change::<R>(Call::post(R::INSERT, self.collection::<R>()).json(resource))
            .await
    }

    /// Deleting a second time does no harm: what is not there is gone.
    pub(super) async fn delete<R: Resource>(&self, name: &str) -> Result<(), WaitError> {
        let done = self
            .change::<R>(Call::delete(R::DELETE, self.url::<R>(name)).repeatable())
            .await;
        match done {
            Err(error) if error.call().is_some_and(CallError::is_not_found) => Ok(()),
            done => done,
        }
    }

    pub(super) async fn patch_firewall(&self, firewall: &Firewall) -> Result<(), WaitError> {
        let url = self.url::<Firewall>(&firewall.name);
        self.change::<Firewall>(
            Call::patch("firewalls.patch", url)
                .json(firewall)
                .repeatable(),
        )
        .await
    }

    pub(super) async fn update_check(&self, check: &HttpHealthCheck) -> Result<(), WaitError> {
        let url = self.url::<HttpHealthCheck>(&check.name);
        self.change::<HttpHealthCheck>(
            Call::put("httpHealthChecks.update", url)
                .json(check)
                .repeatable(),
        )
        .await
    }

    /// Adding one that is in, and removing one that is not, are no failures.
    pub(super) async fn add_instances(
        &self,
        pool: &str,
        links: &[String],
    ) -> Result<(), WaitError> {
        let instances: Vec<_> = links.iter().map(|link| json!({"instance": link})).collect();
        let call = self.on_pool("targetPools.addInstance", pool, "addInstance");
        self.change::<TargetPool>(call.json(&json!({"instances": instances})))
            .await
    }

    pub(super) async fn remove_instances(
        &self,
        pool: &str,
        links: &[String],
    ) -> Result<(), WaitError> {
        let instances: Vec<_> = links.iter().map(|link| json!({"instance": link})).collect();
        let call = self.on_pool("targetPools.removeInstance", pool, "removeInstance");
        self.change::<TargetPool>(call.json(&json!({"instances": instances})))
            .await
    }

    pub(super) async fn attach_check(&self, pool: &str, link: &str) -> Result<(), WaitError> {
        let call = self.on_pool("targetPools.addHealthCheck", pool, "addHealthCheck");
        self.change::<TargetPool>(call.json(&json!({"healthChecks": [{"healthCheck": link}]})))
            .await
    }

    pub(super) async fn detach_check(&self, pool: &str, link: &str) -> Result<(), WaitError> {
        let call = self.on_pool("targetPools.removeHealthCheck", pool, "removeHealthCheck");
        self.change::<TargetPool>(call.json(&json!({"healthChecks": [{"healthCheck": link}]})))
            .await
    }

    /// The resource that reserves this IP address, also if another program made it.
    pub(super) async fn address_with(&self, address: &str) -> Result<Option<Address>, CallError> {
        let url = self.collection::<Address>();
        let call =
            Call::get("addresses.list", url).query("filter", &format!("address = \"{address}\""));
        let list: List<Address> = self.client.send(call).await?.json()?;
        Ok(list
            .items
            .into_iter()
            .find(|found| found.address == address))
    }

    pub(super) async fn instances(&self, zone: &str) -> Result<Vec<Instance>, CallError> {
        let url = format!(
            "{}projects/{}/zones/{zone}/instances",
            self.place.endpoint, self.place.project
        );
        let fields = "items(name,tags/items),nextPageToken";
        all_pages(|token: Option<String>| {
            let call = Call::get("instances.list", url.clone())
                .query("maxResults", "500")
                .query("fields", fields);
            let call = token
                .iter()
                .fold(call, |call, token| call.query("pageToken", token));
            async {
                let list: List<Instance> = self.client.send(call).await?.json()?;
                Ok(Page {
                    items: list.items,
                    next: Some(list.next_page_token).filter(|token| !token.is_empty()),
                })
            }
        })
        .await
    }

    /// The address of a resource, as others refer to it.
    pub(super) fn url<R: Resource>(&self, name: &str) -> String {
        format!("{}/{name}", self.collection::<R>())
    }

    fn collection<R: Resource>(&self) -> String {
        let path = R::PATH.replace("{region}", &self.place.region);
        format!(
            "{}projects/{}/{path}",
            self.place.endpoint,
            self.project::<R>()
        )
    }

    /// Firewalls belong to the network.
    fn project<R: Resource>(&self) -> &str {
        if R::PATH == Firewall::PATH {
            &self.place.network_project
        } else {
            &self.place.project
        }
    }

    fn on_pool(&self, operation: &'static str, pool: &str, verb: &str) -> Call {
        Call::post(
            operation,
            format!("{}/{verb}", self.url::<TargetPool>(pool)),
        )
        .repeatable()
    }

    async fn change<R: Resource>(&self, call: Call) -> Result<(), WaitError> {
        let what = call.operation;
        let operation: Operation = self.client.send(call).await?.json()?;
        if operation.status == "DONE" {
            return Ok(result(what, operation)?);
        }
        let scope = match operation.region.is_empty() {
            true => "global".to_owned(),
            false => format!("regions/{}", self.place.region),
        };
        let (endpoint, project) = (&self.place.endpoint, self.project::<R>());
        let url = format!(
            "{endpoint}projects/{project}/{scope}/operations/{}/wait",
            operation.name
        );
        let name = if operation.region.is_empty() {
            "globalOperations.wait"
        } else {
            "regionOperations.wait"
        };
        wait_for(&self.poll, || async {
            let call = Call::post(name, url.clone()).deadline(WAIT).repeatable();
            let operation: Operation = self.client.send(call).await?.json()?;
            match operation.status.as_str() {
                "DONE" => result(what, operation).map(Progress::Done),
                _ => Ok(Progress::Pending(waiting(&operation))),
            }
        })
        .await
    }
}

fn waiting(operation: &Operation) -> String {
    let Operation {
        operation_type,
        target_link,
        progress,
        ..
    } = operation;
    format!(
        "waiting for {operation_type} of {} ({progress}%)",
        name_of(target_link)
    )
}

/// An operation can fail as a call can.
fn result(what: &'static str, operation: Operation) -> Result<(), CallError> {
    let status =
        StatusCode::from_u16(operation.http_error_status_code).unwrap_or(StatusCode::BAD_REQUEST);
    let Some(error) = operation.error.errors.into_iter().next() else {
        return Ok(());
    };
    let retry_after = None;
    let error = StatusError {
        status,
        code: error.code,
        message: error.message,
        retry_after,
        throttled: false,
    };
    Err(CallError::new(what, error))
}

/// The cloud does not delete what is used; so it counts for us.
pub(super) fn is_in_use(error: &CallError) -> bool {
    error.is_code("resourceInUseByAnotherResource")
        || error.is_code("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE")
}

pub(super) fn is_quota(error: &CallError) -> bool {
    error.is_code("quotaExceeded") || error.is_code("QUOTA_EXCEEDED")
}

/// An instance that is to be added does not exist.
pub(super) fn is_absent_instance(error: &CallError) -> bool {
    let about_pool = ["targetPools.addInstance", "targetPools.insert"].contains(&error.operation);
    let absent = error.is_not_found() || error.is_code("RESOURCE_NOT_FOUND");
    about_pool && absent && error.to_string().contains("/instances/")
}
