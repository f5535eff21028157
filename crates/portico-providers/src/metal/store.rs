//! Blocks and Services at the API server, one at a time. A block is written only over the version
//! that was read.

use std::future::Future;
use std::time::Duration;

use ipnet::IpNet;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind, Object};
use kube::{Api, Client};
use portico_model::pools::{AddressBlockSpec, AddressPoolSpec, GROUP, VERSION, block_name};
use serde::{Deserialize, Serialize};

use super::allocations::Known;
use super::blocks::Block;
use super::status::PoolStatus;
use crate::ServiceRef;
use portico_controller::light::LightService;

pub(super) type BlockObject = Object<AddressBlockSpec, Nothing>;
pub(super) type PoolApiObject = Object<AddressPoolSpec, PoolStatus>;

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Nothing {}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StoreError {
    /// The object changed since it was read.
    #[error("changed by somebody else")]
    Conflict,
    /// Whether it was done is not known.
    #[error("{0}")]
    Failed(String),
}

/// What the allocator needs of the world.
pub(super) trait Store: Send + Sync {
    fn read(
        &self,
        network: IpNet,
    ) -> impl Future<Output = Result<Option<Block>, StoreError>> + Send;

    /// Write a block over the version that it has, or create it; without claims, delete it. Gives
    /// the new version. Others can tell a block that was deleted for having no claims from one that
    /// was lost: it has none in its last version.
    fn write(
        &self,
        network: IpNet,
        block: &Block,
    ) -> impl Future<Output = Result<Option<String>, StoreError>> + Send;

    /// What there is under the name of a Service.
    fn service(
        &self,
        service: &ServiceRef,
    ) -> impl Future<Output = Result<Option<Known>, StoreError>> + Send;
}

/// The API server.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
    blocks: Api<BlockObject>,
}

impl Cluster {
    pub(super) fn new(client: Client) -> Self {
        Self {
            blocks: Api::all_with(client.clone(), &resource("AddressBlock", "addressblocks")),
            client,
        }
    }

    pub(super) fn blocks(&self) -> Api<BlockObject> {
        self.blocks.clone()
    }

    pub(super) fn pools(&self) -> Api<PoolApiObject> {
        Api::all_with(
            self.client.clone(),
            &resource("AddressPool", "addresspools"),
        )
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural)
}

impl Store for Cluster {
    async fn read(&self, network: IpNet) -> Result<Option<Block>, StoreError> {
        let object = in_time(self.blocks.get_opt(&block_name(network))).await?;
        Ok(
            object
                .map(|object| Block::new(network, object.metadata.resource_version, &object.spec)),
        )
    }

    async fn write(&self, network: IpNet, block: &Block) -> Result<Option<String>, StoreError> {
        let name = block_name(network);
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            resource_version: block.version.clone(),
            ..ObjectMeta::default()
        };
        let mut object = Object::new(
            &name,
            &resource("AddressBlock", "addressblocks"),
            block.spec(network),
        );
        object.metadata = metadata;
        let written = match (&block.version, block.claims.is_empty()) {
            (None, true) => return Ok(None),
            (None, false) => in_time(self.blocks.create(&PostParams::default(), &object)).await?,
            (Some(_), false) => {
                in_time(self.blocks.replace(&name, &PostParams::default(), &object)).await?
            }
            (Some(_), true) => {
                let emptied =
                    in_time(self.blocks.replace(&name, &PostParams::default(), &object)).await?;
                let preconditions = Preconditions {
                    resource_version: emptied.metadata.resource_version,
                    uid: None,
                };
                let delete = DeleteParams {
                    preconditions: Some(preconditions),
                    ..DeleteParams::default()
                };
                in_time(self.blocks.delete(&name, &delete)).await?;
                return Ok(None);
            }
        };
        Ok(written.metadata.resource_version)
    }

    async fn service(&self, service: &ServiceRef) -> Result<Option<Known>, StoreError> {
        let api: Api<LightService> = Api::namespaced(self.client.clone(), &service.namespace);
        Ok(in_time(api.get_opt(&service.name))
            .await?
            .as_ref()
            .map(known))
    }
}

async fn in_time<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, StoreError> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        // It is there already, is another version, or is gone.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 409 | 404) => {
            Err(StoreError::Conflict)
        }
        Ok(Err(error)) => Err(StoreError::Failed(error.to_string())),
        Err(_) => Err(StoreError::Failed(
            "the API server does not answer".to_owned(),
        )),
    }
}

pub(super) fn known(LightService(service): &LightService) -> Known {
    let metadata = &service.metadata;
    let finalized = metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FINALIZER);
    let status = service.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref());
    let addresses = ingress
        .unwrap_or_default()
        .iter()
        .filter_map(|ingress| ingress.ip.as_deref()?.parse().ok())
        .collect();
    Known {
        service: ServiceRef {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
        },
        balanced: service.spec.as_ref().and_then(|spec| spec.type_.as_deref())
            == Some("LoadBalancer")
            || finalized,
        addresses,
    }
}
