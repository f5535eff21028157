//! `portico vip`: arguments to a configuration, a run from start to signal, and what is short.

use crate::logging;
use crate::output::Output;
use crate::signals::Signals;
use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use portico_vip::config::{self, Config, Given, StatusAddress};
use portico_vip::manifest::Manifest;
use portico_vip::{machine, page};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Subcommand)]
enum Command {
    /// Who has the address and why, which API servers answer, and what is in force.
    Status {
        #[command(flatten)]
        settings: Box<Settings>,
        #[command(flatten)]
        output: Output,
    },
    /// Print what a node needs to run it: a static pod for the kubelet, and a unit for systemd.
    Manifest {
        #[command(flatten)]
        settings: Box<Settings>,
        /// Only this one.
        #[arg(long, value_enum)]
        kind: Option<Kind>,
        #[arg(long, default_value = concat!("portico:", env!("CARGO_PKG_VERSION")))]
        image: String,
        /// Where the program is on the node.
        #[arg(long, default_value = "/usr/local/bin/portico")]
        program: PathBuf,
    },
    /// Remove the rules that an earlier run left on this node.
    Cleanup {
        #[command(flatten)]
        settings: Box<Settings>,
    },
}

#[derive(Args)]
struct Settings {
    /// A file with these settings (`kind: VipConfiguration`); flags go before it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    given: Given,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Kind {
    StaticPod,
    Systemd,
}

impl Settings {
    fn read(&self) -> anyhow::Result<Given> {
        Ok(match &self.config {
            Some(path) => self.given.clone().or(config::read_file(path)?),
            None => self.given.clone(),
        })
    }

    fn resolve(&self) -> anyhow::Result<Config> {
        let surroundings =
            machine::surroundings().context("cannot list the addresses of this machine")?;
        Ok(config::resolve(self.read()?, &surroundings)?)
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        None => {
            logging::start();
            let config = arguments.settings.resolve()?;
            runtime()?.block_on(async {
                let mut signals = Signals::new()?;
                portico_vip::run(config, async move { signals.wait().await }).await?;
                tracing::info!("stopped; the address and the rules are gone");
                Ok(())
            })
        }
        // These commands print an answer and end; the others run as a daemon.
        Some(Command::Status { settings, output }) => crate::say(status(settings, *output)),
        Some(Command::Manifest {
            settings,
            kind,
            image,
            program,
        }) => crate::say(manifest(settings, *kind, image, program)),
        Some(Command::Cleanup { settings }) => {
            logging::start();
            let config = settings.resolve()?;
            let forwarding = portico_vip::forward::Forwarding::new(config.forward)
                .remove()
                .map_err(anyhow::Error::from);
            let handing_over = portico_vip::handover::remove().map_err(anyhow::Error::from);
            forwarding
                .and(handing_over)
                .context("not all rules could be removed")
        }
    }
}

/// Elections and forwarding have threads of their own; for the rest one is enough.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn status(settings: &Settings, output: Output) -> anyhow::Result<()> {
    let given = settings.read()?.status_address;
    let default = SocketAddr::from(([127, 0, 0, 1], portico_vip::config::STATUS_PORT));
    let StatusAddress(address) = given.unwrap_or(StatusAddress(Some(default)));
    let address = address.context("with --status-address=none there is no status to read")?;
    let status = runtime()?.block_on(page::fetch(address))?;
    output.print(&status)
}

fn manifest(
    settings: &Settings,
    kind: Option<Kind>,
    image: &str,
    program: &std::path::Path,
) -> anyhow::Result<()> {
    let manifest = Manifest {
        given: &settings.given,
        config_file: settings.config.as_deref(),
        image,
        program,
    };
    let pod = (kind != Some(Kind::Systemd)).then(|| manifest.static_pod());
    let unit = (kind != Some(Kind::StaticPod)).then(|| manifest.systemd_unit());
    match (pod, unit) {
        (Some(pod), Some(unit)) => print(&format!(
            "# /etc/kubernetes/manifests/portico-vip.yaml\n{pod}\n# \
             /etc/systemd/system/portico-vip.service\n{}",
            unit.trim_end()
        )),
        (pod, unit) => print(pod.or(unit).unwrap_or_default().trim_end()),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{text}").context("cannot print")
}
