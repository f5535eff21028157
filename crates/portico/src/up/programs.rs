//! The programs of the lab: each a process of its own on its host, as on real machines.

use anyhow::{Context, bail};
use portico_testbed::{Host, Process};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Lines of a log that are shown when its program cannot go on.
const SHOWN: usize = 12;

pub struct Programs {
    executable: PathBuf,
    logs: PathBuf,
    running: BTreeMap<String, Process>,
}

impl Programs {
    pub fn new(logs: PathBuf) -> anyhow::Result<Programs> {
        fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let executable = std::env::current_exe().context("cannot find this very program")?;
        Ok(Programs { executable, logs, running: BTreeMap::new() })
    }

    /// Starts `portico` with these arguments on a host. Its log goes to a file with its name.
    pub fn start(&mut self, name: &str, host: &Host, arguments: &[String]) -> anyhow::Result<()> {
        if self.is_running(name) {
            bail!("{name} runs already");
        }
        let log = File::options().create(true).append(true).open(self.log(name))?;
        let mut command = Command::new(&self.executable);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.running.insert(name.to_owned(), host.spawn(command)?);
        Ok(())
    }

    pub fn is_running(&self, name: &str) -> bool {
        self.running.contains_key(name)
    }

    /// Sends it a signal.
    pub fn signal(&mut self, name: &str, signal: i32) -> anyhow::Result<()> {
        self.running.get_mut(name).with_context(|| format!("{name} does not run"))?.signal(signal);
        Ok(())
    }

    /// Ends it without notice.
    pub fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        // It is killed as it is dropped.
        self.running.remove(name).map(drop).with_context(|| format!("{name} does not run"))
    }

    /// Those that ended since somebody last asked.
    pub fn ended(&mut self) -> Vec<(String, ExitStatus)> {
        let gone = self.running.iter_mut().filter_map(|(name, process)| Some((name.clone(), process.ended()?)));
        let gone: Vec<_> = gone.collect();
        gone.iter().for_each(|(name, _)| drop(self.running.remove(name)));
        gone
    }

    /// An error if one ended, with what it said last.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.ended().first() {
            None => Ok(()),
            Some((name, status)) => bail!("{name} ended ({status}); its log says:\n{}", tail(&self.log(name))),
        }
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}
