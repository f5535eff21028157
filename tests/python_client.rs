//! The Python client does its work: the package `kubernetes` in the environment that `make deps`
//! makes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Server, Store};

/// Beside the build directory of the binary.
fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_portico"))
        .ancestors()
        .nth(2)
        .unwrap();
    let python = target.join("python/bin/python");
    assert!(
        python.exists(),
        "{} is missing: run `make deps`",
        python.display()
    );
    python
}

/// Runs a script from `tests/python` against the server; what it printed.
fn run(server: &Server, script: &str, arguments: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/python");
    let output = Command::new(python())
        .env("KUBECONFIG", server.kubeconfig())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg("-W")
        .arg("ignore")
        .arg(folder.join(script))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{script}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[tokio::test]
async fn objects_and_watches() {
    let server = Server::start(Store::Embedded, &[]).await;
    run(&server, "objects.py", &[]);
}

#[tokio::test]
async fn a_leader_is_elected() {
    let server = Server::start(Store::Embedded, &[]).await;
    run(&server, "leader.py", &[]);
}

/// A watch from before a restart is told that its history is gone, and the client lists again.
#[tokio::test]
async fn an_expired_watch_starts_over() {
    let mut server = Server::start(Store::Embedded, &[]).await;
    let old = run(&server, "expiry.py", &["before"]);
    server.restart(None).await;
    run(&server, "expiry.py", &["after", old.trim()]);
}
