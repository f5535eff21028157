//! `portico up`: everything at once. With `--demo` in a network of its own, with something to look at.

mod demo;
mod objects;
mod orders;
mod programs;
mod relay;
mod screen;

use crate::lab::control;
use anyhow::bail;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub struct Arguments {
    /// Three nodes, a router and a client as network namespaces, with servers behind Services, until Ctrl-C. Nothing stays.
    #[arg(long, required = true)]
    demo: bool,
    /// The name of the lab, for `portico lab`.
    #[arg(long, value_name = "NAME", default_value = control::DEFAULT)]
    lab: String,
    /// Where the API server is reached from this machine, on 127.0.0.1; 0 picks a free port.
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    port: u16,
    /// Keep logs and credentials here [default: a folder that is removed at the end].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    if !is_root() {
        bail!(
            "portico up --demo makes network namespaces, which only root may: run it again with sudo (`sudo make run`); \
             nothing of this machine's own network is touched"
        );
    }
    crate::runtime()?.block_on(demo::run(arguments))
}

/// Whether the program may do what it needs to: as the owner of its own entry in `/proc`.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
