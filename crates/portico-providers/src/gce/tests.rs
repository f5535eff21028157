//! The provider against a Compute Engine in memory, which holds every request against Google's own
//! description.

mod lab;
mod life;
mod suite;
