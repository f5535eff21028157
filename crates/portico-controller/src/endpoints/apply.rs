//! Sends the writes of a plan to the API server, in order, and reports what became of each.

use std::{fmt::Debug, time::Duration};

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

/// Long enough for a busy server, short enough to notice a dead connection. A write that succeeded in spite of it shows
/// up in the watch, and the next plan takes it into account.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What the server is known to hold now; true to the last write even where a later one failed.
#[derive(Debug, Default)]
pub struct Applied {
    pub slices: Vec<Written<EndpointSlice>>,
    pub endpoints: Vec<Written<Endpoints>>,
    pub error: Option<ApplyError>,
}

#[derive(Debug)]
pub enum Written<K> {
    Created(K),
    Updated(K),
    Deleted(K),
    /// An update found nothing to update.
    Missing(K),
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("cannot {verb} {kind} {name}")]
    Api { verb: &'static str, kind: &'static str, name: String, source: Box<kube::Error> },
    #[error("cannot {verb} {kind} {name}: no answer in {TIMEOUT:?}")]
    Timeout { verb: &'static str, kind: &'static str, name: String },
}

impl ApplyError {
    /// Somebody else was faster: nothing is wrong, the next try works from what they wrote.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409)
    }

    fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    /// Nothing can be created in a namespace on its way out, and nothing has to be.
    fn is_namespace_terminating(&self) -> bool {
        let causes = self.status().and_then(|status| status.details.as_ref()).map(|details| details.causes.as_slice());
        causes.unwrap_or_default().iter().any(|cause| cause.reason == "NamespaceTerminating")
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

/// Stops with the slices at the first failure, so that nothing is deleted whose replacement is not there.
pub async fn apply(client: Client, namespace: &str, plan: Plan, endpoints: EndpointsPlan) -> Applied {
    let mut applied = Applied::default();
    let slices = Writer::new(client.clone(), namespace);
    applied.error = write_slices(&slices, plan, &mut applied.slices).await.err();
    let result = write_endpoints(&Writer::new(client, namespace), endpoints, &mut applied.endpoints).await;
    applied.error = applied.error.or(result.err());
    applied
}

async fn write_slices(
    writer: &Writer<EndpointSlice>,
    plan: Plan,
    written: &mut Vec<Written<EndpointSlice>>,
) -> Result<(), ApplyError> {
    for slice in plan.create {
        written.extend(writer.create(slice).await?);
    }
    for slice in plan.update {
        written.push(writer.update(slice).await?);
    }
    for slice in plan.delete {
        written.push(writer.delete(slice).await?);
    }
    Ok(())
}

async fn write_endpoints(
    writer: &Writer<Endpoints>,
    plan: EndpointsPlan,
    written: &mut Vec<Written<Endpoints>>,
) -> Result<(), ApplyError> {
    match plan {
        EndpointsPlan::Keep => {}
        EndpointsPlan::Create(endpoints) => written.extend(writer.create(*endpoints).await?),
        EndpointsPlan::Update(endpoints) => written.push(writer.update(*endpoints).await?),
        EndpointsPlan::Delete(endpoints) => written.push(writer.delete(*endpoints).await?),
    }
    Ok(())
}

struct Writer<K> {
    api: Api<K>,
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
        Self { api: Api::namespaced(client, namespace) }
    }

    async fn create(&self, object: K) -> Result<Option<Written<K>>, ApplyError> {
        let meta = object.metadata();
        let name = meta.name.clone().or_else(|| meta.generate_name.clone()).unwrap_or_default();
        match answer::<K, _>("create", &name, self.api.create(&PostParams::default(), &object)).await {
            Ok(object) => Ok(Some(Written::Created(object))),
            Err(error) if error.is_namespace_terminating() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn update(&self, object: K) -> Result<Written<K>, ApplyError> {
        let name = object.metadata().name.clone().unwrap_or_default();
        match answer::<K, _>("update", &name, self.api.replace(&name, &PostParams::default(), &object)).await {
            Ok(object) => Ok(Written::Updated(object)),
            Err(error) if error.is_not_found() => Ok(Written::Missing(object)),
            Err(error) => Err(error),
        }
    }

    /// Deletes this very object, not another one of the same name.
    async fn delete(&self, object: K) -> Result<Written<K>, ApplyError> {
        let name = object.metadata().name.clone().unwrap_or_default();
        let uid = object.metadata().uid.clone();
        let params = DeleteParams::default().preconditions(Preconditions { uid, resource_version: None });
        match answer::<K, _>("delete", &name, self.api.delete(&name, &params)).await {
            Ok(_) => Ok(Written::Deleted(object)),
            Err(error) if error.is_not_found() => Ok(Written::Deleted(object)),
            Err(error) => Err(error),
        }
    }
}

async fn answer<K: Resource<DynamicType = ()>, T>(
    verb: &'static str,
    name: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ApplyError> {
    let kind = if K::kind(&()) == "EndpointSlice" { "EndpointSlice" } else { "Endpoints" };
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(ApplyError::Api { verb, kind, name: name.into(), source: Box::new(error) }),
        Err(_) => Err(ApplyError::Timeout { verb, kind, name: name.into() }),
    }
}
