//! `portico controller`: what keeps objects in step with each other, as a client of any API server.

use crate::signals::Signals;
use anyhow::Context;
use clap::{ArgAction, Args};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use portico_controller::endpoints::{self, Options};
use portico_controller::lease::{LeaseOptions, lead};
use std::path::PathBuf;
use tokio::sync::watch;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub struct Arguments {
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config or the pod's own].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Let only one of several controllers work at a time.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    leader_elect: bool,
    /// Also keep the older Endpoints objects.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    endpoints: bool,
}

/// Work until SIGINT or SIGTERM.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    crate::runtime()?.block_on(async {
        let mut signals = Signals::new()?;
        let client = client(arguments.kubeconfig).await?;
        let (stop, stopped) = watch::channel(false);
        let work = tokio::spawn(run_all(client, arguments.leader_elect, arguments.endpoints, stopped));
        signals.wait().await;
        stop.send_replace(true);
        work.await.context("the controller did not end in order")
    })
}

async fn client(kubeconfig: Option<PathBuf>) -> anyhow::Result<Client> {
    let config = match kubeconfig {
        None => Config::infer().await.context("no API server is known: give --kubeconfig")?,
        Some(path) => {
            let read = Kubeconfig::read_from(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?
        }
    };
    Ok(Client::try_from(config)?)
}

/// The endpoint-slice controller, alone or in turns with others.
pub async fn run_all(client: Client, leader_elect: bool, write_endpoints: bool, stop: watch::Receiver<bool>) {
    let options = Options { write_endpoints, ..Options::default() };
    if !leader_elect {
        return endpoints::run(client, options, stop).await;
    }
    let identity = format!("{}_{}", hostname(), std::process::id());
    let lease = LeaseOptions::new("kube-system", "portico-endpoint-controller", &identity);
    lead(client.clone(), lease, stop, |stop| endpoints::run(client.clone(), options.clone(), stop)).await;
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "portico".to_owned() } else { name.trim().to_owned() }
}
