//! `portico dns`: arguments to a configuration, and a run from start to signal.

use crate::logging;
use crate::signals::Signals;
use portico_dns::config::Arguments;

/// Answer until SIGINT or SIGTERM.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    logging::start();
    let config = arguments.resolve()?;
    crate::runtime()?.block_on(async {
        let mut signals = Signals::new()?;
        portico_dns::run(config, async move { signals.wait().await }).await?;
        tracing::info!("stopped");
        Ok(())
    })
}
