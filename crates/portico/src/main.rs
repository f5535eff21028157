//! The `portico` binary: arguments to a configuration, logging, start.

mod apiserver;
mod backup;
mod bench;
mod check_plugin;
mod cleanup;
mod client;
mod controller;
mod dashboard;
mod dns;
mod doctor;
mod explain;
mod expose;
mod fetch;
mod fleet;
mod get;
mod install;
mod join;
mod lab;
mod logging;
mod machine;
mod migrate;
mod node;
mod output;
mod plan;
mod signals;
mod status;
mod top;
mod up;
mod version;
mod vip;

use clap::{CommandFactory, Parser, Subcommand};
use portico_client::error::chain;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

// The server keeps many small objects for long: an allocator that packs them well halves its
// memory.
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
    /// Write everything that a running API server stores to a file.
    Backup(backup::BackupArguments),
    /// Measure on this machine how soon connections follow the API, in under a minute.
    Bench(bench::Arguments),
    /// Remove what Portico left on this machine: rules, sockets, folders of demos.
    Cleanup(cleanup::Arguments),
    /// Give Services load balancers, and keep EndpointSlices and Endpoints in step with Services
    /// and Pods.
    Controller(Box<controller::Arguments>),
    /// Show Services and where their traffic goes, in a browser.
    Dashboard(dashboard::Arguments),
    /// Answer for a DNS zone made from Services, load balancers and nodes.
    Dns(Box<portico_dns::config::Arguments>),
    /// Say whether this node can forward, what stands in its way, and how to mend it.
    Doctor(doctor::Arguments),
    /// Say where a packet would go, and why.
    Explain(explain::Arguments),
    /// Make a Service of servers at given addresses, with health checks.
    Expose(Box<expose::Arguments>),
    /// Services, nodes, endpoints, pools, port partitions and balancers, with what Portico knows of them.
    Get(get::Arguments),
    /// A systemd unit, shell completion, manual pages.
    Install(install::Arguments),
    /// Make this machine a node of the cluster that `portico up` runs on another.
    Join(Box<join::Arguments>),
    /// Play with the cluster of `portico up --demo`.
    Lab(lab::Arguments),
    /// Print Portico's equivalent of a configuration of MetalLB, kube-proxy, keepalived or
    /// kube-vip.
    Migrate(migrate::Arguments),
    /// Forward Services on this node, in place of kube-proxy.
    Node(portico_node::config::Arguments),
    /// Say what a change would do, without doing it.
    Plan(plan::Arguments),
    /// Make a store of a backup, for an API server that is stopped.
    Restore(backup::RestoreArguments),
    /// Whether all is well, and where it is not, the way out.
    ///
    /// Exits with 0 where all is well, 1 where something is wrong and traffic flows, 2 where a
    /// Service is not served or no node forwards, 3 where that cannot be told.
    Status(status::Arguments),
    /// Look for damage in the embedded store of an API server that is stopped, and go on without it.
    Store(backup::StoreArguments),
    /// Watch Services, endpoints and nodes in a terminal.
    Top(top::Arguments),
    /// Tokens with which other machines join.
    Token(join::token::Arguments),
    /// Start everything at once, to look at or to use.
    Up(up::Arguments),
    /// What this program is.
    Version(version::Arguments),
    /// Keep the API servers reachable on one virtual address.
    Vip(Box<vip::Arguments>),
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        // What other threads woke goes first: that is mostly what a commit has finished, and where
        // there is more to do than the processor can, it must not wait behind what is new.
        .global_queue_interval(1)
        .enable_all()
        .build()
}

/// Prints the output of a command. A closed pipe (`| head`) is no error.
fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints the error of an interactive command as a sentence, where a daemon would log it.
fn say(result: anyhow::Result<()>) -> anyhow::Result<()> {
    if let Err(error) = &result {
        eprintln!("portico: {}", chain(error.as_ref()));
        std::process::exit(1);
    }
    result
}

/// The same for one that answers by its exit code.
fn end(result: anyhow::Result<u8>) -> anyhow::Result<()> {
    say(result.map(|code| {
        if code != 0 {
            std::process::exit(code.into());
        }
    }))
}

/// Under the name of kube-proxy it is a node, so that only the image has to be another one.
fn as_called(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments
        .first()
        .and_then(|path| Path::new(path).file_name());
    if name.is_some_and(|name| name == "kube-proxy") {
        arguments.insert(1, "node".into());
    }
    arguments
}

fn main() -> ExitCode {
    let result = match Arguments::parse_from(as_called(std::env::args_os().collect())).command {
        Command::Apiserver(arguments) => {
            logging::start();
            apiserver::run(*arguments)
        }
        Command::Controller(mut arguments) => match arguments.task.take() {
            Some(controller::Task::CheckPlugin(check)) => say(check_plugin::run(check)),
            None => {
                logging::start();
                controller::run(*arguments)
            }
        },
        Command::Dns(arguments) => dns::run(*arguments),
        // How much it logs is part of its configuration.
        Command::Node(arguments) => node::run(&arguments),
        Command::Vip(arguments) => vip::run(&arguments),
        // For people at a terminal: what they ask for goes to the standard output, and only trouble
        // is logged.
        Command::Backup(arguments) => say(backup::backup(&arguments)),
        Command::Bench(arguments) => say(bench::run(&arguments)),
        Command::Cleanup(arguments) => say(cleanup::run(arguments)),
        Command::Dashboard(arguments) => say(dashboard::run(arguments)),
        Command::Doctor(arguments) => say(doctor::run(arguments)),
        Command::Explain(arguments) => say(explain::run(arguments)),
        Command::Expose(arguments) => say(expose::run(&arguments)),
        Command::Get(arguments) => say(get::run(&arguments)),
        Command::Install(arguments) => say(install::run(arguments, Arguments::command())),
        Command::Join(arguments) => say(join::run(*arguments)),
        Command::Lab(arguments) => say(lab::run(arguments)),
        Command::Plan(arguments) => end(plan::run(&arguments)),
        Command::Restore(arguments) => say(backup::restore(arguments)),
        Command::Status(arguments) => end(status::run(&arguments)),
        Command::Store(arguments) => end(backup::store(&arguments)),
        Command::Migrate(arguments) => say(migrate::run(arguments)),
        Command::Top(arguments) => say(top::run(arguments)),
        Command::Token(arguments) => say(join::token::run(arguments)),
        Command::Up(arguments) => say(up::run(arguments)),
        Command::Version(arguments) => say(version::run(&arguments)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn flags_do_not_contradict_each_other() {
        <super::Arguments as clap::CommandFactory>::command().debug_assert();
    }
}
