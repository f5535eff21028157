//! `portico install`: what a machine needs around the program. Also shell completion and manual
//! pages, which are made from the flags themselves.

use anyhow::Context;
use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the program goes if it runs from a place that the unit cannot read.
const PROGRAM: &str = "/usr/local/bin/portico";
/// By `ProtectHome` and `PrivateTmp` of the unit.
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];
const UNIT: &str = "/etc/systemd/system/portico.service";

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A unit that runs `portico up`, or `portico join` on a machine that has joined, with the
    /// arguments after `--`.
    Systemd {
        /// The machine is a node of the cluster with this API server: `portico join` was run on it
        /// once.
        #[arg(long, value_name = "URL")]
        join: Option<http::Uri>,
        /// Where to.
        #[arg(long, value_name = "FILE", default_value = UNIT)]
        unit: PathBuf,
        /// Show it instead.
        #[arg(long)]
        print: bool,
        /// Of `portico up` or `portico join`.
        #[arg(last = true, value_name = "ARGUMENTS")]
        arguments: Vec<String>,
    },
    /// Completion of commands and flags, on the standard output: portico install completion bash >
    /// /etc/bash_completion.d/portico
    Completion { shell: Shell },
    /// Manual pages, one for each command.
    Man {
        #[arg(value_name = "DIR", default_value = "/usr/local/share/man/man1")]
        dir: PathBuf,
    },
}

pub(crate) fn run(arguments: Arguments, mut command: Command) -> anyhow::Result<()> {
    match arguments.what {
        What::Systemd {
            join,
            unit,
            print,
            arguments,
        } => {
            let running = std::env::current_exe()?;
            let program = program_of_unit(&running);
            let text = systemd_unit(program, join.as_ref(), &arguments)?;
            match print {
                true => crate::print(&text),
                false => {
                    if program != running {
                        copy_program(&running, program)?;
                    }
                    fs::write(&unit, text).with_context(|| {
                        format!("cannot write {}: are you root?", unit.display())
                    })?;
                    crate::print(&format!(
                        "{} is written; next: systemctl daemon-reload && systemctl enable --now \
                         portico\n",
                        unit.display()
                    ));
                }
            }
        }
        What::Completion { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command, "portico", &mut text);
            crate::print(&String::from_utf8_lossy(&text));
        }
        What::Man { dir } => {
            fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            clap_mangen::generate_to(command, &dir)
                .with_context(|| format!("cannot write to {}", dir.display()))?;
        }
    }
    Ok(())
}

/// Where the unit finds the program: the unit sees no home directory, and a /tmp of its own.
fn program_of_unit(running: &Path) -> &Path {
    match HIDDEN.iter().any(|hidden| running.starts_with(hidden)) {
        true => Path::new(PROGRAM),
        false => running,
    }
}

/// As a whole or not at all, also while the one that is there runs.
fn copy_program(running: &Path, program: &Path) -> anyhow::Result<()> {
    let new = program.with_extension("new");
    fs::copy(running, &new)
        .and_then(|_| fs::rename(&new, program))
        .with_context(|| {
            format!(
                "cannot copy {} to {}, where systemd may read it: are you root?",
                running.display(),
                program.display()
            )
        })?;
    crate::print(&format!(
        "{} is copied to {}, since the unit may not read the former\n",
        running.display(),
        program.display()
    ));
    Ok(())
}

fn systemd_unit(
    program: &Path,
    join: Option<&http::Uri>,
    arguments: &[String],
) -> anyhow::Result<String> {
    let mut words = vec![program.display().to_string()];
    match join {
        None => words.push("up".to_owned()),
        Some(server) => {
            words.extend(["join".to_owned(), server.to_string(), "--joined".to_owned()])
        }
    }
    words.extend_from_slice(arguments);
    let words: Vec<String> = words
        .iter()
        .map(|word| quoted(word))
        .collect::<anyhow::Result<_>>()?;
    Ok(include_str!("portico.service").replace("@COMMAND@", &words.join(" ")))
}

/// As systemd reads it: quotes, backslashes, percent and dollar signs mean something there.
fn quoted(word: &str) -> anyhow::Result<String> {
    if word.chars().any(char::is_control) {
        anyhow::bail!("{word:?} has a control character in it, which a unit cannot have");
    }
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "/-_.,:=+@[]".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return Ok(word.to_owned());
    }
    let escaped = word
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('%', "%%")
        .replace('$', "$$");
    Ok(format!("\"{escaped}\""))
}

#[cfg(test)]
mod tests;
