//! The `portico` binary: arguments to a configuration, logging, start.

mod apiserver;
mod controller;
mod logging;
mod signals;

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
    /// Keep objects in step with each other: EndpointSlices and Endpoints with Services and Pods.
    Controller(controller::Arguments),
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::start();
    let result = match arguments.command {
        Command::Apiserver(arguments) => apiserver::run(*arguments),
        Command::Controller(arguments) => controller::run(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
