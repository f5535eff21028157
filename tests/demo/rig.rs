//! `portico up --demo`, as somebody starts it and copies what it prints.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Demo {
    pub child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// The things to try, as printed.
    pub commands: Vec<String>,
    pub kubeconfig: String,
    /// The address of the dashboard, with its key.
    pub dashboard: String,
    /// How to ask the DNS server.
    pub dig: String,
}

impl Demo {
    pub(crate) fn start(lab: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_portico"))
            .args([
                "up",
                "--demo",
                "--port",
                "0",
                "--dashboard-port",
                "0",
                "--lab",
                lab,
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut commands, mut kubeconfig, mut dashboard, mut dig) =
            (Vec::new(), String::new(), String::new(), String::new());
        while commands.len() < 5 {
            let line = lines
                .next()
                .expect("the demo prints its screenful")
                .unwrap();
            println!("{line}");
            if let Some(path) = line.trim().strip_prefix("kubeconfig ") {
                kubeconfig = path.trim().to_owned();
            }
            if let Some(address) = line.trim().strip_prefix("dashboard ") {
                dashboard = address.trim().to_owned();
            }
            if let Some(command) = line.trim().strip_prefix("DNS ") {
                dig = command.trim().to_owned();
            }
            let number = format!("{}. ", commands.len() + 1);
            if let Some(command) = line.trim().strip_prefix(&number) {
                commands.push(command.to_owned());
            }
        }
        Self {
            child,
            lines,
            commands,
            kubeconfig,
            dashboard,
            dig,
        }
    }

    /// Runs one of the things to try as somebody would who copies it.
    pub(crate) fn try_number(&self, number: usize) -> String {
        good(&shell(&self.commands[number - 1]))
    }

    /// Repeats it until its answer is as wanted.
    pub(crate) fn try_until(&self, number: usize, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = shell(&self.commands[number - 1]);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success() && wanted(&text) {
                return text;
            }
            assert!(
                Instant::now() < deadline,
                "{} never: {output:?}",
                self.commands[number - 1]
            );
        }
    }

    /// The next line of what happens that has this in it.
    pub(crate) fn told(&mut self, words: &str) -> String {
        self.lines
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains(words))
            .expect("the demo goes on")
    }
}

/// As Ctrl-C does it, so that it takes its files with it.
impl Drop for Demo {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            shell(&format!("kill -INT {}", self.child.id()));
        }
        let _ = self.child.wait();
    }
}

pub(crate) fn shell(command: &str) -> Output {
    Command::new("sh").args(["-c", command]).output().unwrap()
}

pub(crate) fn good(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
