//! The endpoint-slice controller: a Service with a selector gets EndpointSlices, and an Endpoints
//! object, from the Pods it selects.
//!
//! ```text
//! watches ─▶ Index ─▶ Queue ─▶ plan (pure) ─▶ apply ─▶ API server
//!              ▲                                │
//!              └──── the objects as written ────┘
//! ```
//!
//! `index`, `plan`, `legacy` and `trigger` decide and touch nothing; `driver` and `apply` do the
//! input and output. What was written goes into the index at once, so the next plan of a Service
//! never works from a state that its own writes have already replaced.

mod apply;
mod cache;
mod driver;
mod index;
mod legacy;
mod placement;
mod plan;
mod pod;
mod trigger;
mod wanted;

pub use driver::{Counters, Options, run};
pub use index::{Index, Snapshot};
pub use legacy::{EndpointsPlan, MAX_ADDRESSES, plan_endpoints};
pub use plan::{Plan, plan};
pub use pod::PodFacts;
pub use portico_model::key::ObjectKey;

/// Marks a slice as written by this controller; the upstream name, so that either controller can
/// take over.
pub const SLICE_MANAGER: &str = "endpointslice-controller.k8s.io";
/// The label of a slice that names its controller.
pub const LABEL_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The label of a slice that names its Service.
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label of slices and Endpoints of headless Services.
pub const LABEL_HEADLESS: &str = "service.kubernetes.io/headless";
/// The label of Endpoints that names their controller.
pub const LABEL_ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The value of that label, as Kubernetes' own controller writes it.
pub const ENDPOINTS_MANAGER: &str = "endpoint-controller";
/// The annotation with the time of the change that a slice follows.
pub const ANNOTATION_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The annotation of Endpoints from which addresses were left out.
pub const ANNOTATION_OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
pub(crate) const LABEL_ZONE: &str = "topology.kubernetes.io/zone";

#[cfg(test)]
mod tests;
