//! The node daemon: watches the API, keeps the dataplane equal to the table, answers for its health.

pub mod addresses;
pub mod health;
pub mod sysctl;
#[cfg(test)]
mod testing;
