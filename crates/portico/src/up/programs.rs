//! Programs of Portico, each a process of its own, so that none goes down with another. They die
//! with this one, whatever it dies of.

use anyhow::{Context, bail};
use portico_netns::{Host, Process};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Lines of a log that are shown when its program cannot go on.
const SHOWN: usize = 12;

pub(crate) struct Programs {
    executable: PathBuf,
    /// Each has a file in this folder; without one, all share the standard error of this process.
    logs: Option<PathBuf>,
    running: BTreeMap<String, Process>,
}

impl Programs {
    pub(crate) fn new(logs: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(logs) = &logs {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(logs)
                .with_context(|| format!("cannot make {}", logs.display()))?;
        }
        let executable = std::env::current_exe().context("cannot find this very program")?;
        Ok(Self {
            executable,
            logs,
            running: BTreeMap::new(),
        })
    }

    /// Starts `portico` with these arguments, on a host or, without one, where this process is.
    pub(crate) fn start(
        &mut self,
        name: &str,
        host: Option<&Host>,
        arguments: &[String],
    ) -> anyhow::Result<()> {
        if self.is_running(name) {
            bail!("{name} runs already");
        }
        let mut command = Command::new(&self.executable);
        command.args(arguments).stdin(Stdio::null());
        if let Some(path) = self.log(name) {
            let log = File::options().create(true).append(true).open(path)?;
            command.stdout(log.try_clone()?).stderr(log);
        }
        let process = match host {
            Some(host) => host.spawn(command)?,
            None => Process::start(command).with_context(|| format!("cannot start {name}"))?,
        };
        self.running.insert(name.to_owned(), process);
        Ok(())
    }

    pub(crate) fn is_running(&self, name: &str) -> bool {
        self.running.contains_key(name)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&mut self, name: &str, signal: i32) -> anyhow::Result<()> {
        self.running
            .get_mut(name)
            .with_context(|| format!("{name} does not run"))?
            .signal(signal);
        Ok(())
    }

    /// Ends it without notice.
    pub(crate) fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        // It is killed as it is dropped.
        self.running
            .remove(name)
            .map(drop)
            .with_context(|| format!("{name} does not run"))
    }

    /// The programs that ended since the last call.
    pub(crate) fn ended(&mut self) -> Vec<(String, ExitStatus)> {
        let gone = self
            .running
            .iter_mut()
            .filter_map(|(name, process)| Some((name.clone(), process.ended()?)));
        let gone: Vec<_> = gone.collect();
        gone.iter()
            .for_each(|(name, _)| drop(self.running.remove(name)));
        gone
    }

    /// An error if one ended, with what it said last.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.ended().first() {
            None => Ok(()),
            Some((name, status)) => bail!("{name} ended ({status}){}", self.last_words(name)),
        }
    }

    /// Asks one to end, and kills it if it does not in time.
    pub(crate) fn stop(&mut self, name: &str, patience: Duration) {
        if let Some(mut process) = self.running.remove(name) {
            process.terminate(patience);
        }
    }

    fn log(&self, name: &str) -> Option<PathBuf> {
        self.logs
            .as_ref()
            .map(|logs| logs.join(format!("{name}.log")))
    }

    fn last_words(&self, name: &str) -> String {
        match self.log(name) {
            Some(log) => format!("; its log says:\n{}", tail(&log)),
            None => "; see above why".to_owned(),
        }
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}
