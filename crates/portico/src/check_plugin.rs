//! `portico controller check-plugin`: whether a plugin keeps the contract of providers.

use crate::controller::parse_duration;
use anyhow::bail;
use clap::Args;
use portico_providers::conformance::{self, Case, World};
use portico_providers::plugin::{Patience, Plugin};
use portico_providers::{Node, Provider, Request};
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::watch;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// Where the plugin listens.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// A node that the plugin can send traffic to, as NAME, NAME=ADDRESS or
    /// NAME=ADDRESS=PROVIDER-ID; three or more [default: three with addresses of documentation].
    #[arg(long = "node", value_name = "NODE", value_parser = parse_node)]
    nodes: Vec<Node>,
    /// An annotation for all Services of the test, as NAME=VALUE.
    #[arg(long = "annotation", value_name = "ANNOTATION", value_parser = parse_pair)]
    annotations: Vec<(String, String)>,
    /// The name of the cluster in which the Services of the test are.
    #[arg(long, value_name = "NAME", default_value = "conformance")]
    cluster_name: String,
    /// Prints what exists for the Services of the test, a line each, beginning with what it is.
    /// Without it, only answers are checked.
    #[arg(long, value_name = "COMMAND")]
    owned_command: Option<String>,
    /// Prints what else the plugin could reach and must not touch.
    #[arg(long, value_name = "COMMAND", requires = "owned_command")]
    foreign_command: Option<String>,
    /// For how long something may be on its way, or the plugin not answer.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    patience: Duration,
    /// The longest pause before what is on its way is asked for again.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pause: Duration,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn parse_node(text: &str) -> Result<Node, String> {
    let mut parts = text.splitn(3, '=');
    let name = parts.next().unwrap_or_default().to_owned();
    let address = parts.next().filter(|address| !address.is_empty());
    let address = address
        .map(|address| {
            address
                .parse()
                .map_err(|_| format!("{address} is no address"))
        })
        .transpose()?;
    let provider_id = parts.next().unwrap_or_default().to_owned();
    Ok(Node {
        name,
        provider_id,
        addresses: address.into_iter().collect(),
        ..Node::default()
    })
}

/// Prints a line for each step; an error if one failed.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let report = crate::runtime()?.block_on(check(arguments))?;
    crate::print(&report.to_string());
    match report.failed().count() {
        0 => Ok(()),
        failed => bail!(
            "{failed} of {} steps failed: see docs/plugins.md for what they ask",
            report.steps.len()
        ),
    }
}

async fn check(arguments: Arguments) -> anyhow::Result<conformance::Report> {
    let (_stop, stopped) = watch::channel(false);
    let patience = Patience {
        answer: arguments.patience,
        outage: arguments.patience,
    };
    let plugin = Plugin::start(&arguments.socket, patience, stopped)
        .await
        .map_err(anyhow::Error::msg)?;
    tracing::debug!(
        plugin = plugin.name(),
        version = plugin.version(),
        "checking"
    );
    let nodes = if arguments.nodes.is_empty() {
        example_nodes()
    } else {
        arguments.nodes
    };
    if nodes.len() < 3 {
        bail!("--node: nodes come and go in the test, give three or more");
    }
    let template = Request {
        cluster: arguments.cluster_name,
        annotations: arguments.annotations.into_iter().collect(),
        ..Request::default()
    };
    let case = Case {
        template,
        patience: arguments.patience,
        pause: arguments.pause,
        ..Case::new(nodes).can(plugin.can().clone())
    };
    let world = arguments.owned_command.map(|owned| Commands {
        owned,
        foreign: arguments.foreign_command,
    });
    Ok(conformance::run(
        &plugin,
        world.as_ref().map(|world| world as &dyn World),
        &case,
    )
    .await)
}

fn example_nodes() -> Vec<Node> {
    let node = |number: u8| Node {
        name: format!("conformance-node-{number}"),
        addresses: vec![IpAddr::from([192, 0, 2, 100 + number])],
        ..Node::default()
    };
    (1..=3).map(node).collect()
}

/// The world as programs print it.
struct Commands {
    owned: String,
    foreign: Option<String>,
}

type Lines<'a> = Pin<Box<dyn Future<Output = Result<Vec<String>, String>> + Send + 'a>>;

impl World for Commands {
    fn owned(&self) -> Lines<'_> {
        Box::pin(lines(&self.owned))
    }

    fn foreign(&self) -> Lines<'_> {
        Box::pin(async {
            match &self.foreign {
                Some(command) => lines(command).await,
                None => Ok(Vec::new()),
            }
        })
    }
}

async fn lines(command: &str) -> Result<Vec<String>, String> {
    let output = Command::new("sh").arg("-c").arg(command).output().await;
    let output = output.map_err(|error| format!("cannot run {command}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "{command} ends with {}: {}",
            output.status,
            said.trim()
        ));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(str::to_owned)
        .collect())
}
