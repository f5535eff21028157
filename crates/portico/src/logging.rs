//! Log lines go to standard error; `PORTICO_LOG` chooses which (`debug`, `portico_apiserver=trace,info`).

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

pub fn start() {
    let filter = EnvFilter::try_from_env("PORTICO_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
