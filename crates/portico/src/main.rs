//! The `portico` binary: arguments to a configuration, logging, start.

mod apiserver;
mod controller;
mod dns;
mod logging;
mod node;
mod signals;
mod vip;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

// The server keeps many small objects for long: an allocator that packs them well halves its memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Service load balancing for Kubernetes, complete, in one program.
#[derive(Parser)]
#[command(name = "portico", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the Kubernetes API for Services and what surrounds them.
    Apiserver(Box<apiserver::Arguments>),
    /// Give Services load balancers, and keep EndpointSlices and Endpoints in step with Services and Pods.
    Controller(Box<controller::Arguments>),
    /// Answer for a DNS zone made from Services, load balancers and nodes.
    Dns(Box<portico_dns::config::Arguments>),
    /// Forward Services on this node, in place of kube-proxy.
    Node(portico_node::config::Arguments),
    /// Keep the API servers reachable on one virtual address.
    Vip(Box<vip::Arguments>),
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Apiserver(arguments) => {
            logging::start();
            apiserver::run(*arguments)
        }
        Command::Controller(arguments) => {
            logging::start();
            controller::run(*arguments)
        }
        Command::Dns(arguments) => dns::run(*arguments),
        // How much it logs is part of its configuration.
        Command::Node(arguments) => node::run(&arguments),
        Command::Vip(arguments) => vip::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
