//! Log lines go to standard error; `PORTICO_LOG` chooses which (`debug`,
//! `portico_apiserver=trace,info`).

use portico_node::config::Logging;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

pub(crate) fn start() {
    start_with(Logging::default());
}

/// Starts logging as the flags of Kubernetes programs choose it; `PORTICO_LOG` overrides them.
pub(crate) fn start_with(logging: Logging) {
    let level = match logging.verbosity {
        0..4 => "info",
        4..6 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("PORTICO_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match logging.json {
        true => lines.json().flatten_event(true).init(),
        false => lines.with_ansi(std::io::stderr().is_terminal()).init(),
    }
}
