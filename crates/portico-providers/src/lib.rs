//! Where load balancers come from: what implements the controller's contract [`Provider`], one folder
//! for each, and a plugin's client and server for those in other programs.
//!
//! Owns what those in clouds share (`cloud`), the list of all of them by name (`registry`), what
//! the docs say of each (`description`), and the test that every one passes (`conformance`). The
//! contract itself is the controller's; it is exported from here as well, so that a program with a
//! provider of its own needs this crate alone.

pub mod aws;
pub mod cloud;
pub mod conformance;
mod description;
pub mod digitalocean;
pub mod gce;
pub mod haproxy;
mod metal;
pub mod openstack;
pub mod plugin;
pub mod rackspace;
mod registry;

pub use portico_controller::provider::{
    Abilities, Answer, Balancer, Endpoint, Family, HealthCheck, Host, Ingress, IpMode, News, Node,
    Port, Protocol, Provider, ProviderError, Request, ServiceRef,
};
pub use registry::{DESCRIPTIONS, Start, StartError, start};
