//! A Service's whole way through creates and updates, with a store and a pool that are plain sets.

mod allocation;
mod harness;
mod health_check_port;
mod ip_mode;
mod port_partitions;
mod properties;
mod shown;
mod transitions;
