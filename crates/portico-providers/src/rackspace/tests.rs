//! The provider against the cloud in memory, which holds every request against the description of
//! the API.

pub(super) mod lab;
mod life;
mod suite;
