//! Elections on a link of network namespaces: who owns the address, what of it the kernel and the
//! others see.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod attacks;
mod keepalived;
mod kernel;
mod processes;
mod roles;
mod segment;
mod timeline;
