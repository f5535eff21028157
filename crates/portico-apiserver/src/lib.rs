//! portico-apiserver

pub mod auth;
pub mod tls;
