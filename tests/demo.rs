//! `portico up --demo` as somebody meets it for the first time: everything that it prints is true,
//! its dashboard works, and nothing stays. Needs root.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "demo/browser.rs"]
mod browser;
#[path = "demo/dashboard.rs"]
mod dashboard;
#[path = "demo/rig.rs"]
mod rig;
#[path = "demo/terminal.rs"]
mod terminal;
#[path = "demo/truth.rs"]
mod truth;
