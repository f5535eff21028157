//! The demo, with more daemons in it, and what a person would type at its hosts.

use crate::rig::{Demo, PATIENCE};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_portico");

pub(crate) struct Lab {
    name: &'static str,
    demo: Demo,
    /// How to reach the API server from hosts of the lab.
    pub inside: PathBuf,
    folder: TempDir,
}

impl Lab {
    pub(crate) fn start(name: &'static str) -> Self {
        let demo = Demo::start(name);
        let inside = Path::new(&demo.kubeconfig).with_file_name("inside.kubeconfig");
        Self {
            name,
            demo,
            inside,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn command(&self, host: &str, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(["lab", "--lab", self.name, "exec", host, "--"])
            .args(words);
        command
    }

    /// Another daemon on a host, until it is dropped.
    pub(crate) fn daemon(&self, host: &str, arguments: &str) -> Daemon {
        let words: Vec<&str> = [PROGRAM]
            .into_iter()
            .chain(arguments.split_whitespace())
            .collect();
        let log = self.folder.path().join(format!("{}.log", words[1]));
        let out = File::create(&log).unwrap();
        let mut command = self.command(host, &words);
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Daemon { child, log }
    }

    /// For `portico vip` beside nothing else, that keeps to itself.
    pub(crate) fn vip_flags(&self, address: &str) -> String {
        let folder = self.folder.path().display();
        format!(
            "--address={address} --kubeconfig={} --interval=100ms --forward=direct \
             --data-dir={folder}/vip --static-services={folder}/services",
            self.inside.display()
        )
    }

    /// For a second `portico node` on the machine.
    pub(crate) fn aside(&self) -> String {
        format!(
            "--healthz-bind-address= --static-services= --data-dir={}/node",
            self.folder.path().display()
        )
    }

    /// What `kubectl` prints, once it has all of these words.
    pub(crate) fn kubectl(&self, arguments: &str, wanted: &[&str]) -> String {
        let words = words(arguments);
        until(arguments, wanted, || {
            let mut command = Command::new("kubectl");
            command
                .arg("--kubeconfig")
                .arg(&self.demo.kubeconfig)
                .args(&words);
            command
        })
    }

    /// The same for a command on a host.
    pub(crate) fn on(&self, host: &str, command: &str, wanted: &[&str]) -> String {
        until(command, wanted, || {
            self.command(host, &command.split_whitespace().collect::<Vec<_>>())
        })
    }
}

/// Separated by spaces that have no backslash before them.
fn words(text: &str) -> Vec<String> {
    let kept = text.replace("\\ ", "\u{0}").replace("\\;", "\n");
    kept.split(' ')
        .map(|word| word.replace('\u{0}', " "))
        .collect()
}

fn until(what: &str, wanted: &[&str], command: impl Fn() -> Command) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = command().output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && wanted.iter().all(|word| text.contains(word)) {
            return text;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            Instant::now() < deadline,
            "{what} does not show {wanted:?}:\n{text}{said}"
        );
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!(
                "--- {}\n{}",
                self.log.display(),
                std::fs::read_to_string(&self.log).unwrap_or_default()
            );
        }
    }
}
