//! The cluster as the controllers of one process see it: its API server, and what several of them
//! follow, which is watched once.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use portico_client::reflector::Reflector;
use portico_client::wait::Backoff;

use crate::light::LightService;

/// What controllers read. It is cheap to clone, and the clones share their watches.
#[derive(Clone)]
pub struct Cluster {
    /// For writes, and for kinds that one controller follows.
    pub client: Client,
    /// All Services, without their managed fields.
    pub services: Reflector<LightService>,
    /// All Nodes, without their images and volumes.
    pub nodes: Reflector<Node>,
    /// All EndpointSlices, without their managed fields.
    pub slices: Reflector<EndpointSlice>,
}

impl Cluster {
    /// Nothing is asked before a controller starts.
    pub fn new(client: Client) -> Self {
        let backoff = Backoff::of_controllers();
        Self {
            services: Reflector::new(Api::all(client.clone()), backoff, |_| {}),
            nodes: Reflector::new(Api::all(client.clone()), backoff, |node| {
                node.metadata.managed_fields = None;
                if let Some(status) = &mut node.status {
                    (status.images, status.volumes_attached) = (None, None);
                }
            }),
            // A server keeps managed fields where an update leaves them out.
            slices: Reflector::new(Api::all(client.clone()), backoff, |slice| {
                slice.metadata.managed_fields = None;
            }),
            client,
        }
    }
}

/// For a subscriber that wants all objects.
pub fn all<K>(_: &K) -> bool {
    true
}
