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
    pub const ALL: [Kind; 6] = [
        Kind::Service,
        Kind::Slice,
        Kind::Node,
        Kind::Cidr,
        Kind::Pod,
        Kind::Partition,
    ];

    /// What people call many of them.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Kind::Service => "Services",
            Kind::Slice => "EndpointSlices",
            Kind::Node => "Nodes",
            Kind::Cidr => "ServiceCIDRs",
            Kind::Pod => "Pods",
            Kind::Partition => "PortPartitions",
        }
    }

    /// An API server need not have them, or not show them to a node: kube-proxy's role is not allowed
    /// to read pods.
    pub fn is_optional(self) -> bool {
        matches!(self, Kind::Cidr | Kind::Pod | Kind::Partition)
    }

    /// Where those that matter to a node are listed: without headless Services and without those of
    /// another proxy, and the node's own pods alone.
    pub fn url(self, node: &str) -> String {
        match self {
            Self::Service => concat!(
                "/api/v1/services?labelSelector=%21service.kubernetes.io%2Fservice-proxy-name",
                "&fieldSelector=spec.clusterIP%21%3DNone"
            )
            .to_owned(),
            Self::Slice => {
                "/apis/discovery.k8s.io/v1/endpointslices?labelSelector=%21service.kubernetes.io%2Fheadless".to_owned()
            }
            Kind::Node => format!("/api/v1/nodes?fieldSelector=metadata.name%3D{node}"),
            Kind::Cidr => "/apis/networking.k8s.io/v1/servicecidrs?".to_owned(),
            Kind::Pod => format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}"),
            Kind::Partition => "/apis/portico.dev/v1/portpartitions?".to_owned(),
        }
    }

    /// Read one object of this kind from the API's JSON.
    pub(crate) fn decode(self, json: &str) -> Result<Object, serde_json::Error> {
        Ok(match self {
            Kind::Service => Object::Service(serde_json::from_str(json)?),
            Kind::Slice => Object::Slice(serde_json::from_str(json)?),
            Kind::Node => Object::Node(serde_json::from_str(json)?),
            Kind::Cidr => Object::Cidr(serde_json::from_str(json)?),
            Kind::Pod => Object::Pod(serde_json::from_str(json)?),
            Kind::Partition => Object::Partition(serde_json::from_str(json)?),
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
            Object::Service(_) => Kind::Service,
            Object::Slice(_) => Kind::Slice,
            Object::Node(_) => Kind::Node,
            Object::Cidr(_) => Kind::Cidr,
            Object::Pod(_) => Kind::Pod,
            Object::Partition(_) => Kind::Partition,
        }
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        match self {
            Object::Service(object) => &object.metadata,
            Object::Slice(object) => &object.metadata,
            Object::Node(object) => &object.metadata,
            Object::Cidr(object) => &object.metadata,
            Object::Pod(object) => &object.metadata,
            Object::Partition(object) => &object.metadata,
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
    pub fn new(kind: Kind, key: &ObjectKey) -> Name {
        Name {
            kind,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        }
    }
}
