//! `portico bench`: how soon connections follow the API on this machine, in network namespaces of
//! its own. `make bench-node` measures more.

mod figures;
mod rig;

use crate::output::Output;
use anyhow::{Context, bail};
use clap::Args;
use figures::{Figure, Figures};
use rig::Rig;
use std::time::{Duration, Instant};

/// How many changes of each kind are made, or as many as fit into the time for it.
const CHANGES: usize = 50;
const TIME_FOR_CHANGES: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
const CONNECTIONS: usize = 2_000;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// Services that are there, with ten endpoints each.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    services: u32,
    /// Give up after this time.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = time)]
    at_most: Duration,
    #[command(flatten)]
    output: Output,
}

fn time(text: &str) -> Result<Duration, String> {
    portico_model::duration::parse(text).ok_or_else(|| "write it like 60s or 2m".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if !crate::up::is_root() {
        bail!(
            "portico bench makes network namespaces, which only root may: run it again with sudo"
        );
    }
    let services = arguments.services as usize;
    let figures = crate::runtime()?.block_on(async {
        let measured = tokio::time::timeout(arguments.at_most, measure(services)).await;
        measured.with_context(|| {
            format!(
                "not done within {:?}: try fewer --services",
                arguments.at_most
            )
        })?
    })?;
    arguments.output.print(&Figures {
        services,
        optimised: !cfg!(debug_assertions),
        figures,
    })
}

async fn measure(services: usize) -> anyhow::Result<Vec<Figure>> {
    let mut rig = Rig::start().await?;
    rig.load(services).await?;
    let mut figures = Vec::new();
    let cold = rig.start_node().await?;
    // The node counts what it did after it did it.
    let kernel = loop {
        match rig.kernel().await? {
            Duration::ZERO => tokio::time::sleep(PAUSE).await,
            kernel => break kernel,
        }
    };
    figures.push(Figure::new("cold start", &[cold], Some(kernel)));
    let mut times = Vec::new();
    let (started, before) = (Instant::now(), rig.kernel().await?);
    while times.len() < CHANGES && started.elapsed() < TIME_FOR_CHANGES {
        times.push(rig.new_service(times.len()).await?);
        tokio::time::sleep(PAUSE).await;
    }
    figures.push(Figure::new(
        "new Service live",
        &times,
        Some(each(rig.kernel().await? - before, times.len())),
    ));
    times.clear();
    let (started, before) = (Instant::now(), rig.kernel().await?);
    while times.len() < CHANGES && started.elapsed() < TIME_FOR_CHANGES {
        times.push(rig.move_endpoint((times.len() + 1) % 2).await?);
        tokio::time::sleep(PAUSE).await;
    }
    figures.push(Figure::new(
        "moved endpoint live",
        &times,
        Some(each(rig.kernel().await? - before, times.len())),
    ));
    let (through, mut direct) = rig.connections(CONNECTIONS).await?;
    direct.sort();
    let without = direct.get(direct.len() / 2).copied();
    figures.push(Figure::new(
        "connection through a Service",
        &through,
        without,
    ));
    Ok(figures)
}

fn each(all: Duration, count: usize) -> Duration {
    all / u32::try_from(count.max(1)).unwrap_or(u32::MAX)
}
