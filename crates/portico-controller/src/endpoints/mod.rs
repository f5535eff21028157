//! The endpoint-slice controller: a Service with a selector gets EndpointSlices, and an Endpoints object, from the Pods it
//! selects.
//!
//! ```text
//! watches ─▶ Index ─▶ Queue ─▶ plan (pure) ─▶ apply ─▶ API server
//!              ▲                                │
//!              └──── the objects as written ────┘
//! ```
//!
//! `index`, `plan`, `legacy`, `queue` and `trigger` decide and touch nothing; `driver` and `apply` do the input and output.
//! What was written goes into the index at once, so the next plan of a Service never works from a state that its own
//! writes have already replaced.

mod apply;
pub(crate) mod backoff;
mod cache;
mod driver;
mod index;
mod legacy;
mod placement;
mod plan;
mod pod;
mod queue;
mod trigger;
mod wanted;

use std::{fmt, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use driver::{Counters, Options, run};
pub use index::{Index, Snapshot};
pub use legacy::{EndpointsPlan, MAX_ADDRESSES, plan_endpoints};
pub use plan::{Plan, plan};
pub use pod::PodFacts;

/// Marks a slice as written by this controller; the upstream name, so that either controller can take over.
pub const SLICE_MANAGER: &str = "endpointslice-controller.k8s.io";
pub const LABEL_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
pub const LABEL_HEADLESS: &str = "service.kubernetes.io/headless";
pub const LABEL_ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
pub const ENDPOINTS_MANAGER: &str = "endpoint-controller";
pub const ANNOTATION_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
pub const ANNOTATION_OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
pub(crate) const LABEL_ZONE: &str = "topology.kubernetes.io/zone";

/// Namespace and name of an object; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectKey {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests;
