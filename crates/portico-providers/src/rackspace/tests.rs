//! The provider against the cloud in memory, which holds every request against the description of
//! the API.

pub mod lab;
mod life;
mod suite;
