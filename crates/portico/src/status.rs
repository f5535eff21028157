//! `portico status`: whether all is well, in a screenful; and where it is not, the way out. Its exit
//! code tells the same to a program, with the numbers that monitoring plugins use.

use crate::client::{Access, Reader};
use crate::fleet;
use crate::output::Output;
use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use portico_view::{Status, Verdict};
use serde_json::Value;
use std::time::Duration;

/// For nodes to report what was just changed.
const GRACE: Duration = Duration::from_secs(1);
/// The exit code where the fleet cannot be looked at.
const CANNOT_TELL: u8 = 3;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    output: Output,
}

/// 0 where all is well, 1 where something is wrong and traffic flows, 2 where it does not, 3 where
/// that cannot be told.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let status = crate::runtime()?.block_on(look(arguments));
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            eprintln!("portico: {error:#}");
            return Ok(CANNOT_TELL);
        }
    };
    arguments.output.print(&status)?;
    Ok(match status.verdict {
        Verdict::Well => 0,
        Verdict::Degraded => 1,
        Verdict::Broken => 2,
    })
}

async fn look(arguments: &Arguments) -> anyhow::Result<Status> {
    let reader = arguments.access.reader().await?;
    let version = version(&reader).await?;
    let mut fleet = fleet::read_beyond_doubt(&reader, None).await?;
    let status = Status::of(&version, &fleet, Timestamp::now());
    if !status.lags() {
        return Ok(status);
    }
    tokio::time::sleep(GRACE).await;
    fleet::read_again(&reader, None, &mut fleet).await?;
    Ok(Status::of(&version, &fleet, Timestamp::now()))
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
