//! Clouds in memory, for tests: servers that keep state, refuse what the real ones refuse, and hold
//! every request and every answer of their own against the vendor's published description of the
//! API. What is not in there fails the test.
//!
//! A cloud is a function from request to response, without sockets, time or threads.
//!
//! - `schema`: values against a schema (JSON Schema as discovery documents and OpenAPI use it).
//! - `discovery`: requests and answers against one of Google's discovery documents, or one in their
//!   form.
//! - `gce`: Compute Engine, as far as load balancers go.
//! - `openapi`: requests and answers against an OpenAPI document.
//! - `digitalocean`: load balancers of DigitalOcean.
//! - `rackspace`: Cloud Load Balancers, and the tokens of Identity.

#![allow(missing_docs, reason = "only tests use it")]

pub mod digitalocean;
mod discovery;
pub mod gce;
mod openapi;
pub mod rackspace;
mod schema;
