//! API objects: their schema, defaults, validation, patches, feature gates and the two spellings of
//! a Service.
//!
//! Pure: no socket, file, clock or random source; `now` and randomness come in as arguments.

#![warn(clippy::iter_over_hash_type)]

pub mod bounds;
pub mod codec;
pub mod field;
pub mod gates;
pub mod kinds;
pub mod names;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod schema;
pub mod selector;
pub mod service;
pub mod status;
