//! What all providers in clouds share: calls of an HTTP API, and nothing of any vendor.
//!
//! # How a provider is written
//!
//! A folder `providers/NAME/` with these files, of which `plan` is most of it:
//!
//! - `config`: the file of `--cloud-config` ([`Ini`]), parsed once; secrets are
//!   `secrecy::SecretString`.
//! - `auth`: an [`Authorize`] ([`Fixed`], [`Tokens`] over a [`TokenSource`] such as [`Login`], or a
//!   signer), if none here fits.
//! - `api`: the vendor's resources as small structs with `serde`, and one short method for each
//!   call that is needed:
//!
//!   ```ignore
//!   pub async fn pool(&self, name: &str) -> Result<Option<Pool>, CallError> {
//!       let call = Call::get("targetPools.get", self.regional("targetPools", name));
//!       found(self.client.send(call).await)?.map(|reply| reply.json()).transpose()
//!   }
//!   ```
//!
//!   The first argument is the operation's name in metrics, logs and errors. Calls that read are
//!   repeated when they fail. Calls that write are repeated only if the cloud surely did nothing
//!   (no connection, 429, 503 with `Retry-After`), unless [`Call::repeatable`] says that a second
//!   time does no harm.
//! - `plan`: pure. What is wanted (a [`Request`](super::Request) and the configuration) and what is
//!   there become a list of steps.
//! - `options`, where there is much to choose: what a Service says ([`Annotations`]).
//! - `mod.rs`: reads what is there, plans, acts, in `ensure`, `update_nodes`, `delete`; plus a
//!   [`Description`](super::description::Description) for the docs.
//!
//! [`Client::new`] wants a [`Setup`]: [`Http`] as transport, an `Authorize`, the vendor's
//! [`Dialect`] (how errors are told, what is throttling), a [`Pace`], and the `CallMetrics` of
//! [`Start`](super::Start). `?` turns a [`CallError`] into a `ProviderError`: throttling into "ask
//! again", everything else into "failed". What means something else to a Service (a quota, a
//! Service that cannot be served) is caught before, and becomes `Refused` with a reason.
//!
//! Nothing is kept between calls that could not be read again, and what is kept ([`Remembered`])
//! only saves reads: a call plans from it if there is any, and looks at everything if there is none
//! or if that fails. Everything is found by name or tag, so that a call that died half-way, or
//! whose answer was lost, is completed by the next; what is not named or tagged as ours is never
//! changed. Short work of the cloud is waited for with [`wait_for`]; long work is
//! `Balancer::pending` or `RetryAfter`, which people see (design/0018).
//!
//! # How it is tested
//!
//! Any `Fn(Request<Bytes>) -> Result<Response<Bytes>, TransportError>` is a [`Transport`], so a
//! cloud in memory needs no socket. [`faults::Faulty`] wraps a transport, and has requests go wrong
//! as [`conformance::with_faults`](crate::conformance::with_faults) wants, before or after they
//! reach the cloud; what was asked is in its plan's `calls`. [`faults::no_waits`] is a pace without
//! waits. `gce/tests.rs` is an example.

mod annotations;
mod asked;
mod auth;
mod call;
mod client;
mod error;
pub mod faults;
mod http;
mod ini;
mod login;
mod metrics;
mod pages;
mod rate;
mod remembered;
mod retry;
mod transport;
mod wait;

pub(crate) use annotations::{Annotations, refused};
pub(crate) use asked::requested_ip;
pub use auth::{Anonymous, Authorize, Fixed, Header};
pub(crate) use auth::{Token, TokenSource, Tokens, secret};
pub(crate) use call::encode;
pub use call::{Call, Reply};
pub use client::{Client, Dialect, Pace, Setup};
pub(crate) use error::{CallError, Problem, StatusError, found};
pub use http::{Http, HttpOptions};
pub(crate) use ini::{Ini, IniError, Section};
pub(crate) use login::{LogIn, Login};
pub use metrics::CallMetrics;
pub(crate) use pages::{Page, all_pages};
pub(crate) use remembered::{Basis, Remembered};
pub use transport::{Sent, Transport, TransportError};
pub use wait::Poll;
pub(crate) use wait::{Progress, WaitError, wait_for};
