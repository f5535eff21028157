//! Runs a command of the binary and tells what it printed.

use crate::common::Server;
use serde_json::Value;
use std::process::{Command, Stdio};

/// What became of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The output of one that must have ended so.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        &self.out
    }

    #[track_caller]
    pub(crate) fn json(&self, code: i32) -> Value {
        serde_json::from_str(self.expect(code))
            .unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// The command with these arguments. `input` is what it may read.
pub(crate) async fn portico_with(arguments: &[&str], input: &str) -> Ran {
    let arguments: Vec<String> = arguments
        .iter()
        .map(|&argument| argument.to_owned())
        .collect();
    let input = input.to_owned();
    let run = move || {
        use std::io::Write;
        let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
        command
            .args(&arguments)
            .env_remove("KUBECONFIG")
            .env("HOME", "/nonexistent");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
        let ended = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ran {
            code: ended.status.code().unwrap(),
            out: text(&ended.stdout),
            err: text(&ended.stderr),
        }
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

pub(crate) async fn portico(arguments: &[&str]) -> Ran {
    portico_with(arguments, "").await
}

/// The same as the administrator of a server.
pub(crate) async fn at(server: &Server, arguments: &[&str]) -> Ran {
    at_with(server, arguments, "").await
}

pub(crate) async fn at_with(server: &Server, arguments: &[&str], input: &str) -> Ran {
    let kubeconfig = server.kubeconfig().display().to_string();
    portico_with(&[arguments, &["--kubeconfig", &kubeconfig]].concat(), input).await
}
