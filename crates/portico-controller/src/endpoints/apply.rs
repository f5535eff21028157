//! Sends the writes of a plan to the API server, in order, and reports what became of each.

use std::{fmt::Debug, time::Duration};

use futures_util::{StreamExt, stream};
use k8s_openapi::{
    Metadata, NamespaceResourceScope,
    api::{core::v1::Endpoints, discovery::v1::EndpointSlice},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{EndpointsPlan, Plan};

/// Long enough for a busy server, short enough to notice a dead connection. A write that succeeded
/// in spite of it shows up in the watch, and the next plan takes it into account.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Writes of one Service that are under way at a time.
const AT_ONCE: usize = 8;

/// The name under which the server records the fields' manager.
const FIELD_MANAGER: &str = "portico-endpoints";

/// What the server is known to hold now; true to the last write even where a later one failed.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub slices: Vec<Written<EndpointSlice>>,
    pub endpoints: Vec<Written<Endpoints>>,
    pub error: Option<ApplyError>,
}

#[derive(Debug)]
pub(super) enum Written<K> {
    Created(K),
    Updated(K),
    Deleted(K),
    /// An update found nothing to update.
    Missing(K),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error("cannot {verb} {kind} {name}")]
    Api {
        verb: &'static str,
        kind: &'static str,
        name: String,
        source: Box<kube::Error>,
    },
    #[error("cannot {verb} {kind} {name}: no answer in {TIMEOUT:?}")]
    Timeout {
        verb: &'static str,
        kind: &'static str,
        name: String,
    },
}

impl ApplyError {
    /// Whether the object changed meanwhile: that is no error, and the next try starts from the new
    /// version.
    pub(super) fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409)
    }

    fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    /// Whether the namespace is terminating: nothing can be created there, and nothing has to be.
    fn is_namespace_terminating(&self) -> bool {
        let causes = self
            .status()
            .and_then(|status| status.details.as_ref())
            .map(|details| details.causes.as_slice());
        causes
            .unwrap_or_default()
            .iter()
            .any(|cause| cause.reason == "NamespaceTerminating")
    }

    fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            Self::Timeout { .. } => None,
        }
    }
}

/// Stops with the slices after a failure, so that nothing is deleted whose replacement is not
/// there.
pub(super) async fn apply(
    client: Client,
    namespace: &str,
    plan: Plan,
    endpoints: EndpointsPlan,
) -> Applied {
    let mut applied = Applied::default();
    let (slices, older) = (
        Writer::new(client.clone(), namespace),
        Writer::new(client, namespace),
    );
    let (slices, older) = tokio::join!(
        write_slices(&slices, plan, &mut applied.slices),
        write_endpoints(&older, endpoints, &mut applied.endpoints),
    );
    applied.error = slices.and(older).err();
    applied
}

async fn write_slices(
    writer: &Writer<EndpointSlice>,
    plan: Plan,
    written: &mut Vec<Written<EndpointSlice>>,
) -> Result<(), ApplyError> {
    together(
        plan.create.into_iter().map(|slice| writer.create(slice)),
        written,
    )
    .await?;
    together(
        plan.update.into_iter().map(|slice| writer.update(slice)),
        written,
    )
    .await?;
    together(
        plan.delete.into_iter().map(|slice| writer.delete(slice)),
        written,
    )
    .await
}

async fn write_endpoints(
    writer: &Writer<Endpoints>,
    plan: EndpointsPlan,
    written: &mut Vec<Written<Endpoints>>,
) -> Result<(), ApplyError> {
    written.extend(match plan {
        EndpointsPlan::Keep => None,
        EndpointsPlan::Create(endpoints) => writer.create(*endpoints).await?,
        EndpointsPlan::Update(endpoints) => writer.update(*endpoints).await?,
        EndpointsPlan::Delete(endpoints) => writer.delete(*endpoints).await?,
    });
    Ok(())
}

/// Makes writes a few at a time. Every answer is kept, whatever becomes of the others; the first
/// failure is returned.
async fn together<K>(
    writes: impl Iterator<Item = impl Future<Output = Answer<K>>>,
    written: &mut Vec<Written<K>>,
) -> Result<(), ApplyError> {
    let mut answers = stream::iter(writes).buffer_unordered(AT_ONCE);
    let mut result = Ok(());
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(write) => written.extend(write),
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}

/// None: there was nothing to write after all.
type Answer<K> = Result<Option<Written<K>>, ApplyError>;

struct Writer<K> {
    api: Api<K>,
    params: PostParams,
}

impl<K> Writer<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Metadata<Ty = ObjectMeta>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug,
{
    fn new(client: Client, namespace: &str) -> Self {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.into()),
            ..PostParams::default()
        };
        Self {
            api: Api::namespaced(client, namespace),
            params,
        }
    }

    async fn create(&self, object: K) -> Answer<K> {
        let meta = object.metadata();
        let name = meta
            .name
            .clone()
            .or_else(|| meta.generate_name.clone())
            .unwrap_or_default();
        match answer::<K, _>("create", &name, self.api.create(&self.params, &object)).await {
            Ok(object) => Ok(Some(Written::Created(object))),
            Err(error) if error.is_namespace_terminating() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn update(&self, object: K) -> Answer<K> {
        let name = object.metadata().name.clone().unwrap_or_default();
        match answer::<K, _>(
            "update",
            &name,
            self.api.replace(&name, &self.params, &object),
        )
        .await
        {
            Ok(object) => Ok(Some(Written::Updated(object))),
            Err(error) if error.is_not_found() => Ok(Some(Written::Missing(object))),
            Err(error) => Err(error),
        }
    }

    /// Deletes this very object, not another one of the same name.
    async fn delete(&self, object: K) -> Answer<K> {
        let name = object.metadata().name.clone().unwrap_or_default();
        let uid = object.metadata().uid.clone();
        let params = DeleteParams::default().preconditions(Preconditions {
            uid,
            resource_version: None,
        });
        match answer::<K, _>("delete", &name, self.api.delete(&name, &params)).await {
            Ok(_) => Ok(Some(Written::Deleted(object))),
            Err(error) if error.is_not_found() => Ok(Some(Written::Deleted(object))),
            Err(error) => Err(error),
        }
    }
}

async fn answer<K: Resource<DynamicType = ()>, T>(
    verb: &'static str,
    name: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ApplyError> {
    let kind = if K::kind(&()) == "EndpointSlice" {
        "EndpointSlice"
    } else {
        "Endpoints"
    };
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(ApplyError::Api {
            verb,
            kind,
            name: name.into(),
            source: Box::new(error),
        }),
        Err(_) => Err(ApplyError::Timeout {
            verb,
            kind,
            name: name.into(),
        }),
    }
}

#[cfg(test)]
mod tests;
