//! `portico doctor`: whether a node can forward, what stands in its way, and the command that mends
//! it. [`collect`] and [`ask`] look, [`judge`] decides.

mod ask;
mod collect;
mod facts;
mod judge;
pub(crate) mod programs;

use crate::output::Output;
use clap::Args;
use facts::{Facts, Mode};
use judge::Diagnosis;
use std::path::PathBuf;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// Look at this machine alone.
    #[arg(long, conflicts_with = "kubeconfig")]
    node: bool,
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config or the pod's own; without
    /// any only this machine is looked at].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How the node forwards, or will.
    #[arg(long, value_enum, default_value = "nftables")]
    proxy_mode: Mode,
    /// Of the API server (`--service-node-port-range`).
    #[arg(long, value_name = "FIRST-LAST", default_value = "30000-32767", value_parser = ports)]
    node_port_range: (u16, u16),
    /// Where data is kept, for its room.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/portico")]
    data_dir: PathBuf,
    #[command(flatten)]
    output: Output,
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let form = || format!("{text:?} is no range: write it like 30000-32767");
    let (first, last) = text.split_once('-').ok_or_else(form)?;
    let (first, last) = (
        first.parse().map_err(|_| form())?,
        last.parse().map_err(|_| form())?,
    );
    if first > last {
        Err(form())
    } else {
        Ok((first, last))
    }
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let machine = collect::machine(&arguments.data_dir);
    let cluster = match arguments.node {
        true => None,
        false => crate::runtime()?.block_on(ask::cluster(arguments.kubeconfig)),
    };
    let vip = match machine
        .programs
        .iter()
        .any(|program| program.role == facts::Role::PorticoVip)
    {
        false => None,
        true => Some(crate::runtime()?.block_on(ask::vip())),
    };
    let facts = Facts {
        mode: arguments.proxy_mode,
        node_ports: arguments.node_port_range,
        machine: Some(machine),
        vip,
        cluster,
    };
    let diagnosis = Diagnosis::of(&facts);
    arguments.output.print(&diagnosis)?;
    if diagnosis.is_broken() {
        std::process::exit(1);
    }
    Ok(())
}
