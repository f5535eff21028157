//! Authentication, authorization and audit.
//!
//! `authenticate` turns credentials into a [`User`], `join` lets machines become nodes,
//! `impersonate` lets one act as another, `rbac` decides, `node_restriction` looks at what nodes
//! write, `review` answers questions about decisions, `bootstrap` has the roles every server starts
//! with, `audit` writes down requests. Nothing here knows of HTTP or of the store: headers,
//! certificates and objects come in as plain values.

pub(crate) mod audit;
pub(crate) mod authenticate;
pub(crate) mod bootstrap;
pub(crate) mod certificate;
pub(crate) mod impersonate;
pub(crate) mod join;
pub(crate) mod node_restriction;
pub(crate) mod rbac;
pub(crate) mod review;
pub(crate) mod service_account;
pub(crate) mod token_file;
pub(crate) mod user;

pub(crate) use authenticate::{Authenticator, Credentials};
pub(crate) use rbac::{Action, Rbac, Request};
pub(crate) use user::User;
