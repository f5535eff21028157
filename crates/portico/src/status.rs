//! `portico status`: whether all is well, in a screenful; and where it is not, the way out.

use crate::client::{Access, Reader};
use crate::fleet;
use crate::output::Output;
use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use portico_view::Status;
use serde_json::Value;
use std::time::Duration;

/// The time limit for nodes to report what was just changed.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    output: Output,
}

/// 0 where all is well, 1 where it is not.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    crate::runtime()?.block_on(async {
        let reader = arguments.access.reader().await?;
        let version = version(&reader).await?;
        let mut status = Status::of(
            &version,
            &fleet::read(&reader, None).await?,
            Timestamp::now(),
        );
        if status.lags() {
            tokio::time::sleep(GRACE).await;
            status = Status::of(
                &version,
                &fleet::read(&reader, None).await?,
                Timestamp::now(),
            );
        }
        arguments.output.print(&status)?;
        Ok(u8::from(!status.well))
    })
}

async fn version(reader: &Reader) -> anyhow::Result<String> {
    let version: Option<Value> = reader
        .find("/version")
        .await
        .context("the fleet cannot be looked at")?;
    let text = version
        .as_ref()
        .and_then(|version| version["gitVersion"].as_str());
    Ok(text.unwrap_or("of unknown version").to_owned())
}
