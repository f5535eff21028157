//! Active health checks of endpoints that are no Pods, such as those of `portico expose`: an
//! EndpointSlice with the label [`LABEL`] says in its annotation [`CHECK`] how its endpoints are
//! asked, and their readiness follows the answers.
//!
//! ```text
//! watch of slices ─▶ Monitor (pure) ─▶ probes, so many at a time
//!                      │    ▲               │
//!                      ▼    └── answers ────┘
//!               slices whose readiness changed ─▶ API server
//! ```
//!
//! Only addresses that the operator allows are asked (`portico_model::checks::Ranges`): a slice can
//! be written by many, and must not send this program's requests wherever its writer likes.
//!
//! `check`, `networks` and `monitor` decide and touch nothing; `probe` and `driver` do the input
//! and output.

mod check;
mod driver;
mod monitor;
mod networks;
mod probe;

pub use check::{Check, CheckError, How};
pub use driver::{Options, run};
pub use monitor::Monitor;
pub use networks::Networks;

pub use portico_model::objects::{
    HEALTH_CHECK as CHECK, HEALTH_CHECKED as LABEL, HEALTH_FAILING as FAILING,
};
