//! `portico up`: everything at once. On this machine, to be used; or with `--demo` in a network of
//! its own, to be looked at.

mod api;
pub(crate) mod demo;
pub(crate) mod keeper;
pub(crate) mod notify;
pub(crate) mod objects;
mod orders;
mod programs;
pub(crate) mod relay;
mod screen;
mod server;

use crate::lab::control;
use anyhow::bail;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// Three nodes, a router and a client as network namespaces, with servers behind Services,
    /// until Ctrl-C. Nothing stays.
    #[arg(long)]
    demo: bool,
    /// The name of the lab, for `portico lab`.
    #[arg(long, value_name = "NAME", default_value = control::DEFAULT, requires = "demo")]
    lab: String,
    /// The port of the API server; that of a demo is on 127.0.0.1, and 0 picks a free one.
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    port: u16,
    /// The port of the demo's dashboard on 127.0.0.1; 0 picks a free one.
    #[arg(long, value_name = "PORT", default_value_t = 9443, requires = "demo")]
    dashboard_port: u16,
    /// Where everything is kept [default: /var/lib/portico; of a demo a folder that is removed at
    /// the end].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    server: server::Arguments,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    if !is_root() {
        bail!(
            "portico up changes rules and makes network namespaces, which only root may: run it again with sudo \
             (`sudo make run`); the demo touches nothing of this machine's own network"
        );
    }
    crate::runtime()?.block_on(async {
        match arguments.demo {
            true if arguments.server.machine.is_described() => bail!(
                "--node-address, --node-external-address and --provider-id are of this machine, \
                 which is no node of the demo: leave them out"
            ),
            true => demo::run(arguments).await,
            false => {
                crate::logging::start();
                server::run(arguments).await
            }
        }
    })
}

/// Whether the program may do what it needs to: as the owner of its own entry in `/proc`.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn text(arguments: &[&str]) -> Vec<String> {
    arguments
        .iter()
        .map(|argument| (*argument).to_owned())
        .collect()
}
