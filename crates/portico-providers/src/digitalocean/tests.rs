//! The provider against a DigitalOcean in memory, which holds every request against the vendor's
//! own description.

mod lab;
mod life;
mod suite;
