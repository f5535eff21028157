//! Who asks, what they may do, and what was done.
//!
//! `authenticate` turns credentials into a [`User`], `join` knows who becomes a node, `impersonate`
//! lets one act as another, `rbac` decides, `node_restriction` looks at what nodes write, `review` answers questions about decisions, `bootstrap`
//! has the roles every server starts with, `audit` writes down requests. Nothing here knows of HTTP
//! or of the store: headers, certificates and objects come in as plain values.

pub mod audit;
pub mod authenticate;
pub mod bootstrap;
pub mod certificate;
pub mod impersonate;
pub mod join;
pub mod node_restriction;
pub mod rbac;
pub mod review;
pub mod service_account;
pub mod token_file;
pub mod user;

pub use authenticate::{Authenticator, Credentials};
pub use rbac::{Action, Decision, Rbac, Request};
pub use user::User;
