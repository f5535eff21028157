//! The demo after its start: takes orders, and tells which node answers for which address now and
//! which programs ended.

use super::demo::Demo;
use crate::lab::control::{self, Action, Order};
use anyhow::Context;
use portico_netns::lab::PLACES;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// How often the demo reads which node answers for an address.
const LOOK: Duration = Duration::from_millis(50);
/// The time limit for an order to arrive whole.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Listening {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to remove.
        let _ = fs::remove_file(&self.path);
    }
}

/// Where orders arrive. Only one lab may have the name.
pub(super) fn listen(path: &Path) -> anyhow::Result<Listening> {
    control::make_folder()?;
    if control::ask(path, &Order::Show).is_ok() {
        anyhow::bail!(
            "a lab of this name runs already: end it, or give this one another name with --lab"
        );
    }
    let _ = fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(Listening {
        listener,
        path: path.to_owned(),
    })
}

/// Serves orders until it is dropped.
pub(super) async fn follow(mut demo: Demo, listening: Listening) -> anyhow::Result<()> {
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            accepted = listening.listener.accept() => if let Ok((stream, _)) = accepted {
                // A client that is slow with its order is dropped, so that the demo goes on.
                let _ = timeout(PATIENCE, serve(&mut demo, stream)).await;
            },
            _ = look.tick() => crate::print(&demo.news()),
        }
    }
}

async fn serve(demo: &mut Demo, stream: UnixStream) -> std::io::Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reading.take(control::LONGEST))
        .read_line(&mut line)
        .await?;
    let answer = match line.parse::<Order>().and_then(|order| demo.obey(&order)) {
        Ok(text) => format!("ok\n{text}"),
        Err(error) => format!("failed\n{error:#}\n"),
    };
    writing.write_all(answer.as_bytes()).await
}

impl Demo {
    fn obey(&mut self, order: &Order) -> anyhow::Result<String> {
        match order {
            Order::Show => Ok(self.show()),
            Order::Namespace(host) => {
                let names = || self.lab.names().collect::<Vec<_>>().join(", ");
                let found = self
                    .lab
                    .host(host)
                    .with_context(|| format!("there is no host {host}: there are {}", names()))?;
                Ok(format!(
                    "/proc/{}/fd/{}\n",
                    std::process::id(),
                    found.namespace_fd()
                ))
            }
            Order::Act(action, node) => self.act(*action, node),
        }
    }

    fn act(&mut self, action: Action, node: &str) -> anyhow::Result<String> {
        let known = PLACES.iter().any(|place| place.node == node);
        if !known {
            anyhow::bail!(
                "there is no node {node}: there are {}",
                PLACES.map(|place| place.node).join(", ")
            );
        }
        match action {
            Action::Kill => self.programs.kill(node)?,
            Action::Pause => self.programs.signal(node, libc::SIGSTOP)?,
            Action::Resume => self.programs.signal(node, libc::SIGCONT)?,
            Action::Unplug => self.lab.unplug(node)?,
            Action::Plug => self.lab.plug(node)?,
            Action::Start => self.start_node(node)?,
        }
        let (done, back) = told(action);
        crate::print(&format!("{node} {done}\n"));
        let back = back
            .map(|back| format!("; back with: portico lab {back} {node}"))
            .unwrap_or_default();
        Ok(format!("{node} {done}{back}\n"))
    }

    fn show(&self) -> String {
        let mut text = String::new();
        for place in PLACES {
            let state = if self.programs.is_running(place.node) {
                "portico node runs"
            } else {
                "portico node does not run"
            };
            let owned = self
                .owners
                .iter()
                .filter(|(_, owner)| *owner == Some(place.node));
            let owned: Vec<String> = owned.map(|(address, _)| address.to_string()).collect();
            let owned = if owned.is_empty() {
                String::new()
            } else {
                format!(", answers for {}", owned.join(", "))
            };
            let _ = writeln!(
                text,
                "{:<8} {:<12} {state}{owned}",
                place.node,
                place.address.to_string()
            );
        }
        let _ = writeln!(
            text,
            "hosts: {}",
            self.lab.names().collect::<Vec<_>>().join(", ")
        );
        text
    }

    /// What changed since the last look.
    fn news(&mut self) -> String {
        let mut text = String::new();
        for (name, status) in self.programs.ended() {
            let _ = writeln!(text, "{name} ended: {status}");
        }
        for (address, owner) in &mut self.owners {
            let Ok(Some(now)) = self.lab.owner(*address) else {
                continue;
            };
            if *owner != Some(now.node) {
                let before = owner
                    .map(|before| format!("before: {before}"))
                    .unwrap_or_default();
                let _ = writeln!(text, "{address} is answered for by {} ({before})", now.node);
                *owner = Some(now.node);
            }
        }
        text
    }
}

/// What became of the node, and the way back.
fn told(action: Action) -> (&'static str, Option<Action>) {
    match action {
        Action::Kill => ("is killed", Some(Action::Start)),
        Action::Pause => ("is paused", Some(Action::Resume)),
        Action::Resume => ("goes on", None),
        Action::Unplug => ("is unplugged", Some(Action::Plug)),
        Action::Plug => ("is plugged in", None),
        Action::Start => ("is started", None),
    }
}
