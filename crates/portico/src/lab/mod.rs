//! `portico lab`: play with the cluster of `portico up --demo`, from another terminal.

pub(crate) mod control;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use control::{Action, Order};
use std::path::PathBuf;
use std::process::Command;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Which lab, where several run.
    #[arg(long, value_name = "NAME", default_value = control::DEFAULT, global = true)]
    lab: String,
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Show the hosts, what runs on them, and who answers for which address.
    Show,
    /// Run a command on a host: portico lab exec client -- curl http://192.0.2.200/
    Exec {
        /// client, router, cp, node1, web-1, ...
        host: String,
        #[arg(
            required = true,
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "COMMAND"
        )]
        command: Vec<String>,
    },
    /// End the daemon of a node without notice (SIGKILL).
    Kill { node: String },
    /// Stop the daemon of a node for a while (SIGSTOP).
    Pause { node: String },
    /// Let it go on.
    Resume { node: String },
    /// Pull the cable of a node out of the switch.
    Unplug { node: String },
    /// Put it in again.
    Plug { node: String },
    /// Start the daemon of a node again.
    Start { node: String },
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let socket = control::socket(&arguments.lab)?;
    let act = |action, node| control::ask(&socket, &Order::Act(action, node));
    let answer = match arguments.command {
        LabCommand::Exec { host, command } => {
            return exec(&control::ask(&socket, &Order::Namespace(host))?, &command);
        }
        LabCommand::Show => control::ask(&socket, &Order::Show)?,
        LabCommand::Kill { node } => act(Action::Kill, node)?,
        LabCommand::Pause { node } => act(Action::Pause, node)?,
        LabCommand::Resume { node } => act(Action::Resume, node)?,
        LabCommand::Unplug { node } => act(Action::Unplug, node)?,
        LabCommand::Plug { node } => act(Action::Plug, node)?,
        LabCommand::Start { node } => act(Action::Start, node)?,
    };
    crate::print(&answer);
    Ok(())
}

/// Becomes the command, on the host with this namespace.
fn exec(namespace: &str, command: &[String]) -> anyhow::Result<()> {
    let Some((program, arguments)) = command.split_first() else {
        bail!("say what to run: portico lab exec HOST -- COMMAND")
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let error = portico_netns::process::become_inside(&PathBuf::from(namespace.trim()), command);
    Err(error).with_context(|| format!("cannot run {program} there"))
}
