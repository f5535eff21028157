//! Talks to the master process of HAProxy through its socket. Every wait has an end.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::plan::Command;
use super::running::{Running, parse_processes};

/// The time limit for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// HAProxy reads a line into a buffer of 16 KiB.
const LINE: usize = 8 * 1024;
/// Stands between commands, because some answers end with an empty line, some do not, and some are
/// nothing else: a question that has always the same answer.
const END: &str = "show env PORTICO_END";
const END_ANSWER: &str = "Variable not found";

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("HAProxy does not answer at {path}")]
    Away { path: PathBuf, source: io::Error },
    #[error("HAProxy did not answer at {path} within {ANSWER:?}")]
    Late { path: PathBuf },
    #[error("HAProxy has no worker, it says: {0}")]
    NoWorker(String),
    #[error("`{command}`: HAProxy says {answer:?}")]
    Refused { command: String, answer: String },
}

#[derive(Clone, Debug)]
pub(super) struct Master {
    path: PathBuf,
}

impl Master {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Sends one line, and reads the whole answer.
    async fn ask(&self, line: &str) -> Result<String, SocketError> {
        let exchange = async {
            let mut stream = UnixStream::connect(&self.path).await?;
            stream.write_all(line.as_bytes()).await?;
            stream.write_all(b"\n").await?;
            stream.shutdown().await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        let answered = timeout(ANSWER, exchange)
            .await
            .map_err(|_| SocketError::Late {
                path: self.path.clone(),
            })?;
        answered.map_err(|source| SocketError::Away {
            path: self.path.clone(),
            source,
        })
    }

    /// The worker, and how often the configuration was loaded anew.
    pub(super) async fn worker(&self) -> Result<(u32, u64), SocketError> {
        let answer = self.ask("show proc").await?;
        parse_processes(&answer).ok_or(SocketError::NoWorker(answer))
    }

    pub(super) async fn read(&self) -> Result<Running, SocketError> {
        let (worker, _) = self.worker().await?;
        let names = self.ask(&format!("@!{worker} show backend")).await?;
        Ok(Running::parse(worker, &names, &self.states(worker).await?))
    }

    /// `show servers state`, as it is.
    pub(super) async fn states(&self, worker: u32) -> Result<String, SocketError> {
        self.ask(&format!("@!{worker} show servers state")).await
    }

    /// Whether it worked cannot be seen from the answer: the master begins anew, and may drop this
    /// connection before it has one.
    pub(super) async fn reload(&self) {
        _ = self.ask("reload").await;
    }

    /// Tell the worker that `running` was read from, and note in it what is done. HAProxy goes on
    /// after a command that it refuses, so no server is removed before all new ones are there.
    pub(super) async fn tell(
        &self,
        running: &mut Running,
        commands: &[Command],
    ) -> Result<(), SocketError> {
        let (going, coming): (Vec<Command>, Vec<Command>) =
            commands.iter().cloned().partition(Command::takes_away);
        self.tell_some(running, &coming).await?;
        self.tell_some(running, &going).await
    }

    async fn tell_some(
        &self,
        running: &mut Running,
        commands: &[Command],
    ) -> Result<(), SocketError> {
        for (line, some) in lines(running.worker, commands) {
            let answer = self.ask(&line).await?;
            for (command, answer) in some.iter().zip(split(&answer, some.len())) {
                match () {
                    () if command.is_done(answer) => command.apply(running),
                    () if command.may_wait() => {}
                    () => {
                        let (command, answer) = (command.to_string(), answer.to_owned());
                        return Err(SocketError::Refused { command, answer });
                    }
                }
            }
        }
        Ok(())
    }
}

/// As few lines as possible.
fn lines(worker: u32, commands: &[Command]) -> Vec<(String, &[Command])> {
    let mut lines = Vec::new();
    let (mut line, mut first) = (String::new(), 0);
    for (number, command) in commands.iter().enumerate() {
        let text = format!("@!{worker} {command};@!{worker} {END}");
        if !line.is_empty() && line.len() + text.len() > LINE {
            lines.push((std::mem::take(&mut line), &commands[first..number]));
            first = number;
        }
        if !line.is_empty() {
            line.push(';');
        }
        line.push_str(&text);
    }
    if !line.is_empty() {
        lines.push((line, &commands[first..]));
    }
    lines
}

/// The answers to several commands. Since nothing is an answer, one that is missing is said in
/// words.
fn split(text: &str, count: usize) -> Vec<&str> {
    let mut answers: Vec<&str> = text.split(END_ANSWER).map(str::trim).collect();
    // Nothing is said after the last end.
    answers.pop();
    answers.resize(count, "no answer");
    answers
}

#[cfg(test)]
mod tests;
