//! What is true about the fleet, decided once.
//!
//! Owns the answers that several tools give: may load balancers use a node ([`fitness`]), is its
//! report alive ([`life`]), how often does it report ([`pace`]), who has an announced address
//! ([`Owners`]), and in what state a Service, an endpoint and a node are
//! ([`ServiceView`], [`EndpointView`], [`NodeView`]). The controller, announcing, DNS, `get`,
//! `status`, `top`, `doctor` and the dashboard call these functions. Objects and the time go in,
//! answers come out; nothing here reads a clock, a socket or a file.

pub mod fitness;
pub mod life;
pub mod pace;
pub mod text;

mod daemon;
mod endpoint;
mod fleet;
mod frontend;
mod leader;
mod node;
mod owner;
mod partition;
mod pool;
mod service;
mod status;

pub use daemon::DaemonView;
pub use endpoint::{EndpointState, EndpointView};
pub use fleet::{Fleet, Kind, Object, key_of};
pub use frontend::Frontend;
pub use leader::LeaderView;
pub use node::{NodeState, NodeView, Problem, ReportView};
pub use owner::{Owner, Owners, Scope as OwnerScope};
pub use partition::PartitionView;
pub use pool::{AddressPool, PoolView};
pub use service::{CONDITIONS, ServiceState, ServiceView};
pub use status::{Status, Trouble, Verdict};

#[cfg(test)]
mod samples;
