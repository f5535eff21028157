//! How `portico lab` talks to the lab: one line to a socket that only root may open, and the
//! answer.

use anyhow::{Context, bail};
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

pub(crate) const DEFAULT: &str = "demo";
/// Longer lines are not read.
pub(crate) const LONGEST: u64 = 256;

pub(crate) const FOLDER: &str = "/run/portico";
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Show,
    /// Where the network namespace of a host can be opened.
    Namespace(String),
    /// With a node.
    Act(Action, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Kill,
    Pause,
    Resume,
    Unplug,
    Plug,
    Start,
}

const ACTIONS: [(&str, Action); 6] = [
    ("kill", Action::Kill),
    ("pause", Action::Pause),
    ("resume", Action::Resume),
    ("unplug", Action::Unplug),
    ("plug", Action::Plug),
    ("start", Action::Start),
];

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ACTIONS
            .iter()
            .find(|(_, action)| action == self)
            .map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Show => f.write_str("show"),
            Self::Namespace(host) => write!(f, "namespace {host}"),
            Self::Act(action, node) => write!(f, "{action} {node}"),
        }
    }
}

impl FromStr for Order {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let mut words = line.split_whitespace();
        let found = match (words.next(), words.next().map(str::to_owned), words.next()) {
            (Some("show"), None, None) => Some(Self::Show),
            (Some("namespace"), Some(host), None) => Some(Self::Namespace(host)),
            (Some(verb), Some(node), None) => {
                let action = ACTIONS.iter().find(|(name, _)| *name == verb);
                action.map(|(_, action)| Self::Act(*action, node))
            }
            _ => None,
        };
        found.with_context(|| format!("{line:?} is no order of a lab"))
    }
}

/// The path of the socket of the lab with this name.
pub(crate) fn socket(lab: &str) -> anyhow::Result<PathBuf> {
    if lab.is_empty()
        || !lab
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        bail!("--lab={lab:?}: use letters, digits and dashes");
    }
    Ok(Path::new(FOLDER).join(format!("lab-{lab}.sock")))
}

/// Whether a path is that of some lab's.
pub(crate) fn is_socket(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with("lab-") && name.ends_with(".sock"))
}

/// The folder of the sockets, for root alone.
pub(crate) fn make_folder() -> anyhow::Result<()> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(FOLDER);
    made.with_context(|| format!("cannot make {FOLDER}"))
}

/// What the lab answers.
pub(crate) fn ask(socket: &Path, order: &Order) -> anyhow::Result<String> {
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => anyhow::anyhow!("only root may play with the lab: use sudo"),
        _ => anyhow::anyhow!(
            "no lab runs ({}: {error}): start one with `portico up --demo`",
            socket.display()
        ),
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{order}")?;
    let mut answer = BufReader::new(stream);
    let mut verdict = String::new();
    answer
        .read_line(&mut verdict)
        .context("the lab does not answer")?;
    let mut text = String::new();
    answer
        .read_to_string(&mut text)
        .context("the lab does not answer")?;
    match verdict.trim() {
        "ok" => Ok(text),
        _ => bail!("{}", text.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_are_written() {
        let acts = ACTIONS
            .iter()
            .map(|(_, action)| Order::Act(*action, "node1".to_owned()));
        for order in acts.chain([Order::Show, Order::Namespace("client".to_owned())]) {
            assert_eq!(order.to_string().parse::<Order>().ok(), Some(order));
        }
        for wrong in ["", "kill", "kill a b", "dance node1", "show me"] {
            assert!(wrong.parse::<Order>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_lab_has_a_plain_name() {
        assert!(socket("demo-2").is_ok());
        for wrong in ["", "../x", "a b"] {
            assert!(socket(wrong).is_err(), "{wrong}");
        }
    }
}
