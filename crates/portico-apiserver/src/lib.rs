//! A Kubernetes-compatible API server for Services and what surrounds them.
//!
//! `handler` takes a request from its head to its answer; `resource` has the verbs, `registry` the
//! generic storage of all kinds, `render` and `watch` the answers. What a kind is, is in
//! `portico-api`; where objects are kept, in `portico-store`. `system` has what the server does on
//! its own account.

mod answer;
mod app;
mod auth;
mod clock;
mod config;
mod decode;
mod delete_options;
mod discovery;
mod handler;
mod limits;
mod metrics;
mod negotiate;
mod pages;
mod processor;
mod random;
mod registry;
mod render;
mod request;
mod resource;
mod reviews;
mod server;
mod shares;
mod start;
mod system;
mod tls;
mod watch;

pub use config::{Config, Storage};
pub use limits::Sizes;
pub use pages::kubernetes_version;
pub use start::{OwnClient, Running, StartError, start};
