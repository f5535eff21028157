//! Running kubectl against a server of its own.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{Server, Store};

/// A server and a kubectl that talks to it as administrator.
pub(crate) struct Cluster {
    pub kubectl: Kubectl,
    pub server: Server,
}

/// A fresh cluster and the kubectl of `$KUBECTL` or the PATH.
pub(crate) async fn cluster() -> Cluster {
    let program = std::env::var("KUBECTL").unwrap_or("kubectl".to_owned());
    let minor = version(&program);
    let minor = minor.unwrap_or_else(|| {
        panic!("{program} does not run: run `make deps`, or set KUBECTL to a kubectl")
    });
    let server = Server::start(Store::Embedded, &[]).await;
    let kubeconfig = server.kubeconfig();
    let home = server.dir().join("home");
    fs::create_dir_all(&home).unwrap();
    let kubectl = Kubectl {
        program,
        minor,
        kubeconfig,
        home,
        namespace: None,
        env: vec![],
    };
    Cluster { kubectl, server }
}

impl Cluster {
    /// An executable shell script.
    pub(crate) fn script(&self, name: &str, body: &str) -> String {
        let path = self.server.dir().join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    /// A kubeconfig that knows the server and no user.
    pub(crate) fn anonymous(&self) -> String {
        let path = self.server.dir().join("anonymous.kubeconfig");
        let server = format!("https://127.0.0.1:{}", self.server.port);
        let trust = match self.server.admin().ca {
            Some(ca) => format!("certificate-authority: {}", ca.display()),
            None => "insecure-skip-tls-verify: true".to_owned(),
        };
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: '{server}', {trust}}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: ''}}}}]\n"
        );
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

/// The minor version of a kubectl; one built without a version counts as new.
fn version(program: &str) -> Option<u32> {
    let output = Command::new(program)
        .args(["version", "--client", "-o", "json"])
        .output()
        .ok()?;
    let version: Value = serde_json::from_slice(&output.stdout).ok()?;
    let minor = version["clientVersion"]["minor"].as_str()?;
    Some(minor.trim_end_matches('+').parse().unwrap_or(u32::MAX))
}

#[derive(Clone)]
pub(crate) struct Kubectl {
    program: String,
    pub minor: u32,
    kubeconfig: PathBuf,
    home: PathBuf,
    namespace: Option<String>,
    env: Vec<(String, String)>,
}

impl Kubectl {
    pub(crate) fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            ..self.clone()
        }
    }

    pub(crate) fn env(&self, name: &str, value: &str) -> Self {
        Self {
            env: vec![(name.to_owned(), value.to_owned())],
            ..self.clone()
        }
    }

    /// Whether this kubectl is too old for something, which it then says.
    pub(crate) fn older_than(&self, minor: u32, what: &str) -> bool {
        let older = self.minor < minor;
        if older {
            println!(
                "SKIPPED: {what} needs kubectl 1.{minor}, this is 1.{}",
                self.minor
            );
        }
        older
    }

    /// `--show-managed-fields`, which old versions do without.
    pub(crate) fn known_flag<'a>(&self, word: &'a str) -> &'a str {
        if word == "--show-managed-fields" && self.minor < 21 {
            "--ignore-not-found"
        } else {
            word
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env_remove("KUBECONFIG")
            .env("HOME", &self.home)
            .envs(self.env.iter().cloned());
        if !arguments.contains(&"--kubeconfig") {
            command.arg("--kubeconfig").arg(&self.kubeconfig);
        }
        if let Some(namespace) = &self.namespace {
            command.args(["--namespace", namespace]);
        }
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Exit code, output and errors.
    pub(crate) fn run(&self, arguments: &[&str], input: Option<&str>) -> (i32, String, String) {
        let mut command = self.command(arguments);
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        if let Some(input) = input {
            child
                .stdin
                .take()
                .unwrap()
                .write_all(input.as_bytes())
                .unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code().unwrap_or(-1),
            text(&output.stdout),
            text(&output.stderr),
        )
    }

    /// The output of a command that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.succeed(arguments, None)
    }

    /// The same with input.
    #[track_caller]
    pub(crate) fn input(&self, arguments: &[&str], input: &str) -> String {
        self.succeed(arguments, Some(input))
    }

    #[track_caller]
    fn succeed(&self, arguments: &[&str], input: Option<&str>) -> String {
        let (code, output, errors) = self.run(arguments, input);
        assert_eq!(code, 0, "kubectl {}: {output}{errors}", arguments.join(" "));
        output
    }

    /// An object as JSON.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["-o", "json"]].concat())).unwrap()
    }

    /// The errors of a command that must fail.
    #[track_caller]
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let (code, output, errors) = self.run(arguments, None);
        assert_ne!(
            code,
            0,
            "kubectl {} succeeds: {output}",
            arguments.join(" ")
        );
        errors
    }

    #[track_caller]
    pub(crate) fn input_fails(&self, arguments: &[&str], input: &str) -> String {
        let (code, output, errors) = self.run(arguments, Some(input));
        assert_ne!(
            code,
            0,
            "kubectl {} succeeds: {output}",
            arguments.join(" ")
        );
        errors
    }

    /// Starts a command that takes its time.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().unwrap()
    }

    /// The same with its output in a file.
    pub(crate) fn start_into(&self, arguments: &[&str], file: &Path) -> Child {
        self.command(arguments)
            .stdout(File::create(file).unwrap())
            .spawn()
            .unwrap()
    }
}
