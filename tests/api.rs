//! What the API server does beyond the recorded conversations: gates, the second spelling, port
//! ranges, watches, access, the life of namespaces and endpoints, and several servers on one etcd.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "api/access.rs"]
mod access;
mod common;
#[path = "api/endpoints.rs"]
mod endpoints;
#[path = "api/gates.rs"]
mod gates;
#[path = "api/http.rs"]
mod http;
#[path = "api/namespaces.rs"]
mod namespaces;
#[path = "api/ranges.rs"]
mod ranges;
#[path = "api/service_cidrs.rs"]
mod service_cidrs;
#[path = "api/several.rs"]
mod several;
#[path = "api/spelling.rs"]
mod spelling;
#[path = "api/watching.rs"]
mod watching;

/// Where Services of the namespace `default` are.
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
