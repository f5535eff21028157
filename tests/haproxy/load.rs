//! A load by `wrk`, and what became of its requests.

use std::net::SocketAddr;
use std::process::Stdio;
use tokio::process::{Child, Command};

pub(crate) struct Load {
    what: &'static str,
    child: Child,
}

/// How requests ended.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub requests: u64,
    /// What wrk says of those that failed; empty if none did.
    pub failures: Vec<String>,
}

impl Load {
    /// Many requests on each connection.
    pub(crate) fn kept(to: SocketAddr) -> Self {
        Self::start("kept connections", to, &[])
    }

    /// A connection for each request.
    pub(crate) fn fresh(to: SocketAddr) -> Self {
        Self::start(
            "a connection for each request",
            to,
            &["-H", "Connection: close"],
        )
    }

    fn start(what: &'static str, to: SocketAddr, more: &[&str]) -> Self {
        let mut command = Command::new("wrk");
        command
            .args(["-t1", "-c8", "-d300s", "--timeout", "10s"])
            .args(more)
            .arg(format!("http://{to}/"));
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Self {
            what,
            child: command.spawn().expect("wrk is installed"),
        }
    }

    /// Ends it; prints what became of it.
    pub(crate) async fn stop(self) -> Outcome {
        let id = self.child.id().expect("it runs").to_string();
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .await
            .unwrap();
        let output = self.child.wait_with_output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let requests = text
            .lines()
            .find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok());
        let failed = |line: &&str| line.contains("Socket errors") || line.contains("Non-2xx");
        let failures = text
            .lines()
            .filter(failed)
            .map(|line| line.trim().to_owned())
            .collect();
        let outcome = Outcome {
            requests: requests.unwrap_or_else(|| panic!("{text}")),
            failures,
        };
        println!(
            "  wrk, {}: {} requests, failed: {:?}",
            self.what, outcome.requests, outcome.failures
        );
        outcome
    }
}

/// Both loads at once.
pub(crate) struct Loads(Load, Load);

impl Loads {
    pub(crate) fn start(to: SocketAddr) -> Self {
        Self(Load::kept(to), Load::fresh(to))
    }

    /// Ends them: none of their requests failed, and there were some.
    pub(crate) async fn stop(self) {
        for outcome in [self.0.stop().await, self.1.stop().await] {
            assert!(
                outcome.failures.is_empty() && outcome.requests > 100,
                "{outcome:?}"
            );
        }
    }
}
