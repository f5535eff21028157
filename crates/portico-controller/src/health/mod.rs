//! Active health checks of endpoints that nobody else watches over, such as those of
//! `portico expose`: an EndpointSlice with the label [`LABEL`] says in its annotation [`CHECK`] how
//! its endpoints are asked, and their readiness follows the answers.
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

/// On slices whose endpoints are checked, with the value `true`, so that they can be followed
/// without the others.
pub const LABEL: &str = "portico.dev/health-checked";
/// How: a [`Check`].
pub const CHECK: &str = "portico.dev/health-check";
/// Which addresses fail or are not asked, and why, for people; written when the readiness of one
/// changes.
pub const FAILING: &str = "portico.dev/health-failing";
