//! Runs a command inside user-mode-linux:
//! `cargo run -p portico-testbed --example uml -- sh -c 'uname -r; ipvsadm -ln'`.
#![allow(clippy::print_stdout, reason = "it is what the command prints")]

use portico_testbed::uml::Uml;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let mut command = Command::new(words.next().unwrap_or("uname".into()));
    command.args(words);
    match Uml::default().run(&command, |line| println!("{line}")) {
        Ok(ended) => ended.status.into(),
        Err(error) => {
            eprintln!("{error}: {}", error.source);
            ExitCode::FAILURE
        }
    }
}
