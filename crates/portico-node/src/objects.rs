//! The objects that a node follows, whatever their kind: what they are called, where they are
//! found, what is kept of them.

use portico_model::objects::{EndpointSlice, Metadata, Node, Service, ServiceCidr};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    Service,
    Slice,
    Node,
    Cidr,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Service, Self::Slice, Self::Node, Self::Cidr];

    /// What people call many of them.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Service => "Services",
            Self::Slice => "EndpointSlices",
            Self::Node => "Nodes",
            Self::Cidr => "ServiceCIDRs",
        }
    }

    /// Where those that matter to a node are listed: without headless Services and without those of
    /// another proxy.
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
        }
    }

    /// Read one object of this kind from the API's JSON.
    pub(crate) fn decode(self, json: &str) -> Result<Object, serde_json::Error> {
        Ok(match self {
            Self::Service => Object::Service(serde_json::from_str(json)?),
            Self::Slice => Object::Slice(serde_json::from_str(json)?),
            Self::Node => Object::Node(serde_json::from_str(json)?),
            Self::Cidr => Object::Cidr(serde_json::from_str(json)?),
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
}

impl Object {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Service(_) => Kind::Service,
            Self::Slice(_) => Kind::Slice,
            Self::Node(_) => Kind::Node,
            Self::Cidr(_) => Kind::Cidr,
        }
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        match self {
            Self::Service(object) => &object.metadata,
            Self::Slice(object) => &object.metadata,
            Self::Node(object) => &object.metadata,
            Self::Cidr(object) => &object.metadata,
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

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Name {
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}
