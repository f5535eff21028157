//! The objects that a node follows, whatever their kind: what they are called, where they are
//! found, what is kept of them.

use portico_model::key::ObjectKey;
use portico_model::objects::{EndpointSlice, Metadata, Node, Pod, Service, ServiceCidr};
use portico_model::partitions::PortPartition;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    Service,
    Slice,
    Node,
    Cidr,
    Pod,
    Partition,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Service,
        Self::Slice,
        Self::Node,
        Self::Cidr,
        Self::Pod,
        Self::Partition,
    ];

    /// What people call many of them.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Service => "Services",
            Self::Slice => "EndpointSlices",
            Self::Node => "Nodes",
            Self::Cidr => "ServiceCIDRs",
            Self::Pod => "Pods",
            Self::Partition => "PortPartitions",
        }
    }

    /// An API server need not have them, or not show them to a node: kube-proxy's role is not allowed
    /// to read pods.
    pub(crate) fn is_optional(self) -> bool {
        matches!(self, Self::Cidr | Self::Pod | Self::Partition)
    }

    /// Where those that matter to a node are listed: without headless Services and without those of
    /// another proxy, and the node's own pods alone.
    pub(crate) fn url(self, node: &str) -> String {
        match self {
            Self::Service => concat!(
                "/api/v1/services?labelSelector=%21service.kubernetes.io%2Fservice-proxy-name",
                "&fieldSelector=spec.clusterIP%21%3DNone"
            )
            .to_owned(),
            Self::Slice => {
                "/apis/discovery.k8s.io/v1/endpointslices?labelSelector=%21service.kubernetes.io%2Fheadless".to_owned()
            }
            Self::Node => format!("/api/v1/nodes?fieldSelector=metadata.name%3D{node}"),
            Self::Cidr => "/apis/networking.k8s.io/v1/servicecidrs?".to_owned(),
            Self::Pod => format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}"),
            Self::Partition => "/apis/portico.dev/v1/portpartitions?".to_owned(),
        }
    }

    /// Read one object of this kind from the API's JSON.
    pub(crate) fn decode(self, json: &str) -> Result<Object, serde_json::Error> {
        Ok(match self {
            Self::Service => Object::Service(serde_json::from_str(json)?),
            Self::Slice => Object::Slice(serde_json::from_str(json)?),
            Self::Node => Object::Node(serde_json::from_str(json)?),
            Self::Cidr => Object::Cidr(serde_json::from_str(json)?),
            Self::Pod => Object::Pod(serde_json::from_str(json)?),
            Self::Partition => Object::Partition(serde_json::from_str(json)?),
        })
    }
}

/// When what changed a slice happened: the only annotation that is of interest.
pub(crate) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The Service that a slice belongs to.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Object {
    Service(Box<Service>),
    Slice(Box<EndpointSlice>),
    Node(Box<Node>),
    Cidr(Box<ServiceCidr>),
    Pod(Box<Pod>),
    Partition(Box<PortPartition>),
}

impl Object {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Service(_) => Kind::Service,
            Self::Slice(_) => Kind::Slice,
            Self::Node(_) => Kind::Node,
            Self::Cidr(_) => Kind::Cidr,
            Self::Pod(_) => Kind::Pod,
            Self::Partition(_) => Kind::Partition,
        }
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        match self {
            Self::Service(object) => &object.metadata,
            Self::Slice(object) => &object.metadata,
            Self::Node(object) => &object.metadata,
            Self::Cidr(object) => &object.metadata,
            Self::Pod(object) => &object.metadata,
            Self::Partition(object) => &object.metadata,
        }
    }

    pub(crate) fn name(&self) -> Name {
        let metadata = self.metadata();
        Name {
            kind: self.kind(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        }
    }
}

/// Which object, of several kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Name {
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

impl Name {
    pub(crate) fn new(kind: Kind, key: &ObjectKey) -> Self {
        Self {
            kind,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        }
    }
}
